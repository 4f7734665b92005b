"""docs/schema.md, drawn from the models: ``python -m tools.schema`` writes it, a test compares it."""

from __future__ import annotations

import os
from pathlib import Path

import django

TARGET = Path(__file__).resolve().parent.parent / "docs" / "schema.md"
_HEAD = """# The tables

Generated from the models by `make schema`. The columns and their meaning are documented on each model in
`engine/models`. A line reads: one row on the left has many (`o{`), one (`||`) or at most one (`o|`) row on
the right.

```mermaid
erDiagram
"""


def diagram() -> str:
    """The document: one box per model of the engine with its columns, one line per foreign key."""
    from django.apps import apps  # noqa: PLC0415 - needs the app registry
    from django.db.models import ForeignKey, OneToOneField  # noqa: PLC0415

    boxes, lines = [], []
    for model in sorted(apps.get_app_config("engine").get_models(), key=lambda model: model.__name__):
        columns = []
        for field in model._meta.concrete_fields:
            marks = ["PK"] if field.primary_key else []
            if isinstance(field, ForeignKey):
                marks.append("FK")
                many = "o|" if isinstance(field, OneToOneField) else "o{"
                one = "|o" if field.null else "||"
                other = field.related_model.__name__
                lines.append(f"  {other} {one}--{many} {model.__name__} : {field.name}")
            elif field.unique and not field.primary_key:
                marks.append("UK")
            columns.append(f"    {field.get_internal_type()} {field.column} {','.join(marks)}".rstrip())
        boxes.append("\n".join([f"  {model.__name__} {{", *columns, "  }"]))
    return _HEAD + "\n".join(boxes + sorted(lines)) + "\n```\n"


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmpo_site.settings")
    django.setup()
    TARGET.write_text(diagram())
