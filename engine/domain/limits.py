"""Every limit on input, with its unit, and the checks that all entry points share.

Pages, the API, files and commands refuse input through this module, before the work starts. docs/limits.md
has the reason of each.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from engine.domain.errors import SpecError
from engine.domain.specs import ExperimentSpec
from engine.domain.texts import UNSTORABLE


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest number of something that is accepted.

    Attributes
    ----------
    thing
        The noun, in the plural, as it stands in the message and in docs/limits.md.
    default
        The limit unless ``setting`` says otherwise.
    advice
        Remedy for a person who reaches it.
    setting
        The environment variable that overrides the default; empty where none does.
    """

    thing: str
    default: int
    advice: str
    setting: str = ""

    @property
    def most(self) -> int:
        """The limit in force."""
        override = getattr(settings, self.setting) if self.setting else None
        return self.default if override is None else override

    def refusal(self, found: int, where: str = "") -> str:
        """The error message for ``found`` of them; empty if that many are allowed."""
        if found <= self.most:
            return ""
        start = f"{where}: " if where else ""
        return f"{start}{_readable(found)} {self.thing}; the limit is {self.most:,}. {self.advice}"

    def check(self, found: int, where: str = "", path: tuple[Hashable, ...] = ()) -> None:
        """Raise :class:`SpecError` where ``found`` is too many."""
        if message := self.refusal(found, where):
            raise SpecError(message, path)


# ---------------------------------------------------------------- the limits

POLICIES = Limit("policies", 300, "Give fewer levels or factors, or exclude combinations.", "MOST_POLICIES")
FEATURES = Limit(
    "free parameters of the factorial model",
    60,
    "Give fewer levels, or assume nothing about how the factors act together.",
)
COMBINATIONS = Limit(
    "combinations of levels before exclusions",
    10_000,
    "Give fewer levels or factors; exclusions do not help here.",
)
FACTORS = Limit("factors", 20, "Join factors that belong together.")
LEVELS = Limit("levels of one factor", 300, "Give fewer levels.")
EXCLUSIONS = Limit("exclusions", 100, "Name fewer levels in each.")
TASKS = Limit("tasks", 20_000, "Draw a sample of the tasks.", "MOST_TASKS")
GOLD_ITEMS = Limit("gold items", 2_000, "Keep the clearest ones.")
RESPONSES = Limit("ready-made responses", 100_000, "Leave out tasks or policies.", "MOST_RESPONSES")
JUDGMENTS = Limit(
    "rows of judgments",
    50_000,
    "Export with a filter, or use PostgreSQL and raise MOST_JUDGMENTS.",
    "MOST_JUDGMENTS",
)
TRIED = Limit(
    "tried responses in 24 hours, by one person or in one experiment",
    600,
    "Try fewer tasks, wait until tomorrow, or raise MOST_TRIED.",
    "MOST_TRIED",
)
CONNECTIONS = Limit(
    "connections of one person, or of the site, retired ones included",
    200,
    "Take back one that was retired, if it fits, or ask another person to make it.",
)
MAILED = Limit(
    "invitations sent by e-mail in 24 hours, in one experiment",
    100,
    "Make one link for several people, or wait until tomorrow.",
)
SUBSCRIPTIONS = Limit("notifications of one experiment", 20, "Remove one first.")
DESTINATIONS = Limit("destinations of one winner", 20, "Remove one first.")
MESSAGES = Limit("messages in one conversation", 200, "Leave the oldest ones out.")
VARIABLES = Limit("variables of one task", 100, "Leave out the columns that no prompt uses.")
TAGS = Limit("tags of one task", 20, "Keep the tags that you want results for.")
CALLS = Limit("rows of traces or data of another tool", 20_000, "Load them with manage.py load_experiment.")
TEXT_CHARACTERS = Limit("characters in one text", 200_000, "Shorten the text.")
CELL_CHARACTERS = Limit(
    "characters in one cell of a CSV", 2_000_000, "Look for such a mark, or shorten the text."
)
COLUMNS = Limit("columns of one table", 400, "Leave out columns that you do not need.")
ARCHIVE_FILES = Limit("files in one archive", 1_000, "Pack fewer files.")
LIST_ENTRIES = Limit("entries in one list of a level", 100, "Join patterns with |.")
DEPTH = Limit("levels of nesting", 50, "Write the values flatter.")
DIGITS = Limit("digits in one number", 300, "Write a smaller number.")
DESCRIPTION_BYTES = Limit(
    "bytes in an uploaded description, list of tasks or list of gold items",
    1_000_000,
    "Load it with manage.py load_experiment.",
)
RESPONSES_BYTES = Limit(
    "bytes in an uploaded file of responses", 10_000_000, "Load it with manage.py load_experiment."
)
VOTES_BYTES = Limit(
    "bytes in an uploaded file of past votes", 10_000_000, "Load it with manage.py import_votes."
)
REQUEST_BYTES: Limit = Limit(
    "bytes in one request without its files",
    5_000_000,
    "Send less, or load it with manage.py load_experiment.",
)
UPLOAD_BYTES = Limit(
    "bytes in one request with its files", 16_000_000, "Send less, or load it with manage.py load_experiment."
)
FORM_FIELDS: Limit = Limit("fields in one form", 5_000, "Load the experiment from a file.")
FILE_BYTES = Limit(
    "bytes in a file that a command reads",
    200_000_000,
    "Split the file, or raise MOST_FILE_BYTES.",
    "MOST_FILE_BYTES",
)
# By type(): isinstance() asks the lazy settings in here for their class, which loads them. A program that has
# no settings could not import this module then.
LIMITS: dict[str, Limit] = {name: value for name, value in list(globals().items()) if type(value) is Limit}


# ---------------------------------------------------------------- checks


def check_counts(levels: Sequence[int], exclusions: int) -> None:
    """Refuse a policy space by the numbers of its factors' levels alone: nothing is enumerated here.

    Raises
    ------
    SpecError
        Names the limit, the figure and the factor.
    """
    FACTORS.check(len(levels), path=("factors",))
    for position, n in enumerate(levels):
        LEVELS.check(n, f"Factor {position + 1}", ("factors", position, "levels"))
    EXCLUSIONS.check(exclusions, path=("excluded",))
    combinations = math.prod(levels)
    if not exclusions:
        POLICIES.check(combinations, path=("factors",))
    COMBINATIONS.check(combinations, path=("factors",))


def check_space(levels: Sequence[int], *, policies: int, factorial: bool) -> None:
    """Refuse a space of too many policies, or of one, before its table of features is made."""
    if policies < 2:
        raise SpecError(
            "There is only one policy. Give a factor a second level, or exclude fewer combinations."
        )
    POLICIES.check(policies, path=("factors",))
    if factorial:
        FEATURES.check(sum(n - 1 for n in levels if n), path=("factors",))


def check_spec(spec: ExperimentSpec) -> None:
    """Refuse a description that is too large, or that holds a text or a number that cannot be stored.

    Reads each text once. It enumerates no policies and queries no database.

    Raises
    ------
    SpecError
        Says which part, the limit, what was found and what to do.
    """
    excluded = spec.settings.get("excluded", ())
    if not isinstance(excluded, (list, tuple)):
        raise SpecError("excluded: this must be a list of {factor: level}.", ("excluded",))
    check_counts([len(factor.levels) for factor in spec.factors], len(excluded))
    TASKS.check(len(spec.tasks), path=("tasks",))
    GOLD_ITEMS.check(len(spec.gold), path=("gold",))
    RESPONSES.check(len(spec.ready_made), path=("ready_made",))
    _check_value(spec.name, "name", ("name",))
    for name, value in spec.settings.items():
        _check_value(value, name, (name,))
    for f, factor in enumerate(spec.factors):
        _check_value(factor.name, f"Factor {f + 1}, name", ("factors", f, "name"))
        for name, value in factor.levels.items():
            path = ("factors", f, "levels", name)
            _check_value(name, f"Factor {f + 1}, name of a level", path)
            _check_value(value, f"Factor {factor.name!r}, level {name!r}", path)
    for n, task in enumerate(spec.tasks):
        where, here = f"Task {n + 1}", ("tasks", n)
        MESSAGES.check(len(task.messages), where, here)
        VARIABLES.check(len(task.variables), where, here)
        TAGS.check(len(task.tags), where, here)
        # A conversation's text is its transcript, so that it is as long as the messages together.
        _check_texts(where, here, task.prompt, task.reference, *(each.content for each in task.messages))
        _check_texts(where, here, *task.variables, *task.variables.values(), *task.tags)
        TAGS.check(len(task.checks), where, here)
        _check_texts(where, here, *(each.value for each in task.checks))
    for n, gold in enumerate(spec.gold):
        where, here = f"Gold item {n + 1}", ("gold", n)
        MESSAGES.check(len(gold.messages), where, here)
        texts = (gold.prompt, gold.better, gold.worse, gold.explanation)
        _check_texts(where, here, *texts, *(each.content for each in gold.messages))
    for n, answer in enumerate(spec.ready_made):
        _check_texts(f"Response {n + 1}", ("ready_made", n), answer.policy, answer.response)


def _check_texts(where: str, path: tuple[Hashable, ...], *texts: str) -> None:
    for text in texts:
        if message := text_fault(text, where):
            raise SpecError(message, path)


def _check_value(value: Any, where: str, path: tuple[Hashable, ...], depth: int = 0) -> None:
    DEPTH.check(depth, where, path)
    if isinstance(value, str):
        message = text_fault(value, where)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        message = number_fault(value, where)
    else:
        message = ""
    if message:
        raise SpecError(message, path)
    if isinstance(value, Mapping):
        for name, each in value.items():
            _check_value(name, where, path, depth + 1)
            _check_value(each, f"{where}, {name}", path, depth + 1)
    elif isinstance(value, (list, tuple)):
        if path[0] == "factors":
            LIST_ENTRIES.check(len(value), where, path)
        for each in value:
            _check_value(each, where, path, depth + 1)


def text_fault(text: str, where: str) -> str:
    """The reason why this text cannot be stored; else empty."""
    if UNSTORABLE.search(text):
        return f"{where}: a character cannot be stored (NUL or half of a surrogate pair). Remove it."
    return TEXT_CHARACTERS.refusal(len(text), where)


def number_fault(value: float, where: str) -> str:
    """The fault of this number; empty if it is finite and a database can hold it."""
    if isinstance(value, int):
        if abs(value) >= 2**63:
            return f"{where}: {_readable(value)} is too large; the limit is 2^63 - 1. Write a smaller number."
    elif not math.isfinite(value):
        return f"{where}: {value} is not a finite number. Write one between -1e308 and 1e308."
    return ""


def _readable(n: int) -> str:
    """``n`` for people: a large number as a power of ten. Python writes no more than 4,300 digits."""
    return f"{n:,}" if abs(n) < 10**15 else f"{'-' if n < 0 else ''}about 10^{int(math.log10(abs(n)))}"


def shown(value: Any) -> str:
    """A value from the input, cut so that it fits into a message."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _readable(value)
    try:
        written = repr(value)
    except ValueError:  # a list that holds an integer of thousands of digits
        written = type(value).__name__
    return written if len(written) <= 80 else f"{written[:77]}..."
