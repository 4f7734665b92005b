"""Bring the database to this version, after a backup."""

from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from engine import __version__
from engine.management.backups import unknown_migrations, write_backup
from engine.models import clock


class Command(BaseCommand):
    help = "Migrate the database. If it holds anything, a backup is written first, into VAR_DIR/backups."

    def handle(self, *args: Any, **options: Any) -> None:
        if newer := unknown_migrations():
            raise CommandError(
                f"A newer version wrote this database ({newer[0]}); this one is {__version__}. Install "
                "the newer one, or restore a backup into a new folder."
            )
        executor = MigrationExecutor(connection)
        if not executor.migration_plan(executor.loader.graph.leaf_nodes()):
            return
        if executor.loader.applied_migrations:
            folder = settings.VAR_DIR / "backups"
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"before-{__version__}-{clock.now():%Y%m%d-%H%M%S}"
            write_backup(file)
            self.stdout.write(f"The database is changed for version {__version__}. Its backup is {file}.")
        call_command("migrate", verbosity=0)
