"""Settings, URLs and process entry points of the LLM-PO web application."""

from .celery import app as celery_app

__all__ = ["celery_app"]
