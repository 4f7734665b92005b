"""Django's ``migrate``, which tries again if somebody holds a table."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.commands import migrate
from django.db import OperationalError

# PostgreSQL's code.
LOCK_NOT_AVAILABLE = "55P03"


class Command(migrate.Command):
    # It waits two seconds for a table, and everybody else waits behind it. Then it pauses for these.
    again_after_seconds = 5.0

    def handle(self, *args: Any, **options: Any) -> None:
        while True:
            try:
                super().handle(*args, **options)
            except OperationalError as error:
                if getattr(error.__cause__, "sqlstate", "") != LOCK_NOT_AVAILABLE:
                    raise
                self.stderr.write(
                    "Somebody uses a table that is to be changed, such as for an export. What is done so far "
                    f"stays; the rest is tried again in {self.again_after_seconds:g} s, until it succeeds."
                )
            else:
                return
            time.sleep(self.again_after_seconds)
