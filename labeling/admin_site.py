"""Django's admin site, with the login rules of the other pages."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.utils.decorators import method_decorator

from labeling.access import recent_login_required

_View = TypeVar("_View", bound=Callable[..., HttpResponseBase])


class AdminSite(admin.AdminSite):
    """Every change needs a recent login: owners, superusers and passwords are made here."""

    site_header = "LLM-PO: accounts and rows"
    # Django's own login form knows neither the second step nor the limits on attempts.
    login = method_decorator(secure_admin_login)(admin.AdminSite.login)

    def admin_view(self, view: _View, cacheable: bool = False) -> _View:
        # Logging out is never a risk.
        guarded = view if view == self.logout else recent_login_required(cast(Any, view))
        return super().admin_view(cast(_View, guarded), cacheable)

    def password_change(  # type: ignore[override]  # a redirect, where Django renders a page
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead to the site's own page: Django's sets no limit on guessing the current password."""
        return redirect("account_change_password")
