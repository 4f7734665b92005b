"""Pairs shown to learn about an annotator: practice, gold items, repeats. They never enter the estimates.

Except for practice, an annotator must not be able to tell a check from a comparison. A check therefore goes
through everything that a comparison does. It is reserved for a while, can be handed back, may then go to
somebody else, and can be taken back.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Any, cast

from django.db import transaction
from django.db.models import Count, Exists, F, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Least

from engine.domain import blinding
from engine.domain.errors import LeaseLostError, WrongStateError
from engine.models import Check, Comparison, Experiment, GoldItem, Judgment, Lease, User, clock
from engine.selectors import answers, counts
from engine.selectors.compiled import ANNOTATOR, EXPERIMENT, Compiled
from engine.services import allowances, judging
from engine.services.locks import locked_experiment


@dataclass(frozen=True)
class Checked:
    """An answered check, and whether this very call answered it."""

    check: Check
    created: bool


def are_used(experiment: Experiment) -> bool:
    """True if annotators of this experiment are shown any checks."""
    return bool(experiment.practice or experiment.gold_rate or experiment.repeat_rate)


_UNANSWERED = Compiled(
    lambda: Check.objects.filter(experiment=EXPERIMENT, annotator=ANNOTATOR, choice="").order_by(
        "created_at", "pk"
    )
)


def unanswered_checks(*, experiment: Experiment, annotator: User) -> list[Check]:
    """The checks that this annotator was shown and has not answered, in the order of showing."""
    return _UNANSWERED(experiment=experiment.pk, annotator=annotator.pk)


def is_held(check: Check) -> bool:
    """True if the annotator holds it, as they hold an active lease."""
    return check.reserved and check.held_until > clock.now()


def renew(check: Check) -> Check | None:
    """Extend the reservation of a check; returns it with its texts, or ``None`` if it was handed back."""
    if not _renewed(Check.objects.filter(pk=check.pk)):
        return None
    return _with_texts().get(pk=check.pk)


@transaction.atomic(savepoint=False)
def renew_checks(*, annotator: User, tokens: Collection[uuid.UUID]) -> None:
    """Keep checks reserved while their page is open, for at most as long as a comparison can be held."""
    _renewed(_in_order(Check.objects.filter(annotator=annotator, token__in=tokens)))


def _in_order(checks: QuerySet[Check]) -> QuerySet[Check]:
    """The same checks, locked by number: a beat and the sweep could each hold what the other waits for."""
    return Check.objects.filter(pk__in=checks.order_by("pk").select_for_update(no_key=True).values("pk"))


def _renewed(checks: QuerySet[Check]) -> int:
    held = checks.filter(choice="", reserved=True, held_until__gt=clock.now())
    return held.update(expires_at=Least(Value(allowances.lease_end()), F("held_until")))


@transaction.atomic(savepoint=False)
def return_checks(*, annotator: User, tokens: Collection[uuid.UUID] | None = None) -> None:
    """End the reservation of these checks, or of all of the annotator's, because their page was closed."""
    held = Check.objects.filter(annotator=annotator, choice="", reserved=True)
    if tokens is not None:
        held = held.filter(token__in=tokens)
    _in_order(held).update(reserved=False, expires_at=clock.now())


@transaction.atomic(savepoint=False)
def expire_checks() -> None:
    """End the reservations of annotators who left, in the sweep that ends their leases."""
    now = clock.now()
    gone = Check.objects.filter(choice="", reserved=True, expires_at__lt=now)
    _in_order(gone).update(reserved=False, expires_at=now)


def resumable(unanswered: Iterable[Check]) -> Check | None:
    """The first of these that was handed back and may be shown to its annotator again.

    The rules are those of a comparison. It is not shown while it would be with somebody else, nor for as long
    again after it was held for too long. Practice waits for its annotator.
    """
    now = clock.now()
    for check in unanswered:
        others_turn = check.held_until <= now < check.held_until + allowances.hold()
        if check.reserved or (others_turn and check.kind != Check.Kind.PRACTICE):
            continue
        fate = _fate(check)
        if fate == _Fate.FREE:
            return check
        if fate == _Fate.LOST:
            _give_up(check)
    return None


def resume(check: Check) -> Check:
    """Reserve a check again for its annotator, as a lease is; it comes back with its texts."""
    now = clock.now()
    held_until = check.held_until if check.held_until > now else now + allowances.hold()
    Check.objects.filter(pk=check.pk).update(
        reserved=True, shown_at=now, held_until=held_until, expires_at=min(allowances.lease_end(), held_until)
    )
    return _with_texts().get(pk=check.pk)


class _Fate(Enum):
    """The present state of a comparison that was handed back: ready, with somebody else, or judged."""

    FREE = auto()
    TAKEN = auto()
    LOST = auto()


def _fate(check: Check) -> _Fate:
    """The state that a comparison would have by now in the place of a check that is no longer reserved."""
    if check.kind == Check.Kind.PRACTICE:
        return _Fate.FREE
    if check.experiment.state == Experiment.State.CONCLUDED:
        return _Fate.LOST
    return _fate_among_others(check, since=check.expires_at, own=0)


def _fate_among_others(check: Check, *, since: datetime, own: int) -> _Fate:
    """The state of the comparison since it was ready, with ``own`` answers of this annotator.

    Annotators are shown the first comparison that is ready. So an annotator who then saw a later pair for the
    first time would have been shown this one instead. A language model would have voted on it.
    """
    before = Judgment.objects.filter(
        comparison=check.instead_of, created_at__lt=check.created_at, standing=True
    )
    judged_by = list(before.values_list("annotator", flat=True))
    votes = Judgment.objects.filter(
        comparison__experiment_id=check.experiment_id, judge=Judgment.Judge.LLM, created_at__gte=since
    )
    wanted = check.experiment.overlap - own - len(judged_by) - votes.exists()
    leases = Lease.objects.filter(
        comparison__experiment_id=check.experiment_id,
        comparison__gte=check.instead_of_id,
        created_at__gte=since,
    )
    others = leases.exclude(annotator=check.annotator_id).order_by("pk")
    for annotator_id, state in others.values_list("annotator", "state"):
        if wanted <= 0:
            break
        if annotator_id in judged_by:
            continue
        if state == Lease.State.ACTIVE:
            return _Fate.TAKEN
        if state == Lease.State.JUDGED:
            judged_by.append(annotator_id)
            wanted -= 1
    return _Fate.FREE if wanted > 0 else _Fate.LOST


def give_up_handed_back(*, experiment: Experiment) -> None:
    """End the checks that were handed back before a conclusion that is now undone by reopening.

    The comparisons that were handed back then were discarded.
    """
    handed_back = Check.objects.filter(experiment=experiment, choice="", reserved=False)
    handed_back.exclude(kind=Check.Kind.PRACTICE).update(choice=Check.LOST, judged_at=clock.now())


def _with_texts() -> QuerySet[Check]:
    return Check.objects.select_related("experiment", *answers.TEXTS_OF_A_CHECK)


def _give_up(check: Check) -> None:
    """End a check that would be with somebody else by now: it counts as neither passed nor failed."""
    lost = Check.objects.filter(pk=check.pk, choice="", reserved=False)
    lost.update(choice=Check.LOST, judged_at=clock.now())


@dataclass(frozen=True)
class Seen:
    """The numbers of pairs that an annotator was shown: practice, checks, and all including comparisons.

    ``handed_back`` is true if they ever handed one back, were away for too long, or took an answer back.
    """

    practice: int
    checks: int
    pairs: int
    handed_back: bool


def _with_counts() -> QuerySet[User]:
    """The annotator, with the numbers of :class:`Seen`."""
    leases = Lease.objects.filter(annotator=ANNOTATOR, comparison__experiment=EXPERIMENT)
    left = Q(choice="", reserved=False) | Q(choice=Check.LOST) | Q(voided_at__isnull=False)
    checks_left = Check.objects.filter(left, annotator=ANNOTATOR, experiment=EXPERIMENT)
    return (
        User.objects.filter(pk=ANNOTATOR)
        .only("pk")
        .annotate(
            practice=Count(
                "checks", filter=Q(checks__experiment=EXPERIMENT, checks__kind=Check.Kind.PRACTICE)
            ),
            seen=Count("checks", filter=Q(checks__experiment=EXPERIMENT)),
            leased=Coalesce(
                Subquery(leases.order_by().values("annotator").annotate(n=Count("pk")).values("n")), 0
            ),
            handed_back=Exists(leases.filter(state__in=Lease.HANDED_BACK)),
            checks_left=Exists(checks_left),
        )
    )


_WITH_COUNTS = Compiled(_with_counts)


def seen_by(*, experiment: Experiment, annotator: User) -> Seen:
    """The number of pairs that this annotator was shown so far, by kind."""
    counted: Any
    [counted] = _WITH_COUNTS(experiment=experiment.pk, annotator=annotator.pk)
    return Seen(
        practice=counted.practice,
        checks=counted.seen,
        pairs=counted.seen + counted.leased,
        handed_back=counted.handed_back or counted.checks_left,
    )


def practice_due(*, experiment: Experiment, annotator: User, seen: Seen) -> Check | None:
    """The next practice pair, if this annotator has not finished them."""
    if seen.practice >= experiment.practice:
        return None
    return _gold_check(experiment, annotator, Check.Kind.PRACTICE, seen.pairs)


def check_due(*, experiment: Experiment, annotator: User, seen: Seen, instead_of: Comparison) -> Check | None:
    """The check to show instead of a comparison, if the annotator's next pair is a check.

    That depends on the experiment's secret, the annotator, and the number of pairs that they were shown, at
    the rates that the experiment sets.
    """
    draw = blinding.check_draw(experiment.secret, annotator.pk, seen.pairs)
    if draw < experiment.gold_rate:
        return _gold_check(experiment, annotator, Check.Kind.GOLD, seen.pairs, instead_of)
    if draw < experiment.gold_rate + experiment.repeat_rate:
        return _repeat_check(experiment, annotator, seen.pairs, instead_of)
    return None


def _gold_check(
    experiment: Experiment, annotator: User, kind: str, number: int, instead_of: Comparison | None = None
) -> Check | None:
    unseen = (
        GoldItem.objects.filter(experiment=experiment).exclude(checks__annotator=annotator).order_by("pk")
    )
    gold = unseen.first()
    if gold is None:
        return None
    return Check.objects.create(
        experiment=experiment,
        annotator=annotator,
        kind=kind,
        gold=gold,
        better_on_left=blinding.better_on_left(experiment.secret, annotator.pk, gold.pk),
        number=number,
        period=len(experiment.past_secrets),
        instead_of=instead_of,
        **_reservation(),
    )


def _repeat_check(
    experiment: Experiment, annotator: User, number: int, instead_of: Comparison
) -> Check | None:
    earlier = counts.standing_judgments(experiment.pk).filter(annotator=annotator).order_by("-pk")
    rows = list(earlier.values_list("pk", "choice", "repeats"))
    candidates = [
        pk
        for pk, choice, repeat in rows[answers.REPEAT_DISTANCE :]
        if repeat is None and choice in {Judgment.Choice.LEFT, Judgment.Choice.RIGHT}
    ]
    if not candidates:
        return None
    chosen = blinding.repeat_choice(experiment.secret, annotator.pk, number, candidates)
    # Do not check again that it stands: it stood when it was chosen, even if an editor voids it now.
    with_texts = Judgment.objects.select_related(
        "comparison__task", "comparison__response_i", "comparison__response_j"
    )
    return Check.objects.create(
        experiment=experiment,
        annotator=annotator,
        kind=Check.Kind.REPEAT,
        repeated=with_texts.get(pk=chosen),
        number=number,
        period=len(experiment.past_secrets),
        instead_of=instead_of,
        **_reservation(),
    )


@transaction.atomic
def answer_check(
    *, experiment_id: int, token: uuid.UUID, annotator: User, choice: str, comment: str = ""
) -> Checked | None:
    """Record the answer to a check exactly once; ``None`` if the token is of no check of this annotator.

    Raises
    ------
    LeaseLostError
        It was skipped, or left for so long that a comparison would have gone to somebody else.
    WrongStateError
        The experiment does not offer this choice.
    """
    check = (
        Check.objects.select_for_update(no_key=True, of=("self",))
        .select_related("gold", "repeated", "experiment")
        .filter(token=token, annotator=annotator, experiment_id=experiment_id)
        .first()
    )
    if check is None:
        return None
    skipped = choice == Check.SKIPPED
    if skipped and (check.choice or not check.reserved):
        # A pair that was handed back is not skipped: it may be shown to its annotator again.
        return Checked(check=check, created=False)
    if check.choice == Check.SKIPPED:
        raise LeaseLostError(judging.WAS_SKIPPED)
    if check.choice == Check.LOST or (not check.choice and not check.reserved and _fate(check) != _Fate.FREE):
        raise LeaseLostError(judging.WENT_ON)
    if check.choice:
        return Checked(check=check, created=False)
    if choice not in [*counts.choices(check.experiment), Check.SKIPPED]:
        raise WrongStateError(judging.NOT_OFFERED)
    check.choice = choice
    check.passed = None if skipped else choice == expected_choice(check)
    check.comment = comment
    check.judged_at = clock.now()
    check.save(update_fields=["choice", "passed", "comment", "judged_at"])
    return Checked(check=check, created=True)


@transaction.atomic
def take_back_check(*, check_id: int) -> Check:
    """Void the answer to a check and show its pair again, as for a judgment that is taken back.

    It is not reserved if somebody else would be looking at a comparison in its place now.

    Raises
    ------
    WrongStateError
        The experiment has concluded, or the answer was taken back already.
    """
    taken_back = Check.objects.filter(pk=check_id)
    # As a void does: one that did not wait for the planner would tell the check by its haste.
    experiment = locked_experiment(taken_back.values_list("experiment", flat=True).get())
    check = _with_texts().select_for_update(no_key=True, of=("self",)).get(pk=check_id)
    judging.check_not_final(experiment)
    if check.voided_at is not None:
        raise WrongStateError(judging.VOID_ALREADY)
    check.voided_at = clock.now()
    check.save(update_fields=["voided_at"])
    reservation = _reservation()
    answered_at = cast(datetime, check.judged_at)
    if _fate_among_others(check, since=answered_at, own=1) == _Fate.TAKEN:
        # A comparison would come again as the pair that it was, and would have been ready since the answer.
        # It would come to this annotator too, who does not hold it.
        over = clock.now() - allowances.hold()
        reservation |= {
            "reserved": False,
            "created_at": check.created_at,
            "expires_at": check.judged_at,
            "held_until": over,
        }
    return Check.objects.create(
        experiment=check.experiment,
        annotator_id=check.annotator_id,
        kind=check.kind,
        gold=check.gold,
        better_on_left=check.better_on_left,
        repeated=check.repeated,
        number=check.number,
        period=check.period,
        instead_of_id=check.instead_of_id,
        **reservation,
    )


def _reservation() -> dict[str, Any]:
    """The times of a check that is shown now: the end of its reservation, and the latest one."""
    return {"expires_at": allowances.lease_end(), "held_until": clock.now() + allowances.hold()}


def expected_choice(check: Check) -> str:
    """The correct side: that of the better gold response, or of the earlier answer after the swap."""
    if check.repeated is not None:
        first = check.repeated.choice
        return str(Judgment.Choice.RIGHT if first == Judgment.Choice.LEFT else Judgment.Choice.LEFT)
    return str(Judgment.Choice.LEFT if check.better_on_left else Judgment.Choice.RIGHT)
