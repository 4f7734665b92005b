"""The answers that people gave, checks among them."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any, cast

from django.db.models import Count, Exists, OuterRef, QuerySet, Subquery
from django.utils import timezone

from engine.models import AuditEntry, Check, Comparison, Experiment, Judgment, User
from engine.selectors.counts import count_of, standing, standing_judgments
from engine.selectors.pace import times_taken
from engine.selectors.prepared import Given

# A check may also have been skipped.
_CHOICES = Judgment.Choice.values


def with_answers_since(
    experiments: QuerySet[Experiment], user: User | Given, since: datetime | Given
) -> QuerySet[Experiment]:
    """The same experiments, each with ``mine_today``: the number of the user's answers that stand and were
    given since a moment.
    """
    # A subquery and no join: a plan that was made while the tables were empty would go through all
    # comparisons for each of these judgments.
    judged_in = Subquery(Comparison.objects.filter(pk=OuterRef("comparison")).values("experiment"))
    judged = (
        standing(Judgment.objects.filter(annotator=user, created_at__gte=since))
        .alias(judged_in=judged_in)
        .filter(judged_in=OuterRef("pk"))
    )
    checked = _answered_checks(user).filter(experiment=OuterRef("pk"), judged_at__gte=since)
    return experiments.annotate(mine_today=count_of(judged) + count_of(checked))


def with_own_answers(experiments: QuerySet[Experiment], user: User) -> QuerySet[Experiment]:
    """The experiments, each with ``mine``: how many answers of this user stand. Counts them all, so not for
    every click.

    Checks count too: one that did not would give itself away.
    """
    judged = Judgment.objects.filter(comparison__experiment=OuterRef("pk"), annotator=user, standing=True)
    checked = _answered_checks(user).filter(experiment=OuterRef("pk"))
    return experiments.annotate(mine=count_of(judged) + count_of(checked))


def _answered_checks(user: User | Given) -> QuerySet[Check]:
    """This user's answers to checks that stand, practice aside.

    Where somebody has voided all judgments of the user, the answers to checks from before are left out too.
    Alone they would show which pairs were checks. They still say how well the user judges.
    """
    answered = Check.objects.filter(annotator=user, choice__in=_CHOICES, voided_at__isnull=True)
    all_voided = AuditEntry.objects.filter(
        experiment=OuterRef("experiment"),
        about=user,
        action=AuditEntry.Action.VOID,
        at__gte=OuterRef("judged_at"),
    )
    return answered.exclude(kind=Check.Kind.PRACTICE).exclude(Exists(all_voided))


# In the order of the index of somebody's judgments: by number, everybody's would be looked through.
_NEWEST_FIRST = ("-created_at", "-pk")


def own_judgments(experiment: Experiment, user: User) -> QuerySet[Judgment]:
    """This user's judgments that stand, newest first."""
    return (
        standing_judgments(experiment.pk)
        .filter(annotator=user)
        .select_related("comparison__task", "comparison__response_i", "comparison__response_j")
        .order_by(*_NEWEST_FIRST)
    )


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


TEXTS_OF_A_CHECK = (
    "gold", "repeated__comparison__task", "repeated__comparison__response_i",
    "repeated__comparison__response_j",
)  # fmt: skip
# A repeat shows a pair that came before the annotator's newest so many, so that they have forgotten it.
REPEAT_DISTANCE = 10

_MOST_ANSWERS = 50


def own_answers(experiment: Experiment, user: User) -> list[Answer]:
    """This user's newest answers that stand, newest first.

    If pairs are repeated, the list is so short that no listed pair can be on show.
    """
    most = REPEAT_DISTANCE if experiment.repeat_rate else _MOST_ANSWERS
    checks = (
        _answered_checks(user)
        .filter(experiment=experiment)
        .select_related(*TEXTS_OF_A_CHECK)
        .order_by("-judged_at")
    )
    answers = [_of_judgment(each) for each in own_judgments(experiment, user)[:most]]
    answers += [_of_check(each) for each in checks[:most]]
    return sorted(answers, key=lambda answer: answer.at, reverse=True)[:most]


def _of_judgment(judgment: Judgment) -> Answer:
    comparison = judgment.comparison
    return Answer(
        token=judgment.token,
        at=judgment.created_at,
        prompt=comparison.task.prompt,
        left=comparison.left.text,
        right=comparison.right.text,
        choice=judgment.choice,
        comment=judgment.comment,
    )


def _of_check(check: Check) -> Answer:
    task, left, right = check.shown
    return Answer(
        token=check.token,
        at=cast(datetime, check.judged_at),  # it was answered
        prompt=task.prompt,
        left=left,
        right=right,
        choice=check.choice,
        comment=check.comment,
    )


@dataclass(frozen=True)
class OwnSummary:
    """A person's own answers in numbers, checks among them.

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
    """This user's answers that stand, in numbers; ``None`` before the first one.

    Checks count in each figure: one that did not would give itself away.
    """
    judged = own_judgments(experiment, user).values_list("created_at", "shown_at")
    checked = _answered_checks(user).filter(experiment=experiment).order_by("-judged_at")
    times: list[tuple[Any, ...]] = [
        *judged[:_SUMMED_UP],
        *checked.values_list("judged_at", "shown_at")[:_SUMMED_UP],
    ]
    if not times:
        return None
    latest = sorted(times, key=lambda each: each[0])[-_SUMMED_UP:]
    taken = times_taken((shown_at, answered_at) for answered_at, shown_at in latest)
    spans = [each.total_seconds() for each in taken if each is not None]
    [counted] = with_own_answers(Experiment.objects.filter(pk=experiment.pk), user)
    return OwnSummary(
        answers=cast(int, cast(Any, counted).mine),
        today=judged_today(experiment.pk, user),
        typical_seconds=median(spans) if spans else None,
    )


def own_answer(experiment: Experiment, user: User, token: uuid.UUID) -> Judgment | Check | None:
    """The answer that this user gave under a token, unless it was taken back."""
    judgment = own_judgments(experiment, user).filter(token=token).first()
    # Asked in either case: one statement more would tell a check.
    check = _answered_checks(user).filter(experiment=experiment, token=token).first()
    return judgment or check


def gave_answer(experiment: Experiment, user: User, token: uuid.UUID) -> bool:
    """True if this user gave an answer under a token, even if it was taken back. Checks are answers too."""
    judged = Judgment.objects.filter(comparison__experiment=experiment, annotator=user, token=token)
    checks = _checks_ever_answered(experiment.pk).filter(annotator=user, token=token)
    return judged.values("pk").union(checks.values("pk"), all=True).exists()


def newest_answer(experiment: Experiment, user: User) -> Judgment | Check | None:
    """This user's newest answer that stands, to a comparison or to a check."""
    token = newest_token(experiment, user)
    return own_answer(experiment, user, token) if token else None


def newest_token(experiment: Experiment, user: User) -> uuid.UUID | None:
    """The token of that answer, which each page of a pair names."""
    judged = standing_judgments(experiment.pk).filter(annotator=user).order_by(*_NEWEST_FIRST)
    checked = _answered_checks(user).filter(experiment=experiment).order_by("-judged_at")
    newest = [
        *judged.values_list("created_at", "token")[:1],
        *checked.values_list("judged_at", "token")[:1],
    ]
    return max(newest)[1] if newest else None


def answers_given(experiment_id: int, user: User) -> int:
    """The number of answers that this user ever gave here, with those taken back. Checks are answers too."""
    judged = Judgment.objects.filter(
        comparison__experiment_id=experiment_id, annotator=user, restores__isnull=True
    )
    checks = _checks_ever_answered(experiment_id).filter(annotator=user)
    return judged.values("pk").union(checks.values("pk"), all=True).count()


def answers_before(experiment_id: int, moment: datetime) -> int:
    """The number of answers that people had given here at a moment, even if taken back. Checks count too.

    Taking an answer back changes nothing about it, and neither does which side was chosen.
    """
    judged, checks = _given_before(experiment_id, moment)
    return judged.values("pk").union(checks.values("pk"), all=True).count()


def answers_by_person(experiment_id: int, moment: datetime) -> list[tuple[User, int]]:
    """The number of answers that each person had given here at a moment, the most first; otherwise as
    :func:`answers_before`.
    """
    judged, checks = _given_before(experiment_id, moment)
    totals: Counter[int] = Counter()
    for rows in (judged.filter(annotator__isnull=False), checks):
        totals.update(dict(rows.values_list("annotator").annotate(n=Count("pk")).order_by()))
    people = User.objects.in_bulk(totals.keys())
    return sorted(
        ((people[pk], n) for pk, n in totals.items()), key=lambda each: (-each[1], each[0].get_username())
    )


def _given_before(experiment_id: int, moment: datetime) -> tuple[QuerySet[Judgment], QuerySet[Check]]:
    judged = Judgment.objects.filter(
        comparison__experiment_id=experiment_id,
        judge=Judgment.Judge.HUMAN,
        restores__isnull=True,
        created_at__lt=moment,
    )
    return judged, _checks_ever_answered(experiment_id).filter(judged_at__lt=moment)


def _checks_ever_answered(experiment_id: int) -> QuerySet[Check]:
    answered = Check.objects.filter(experiment_id=experiment_id, choice__in=_CHOICES)
    return answered.exclude(kind=Check.Kind.PRACTICE)


def practice_shown(experiment_id: int, user: User) -> int:
    """The number of practice pairs that this user was shown, the one on show among them."""
    return Check.objects.filter(experiment_id=experiment_id, annotator=user, kind=Check.Kind.PRACTICE).count()


def midnight() -> datetime:
    """The moment in which today began, in the installation's time zone."""
    return timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)


def judged_today(experiment_id: int, user: User) -> int:
    """The number of this user's answers today. Checks count too: one that did not would give itself away."""
    this = Experiment.objects.filter(pk=experiment_id).only("pk")
    return counted_today(with_answers_since(this, user, midnight()).get())


def counted_today(experiment: Experiment) -> int:
    """The number of answers that :func:`with_answers_since` has given this experiment."""
    return cast(int, cast(Any, experiment).mine_today)
