"""One form for the levels of each kind of factor: which fields there are, and how they become a level's
value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms

from engine.domain.levels import parse_level
from engine.importing.strict_json import JSONLimitError, loads

# Beside the field of a name, and after the words "Level without a name".
NAMELESS = "Give it a name."


class LevelForm(forms.Form):
    """A level's name and value. Subclasses name their fields, and the key of the value that each is for."""

    kind = ""
    keys: ClassVar[Mapping[str, str]] = {}
    name = forms.CharField(max_length=100, error_messages={"required": NAMELESS})
    # Keys that this page has no field for come back as they were.
    extra = forms.CharField(required=False, widget=forms.HiddenInput)

    def value(self) -> dict[str, Any]:
        """The level's value, without what was left empty."""
        known = {key: self.to_value(field, self.cleaned_data[field]) for field, key in self.keys.items()}
        extra: dict[str, Any] = json.loads(self.cleaned_data["extra"] or "{}")
        return extra | {key: given for key, given in known.items() if given not in (None, "", [])}

    def clean_extra(self) -> str:
        extra: str = self.cleaned_data["extra"]
        try:
            if not isinstance(loads(extra or "{}"), dict):
                raise forms.ValidationError("This must be an object.")
        except (json.JSONDecodeError, JSONLimitError):
            raise forms.ValidationError("This must be an object.") from None
        return extra

    def clean(self) -> dict[str, Any]:
        if not self.errors:
            try:
                parse_level(self.kind, self.value())
            except ValueError as error:
                raise forms.ValidationError(str(error)) from error
        return self.cleaned_data

    def to_value(self, field: str, given: Any) -> Any:
        return given

    @classmethod
    def data_of(cls, name: str, value: Mapping[str, Any]) -> dict[str, str]:
        """The values of the fields for an existing level."""
        data = {"name": name} | {
            field: cls.shown(value[key]) for field, key in cls.keys.items() if key in value
        }
        extra = {key: given for key, given in value.items() if key not in cls.keys.values()}
        return data | ({"extra": json.dumps(extra)} if extra else {})

    @classmethod
    def shown(cls, given: Any) -> str:
        return "\n".join(map(_on_one_line, given)) if isinstance(given, (list, tuple)) else str(given)


def _text(label: str, help_text: str, rows: int = 3) -> forms.CharField:
    return forms.CharField(
        label=label,
        help_text=help_text,
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": rows}),
    )


def _on_one_line(text: str) -> str:
    return text.replace("\n", "\\n")


class PromptLevel(LevelForm):
    kind = "prompt"
    keys: ClassVar[Mapping[str, str]] = {"text": "text"}
    text = _text("System prompt", "The model reads this before every task.")

    def value(self) -> dict[str, Any]:
        return {"text": ""} | super().value()


class StrategyLevel(LevelForm):
    kind = "strategy"
    keys: ClassVar[Mapping[str, str]] = {"text": "instruction"}
    text = _text(
        "Instruction",
        "Added after every task, for example “Think step by step”. Empty: nothing is added.",
        rows=2,
    )


class ModelLevel(LevelForm):
    kind = "model"
    keys: ClassVar[Mapping[str, str]] = {"text": "name"}
    text = forms.CharField(
        label="Model",
        required=False,
        help_text="The model's name on the worker or server. Empty: the worker's default model.",
    )


class SamplingLevel(LevelForm):
    kind = "sampling"
    keys: ClassVar[Mapping[str, str]] = {
        name: name for name in ("temperature", "max_tokens", "top_p", "top_k", "stop")
    }
    temperature = forms.FloatField(
        required=False, help_text="0: always the most likely word. 1: the model's own distribution."
    )
    max_tokens = forms.IntegerField(
        label="Maximum length", required=False, help_text="In tokens. Empty: 256."
    )
    top_p = forms.FloatField(label="Top p", required=False, help_text="Empty: off.")
    top_k = forms.IntegerField(label="Top k", required=False, help_text="Empty: off.")
    stop = _text(
        "Stop at",
        "One text per line; \\n means a line break. The response ends before the first of them.",
        rows=2,
    )

    def to_value(self, field: str, given: Any) -> Any:
        return [line.replace("\\n", "\n") for line in given.split("\n") if line] if field == "stop" else given


class GuardrailLevel(LevelForm):
    kind = "guardrail"
    keys: ClassVar[Mapping[str, str]] = {
        "text": "instruction",
        "input_block": "input_block",
        "output_block": "output_block",
        "refusal": "refusal",
    }
    text = _text("Instruction", "Added to the system prompt.")
    input_block = _text(
        "Blocked tasks",
        "Regular expressions, one per line. A task that matches is not sent to the model.",
        rows=2,
    )
    output_block = _text(
        "Blocked responses",
        "Regular expressions, one per line. The refusal replaces a response that matches.",
        rows=2,
    )
    refusal = forms.CharField(required=False, help_text="Empty: “I can't help with that.”")

    def to_value(self, field: str, given: Any) -> Any:
        return [line for line in given.split("\n") if line] if field.endswith("_block") else given


class ImportedLevel(LevelForm):
    kind = "imported"


LEVEL_FORMS: dict[str, type[LevelForm]] = {
    form.kind: form
    for form in (PromptLevel, StrategyLevel, GuardrailLevel, SamplingLevel, ModelLevel, ImportedLevel)
}
NEW_LEVEL: dict[str, dict[str, Any]] = {"sampling": {"temperature": 0.7, "max_tokens": 256}}
