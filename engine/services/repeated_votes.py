"""Votes that an experiment counts already, for example from an earlier file with some of the rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from engine.domain.errors import ImportedBeforeError
from engine.domain.judgment_uuids import exchanged, mark
from engine.domain.outcome_of_answers import outcome_of
from engine.domain.texts import digest
from engine.importing.votes import Vote, Winner
from engine.models import Experiment, Judgment, Response
from engine.services.imported_votes import name_in_file, person_of

_OUTCOMES = {Winner.A: 1.0, Winner.B: 0.0, Winner.TIE: 0.5, Winner.BOTH_BAD: 0.5}


class _Content(NamedTuple):
    """What a vote says, without who said it and when."""

    task: int | None
    policies: tuple[int, int]
    texts: tuple[str | None, ...]
    outcome: float
    both_bad: bool


class _Key(NamedTuple):
    """The marks that tell a vote apart that has no UUID."""

    content: _Content
    annotator: str
    at: datetime | None


@dataclass(frozen=True)
class Sorted:
    """The votes of a file that do not count yet, in their order.

    ``n_unsure``: how many of the others may only look like votes that count.
    """

    new: list[Vote]
    n_unsure: int


class _Left:
    """Votes that count and that no vote of the file was found to be yet."""

    def __init__(self, keys: Sequence[_Key]) -> None:
        self._times: defaultdict[tuple[_Content, str], Counter[datetime | None]] = defaultdict(Counter)
        self._people: defaultdict[tuple[_Content, datetime], Counter[str]] = defaultdict(Counter)
        for content, annotator, at in keys:
            self._times[content, annotator][at] += 1
            if at is not None and at.microsecond:
                self._people[content, at][annotator] += 1

    def take(self, key: _Key) -> bool:
        """Take a vote of the same content, person and time. A time to the microsecond needs no person: our
        own export has pseudonyms in the place of names.
        """
        content, annotator, at = key
        if at is not None and at.microsecond:
            annotator = next(iter(+self._people[content, at]), annotator)
        return self._take(content, annotator, at)

    def take_close(self, key: _Key, precision: timedelta) -> bool:
        """Take a vote whose time is the same to the precision of the coarser one: spreadsheets drop seconds,
        or the whole time.

        ``precision``: that of the file's times. A time of a known person here may be coarser.
        """
        content, annotator, _ = key
        return any(
            _agree(at, key.at, max(precision, _precision(at)) if annotator else precision)
            and self._take(content, annotator, at)
            for at in [*self._times[content, annotator]]
        )

    def _take(self, content: _Content, annotator: str, at: datetime | None) -> bool:
        times = self._times[content, annotator]
        if times[at] < 1:
            return False
        times[at] -= 1
        if at is not None and at.microsecond:
            self._people[content, at][annotator] -= 1
        return True


def _precision(at: datetime | None) -> timedelta:
    if at is None or at.microsecond:
        return timedelta(microseconds=1)
    if at.second:
        return timedelta(seconds=1)
    return timedelta(minutes=1) if at.hour or at.minute else timedelta(days=1)


def _agree(one: datetime | None, other: datetime | None, precision: timedelta) -> bool:
    return one is None or other is None or abs(one - other) < precision


@dataclass(frozen=True)
class Counted:
    """The votes that an experiment counts or has voided, by what tells them apart.

    Attributes
    ----------
    named
        Every judgment by its UUID in our exports.
    keyed
        Those of people, and the ties of identical texts.
    nameless
        Past votes of people who were forgotten: a file may still have their names.
    """

    named: Mapping[UUID, _Key]
    keyed: Counter[_Key]
    nameless: Counter[_Key]

    @classmethod
    def of(cls, experiment: Experiment, tasks: Mapping[str, int]) -> Counted:
        """The votes of an experiment. ``tasks``: the position by which a vote knows a text of a task."""
        own = mark(experiment.pk)
        named: dict[UUID, _Key] = {}
        keyed: Counter[_Key] = Counter()
        nameless: Counter[_Key] = Counter()
        rows = Judgment.objects.filter(comparison__experiment=experiment)
        for (
            token, judge, via, choice, at, by, forgotten_at, restores, plan, i_on_left, task, i, j, text_i,
            text_j, state_i, state_j,
        ) in rows.values_list(
            "token", "judge", "via", "choice", "created_at", "annotator__username",
            "annotator__forgotten_at", "restores_id", "comparison__plan", "comparison__i_on_left",
            "comparison__task__prompt", "comparison__policy_i__index", "comparison__policy_j__index",
            "comparison__response_i__digest", "comparison__response_j__digest",
            "comparison__response_i__state", "comparison__response_j__state",
        ).iterator():  # fmt: skip
            is_past = plan.get("past", False)
            time_known = plan.get("time_known", not is_past)
            texts = (
                None if state == Response.State.FAILED else text
                for text, state in ((text_i, state_i), (text_j, state_j))
            )
            outcome = outcome_of(choice, i_on_left=i_on_left)
            key = _Key(
                _Content(tasks.get(task), (i, j), tuple(texts), outcome, choice == Judgment.Choice.BOTH_BAD),
                annotator="" if forgotten_at else name_in_file(by or "", experiment.pk),
                at=at if time_known else None,
            )
            named[exchanged(token, own)] = key
            # An export has ties of identical texts too, which nobody saw.
            if judge != Judgment.Judge.HUMAN and via not in {*Judgment.UNSEEN, Judgment.Via.IMPORT}:
                continue
            # A restored vote without a time is the one that was voided.
            if restores is None or time_known:
                (nameless if is_past and forgotten_at else keyed)[key] += 1
        return cls(named, keyed, nameless)

    def sort(self, votes: Sequence[Vote], policies: Mapping[str, int], tasks: Mapping[str, int]) -> Sorted:
        """Tell the votes of a file that do not count yet from those that do.

        A vote from our own export is recognised by its UUID. Any other vote counts already if it looks like
        a vote that counts; two equal votes need two such votes.
        """
        told = Counter(self.named[vote.uuid] for vote in votes if vote.uuid and vote.uuid in self.named)
        others = [vote for vote in votes if vote.uuid not in self.named]
        keys = [_key_of(vote, policies, tasks) for vote in others]
        left = _Left([*(self.keyed - told).elements()])
        nameless = _Left([*(self.nameless - told).elements()])
        # Exact matches go first, then those of known people. Afterwards, a vote of an unknown person may
        # match one
        # of a person who was forgotten.
        exact = [left.take(key) for key in keys]
        precision = min((_precision(key.at) for key in keys if key.at), default=timedelta(microseconds=1))
        close = [not e and left.take_close(key, precision) for key, e in zip(keys, exact, strict=True)]
        found = [
            e or c or nameless.take_close(key._replace(annotator=""), precision)
            for key, e, c in zip(keys, exact, close, strict=True)
        ]
        return Sorted(
            new=[vote for vote, each in zip(others, found, strict=True) if not each],
            n_unsure=sum(each and not _is_sure(key) for key, each in zip(keys, found, strict=True)),
        )


def _is_sure(key: _Key) -> bool:
    """False for a vote that lacks its time, and its person or a text too: two different votes may look
    alike.
    """
    has_time = key.at is not None and _precision(key.at) < timedelta(days=1)
    return has_time or bool(key.annotator and None not in key.content.texts)


def refuse_repeated(n_votes: int, found: Sorted) -> None:
    """Refuse votes some of which count already.

    Raises
    ------
    ImportedBeforeError
        Says how many, and what to do.
    """
    n_new = len(found.new)
    if n_new == n_votes:
        return
    said = f"{f'{n_votes - n_new:,} of the' if n_new else 'All'} {n_votes:,} votes"
    said += " count in this experiment already, and nothing was changed. "
    if found.n_unsure:
        said += (
            f"{found.n_unsure:,} of these have neither a time nor a person with both texts, and may be other "
            "votes that look the same. "
        )
    if n_new:
        said += (
            f"To import the other {n_new:,}, choose “Only new votes” (--only-new on the command line, "
            "counted=only_new in the API). "
        )
    raise ImportedBeforeError(
        f"{said}To count every row of the file, choose “All votes” (--again on the command line, "
        "counted=again in the API)."
    )


def _key_of(vote: Vote, policies: Mapping[str, int], tasks: Mapping[str, int]) -> _Key:
    a, b = policies[vote.policy_a], policies[vote.policy_b]
    text_a, text_b = (None if text is None else digest(text) for text in (vote.response_a, vote.response_b))
    outcome = _OUTCOMES[vote.winner]
    if a > b:
        a, b, text_a, text_b, outcome = b, a, text_b, text_a, 1 - outcome
    content = _Content(tasks[vote.task], (a, b), (text_a, text_b), outcome, vote.winner == Winner.BOTH_BAD)
    return _Key(content, person_of(vote.annotator), vote.judged_at)
