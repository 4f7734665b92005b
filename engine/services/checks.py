"""Pairs shown to learn about an annotator: practice, gold items, repeats. They never enter the estimates."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from django.db import transaction
from django.db.models import Count, Q
from django.utils import timezone
from django.utils.translation import gettext as _

from engine import selectors
from engine.errors import WrongStateError
from engine.models import Check, Experiment, GoldItem, Judgment, Lease, User

# An annotator should have forgotten a pair before it comes again.
_REPEAT_DISTANCE = 10


@dataclass(frozen=True)
class Checked:
    """A check that was answered, and whether this very call answered it."""

    check: Check
    created: bool


def next_check(
    *, experiment: Experiment, annotator: User, besides: Collection[uuid.UUID] = ()
) -> Check | None:
    """The check to show this annotator now instead of a comparison, if one is due.

    Practice comes first, all of it. After that a coin that depends on the experiment's seed, the annotator and how
    much they were shown decides, at the rates the experiment sets.
    """
    if not (experiment.practice or experiment.gold_rate or experiment.repeat_rate):
        return None
    return _due_check(experiment, annotator, besides)


@transaction.atomic
def _due_check(experiment: Experiment, annotator: User, besides: Collection[uuid.UUID]) -> Check | None:
    mine = Check.objects.filter(experiment=experiment, annotator=annotator)
    unanswered = list(mine.filter(choice="").select_related("gold").order_by("pk"))
    if (open_check := next((each for each in unanswered if each.token not in besides), None)) is not None:
        return open_check
    if unanswered:
        # One check at a time on a screen.
        return None
    seen = mine.aggregate(all=Count("pk"), practice=Count("pk", filter=Q(kind=Check.Kind.PRACTICE)))
    if seen["practice"] < experiment.practice:
        return _gold_check(experiment, annotator, Check.Kind.PRACTICE)
    shown = Lease.objects.filter(annotator=annotator, comparison__experiment=experiment).count() + seen["all"]
    rng = np.random.default_rng([experiment.seed, annotator.pk, shown, 3])
    draw = rng.random()
    if draw < experiment.gold_rate:
        return _gold_check(experiment, annotator, Check.Kind.GOLD)
    if draw < experiment.gold_rate + experiment.repeat_rate:
        return _repeat_check(experiment, annotator, rng)
    return None


def _gold_check(experiment: Experiment, annotator: User, kind: str) -> Check | None:
    unseen = (
        GoldItem.objects.filter(experiment=experiment).exclude(checks__annotator=annotator).order_by("pk")
    )
    gold = unseen.first()
    if gold is None:
        return None
    coin = np.random.default_rng([experiment.seed, annotator.pk, gold.pk, 4])
    return Check.objects.create(
        experiment=experiment,
        annotator=annotator,
        kind=kind,
        gold=gold,
        better_on_left=bool(coin.integers(2)),
    )


def _repeat_check(experiment: Experiment, annotator: User, rng: np.random.Generator) -> Check | None:
    earlier = selectors.standing_judgments(experiment.pk).filter(annotator=annotator).order_by("-pk")
    candidates = list(
        earlier.filter(repeats__isnull=True, choice__in=[Judgment.Choice.LEFT, Judgment.Choice.RIGHT])
        .exclude(pk__in=list(earlier.values_list("pk", flat=True)[:_REPEAT_DISTANCE]))
        .values_list("pk", flat=True)
    )
    if not candidates:
        return None
    return Check.objects.create(
        experiment=experiment,
        annotator=annotator,
        kind=Check.Kind.REPEAT,
        repeated_id=int(rng.choice(candidates)),
    )


@transaction.atomic
def answer_check(*, experiment_id: int, token: uuid.UUID, annotator: User, choice: str) -> Checked | None:
    """Record the answer to a check exactly once; ``None`` where the token names no check of this annotator.

    Raises
    ------
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
    if check.choice:
        return Checked(check=check, created=False)
    if choice not in [*selectors.choices(check.experiment), Check.SKIPPED]:
        raise WrongStateError(_("This experiment does not offer that choice."))
    check.choice = choice
    check.passed = None if choice == Check.SKIPPED else choice == expected_choice(check)
    check.judged_at = timezone.now()
    check.save(update_fields=["choice", "passed", "judged_at"])
    return Checked(check=check, created=True)


def expected_choice(check: Check) -> str:
    """The side that agrees with what is known: the better gold response, or the earlier judgment's, swapped."""
    if check.repeated is not None:
        first = check.repeated.choice
        return str(Judgment.Choice.RIGHT if first == Judgment.Choice.LEFT else Judgment.Choice.LEFT)
    return str(Judgment.Choice.LEFT if check.better_on_left else Judgment.Choice.RIGHT)
