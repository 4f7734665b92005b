"""The state of an experiment in words."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.core import StopReason
from engine.models import Experiment, Policy, Snapshot
from engine.selectors import consequences, counts, designs, workers
from engine.selectors.health import QueueHealth, queue_health
from engine.selectors.remaining import remaining
from engine.selectors.specs import level_names
from labeling.formatting import about


@dataclass(frozen=True)
class PolicyName:
    """``P3``, and the names of its levels."""

    short: str
    levels: tuple[str, ...]

    @property
    def long(self) -> str:
        return " · ".join(self.levels)


@dataclass(frozen=True)
class Status:
    """A badge (its look and its words), its explanation, and the number of comparisons remaining."""

    kind: str
    badge: str
    sentence: str
    left: str = ""


def policy_name(policy: Policy) -> PolicyName:
    """The names of one policy."""
    return PolicyName(short=policy.label, levels=level_names(policy))


def policy_names(experiment: Experiment) -> list[PolicyName]:
    """Names of all policies, by index."""
    return [policy_name(policy) for policy in experiment.policies.prefetch_related("levels__factor")]


def leader(experiment: Experiment, snapshot: Snapshot | None) -> PolicyName | None:
    """The winner, or the leader so far."""
    policy = experiment.winner or (snapshot.best if snapshot else None)
    if policy is None:
        return None
    return policy_name(experiment.policies.prefetch_related("levels__factor").get(pk=policy.pk))


def status_of(
    experiment: Experiment,
    *,
    snapshot: Snapshot | None = None,
    health: QueueHealth | None = None,
) -> Status:
    """The badge and sentence of an experiment, with the reasons to doubt its risk where there are any.

    ``snapshot`` and ``health`` are read from the database unless the caller passes them.
    """
    status = _status_of(experiment, snapshot or designs.latest_snapshot(experiment), health)
    sentences = [status.sentence]
    if experiment.evidence_stale:
        sentences.append("The evidence is being recomputed.")
    sentences += consequences.caveats(experiment)
    if experiment.archived_at is not None:
        sentences.append(f"In the archive since {experiment.archived_at:%Y-%m-%d}.")
    return replace(status, sentence=" ".join(sentences))


def _status_of(experiment: Experiment, snapshot: Snapshot | None, health: QueueHealth | None) -> Status:
    match experiment.state:
        case Experiment.State.DRAFT:
            return Status("draft", "Draft", "Not started yet.")
        case Experiment.State.CONCLUDED:
            return _concluded(experiment, snapshot)
        case Experiment.State.PAUSED:
            return Status("paused", "Paused", _standing(snapshot))
    health = health or queue_health(experiment)
    if not health.healthy:
        return Status("unhealthy", "Unhealthy", f"{_ailment(health)} {_standing(snapshot)}")
    return _running(experiment, snapshot)


def _ailment(health: QueueHealth) -> str:
    if not health.control_alive:
        return _away("control")
    if health.generation_alive and health.unserved:
        return (
            f"No worker serves {health.unserved[0]}. Start one that does (GENERATION_BACKEND, "
            "GENERATION_MODEL), "
            "or change the experiment."
        )
    if health.generation_alive and health.trouble:
        return f"The generation worker's backend reports an error: {health.trouble}"
    if health.loading:
        return "The generation worker is loading its model; a large model takes minutes."
    return _away("generation")


def _running(experiment: Experiment, snapshot: Snapshot | None) -> Status:
    standing = _standing(snapshot)
    if experiment.used_up:
        sentence = (
            f"{standing} Every annotator has judged each two texts that can be compared. Invite more "
            "annotators, or make an experiment with more tasks or responses."
        )
        return Status("running", "Texts used up", sentence)
    to_go = remaining(experiment, snapshot)
    if to_go is None:
        return Status("running", "Running", standing)
    if to_go.over_budget:
        sentence = f"{standing} The budget of {experiment.budget:,} may not be enough to decide."
        return Status("running", "Running", sentence, left="over budget")
    left = about(to_go.expected)
    if to_go.at_least:
        number = f"at least {left.split()[0]}"
        return Status(
            "running", f"At least {left} remaining", f"{standing} At least {left} remaining.", left=number
        )
    return Status(
        "running", f"About {left} remaining", f"{standing} About {left} remaining.", left=left.split()[0]
    )


def late_clicks(experiment: Experiment, snapshot: Snapshot | None) -> int:
    """Number of comparisons judged after the last snapshot, such as pairs on a screen at the conclusion."""
    if experiment.state != Experiment.State.CONCLUDED or snapshot is None:
        return 0
    return max(0, counts.comparison_count(experiment.pk) - snapshot.comparisons)


def _concluded(experiment: Experiment, snapshot: Snapshot | None) -> Status:
    status = _conclusion(experiment, snapshot)
    late = late_clicks(experiment, snapshot)
    if not late:
        return status
    came = "1 more comparison" if late == 1 else f"{late} more comparisons"
    sentence = f"{status.sentence} {came} arrived later: counted in the win rates, but not in this finding."
    return replace(status, sentence=sentence)


def _conclusion(experiment: Experiment, snapshot: Snapshot | None) -> Status:
    comparisons = snapshot.comparisons if snapshot else 0
    match StopReason(experiment.conclusion):
        case StopReason.CERTIFIED:
            return Status(
                "certified",
                "Certified winner",
                f"After {comparisons} comparisons: {experiment.finding}",
            )
        case StopReason.NO_SINGLE_BEST:
            return Status(
                "no-single-best",
                "No single best",
                f"After {comparisons} comparisons: {experiment.finding} Either the best policies "
                "form a cycle, or "
                "they tie.",
            )
        case StopReason.BUDGET:
            return Status(
                "budget",
                "Budget spent",
                f"{comparisons} comparisons were not enough to decide. {_standing(snapshot)}",
            )
        case StopReason.STOPPED:
            return Status(
                "stopped",
                "Stopped by hand",
                f"Stopped after {comparisons} comparisons, before it was decided. {_standing(snapshot)}",
            )


def _standing(snapshot: Snapshot | None) -> str:
    if snapshot is None or snapshot.comparisons == 0:
        return "No judgments yet."
    if snapshot.best is None:
        return "No policy leads."
    rivals = "1 rival is" if snapshot.open_rivals == 1 else f"{snapshot.open_rivals:,} rivals are"
    return f"{snapshot.best} leads; {rivals} still open."


def _away(queue: str) -> str:
    worker = workers.latest(queue)
    if worker is None:
        return f"The {queue} worker has never run. Start it."
    if not worker.alive:
        return f"The {queue} worker was last seen {int(worker.seen_seconds)} s ago. Start it again."
    return (
        "Responses have waited for more than a minute: the generation worker is too slow. Start another one."
    )
