"""All addresses of the site."""

from django.contrib import admin
from django.contrib.auth.decorators import login_not_required
from django.urls import include, path
from django.views.i18n import set_language

from labeling.api import api

handler400 = "labeling.middleware.failures.bad_request"
handler500 = "labeling.middleware.failures.server_error"

_api = api.urls
for _operation in _api[0]:
    # Tokens open it, and sessions do not.
    login_not_required(_operation.callback)  # type: ignore[type-var]  # not for a resolver

urlpatterns = [
    path("admin/", admin.site.urls),
    path("accounts/", include("labeling.accounts.urls")),
    path("language/", login_not_required(set_language), name="set_language"),
    path("api/", _api),
    path("", include("labeling.urls")),
]
