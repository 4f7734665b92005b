"""What may be wrong in material that was read: six kinds, each with its count. Nothing is changed for
them.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence

from ftfy.badness import is_bad

from engine.domain import limits
from engine.domain.texts import is_blank
from engine.domain.wording import number

_SHOWN = 5
# A cell of Excel holds so many characters, and Excel cuts off the rest.
_CELL_OF_EXCEL = 32_767
_NOTHING = {"null", "none", "nan", "n/a", "na", "<na>", "undefined", "[object object]"}
# Shorter answers, such as “Yes”, may well be right for several tasks.
_FEWEST_TELLING = 20
_WORD = re.compile(r"[a-z]{3,}")
# The mark of a character that was lost.
_LOST = "\ufffd"


def empty(texts: Iterable[str], one: str, many: str = "") -> Iterator[str]:
    """Texts without a character, or that say only that there is none, as programs write it."""
    if n := sum(is_nothing(text) or is_blank(text) for text in texts):
        yield f"{number(n, one, many)} empty, or only a word such as null, NaN or N/A."


def is_nothing(text: str) -> bool:
    """True for a word that programs write for no value."""
    return len(text) < 20 and text.strip().lower() in _NOTHING


def duplicate(items: Iterable[Hashable], one: str, many: str = "") -> Iterator[str]:
    """Items that are equal to an earlier one."""
    counted = Counter(items)
    if n := counted.total() - len(counted):
        yield f"{number(n, one, many)} equal to an earlier one. Each counts."


def nearly_equal(names: Iterable[str], one: str, many: str = "") -> Iterator[str]:
    """Names that differ only in case, space, or characters that nobody sees."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(_as_seen(name), []).append(name)
    if alike := [group for group in groups.values() if len(group) > 1]:
        shown = " and ".join(repr(name[:40]) for name in alike[0][:2])
        yield (
            f"{number(len(alike), one, many)} nearly equal to another, such as {shown}. They count as "
            "different."
        )


def _as_seen(name: str) -> str:
    if not name.isascii():
        normal = unicodedata.normalize("NFKC", name)
        name = "".join(c for c in normal if c.isspace() or unicodedata.category(c) not in {"Cf", "Cc", "Mn"})
    return " ".join(name.casefold().split())


def unread(columns: Collection[str]) -> Iterator[str]:
    """Columns that hold something and are not read."""
    if columns:
        shown = ", ".join(map(limits.shown, list(columns)[:_SHOWN]))
        yield f"{number(len(columns), 'column')} not read: {shown}{' …' * (len(columns) > _SHOWN)}."


def spoiled(texts: Iterable[str], one: str, many: str = "") -> Iterator[str]:
    """Texts that Excel has cut, or that were saved in a wrong encoding."""
    cut = wrong = 0
    for text in texts:
        cut += len(text) == _CELL_OF_EXCEL
        wrong += not text.isascii() and (_LOST in text or is_bad(text))
    if cut:
        yield (
            f"{number(cut, one, many)} of exactly {_CELL_OF_EXCEL:,} characters, after which Excel cuts "
            "a cell off. Bring the whole texts as CSV or JSON Lines."
        )
    if wrong:
        yield f"{number(wrong, one, many)} in a wrong encoding, such as “Ã©” for “é”. Save the file as UTF-8."


def of_responses(responses: Sequence[tuple[str, str, str]], policies: Iterable[str]) -> Iterator[str]:
    """By policy: equal responses to different tasks, as of a server that failed, and responses that name one.

    ``responses``: policy, task and text of each.
    """
    tasks: dict[tuple[str, str], set[str]] = {}
    total: Counter[str] = Counter()
    named: Counter[str] = Counter()
    introduced = _introductions(policies)
    for policy, task, text in dict.fromkeys(responses):
        total[policy] += 1
        if not is_blank(text):
            tasks.setdefault((policy, text.strip()), set()).add(task)
            named[policy] += introduced is not None and introduced.search(_plain(text)) is not None
    same: Counter[str] = Counter()
    example: dict[str, str] = {}
    for (policy, text), asked in tasks.items():
        if len(asked) > 1 and len(text) >= _FEWEST_TELLING:
            same[policy] += len(asked)
            example.setdefault(policy, text)
    for policy, n in same.most_common(_SHOWN):
        yield (
            f"{limits.shown(policy)}: {n:,} of {number(total[policy], 'response')} equal to one to "
            f"another task, such as {limits.shown(example[policy][:60])}."
        )
    for policy, n in named.most_common(_SHOWN):
        if n:
            yield f"{limits.shown(policy)}: {number(n, 'response')} naming a model, which annotators read."


def _introductions(policies: Iterable[str]) -> re.Pattern[str] | None:
    """What a text says in which a model of one of these names introduces itself: “I am Tülu” of tulu-30b."""
    words = {found[0] for name in policies if (found := _WORD.search(_plain(name)))}
    if not words:
        return None
    return re.compile(rf"\b(?:i am|i['’]m|my name is) (?:an? )?(?:{'|'.join(map(re.escape, words))})\b")


def _plain(text: str) -> str:
    """The text without case and accents."""
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKD", text) if unicodedata.category(c) != "Mn")
    return text.casefold()
