"""Checks of promptfoo, each with its kind: four of them say what the rule judge can read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.domain.text_checks import KINDS, TextCheck
from engine.importing.promptfoo_templates import Filling, UnfillableError, read_template, text_of

_BY_MODEL = ("llm-rubric", "factuality", "model-graded", "g-eval", "answer-relevance", "context-", "similar",
             "select-best", "moderation", "classifier", "pi", "conversation-relevance", "agent-rubric",
             "search-rubric")  # fmt: skip
_CODE = {"javascript", "python", "ruby", "webhook"}
_OTHER = {
    "contains-all", "contains-any", "contains-html", "contains-json", "contains-sql", "contains-xml",
    "icontains-all", "icontains-any", "is-html", "is-json", "is-sql", "is-xml", "is-refusal",
    "is-valid-function-call", "is-valid-openai-function-call", "is-valid-openai-tools-call", "starts-with",
    "levenshtein", "latency", "cost",
    "perplexity", "perplexity-score", "rouge-n", "rouge-l", "rouge-s", "bleu", "gleu", "meteor", "guardrails",
    "finish-reason", "tool-call-f1", "trace-span-count", "trace-span-duration", "trace-error-spans",
    "word-count", "assert-set", "human", "max-score", "skill-used",
}  # fmt: skip
# In a table of tests: aliases of kinds, and the shape of a kind before its value.
_ALIASES = {"fn": "javascript", "eval": "javascript", "grade": "llm-rubric"}
_IN_A_CELL = re.compile(r"((?:not-)?[a-z]+(?:-[a-z0-9]+)*)(?:\([^)]*\))?(?::(.*))?", re.DOTALL)
# An answer is short; a sentence that says what an answer must do is a criterion.
_CRITERION = re.compile(
    r"\b(must|should|shall|has to|mentions?|explains?|includes?|contains?)\b", re.IGNORECASE
)
_LONGEST_ANSWER = 12


@dataclass(frozen=True)
class Written:
    """A check as the file has it. ``place`` tells it from others."""

    kind: str
    value: Any
    place: str
    reason: str = ""


def check_of(given: Mapping[str, Any], place: str) -> Written:
    """A check of a configuration: its kind and value, and the reason for which it cannot be taken."""
    kind = str(given.get("type", ""))
    reason = _reason(kind)
    if not reason and "transform" in given:
        reason = "read a transformed output"
    return Written(kind, given.get("value"), place, reason)


def check_in_cell(cell: str, place: str) -> Written:
    """A check of a table of tests: `kind: value`, or without a kind what the output equals."""
    found = _IN_A_CELL.fullmatch(cell.strip())
    kind = _ALIASES.get(found[1], found[1]) if found else ""
    if found is None or not _is_kind(kind) or (found[2] is None and kind in KINDS):
        return Written("equals", cell.strip(), place)
    return Written(kind, (found[2] or "").strip(), place, _reason(kind))


def _is_kind(kind: str) -> bool:
    kind = kind.removeprefix("not-")
    return kind in KINDS or kind in _CODE or kind in _OTHER or kind.startswith(_BY_MODEL)


def _reason(kind: str) -> str:
    if kind in KINDS:
        return ""
    if kind.startswith("not-"):
        return f"the negated kind {kind}"
    if kind in _CODE:
        return f"code ({kind})"
    if kind.startswith(_BY_MODEL):
        return f"judged by a model ({kind})"
    return f"the kind {kind or 'without a name'}"


def filled(check: Written, filling: Filling) -> TextCheck:
    """The check of one test.

    Raises
    ------
    UnfillableError
        Its value is no text that can be checked.
    """
    if check.value is None:
        raise UnfillableError("without a value")
    text = text_of(check.value)
    if text.startswith("file://"):
        raise UnfillableError("its value is in a file")
    try:
        return TextCheck(check.kind, filling.text(read_template(text)))
    except UnfillableError:
        raise
    except ValueError as error:
        raise UnfillableError(str(error).rstrip(".")) from error


def is_criterion(text: str) -> bool:
    """True if an expected answer reads as a sentence about answers."""
    words = len(text.split())
    return words > _LONGEST_ANSWER or (words > 4 and _CRITERION.search(text) is not None)
