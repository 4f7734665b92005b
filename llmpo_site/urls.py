"""All addresses of the site."""

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.urls import include, path
from django.views.i18n import set_language

from labeling.api import api

# The admin site has a form of its own, which knows neither the second step nor the limits.
admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]  # allauth asks for it
handler400 = "labeling.middleware.failures.bad_request"
handler500 = "labeling.middleware.failures.server_error"

urlpatterns = [
    path("admin/", admin.site.urls),
    path("accounts/", include("labeling.accounts.urls")),
    path("language/", set_language, name="set_language"),
    path("api/", api.urls),
    path("", include("labeling.urls")),
]
