"""WSGI entry point: ``gunicorn llmpo_site.wsgi``."""

import logging
import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application

from llmpo_site import traces_and_errors
from llmpo_site.logs import WithoutSecretLinks
from llmpo_site.postgresql.driver import Connection
from llmpo_site.preloading import load

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmpo_site.settings")
# Before the application, whose middleware it extends.
traces_and_errors.start("web")

application = get_wsgi_application()
load()
# A worker may wait for the database and the broker, and is nobody's page.
Connection.patience = settings.REQUEST_DATABASE_SECONDS
settings.CELERY_BROKER_TRANSPORT_OPTIONS.update(settings.REQUEST_BROKER_OPTIONS)

# gunicorn sets up this logger itself, where an access log is asked for.
logging.getLogger("gunicorn.access").addFilter(WithoutSecretLinks())
