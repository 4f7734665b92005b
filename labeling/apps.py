from django.apps import AppConfig
from django.contrib.admin import apps as admin


class LabelingConfig(AppConfig):
    name = "labeling"
    verbose_name = "Labeling"

    def ready(self) -> None:
        from labeling import signals  # noqa: F401, PLC0415 - connected once the models are there


class AdminSiteConfig(admin.AdminConfig):
    """Django's admin site, as `labeling.admin_site` has it."""

    default = False
    default_site = "labeling.admin_site.AdminSite"
