"""The state of an experiment in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.core import Claim, Remaining, StopReason
from engine.domain.policy_space import PolicyName
from engine.domain.wording import number
from engine.models import Experiment, Snapshot
from engine.selectors import consequences, counts
from engine.selectors.missing import actively_held
from engine.selectors.policies import names_in
from engine.selectors.pulses import Pulse, pulses
from engine.selectors.remaining import remaining_of
from engine.selectors.snapshots import latest_snapshots
from labeling.formatting import about, over_half, points, spread


@dataclass(frozen=True)
class Status:
    """A badge (its look and its words), and its explanation."""

    kind: str
    badge: str
    sentence: str


def badge(experiment: Experiment, health: Pulse | None) -> tuple[str, str]:
    """The look of an experiment's badge and its words. ``health``: that of a running experiment."""
    match experiment.state:
        case Experiment.State.CONCLUDED:
            return experiment.conclusion.replace("_", "-"), experiment.get_conclusion_display()
        case Experiment.State.RUNNING if health is not None and not health.healthy:
            return "unhealthy", "Unhealthy"
        case Experiment.State.RUNNING if experiment.used_up:
            return "running", "Texts used up"
    return experiment.state, experiment.get_state_display()


def status_of(experiment: Experiment) -> Status:
    """The badge and sentence of an experiment, with the reasons to doubt its risk where there are any."""
    [status] = statuses_of([experiment])
    return status


def statuses_of(
    experiments: Sequence[Experiment],
    *,
    snapshots: Mapping[int, Snapshot] | None = None,
    healths: Mapping[int, Pulse] | None = None,
    in_brief: bool = False,
) -> list[Status]:
    """The badge and sentence of each experiment, in as many queries as for one.

    ``snapshots`` and ``healths``, by experiment, are read from the database unless the caller passes them.
    ``in_brief``: of a conclusion only what a list needs.
    """
    running = [each for each in experiments if each.state == Experiment.State.RUNNING]
    ended = [each.pk for each in experiments if each.state == Experiment.State.CONCLUDED]
    snapshots = latest_snapshots(experiments) if snapshots is None else snapshots
    healths = pulses(running) if healths is None else healths
    led = [each for each in experiments if each.winner or (each.pk in snapshots and snapshots[each.pk].best)]
    names = names_in(led)
    comparisons = counts.comparison_counts(ended)
    statuses = []
    for experiment in experiments:
        snapshot, led_by = snapshots.get(experiment.pk), names.get(experiment.pk, [])
        health = healths.get(experiment.pk)
        kind, words = badge(experiment, health)
        if in_brief and experiment.state == Experiment.State.CONCLUDED:
            sentence = _conclusion_in_brief(experiment, snapshot, led_by)
        elif experiment.state == Experiment.State.CONCLUDED:
            sentence = concluded(experiment, snapshot, led_by, comparisons.get(experiment.pk, 0))
        else:
            sentence = _said(experiment, snapshot, led_by, health)
        statuses.append(Status(kind, words, " ".join([sentence, *notes(experiment)])))
    return statuses


def notes(experiment: Experiment) -> list[str]:
    """Sentences that belong to every word about the result: reasons to doubt its risk, and the archive."""
    said = ["The evidence is being recomputed."] if experiment.evidence_stale else []
    said += consequences.caveats(experiment)
    if experiment.archived_at is not None:
        said.append(f"In the archive since {experiment.archived_at:%Y-%m-%d}.")
    return said


def _said(
    experiment: Experiment,
    snapshot: Snapshot | None,
    names: Sequence[PolicyName],
    health: Pulse | None,
) -> str:
    """The words about an experiment that has not concluded."""
    if experiment.state == Experiment.State.DRAFT:
        return "Not started yet."
    waits = closing(experiment)
    standing = " ".join([_standing(experiment, snapshot, names), *waits])
    if experiment.state == Experiment.State.PAUSED:
        return standing
    if health is not None and not health.healthy:
        return f"{health.ailment} {standing}"
    remaining = None if waits else remaining_of(experiment, snapshot)
    said = _running(experiment, standing, remaining)
    return f"{said} {health.catching_up}".rstrip() if health is not None else said


def closing(experiment: Experiment) -> list[str]:
    """A sentence while the claim waits for the pairs that people have open, and for nothing else."""
    if experiment.closing_since is None or experiment.state != Experiment.State.RUNNING:
        return []
    n_open = len(actively_held(experiment))
    pairs = "the open pair is" if n_open == 1 else f"the {n_open:,} open pairs are"
    return [f"Certified once {pairs} in."]


USED_UP = (
    "Every annotator has judged each two texts that can be compared. Invite more annotators, or make an "
    "experiment with more tasks or responses."
)


def through(n_through: int, n_annotators: int) -> str:
    """The sentence where some annotators have judged all pairs that wait, which nobody judges twice."""
    have = "has" if n_through == 1 else "have"
    return (
        f"{n_through} of {n_annotators} annotators {have} judged every pair that is left. The others can go "
        "on; with more annotators it ends sooner."
    )


def too_few_texts(n_answers: int) -> str:
    """The sentence where the texts will be used up before the decision, as far as anybody can tell."""
    return (
        f"The annotators here can give at most {number(n_answers, 'more answer')} to these texts, which is "
        "probably too few for a decision. Invite more people."
    )


def _running(experiment: Experiment, standing: str, remaining: Remaining | None) -> str:
    if experiment.used_up:
        return f"{standing} {USED_UP}"
    if remaining is None:
        return standing
    if remaining.likely is None:
        return f"{standing} {over_budget(experiment)}"
    return f"{standing} About {about(remaining.likely)} remaining, {spread(remaining)}."


def over_budget(experiment: Experiment) -> str:
    """The sentence where the budget may end before the decision."""
    return f"The budget of {experiment.budget:,} may not be enough."


def late_clicks(experiment: Experiment, snapshot: Snapshot | None, comparisons: int) -> int:
    """Number of comparisons judged after the last snapshot, such as pairs on a screen at the conclusion.

    ``comparisons``: those judged by now.
    """
    if experiment.state != Experiment.State.CONCLUDED or snapshot is None:
        return 0
    return max(0, comparisons - snapshot.comparisons)


def concluded(
    experiment: Experiment, snapshot: Snapshot | None, names: Sequence[PolicyName], comparisons: int
) -> str:
    """The finding of a concluded experiment, and the number of comparisons that came too late for it.

    ``comparisons``: those judged by now.
    """
    sentence = _conclusion(experiment, snapshot, names)
    late = late_clicks(experiment, snapshot, comparisons)
    if not late:
        return sentence
    came = number(late, "more comparison")
    return f"{sentence} {came} arrived later: counted in the win rates, but not in this finding."


def _conclusion(experiment: Experiment, snapshot: Snapshot | None, names: Sequence[PolicyName]) -> str:
    n_comparisons = snapshot.comparisons if snapshot else 0
    comparisons = number(n_comparisons, "comparison")
    match StopReason(experiment.conclusion):
        case StopReason.CERTIFIED:
            return f"After {comparisons}: {experiment.finding}"
        case StopReason.NO_SINGLE_BEST:
            reasons = "Either the best policies form a cycle, or they tie"
            if _finds_none_by_a_margin(experiment):
                reasons += f", or none leads every other by {points(experiment.epsilon)}"
            return f"After {comparisons}: {experiment.finding} {reasons}."
        case StopReason.BUDGET:
            standing = _standing(experiment, snapshot, names)
            return f"{comparisons} {'was' if n_comparisons == 1 else 'were'} not enough to decide. {standing}"
        case StopReason.STOPPED:
            standing = _standing(experiment, snapshot, names)
            return f"Stopped after {comparisons}, before it was decided. {standing}"


def _conclusion_in_brief(
    experiment: Experiment, snapshot: Snapshot | None, names: Sequence[PolicyName]
) -> str:
    n_comparisons = snapshot.comparisons if snapshot else 0
    comparisons = number(n_comparisons, "comparison")
    if experiment.conclusion == StopReason.NO_SINGLE_BEST:
        by = ""
        if _finds_none_by_a_margin(experiment):
            by = f" with a win rate of at least {over_half(experiment.epsilon)}"
        return f"No policy beats every other one{by}, after {comparisons}."
    if experiment.winner is None:
        # The badge says how it ended.
        standing = _standing(experiment, snapshot, names)
        return f"{standing.removesuffix('.')}, after {comparisons}." if n_comparisons else standing
    claims = {
        Claim.GOOD_ENOUGH: f": good enough within {points(experiment.epsilon)}",
        Claim.BEST: ": the best",
        Claim.BEST_IF_ANY: ": the best, if there is a best",
    }
    claim = claims[Claim(experiment.certified_claim)] if experiment.certified_claim else ""
    return f"Use {names[experiment.winner.index].name}{claim}, after {comparisons}."


def _finds_none_by_a_margin(experiment: Experiment) -> bool:
    """True if the finding of no single best leaves open that one beats every other by less than the margin.

    Under the claim "best", the margin belongs to "good enough", which is shown too.
    """
    return experiment.claim == Claim.BEST_IF_ANY and experiment.epsilon > 0


def _standing(experiment: Experiment, snapshot: Snapshot | None, names: Sequence[PolicyName]) -> str:
    if snapshot is None or snapshot.comparisons == 0:
        # Imported votes count before a worker has replayed them.
        return "Too early to say." if experiment.evidence_stale else "No judgments yet."
    if snapshot.best is None:
        return "No policy leads."
    leader = names[snapshot.best.index].name
    if not snapshot.open_rivals:
        return f"{leader} leads, and no rival is left to exclude."
    # Those of the claim, as on Method; the ranking says which policies are ruled out as the best.
    return f"{leader} leads; {number(snapshot.open_rivals, 'rival')} still to exclude."
