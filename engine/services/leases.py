"""Leases: the pair that an annotator is shown, and until when it is theirs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from django.db import transaction
from django.db.models import (
    DateTimeField,
    Exists,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    UUIDField,
    Value,
)
from django.db.models.functions import Least
from django.utils.translation import gettext as _

from engine.domain.errors import UnknownTokenError
from engine.models import (
    Check,
    Comparison,
    Experiment,
    Judgment,
    Lease,
    Membership,
    PairCount,
    User,
    clock,
)
from engine.selectors.blinding import has_or_had
from engine.selectors.compiled import ANNOTATOR, EXPERIMENT, Compiled, Given, GivenList, found_one
from engine.selectors.seen import annotators_left, has_seen, seen_as_often_as_there_are_annotators
from engine.services import allowances
from engine.services.compiled_writes import Write, inserting, saving, write
from engine.services.showings import begin, settle, wait

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations


class HadSince(TypedDict):
    """When the annotator was first shown a comparison that they have handed back."""

    had_since: datetime | None


ReadyComparison: TypeAlias = "WithAnnotations[Comparison, HadSince]"

# The page shows these parts of a comparison.
_TEXTS = ("task", "response_i", "response_j")

_NOW, _TOKEN = Given("now", DateTimeField()), Given("token", UUIDField())
# The leases on the annotator's screen have these tokens.
_ON_SCREEN = Q(token__in=GivenList("besides", UUIDField()))
_HELD_BY_THEM = (
    Lease.objects.filter(
        annotator=ANNOTATOR,
        state=Lease.State.ACTIVE,
        # A lease held for too long waits for the sweep.
        held_until__gt=_NOW,
    )
    # A subquery and no join: a plan from when the tables were empty would go through all comparisons.
    .alias(held_in=Subquery(Comparison.objects.filter(pk=OuterRef("comparison")).values("experiment")))
    .filter(held_in=EXPERIMENT)
)
_HELD = Compiled(lambda: _HELD_BY_THEM.order_by("pk"))


@transaction.atomic(savepoint=False)
def lease_next(*, experiment_id: int, annotator: User, besides: Collection[uuid.UUID] = ()) -> Lease | None:
    """The pair this annotator should look at now, reserved for them; ``None`` where none is ready.

    A pair already shown to them and still open is shown again, as after a reload or the back button. A pair
    that is on their screen already (``besides``) is not. Nobody holds more than ``allowances.MOST_HELD``
    pairs, and nobody holds one for longer than ``allowances.hold()``.
    """
    allowances.locked(experiment_id=experiment_id, annotator=annotator)
    # Mostly they hold nothing else than is on their screen. Where they do, this search finds no pair.
    has_room = len(besides) < allowances.MOST_HELD
    if has_room and (new := _lease_of_another(experiment_id, annotator, besides)) is not None:
        return new
    held = held_leases(experiment_id=experiment_id, annotator=annotator)
    others = [lease for lease in held if lease.token not in besides]
    for lease in others:
        if (renewed := renew(lease)) is not None:
            return renewed
    if len(held) >= allowances.MOST_HELD or (has_room and not others):
        return None
    return _lease_of_another(experiment_id, annotator, besides)


def _lease_of_another(experiment_id: int, annotator: User, besides: Collection[uuid.UUID]) -> Lease | None:
    found = new_lease(experiment_id=experiment_id, annotator=annotator, besides=besides)
    return found if isinstance(found, Lease) else None  # a check only comes where one is asked for


def held_leases(*, experiment_id: int, annotator: User) -> Sequence[Lease]:
    """The pairs that this annotator holds, the first one first; without their texts, as they mostly are on
    the screen already.
    """
    return _HELD(experiment=experiment_id, annotator=annotator.pk, now=clock.now())


def _open() -> QuerySet[Comparison]:
    """The ready pairs that an annotator may be shown now, other than those on their screen."""
    mine = Lease.objects.filter(annotator=ANNOTATOR, comparison=OuterRef("pk"))
    # Others have their turn, for as long as this annotator had theirs.
    turn_over = Q(
        state__in=Lease.HANDED_BACK, held_until__lte=_NOW, held_until__gt=Given("turn_began", DateTimeField())
    )
    over = Q(state__in=[Lease.State.SKIPPED, Lease.State.JUDGED])
    # An answer that was taken back ended its lease, as it ends a check: what counts is the lease after it.
    answered = Q(found_one(Judgment.objects.filter(token=OuterRef("token"))))
    # An imported judgment stands without a lease.
    judged = Judgment.objects.filter(comparison=OuterRef("pk"), annotator=ANNOTATOR, standing=True)
    asks_people = Experiment.objects.filter(
        pk=EXPERIMENT, state=Experiment.State.RUNNING, judge=Experiment.Judge.HUMAN
    )
    not_for_them = (
        Q(found_one(mine.filter(over | (turn_over | _ON_SCREEN) & ~answered)))
        | Q(found_one(judged))
        # Ready-made texts come again: nobody judges the same two of them twice.
        | has_seen(ANNOTATOR, OuterRef("texts"))
    )
    return Comparison.objects.filter(
        ~not_for_them, Exists(asks_people), experiment=EXPERIMENT, state=Comparison.State.READY
    )


# Annotators take turns on a pair of policies, so that no one's session weighs on it alone. A pair that is
# ready is shown all the same where there is no other.
_JUDGED_LAST = found_one(
    PairCount.objects.filter(
        experiment=EXPERIMENT,
        policy_i=OuterRef("policy_i"),
        policy_j=OuterRef("policy_j"),
        last_annotator=ANNOTATOR,
    )
)
# `_open` leaves out what they judged or skipped, so they handed back what is theirs.
_HAD_SINCE = Subquery(
    Lease.objects.filter(annotator=ANNOTATOR, comparison=OuterRef("pk"))
    .order_by("-pk")
    .values("created_at")[:1]
)


def _open_beside_the_screen() -> QuerySet[Comparison]:
    """The pairs of `_open`, or none where the annotator holds one that is not on their screen."""
    return _open().filter(~Exists(_HELD_BY_THEM.exclude(_ON_SCREEN)))


_OF_WHAT_IS_DUE = ("experiment_id", "state", "i_on_left", "outcome", "showing", "least", "most")


def _due(among: QuerySet[Comparison], *order: Any) -> QuerySet[Any]:
    """The first of these in this order that nobody else has, locked, with its texts."""
    due = among.order_by(*order, "pk").select_for_update(skip_locked=True, no_key=True).values("pk")[:1]
    # Texts are looked up of that one alone.
    return (
        Comparison.objects.filter(pk=Subquery(due))
        .annotate(had_since=_HAD_SINCE)
        .select_related(*_TEXTS)
        .only(*_OF_WHAT_IS_DUE, "task__prompt", "task__messages", "response_i__text", "response_j__text")
    )


_HAS_NEXT = Compiled(
    lambda: Experiment.objects.filter(
        Q(found_one(_HELD_BY_THEM)) | Q(found_one(_open())), pk=EXPERIMENT
    ).only("pk")
)
# Two reads and not an order: each stops at the first pair that will do, however many are ready.
_IN_TURN = Compiled(lambda: _due(_open_beside_the_screen().exclude(_JUDGED_LAST)))
_OUT_OF_TURN = Compiled(lambda: _due(_open_beside_the_screen()))
_HANDED_BACK_FIRST = Compiled(
    lambda: _due(
        _open().annotate(had_since=_HAD_SINCE, judged_last=_JUDGED_LAST),
        F("had_since").asc(nulls_last=True),
        "judged_last",
    )
)


def has_next(*, experiment_id: int, annotator: User) -> bool:
    """True if `lease_next` may find a pair for somebody whose screen is empty. Locks nothing, so that those
    who wait are in nobody's way.
    """
    now = clock.now()
    return bool(
        _HAS_NEXT(
            experiment=experiment_id,
            annotator=annotator.pk,
            besides=[],
            now=now,
            turn_began=now - allowances.hold(),
        )
    )


@transaction.atomic(savepoint=False)
def new_lease(
    *,
    experiment_id: int,
    annotator: User,
    besides: Collection[uuid.UUID] = (),
    instead: Callable[[ReadyComparison], Check | None] | None = None,
) -> Lease | Check | None:
    """A ready pair other than ``besides``, reserved for this annotator; ``None`` where none is ready.

    The caller has checked that the annotator may hold another pair. ``instead``: asked about the comparison
    that is due, with ``had_since``: when the annotator was first shown it, where they handed it back. The
    check that it returns takes its place. Without ``instead``, nobody gets a pair who holds one that is not
    among ``besides``.
    """
    now = clock.now()
    found: list[Any] = []
    for due in [_HANDED_BACK_FIRST] if instead else [_IN_TURN, _OUT_OF_TURN]:
        found = found or due(
            experiment=experiment_id,
            annotator=annotator.pk,
            besides=besides,
            now=now,
            turn_began=now - allowances.hold(),
        )
    comparison = found[0] if found else None
    if comparison is None:
        return None
    if instead and (check := instead(comparison)) is not None:
        return check
    resumed = _resumed(comparison, annotator) if comparison.had_since else None
    return resumed or _granted(comparison, annotator)


def _granted(comparison: Comparison, annotator: User) -> Lease:
    """A new lease of a locked comparison."""
    now = clock.now()
    lease = Lease(
        comparison=comparison,
        annotator=annotator,
        created_at=now,
        granted_at=now,
        expires_at=allowances.lease_end(),
        held_until=now + allowances.hold(),
    )
    begun = map(inserting, begin(comparison))
    write(_leased(comparison), inserting(lease), *begun)
    return lease


def _leased(comparison: Comparison) -> Write:
    comparison.state = Comparison.State.LEASED
    return saving(comparison, "state", "showing")


def _resumed(comparison: Comparison, annotator: User) -> Lease | None:
    """The annotator's earlier lease of the pair: an answer that is still on its way finds it."""
    earlier = (
        comparison.leases.filter(annotator=annotator)
        .exclude(token__in=comparison.judgments.values("token"))
        .order_by("-pk")
        .first()
    )
    if earlier is not None:
        now = clock.now()
        earlier.state, earlier.granted_at = Lease.State.ACTIVE, now
        if earlier.held_until <= now:
            earlier.held_until = now + allowances.hold()
        earlier.expires_at = min(allowances.lease_end(), earlier.held_until)
        write(_leased(comparison), saving(earlier, "state", "granted_at", "expires_at", "held_until"))
    return earlier


_THROUGH_WITH_IT = Lease.objects.filter(
    comparison=OuterRef("pk"), state__in=[Lease.State.SKIPPED, Lease.State.JUDGED]
)


@transaction.atomic(savepoint=False)
def lease_again(*, comparison_id: int, annotator: User) -> Lease | None:
    """Reserve a comparison for the annotator who took it back; ``None`` where somebody else holds it now, or
    is to judge it.
    """
    comparison = (
        Comparison.objects.select_related(*_TEXTS)
        .select_for_update(no_key=True, of=("self",))
        .annotate(through_with_it=Exists(_THROUGH_WITH_IT.filter(annotator=annotator)))
        .get(pk=comparison_id)
    )
    if comparison.state != Comparison.State.READY or comparison.through_with_it:
        return None
    return _granted(comparison, annotator)


@transaction.atomic
def return_leases(*, annotator: User, tokens: Collection[uuid.UUID] | None = None) -> set[int]:
    """Hand back what an annotator was looking at when they left: these pairs, or all of theirs.

    Returns
    -------
    set of int
        The experiments concerned.
    """
    held = Lease.objects.filter(annotator=annotator, state=Lease.State.ACTIVE)
    if tokens is not None:
        held = held.filter(token__in=tokens)
    return _end_leases(held, Lease.State.RETURNED, skip_locked=False)


@transaction.atomic
def renew_leases(*, annotator: User, tokens: Collection[uuid.UUID]) -> int:
    """Keep pairs reserved while their page is open; returns how many still are this annotator's."""
    theirs = Lease.objects.filter(annotator=annotator, token__in=tokens)
    # In the order in which the sweep ends leases: otherwise each could hold what the other waits for.
    in_order = theirs.order_by("comparison_id").select_for_update(no_key=True).values("pk")
    return _renewed(Lease.objects.filter(pk__in=in_order))


def renew(lease: Lease) -> Lease | None:
    """A held pair, reserved for longer, with its texts; ``None`` if it was handed back meanwhile."""
    if not _renewed(Lease.objects.filter(pk=lease.pk)):
        return None
    return Lease.objects.select_related(*(f"comparison__{half}" for half in _TEXTS)).get(pk=lease.pk)


def _renewed(leases: QuerySet[Lease]) -> int:
    """Renew those that are active and may still be held; returns how many."""
    ours = leases.filter(state=Lease.State.ACTIVE, held_until__gt=clock.now())
    return ours.update(expires_at=Least(Value(allowances.lease_end()), F("held_until")))


@transaction.atomic
def skip(*, experiment_id: int, token: uuid.UUID, annotator: User) -> None:
    """Let a shown pair go. Skipping twice is skipping once.

    Nobody else gets it: the answer of somebody else alone would count then. It ends without this person's
    answer, which counts against every claim.

    Raises
    ------
    UnknownTokenError
    """
    lease = locked_lease(experiment_id, token, annotator)
    comparison = lease.comparison
    if lease.state != Lease.State.ACTIVE:
        return
    lease.state = Lease.State.SKIPPED
    lease.save(update_fields=["state"])
    comparison.skips += 1
    settle(comparison, reason=f"Skipped by {comparison.skips} annotator(s).", free=True)


@transaction.atomic(savepoint=False)
def discard_unwanted(*, experiment_id: int) -> int:
    """Discard what some annotators skipped, judged under another number or took back, and no other one is
    left to see; returns how many comparisons.

    Those who were left when it was skipped may have judged it since, or may annotate no longer. A comparison
    that waits for nobody would be in flight for ever, and the budget would never be reached.
    """
    if not (doubtful := [each.pk for each in _DOUBTFUL(experiment=experiment_id)]):
        return 0
    unwanted = (
        Comparison.objects.filter(pk__in=doubtful, state=Comparison.State.READY)
        .exclude(Exists(annotators_left(experiment_id, OuterRef("pk"), OuterRef("texts"))))
        .select_for_update(no_key=True, skip_locked=True, of=("self",))
    )
    discarded = list(unwanted.select_related("experiment"))
    for comparison in discarded:
        if comparison.skips:
            reason = f"Skipped by {comparison.skips} annotator(s); no other one is left."
        elif comparison.texts:
            reason = "Every annotator has judged these two texts."
        else:
            reason = "The answer was taken back by somebody who may see policies; no other annotator is left."
        if comparison.showing:
            settle(comparison, reason=reason, over=True)
        else:
            # It was shown to nobody, whatever its outcome would have been.
            comparison.state, comparison.discard_reason = Comparison.State.DISCARDED, reason
            comparison.save(update_fields=["state", "discard_reason"])
    return len(discarded)


def _doubtful() -> QuerySet[Comparison]:
    """The comparisons that wait and that perhaps nobody is left to see. Mostly there are none.

    Each round of planning asks this, so it looks at what waits alone, however long the history is.
    """
    stands = Judgment.objects.filter(token=OuterRef("token"), standing=True)
    # An answer that was taken back hands its lease back too, unless its annotator is kept from the pair.
    taken_back = Lease.objects.filter(~Exists(stands), comparison=OuterRef("pk"), state=Lease.State.JUDGED)
    seen_by_all = seen_as_often_as_there_are_annotators(EXPERIMENT, OuterRef("texts"))
    return Comparison.objects.filter(
        Q(skips__gt=0) | Q(found_one(taken_back)) | Q(seen_by_all),
        experiment=EXPERIMENT,
        state=Comparison.State.READY,
    ).only("pk")


# By a plan from when the tables were empty, it would read all leases for each comparison that waits.
_DOUBTFUL = Compiled(_doubtful, keeps_plan=False)


@transaction.atomic
def expire_leases() -> set[int]:
    """Hand back the pairs of annotators who went away. Returns the experiments concerned.

    A comparison that somebody holds is left to the next call: an undo holds one while it waits for another.
    """
    expired = Lease.objects.filter(state=Lease.State.ACTIVE, expires_at__lt=clock.now())
    return _end_leases(expired, Lease.State.EXPIRED, skip_locked=True)


def _end_leases(leases: QuerySet[Lease], state: str, *, skip_locked: bool) -> set[int]:
    comparison_ids = list(leases.values_list("comparison_id", flat=True))
    touched = set()
    for comparison in (
        Comparison.objects.filter(pk__in=comparison_ids)
        .select_for_update(no_key=True, skip_locked=skip_locked)
        .order_by("pk")
    ):
        # Looked at again under the lock: the click may have come in the meantime.
        if not leases.filter(comparison=comparison).update(state=state):
            continue
        wait(comparison)
        comparison.save(update_fields=["state", "discard_reason"])
        touched.add(comparison.experiment_id)
    return touched


class Watching(TypedDict):
    """The right of a lease's annotator, now or earlier, to see who wrote what."""

    annotator_watches: bool


# The fields that an answer or a skip uses.
_OF_A_COMPARISON = (
    "i_on_left", "policy_i", "policy_j", "texts", "state", "skips", "outcome", "discard_reason", "judged_at",
    "plan", "showing", "least", "most",
)  # fmt: skip
_OF_ITS_EXPERIMENT = (
    "judge", "allow_tie", "allow_both_bad", "overlap", "overlap_rule", "practice", "gold_rate",
    "repeat_rate",
)  # fmt: skip


def _shown_under_token() -> QuerySet[Any]:
    """The lease of a token that an annotator was given, with its comparison, both locked."""
    return (
        Lease.objects.filter(token=_TOKEN, annotator=ANNOTATOR)
        .select_related("comparison__experiment")
        .annotate(
            annotator_watches=has_or_had(OuterRef("comparison__experiment"), ANNOTATOR, Membership.WATCHING)
        )
        # The comparison first, as the sweep does. The lease too: only a row that is locked is read as it is
        # after the wait. While this waited for the comparison, the lease may have ended.
        .select_for_update(no_key=True, of=("comparison", "self"))
        # Every click runs this query, and an experiment has many columns, some of them long texts.
        .only(
            "state",
            "granted_at",
            *(f"comparison__{field}" for field in _OF_A_COMPARISON),
            *(f"comparison__experiment__{field}" for field in _OF_ITS_EXPERIMENT),
        )
    )


_SHOWN_UNDER_TOKEN = Compiled(_shown_under_token)


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
