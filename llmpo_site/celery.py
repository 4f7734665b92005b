"""The Celery application: ``celery -A llmpo_site worker -Q control``, ``-Q generation``, ``-Q analysis`` and
``-Q judging``.
"""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmpo_site.settings")

app = Celery("llmpo_site")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["engine"])
