"""Past votes: which of two policies somebody preferred, in the formats in which people have them.

Each format has a module beside this one. docs/votes.md describes them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from engine.core import wording
from engine.domain import limits
from engine.importing import slips
from engine.importing.mapping import Columns, renamed
from engine.importing.rows import (
    Fault,
    ImportingError,
    NoColumnError,
    Row,
    missing_everywhere,
    raise_any,
)
from engine.importing.sources import Source
from engine.importing.votes import argilla, label_studio, ours, table
from engine.importing.votes.answers import KAGGLE, said_in
from engine.importing.votes.columns import (
    MEANING_BY_NAME,
    POLICY,
    RESPONSE,
    meaning_of,
    unmarked,
    unmarked_columns,
)
from engine.importing.votes.vote import Judge, Vote, Votes, Winner

# The formats that tell their rows by some mark. All other rows are those of a table.
_FORMATS = (ours.votes_of, label_studio.votes_of, argilla.votes_of)


def read_votes(source: Source, columns: Columns | None = None) -> Votes:
    """The votes of a file in any of the formats.

    ``columns``: what columns are that have other names.

    Raises
    ------
    ImportingError
        Names every place that cannot be read.
    """
    rows = source.rows()
    if columns:
        rows = renamed(rows, columns)
    votes: list[Vote] = []
    faults: list[Fault] = []
    missing: list[NoColumnError] = []
    number = unanswered = drafts = copies = 0
    rivals: Counter[slips.Rivals] = Counter()
    unread: Counter[str] = Counter()
    left_out: dict[str, None] = {}
    controls = label_studio.Controls()
    for number, row in enumerate(rows, 1):
        if isinstance(row, Fault):
            faults.append(row)
        else:
            try:
                found, is_table = _votes_of(row)
                votes += found
                unanswered += not found
                drafts += len(found) * argilla.may_be_drafts(row.fields)
                copies += label_studio.n_copies(row.fields)
                controls.see(row)
                if not columns:
                    rivals.update(_rivals(row.fields))
                    unread.update(name for name in row.fields if _may_matter(name, row.fields[name]))
                    left_out.update(dict.fromkeys(_left_out_of(row.fields) if is_table else ()))
            except ImportingError as error:
                faults += error.faults
            except NoColumnError as error:
                missing.append(error)
                faults.append(error.fault(row, several=True))
        # A record may hold several votes, and a file of nothing but faults ends here too.
        if message := limits.JUDGMENTS.refusal(max(number, len(votes))):
            faults.append(Fault("", message))
            break
    raise_any(missing_everywhere(missing, faults, number) or [*faults, *controls.faults()])
    if not votes and unanswered:
        records = wording.number(unanswered, "record")
        raise ImportingError.at(
            "",
            f"There are no votes here: {records} without an answer such as left, right, tie or both_bad, or "
            "taken back.",
        )
    if not votes:
        raise source.nothing_in_it(
            "There are no votes here. The first line of a table names task, policy_a, policy_b and winner; "
            "the others hold them."
        )
    _check_rankings(votes)
    n_read = len(votes)
    votes = _once_each(votes)
    if all(vote.judged_at is not None for vote in votes):
        votes.sort(key=lambda vote: vote.judged_at or datetime.min)
    warnings = [*_warnings(votes, unanswered, drafts, copies, n_read - len(votes)), *_not_shown(unread)]
    return Votes(
        votes, [*warnings, *slips.columns_left_out(left_out), *slips.left_out(rivals), *source.warnings]
    )


def _votes_of(row: Row) -> tuple[list[Vote], bool]:
    """The votes of a row, none where nobody has answered it, and whether it is that of a table."""
    fields = unmarked_columns(row)
    for votes_of in _FORMATS:
        if (found := votes_of(row, fields)) is not None:
            return found, False
    return [table.vote_of(row.place, fields)], True


def _check_rankings(votes: Sequence[Vote]) -> None:
    """Refuse lists of labels, which have no order. A ranking names all responses, and so never one alone.

    Raises
    ------
    ImportingError
        Some answers of the file are lists of one response, and others lists of several.
    """
    several = [vote for vote in votes if vote.n_named > 1]
    if several and any(vote.n_named == 1 for vote in votes):
        raise ImportingError.at(
            several[0].place,
            f"An answer names {several[0].n_named} responses, and others name one, so these are labels "
            "without an order, and no ranking. Write a, b, tie or both_bad instead of the list.",
        )


def _once_each(votes: Iterable[Vote]) -> list[Vote]:
    """The votes without those that are an earlier one again, as where a file holds two of our exports.

    Raises
    ------
    ImportingError
        Two have the same UUID and say different things.
    """
    found: dict[Hashable, Vote] = {}
    for number, vote in enumerate(votes):
        first = found.setdefault(number if vote.uuid is None else vote.uuid, vote)
        if _content(first) != _content(vote):
            raise ImportingError.at(
                vote.place,
                f"judgment_uuid is that of {first.place}, which says something else. Export the file again.",
            )
    return list(found.values())


def _content(vote: Vote) -> Hashable:
    """The content of a vote, whichever of its policies is called a."""
    a, b = (vote.policy_a, vote.response_a), (vote.policy_b, vote.response_b)
    winner = {Winner.A: a, Winner.B: b}.get(vote.winner, vote.winner)
    return vote.task, frozenset((a, b)), winner


# Where several columns have one of these meanings, the first is read, in the order in which they stand here.
_ONE_OF = ("task", "policy_a", "policy_b", "winner", "response_a", "response_b")
# Alpaca's.
_ONE_TASK = ["instruction", "input"]
# Fewer votes may all be for one side by chance: ten of a fair coin are so once in five hundred times.
_FEWEST_ALIKE = 10
_PLACES = {name: place for place, name in enumerate(MEANING_BY_NAME)}


def _rivals(fields: Mapping[str, Any]) -> list[slips.Rivals]:
    """The pairs of columns of a row that may be the same thing and say different ones; the first is read."""
    pairs = []
    for meaning, names in _several(tuple(fields)):
        if names == _ONE_TASK:
            continue
        said = {name: fields[name] for name in names}
        if meaning == "winner":
            # Many tables have a label or a choice that is about something else.
            said = {name: said_in(value) for name, value in said.items()}
        if pair := slips.rivals(said, names):
            pairs.append(pair)
    return pairs


# The rows of a table have the same names.
@lru_cache(maxsize=64)
def _several(names: tuple[str, ...]) -> list[tuple[str, list[str]]]:
    """The meanings that several of these columns have, each with its columns, the one that is read first."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        if (meaning := meaning_of(name)) in _ONE_OF:
            found[meaning].append(name)
    return [
        (meaning, sorted(each, key=lambda name: _PLACES[unmarked(name)]))
        for meaning, each in found.items()
        if len(each) > 1
    ]


# ---------------------------------------------------------------- what somebody should know

# Columns of the task, and of a third policy.
_UNREAD = {
    *slips.OF_A_TASK,
    *(f"{thing}{third}" for thing in (*POLICY, *RESPONSE) for third in ("c", "3")),
}  # fmt: skip


# Columns that tables have beside those of `MEANING_BY_NAME`, and that are read too.
_ALSO_READ = {
    *KAGGLE, *(f"{thing}{side}" for thing in ("conversation", "messages") for side in ("a", "b", "1", "2")),
    "turn", "judgmentuuid", "judgedby", "a", "b", "1", "2", "left", "right",
}  # fmt: skip
_OTHER_SIDE = {"response_a": "response_b", "response_b": "response_a"}


def _left_out_of(fields: Mapping[str, Any]) -> list[str]:
    """The columns of a row of a table that hold something, and are not read."""
    return [name for name in _not_read(tuple(fields)) if fields[name] not in (None, "", [], {})]


@lru_cache(maxsize=64)
def _not_read(names: tuple[str, ...]) -> list[str]:
    """The columns that mean nothing, and one text without the other. `_UNREAD` are told on their own."""
    meanings = {name: meaning_of(name) for name in names}
    alone = {text for text, other in _OTHER_SIDE.items() if other not in meanings.values()}
    return [
        name
        for name, meaning in meanings.items()
        if meaning in alone or (not meaning and unmarked(name) not in _ALSO_READ | _UNREAD)
    ]


def _may_matter(name: str, value: Any) -> bool:
    """True for a column that is not read, and may hold what people saw."""
    return value not in (None, "", [], {}) and unmarked(name) in _UNREAD


def _not_shown(unread: Mapping[str, int]) -> Iterator[str]:
    for name, n in unread.items():
        yield (
            f"{wording.number(n, 'row')} with {limits.shown(name)}, which is left out. If people saw it with "
            "the task, write it into the task."
        )


def _warnings(votes: Sequence[Vote], unanswered: int, drafts: int, copies: int, again: int) -> Iterator[str]:
    """Counts of what may be a mistake in the file. Nothing of it is changed.

    ``unanswered``, ``drafts``, ``copies``, ``again``: records without an answer, votes that may be drafts,
    copies of a vote, and votes that are an earlier one again.
    """
    if again:
        yield (
            f"{wording.number(again, 'vote')} left out that came before in the file, by their judgment_uuid."
        )
    if unanswered:
        yield f"{wording.number(unanswered, 'record')} without an answer, or taken back, left out."
    if drafts:
        yield (
            f"{wording.number(drafts, 'vote')} of records that are pending in Argilla, which may be drafts "
            "or discarded: the file does not say it. Each counts. An export by to_datasets says it."
        )
    if copies:
        yield (
            f"{wording.number(copies, 'annotation')} made from another one in Label Studio, as a reviewer "
            "does. Each counts as a vote of its own. Where that is wrong, remove one of the two."
        )
    if by_model := sum(v.judge == Judge.LLM for v in votes):
        yield (
            f"{wording.number(by_model, 'vote')} of a language model, as the file says. Each counts, and is "
            "shown as the model's."
        )
    rows = Counter(
        (v.task, v.policy_a, v.policy_b, v.winner, v.response_a, v.response_b, v.annotator, v.judged_at)
        for v in votes
        if v.annotator or v.judged_at
    )
    if twice := sum(rows.values()) - len(rows):
        yield f"{wording.number(twice, 'vote')} equal to an earlier one in every column. Each counts."
    if empty := sum((v.response_a, v.response_b).count("") for v in votes):
        yield f"{wording.number(empty, 'response')} empty."
    bare = sum(None in {v.response_a, v.response_b} for v in votes)
    if 0 < bare < len(votes):
        yield (
            f"{wording.number(bare, 'vote')} without both texts. A new experiment goes on with the responses "
            "of the file only where each vote has both. Add the texts, or remove the rows."
        )
    if opposite := _opposite(votes):
        yield (
            f"{wording.number(opposite, 'pair')} of texts on which one person gave opposite votes. Each "
            "counts."
        )
    yield from _one_sided(votes)
    responses = [text for v in votes for text in (v.response_a, v.response_b) if text]
    tasks = list(dict.fromkeys(v.task for v in votes))
    yield from slips.in_texts(responses, "response")
    yield from slips.messages(responses, "response")
    yield from slips.in_texts(tasks, "task")
    yield from slips.of_programs(tasks, "task")
    policies = list(dict.fromkeys(name for v in votes for name in (v.policy_a, v.policy_b)))
    yield from slips.no_names(policies, "policy", "policies")
    annotators = list(dict.fromkeys(v.annotator for v in votes))
    yield from slips.no_names(annotators, "annotator")
    yield from slips.one_person(annotators)
    yield from slips.nearly_equal(map(slips.in_one_form, annotators), "annotator", "annotators")
    yield from slips.nearly_equal(policies, "policy", "policies")
    yield from slips.nearly_equal((v.task for v in votes), "task", "tasks")


def _one_sided(votes: Sequence[Vote]) -> Iterator[str]:
    """A warning where every vote is for a, or every one for b, as of a column of marks that are all 1."""
    winners = {v.winner for v in votes}
    if len(votes) < _FEWEST_ALIKE or len(winners) > 1 or not winners <= {Winner.A, Winner.B}:
        return
    [side] = winners
    yield (
        f"All {len(votes):,} votes are for policy_{side}. Where that is wrong, as where each 1 of the file "
        "only marks a vote, write a, b, tie or both_bad instead."
    )


def _opposite(votes: Sequence[Vote]) -> int:
    """The number of times that one person preferred each of the same two texts to the other."""
    better: defaultdict[Hashable, set[tuple[str, str]]] = defaultdict(set)
    for v in votes:
        if v.annotator and v.response_a and v.response_b and v.winner in {Winner.A, Winner.B}:
            a, b = (v.policy_a, v.response_a), (v.policy_b, v.response_b)
            better[v.annotator, v.task, frozenset((a, b))].add(a if v.winner == Winner.A else b)
    return sum(len(each) > 1 for each in better.values())
