"""Helpers for the fields of forms."""

from collections.abc import Iterable, Sequence

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator

# Bounds of no interest to people: one that only keeps zero out, and what the database can hold.
_TINY, _HUGE = 1e-6, 2**15 - 1


def choice_field(form: forms.BaseForm, name: str) -> forms.ChoiceField:
    """The field of that name, to set choices that its class does not know.

    Raises
    ------
    TypeError
        The field offers no choices.
    """
    field = form.fields[name]
    if not isinstance(field, forms.ChoiceField):
        raise TypeError(f"{type(form).__name__}.{name} is a {type(field).__name__} and offers no choices.")
    return field


def say_bounds(field: forms.Field, validators: Iterable[object]) -> None:
    """Have a number that is missing or outside the bounds of these validators refused with both of them."""
    lows = [each.limit_value for each in validators if isinstance(each, MinValueValidator)]
    highs = [each.limit_value for each in validators if isinstance(each, MaxValueValidator)]
    if not lows or not highs:
        return
    low, high = max(lows), min(highs)
    if 0 < low < _TINY:
        said = f"above 0 and at most {high:g}"
    elif high >= _HUGE:
        said = f"that is at least {low:g}"
    else:
        said = f"from {low:g} to {high:g}"
    field.error_messages |= dict.fromkeys(("required", "min_value", "max_value"), f"Write a number {said}.")


def offer_models(field: forms.Field, models: Sequence[str], chosen: str, empty: str) -> None:
    """Let a field with a list choose one of these models; the chosen one stays, even if it is away."""
    known = [(name, name) for name in models]
    absent = [(chosen, f"{chosen} (not available)")] if chosen and chosen not in models else []
    field.widget.choices = [("", empty), *known, *absent]
