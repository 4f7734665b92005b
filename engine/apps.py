from django.apps import AppConfig
from django.db.models.signals import post_migrate, pre_migrate


class EngineConfig(AppConfig):
    name = "engine"
    verbose_name = "LLM-PO engine"

    def ready(self) -> None:
        # Models cannot be imported before the app registry is ready.
        from engine.models import append_only, full_text  # noqa: PLC0415

        pre_migrate.connect(append_only.remove_before_migrate, sender=self)
        post_migrate.connect(append_only.install_after_migrate, sender=self)
        post_migrate.connect(full_text.install_after_migrate, sender=self)
