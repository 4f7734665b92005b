"""The form of a connection. A key goes in and never comes out again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from django import forms

from engine.domain.profiles import VENDORS, Provider
from engine.models import Connection, Experiment, User
from engine.services.connections import EDITABLE
from engine.services.keys import has_key
from labeling.forms.fields import choice_field, say_bounds

# By the headings of the form; the first group has none.
_GROUPS: dict[str, tuple[str, ...]] = {
    "": ("provider", "model_id", "name", "address", "key", "whose", "everybody"),
    "Price": ("price_prompt", "price_cached", "price_completion", "currency", "daily_limit"),
    "Limits": ("at_once", "per_minute", "answer_seconds"),
    "Special servers": ("api_version", "headers", "extra_body", "takes"),
}
_LABELS = {
    "model_id": "Model",
    "everybody": "Every experiment may use it",
    "price_prompt": "Price of a million input tokens",
    "price_cached": "Price of a million cached input tokens",
    "price_completion": "Price of a million output tokens",
    "daily_limit": "Most money in 24 hours",
    "at_once": "Requests at once",
    "per_minute": "Requests per minute",
    "answer_seconds": "Longest wait for an answer (seconds)",
    "api_version": "API version",
    "extra_body": "Further fields of each request",
    "headers": "Further headers",
    "takes": "Rules of this model",
}
_HELP = {
    "provider": "Who runs the server.",
    "name": "Experiments choose it by this name, which stays. Empty: the model's own.",
    "model_id": "As the provider calls it, for example gpt-5-mini.",
    "address": "Empty: the provider's usual one. A new address deletes the stored key.",
    "everybody": "Otherwise you lend it to single experiments.",
    "price_prompt": "Empty: the list price, where it is known. Experiments show their cost.",
    "price_cached": "Empty: as for other input tokens.",
    "price_completion": "Thinking included.",
    "currency": "Three letters.",
    "daily_limit": "Then the model waits. Nothing is lost. Empty: no limit.",
    "at_once": "Of each worker.",
    "per_minute": "Of each worker. Empty: no limit.",
    "answer_seconds": "Models that think, or that load first, need minutes.",
    "api_version": "Azure's classic addresses need one.",
    "headers": 'JSON, for example {"X-Team": "search"}. Not for secrets: they are shown.',
    "extra_body": 'JSON, for example {"service_tier": "flex"}.',
    "takes": "JSON. Where it differs from the provider's usual rules: a test proposes it.",
}
# The worker knows the rest.
_OF_A_WORKER = ("price_prompt", "price_cached", "price_completion", "currency", "daily_limit")
_GIVEN = ("name", "provider", "model_id", "address")
_WHOSE = [("site", "The site's: its staff change it"), ("own", "Yours: only you change and lend it")]

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[Connection]
else:
    _ModelForm = forms.ModelForm


class ConnectionForm(_ModelForm):
    """A new connection, or changes of one. ``whose`` is asked of staff, who may make either kind."""

    whose = forms.ChoiceField(choices=_WHOSE, initial="site", widget=forms.RadioSelect, label="Whose is it?")
    key = forms.CharField(
        required=False,
        strip=True,
        max_length=8192,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}, render_value=False),
    )

    class Meta:
        model = Connection
        fields = EDITABLE
        labels = _LABELS
        help_texts = _HELP
        widgets = {  # noqa: RUF012 - never changed
            name: forms.Textarea(attrs={"rows": 2, "spellcheck": "false"})
            for name in ("headers", "extra_body", "takes")
        }

    def __init__(
        self,
        data: Any,
        *,
        user: User,
        connection: Connection | None = None,
        given: Mapping[str, str] | None = None,
    ) -> None:
        initial: dict[str, Any] = {"everybody": True} if connection is None and user.is_staff else {}
        # A link may say what somebody is to make, and never its key.
        initial |= {name: given[name] for name in _GIVEN if given and name in given}
        super().__init__(data, instance=connection, initial=initial, use_required_attribute=False)
        self._user = user
        choice_field(self, "provider").choices = [
            (each.value, vendor.title) for each, vendor in VENDORS.items()
        ]
        for field in self.fields.values():
            if isinstance(field, forms.FloatField):
                field.widget.attrs["step"] = "any"
            if isinstance(field, forms.JSONField):
                field.required = False
        for stored in Connection._meta.fields:
            if stored.name in self.fields:
                say_bounds(self.fields[stored.name], stored.validators)
        self.fields["name"].required = False
        for name in self._needless(connection):
            del self.fields[name]
        if "key" in self.fields:
            kept = connection is not None and has_key(connection)
            self.fields["key"].label = "New key" if kept else "Key"
            self.fields["key"].help_text = (
                "Empty: the stored one stays." if kept else "Stored encrypted, and never shown again."
            )

    def _needless(self, connection: Connection | None) -> set[str]:
        """The fields that this person may not choose, or no longer."""
        if connection is not None and connection.provider == Provider.WORKER:
            return self.fields.keys() - set(_OF_A_WORKER)
        needless = set() if self._user.is_staff else {"whose", "everybody"}
        if connection is not None:
            needless |= {"whose", "name"}
            if connection.owner_id is not None:
                needless.add("everybody")
        return needless

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        for name in ("headers", "extra_body", "takes"):
            if name in self.fields:
                values[name] = values.get(name) or {}
        if "name" in self.fields and not values.get("name"):
            values["name"] = values.get("model_id", "")[:100]
        values["currency"] = str(values.get("currency", "")).upper()
        if values.get("whose") == "own":
            values["everybody"] = False
        return values

    def owner(self) -> User | None:
        """The owner of a new connection; ``None`` for the site."""
        return None if self.cleaned_data.get("whose") == "site" else self._user

    def values(self) -> dict[str, Any]:
        """The valid values, the key included."""
        return {name: value for name, value in self.cleaned_data.items() if name != "whose"}

    def groups(self) -> list[tuple[str, list[forms.BoundField], bool]]:
        """The headings with their fields, and whether one of them has an error."""
        groups = [
            (heading, [self[name] for name in names if name in self.fields])
            for heading, names in _GROUPS.items()
        ]
        return [(heading, found, any(f.errors for f in found)) for heading, found in groups if found]


class LoanForm(forms.Form):
    """An experiment to lend a connection to: one that its owner runs, and that may not use it yet."""

    experiment: forms.ModelChoiceField[Experiment] = forms.ModelChoiceField(
        queryset=None, empty_label="Choose an experiment", label="Lend it to"
    )

    def __init__(self, data: Any, *, experiments: Any) -> None:
        super().__init__(data, use_required_attribute=False)
        cast("forms.ModelChoiceField[Experiment]", self.fields["experiment"]).queryset = experiments
