"""The keys of the annotator's page. Everybody may choose their own; arrows and "?" are the same for all."""

import json
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from engine.models import User

HELP_KEY = "?"
USUAL = {
    "left": "1",
    "right": "2",
    "tie": "t",
    "both_bad": "b",
    "skip": "s",
    "undo": "u",
    "differences": "d",
    "comment": "c",
    "further": "f",
}
LABELS = {
    "left": gettext_lazy("A is better"),
    "right": gettext_lazy("B is better"),
    "tie": gettext_lazy("Equally good"),
    "both_bad": gettext_lazy("Both are bad"),
    "skip": gettext_lazy("Skip"),
    "undo": gettext_lazy("Undo"),
    "differences": gettext_lazy("Differences"),
    "comment": gettext_lazy("Write a comment"),
    "further": gettext_lazy("Next further question"),
}

_ONE_CHARACTER = gettext_lazy("Type one character: a letter, a digit or a sign.")


def keys_of(user: User) -> dict[str, str]:
    """The keys in force for a person: one character for each action."""
    chosen: dict[str, str] = user.preferences.get("keys", {})
    return USUAL | chosen


def habits(user: User) -> dict[str, Any]:
    """The keys and the layout of the annotator's page for this person, without a query."""
    keys = keys_of(user)
    return {
        "keys": keys,
        "keys_as_json": json.dumps(keys),
        "left_handed": user.preferences.get("left_handed", False),
        "guidelines_open": user.preferences.get("guidelines", True),
    }


class KeysForm(forms.Form):
    """A key for each action of ``USUAL``, and the layout. Two actions with one key are refused."""

    left_handed = forms.BooleanField(
        required=False,
        label=gettext_lazy("Left-handed: “…”, Undo and the guidelines on the left"),
    )

    def __init__(self, data: Any, *, user: User) -> None:
        initial = keys_of(user) | {"left_handed": user.preferences.get("left_handed", False)}
        super().__init__(data, initial=initial, label_suffix="")
        for name, label in LABELS.items():
            self.fields[name] = forms.CharField(
                label=label,
                error_messages={"required": _ONE_CHARACTER},
                widget=forms.TextInput({"maxlength": 1, "autocomplete": "off", "autocapitalize": "off"}),
            )
        self.order_fields([*LABELS, "left_handed"])

    def clean(self) -> dict[str, Any]:
        taken = {HELP_KEY: gettext_lazy("Guidelines and keys")}
        for name, label in LABELS.items():
            key = self.cleaned_data.get(name, "").lower()
            if not key:
                continue
            if len(key) > 1 or not key.isprintable():
                self.add_error(name, _ONE_CHARACTER)
            elif key in taken:
                self.add_error(
                    name,
                    _("“%(key)s” is the key of “%(action)s” already. Choose another one.")
                    % {"key": key, "action": taken[key]},
                )
            else:
                taken[key] = label
                self.cleaned_data[name] = key
        return self.cleaned_data

    def chosen_keys(self) -> dict[str, str] | None:
        """The keys of a valid form; ``None`` for the usual ones."""
        chosen = {name: self.cleaned_data[name] for name in USUAL}
        return None if chosen == USUAL else chosen
