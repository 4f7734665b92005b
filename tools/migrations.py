"""A check that the previous release still runs while a migration does: ``python -m tools.migrations``.

The first migration passes, since nothing was there before it. A later one may drop or rename something, or
add a required column that older code does not write. Then this exits with 1 and names it: split it over two
releases (CONTRIBUTING.md, "Migrations"). On SQLite required columns are not found, so PostgreSQL's tests
repeat the check.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import django
from django.db import connection

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Lint, and return the exit status."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmpo_site.settings")
    os.environ.setdefault("SECRET_KEY", "only-for-this-check-only-for-this-check")
    os.environ.setdefault("LOG_LEVEL", "WARNING")
    django.setup()
    # Reads Django's settings where it is imported.
    from django_migration_linter import MigrationLinter  # noqa: PLC0415

    # SQLite makes a table anew to alter it, with all the constraints that it had.
    made_anew = ["NOT_NULL", "ADD_UNIQUE"] if connection.vendor == "sqlite" else []
    linter = MigrationLinter(
        str(ROOT),
        no_cache=True,
        include_apps=["engine", "labeling"],
        ignore_initial_migrations=True,
        exclude_migration_tests=made_anew,
    )
    linter.lint_all_migrations()
    linter.print_summary()
    return int(linter.has_errors)


if __name__ == "__main__":
    sys.exit(main())
