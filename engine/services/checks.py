"""Pairs shown to learn about an annotator: practice, gold items, repeats. They never enter the estimates.

Except for practice, an annotator must not be able to tell a check from a comparison. A check therefore goes
through everything that a comparison does: it stays open until it is answered or skipped, comes back first
after its annotator was away, and can be taken back.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import QuerySet

from engine.domain import blinding
from engine.domain.errors import LeaseLostError, WrongStateError
from engine.models import Check, Experiment, GoldItem, Judgment, User, clock
from engine.selectors import answers, counts
from engine.selectors.admission import Gold
from engine.services import allowances, judging
from engine.services.leases import has_ended
from engine.services.locks import locked_experiment


@dataclass(frozen=True)
class Checked:
    """An answered check, and whether this very call answered it."""

    check: Check
    created: bool


def are_used(experiment: Experiment) -> bool:
    """True if annotators of this experiment are shown any checks."""
    return bool(experiment.practice or experiment.gold_rate or experiment.repeat_rate)


def held(*, experiment: Experiment, annotator: User) -> list[Check]:
    """The checks of this annotator that are open, in the order in which they were given."""
    unanswered = Check.objects.filter(experiment=experiment, annotator=annotator, choice="")
    return list(unanswered.order_by("created_at", "pk"))


def come_for(held: Sequence[Check]) -> list[Check]:
    """These checks as far as they are still open, with their texts. Their annotator is here from now on."""
    if not held:
        return []
    theirs = Check.objects.filter(pk__in=[check.pk for check in held], choice="")
    if any(check.expires_at <= clock.now() for check in held):
        theirs.update(**allowances.arrival("shown_at"))
    return list(theirs.select_related("experiment", *answers.TEXTS_OF_A_CHECK))


def stay(*, experiment_id: int, annotator: User) -> None:
    """Note that the annotator is still here."""
    _open_in(annotator, experiment_id).update(expires_at=allowances.lease_end())


def leave(*, annotator: User, experiment_id: int | None) -> None:
    """Note that the annotator left this experiment, or all of them. Their checks wait for them."""
    _open_in(annotator, experiment_id).filter(expires_at__gt=clock.now()).update(expires_at=clock.now())


def _open_in(annotator: User, experiment_id: int | None) -> QuerySet[Check]:
    """The open checks of somebody, locked by number: a beat and another tab's could each hold what the other
    waits for.
    """
    theirs = Check.objects.filter(annotator=annotator, choice="")
    if experiment_id is not None:
        theirs = theirs.filter(experiment=experiment_id)
    return Check.objects.filter(pk__in=theirs.order_by("pk").select_for_update(no_key=True).values("pk"))


def end_open(*, experiment: Experiment) -> None:
    """End the checks that were open when a conclusion came that is now undone by reopening.

    The comparisons that were open then were discarded.
    """
    left = Check.objects.filter(experiment=experiment, choice="", expires_at__lte=clock.now())
    left.exclude(kind=Check.Kind.PRACTICE).update(choice=Check.LOST, judged_at=clock.now())


def first_ones_due(
    *, experiment: Experiment, annotator: User, gold: Gold, n_admission: int, n_shown: int
) -> Check | None:
    """The next practice pair or admission item, until this annotator has had them all."""
    if gold.practice < experiment.practice:
        return _gold_check(experiment, annotator, Check.Kind.PRACTICE, n_shown)
    if gold.admission < n_admission:
        return _gold_check(experiment, annotator, Check.Kind.ADMISSION, n_shown)
    return None


def check_due(*, experiment: Experiment, annotator: User, n_shown: int) -> Check | None:
    """The check to show instead of a comparison, if the annotator's next pair is a check.

    That depends on the experiment's secret, the annotator, and the number of pairs that they were given, at
    the rates that the experiment sets.
    """
    draw = blinding.check_draw(experiment.secret, annotator.pk, n_shown)
    if draw < experiment.gold_rate:
        return _gold_check(experiment, annotator, Check.Kind.GOLD, n_shown)
    if draw < experiment.gold_rate + experiment.repeat_rate:
        return _repeat_check(experiment, annotator, n_shown)
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
        expires_at=allowances.lease_end(),
    )


def _repeat_check(experiment: Experiment, annotator: User, number: int) -> Check | None:
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
        expires_at=allowances.lease_end(),
    )


@transaction.atomic
def answer_check(
    *, experiment_id: int, token: uuid.UUID, annotator: User, choice: str, comment: str = ""
) -> Checked | None:
    """Record the answer to a check exactly once; ``None`` if the token is of no check of this annotator.

    Raises
    ------
    LeaseLostError
        It was skipped, or the experiment ended while the annotator was away.
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
    if skipped and check.choice:
        return Checked(check=check, created=False)
    if check.choice == Check.SKIPPED:
        raise LeaseLostError(judging.WAS_SKIPPED)
    if check.choice == Check.LOST or (not check.choice and has_ended(check.experiment, check)):
        raise LeaseLostError(judging.ENDED)
    if check.choice:
        return Checked(check=check, created=False)
    if choice not in [*counts.choices(check.experiment), Check.SKIPPED]:
        raise WrongStateError(judging.NOT_OFFERED)
    check.choice = choice
    # The first answer says how well somebody judges: an undo must not pass a check.
    if check.passed is None and not skipped:
        check.passed = choice == expected_choice(check)
    check.comment = comment
    check.judged_at = clock.now()
    check.save(update_fields=["choice", "passed", "comment", "judged_at"])
    return Checked(check=check, created=True)


@transaction.atomic
def take_back_check(*, check_id: int, watches: bool) -> Check | None:
    """Void the answer to a check and open its pair again, as for a judgment that is taken back.

    ``watches``: see :func:`engine.services.judging.take_back_judgment`.

    Raises
    ------
    WrongStateError
        The experiment has concluded, or the answer was taken back already.
    """
    taken_back = Check.objects.filter(pk=check_id)
    # As a void does: one that did not wait for the planner would tell the check by its haste.
    experiment = locked_experiment(taken_back.values_list("experiment", flat=True).get())
    check = taken_back.select_for_update(no_key=True, of=("self",)).get()
    judging.check_not_final(experiment)
    if check.voided_at is not None:
        raise WrongStateError(judging.VOID_ALREADY)
    check.voided_at = clock.now()
    check.save(update_fields=["voided_at"])
    # It comes before all that was given later.
    again = Check(
        created_at=check.created_at,
        expires_at=allowances.lease_end(),
        **{
            name: getattr(check, name)
            for name in (
                "experiment_id", "annotator_id", "kind", "gold_id", "better_on_left", "repeated_id", "number",
                "period", "passed",
            )
        },
    )  # fmt: skip
    if watches:
        again.choice, again.judged_at = Check.SKIPPED, clock.now()
    again.save()
    if watches:
        return None
    return Check.objects.select_related("experiment", *answers.TEXTS_OF_A_CHECK).get(pk=again.pk)


def expected_choice(check: Check) -> str:
    """The correct side: that of the better gold response, or of the earlier answer after the swap."""
    if check.repeated is not None:
        first = check.repeated.choice
        return str(Judgment.Choice.RIGHT if first == Judgment.Choice.LEFT else Judgment.Choice.LEFT)
    return str(Judgment.Choice.LEFT if check.better_on_left else Judgment.Choice.RIGHT)
