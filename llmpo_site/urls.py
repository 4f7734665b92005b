"""All addresses of the site."""

from django.contrib import admin
from django.contrib.auth import views as auth
from django.urls import include, path
from django.views.i18n import set_language

from labeling.api import api

urlpatterns = [
    path("admin/", admin.site.urls),
    path("accounts/login/", auth.LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("accounts/logout/", auth.LogoutView.as_view(), name="logout"),
    path("language/", set_language, name="set_language"),
    path("api/", api.urls),
    path("", include("labeling.urls")),
]
