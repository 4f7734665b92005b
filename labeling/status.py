"""An experiment's state in words."""

from __future__ import annotations

from dataclasses import dataclass

from engine import selectors
from engine.models import Experiment, Snapshot
from labeling.templatetags.llmpo import about, percent


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
    """A badge (its look and its words), the sentence that explains it, and about how much is left."""

    kind: str
    badge: str
    sentence: str
    left: str = ""


def policy_names(experiment: Experiment) -> list[PolicyName]:
    """Names of all policies, by index."""
    return [
        PolicyName(
            short=policy.label,
            levels=tuple(
                level.name for level in sorted(policy.levels.all(), key=lambda level: level.factor.position)
            ),
        )
        for policy in experiment.policies.prefetch_related("levels__factor")
    ]


def status_of(experiment: Experiment) -> Status:
    """The badge and sentence of an experiment as it stands."""
    snapshot = selectors.latest_snapshot(experiment)
    match experiment.state:
        case Experiment.State.DRAFT:
            return Status("draft", "Draft", "Not started yet.")
        case Experiment.State.CONCLUDED:
            return _concluded(experiment, snapshot)
        case Experiment.State.PAUSED:
            return Status("paused", "Paused", _standing(snapshot))
    health = selectors.queue_health(experiment)
    if not health.control_alive:
        return Status(
            "unhealthy", "Unhealthy", f"{_away('control', health.control_seen_seconds)} {_standing(snapshot)}"
        )
    if not health.healthy and experiment.responses != Experiment.Responses.IMPORTED:
        return Status(
            "unhealthy",
            "Unhealthy",
            f"{_away('generation', health.generation_seen_seconds)} {_standing(snapshot)}",
        )
    return _running(experiment, snapshot)


def _running(experiment: Experiment, snapshot: Snapshot | None) -> Status:
    standing = _standing(snapshot)
    if snapshot is None or snapshot.expected_left is None:
        return Status("running", "Running", standing)
    expected_left = selectors.expected_left(experiment)
    if expected_left is None:
        sentence = f"{standing} The budget of {experiment.budget:,} may not be enough to decide."
        return Status("running", "Running", sentence, left="over budget")
    left = about(expected_left)
    return Status("running", f"~{left} left", f"{standing} About {left} to go.", left=left.split()[0])


def _concluded(experiment: Experiment, snapshot: Snapshot | None) -> Status:
    comparisons = snapshot.comparisons if snapshot else 0
    risk = percent(1 - experiment.delta)
    match experiment.conclusion:
        case Experiment.Conclusion.CERTIFIED:
            return Status(
                "certified",
                "Certified winner",
                f"{experiment.winner} beats every other policy; at least {risk} certain, "
                f"after {comparisons} comparisons.",
            )
        case Experiment.Conclusion.NO_SINGLE_BEST:
            return Status(
                "no-single-best",
                "No single best",
                f"No policy beats every other one (a cycle, or a tie at the top); at least {risk} certain, "
                f"after {comparisons} comparisons.",
            )
        case Experiment.Conclusion.BUDGET:
            return Status(
                "budget", "Budget spent", f"{comparisons} comparisons were not enough. {_standing(snapshot)}"
            )
    return Status("stopped", "Stopped by hand", f"After {comparisons} comparisons. {_standing(snapshot)}")


def _standing(snapshot: Snapshot | None) -> str:
    if snapshot is None or snapshot.comparisons == 0:
        return "No comparison has been judged yet."
    if snapshot.best is None:
        return "No policy is ahead."
    sentence = f"{snapshot.best} leads, {percent(snapshot.confidence)} certain"
    if snapshot.runner_up is not None:
        sentence += f"; {snapshot.runner_up} is the hardest to rule out"
    return sentence + "."


def _away(queue: str, seen_seconds: float | None) -> str:
    if seen_seconds is None:
        return f"The {queue} worker has never been seen; start it."
    if not selectors.is_recent(seen_seconds):
        return f"The {queue} worker was last seen {int(seen_seconds)} s ago; start it again."
    return "Responses have been waiting for more than a minute: the generation worker does not keep up."
