"""Moves experiments through their states, and into the archive. The log records each change."""

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from engine.core import StopReason
from engine.domain import claim_sentences
from engine.domain.errors import WrongStateError
from engine.domain.profiles import Provider
from engine.models import (
    Assignment,
    AuditEntry,
    Comparison,
    Connection,
    Experiment,
    Improvement,
    Policy,
    Response,
    User,
    clock,
)
from engine.selectors import offered_models
from engine.selectors.designs import Observed
from engine.selectors.findings import finding_of, finding_on
from engine.selectors.gates import gate_of, has_forge
from engine.selectors.record import record_of
from engine.selectors.snapshots import latest_snapshot
from engine.services.assignments import end_left
from engine.services.audit import record
from engine.services.conclusions import keep_picked
from engine.services.evidence import catch_up, settle
from engine.services.locks import lock_by_number, locked_experiment
from engine.services.notifications import announce_conclusion
from engine.services.showings import let_go, settle_assignments
from engine.services.trials import drop_tried

_STOPPABLE = {Experiment.State.RUNNING, Experiment.State.PAUSED}


@transaction.atomic
def start(*, experiment_id: int, by: User | None = None) -> Experiment:
    """Draft or paused → running.

    Raises
    ------
    WrongStateError
        It runs, has concluded, is archived, has no tasks yet, or names a connection that it may not use.
    """
    experiment = locked_experiment(experiment_id)
    if experiment.state not in {Experiment.State.DRAFT, Experiment.State.PAUSED}:
        raise WrongStateError(
            f"Only a draft or paused experiment can be started; this one is {experiment.state}."
        )
    refuse_archived(experiment)
    if not experiment.tasks.exists():
        raise WrongStateError("This draft has no tasks yet. Add tasks on its page Setup before the start.")
    check_connections(experiment)
    resumed = experiment.state == Experiment.State.PAUSED
    drop_tried(experiment)
    experiment.state = Experiment.State.RUNNING
    experiment.started_at = experiment.started_at or clock.now()
    experiment.save(update_fields=["state", "started_at"])
    action = AuditEntry.Action.RESUME if resumed else AuditEntry.Action.START
    record(experiment=experiment, by=by, action=action)
    return experiment


def check_connections(experiment: Experiment) -> None:
    """Refuse connections that the experiment names and may not use."""
    named = offered_models.models_named(experiment)
    if experiment.llm_judge != Experiment.LLMJudge.OFF:
        named.add(experiment.judge_model)
    asked = Connection.objects.filter(name__in=named).exclude(provider=Provider.WORKER)
    if barred := asked.exclude(pk__in=Connection.objects.usable_by(experiment).values("pk")).first():
        raise WrongStateError(
            f"This experiment may not use the connection {barred.name}: it is retired, or nobody lends it. "
            "Its owner lends it on the page Models. Or choose another one."
        )


@transaction.atomic
def pause(*, experiment_id: int, by: User | None = None) -> Experiment:
    """Running → paused: nothing new is planned or shown; pairs on a screen may still be judged.

    Raises
    ------
    WrongStateError
        It does not run.
    """
    experiment = locked_experiment(experiment_id)
    if experiment.state != Experiment.State.RUNNING:
        raise WrongStateError(f"Only a running experiment can be paused; this one is {experiment.state}.")
    experiment.state = Experiment.State.PAUSED
    experiment.save(update_fields=["state"])
    record(experiment=experiment, by=by, action=AuditEntry.Action.PAUSE)
    return experiment


def stop(*, experiment_id: int, by: User | None = None) -> Experiment:
    """End the experiment by hand, without a certified winner.

    Raises
    ------
    WrongStateError
        It neither runs nor is paused, or is in the archive.
    """
    # Before the lock: clicks wait for it.
    catch_up(experiment_id=experiment_id)
    return _stop(experiment_id, by)


@transaction.atomic
def _stop(experiment_id: int, by: User | None) -> Experiment:
    experiment = locked_experiment(experiment_id)
    check_may_stop(experiment)
    # Nothing is replayed after the conclusion.
    settle(experiment=experiment)
    conclude(experiment=experiment, conclusion=StopReason.STOPPED, winner=None, by=by)
    return experiment


def stop_on(*, experiment_id: int, claim: str, by: User | None) -> Experiment:
    """End the experiment on a claim that holds; the policy that the claim names is the winner.

    Raises
    ------
    WrongStateError
        It neither runs nor is paused, is in the archive, or the claim does not hold.
    """
    catch_up(experiment_id=experiment_id)
    return _stop_on(experiment_id, claim, by)


@transaction.atomic
def _stop_on(experiment_id: int, claim: str, by: User | None) -> Experiment:
    experiment = locked_experiment(experiment_id)
    check_may_stop(experiment)
    observed = settle(experiment=experiment)
    design = observed.design
    state = next((each for each in design.decision.claims if each.claim == claim), None)
    if state is None or not state.holds or state.policy is None:
        missing = "This experiment does not watch that claim."
        if state is not None:
            missing = claim_sentences.sentence(design, state)
        raise WrongStateError(
            f"The experiment cannot stop on this claim, because it does not hold by itself. {missing}"
        )
    keep_picked(experiment=experiment, observed=observed, state=state)
    conclude(
        experiment=experiment,
        conclusion=StopReason.CERTIFIED,
        winner=experiment.policies.get(index=state.policy),
        claim=claim,
        finding=finding_on(experiment, observed, state),
        by=by,
    )
    return experiment


def may_stop(experiment: Experiment) -> bool:
    """True if the experiment can be ended by hand."""
    return experiment.archived_at is None and experiment.state in _STOPPABLE


def check_may_stop(experiment: Experiment) -> None:
    """Refuse to end an experiment that cannot be ended by hand.

    Raises
    ------
    WrongStateError
        It neither runs nor is paused, is in the archive, or an improvement is running.
    """
    if experiment.state not in _STOPPABLE:
        raise WrongStateError(
            f"Only a running or paused experiment can be stopped; this one is {experiment.state}."
        )
    refuse_archived(experiment)
    if experiment.improvements.filter(state=Improvement.State.OPEN).exists():
        raise WrongStateError("An improvement is running. Stop improving first.")


def conclude_as(*, experiment: Experiment, observed: Observed) -> None:
    """Close a locked experiment whose design has stopped, with that design's result.

    Raises
    ------
    ValueError
        The design has not stopped.
    """
    decision = observed.design.decision
    if decision.reason is None:
        raise ValueError("The design has not stopped, so there is nothing to conclude.")
    best = decision.best if decision.reason == StopReason.CERTIFIED else None
    conclude(
        experiment=experiment,
        conclusion=decision.reason,
        winner=None if best is None else experiment.policies.get(index=best),
        claim="" if best is None or decision.claim is None else decision.claim.value,
        finding=finding_of(experiment, observed),
    )


def conclude(
    *,
    experiment: Experiment,
    conclusion: StopReason,
    winner: Policy | None,
    claim: str = "",
    finding: str = "",
    by: User | None = None,
) -> None:
    """Close a locked experiment: nothing waits any longer, and pairs on a screen may be finished.

    ``claim``: the one that certifies the winner. ``finding``: the claim in words. ``by``: the person who
    stops it, on that claim or without any.
    """
    experiment.state = Experiment.State.CONCLUDED
    experiment.conclusion = conclusion
    experiment.winner = winner
    experiment.certified_claim = claim
    experiment.finding = finding
    experiment.concluded_at = clock.now()
    experiment.save(
        update_fields=["state", "conclusion", "winner", "certified_claim", "finding", "concluded_at"]
    )
    end_leftovers(experiment=experiment)
    # Take the number from the snapshot, as every page does: a late click is counted, but the finding does not
    # rest on it.
    latest = latest_snapshot(experiment)
    comparisons = 0 if latest is None else latest.comparisons
    record_now = record_of(experiment)
    action = AuditEntry.Action.CONCLUDE
    if conclusion == StopReason.STOPPED:
        action = AuditEntry.Action.STOP
    elif by is not None:
        action = AuditEntry.Action.STOP_ON
    record(
        experiment=experiment,
        by=by,
        action=action,
        details={
            "comparisons": comparisons,
            "conclusion": experiment.get_conclusion_display(),
            "claim": experiment.get_certified_claim_display(),
            "finding": finding,
            # An export can be held against it: engine/domain/judgment_record.py.
            "judgments": record_now.judgments,
            "digest": record_now.digest,
        },
    )
    announce_conclusion(experiment=experiment)


def discard_leftovers() -> None:
    """Discard comparisons of concluded experiments that nobody is looking at."""
    concluded = Comparison.objects.filter(
        experiment__state=Experiment.State.CONCLUDED, state__in=Comparison.PENDING
    )
    for experiment_id in concluded.values_list("experiment_id", flat=True).order_by("experiment").distinct():
        with transaction.atomic():
            end_leftovers(experiment=locked_experiment(experiment_id))


def end_leftovers(*, experiment: Experiment) -> None:
    """End what nobody looks at in a locked experiment that has concluded."""
    settle_assignments(experiment=experiment)
    end_left(experiment=experiment)
    discard_waiting(experiment, "The experiment concluded before this comparison was judged.")


def discard_waiting(experiment: Experiment, reason: str) -> None:
    """Discard the comparisons of a locked experiment that nobody looks at."""
    looked_at = Q(state=Assignment.State.OPEN) | Q(settled=False)
    comparisons = Comparison.objects.filter(
        ~Exists(Assignment.objects.filter(looked_at, comparison=OuterRef("pk"))),
        experiment=experiment,
        state__in=Comparison.PENDING,
    )
    lock_by_number(comparisons, no_key=True)
    comparisons.update(state=Comparison.State.DISCARDED, discard_reason=reason)
    responses = Response.objects.filter(task__experiment=experiment, state=Response.State.WAITING)
    lock_by_number(responses, no_key=True)
    responses.update(state=Response.State.FAILED, failure_reason=reason)


def withdraw(
    experiment: Experiment, comparisons: QuerySet[Comparison], reason: str, *, also_open: bool = True
) -> None:
    """Have nobody be given these comparisons of a locked experiment any more, and no model asked for a
    response that no other one needs.

    Those that somebody had and gave back end without an outcome, unless ``also_open`` is false. Pairs on a
    screen may be finished.
    """
    of_it = comparisons.filter(state__in=[Comparison.State.PLANNED, Comparison.State.READY])
    lock_by_number(of_it, no_key=True)
    nobody_has = ~Exists(Assignment.objects.filter(comparison=OuterRef("pk")))
    of_it.filter(nobody_has).update(state=Comparison.State.DISCARDED, discard_reason=reason)
    if also_open:
        for comparison in of_it:
            let_go(comparison, reason)
    needing = Q(response_i=OuterRef("pk")) | Q(response_j=OuterRef("pk"))
    in_vain = Response.objects.filter(
        ~Exists(experiment.comparisons.filter(needing, state__in=Comparison.PENDING)),
        task__experiment=experiment,
        state=Response.State.WAITING,
        trial=None,
    )
    lock_by_number(in_vain, no_key=True)
    in_vain.update(state=Response.State.FAILED, failure_reason=reason)


@transaction.atomic
def archive(*, experiment_id: int, by: User | None) -> Experiment:
    """Hide an experiment from everybody's first page. Archiving twice is archiving once.

    Raises
    ------
    WrongStateError
        It is running.
    """
    experiment = locked_experiment(experiment_id)
    if experiment.state == Experiment.State.RUNNING:
        raise WrongStateError("A running experiment cannot be archived; pause or stop it first.")
    if experiment.archived_at is None:
        experiment.archived_at = clock.now()
        experiment.save(update_fields=["archived_at"])
        record(experiment=experiment, by=by, action=AuditEntry.Action.ARCHIVE)
    return experiment


@transaction.atomic
def unarchive(*, experiment_id: int, by: User | None) -> Experiment:
    """Show an experiment again."""
    experiment = locked_experiment(experiment_id)
    if experiment.archived_at is not None:
        experiment.archived_at = None
        experiment.save(update_fields=["archived_at"])
        record(experiment=experiment, by=by, action=AuditEntry.Action.UNARCHIVE)
    return experiment


def refuse_archived(experiment: Experiment) -> None:
    """Refuse to change an experiment that is in the archive.

    Raises
    ------
    WrongStateError
        It is archived.
    """
    if experiment.archived_at is not None:
        raise WrongStateError("The experiment is archived. Take it out of the archive first.")


def refuse_weaker(experiment: Experiment, by: User | None, wanted: Mapping[str, Any]) -> None:
    """Refuse a larger margin or risk where a gate relies on it: a weaker claim would pass a worse change.

    Raises
    ------
    WrongStateError
        Nobody but an owner may want this.
    """
    weaker = any((wanted.get(name) or 0) > getattr(experiment, name) for name in ("epsilon", "delta"))
    if not weaker or by is None or Experiment.objects.owned_by(by).filter(pk=experiment.pk).exists():
        return
    if gate_of(experiment) or experiment.gates.exists() or has_forge(experiment):
        raise WrongStateError("A gate relies on this margin and risk. Only an owner raises them.")


@transaction.atomic
def try_again(*, experiment_id: int, by: User | None) -> Experiment:
    """Ask again for the responses whose settings a server refused."""
    experiment = locked_experiment(experiment_id)
    refused = Response.objects.filter(policy__experiment=experiment, refused_at__isnull=False)
    n = refused.update(refused_at=None, failure_reason="", said="")
    if n:
        record(experiment=experiment, by=by, action=AuditEntry.Action.TRY_AGAIN, details={"responses": n})
    return experiment


# The actions, by their names on the page and in the API.
ACTIONS = {
    "start": start,
    "pause": pause,
    "stop": stop,
    "archive": archive,
    "unarchive": unarchive,
    "try_again": try_again,
}
