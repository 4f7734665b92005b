"""Saves many rows at once."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from django.db.models import Model

_M = TypeVar("_M", bound=Model)


def save_all(model: type[_M], rows: Iterable[_M], fields: Sequence[str]) -> None:
    """Save these fields of rows that exist; the caller has locked them.

    Not by ``bulk_update``, whose CASE for each row and field takes longer than all else in a round.
    """
    model._default_manager.bulk_create(
        rows, update_conflicts=True, unique_fields=["id"], update_fields=fields, batch_size=500
    )
