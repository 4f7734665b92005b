"""Loads what a web process would otherwise load at its first requests, while somebody waits."""

from pathlib import Path

from celery import current_app
from django.template import engines
from django.urls import get_resolver


def load() -> None:
    """Import all views and the broker's transport, and compile all templates of this process, which Django
    has set up.

    It opens no connection and starts no thread: a server may call it before it forks.
    """
    _ = get_resolver().reverse_dict
    for engine in engines.all():
        for folder in map(Path, engine.dirs):
            for template in folder.rglob("*.html"):
                engine.get_template(template.relative_to(folder).as_posix())
    # The first message would import all of it.
    current_app.finalize()
    current_app.connection_for_write()
