from django.apps import AppConfig
from django.db.models.signals import post_migrate

from engine import append_only


class EngineConfig(AppConfig):
    name = "engine"
    verbose_name = "LLM-PO engine"

    def ready(self) -> None:
        post_migrate.connect(append_only.install_after_migrate, sender=self)
