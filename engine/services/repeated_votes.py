"""Votes that an experiment counts already, for example from an earlier file with some of the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from engine.domain.errors import ImportedBeforeError
from engine.domain.judgment_uuids import exchanged, mark
from engine.domain.outcomes import outcome_of
from engine.domain.texts import digest
from engine.importing.pacing import paced
from engine.importing.votes.vote import Vote, Winner
from engine.models import Experiment, Judgment, Response
from engine.services.imported_votes import name_in_file, person_of

_OUTCOMES = {Winner.A: 1.0, Winner.B: 0.0, Winner.TIE: 0.5, Winner.BOTH_BAD: 0.5}


class _Key(NamedTuple):
    """The marks that tell a vote apart that has no UUID."""

    task: int | None
    policies: tuple[int, int]
    texts: tuple[str | None, ...]
    outcome: float
    both_bad: bool
    annotator: str
    at: datetime | None

    @property
    def is_sure(self) -> bool:
        """False for a vote that lacks its time, and its person or a text too: two different votes may look
        alike then.
        """
        return self.at is not None or bool(self.annotator and None not in self.texts)


@dataclass(frozen=True)
class Sorted:
    """The votes of a file that do not count yet, in their order.

    ``n_unsure``: how many of the others may only look like votes that count.
    """

    new: list[Vote]
    n_unsure: int


@dataclass(frozen=True)
class Counted:
    """The votes that an experiment counts or has voided, by what tells them apart, each with its number.

    Attributes
    ----------
    named
        Every judgment by its UUID in our exports, with its key.
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
            key = _key(
                tasks.get(task),
                (i, j),
                tuple(texts),
                outcome_of(choice, i_on_left=i_on_left),
                both_bad=choice == Judgment.Choice.BOTH_BAD,
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
        keys = [_key_of(vote, policies, tasks) for vote in paced(others)]
        left, nameless = self.keyed - told, self.nameless - told
        # Votes of known people take their matches first. Afterwards, a vote of an unknown person may match
        # one of a person who was forgotten.
        by_name = _taken(left, keys)
        by_look = _taken(
            nameless,
            [None if taken else key._replace(annotator="") for key, taken in zip(keys, by_name, strict=True)],
        )
        counts = [a or b for a, b in zip(by_name, by_look, strict=True)]
        return Sorted(
            new=[vote for vote, each in zip(others, counts, strict=True) if not each],
            n_unsure=sum(each and not key.is_sure for key, each in zip(keys, counts, strict=True)),
        )


def _taken(left: Counter[Any], keys: Sequence[_Key | None]) -> list[bool]:
    """For each key in turn, True if ``left`` still had it; it then has one less of that key."""
    taken = []
    for key in keys:
        taken.append(left[key] > 0)
        left[key] -= taken[-1]
    return taken


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
            "only_new=true in the API). "
        )
    raise ImportedBeforeError(
        f"{said}To count every row of the file, choose “All votes” (--again on the command line, again=true "
        "in the API)."
    )


def _key_of(vote: Vote, policies: Mapping[str, int], tasks: Mapping[str, int]) -> _Key:
    a, b = policies[vote.policy_a], policies[vote.policy_b]
    text_a, text_b = (None if text is None else digest(text) for text in (vote.response_a, vote.response_b))
    outcome = _OUTCOMES[vote.winner]
    if a > b:
        a, b, text_a, text_b, outcome = b, a, text_b, text_a, 1 - outcome
    return _key(
        tasks[vote.task],
        (a, b),
        (text_a, text_b),
        outcome,
        both_bad=vote.winner == Winner.BOTH_BAD,
        annotator=person_of(vote.annotator),
        at=vote.judged_at,
    )


def _key(
    task: int | None,
    policies: tuple[int, int],
    texts: tuple[str | None, ...],
    outcome: float,
    *,
    both_bad: bool,
    annotator: str,
    at: datetime | None,
) -> _Key:
    # A time to the microsecond identifies a vote without a name. Our own export has such times, and
    # pseudonyms in the place of names.
    by = "" if at is not None and at.microsecond else annotator
    return _Key(task, policies, texts, outcome, both_bad, by, at)
