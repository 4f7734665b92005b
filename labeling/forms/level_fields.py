"""One form for the levels of each kind of factor: which fields there are, and how they become a level's
value.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django import forms

from engine.domain.levels import parse_level
from engine.importing.strict_json import JSONLimitError, loads
from labeling.forms.fields import offer_models

# Beside the field of a name, and after the words "Level without a name".
NAMELESS = "Give it a name."


class LevelForm(forms.Form):
    """A level's name and value. Subclasses name their fields, and the key of the value that each is for."""

    kind = ""
    # Fields of few levels, which the page shows on request, or if one is set.
    folded: ClassVar[tuple[str, ...]] = ()
    keys: ClassVar[Mapping[str, str]] = {}
    name = forms.CharField(max_length=100, error_messages={"required": NAMELESS})
    # Keys that this page has no field for come back as they were.
    extra = forms.CharField(required=False, widget=forms.HiddenInput)

    def value(self) -> dict[str, Any]:
        """The level's value, without empty fields."""
        known = {key: self.to_value(field, self.cleaned_data[field]) for field, key in self.keys.items()}
        extra: dict[str, Any] = json.loads(self.cleaned_data["extra"] or "{}")
        return extra | {key: given for key, given in known.items() if not is_unset(given)}

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
        if isinstance(given, (list, tuple)):
            return "\n".join(map(_on_one_line, given))
        return "" if is_unset(given) else as_json(given) if isinstance(given, dict) else str(given)

    @property
    def first_fields(self) -> list[forms.BoundField]:
        """The fields of the value that are always shown."""
        return [field for field in self if field.name not in ("name", *self.folded)]

    @property
    def more_fields(self) -> list[forms.BoundField]:
        """The others."""
        return [self[name] for name in self.folded]

    @property
    def is_unfolded(self) -> bool:
        """True if one of the others is set or wrong."""
        return any(field.errors or not is_unset(field.value()) for field in self.more_fields)

    def offer_models(self, models: Sequence[str]) -> None:
        """Let the fields that name a model choose one of these; a name that is none of them stays."""
        for field in self.fields.values():
            if isinstance(field, ModelField):
                offer_models(field, models, str(self[field.named].value() or ""), field.empty)


def is_unset(given: Any) -> bool:
    """True of the value of a setting that is not sent; 0 is sent."""
    return given is None or given is False or given in ("", [], {})


def as_json(value: Any) -> str:
    """JSON to read and to change."""
    return json.dumps(value, ensure_ascii=False, indent=2)


class ModelField(forms.CharField):
    """Names a model. ``named``: the field's own name in its form; ``empty``: what an empty one means."""

    widget = forms.Select

    def __init__(self, *, named: str, empty: str, **options: Any) -> None:
        super().__init__(required=False, **options)
        self.named, self.empty = named, empty


class JSONText(forms.CharField):
    """An object in JSON."""

    widget = forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})

    def to_python(self, value: Any) -> Any:
        try:
            found = loads(super().to_python(value) or "{}")
        except (json.JSONDecodeError, JSONLimitError) as error:
            raise forms.ValidationError(f"This is not JSON: {error}.") from None
        if not isinstance(found, dict):
            raise forms.ValidationError('This must be an object, such as {"type": "object"}.')
        return found


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
    keys: ClassVar[Mapping[str, str]] = {"text": "text", "template": "template"}
    folded = ("template",)
    text = _text("System prompt", "The model reads this before every task.")
    template = _text(
        "Template of the task",
        "Sent in the place of the task's last message, with its variables: “Be brief. {{ question }}”. "
        "Empty: the message as it is.",
    )

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


class SamplingLevel(LevelForm):
    kind = "sampling"
    keys: ClassVar[Mapping[str, str]] = {
        name: name
        for name in (
            "temperature",
            "max_tokens",
            "top_p",
            "top_k",
            "stop",
            "reasoning",
            "reasoning_tokens",
            "response_format",
            "extra_body",
            "seed",
        )
    }
    folded: ClassVar[tuple[str, ...]] = (
        "top_p",
        "top_k",
        "stop",
        "reasoning_tokens",
        "response_format",
        "extra_body",
        "seed",
    )
    temperature = forms.FloatField(
        required=False, help_text="0: always the most likely word. Empty: not sent, as with all fields here."
    )
    max_tokens = forms.IntegerField(
        label="Maximum length", required=False, help_text="In tokens; many servers count thinking too."
    )
    top_p = forms.FloatField(label="Top p", required=False)
    top_k = forms.IntegerField(label="Top k", required=False)
    stop = _text(
        "Stop at",
        "One text per line; \\n means a line break. The response ends before the first of them.",
        rows=2,
    )
    reasoning = forms.CharField(
        label="Reasoning effort",
        required=False,
        max_length=40,
        help_text="How much the model thinks, in its own words: none, low, medium, high.",
    )
    reasoning_tokens = forms.IntegerField(
        label="Maximum of thinking", required=False, help_text="In tokens, for models that take a number."
    )
    response_format = JSONText(
        label="Response format", required=False, help_text="A JSON schema that the response must follow."
    )
    extra_body = JSONText(
        label="Further fields", required=False, help_text="A JSON object: further fields of the request."
    )
    seed = forms.BooleanField(
        label="Send a seed", required=False, help_text="Each response has its own. Many models refuse it."
    )

    def to_value(self, field: str, given: Any) -> Any:
        return [line.replace("\\n", "\n") for line in given.split("\n") if line] if field == "stop" else given


class ModelLevel(SamplingLevel):
    kind = "model"
    keys: ClassVar[Mapping[str, str]] = {"text": "name", **SamplingLevel.keys}
    folded: ClassVar[tuple[str, ...]] = tuple(SamplingLevel.keys)
    field_order = ("name", "text")
    text = ModelField(
        named="text",
        label="Model",
        empty="The experiment's model",
        help_text="A connection of the page Models that this experiment may use, or a worker's model.",
    )


class GuardrailLevel(LevelForm):
    kind = "guardrail"
    keys: ClassVar[Mapping[str, str]] = {
        "text": "instruction",
        "input_block": "input_block",
        "output_block": "output_block",
        "refusal": "refusal",
        "guard_model": "guard_model",
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
    guard_model = ModelField(
        named="guard_model",
        label="Guard model",
        empty="None",
        help_text="A model that reads each response. The refusal replaces one that it calls unsafe.",
    )

    def to_value(self, field: str, given: Any) -> Any:
        return [line for line in given.split("\n") if line] if field.endswith("_block") else given


_SPEAKER = re.compile(r"^(User|Assistant):[ \t]*", re.MULTILINE)


class ExamplesLevel(LevelForm):
    kind = "examples"
    keys: ClassVar[Mapping[str, str]] = {"text": "examples"}
    text = _text(
        "Examples",
        "Each begins with “User:” on a new line, and its answer with “Assistant:” on a new line. The model "
        "reads them before the task. Empty: no examples.",
        rows=6,
    )

    def clean_text(self) -> str:
        text: str = self.cleaned_data["text"]
        try:
            self.to_value("text", text)
        except (ValueError, JSONLimitError) as error:
            raise forms.ValidationError(str(error)) from None
        return text

    def to_value(self, field: str, given: Any) -> Any:
        if given.lstrip().startswith("["):
            return loads(given)
        before, *parts = _SPEAKER.split(given)
        said = list(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))
        turns = [speaker for speaker, _ in said]
        if before.strip() or turns != ["User", "Assistant"] * (len(said) // 2):
            raise ValueError("Begin each example with “User:”, and its answer with “Assistant:”.")
        return [
            {"user": user, "assistant": answer}
            for (_, user), (_, answer) in zip(said[::2], said[1::2], strict=True)
        ]

    @classmethod
    def shown(cls, given: Any) -> str:
        plain = "\n\n".join(f"User: {each['user']}\nAssistant: {each['assistant']}" for each in given)
        # A text with such a line in it, or with spaces at its ends, only survives as JSON.
        reread = [text.strip() for text in _SPEAKER.split(plain)[2::2]]
        same = reread == [text for each in given for text in (each["user"], each["assistant"])]
        return plain if same else as_json(given)


class ImportedLevel(LevelForm):
    kind = "imported"


LEVEL_FORMS: dict[str, type[LevelForm]] = {
    form.kind: form
    for form in (
        PromptLevel,
        StrategyLevel,
        GuardrailLevel,
        SamplingLevel,
        ModelLevel,
        ExamplesLevel,
        ImportedLevel,
    )
}
