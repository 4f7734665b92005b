"""A form's fields by their type, for what only a type has."""

from __future__ import annotations

from django import forms


def choice_field(form: forms.BaseForm, name: str) -> forms.ChoiceField:
    """The field of that name, whose choices follow from more than its class.

    Raises
    ------
    TypeError
        The field offers no choices.
    """
    field = form.fields[name]
    if not isinstance(field, forms.ChoiceField):
        raise TypeError(f"{type(form).__name__}.{name} is a {type(field).__name__} and offers no choices.")
    return field
