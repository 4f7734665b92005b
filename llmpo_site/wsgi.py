"""WSGI entry point: ``gunicorn llmpo_site.wsgi``."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from django.conf import settings
from django.core.wsgi import get_wsgi_application

from llmpo_site import traces_and_errors
from llmpo_site.logs import WithoutSecretLinks
from llmpo_site.postgresql.driver import Connection
from llmpo_site.preloading import load

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmpo_site.settings")
# Before the application, whose middleware it extends.
traces_and_errors.start("web")


class BelowPath:
    """The application below ``BASE_PATH``, whether or not the proxy in front removes it from the path."""

    def __init__(self, application: WSGIApplication, base: str) -> None:
        self._application, self._base = application, base

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if f"{path}/".startswith(f"{self._base}/"):
            environ["PATH_INFO"] = path.removeprefix(self._base) or "/"
        return self._application(environ, start_response)


application: WSGIApplication = get_wsgi_application()
if settings.BASE_PATH:
    application = BelowPath(application, settings.BASE_PATH)
load()
# A worker may wait for the database and the broker, and is nobody's page.
Connection.patience = settings.REQUEST_DATABASE_SECONDS
settings.CELERY_BROKER_TRANSPORT_OPTIONS.update(settings.REQUEST_BROKER_OPTIONS)

# gunicorn sets up this logger itself, where an access log is asked for.
logging.getLogger("gunicorn.access").addFilter(WithoutSecretLinks())
