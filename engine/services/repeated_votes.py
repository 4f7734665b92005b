"""Votes of a file that an experiment counts already, as where an earlier file had a part of its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from engine.domain.errors import ImportedBeforeError
from engine.domain.judgment_uuids import exchanged, mark
from engine.domain.outcomes import outcome_of
from engine.domain.texts import digest
from engine.importing import Vote, Winner
from engine.importing.pacing import paced
from engine.models import Experiment, Judgment, Response

_OUTCOMES = {Winner.A: 1.0, Winner.B: 0.0, Winner.TIE: 0.5, Winner.BOTH_BAD: 0.5}
AGAIN = (
    "To count all of them a second time, choose “Count the same votes a second time” (--again on the command "
    "line, again=true in the API)."
)
# So few votes without a person, a time or texts may be in a file by chance.
_FEW = 10


@dataclass(frozen=True)
class Counted:
    """The votes that an experiment counts or has voided, by what tells them apart, each with its number.

    Attributes
    ----------
    named
        Every judgment by its UUID in our exports, with its key.
    known
        Votes that have a time, or a person and both texts.
    bare
        Past votes that have neither. Two of them may be alike and still be two votes.
    """

    named: Mapping[UUID, Hashable]
    known: Counter[Hashable]
    bare: Counter[Hashable]

    @classmethod
    def of(cls, experiment: Experiment, tasks: Mapping[str, int]) -> Counted:
        """Those of an experiment. ``tasks``: the position by which a vote knows a text of a task."""
        suffix, own = f"@import-{experiment.pk}", mark(experiment.pk)
        named: dict[UUID, Hashable] = {}
        known: Counter[Hashable] = Counter()
        bare: Counter[Hashable] = Counter()
        rows = Judgment.objects.filter(comparison__experiment=experiment)
        for (
            token, judge, via, choice, at, by, restores, plan, i_on_left, task, i, j, text_i, text_j, state_i,
            state_j,
        ) in rows.values_list(
            "token", "judge", "via", "choice", "created_at", "annotator__username", "restores_id",
            "comparison__plan", "comparison__i_on_left", "comparison__task__prompt",
            "comparison__policy_i__index", "comparison__policy_j__index", "comparison__response_i__digest",
            "comparison__response_j__digest", "comparison__response_i__state",
            "comparison__response_j__state",
        ).iterator():  # fmt: skip
            is_past = plan.get("past", False)
            texts = (
                None if state == Response.State.FAILED else text
                for text, state in ((text_i, state_i), (text_j, state_j))
            )
            key, is_known = _key(
                tasks.get(task),
                (i, j),
                tuple(texts),
                outcome_of(choice, i_on_left=i_on_left),
                both_bad=choice == Judgment.Choice.BOTH_BAD,
                annotator=(by or "").removesuffix(suffix),
                at=at if plan.get("time_known", not is_past) else None,
            )
            named[exchanged(token, own)] = key
            # An export has ties of identical texts too, which nobody saw.
            if judge != Judgment.Judge.HUMAN and via not in {Judgment.Via.IDENTICAL, Judgment.Via.IMPORT}:
                continue
            if is_known:
                known[key] += 1
            elif is_past and restores is None:
                bare[key] += 1
        return cls(named, known, bare)

    def new(
        self,
        votes: Sequence[Vote],
        policies: Mapping[str, int],
        tasks: Mapping[str, int],
        *,
        overlaps: bool = False,
    ) -> list[Vote]:
        """The votes of a file but those that are counted, in their order.

        A vote of our own export is told by its UUID. Bare votes without one are told to be counted only where
        all that are counted are in the file, as in one that grows, or somebody says that it ``overlaps``.
        """
        told = Counter(self.named[vote.uuid] for vote in votes if vote.uuid and vote.uuid in self.named)
        others = [vote for vote in votes if vote.uuid not in self.named]
        keyed = [(vote, *_key_of(vote, policies, tasks)) for vote in paced(others)]
        in_file = Counter(key for _, key, is_known in keyed if not is_known)
        bare = self.bare - told
        grows = overlaps or (bare.total() >= _FEW and bare <= in_file)
        left = self.known - told + (bare if grows else Counter())
        new = []
        for vote, key, _ in keyed:
            if left[key] > 0:
                left[key] -= 1
            else:
                new.append(vote)
        return new


def refuse_repeated(n_votes: int, n_new: int) -> None:
    """Refuse votes some of which count already.

    Raises
    ------
    ImportedBeforeError
        Says how many, and what to do.
    """
    if n_new == n_votes:
        return
    if not n_new:
        raise ImportedBeforeError(
            f"All {n_votes:,} votes count in this experiment already, and nothing was changed. {AGAIN}"
        )
    raise ImportedBeforeError(
        f"{n_votes - n_new:,} of the {n_votes:,} votes count in this experiment already, and nothing was "
        f"changed. To import the other {n_new:,}, choose “Only new votes” (--only-new on the command line, "
        f"only_new=true in the API). {AGAIN}"
    )


def _key_of(vote: Vote, policies: Mapping[str, int], tasks: Mapping[str, int]) -> tuple[Hashable, bool]:
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
        annotator=vote.annotator,
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
) -> tuple[Hashable, bool]:
    """The marks that tell a vote apart, and whether they do so surely."""
    # Beside a time to the microsecond no name is needed, and our own export has other names of people.
    by = "" if at is not None and at.microsecond else annotator
    surely = at is not None or bool(annotator and None not in texts)
    return (task, policies, texts, outcome, both_bad, by, at), surely
