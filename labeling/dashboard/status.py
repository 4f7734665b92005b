"""The state of an experiment in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.domain.wording import number
from engine.models import Experiment, Snapshot
from engine.selectors import consequences, counts
from engine.selectors.policies import names_in
from engine.selectors.pulses import Pulse, pulses
from engine.selectors.snapshots import latest_snapshots
from engine.selectors.standings import standing_of


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
) -> list[Status]:
    """The badge and sentence of each experiment, in as many queries as for one.

    ``snapshots`` and ``healths``, by experiment, are read from the database unless the caller passes them.
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
        snapshot, health = snapshots.get(experiment.pk), healths.get(experiment.pk)
        kind, words = badge(experiment, health)
        standing = standing_of(
            experiment,
            snapshot,
            names.get(experiment.pk, []),
            stalled=health is not None and not health.healthy,
            late=late_clicks(experiment, snapshot, comparisons.get(experiment.pk, 0)),
        )
        said = [*troubles(experiment, health), str(standing), *notes(experiment)]
        statuses.append(Status(kind, words, " ".join(said)))
    return statuses


def troubles(experiment: Experiment, health: Pulse | None) -> list[str]:
    """Sentences about what a running experiment waits for, apart from judgments."""
    if experiment.state != Experiment.State.RUNNING or health is None:
        return []
    if not health.healthy:
        return [health.ailment]
    return [*filter(None, [health.catching_up]), *([USED_UP] if experiment.used_up else [])]


def notes(experiment: Experiment) -> list[str]:
    """Sentences that belong to every word about the result: reasons to doubt its risk, and the archive."""
    said = ["The evidence is being recomputed."] if experiment.evidence_stale else []
    said += consequences.caveats(experiment)
    if experiment.archived_at is not None:
        said.append(f"In the archive since {experiment.archived_at:%Y-%m-%d}.")
    return said


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


def late_clicks(experiment: Experiment, snapshot: Snapshot | None, comparisons: int) -> int:
    """Number of comparisons judged after the last snapshot, such as pairs on a screen at the conclusion.

    ``comparisons``: those judged by now.
    """
    if experiment.state != Experiment.State.CONCLUDED or snapshot is None:
        return 0
    return max(0, comparisons - snapshot.comparisons)
