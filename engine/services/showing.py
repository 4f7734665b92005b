"""What an annotator sees: one pair of texts under one token, whether it is a comparison or a check."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass

from django.db import transaction
from django.utils.translation import gettext

from engine.errors import UnknownTokenError
from engine.models import Check, Experiment, Flag, Judgment, Lease, User
from engine.services import checks, judging
from engine.services.checks import expected_choice


@dataclass(frozen=True)
class ShownPair:
    """A pair as the page may know it: nothing here says which policy wrote what, nor whether it is a check."""

    token: uuid.UUID
    prompt: str
    left: str
    right: str
    practice: bool = False


@dataclass(frozen=True)
class Answered:
    """What became of an answer."""

    created: bool
    counts: bool
    feedback: str = ""


def show_next(
    *, experiment: Experiment, annotator: User, besides: Collection[uuid.UUID] = ()
) -> ShownPair | None:
    """The next pair for this annotator, other than those on their screen already; ``None`` where none is ready."""
    if experiment.state == Experiment.State.RUNNING:
        check = checks.next_check(experiment=experiment, annotator=annotator, besides=besides)
        if check is not None:
            return _of_check(check)
    lease = judging.lease_next(experiment_id=experiment.pk, annotator=annotator, besides=besides)
    return None if lease is None else _of_comparison(lease)


def answer(
    *,
    experiment_id: int,
    token: uuid.UUID,
    annotator: User,
    choice: str,
    comment: str = "",
    via: str = Judgment.Via.PAGE,
) -> Answered:
    """Record an answer to whatever was shown under ``token``, exactly once.

    ``via``: whether the annotator answered on the page or through the API.

    Raises
    ------
    LeaseLostError, UnknownTokenError, WrongStateError
        See :func:`engine.services.judging.judge_leased`.
    """
    try:
        recorded = judging.judge_leased(
            experiment_id=experiment_id,
            token=token,
            annotator=annotator,
            choice=choice,
            comment=comment,
            via=via,
        )
    except UnknownTokenError:
        checked = checks.answer_check(
            experiment_id=experiment_id, token=token, annotator=annotator, choice=choice
        )
        if checked is None:
            raise
        return Answered(created=checked.created, counts=False, feedback=_feedback(checked.check))
    return Answered(created=recorded.created, counts=True)


@transaction.atomic
def flag(*, experiment_id: int, token: uuid.UUID, annotator: User, reason: str, comment: str = "") -> None:
    """Hand a pair back with a word about what is wrong with it. A check that is flagged is just skipped."""
    lease = Lease.objects.filter(
        token=token, annotator=annotator, comparison__experiment_id=experiment_id
    ).first()
    if lease is not None:
        Flag.objects.update_or_create(
            comparison_id=lease.comparison_id,
            annotator=annotator,
            defaults={"reason": reason, "comment": comment},
        )
    skip(experiment_id=experiment_id, token=token, annotator=annotator)


def skip(*, experiment_id: int, token: uuid.UUID, annotator: User) -> None:
    """Hand a pair back for somebody else. A check that is skipped is over."""
    checked = checks.answer_check(
        experiment_id=experiment_id, token=token, annotator=annotator, choice=Check.SKIPPED
    )
    if checked is None:
        judging.skip(experiment_id=experiment_id, token=token, annotator=annotator)


@transaction.atomic
def take_back(*, judgment_id: int, annotator: User) -> ShownPair | None:
    """Void one of the annotator's own judgments and reserve its pair for them again.

    ``None`` where a colleague is looking at the pair now; the judgment is void all the same.
    """
    void = judging.void_judgment(judgment_id=judgment_id, by=annotator, reason="Taken back by the annotator")
    lease = judging.lease_again(comparison_id=void.judgment.comparison_id, annotator=annotator)
    return None if lease is None else _of_comparison(lease)


def _of_comparison(lease: Lease) -> ShownPair:
    comparison = lease.comparison
    return ShownPair(
        token=lease.token,
        prompt=comparison.task.prompt,
        left=comparison.left.text,
        right=comparison.right.text,
    )


def _of_check(check: Check) -> ShownPair:
    if check.repeated is not None:
        comparison = check.repeated.comparison
        return ShownPair(
            token=check.token,
            prompt=comparison.task.prompt,
            left=comparison.right.text,
            right=comparison.left.text,
        )
    gold = check.gold
    texts = (gold.better, gold.worse) if check.better_on_left else (gold.worse, gold.better)
    return ShownPair(
        token=check.token,
        prompt=gold.prompt,
        left=texts[0],
        right=texts[1],
        practice=check.kind == Check.Kind.PRACTICE,
    )


def _feedback(check: Check) -> str:
    """Practice tells what was right; a gold item or a repeat must not give itself away."""
    if check.kind != Check.Kind.PRACTICE:
        return ""
    better = gettext("A") if expected_choice(check) == Judgment.Choice.LEFT else gettext("B")
    verdict = (
        gettext("Right.") if check.passed else gettext("Here %(side)s is the better one.") % {"side": better}
    )
    return f"{verdict} {check.gold.explanation}".strip()
