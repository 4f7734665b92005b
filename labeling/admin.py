"""Django's admin: accounts can be edited, and the log of the site is read."""

from typing import TYPE_CHECKING, Any

from allauth.mfa.admin import AuthenticatorAdmin
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialApp, SocialToken
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.http import HttpRequest

from engine.models import AuditEntry, User

admin.site.register(User, UserAdmin)
# The provider comes from the environment, and its tokens are not kept: pages for them would only mislead.
admin.site.unregister([SocialApp, SocialToken])
admin.site.unregister(Authenticator)


@admin.register(Authenticator)
class TwoStepAdmin(AuthenticatorAdmin):
    """A person's second step. Admins may remove it, but never read or set its secret."""

    exclude = ("data",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[AuditEntry]
else:
    _ModelAdmin = admin.ModelAdmin


@admin.register(AuditEntry)
class AuditEntryAdmin(_ModelAdmin):
    """The log of experiments and, nowhere else, of what is about none: tokens, and deleted experiments."""

    list_display = ("at", "by", "experiment", "action", "text")
    list_select_related = ("by", "about", "experiment")
    list_filter = ("action", "experiment")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
