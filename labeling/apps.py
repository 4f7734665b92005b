from django.apps import AppConfig


class LabelingConfig(AppConfig):
    name = "labeling"
    verbose_name = "Labeling"

    def ready(self) -> None:
        from labeling import signals  # noqa: F401, PLC0415 - connected once the models are there
