"""The answers that people gave, to comparisons and to checks alike: one that did not count would give itself
away. Practice is left out.
"""

import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any, cast

from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from engine.models import Assignment, Comparison, Experiment, Judgment, User
from engine.selectors.counts import count_of, in_experiment, standing
from engine.selectors.pace import times_taken
from engine.selectors.prepared_reads import Given

_PRACTICE = Q(assignment__kind=Assignment.Kind.PRACTICE)


def with_answers_since(
    experiments: QuerySet[Experiment], user: User | Given, since: datetime | Given
) -> QuerySet[Experiment]:
    """The same experiments, each with ``mine_today``: the number of the user's answers that stand and were
    given since a moment.
    """
    # Subqueries and no joins: a plan that was made while the tables were empty would go through all
    # comparisons for each of these judgments.
    compared = Comparison.objects.filter(pk=OuterRef("comparison"))
    checked = Assignment.objects.filter(pk=OuterRef("assignment")).exclude(kind=Assignment.Kind.PRACTICE)
    given_in = Coalesce(Subquery(compared.values("experiment")), Subquery(checked.values("experiment")))
    answered = standing(Judgment.objects.filter(annotator=user, created_at__gte=since))
    return experiments.annotate(
        mine_today=count_of(answered.alias(given_in=given_in).filter(given_in=OuterRef("pk")))
    )


def with_own_answers(experiments: QuerySet[Experiment], user: User) -> QuerySet[Experiment]:
    """The experiments, each with ``mine``: how many answers of this user stand. Counts them all, so not for
    every click.
    """
    answered = standing(Judgment.objects.filter(in_experiment(OuterRef("pk")), annotator=user))
    return experiments.annotate(mine=count_of(answered.exclude(_PRACTICE)))


def own_number(experiment: Experiment, user: User) -> int:
    """The number of this user's answers that stand."""
    counted = with_own_answers(Experiment.objects.filter(pk=experiment.pk).only("pk"), user).get()
    return cast(int, cast(Any, counted).mine)


def _given(experiment_id: int) -> list[QuerySet[Judgment]]:
    """The answers of people to comparisons and those to checks, also those that were taken back.

    Two queries: in one, a database would read the judgments of all experiments.
    """
    given = Judgment.objects.filter(judge=Judgment.Judge.HUMAN, restores__isnull=True)
    return [
        given.filter(comparison__experiment=experiment_id),
        given.filter(assignment__experiment=experiment_id).exclude(_PRACTICE),
    ]


def _own(experiment: Experiment, user: User) -> QuerySet[Judgment]:
    """This user's answers that stand, newest first."""
    mine = standing(Judgment.objects.filter(in_experiment(experiment.pk), annotator=user))
    return mine.exclude(_PRACTICE).order_by(*_NEWEST_FIRST)


# In the order of the index of somebody's judgments: by number, everybody's would be looked through.
_NEWEST_FIRST = ("-created_at", "-pk")


@dataclass(frozen=True)
class Answer:
    """A person's answer to a pair as it was shown. It does not reveal if the pair was a check.

    Attributes
    ----------
    token
        The answer's name on the page.
    """

    token: uuid.UUID
    at: datetime
    prompt: str
    left: str
    right: str
    choice: str
    comment: str


# A repeat shows a pair that came before the annotator's newest so many, so that they have forgotten it.
REPEAT_DISTANCE = 10

_MOST_ANSWERS = 50


def own_answers(experiment: Experiment, user: User) -> list[Answer]:
    """This user's newest answers that stand, newest first.

    If pairs are repeated, the list is so short that no listed pair can be on show.
    """
    most = REPEAT_DISTANCE if experiment.repeat_rate else _MOST_ANSWERS
    texts = ("task", "response_i", "response_j")
    repeated = "assignment__repeated__comparison"
    newest = _own(experiment, user).select_related(
        "assignment__gold", *(f"{at}__{text}" for at in ("comparison", repeated) for text in texts)
    )
    return [_answer(judgment) for judgment in newest[:most]]


def _answer(judgment: Judgment) -> Answer:
    shown = judgment.assignment or Assignment(comparison=judgment.comparison)
    task, (left, right), _ = shown.shown
    return Answer(
        token=judgment.token,
        at=judgment.created_at,
        prompt=task.prompt,
        left=left,
        right=right,
        choice=judgment.choice,
        comment=judgment.comment,
    )


@dataclass(frozen=True)
class OwnSummary:
    """A person's own answers in numbers.

    Attributes
    ----------
    typical_seconds
        The median time of their latest answers, from seeing the pair; ``None`` if no time is known.
    """

    answers: int
    today: int
    typical_seconds: float | None


_SUMMED_UP = 200


def own_summary(experiment: Experiment, user: User) -> OwnSummary | None:
    """This user's answers that stand, in numbers; ``None`` before the first one."""
    latest = list(_own(experiment, user).values_list("shown_at", "created_at")[:_SUMMED_UP])[::-1]
    if not latest:
        return None
    taken = times_taken(latest)
    spans = [each.total_seconds() for each in taken if each is not None]
    return OwnSummary(
        answers=own_number(experiment, user),
        today=judged_today(experiment.pk, user),
        typical_seconds=median(spans) if spans else None,
    )


def own_answer(experiment: Experiment, user: User, token: uuid.UUID) -> Judgment | Assignment | None:
    """The answer that this user gave under a token, or the pair that they skipped under it, unless it was
    taken back.
    """
    skipped = Assignment.objects.filter(
        experiment=experiment, annotator=user, token=token, state=Assignment.State.SKIPPED
    )
    return _own(experiment, user).filter(token=token).first() or skipped.first()


def gave_answer(experiment: Experiment, user: User, token: uuid.UUID) -> bool:
    """True if this user gave an answer under a token, even if it was taken back."""
    # Both are always asked: that the second one is needed would show a check.
    return sum(rows.filter(annotator=user, token=token).count() for rows in _given(experiment.pk)) > 0


def newest_answer(experiment: Experiment, user: User) -> Judgment | None:
    """This user's newest answer that stands."""
    return _own(experiment, user).first()


def newest_token(experiment: Experiment, user: User) -> uuid.UUID | None:
    """The token of that answer, which each page of a pair names."""
    return _own(experiment, user).values_list("token", flat=True).first()


def answers_given(experiment_id: int, user: User) -> int:
    """The number of answers that this user ever gave here, with those taken back."""
    return sum(rows.filter(annotator=user).count() for rows in _given(experiment_id))


def answers_given_by_all(experiment_id: int) -> int:
    """The number of answers that people gave here, even if taken back.

    Taking an answer back changes nothing about it, and neither does which side was chosen.
    """
    return sum(rows.count() for rows in _given(experiment_id))


def answers_by_person(experiment_id: int, moment: datetime) -> list[tuple[User, int]]:
    """The number of answers that each person had given here at a moment, the most first; otherwise as
    :func:`answers_given_by_all`.
    """
    totals: Counter[int] = Counter()
    for given in _given(experiment_id):
        theirs = given.filter(created_at__lt=moment, annotator__isnull=False)
        totals.update(dict(theirs.order_by().values_list("annotator").annotate(n=Count("pk"))))
    people = User.objects.in_bulk(totals.keys())
    return sorted(
        ((people[pk], n) for pk, n in totals.items()), key=lambda each: (-each[1], each[0].get_username())
    )


def practice_shown(experiment_id: int, user: User) -> int:
    """The number of practice pairs that this user was shown, the one on show among them."""
    return Assignment.objects.filter(
        experiment=experiment_id, annotator=user, kind=Assignment.Kind.PRACTICE
    ).count()


def midnight() -> datetime:
    """The moment in which today began, in the installation's time zone."""
    return timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)


def judged_today(experiment_id: int, user: User) -> int:
    """The number of this user's answers today."""
    this = Experiment.objects.filter(pk=experiment_id).only("pk")
    return counted_today(with_answers_since(this, user, midnight()).get())


def counted_today(experiment: Experiment) -> int:
    """The number of answers that :func:`with_answers_since` has given this experiment."""
    return cast(int, cast(Any, experiment).mine_today)
