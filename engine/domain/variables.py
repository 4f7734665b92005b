"""Variables of a task in the texts of a policy: ``{{ name }}``, filled by Jinja in its sandbox.

Only names and a few filters are allowed. ``{%`` and ``{#`` mean nothing here, so a text without ``{{`` is
sent as it is. Literal braces are written ``{{ "{{" }}``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from jinja2 import StrictUndefined, Template, TemplateError, nodes
from jinja2.sandbox import SandboxedEnvironment

from engine.domain.limits import TEXT_CHARACTERS

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
# None of them makes a text much longer, and none has an argument that could.
FILTERS = ("capitalize", "length", "lower", "title", "trim", "truncate", "upper", "wordcount")
_OPEN = "{{"
_MOST_PLACES = 200
_MOST_FILTERS = 5
_ADVICE = 'Write {{ name }} or {{ name|filter }}; for braces as such, write {{ "{{" }}.'

# Nobody can store a NUL in a text, so blocks and comments never begin.
_ENVIRONMENT = SandboxedEnvironment(
    block_start_string="\0%",
    block_end_string="%\0",
    comment_start_string="\0#",
    comment_end_string="#\0",
    undefined=StrictUndefined,
    autoescape=False,
    keep_trailing_newline=True,
)
_ENVIRONMENT.globals.clear()


class VariableError(ValueError):
    """A text with ``{{`` that cannot be filled; the message says which part, and what to write."""


def names_in(text: str) -> Counter[str]:
    """The variables in a text, each with the number of its places.

    Raises
    ------
    VariableError
        Something other than a name with filters stands between braces.
    """
    return _read(text)[0] if _OPEN in text else Counter()


def fill(text: str, variables: Mapping[str, str]) -> str:
    """The text with its variables filled; a text without ``{{`` as it is.

    Raises
    ------
    VariableError
        A variable is unknown, or the result is longer than a text may be.
    """
    if _OPEN not in text:
        return text
    names, template = _read(text)
    for name in names:
        if name not in variables:
            raise VariableError(f"The task has no variable {name!r}. {known(variables)}")
    pieces = []
    left = TEXT_CHARACTERS.most
    for piece in template.generate(variables):
        left -= len(piece)
        if left < 0:
            raise VariableError(
                f"With its variables filled, the text is longer than {TEXT_CHARACTERS.most:,} characters. "
                "Shorten the variables, or use them less often."
            )
        pieces.append(piece)
    return "".join(pieces)


def known(names: Iterable[str]) -> str:
    """The sentence that says which variables there are."""
    return f"There are: {', '.join(sorted(names)) or 'none'}."


@dataclass(frozen=True)
class Space:
    """The variables that the tasks of an experiment have.

    Attributes
    ----------
    tasks
        The sets of names that occur, each with the position of the first task that has it.
    longest
        The length of each variable's longest value, in characters.
    """

    tasks: Mapping[frozenset[str], int]
    longest: Mapping[str, int]

    @classmethod
    def of(cls, tasks: Iterable[Mapping[str, str]]) -> Space:
        """The space of these tasks, given by their variables."""
        positions: dict[frozenset[str], int] = {}
        longest: dict[str, int] = {}
        for position, variables in enumerate(tasks):
            positions.setdefault(frozenset(variables), position)
            for name, value in variables.items():
                longest[name] = max(longest.get(name, 0), len(value))
        return cls(positions, longest)

    def check(self, text: str) -> None:
        """Raise :class:`VariableError` unless each of the tasks can fill the text."""
        used = names_in(text)
        for name in used:
            if name not in self.longest:
                raise VariableError(
                    f"No task has a variable {name!r}. {known(self.longest)} Add a column {name} to the "
                    f"tasks. {_ADVICE}"
                )
            lacking = [position for names, position in self.tasks.items() if name not in names]
            if lacking:
                raise VariableError(
                    f"Task {min(lacking) + 1} has no variable {name!r}, but others have. Give it to every "
                    "task."
                )
        most = len(text) + sum(n * self.longest[name] for name, n in used.items())
        if used and (message := TEXT_CHARACTERS.refusal(most, "With its variables filled")):
            raise VariableError(message)


@lru_cache(maxsize=256)
def _read(text: str) -> tuple[Counter[str], Template]:
    places = text.count(_OPEN)
    if places > _MOST_PLACES:
        raise VariableError(f"The text has {places:,} places with {{{{; the limit is {_MOST_PLACES}.")
    try:
        tree = _ENVIRONMENT.parse(text)
    except TemplateError as error:
        raise VariableError(f"{{{{ cannot be read: {error}. {_ADVICE}") from error
    except RecursionError as error:
        raise VariableError(f"{{{{ cannot be read: it nests too deeply. {_ADVICE}") from error
    names = Counter(
        name
        for output in tree.body
        for node in getattr(output, "nodes", ())
        if (name := _name(node)) is not None
    )
    return names, _ENVIRONMENT.from_string(tree)


def _name(node: nodes.Expr) -> str | None:
    """The variable in an expression between braces; ``None`` for a plain text."""
    filters = 0
    while isinstance(node, nodes.Filter):
        filters += 1
        if filters > _MOST_FILTERS or node.name not in FILTERS:
            raise VariableError(
                f"The filter {node.name!r} cannot be used here. Use at most {_MOST_FILTERS} of these: "
                f"{', '.join(FILTERS)}."
            )
        if not _may_have(node):
            raise VariableError(
                f"The filter {node.name!r} takes other arguments: truncate(80), all others none."
            )
        inner = node.node
        assert inner is not None  # noqa: S101 - only filter blocks have none, and there are no blocks
        node = inner
    match node:
        case nodes.TemplateData() | nodes.Const(value=str()):
            return None
        case nodes.Name(name=name) if name != "self":  # which is Jinja's own
            return name
    raise VariableError(f"Only the name of a variable may stand in {{{{ }}}}. {_ADVICE}")


def _may_have(node: nodes.Filter) -> bool:
    """True if the filter has arguments that can neither fail nor make the text longer."""
    if node.kwargs or node.dyn_args or node.dyn_kwargs:
        return False
    if node.name != "truncate":
        return not node.args
    return len(node.args) == 1 and all(
        isinstance(each, nodes.Const) and type(each.value) is int and each.value >= 10 for each in node.args
    )
