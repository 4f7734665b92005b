"""Hands waiting responses to workers and stores their texts."""

import math
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import NamedTuple

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, F, Q, QuerySet

from engine.domain.replies import Fault, Finish
from engine.domain.texts import digest
from engine.models import Comparison, Experiment, Response, clock
from engine.selectors import counts, offered_models, refused_policies, workers
from engine.selectors.connections import of_the_environment
from engine.selectors.offered_models import Offer
from engine.selectors.spending import overspent_experiments
from engine.services import charges, worker_holds
from engine.services.identical_texts import name_and_hold_back
from engine.services.locks import lock_by_number
from engine.services.showings import let_go

# A response whose requests break the server while it answers others is no answer after this many rounds of
# tries, so far apart.
MOST_FAULTS = 5
_BETWEEN_ROUNDS = timedelta(minutes=2)


@dataclass(frozen=True)
class ClaimedResponses:
    """A batch that one worker is writing. Every later change of its rows names the token."""

    token: uuid.UUID
    responses: Sequence[Response]


@dataclass(frozen=True)
class Written:
    """A finished reply for one response; the fields are those of :class:`~engine.models.Response`."""

    response_id: int
    text: str
    model: str
    prompt_tokens: int | None
    completion_tokens: int | None
    finish_reason: Finish
    latency_seconds: float
    guardrail: str = ""
    leak: str = ""
    thinking: str = ""
    refusal: str = ""
    marks: Sequence[str] = ()
    served_model: str = ""
    connection_id: int | None = None
    cached_tokens: int | None = None
    thinking_tokens: int | None = None
    failure_reason: str = ""
    said: str = ""

    @property
    def digest(self) -> str:
        """The digest that the row has of its text."""
        return digest(self.text)


@dataclass(frozen=True)
class Failed:
    """A response that could not be written this time."""

    response_id: int
    reason: str
    fault: Fault = Fault.WORKER
    said: str = ""


@transaction.atomic
def claim_responses(
    *,
    worker: str,
    limit: int,
    joining: uuid.UUID | None = None,
    offer: Offer | None = None,
    rooms: Mapping[str, int] | None = None,
    stopped: Collection[int] | None = None,
) -> ClaimedResponses:
    """Take up to ``limit`` waiting responses; no other worker gets the same ones.

    Experiments get equal shares, and within one the oldest come first. ``joining`` adds to a claim that is
    being written. ``offer`` limits the responses to those that the worker serves; ``None`` is no limit.

    ``rooms`` is for a worker that asks connections: how many more requests fit each, by its name. A policy
    that needs a connection which is not among them has to wait.

    ``stopped``: :func:`stopped_experiments`, where the caller knows them.

    A response whose batch ended suddenly may have caused that. Such suspects are tried again in smaller
    batches, the last time one by one, and they join no others. So one poisoned response cannot take other
    responses down with it. A worker that asks connections runs no engine that a response could break.
    """
    waiting = Response.objects.filter(state=Response.State.WAITING, refused_at__isnull=True)
    # Those that break the server let others pass.
    waiting = waiting.exclude(faults__gt=0, taken_at__gt=clock.now() - _BETWEEN_ROUNDS)
    if stopped := stopped_experiments() if stopped is None else stopped:
        waiting = waiting.exclude(policy__experiment__in=stopped)
    if rooms is not None:
        ids = _lock_in_rooms(waiting, offer or Offer(Experiment.Backend.REMOTE, ""), rooms)
    else:
        if offer is not None:
            waiting = _served(waiting, offer)
        suspect = None if joining else waiting.order_by("created_at", "id").first()
        if suspect is not None and suspect.crashes:
            last = suspect.attempts >= settings.GENERATION_ATTEMPTS - 1
            same = waiting.filter(crashes=suspect.crashes, attempts=suspect.attempts)
            ids = _lock_oldest(same, 1 if last else max(1, limit // 4**suspect.crashes))
        else:
            unsuspected = waiting.filter(crashes=0)
            ids = _lock_shares(unsuspected, limit, _tally(unsuspected))
    rows = Response.objects.filter(pk__in=ids)
    token = worker_holds.take(
        rows,
        seconds=settings.CLAIM_SECONDS,
        by=worker,
        joining=joining,
        state=Response.State.GENERATING,
        taken_at=clock.now(),
        attempts=F("attempts") + 1,
    )
    claimed = worker_holds.held(rows, token).select_related("task", "policy", "trial")
    return ClaimedResponses(token=token, responses=list(claimed.order_by("created_at", "id")))


def stopped_experiments() -> set[int]:
    """The experiments for which nothing is written: their money is spent, or a policy is refused, and its
    rivals would be paid for in vain.
    """
    return overspent_experiments() | refused_policies.halted_experiments()


def _served(waiting: QuerySet[Response], offer: Offer) -> QuerySet[Response]:
    needs = offered_models.needs(list(waiting.order_by().values_list("policy_id", flat=True).distinct()))
    served = [policy_id for policy_id, need in needs.items() if offer.serves(need)]
    return waiting if len(served) == len(needs) else waiting.filter(policy_id__in=served)


def _lock_in_rooms(waiting: QuerySet[Response], offer: Offer, rooms: Mapping[str, int]) -> list[int]:
    """The oldest of each connection that writes, as many as fit it."""
    writers: dict[str, list[Queued]] = defaultdict(list)
    tally = _tally(waiting)
    needs = offered_models.needs([queued.policy_id for queued in tally])
    usual = "" if all(need.writer for need in needs.values()) else of_the_environment()
    for queued in tally:
        need = needs[queued.policy_id]
        writer = need.writer or str(usual or "")
        if offer.serves(need) and all(rooms.get(name, 0) > 0 for name in {writer, *need.models}):
            writers[writer].append(queued)
    ids: list[int] = []
    for writer, theirs in writers.items():
        of_writer = waiting.filter(policy_id__in=[queued.policy_id for queued in theirs])
        ids += _lock_shares(of_writer, rooms[writer], theirs)
    return ids


def _lock_oldest(waiting: QuerySet[Response], limit: int) -> list[int]:
    oldest = waiting.order_by("created_at", "id").select_for_update(skip_locked=True)
    return list(oldest.values_list("pk", flat=True)[:limit])


class Queued(NamedTuple):
    """Waiting responses of a policy."""

    experiment_id: int
    policy_id: int
    n: int


def _tally(waiting: QuerySet[Response]) -> list[Queued]:
    rows = waiting.values_list("policy__experiment_id", "policy_id").annotate(n=Count("pk")).order_by()
    return [Queued(*row) for row in rows]


def _lock_shares(waiting: QuerySet[Response], limit: int, tally: Iterable[Queued]) -> list[int]:
    """The oldest responses, in equal shares of the experiments; ``tally``: what waits."""
    policies: dict[int, list[int]] = defaultdict(list)
    queued: dict[int, int] = defaultdict(int)
    for experiment_id, policy_id, n in tally:
        policies[experiment_id].append(policy_id)
        queued[experiment_id] += n
    ids: list[int] = []
    for experiment_id, share in fair_shares(queued, limit).items():
        # By policies rather than through a join: the lock is meant for the responses alone.
        ids += _lock_oldest(waiting.filter(policy_id__in=policies[experiment_id]), share)
    if len(ids) < min(limit, sum(queued.values())):
        # Another worker may have taken some of them; the rest stay in the queue.
        ids += _lock_oldest(waiting.exclude(pk__in=ids), limit - len(ids))
    return ids


def fair_shares(queued: Mapping[int, int], limit: int) -> dict[int, int]:
    """Divide ``limit`` places equally; the places that one does not need go to the others."""
    shares: dict[int, int] = {}
    for n_left, key in zip(range(len(queued), 0, -1), sorted(queued, key=queued.__getitem__), strict=True):
        shares[key] = min(queued[key], math.ceil((limit - sum(shares.values())) / n_left))
    return shares


@transaction.atomic
def store_outcomes(
    *, claim: uuid.UUID, outcomes: Iterable[Written | Failed], spent: Iterable[charges.Spent] = ()
) -> set[int]:
    """Store the finished part of a batch and what was ``spent``, and renew the claim on the rest.

    An outcome whose claim was lost meanwhile (it expired and somebody else took the response) is dropped. It
    was paid all the same.

    Returns
    -------
    set of int
        The experiments in which a comparison became ready or was discarded.
    """
    charges.book(spent)
    by_id = {outcome.response_id: outcome for outcome in outcomes}
    comparisons = _lock_comparisons(by_id)
    wanted = _halves(comparisons)
    generating = Response.objects.filter(state=Response.State.GENERATING)
    # Lock all rows of the claim, as it is renewed on those that are not finished.
    lock_by_number(worker_holds.held(generating, claim), no_key=True)
    ours = worker_holds.held(generating.filter(pk__in=by_id), claim)
    rows = list(ours.values_list("pk", "attempts", "trial_id"))
    written = [outcome for pk, _, _ in rows if isinstance(outcome := by_id[pk], Written)]
    _store_written(written)
    for pk, attempts, trial in rows:
        if isinstance(failed := by_id[pk], Failed):
            of_use = pk in wanted or trial is not None
            again = of_use and (
                attempts < settings.GENERATION_ATTEMPTS if failed.fault == Fault.WORKER else True
            )
            refused = again and failed.fault == Fault.SETTINGS
            if refused and trial is not None:
                # Somebody looks at it, and asks again with other settings.
                again = refused = False
            worker_holds.release(
                ours.filter(pk=pk),
                state=Response.State.WAITING if again else Response.State.FAILED,
                failure_reason=failed.reason,
                said=failed.said,
                refused_at=clock.now() if refused else None,
                # The others cost no attempt, as the response is not the reason.
                attempts=F("attempts") - int(again and failed.fault != Fault.WORKER),
                faults=F("faults") + int(failed.fault == Fault.SERVER),
            )
    worker_holds.renew(generating, claim, seconds=settings.CLAIM_SECONDS)
    return _settle(comparisons)


_WRITTEN_FIELDS = ["digest", *(field.name for field in fields(Written) if field.name != "response_id")]


def _store_written(written: Sequence[Written]) -> None:
    """Store texts in locked rows by one prepared statement; the ORM's UPDATEs take ten times as long."""
    constant = worker_holds.NOBODY | {
        "state": Response.State.DONE,
        "done_at": clock.now(),
        "refused_at": None,
    }
    meta = Response._meta
    by_name = {field.attname: field for field in meta.concrete_fields}
    columns = [by_name[name] for name in (*constant, *_WRITTEN_FIELDS)]
    assignments = ", ".join(f"{connection.ops.quote_name(str(field.column))} = %s" for field in columns)
    table, key = map(connection.ops.quote_name, (meta.db_table, str(meta.pk.column)))
    rows = [
        [
            field.get_db_prep_save(constant.get(field.name, getattr(each, field.attname, None)), connection)
            for field in columns
        ]
        + [each.response_id]
        for each in written
    ]
    with connection.cursor() as cursor:
        cursor.executemany(f"UPDATE {table} SET {assignments} WHERE {key} = %s", rows)  # noqa: S608 - names of our own


@transaction.atomic
def release_claim(*, claim: uuid.UUID, reason: str, blameless: bool = False) -> set[int]:
    """Return unfinished responses to the queue; those without attempts left fail.

    ``blameless``: the worker was stopped or the backend is out of order, so the attempt does not count.
    Otherwise any of them may have broken the batch, and all are suspects from now on.
    """
    unfinished = worker_holds.held(Response.objects.filter(state=Response.State.GENERATING), claim)
    return _give_back(unfinished, reason, blameless=blameless)


@transaction.atomic
def expire_claims(*, begun_anew: str = "") -> set[int]:
    """Put back into the queue what dead workers were writing. Returns the ids of the experiments for which
    something is ready or discarded now.

    ``begun_anew``: a worker that has just started. What an earlier process of its name holds is put back
    too, before its deadline.

    Responses of servers are not to blame: no text from the network ends a worker.
    """
    lost = worker_holds.expired(
        Response.objects.filter(state=Response.State.GENERATING), begun_anew=begun_anew
    )
    over_network = workers.of_backend(Experiment.Backend.REMOTE)
    reason = "The worker that was writing it disappeared."
    return _give_back(lost.filter(claimed_by__in=over_network), reason, blameless=True) | _give_back(
        lost.exclude(claimed_by__in=over_network), reason, blameless=False
    )


def _give_back(lost: QuerySet[Response], reason: str, *, blameless: bool) -> set[int]:
    response_ids = list(lost.values_list("pk", flat=True))
    if not response_ids:
        return set()
    comparisons = _lock_comparisons(response_ids)
    # Read again under the locks: a slow worker may have stored some and renewed its claim meanwhile.
    rows = lost.filter(pk__in=response_ids)
    lock_by_number(rows, no_key=True)
    if blameless:
        rows.update(attempts=F("attempts") - 1)
    else:
        rows.update(crashes=F("crashes") + 1)
    unwanted = Q(trial__isnull=True) & ~Q(pk__in=_halves(comparisons))
    spent = rows.filter(Q(attempts__gte=settings.GENERATION_ATTEMPTS) | unwanted)
    worker_holds.release(spent, state=Response.State.FAILED, failure_reason=reason)
    worker_holds.release(rows, state=Response.State.WAITING, failure_reason=reason)
    return _settle(comparisons)


def _planned_with(response_ids: Collection[int]) -> QuerySet[Comparison]:
    return Comparison.objects.filter(
        Q(response_i__in=response_ids) | Q(response_j__in=response_ids), state=Comparison.State.PLANNED
    )


def _lock_comparisons(response_ids: Collection[int]) -> list[Comparison]:
    """Lock the comparisons of these responses, before anything is read. If two workers finish the two
    responses of a comparison, the later one must see both.
    """
    planned = _planned_with(response_ids).select_for_update(no_key=True, of=("self",))
    return list(planned.order_by("pk"))


def _halves(comparisons: Iterable[Comparison]) -> set[int]:
    """The responses that these comparisons wait for. No other one is worth writing again."""
    return {pk for c in comparisons for pk in (c.response_i_id, c.response_j_id)}


def _settle(comparisons: Sequence[Comparison]) -> set[int]:
    responses = Response.objects.only("state", "failure_reason").in_bulk(_halves(comparisons))
    ready = []
    discarded = []
    for comparison in comparisons:
        halves = [responses[comparison.response_i_id], responses[comparison.response_j_id]]
        failed = next((half for half in halves if half.state == Response.State.FAILED), None)
        if failed is not None:
            let_go(comparison, f"A response could not be generated: {failed.failure_reason}")
            discarded.append(comparison)
        elif all(half.state == Response.State.DONE for half in halves):
            ready.append(comparison)
    if discarded:
        _drop_other_halves(discarded)
    if ready:
        ids = [comparison.pk for comparison in ready]
        Comparison.objects.filter(pk__in=ids).update(state=Comparison.State.READY, ready_at=clock.now())
        name_and_hold_back(comparison_ids=ids)
    return {comparison.experiment_id for comparison in (*ready, *discarded)}


def _drop_other_halves(discarded: Sequence[Comparison]) -> None:
    """Write no responses for comparisons that were discarded, unless a planned one reuses them."""
    halves = _halves(discarded)
    unwanted = halves - _halves(_planned_with(halves))
    waiting = Response.objects.filter(pk__in=unwanted, state=Response.State.WAITING)
    lock_by_number(waiting, no_key=True)
    waiting.update(state=Response.State.FAILED, failure_reason="The other response of its comparison failed.")


@transaction.atomic
def settle_shared(*, experiment_id: int) -> None:
    """Settle comparisons that were planned on a response while it was being finished."""
    unsettled = [Response.State.WAITING, Response.State.GENERATING]
    late = (
        Comparison.objects.filter(
            counts.FOR_PEOPLE, experiment_id=experiment_id, state=Comparison.State.PLANNED
        )
        .exclude(response_i__state__in=unsettled, response_j__state__in=unsettled)
        .select_for_update(no_key=True, of=("self",))
        .order_by("pk")
    )
    _settle(list(late))
