"""Values of the levels of each kind of factor, and the request that a policy's levels make together.

Levels arrive as JSON objects from people; :func:`parse_level` turns them into one of the dataclasses here
or says what is wrong. Nothing in this module touches the database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import re2

from engine.domain.conversations import ASSISTANT, SYSTEM, USER, Message
from engine.domain.forbidden_fields import fault_of_fields
from engine.domain.limits import shown
from engine.domain.specs import FactorSpec
from engine.domain.variables import Space, VariableError, fill

_HOTTEST = 100
_MOST_TOP_K = 2**31 - 1
_MOST_TOKENS = 1_000_000
# A worker's own model has no maximum of its own.
_USUAL_TOKENS = 256


class Drawing(NamedTuple):
    """Numbers by which a worker's own model draws tokens: temperature 0 is greedy, ``top_k`` 0 is no cut."""

    temperature: float
    top_p: float
    top_k: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Parameters for drawing tokens. ``None`` or empty is not sent: the model's own value applies.

    Attributes
    ----------
    temperature, top_p, top_k, max_tokens
        As servers know them. Generation ends after ``max_tokens``, thinking included where the server counts
        it.
    stop
        Generation ends at the first of these texts, which is not part of the response.
    reasoning
        How much the model thinks: a word that it knows, such as low.
    reasoning_tokens
        The most tokens of thinking.
    response_format
        A JSON schema that the response has to follow.
    extra_body
        Further fields of the request, as this server knows them.
    seed
        True: the response's own seed is sent. A worker's own model always draws from it.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    reasoning: str = ""
    reasoning_tokens: int | None = None
    response_format: Mapping[str, Any] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    seed: bool = False

    def __post_init__(self) -> None:
        # Upper limits too: the workers' engines take 64-bit floats and 32-bit integers. One number outside
        # that range fails a batch with responses of many experiments.
        if self.temperature is not None and not 0 <= self.temperature <= _HOTTEST:
            raise ValueError(
                f"temperature must be at least 0 and at most {_HOTTEST}, not {shown(self.temperature)}"
            )
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], not {shown(self.top_p)}")
        if self.top_k is not None and not 0 <= self.top_k <= _MOST_TOP_K:
            raise ValueError(f"top_k must be 0 (off) or at most {_MOST_TOP_K:,}, not {shown(self.top_k)}")
        for name, most in (("max_tokens", self.max_tokens), ("reasoning_tokens", self.reasoning_tokens)):
            if most is not None and not 1 <= most <= _MOST_TOKENS:
                raise ValueError(f"{name} must be at least 1 and at most {_MOST_TOKENS:,}, not {shown(most)}")
        if fault := fault_of_fields(self.extra_body):
            raise ValueError(f"extra_body: {fault}")
        if self.response_format and not {"type", "$ref", "anyOf"} & set(self.response_format):
            raise ValueError('response_format must be a JSON schema, such as {"type": "object"}')
        if self.reasoning and self.reasoning_tokens is not None:
            raise ValueError("reasoning and reasoning_tokens both limit the thinking: set one of them")

    @property
    def drawing(self) -> Drawing:
        """The numbers for a worker's own model: usual ones where a policy sets none."""
        return Drawing(
            1.0 if self.temperature is None else self.temperature,
            1.0 if self.top_p is None else self.top_p,
            self.top_k or 0,
            self.max_tokens or _USUAL_TOKENS,
        )


@dataclass(frozen=True, slots=True)
class Prompt:
    """System-prompt text, and a template that is sent in the place of the task's last message.

    The template has the task's variables; if it is empty, the message is sent as it is.
    """

    text: str
    template: str = ""


@dataclass(frozen=True, slots=True)
class Strategy:
    """A reasoning instruction put after the task."""

    instruction: str = ""


_GUARD_READS = ("input", "output", "both")


@dataclass(frozen=True, slots=True)
class Guardrail:
    """Limits of a conversation.

    ``instruction`` is added to the system prompt. A task with a message that matches one of ``input_block``
    never reaches the model. A response that matches one of ``output_block`` is replaced. Either way
    ``refusal`` is the text. Patterns are RE2 regular expressions (matched in linear time), case-insensitive.

    There is a guard model if there is a ``guard_model`` or a ``guard_instruction`` (its system prompt). It
    reads the task, the response or both, as ``guard_reads`` says, and blocks if its answer matches
    ``guard_blocks``. It is asked through the policy's own backend; without a name it is the policy's own
    model.
    """

    instruction: str = ""
    input_block: tuple[str, ...] = ()
    output_block: tuple[str, ...] = ()
    refusal: str = "I can't help with that."
    guard_model: str = ""
    guard_instruction: str = ""
    guard_reads: str = "output"
    guard_blocks: str = "unsafe"

    def __post_init__(self) -> None:
        if self.guard_reads not in _GUARD_READS:
            raise ValueError(
                f"guard_reads must be one of {', '.join(_GUARD_READS)}, not {self.guard_reads!r}"
            )
        if not self.guard_blocks:
            raise ValueError(
                "guard_blocks must not be empty: it is a pattern for the guard model's answers that block"
            )
        for pattern in (*self.input_block, *self.output_block, self.guard_blocks):
            try:
                re2.compile(pattern)
            except re2.error as error:
                raise ValueError(
                    f"{pattern!r} is not a regular expression that RE2 understands: {error.args[0].decode()}"
                ) from error

    def blocks_input(self, text: str) -> bool:
        """True if a pattern forbids this message of a task."""
        return _matches(self.input_block, text)

    def blocks_output(self, text: str) -> bool:
        """True if a pattern forbids this response."""
        return _matches(self.output_block, text)

    def asks_guard_about(self, side: str) -> bool:
        """True if a guard model is to read the ``"input"`` or the ``"output"``."""
        return bool(self.guard_model or self.guard_instruction) and self.guard_reads in {side, "both"}

    def objects(self, verdict: str) -> bool:
        """True if this answer of the guard model blocks."""
        return _matches((self.guard_blocks,), verdict)


def _matches(patterns: tuple[str, ...], text: str) -> bool:
    return any(re2.search(f"(?i){pattern}", text) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Model(SamplingParams):
    """The connection or the worker's model that writes, by its name; empty means a worker's own model.

    The settings are sent to this model alone, so that a model and its settings can be one level.
    """

    name: str = ""


@dataclass(frozen=True, slots=True)
class Examples:
    """Example turns before the task: a user's text and the wanted answer."""

    examples: tuple[Mapping[str, str], ...] = ()

    def __post_init__(self) -> None:
        for each in self.examples:
            if set(each) != {"user", "assistant"} or not all(
                isinstance(text, str) and text for text in each.values()
            ):
                raise ValueError('each of examples must be {"user": a text, "assistant": a text}')

    @property
    def turns(self) -> tuple[Message, ...]:
        """The messages of all examples in order."""
        return tuple(Message(role, each[role]) for each in self.examples for role in (USER, ASSISTANT))


@dataclass(frozen=True, slots=True)
class Imported:
    """A level of policies whose responses were written elsewhere: there is nothing to set.

    ``text``: what the name stands for, where it is shorter, such as the system text of then.
    """

    text: str = ""


# The texts that variables of a task may fill.
_TEMPLATES = {
    Prompt: ("text", "template"),
    Strategy: ("instruction",),
    Guardrail: ("instruction", "guard_instruction", "refusal"),
}

LevelValue = Prompt | Strategy | Guardrail | SamplingParams | Model | Examples | Imported

_KINDS: dict[str, type[LevelValue]] = {
    "prompt": Prompt,
    "strategy": Strategy,
    "guardrail": Guardrail,
    "sampling": SamplingParams,
    "model": Model,
    "examples": Examples,
    "imported": Imported,
}
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "float | None": (float, int),
    "int | None": (int,),
    "bool": (bool,),
    "tuple[str, ...]": (list, tuple),
    "tuple[Mapping[str, str], ...]": (list, tuple),
    "Mapping[str, Any]": (dict,),
}


def parse_level(kind: str, value: Mapping[str, Any]) -> LevelValue:
    """Read the JSON ``value`` of a level of a factor of this ``kind``.

    Raises
    ------
    ValueError
        Names the key that is unknown, missing, of the wrong type or out of range, and the allowed values.
    """
    if kind not in _KINDS:
        raise ValueError(f"{kind!r} is not a kind of factor; use one of {', '.join(_KINDS)}.")
    if not isinstance(value, Mapping):
        raise ValueError(f"A level's value is an object of named settings, not {shown(value)}.")
    shape = _KINDS[kind]
    known = {field.name: str(field.type) for field in fields(shape)}
    if unknown := set(value) - set(known):
        raise ValueError(
            f"A {kind} level has no {', '.join(sorted(unknown))}. Allowed: {', '.join(known) or 'nothing'}."
        )
    arguments: dict[str, Any] = {}
    for name, given in value.items():
        wanted = known[name]
        if given is None and wanted.endswith("None"):
            continue
        if not isinstance(given, _TYPES[wanted]) or isinstance(given, bool) != (wanted == "bool"):
            raise ValueError(f"{name} of a {kind} level must be of type {wanted}, not {shown(given)}.")
        if isinstance(given, (list, tuple)):
            if not all(isinstance(entry, str if "str, ..." in wanted else dict) for entry in given):
                raise ValueError(f"{name} of a {kind} level must be a list of texts, not {shown(given)}.")
            arguments[name] = tuple(given)
        else:
            arguments[name] = given
    try:
        return shape(**arguments)
    except TypeError as error:
        raise ValueError(f"A {kind} level needs {', '.join(known)}: {error}.") from error


def templates_of(level: LevelValue) -> Iterator[tuple[str, str]]:
    """The texts of a level that variables may fill, each after the name of its setting."""
    return ((name, getattr(level, name)) for name in _TEMPLATES.get(type(level), ()))


def unfillable(factors: Iterable[FactorSpec], space: Space) -> Iterator[tuple[int, str, str]]:
    """The texts of levels with variables that some task lacks.

    Yields
    ------
    tuple of (int, str, str)
        The position of the factor, the name of the level, and what is wrong.
    """
    for position, factor in enumerate(factors):
        for name, value in factor.levels.items():
            for setting, text in templates_of(parse_level(factor.kind, value)):
                try:
                    space.check(text)
                except VariableError as error:
                    yield position, name, f"Factor {factor.name!r}, level {name!r}, {setting}: {error}"


@dataclass(frozen=True, slots=True)
class Composition:
    """A policy made ready for any task: one system message, what follows the task, how to sample, with which
    model.
    """

    system: str
    suffix: str
    sampling: SamplingParams
    guardrails: tuple[Guardrail, ...]
    model: str = ""
    examples: tuple[Message, ...] = ()
    template: str = ""

    def filled(self, variables: Mapping[str, str]) -> Composition:
        """The composition for one task, whose variables stand in the place of ``{{ name }}``.

        Raises
        ------
        VariableError
            A text uses a variable that is not there.
        """
        return replace(
            self,
            system=fill(self.system, variables),
            suffix=fill(self.suffix, variables),
            template=fill(self.template, variables),
            guardrails=tuple(
                replace(
                    each,
                    guard_instruction=fill(each.guard_instruction, variables),
                    refusal=fill(each.refusal, variables),
                )
                for each in self.guardrails
            ),
        )

    def messages(self, task: Sequence[Message]) -> tuple[Message, ...]:
        """The messages that every backend is sent for a task; docs/experiment-files.md describes them.

        One system message: the system prompts and the instructions of guardrails, in the order of the
        factors, then the task's own system messages. Then the examples and the task's other messages;
        a template takes the place of the last one, which is the user's, and strategies follow its text. No
        empty system message is sent.
        """
        system = [self.system, *(each.content for each in task if each.role == SYSTEM)]
        *earlier, last = (each for each in task if each.role != SYSTEM)
        text = self.template or last.content
        content = f"{text}\n\n{self.suffix}" if self.suffix else text
        opening = "\n\n".join(filter(None, system))
        opened = (Message(SYSTEM, opening),) if opening else ()
        return (*opened, *self.examples, *earlier, Message(USER, content))

    def refusal_for_input(self, *messages: str) -> str | None:
        """The text to answer instead of a response if a guardrail blocks one of a task's messages."""
        return next((g.refusal for g in self.guardrails if any(map(g.blocks_input, messages))), None)

    def refusal_for_output(self, text: str) -> str | None:
        """The text to answer instead of this response if a guardrail blocks it."""
        return next((g.refusal for g in self.guardrails if g.blocks_output(text)), None)

    def guards_of(self, side: str) -> list[Guardrail]:
        """The guardrails whose guard models read the ``"input"`` or the ``"output"``."""
        return [g for g in self.guardrails if g.asks_guard_about(side)]


def compose(levels: Iterable[LevelValue], *, model: str = "") -> Composition:
    """Join a policy's levels, in the order of its factors; ``model`` writes where no level names one."""
    system: list[str] = []
    suffix: list[str] = []
    guardrails: list[Guardrail] = []
    sampling = SamplingParams()
    examples: list[Message] = []
    template = ""
    for level in levels:
        match level:
            case Prompt():
                system.append(level.text)
                template = level.template or template
            case Strategy(instruction):
                suffix.append(instruction)
            case Guardrail():
                system.append(level.instruction)
                guardrails.append(level)
            case Model():
                model = level.name or model
                sampling = _joined(sampling, level)
            case SamplingParams():
                sampling = _joined(sampling, level)
            case Examples():
                examples += level.turns
    return Composition(
        system="\n".join(filter(None, system)),
        suffix="\n".join(filter(None, suffix)),
        sampling=sampling,
        guardrails=tuple(guardrails),
        model=model,
        examples=tuple(examples),
        template=template,
    )


def _joined(earlier: SamplingParams, later: SamplingParams) -> SamplingParams:
    """The settings of both; where both set one, the later one's."""
    unset = SamplingParams()
    names = [each.name for each in fields(SamplingParams)]
    said = {name: value for name in names if (value := getattr(later, name)) != getattr(unset, name)}
    if later.reasoning or later.reasoning_tokens is not None:
        earlier = replace(earlier, reasoning="", reasoning_tokens=None)
    return replace(earlier, **said)
