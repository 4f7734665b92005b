"""Checks: pairs that are shown to learn how well an annotator judges. Which one is due, and its sides."""

from engine.domain import secret_draws
from engine.models import Assignment, Experiment, GoldItem, Judgment, User
from engine.selectors import admission, answers, counts

_SIDES = (Judgment.Choice.LEFT, Judgment.Choice.RIGHT)


def are_used(experiment: Experiment) -> bool:
    """True if annotators of this experiment are shown any checks."""
    return bool(experiment.practice or experiment.gold_rate or experiment.repeat_rate)


def first_ones_due(experiment: Experiment, annotator: User, n_shown: int) -> tuple[Assignment | None, bool]:
    """The next practice pair or admission item, until this annotator has had them all; and whether they may
    have another pair now.

    Nothing that counts is given before all admission items are answered. People learn from the answer to
    practice, so that comes before the next pair too.
    """
    gold = admission.gold_of(experiment, annotator.pk)
    if gold.practice_open:
        return None, False
    kind = None
    if gold.practice < experiment.practice:
        kind = Assignment.Kind.PRACTICE
    elif gold.admission < admission.n_admission(experiment):
        kind = Assignment.Kind.ADMISSION
    check = kind and _gold_check(experiment, annotator, kind, n_shown)
    return check or None, bool(check) or not gold.admission_open


def check_due(experiment: Experiment, annotator: User, n_shown: int) -> Assignment | None:
    """The check to show instead of a comparison, if the annotator's next pair is a check; not saved.

    That depends on the experiment's secret, the annotator, and the number of pairs that they were given, at
    the rates that the experiment sets. Everything is looked up whatever is due, so that the time it takes
    does not tell.
    """
    gold = _gold_check(experiment, annotator, Assignment.Kind.GOLD, n_shown) if experiment.gold_rate else None
    repeat = _repeat(experiment, annotator, n_shown) if experiment.repeat_rate else None
    draw = secret_draws.check_draw(experiment.secret, annotator.pk, n_shown)
    if draw < experiment.gold_rate:
        return gold
    return repeat if draw < experiment.gold_rate + experiment.repeat_rate else None


def _gold_check(experiment: Experiment, annotator: User, kind: str, number: int) -> Assignment | None:
    unseen = GoldItem.objects.filter(experiment=experiment).exclude(assignments__annotator=annotator)
    if (gold := unseen.order_by("pk").values_list("pk", flat=True).first()) is None:
        return None
    left, right = _SIDES
    return Assignment(
        experiment=experiment,
        kind=kind,
        gold_id=gold,
        expected=left if secret_draws.better_on_left(experiment.secret, annotator.pk, gold) else right,
        number=number,
        period=len(experiment.past_secrets),
    )


def _repeat(experiment: Experiment, annotator: User, number: int) -> Assignment | None:
    earlier = counts.standing_judgments(experiment.pk).filter(annotator=annotator).order_by("-pk")
    rows = list(earlier.values_list("pk", "choice", "repeats"))
    candidates = {
        pk: choice
        for pk, choice, repeat in rows[answers.REPEAT_DISTANCE :]
        if repeat is None and choice in _SIDES
    }
    if not candidates:
        return None
    chosen = secret_draws.repeat_choice(experiment.secret, annotator.pk, number, list(candidates))
    left, right = _SIDES
    return Assignment(
        experiment=experiment,
        kind=Assignment.Kind.REPEAT,
        repeated_id=chosen,
        expected=right if candidates[chosen] == left else left,
        number=number,
        period=len(experiment.past_secrets),
    )
