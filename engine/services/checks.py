"""Pairs shown to learn about an annotator: practice, gold items, repeats. They never enter the estimates.

An annotator must not be able to tell a check from a comparison, practice aside. A check therefore does all that a
comparison does: it is reserved for a while, is handed back, may go to somebody else meanwhile, can be taken back.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Count, DateTimeField, Exists, ExpressionWrapper, F, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Least
from django.utils import timezone
from django.utils.translation import gettext as _

from engine.domain import blinding
from engine.domain.errors import LeaseLostError, WrongStateError
from engine.models import Check, Experiment, GoldItem, Judgment, Lease, User
from engine.selectors import counts, people
from engine.services import allowances


@dataclass(frozen=True)
class Checked:
    """A check that was answered, and whether this very call answered it."""

    check: Check
    created: bool


def are_used(experiment: Experiment) -> bool:
    """True if annotators of this experiment are shown any checks."""
    return bool(experiment.practice or experiment.gold_rate or experiment.repeat_rate)


def unanswered_checks(*, experiment: Experiment, annotator: User) -> list[Check]:
    """The checks that this annotator was shown and has not answered, the first one first."""
    mine = Check.objects.filter(experiment=experiment, annotator=annotator, choice="")
    return list(mine.order_by("shown_at", "pk"))


def is_held(check: Check) -> bool:
    """True if the annotator is looking at it, as far as their page has said."""
    return check.expires_at > timezone.now()


def _is_lost(check: Check) -> Exists | Q:
    """True if a comparison in its place would be somebody else's by now, as a condition.

    A comparison that an annotator leaves is the next one to be shown to somebody else. Practice waits for its annotator.
    """
    if check.kind == Check.Kind.PRACTICE or is_held(check):
        return Q(pk__in=[])
    shown_since = Lease.objects.filter(
        comparison__experiment_id=check.experiment_id, granted_at__gte=check.expires_at
    )
    return Exists(shown_since.exclude(annotator=check.annotator_id))


def hold(check: Check) -> Check:
    """Reserve a check anew for as long as a comparison is reserved; it comes back with its texts."""
    now = timezone.now()
    shown_at = now if check.shown_at + allowances.hold() <= now else check.shown_at
    until = min(_end(), shown_at + allowances.hold())
    Check.objects.filter(pk=check.pk).update(expires_at=until, shown_at=shown_at)
    return _with_texts().get(pk=check.pk)


def has_rested(check: Check) -> bool:
    """True if it may be shown again: a comparison that was held for too long is others' for as long again."""
    since = timezone.now() - check.shown_at
    return check.kind == Check.Kind.PRACTICE or not allowances.hold() <= since < 2 * allowances.hold()


def _with_texts() -> QuerySet[Check]:
    return Check.objects.select_related(
        "gold",
        "repeated__comparison__task",
        "repeated__comparison__response_i",
        "repeated__comparison__response_j",
    )


def give_up_if_lost(check: Check) -> bool:
    """End a check that is somebody else's by now: it counts as neither passed nor failed. Says whether it is one."""
    lost = Check.objects.filter(_is_lost(check), pk=check.pk, choice="")
    return bool(lost.update(choice=Check.LOST, judged_at=timezone.now()))


def renew_checks(*, annotator: User, tokens: Collection[uuid.UUID]) -> None:
    """Keep checks reserved while their page is open, for no longer than a comparison can be held."""
    now = timezone.now()
    held = Check.objects.filter(annotator=annotator, token__in=tokens, choice="", expires_at__gt=now)
    latest = ExpressionWrapper(F("shown_at") + allowances.hold(), output_field=DateTimeField())
    held.filter(shown_at__gt=now - allowances.hold()).update(expires_at=Least(Value(_end()), latest))


def return_checks(*, annotator: User, tokens: Collection[uuid.UUID] | None = None) -> None:
    """End the reservation of checks whose page was closed: these, or all of the annotator's."""
    now = timezone.now()
    held = Check.objects.filter(annotator=annotator, choice="", expires_at__gt=now)
    if tokens is not None:
        held = held.filter(token__in=tokens)
    held.update(expires_at=now)


@dataclass(frozen=True)
class Seen:
    """The number of pairs shown to an annotator: practice, checks of any kind, and all pairs."""

    practice: int
    checks: int
    pairs: int


def seen_by(*, experiment: Experiment, annotator: User) -> Seen:
    """The number of pairs that this annotator was shown so far, by kind."""
    leases = Lease.objects.filter(annotator=annotator, comparison__experiment=experiment)
    counted = (
        User.objects.filter(pk=annotator.pk)
        .annotate(
            practice=Count(
                "checks", filter=Q(checks__experiment=experiment, checks__kind=Check.Kind.PRACTICE)
            ),
            seen=Count("checks", filter=Q(checks__experiment=experiment)),
            leased=Coalesce(
                Subquery(leases.order_by().values("annotator").annotate(n=Count("pk")).values("n")), 0
            ),
        )
        .values_list("practice", "seen", "leased")
    )
    practice, checks, leased = counted.get()
    return Seen(practice=practice, checks=checks, pairs=checks + leased)


def practice_due(*, experiment: Experiment, annotator: User, seen: Seen) -> Check | None:
    """The next practice pair, where this annotator has not been through all of them."""
    if seen.practice >= experiment.practice:
        return None
    return _gold_check(experiment, annotator, Check.Kind.PRACTICE, seen.pairs)


def check_due(*, experiment: Experiment, annotator: User, seen: Seen) -> Check | None:
    """The check that is to be shown instead of a comparison, where the annotator's next pair is one.

    That depends on the experiment's secret, the annotator, and how many pairs they were shown; at the rates that the
    experiment sets.
    """
    draw = blinding.check_draw(experiment.secret, annotator.pk, seen.pairs)
    if draw < experiment.gold_rate:
        return _gold_check(experiment, annotator, Check.Kind.GOLD, seen.pairs)
    if draw < experiment.gold_rate + experiment.repeat_rate:
        return _repeat_check(experiment, annotator, seen.pairs)
    return None


def _gold_check(experiment: Experiment, annotator: User, kind: str, number: int) -> Check | None:
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
        expires_at=_end(),
    )


def _repeat_check(experiment: Experiment, annotator: User, number: int) -> Check | None:
    earlier = counts.standing_judgments(experiment.pk).filter(annotator=annotator).order_by("-pk")
    rows = list(earlier.values_list("pk", "choice", "repeats"))
    candidates = [
        pk
        for pk, choice, repeat in rows[people.REPEAT_DISTANCE :]
        if repeat is None and choice in {Judgment.Choice.LEFT, Judgment.Choice.RIGHT}
    ]
    if not candidates:
        return None
    chosen = blinding.repeat_choice(experiment.secret, annotator.pk, number, candidates)
    with_texts = earlier.select_related(
        "comparison__task", "comparison__response_i", "comparison__response_j"
    )
    return Check.objects.create(
        experiment=experiment,
        annotator=annotator,
        kind=Check.Kind.REPEAT,
        repeated=with_texts.get(pk=chosen),
        number=number,
        period=len(experiment.past_secrets),
        expires_at=_end(),
    )


@transaction.atomic
def answer_check(
    *, experiment_id: int, token: uuid.UUID, annotator: User, choice: str, comment: str = ""
) -> Checked | None:
    """Record the answer to a check exactly once; ``None`` where the token names no check of this annotator.

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
    if check.choice == Check.LOST or (not check.choice and give_up_if_lost(check)):
        if skipped:
            return Checked(check=check, created=False)
        raise LeaseLostError(
            _("That pair was open for a long time and went to somebody else, so your answer was not counted.")
        )
    if check.choice == Check.SKIPPED and not skipped:
        # The same as for a comparison: annotators must not tell them apart.
        raise LeaseLostError(_("You skipped that pair, so your answer to it was not counted."))
    # A pair that was handed back is not skipped: it may be shown to its annotator again.
    if check.choice or (skipped and not is_held(check)):
        return Checked(check=check, created=False)
    if choice not in [*counts.choices(check.experiment), Check.SKIPPED]:
        raise WrongStateError(_("This experiment does not offer that choice."))
    check.choice = choice
    check.passed = None if skipped else choice == expected_choice(check)
    check.comment = comment
    check.judged_at = timezone.now()
    check.save(update_fields=["choice", "passed", "comment", "judged_at"])
    return Checked(check=check, created=True)


@transaction.atomic
def take_back_check(*, check_id: int) -> Check:
    """Void the answer to a check and show its pair again, as a judgment that is taken back is.

    Raises
    ------
    WrongStateError
        The experiment has concluded, or the answer was taken back already.
    """
    check = (
        _with_texts()
        .select_related("experiment")
        .select_for_update(no_key=True, of=("self",))
        .get(pk=check_id)
    )
    if check.experiment.state == Experiment.State.CONCLUDED:
        raise WrongStateError(_("The experiment has concluded; its judgments are final."))
    if check.voided_at is not None:
        raise WrongStateError(_("This judgment was taken back already."))
    check.voided_at = timezone.now()
    check.save(update_fields=["voided_at"])
    return Check.objects.create(
        experiment=check.experiment,
        annotator_id=check.annotator_id,
        kind=check.kind,
        gold=check.gold,
        better_on_left=check.better_on_left,
        repeated=check.repeated,
        number=check.number,
        period=check.period,
        expires_at=_end(),
    )


def expected_choice(check: Check) -> str:
    """The side that agrees with what is known: the better gold response, or the earlier judgment's, swapped."""
    if check.repeated is not None:
        first = check.repeated.choice
        return str(Judgment.Choice.RIGHT if first == Judgment.Choice.LEFT else Judgment.Choice.LEFT)
    return str(Judgment.Choice.LEFT if check.better_on_left else Judgment.Choice.RIGHT)


def _end() -> datetime:
    return timezone.now() + timedelta(seconds=settings.LEASE_SECONDS)
