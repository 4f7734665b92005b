"""Leases: the pairs that an annotator was given. A pair stays theirs until they answer or skip it, and goes
to nobody else: somebody who could exchange a pair would choose which outcomes count.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery, UUIDField
from django.utils.translation import gettext as _

from engine.domain.errors import UnknownTokenError
from engine.models import (
    Allowance,
    Check,
    Comparison,
    Experiment,
    Flag,
    Judgment,
    Lease,
    Membership,
    PairCount,
    ShowingEvent,
    User,
    clock,
)
from engine.selectors import counts
from engine.selectors.blinding import has_or_had
from engine.selectors.prepared import ANNOTATOR, EXPERIMENT, Given, Prepared
from engine.selectors.seen import annotators_left, found_one, has_seen, seen_as_often_as_there_are_annotators
from engine.services import allowances
from engine.services.showings import begin, settle

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

# The page shows these parts of a comparison.
TEXTS = ("task", "response_i", "response_j")

# States of a comparison that somebody may answer.
_UNDECIDED = (Comparison.State.READY, Comparison.State.LEASED)


def _held() -> QuerySet[Lease]:
    # A subquery and no join: a plan from when the tables were empty would go through all comparisons.
    undecided = Comparison.objects.filter(pk=OuterRef("comparison"), state__in=_UNDECIDED)
    theirs = Lease.objects.filter(annotator=ANNOTATOR, state=Lease.State.OPEN)
    return theirs.alias(held_in=Subquery(undecided.values("experiment"))).filter(held_in=EXPERIMENT)


_HELD = Prepared(lambda: _held().order_by("created_at", "pk"))


def held(*, experiment_id: int, annotator: User) -> list[Lease]:
    """The pairs of this annotator that are open, in the order in which they were given; without texts."""
    return _HELD(experiment=experiment_id, annotator=annotator.pk)


def come_for(held: Sequence[Lease]) -> list[Lease]:
    """These leases as far as they are still open, with their texts. Their annotator is here from now on."""
    if not held:
        return []
    theirs = Lease.objects.filter(pk__in=[lease.pk for lease in held], state=Lease.State.OPEN)
    if any(lease.expires_at <= clock.now() for lease in held):
        theirs.update(**allowances.arrival("granted_at"))
    return list(theirs.select_related(*(f"comparison__{half}" for half in TEXTS)))


def stay(*, experiment_id: int, annotator: User) -> None:
    """Note that the annotator is still here."""
    _open_in(annotator, experiment_id).update(expires_at=allowances.lease_end())


def leave(*, annotator: User, experiment_id: int | None) -> None:
    """Note that the annotator left this experiment, or all of them. Their pairs wait for them."""
    _open_in(annotator, experiment_id).filter(expires_at__gt=clock.now()).update(expires_at=clock.now())


def _open_in(annotator: User, experiment_id: int | None) -> QuerySet[Lease]:
    """The open leases of somebody, locked by number: a beat and another tab's could each hold what the other
    waits for.
    """
    theirs = Lease.objects.filter(annotator=annotator, state=Lease.State.OPEN)
    if experiment_id is not None:
        theirs = theirs.filter(comparison__experiment=experiment_id)
    in_order = theirs.order_by("pk").select_for_update(no_key=True, of=("self",))
    return Lease.objects.filter(pk__in=in_order.values("pk"))


def _open() -> QuerySet[Comparison]:
    """The ready pairs that an annotator may be given."""
    # An imported judgment stands without a lease.
    judged = Judgment.objects.filter(comparison=OuterRef("pk"), annotator=ANNOTATOR, standing=True)
    given = Lease.objects.filter(comparison=OuterRef("pk"), annotator=ANNOTATOR)
    not_for_them = (
        Q(found_one(given))
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


_OF_WHAT_IS_DUE = ("experiment_id", "state", "i_on_left", "outcome", "showing", "least", "most")


def _due(among: QuerySet[Comparison]) -> QuerySet[Any]:
    """The first of these that nobody else is being given, locked, with its texts."""
    due = among.order_by("pk").select_for_update(skip_locked=True, no_key=True).values("pk")[:1]
    # Texts are looked up of that one alone.
    return (
        Comparison.objects.filter(pk=Subquery(due))
        .select_related(*TEXTS)
        .only(
            *_OF_WHAT_IS_DUE,
            "task__prompt",
            "task__messages",
            *(f"response_{half}__{part}" for half in "ij" for part in ("text", "thinking")),
        )
    )


_HAS_NEXT = Prepared(
    lambda: Experiment.objects.filter(Q(found_one(_held())) | Q(found_one(_open())), pk=EXPERIMENT).only("pk")
)
# Two reads and not an order: each stops at the first pair that will do, however many are ready.
_IN_TURN = Prepared(lambda: _due(_open().exclude(_JUDGED_LAST)))
_OUT_OF_TURN = Prepared(lambda: _due(_open()))


def has_next(*, experiment_id: int, annotator: User) -> bool:
    """True if there is a pair for somebody whose screen is empty, or may be. Locks nothing, so that those who
    wait are in nobody's way.
    """
    return bool(_HAS_NEXT(experiment=experiment_id, annotator=annotator.pk))


def new_lease(
    *,
    experiment: Experiment,
    annotator: User,
    allowance: Allowance,
    instead: Callable[[], Check | None] | None = None,
) -> Lease | Check | None:
    """A ready pair, given to this annotator in the caller's transaction; ``None`` where none is ready.

    The caller has checked that the annotator may have another pair, and locked their ``allowance``, which
    counts it. ``instead``: asked where a comparison is due; the check that it returns takes its place, and is
    not counted here.
    """
    for due in (_IN_TURN, _OUT_OF_TURN):
        if found := due(experiment=experiment.pk, annotator=annotator.pk):
            return (instead and instead()) or _granted(experiment, found[0], annotator, allowance)
    return None


def _granted(experiment: Experiment, comparison: Comparison, annotator: User, allowance: Allowance) -> Lease:
    """A lease of a locked comparison. It is ready for others as long as fewer people have it than are to
    judge it.
    """
    now = clock.now()
    if counts.needed(experiment) == 1 or given(comparison) + 1 >= counts.needed(experiment):
        comparison.state = Comparison.State.LEASED
    begun = begin(comparison)
    comparison.save(update_fields=["state", "showing"])
    ShowingEvent.objects.bulk_create(begun)
    allowance.shown += 1
    allowance.save(update_fields=["shown"])
    return Lease.objects.create(
        comparison=comparison,
        annotator=annotator,
        created_at=now,
        granted_at=now,
        expires_at=allowances.lease_end(),
    )


def given(comparison: Comparison) -> int:
    """The number of judges who were given a comparison: people, and a language model that voted."""
    votes = comparison.judgments.filter(annotator__isnull=True, restores__isnull=True)
    return comparison.leases.count() + votes.count()


@transaction.atomic
def skip(*, experiment_id: int, token: uuid.UUID, annotator: User, reason: str, comment: str) -> bool:
    """End a pair for its annotator without an answer; ``False`` if it was over for them already.

    Nobody else gets it in their place: the answer of somebody else alone would count then. What is lacking
    counts against every claim.

    Raises
    ------
    UnknownTokenError
    """
    lease = locked_lease(experiment_id, token, annotator)
    if lease.state != Lease.State.OPEN:
        return False
    Flag.objects.create(comparison=lease.comparison, annotator=annotator, reason=reason, comment=comment)
    end_without_answer(lease)
    return True


def end_without_answer(lease: Lease) -> None:
    """Skip a locked lease of a locked comparison, in the caller's transaction."""
    comparison = lease.comparison
    lease.state = Lease.State.SKIPPED
    lease.save(update_fields=["state"])
    comparison.skips += 1
    settle(comparison, reason=f"Skipped by {comparison.skips} annotator(s).")


def lease_again(*, lease: Lease) -> Lease:
    """Reopen the locked lease of somebody who took their answer back, under another token; with its texts.

    It comes before all that they were given later.
    """
    lease.token, lease.state = uuid.uuid4(), Lease.State.OPEN
    lease.granted_at, lease.expires_at = clock.now(), allowances.lease_end()
    lease.save(update_fields=["token", "state", "granted_at", "expires_at"])
    return Lease.objects.select_related(*(f"comparison__{half}" for half in TEXTS)).get(pk=lease.pk)


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
        ~Exists(Lease.objects.filter(comparison=OuterRef("pk"))),
        Q(seen_by_all),
        experiment=experiment_id,
        state=Comparison.State.READY,
        texts__gt="",
    ).values_list("pk", flat=True)


def has_ended(experiment: Experiment, pair: Lease | Check) -> bool:
    """True if the experiment concluded after the annotator of this open pair had gone."""
    return experiment.state == Experiment.State.CONCLUDED and pair.expires_at <= clock.now()


class Watching(TypedDict):
    """The right of a lease's annotator, now or earlier, to see who wrote what."""

    annotator_watches: bool


# The fields that an answer or a skip uses.
_OF_A_COMPARISON = (
    "i_on_left", "policy_i", "policy_j", "texts", "state", "skips", "outcome", "discard_reason", "judged_at",
    "plan", "showing", "least", "most",
)  # fmt: skip
_OF_ITS_EXPERIMENT = (
    "judge", "allow_tie", "allow_both_bad", "overlap", "overlap_rule", "practice", "gold_rate", "repeat_rate",
    "state",
)  # fmt: skip


def _shown_under_token() -> QuerySet[Any]:
    """The lease of a token that an annotator was given, with its comparison, both locked."""
    return (
        Lease.objects.filter(token=Given("token", UUIDField()), annotator=ANNOTATOR)
        .select_related("comparison__experiment")
        .annotate(
            annotator_watches=has_or_had(OuterRef("comparison__experiment"), ANNOTATOR, Membership.WATCHING)
        )
        # The lease too: only a row that is locked is read as it is after the wait. While this waited for the
        # comparison, the lease may have ended.
        .select_for_update(no_key=True, of=("comparison", "self"))
        # Every click runs this query, and an experiment has many columns, some of them long texts.
        .only(
            "state",
            "granted_at",
            "expires_at",
            *(f"comparison__{field}" for field in _OF_A_COMPARISON),
            *(f"comparison__experiment__{field}" for field in _OF_ITS_EXPERIMENT),
        )
    )


_SHOWN_UNDER_TOKEN = Prepared(_shown_under_token)


def locked_lease(experiment_id: int, token: uuid.UUID, annotator: User) -> WithAnnotations[Lease, Watching]:
    """The lease that an annotator was given under a token, and its comparison, locked.

    Raises
    ------
    UnknownTokenError
    """
    found = _SHOWN_UNDER_TOKEN(token=token, annotator=annotator.pk)
    # The statement does not ask for it: a plan from when the tables were empty would go through all of the
    # experiment's comparisons.
    if not found or found[0].comparison.experiment_id != experiment_id:
        raise UnknownTokenError(
            _("This pair was not shown to you. Go back to your experiments and open it again.")
        )
    lease: WithAnnotations[Lease, Watching] = found[0]
    return lease
