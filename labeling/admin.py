"""Django's admin: accounts can be edited and members added. What estimates rest on is read-only."""

from typing import TYPE_CHECKING, Any, cast

from allauth.mfa.admin import AuthenticatorAdmin
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialApp, SocialToken
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.db.models import Q
from django.http import HttpRequest

from engine.models import (
    AuditEntry,
    Comparison,
    Experiment,
    Factor,
    Judgment,
    JudgmentVoid,
    Level,
    Membership,
    Policy,
    Response,
    Task,
    User,
)
from engine.selectors import blinding
from engine.services import people

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
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin


class ReadOnlyAdmin(_ModelAdmin):
    """Rows that only the services may change."""

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Membership)
class MembershipAdmin(ReadOnlyAdmin):
    """Adds members. The experiment's page of people changes and removes them: links and tokens end with a
    role.
    """

    list_display = ("experiment", "user", "role", "origin", "invited_by", "joined_at")
    list_filter = ("role", "experiment")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)

    def get_fields(self, request: HttpRequest, obj: Membership | None = None) -> Any:
        return ("experiment", "user", "role") if obj is None else super().get_fields(request, obj)

    def save_model(self, request: HttpRequest, obj: Membership, form: Any, change: bool) -> None:
        by = cast(User, request.user)  # the admin site lets nobody else in
        added = people.add_member(experiment=obj.experiment, user=obj.user, role=obj.role, by=by)
        obj.pk = added.pk


@admin.register(Experiment)
class ExperimentAdmin(ReadOnlyAdmin):
    list_display = ("name", "state", "conclusion", "judge", "created_at")


@admin.register(Comparison)
class ComparisonAdmin(ReadOnlyAdmin):
    """Comparisons that somebody may still judge are hidden here, too, and so are their responses."""

    list_display = ("id", "experiment", "policy_i", "policy_j", "state", "created_at")
    list_filter = ("experiment", "state")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).exclude(blinding.hidden_comparison())


@admin.register(Judgment)
class JudgmentAdmin(ReadOnlyAdmin):
    list_display = ("id", "comparison", "judge", "annotator", "choice", "outcome", "created_at")
    list_filter = ("judge", "annotator")

    def get_queryset(self, request: HttpRequest) -> Any:
        compared = super().get_queryset(request).filter(comparison__isnull=False)
        return compared.exclude(blinding.hidden_comparison("comparison__"))


@admin.register(JudgmentVoid)
class JudgmentVoidAdmin(ReadOnlyAdmin):
    """Answers to checks are left out, as whoever judges must not know them."""

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).filter(judgment__comparison__isnull=False)


@admin.register(Response)
class ResponseAdmin(ReadOnlyAdmin):
    list_display = ("id", "policy", "state", "attempts", "guardrail", "latency_seconds", "created_at")
    list_filter = ("state", "guardrail")

    def get_queryset(self, request: HttpRequest) -> Any:
        by_people = Q(policy__experiment__judge=Experiment.Judge.HUMAN)
        return super().get_queryset(request).filter(~by_people | blinding.in_finished_comparison())


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    list_display = ("at", "by", "experiment", "action", "text")
    list_select_related = ("by", "about", "experiment")
    list_filter = ("action", "experiment")


admin.site.register([Factor, Level, Policy, Task], ReadOnlyAdmin)
