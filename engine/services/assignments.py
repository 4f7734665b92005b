"""Assignments: the pairs that annotators were given. A pair stays its annotator's until they answer or skip
it, and goes to nobody else: somebody who could exchange a pair would choose which outcomes count.

Except for practice, an annotator must not be able to tell a check from a comparison: all that happens to a
pair here happens to both alike.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery, UUIDField
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _

from engine.domain.errors import UnknownTokenError
from engine.models import (
    Allowance,
    Assignment,
    Comparison,
    Experiment,
    Flag,
    Judgment,
    Membership,
    PairCount,
    User,
    clock,
)
from engine.selectors import counts, pools
from engine.selectors.blinding import has_or_had
from engine.selectors.prepared_reads import ANNOTATOR, EXPERIMENT, Given, Prepared
from engine.selectors.seen_texts import (
    annotators_left,
    found_one,
    has_seen,
    has_seen_of_task,
    has_seen_unequally,
    seen_as_often_as_there_are_annotators,
)
from engine.services import checks, undos_and_skips

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

# The page shows these parts of a comparison.
TEXTS = ("task", "response_i", "response_j")
_SHOWN = ("gold", *(f"{at}comparison__{half}" for at in ("", "repeated__") for half in TEXTS))


def _held() -> QuerySet[Assignment]:
    return Assignment.objects.filter(
        experiment=EXPERIMENT, annotator=ANNOTATOR, state=Assignment.State.OPEN
    ).order_by("created_at", "pk")


_HELD = Prepared(_held)


def held(*, experiment_id: int, annotator: User) -> list[Assignment]:
    """The pairs of this annotator that are open, in the order in which they were given; without texts."""
    return _HELD(experiment=experiment_id, annotator=annotator.pk)


@transaction.atomic(savepoint=False)
def come_for(held: Sequence[Assignment]) -> list[Assignment]:
    """These as far as they are still open, with their texts. Their annotator is here from now on."""
    if not held:
        return []
    theirs = Assignment.objects.filter(pk__in=[each.pk for each in held], state=Assignment.State.OPEN)
    if any(each.expires_at <= clock.now() for each in held):
        _by_number(theirs).update(**undos_and_skips.arrival())
    return list(theirs.select_related(*_SHOWN))


@transaction.atomic(savepoint=False)
def stay(*, experiment_id: int, annotator: User) -> None:
    """Note that the annotator is still here. Says nothing of their pairs: a check must not differ."""
    _open_of(annotator, experiment_id).update(expires_at=undos_and_skips.presence_end())


@transaction.atomic(savepoint=False)
def leave(*, annotator: User, experiment_id: int | None = None) -> None:
    """Note that an annotator left an experiment, or all. Their pairs wait for them, and nobody waits for
    these.
    """
    theirs = _open_of(annotator, experiment_id).filter(expires_at__gt=clock.now())
    theirs.update(expires_at=clock.now())


def _open_of(annotator: User, experiment_id: int | None) -> QuerySet[Assignment]:
    """The open pairs of somebody, locked by number."""
    theirs = Assignment.objects.filter(annotator=annotator, state=Assignment.State.OPEN)
    if experiment_id is not None:
        theirs = theirs.filter(experiment=experiment_id)
    return _by_number(theirs)


def _by_number(rows: QuerySet[Assignment]) -> QuerySet[Assignment]:
    """These, locked by number: a beat and another tab's could each hold what the other waits for."""
    return Assignment.objects.filter(pk__in=rows.order_by("pk").select_for_update(no_key=True).values("pk"))


def end_left(*, experiment: Experiment) -> None:
    """End the open pairs of an experiment that has concluded, as far as their annotators are not here."""
    left = Assignment.objects.filter(
        experiment=experiment, state=Assignment.State.OPEN, expires_at__lte=clock.now()
    )
    # Practice says nothing of anybody, so it waits for a reopening.
    in_order = left.exclude(kind=Assignment.Kind.PRACTICE).order_by("pk").select_for_update(no_key=True)
    Assignment.objects.filter(pk__in=in_order.values("pk")).update(state=Assignment.State.LOST, settled=True)


def _open() -> QuerySet[Comparison]:
    """The ready pairs that an annotator may be given."""
    # An imported judgment stands without an assignment.
    judged = Judgment.objects.filter(comparison=OuterRef("pk"), annotator=ANNOTATOR, standing=True)
    given = Assignment.objects.filter(comparison=OuterRef("pk"), annotator=ANNOTATOR)
    # Whoever asks for another pair before they answer a check is not to find what it stands before: a
    # comparison would have been taken.
    behind = Assignment.objects.filter(
        in_place_of=OuterRef("pk"), annotator=ANNOTATOR, state=Assignment.State.OPEN
    )
    not_for_them = (
        Q(found_one(given))
        | Q(found_one(behind))
        | Q(found_one(judged))
        # Ready-made texts come again: nobody judges the same two of them twice.
        | has_seen(ANNOTATOR, OuterRef("texts"))
    )
    return Comparison.objects.filter(
        ~not_for_them, Exists(_ASKS_PEOPLE), experiment=EXPERIMENT, state=Comparison.State.READY
    )


_ASKS_PEOPLE = Experiment.objects.filter(
    pk=EXPERIMENT,
    state=Experiment.State.RUNNING,
    judge=Experiment.Judge.HUMAN,
    closing_since__isnull=True,
)
# Annotators take turns on a pair of policies, so that no one's session weighs on it alone. A pair that is
# ready is still shown if there is no other.
_JUDGED_LAST = found_one(
    PairCount.objects.filter(
        experiment=EXPERIMENT,
        policy_i=OuterRef("policy_i"),
        policy_j=OuterRef("policy_j"),
        last_annotator=ANNOTATOR,
    )
)


def _first(among: QuerySet[Comparison]) -> Subquery:
    """The first of these that nobody else is being given, locked."""
    return Subquery(among.order_by("pk").select_for_update(skip_locked=True, no_key=True).values("pk")[:1])


def _due(*kinds: Q) -> QuerySet[Comparison]:
    """The first pair that is due, of one of these kinds; an earlier one counts more."""
    # One statement, whatever is ready, and not an order: each part stops at the first pair that will do, and
    # the next is run only where it finds none.
    open_ones = [_open().filter(each) for each in kinds]
    parts = [_first(part) for each in open_ones for part in (each.exclude(_JUDGED_LAST), each)]
    return Comparison.objects.filter(pk=Coalesce(*parts)).only("state")


# Of a finite pool: first those of tasks that are new to the annotator, then those whose texts they saw
# equally often, then the others where the experiment allows for them.
_NEW_TASK, _EQUALLY_SEEN = ~has_seen_of_task(EXPERIMENT, ANNOTATOR), ~has_seen_unequally(ANNOTATOR)
_DUE = Prepared(lambda: _due(Q()))
_DUE_OF_POOL = Prepared(lambda: _due(_NEW_TASK, _EQUALLY_SEEN, Q()))
_DUE_EQUALLY_SEEN = Prepared(lambda: _due(_NEW_TASK, _EQUALLY_SEEN))


def _has_next(kind: Q) -> QuerySet[Experiment]:
    found = Q(found_one(_held())) | Q(found_one(_open().filter(kind)))
    return Experiment.objects.filter(found, pk=EXPERIMENT).only("pk")


_HAS_NEXT = Prepared(lambda: _has_next(Q()))
_HAS_NEXT_EQUALLY_SEEN = Prepared(lambda: _has_next(_EQUALLY_SEEN))


def has_next(*, experiment: Experiment, annotator: User) -> bool:
    """True if there is a pair for somebody whose screen is empty, or may be. Locks nothing, so that those who
    wait are in nobody's way.
    """
    read = _HAS_NEXT_EQUALLY_SEEN if experiment.equally_seen_only else _HAS_NEXT
    return bool(read(experiment=experiment.pk, annotator=annotator.pk))


def reserve(*, experiment: Experiment, annotator: User, allowance: Allowance) -> Assignment | None:
    """A new pair, given to this annotator in the caller's transaction; ``None`` where none is ready.

    The caller has checked that the annotator may have another pair, and locked their ``allowance``, which
    counts it.
    """
    new, may_count = None, True
    if checks.are_used(experiment):
        if experiment.state != Experiment.State.RUNNING:
            return None
        new, may_count = checks.first_ones_due(experiment, annotator, allowance.shown)
    if new is None and may_count:
        new = _next_one(experiment, annotator, allowance.shown)
    if new is None:
        return None
    new.annotator, new.expires_at = annotator, undos_and_skips.presence_end()
    new.save()
    allowance.shown += 1
    allowance.save(update_fields=["shown"])
    return new


def _next_one(experiment: Experiment, annotator: User, n_shown: int) -> Assignment | None:
    """The next comparison, or the check that takes its place; not saved.

    A check comes only where a comparison is ready: else a pair that was waited for would be no check. Both
    take the same statements.
    """
    due = _DUE
    if pools.is_finite(experiment):
        due = _DUE_EQUALLY_SEEN if experiment.equally_seen_only else _DUE_OF_POOL
    if not (found := due(experiment=experiment.pk, annotator=annotator.pk)):
        return None
    comparison: Comparison = found[0]
    check = checks.check_due(experiment, annotator, n_shown)
    # It is ready for others as long as fewer people have it than are to judge it.
    needed = counts.needed(experiment)
    taken = needed == 1 or given(comparison) + 1 >= needed
    if taken and check is None:
        comparison.state = Comparison.State.ASSIGNED
    comparison.save(update_fields=["state"])
    if check is not None:
        check.in_place_of = comparison
        return check
    return Assignment(experiment=experiment, comparison=comparison)


def given(comparison: Comparison) -> int:
    """The number of judges who were given a comparison: people, and a language model that voted."""
    votes = comparison.judgments.filter(annotator__isnull=True, restores__isnull=True)
    return comparison.assignments.count() + votes.count()


def skip(*, experiment_id: int, token: uuid.UUID, annotator: User, reason: str, comment: str) -> bool:
    """End a pair for its annotator without an answer, in the caller's transaction; ``False`` if it was over
    for them already.

    Nobody else gets it in their place: the answer of somebody else alone would count then. What is lacking
    counts against every claim.

    Raises
    ------
    UnknownTokenError
    """
    assignment = locked(experiment_id, token, annotator)
    if assignment.state != Assignment.State.OPEN or has_ended(assignment):
        return False
    Flag.objects.create(
        comparison_id=assignment.comparison_id,
        assignment=None if assignment.comparison_id else assignment,
        annotator=annotator,
        reason=reason,
        comment=comment,
    )
    end_without_answer(assignment)
    return True


def end_without_answer(assignment: Assignment) -> None:
    """Skip a locked assignment, in the caller's transaction."""
    assignment.state, assignment.settled = Assignment.State.SKIPPED, False
    assignment.save(update_fields=["state", "settled"])


def open_again(assignment: Assignment) -> Assignment:
    """Reopen the locked pair of somebody who took their answer back, under another token; with its texts.

    It comes before all that they were given later.
    """
    assignment.token, assignment.state, assignment.settled = uuid.uuid4(), Assignment.State.OPEN, False
    assignment.granted_at, assignment.expires_at = clock.now(), undos_and_skips.presence_end()
    assignment.save(update_fields=["token", "state", "settled", "granted_at", "expires_at"])
    return Assignment.objects.select_related(*_SHOWN).get(pk=assignment.pk)


@transaction.atomic(savepoint=False)
def discard_unwanted(*, experiment_id: int) -> int:
    """Discard what nobody was given, and every annotator has judged or skipped under another number; returns
    how many comparisons.

    A comparison that waits for nobody would be in flight for ever, and the budget would never be reached.
    """
    if not (doubtful := list(_doubtful(experiment_id))):
        return 0
    unwanted = (
        Comparison.objects.filter(pk__in=doubtful, state=Comparison.State.READY)
        .exclude(Exists(annotators_left(experiment_id, OuterRef("texts"))))
        .select_for_update(no_key=True, skip_locked=True, of=("self",))
    )
    discarded = list(unwanted)
    for comparison in discarded:
        comparison.state = Comparison.State.DISCARDED
        comparison.discard_reason = "Every annotator has judged these two texts."
        comparison.save(update_fields=["state", "discard_reason"])
    return len(discarded)


def _doubtful(experiment_id: int) -> QuerySet[Comparison, int]:
    """The keys of comparisons that perhaps nobody is left to see. Mostly there are none.

    Each round of planning asks this, so it looks at what waits alone, however long the history is.
    """
    seen_by_all = seen_as_often_as_there_are_annotators(experiment_id, OuterRef("texts"))
    return Comparison.objects.filter(
        ~Exists(Assignment.objects.filter(comparison=OuterRef("pk"))),
        Q(seen_by_all),
        experiment=experiment_id,
        state=Comparison.State.READY,
        texts__gt="",
    ).values_list("pk", flat=True)


def has_ended(assignment: Assignment) -> bool:
    """True if the experiment concluded after the annotator of this pair had gone."""
    return (
        assignment.experiment.state == Experiment.State.CONCLUDED and assignment.expires_at <= clock.now()
    ) or assignment.state == Assignment.State.LOST


class Watching(TypedDict):
    """The right of an assignment's annotator, now or earlier, to see who wrote what."""

    annotator_watches: bool


# The fields that an answer or a skip uses.
_OF_ITS_EXPERIMENT = ("allow_tie", "allow_both_bad", "state")


def _shown_under_token() -> QuerySet[Any]:
    return (
        Assignment.objects.filter(token=Given("token", UUIDField()), annotator=ANNOTATOR)
        .select_related("experiment", "comparison")
        .annotate(annotator_watches=has_or_had(OuterRef("experiment"), ANNOTATOR, Membership.WATCHING))
        .select_for_update(no_key=True, of=("self",))
        # Every click runs this query, and an experiment has many columns, some of them long texts.
        .only(
            "annotator",
            "kind",
            "expected",
            "passed",
            "state",
            "granted_at",
            "expires_at",
            "comparison__i_on_left",
            *(f"experiment__{field}" for field in _OF_ITS_EXPERIMENT),
        )
    )


_SHOWN_UNDER_TOKEN = Prepared(_shown_under_token)


def locked(experiment_id: int, token: uuid.UUID, annotator: User) -> WithAnnotations[Assignment, Watching]:
    """The pair that an annotator was given under a token, locked.

    Raises
    ------
    UnknownTokenError
    """
    found = _SHOWN_UNDER_TOKEN(token=token, annotator=annotator.pk)
    # The statement does not ask for it: a plan from when the tables were empty would go through all of the
    # experiment's assignments.
    if not found or found[0].experiment_id != experiment_id:
        raise UnknownTokenError(
            _("This pair was not shown to you. Go back to your experiments and open it again.")
        )
    assignment: WithAnnotations[Assignment, Watching] = found[0]
    return assignment
