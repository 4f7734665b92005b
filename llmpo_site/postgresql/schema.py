"""Changes of tables that people are using."""

from typing import Self

from django.db.backends.postgresql import schema


class SchemaEditor(schema.DatabaseSchemaEditor):
    """Gives up a table that it does not get soon.

    A change waits for everybody who uses the table, such as an export, and those who come later wait behind
    it. Without a limit, every click would wait for as long as the export takes. ``manage.py migrate`` tries
    again.
    """

    wait_seconds = 2.0

    def __enter__(self) -> Self:
        super().__enter__()
        # An index that is made concurrently keeps nobody off, and left half done it would be invalid.
        if self.atomic_migration and not self.collect_sql:
            self.execute(f"SET LOCAL lock_timeout = {round(1000 * self.wait_seconds)}")
        return self
