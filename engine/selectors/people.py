"""Rights of people, and their answers."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any, cast

from django.db.models import (
    BigAutoField,
    CharField,
    Count,
    DateTimeField,
    Exists,
    F,
    OuterRef,
    Prefetch,
    Q,
    QuerySet,
    Subquery,
    Value,
)
from django.db.models.functions import Coalesce, Concat
from django.utils import timezone

from engine.domain import limits
from engine.models import (
    AuditEntry,
    Check,
    Comparison,
    Experiment,
    Invitation,
    Judgment,
    Lease,
    Membership,
    Notification,
    ReportLink,
    User,
    clock,
)
from engine.selectors.compiled import Compiled, Given
from engine.selectors.counts import standing, standing_judgments

_Role = Membership.Role
# States of a lease whose annotator has finished the pair, or has it on the screen.
SEEN = (Lease.State.ACTIVE, Lease.State.JUDGED, Lease.State.SKIPPED)
# The roles whose rights a role includes. Only annotators judge: an owner who begins to judge becomes one.
_INCLUDED = {
    _Role.ANNOTATOR: {_Role.ANNOTATOR},
    _Role.VIEWER: {_Role.VIEWER},
    _Role.EDITOR: {_Role.VIEWER, _Role.EDITOR},
    _Role.OWNER: {_Role.VIEWER, _Role.EDITOR, _Role.OWNER},
}
_RUNNING = (_Role.EDITOR, _Role.OWNER)


def held_roles(user: User, experiment_id: int) -> set[str]:
    """The roles whose rights this user has in an experiment now."""
    if not user.is_active:
        return set()
    if user.is_superuser:
        return set(_Role)
    held = Membership.objects.filter(user=user, experiment_id=experiment_id).values_list("role", flat=True)
    return {included for role in held for included in _INCLUDED[_Role(role)]}


def roles_to_give(user: User, experiment_id: int) -> set[str]:
    """The roles to which this user may invite others: no invitation gives more rights than its maker has."""
    held = held_roles(user, experiment_id)
    if _Role.OWNER in held:
        return set(_Role)
    return {role for role in _Role if role != _Role.OWNER} if _Role.EDITOR in held else set()


def has_any_right(user: User) -> bool:
    """True if this user may do anything at all: has a role somewhere, or may make experiments."""
    return user.is_active and (
        user.is_superuser or user.memberships.exists() or user.has_perm("engine.add_experiment")
    )


def with_a_role(user: User) -> QuerySet[Experiment]:
    """Experiments in which this user has a role; for superusers, all."""
    return _with_one_of(user, _Role).order_by("-pk")


def open_invitations(experiment: Experiment, roles: Collection[str]) -> QuerySet[Invitation]:
    """Invitations to these roles that still let people in, newest first."""
    return (
        experiment.invitations.filter(
            role__in=roles, ended_at__isnull=True, expires_at__gte=clock.now(), uses__lt=F("most_uses")
        )
        .select_related("created_by")
        .prefetch_related(Prefetch("notifications", Notification.objects.order_by("-pk")))
        .order_by("-pk")
    )


def open_report_links() -> QuerySet[ReportLink]:
    """Links to reports that nobody has ended and that have not expired, newest first."""
    return (
        ReportLink.objects.filter(ended_at__isnull=True)
        .exclude(expires_at__lt=clock.now())
        .select_related("created_by")
        .order_by("-pk")
    )


def annotators_left(
    experiment_id: int, comparison: int | OuterRef, texts: str | OuterRef
) -> QuerySet[Membership]:
    """The annotators who may still be shown a comparison: they have neither judged nor skipped it, nor
    another one of the same two texts.

    ``comparison``, ``texts``: its number and the name of its texts, or an ``OuterRef`` to each, to use this
    as a subquery.
    """
    through_with_it = Lease.objects.filter(
        comparison=_outer(comparison),
        annotator=OuterRef("user"),
        state__in=[Lease.State.SKIPPED, Lease.State.JUDGED],
    )
    judged = Judgment.objects.filter(comparison=_outer(comparison), annotator=OuterRef("user"), standing=True)
    return annotators(experiment_id).filter(
        ~Exists(through_with_it), ~Exists(judged), ~has_seen(OuterRef("user"), _outer(texts))
    )


def seen_by_as_many_as_annotate(experiment_id: int, names: Collection[str]) -> set[str]:
    """Those of these names of two texts that perhaps every annotator has seen: as many people have as
    annotate the experiment, some of whom may have left.
    """
    if not names:
        return set()
    leases = Lease.objects.filter(comparison__texts__in=names, state__in=SEEN)
    judgments = Judgment.objects.filter(comparison__texts__in=names, standing=True, annotator__isnull=False)
    seen: Counter[str] = Counter()
    for answers in (leases, judgments):
        people = answers.values("comparison__texts").annotate(n=Count("annotator", distinct=True))
        seen.update(dict(people.values_list("comparison__texts", "n")))
    n_annotators = annotators(experiment_id).count()
    return {name for name in names if seen[name] >= max(n_annotators, 1)}


def has_seen(annotator: User | OuterRef | Given, texts: str | OuterRef) -> Q:
    """True if somebody has judged or skipped these two texts, or has them on the screen; by their name."""
    of_these = {"annotator": annotator, "comparison__texts": texts, "comparison__texts__gt": ""}
    return Q(Exists(Lease.objects.filter(state__in=SEEN, **of_these))) | Q(
        Exists(Judgment.objects.filter(standing=True, **of_these))
    )


def annotators(experiment_id: int) -> QuerySet[Membership]:
    """The memberships of the people who may judge."""
    return Membership.objects.filter(
        experiment_id=experiment_id, role=Membership.Role.ANNOTATOR, user__is_active=True
    )


def _outer(reference: Any) -> Any:
    """The same reference one query further in."""
    return OuterRef(reference) if isinstance(reference, OuterRef) else reference


def experiments_to_label(user: User) -> QuerySet[Experiment]:
    """The started experiments in which this user is an annotator."""
    return _judged_by(user, Membership.Role.ANNOTATOR)


_USER, _EXPERIMENT = Given("user", BigAutoField()), Given("experiment", BigAutoField())


def _with_answers_since(experiments: QuerySet[Experiment]) -> QuerySet[Experiment]:
    """The same, each with ``mine_today``: how many answers of the user since a moment stand there."""
    since = Given("since", DateTimeField())
    # A subquery and no join: a plan that was made while the tables were empty would go through all
    # comparisons for each of these judgments.
    judged_in = Subquery(Comparison.objects.filter(pk=OuterRef("comparison")).values("experiment"))
    judged = (
        standing(Judgment.objects.filter(annotator=_USER, created_at__gte=since))
        .alias(judged_in=judged_in)
        .filter(judged_in=OuterRef("pk"))
    )
    checked = _answered_checks(_USER).filter(experiment=OuterRef("pk"), judged_at__gte=since)
    return experiments.annotate(mine_today=_count_of(judged) + _count_of(checked))


_TO_LABEL = Compiled(
    lambda: _with_answers_since(_judged_by(_USER, Membership.Role.ANNOTATOR).filter(pk=_EXPERIMENT))
)


def experiment_to_label(user: User, experiment_id: int) -> Experiment | None:
    """The experiment, if it is among :func:`experiments_to_label`, with ``mine_today``, as each
    click asks for :func:`judged_today`.
    """
    return _found(_TO_LABEL(user=user.pk, experiment=experiment_id, since=_midnight()))


_TO_JOIN = Compiled(
    lambda: _judged_by(_USER, _Role.OWNER).exclude(_holds(_USER, [_Role.ANNOTATOR])).filter(pk=_EXPERIMENT)
)


def experiment_to_join(user: User, experiment_id: int) -> Experiment | None:
    """The experiment, if it has started and this user owns it and could begin to annotate it."""
    return _found(_TO_JOIN(user=user.pk, experiment=experiment_id))


def _judged_by(user: User | Given, role: str) -> QuerySet[Experiment]:
    judged = Experiment.objects.filter(_holds(user, [role]), judge=Experiment.Judge.HUMAN)
    return judged.exclude(state=Experiment.State.DRAFT)


def with_own_answers(experiments: QuerySet[Experiment], user: User) -> QuerySet[Experiment]:
    """The same, each with ``mine``: how many answers of this user stand. Counts them all, so not for every
    click.

    Checks count too: one that did not would give itself away.
    """
    judged = Judgment.objects.filter(comparison__experiment=OuterRef("pk"), annotator=user, standing=True)
    checked = _answered_checks(user).filter(experiment=OuterRef("pk"))
    return experiments.annotate(mine=_count_of(judged) + _count_of(checked))


def _count_of(rows: QuerySet[Any]) -> Coalesce:
    counted = rows.order_by().values(one=Value(1)).annotate(n=Count("pk")).values("n")
    return Coalesce(Subquery(counted), 0)


def _answered_checks(user: User | Given) -> QuerySet[Check]:
    """This user's answers to checks that stand, practice aside.

    Where somebody has voided all judgments of the user, the answers to checks from before are left out too:
    alone they would show which pairs were checks. They still say how well the user judges.
    """
    answered = Check.objects.filter(annotator=user, passed__isnull=False, voided_at__isnull=True)
    all_voided = AuditEntry.objects.filter(
        experiment=OuterRef("experiment"),
        about=user,
        action=AuditEntry.Action.VOID,
        at__gte=OuterRef("judged_at"),
    )
    return answered.exclude(kind=Check.Kind.PRACTICE).exclude(Exists(all_voided))


def experiments_to_watch(user: User) -> QuerySet[Experiment]:
    """Experiments whose dashboard this user may see."""
    return _with_one_of(user, Membership.WATCHING)


def tagged(experiments: QuerySet[Experiment], tag: str) -> QuerySet[Experiment]:
    """Those of the experiments that have this tag; none where it is empty, or no text that can be stored."""
    if not tag or limits.text_fault(tag, "The tag"):
        return experiments.none()
    listed = Concat(Value(", "), "tags", Value(", "))
    return experiments.alias(listed=listed).filter(listed__contains=f", {tag}, ")


def tags_of(experiments: QuerySet[Experiment]) -> list[str]:
    """All tags of these experiments, by name."""
    stored = experiments.exclude(tags="").order_by().values_list("tags", flat=True).distinct()
    return sorted({tag for tags in stored for tag in tags.split(", ")})


def experiments_to_run(user: User) -> QuerySet[Experiment]:
    """Experiments that this user may start, pause and stop."""
    return _with_one_of(user, _RUNNING)


def experiment_to_watch(user: User, experiment_id: int) -> Experiment | None:
    """The experiment, if it is among :func:`experiments_to_watch`."""
    return _if_one_of(user, experiment_id, Membership.WATCHING)


def experiment_to_run(user: User, experiment_id: int) -> Experiment | None:
    """The experiment, if it is among :func:`experiments_to_run`."""
    return _if_one_of(user, experiment_id, _RUNNING)


def experiment_to_own(user: User, experiment_id: int) -> Experiment | None:
    """The experiment, if it is this user's to give away and to delete."""
    return _if_one_of(user, experiment_id, [_Role.OWNER])


_SEEN = Compiled(
    lambda: (
        Experiment.objects.filter(_holds(_USER, Membership.WATCHING))
        | _judged_by(_USER, Membership.Role.ANNOTATOR)
    ).filter(pk=_EXPERIMENT)
)


def may_see(user: User, experiment_id: int) -> bool:
    """True if the experiment is among :func:`experiments_to_watch` or :func:`experiments_to_label`."""
    if user.is_superuser:
        return experiment_to_watch(user, experiment_id) is not None
    return bool(_SEEN(user=user.pk, experiment=experiment_id))


def _with_one_of(user: User, roles: Collection[str]) -> QuerySet[Experiment]:
    """Experiments in which this user has one of these roles; for superusers, all."""
    return Experiment.objects.all() if user.is_superuser else Experiment.objects.filter(_holds(user, roles))


_OF_ANYBODY = Compiled(lambda: Experiment.objects.filter(pk=_EXPERIMENT))
_WITH_ONE_OF = Compiled(
    lambda roles: Experiment.objects.filter(
        _holds(_USER, Given("roles", CharField()).each(roles)), pk=_EXPERIMENT
    )
)


def _if_one_of(user: User, experiment_id: int, roles: Collection[str]) -> Experiment | None:
    """The experiment, if it is among :func:`_with_one_of`, which every page asks of one experiment."""
    if user.is_superuser:
        return _found(_OF_ANYBODY(experiment=experiment_id))
    return _found(_WITH_ONE_OF(user=user.pk, experiment=experiment_id, roles=list(roles)))


def _found(experiments: list[Experiment]) -> Experiment | None:
    return experiments[0] if experiments else None


def _holds(user: User | Given, roles: Collection[str | Given]) -> Exists:
    """True of an experiment in which a user has one of these roles. No join: two roles give no second row."""
    return Exists(Membership.objects.filter(experiment=OuterRef("pk"), user=user, role__in=roles))


def own_judgments(experiment: Experiment, user: User) -> QuerySet[Judgment]:
    """This user's judgments that stand, newest first."""
    return (
        standing_judgments(experiment.pk)
        .filter(annotator=user)
        .select_related("comparison__task", "comparison__response_i", "comparison__response_j")
        .order_by("-pk")
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
        .select_related(
            "gold",
            "repeated__comparison__task",
            "repeated__comparison__response_i",
            "repeated__comparison__response_j",
        )
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
    latest = sorted(times, key=lambda each: each[0], reverse=True)[:_SUMMED_UP]
    spans = [(end - start).total_seconds() for end, start in latest if start is not None]
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


def newest_answer(experiment: Experiment, user: User) -> Judgment | Check | None:
    """This user's newest answer that stands, to a comparison or to a check."""
    judgment = own_judgments(experiment, user).first()
    check = _answered_checks(user).filter(experiment=experiment).order_by("-judged_at").first()
    if judgment is None or check is None:
        return judgment or check
    return check if check.judged_at and check.judged_at > judgment.created_at else judgment


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
    answered = Check.objects.filter(experiment_id=experiment_id, passed__isnull=False)
    return answered.exclude(kind=Check.Kind.PRACTICE)


def practice_shown(experiment_id: int, user: User) -> int:
    """The number of practice pairs that this user was shown, the one on show among them."""
    return Check.objects.filter(experiment_id=experiment_id, annotator=user, kind=Check.Kind.PRACTICE).count()


_WITH_ANSWERS_SINCE = Compiled(
    lambda: _with_answers_since(Experiment.objects.filter(pk=_EXPERIMENT).only("pk"))
)


def _midnight() -> datetime:
    return timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)


def judged_today(experiment_id: int, user: User) -> int:
    """The number of this user's answers today. Checks count too: one that did not would give itself away."""
    [experiment] = _WITH_ANSWERS_SINCE(user=user.pk, experiment=experiment_id, since=_midnight())
    return cast(int, cast(Any, experiment).mine_today)
