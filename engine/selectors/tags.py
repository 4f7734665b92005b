"""Experiments by their tags."""

from __future__ import annotations

from django.db.models import QuerySet, Value
from django.db.models.functions import Concat

from engine.domain import limits
from engine.models import Experiment


def tagged(experiments: QuerySet[Experiment], tag: str) -> QuerySet[Experiment]:
    """The experiments that have this tag; none where it is empty, or no text that can be stored."""
    if not tag or limits.text_fault(tag, "The tag"):
        return experiments.none()
    listed = Concat(Value(", "), "tags", Value(", "))
    return experiments.alias(listed=listed).filter(listed__contains=f", {tag}, ")


def tags_of(experiments: QuerySet[Experiment]) -> list[str]:
    """All tags of these experiments, by name."""
    stored = experiments.exclude(tags="").order_by().values_list("tags", flat=True).distinct()
    return sorted({tag for tags in stored for tag in tags.split(", ")})
