"""The commands of manage.py, called in the test's own process."""

from io import StringIO
from typing import Any

from django.core.management import call_command


def run(command: str, *arguments: object, **options: Any) -> str:
    """All that the command writes; what it raises is raised here."""
    out = StringIO()
    call_command(command, *map(str, arguments), stdout=out, stderr=out, **options)
    return out.getvalue()
