"""`advance`: the only planner. Reads the counts, decides, concludes or tops up the buffer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from engine.core import Design
from engine.domain import blinding
from engine.models import Comparison, Experiment, Policy, Response
from engine.selectors import buffer, counts, designs
from engine.services import replaying
from engine.services.experiments import conclude_as
from engine.services.generation import settle_shared
from engine.services.judging import discard_unwanted
from engine.services.snapshots import write_snapshot
from engine.services.task_draws import drawer

# Raise it whenever the same counts and seed would give other pairs: a replay needs the version.
RULES_VERSION = 2


@dataclass(frozen=True)
class Advance:
    """The result of one call. ``behind``: the time for replaying stale evidence ran out; call again."""

    comparisons: int
    planned: int
    concluded: bool
    ready: int = 0
    behind: bool = False


def advance(*, experiment_id: int, replay_seconds: float = math.inf) -> Advance | None:
    """Bring a running experiment up to date with its judgments, and a paused one's evidence where it is
    stale.

    One at a time per experiment: while another caller holds the row, this one returns ``None`` at once, and
    the holder looks again after its commit, so that no judgment is left unseen. Stale evidence is replayed
    before the row is taken, for about ``replay_seconds`` at most.
    """
    while True:
        if not replaying.catch_up(experiment_id=experiment_id, seconds=replay_seconds):
            return Advance(comparisons=0, planned=0, concluded=False, behind=True)
        done = _advance_once(experiment_id)
        if done is None or done.concluded or counts.comparison_count(experiment_id) == done.comparisons:
            return done


@transaction.atomic
def _advance_once(experiment_id: int) -> Advance | None:
    experiment = (
        Experiment.objects.select_for_update(no_key=True, skip_locked=True)
        .filter(
            Q(state=Experiment.State.RUNNING) | Q(state=Experiment.State.PAUSED, evidence_stale=True),
            pk=experiment_id,
        )
        .first()
    )
    if experiment is None:
        return None
    if experiment.state == Experiment.State.PAUSED:
        replaying.settle(experiment=experiment)
        return None
    if experiment.responses == Experiment.Responses.REUSE:
        settle_shared(experiment_id=experiment.pk)
    discard_unwanted(experiment_id=experiment.pk)
    stale = experiment.evidence_stale
    observed = replaying.up_to_date(experiment=experiment)
    decision = observed.design.decision
    policies = list(experiment.policies.all())
    latest = designs.latest_snapshot(experiment)
    if stale or latest is None or latest.comparisons != decision.n_comparisons or decision.stopped:
        write_snapshot(experiment=experiment, observed=observed)
    if decision.reason is not None:
        conclude_as(experiment=experiment, observed=observed)
        return Advance(comparisons=decision.n_comparisons, planned=0, concluded=True)
    added = _top_up(experiment, designs.with_in_flight(experiment, observed.design), policies)
    return Advance(
        comparisons=decision.n_comparisons,
        planned=len(added),
        concluded=False,
        ready=sum(comparison.state == Comparison.State.READY for comparison in added),
    )


def _top_up(experiment: Experiment, design: Design, policies: list[Policy]) -> list[Comparison]:
    # Skipped pairs wait for other annotators, who may be away: they must not fill the skipper's buffer.
    buffered = Comparison.objects.filter(
        experiment=experiment, state__in=[Comparison.State.PLANNED, Comparison.State.READY], skips=0
    ).count()
    in_flight = int(design.in_flight.sum()) // 2
    n_comparisons = int(design.counts.sum()) // 2
    room = min(buffer.buffer_target(experiment) - buffered, experiment.budget - n_comparisons - in_flight)
    if buffer.generation_is_failing(experiment):
        room = min(room, int(buffer.probe_is_due(experiment)))
    if room <= 0:
        return []

    draw = drawer(experiment)
    first = experiment.planned_count
    evidence = design.evidence
    comparisons = []
    for number in range(first, first + room):
        # Read before the choice, which changes it.
        propensities = design.propensities()
        i, j = sorted(design.ask())
        policy_i, policy_j = policies[i], policies[j]
        # All else that is random about a comparison follows from the experiment's secret and its own number:
        # anybody who could draw it too would know a response by its seed.
        rng = np.random.default_rng(blinding.draw_seed(experiment.secret, number))
        response_i, response_j = draw(rng, policy_i, policy_j)
        ready = response_i.state == response_j.state == Response.State.DONE
        comparisons.append(
            Comparison(
                experiment=experiment,
                policy_i=policy_i,
                policy_j=policy_j,
                task_id=response_i.task_id,
                response_i=response_i,
                response_j=response_j,
                state=Comparison.State.READY if ready else Comparison.State.PLANNED,
                ready_at=timezone.now() if ready else None,
                i_on_left=blinding.i_on_left(experiment.secret, number),
                plan={
                    "rules": RULES_VERSION,
                    "number": number,
                    "sampler": experiment.sampler,
                    "stopping": experiment.stopping,
                    "claim": design.claim.value,
                    "delta": experiment.delta,
                    "epsilon": experiment.epsilon,
                    "seed": designs.design_seed(experiment),
                    "draw": number - first,
                    "comparisons": n_comparisons,
                    "in_flight": in_flight,
                    # Basis of the choice: log E of both policies at the start of this round.
                    "evidence": [float(evidence[i]), float(evidence[j])],
                    # The chance that this pair had, where the sampler draws it and the chance is known.
                    "propensity": None if propensities is None else float(propensities[i, j]),
                },
            )
        )
    halves = [half for c in comparisons for half in (c.response_i, c.response_j) if half.pk is None]
    # By identity: a response that is used again in this very round is one row.
    Response.objects.bulk_create({id(half): half for half in halves}.values())
    for comparison in comparisons:
        comparison.response_i_id = comparison.response_i.pk
        comparison.response_j_id = comparison.response_j.pk
    Comparison.objects.bulk_create(comparisons)
    experiment.planned_count = first + room
    experiment.save(update_fields=["planned_count"])
    return comparisons
