"""Possible slips in what people bring, each with its count. Nothing is changed or left out for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

_NOTHING = {"null", "none", "nan", "n/a"}


def number(n: int, one: str, many: str = "") -> str:
    """ "1 task", "2,000 tasks": ``many`` is the plural unless an s makes it."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def twice(items: Collection[object]) -> int:
    """The number of items that are equal to an earlier one."""
    return Counter(items).total() - len(set(items))


def nothing_in(texts: Iterable[str]) -> int:
    """The number of texts that say only what programs write for no text."""
    return sum(text.strip().lower() in _NOTHING for text in texts)


def nearly_equal(names: Iterable[str], one: str, many: str) -> Iterator[str]:
    """A warning where names differ only in case or space."""
    alike: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        alike.setdefault(" ".join(name.casefold().split()), []).append(name)
    if near := [group for group in alike.values() if len(group) > 1]:
        shown = " and ".join(repr(name[:40]) for name in near[0][:2])
        yield (
            f"{number(len(near), one, many)} came with nearly equal names, such as {shown}. They count as "
            "different ones."
        )
