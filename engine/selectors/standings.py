"""How an experiment stands, in the words of every page, report, message and answer of the API."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.core import Claim, Remaining, StopReason
from engine.domain.claim_settings import CERTIFIED
from engine.domain.policy_space import PolicyName
from engine.domain.wording import number, two_digits
from engine.models import Experiment, Snapshot
from engine.selectors.missing import actively_held
from engine.selectors.remaining import remaining_of

# What a claim that stops an experiment shows of a rival; "open" until then.
SHOWN = {
    Claim.GOOD_ENOUGH: "shown not to be clearly better",
    Claim.BEST: "beaten",
    Claim.BEST_IF_ANY: "ruled out",
}
_REACHED = {
    Claim.GOOD_ENOUGH: "Already good enough",
    Claim.BEST: "Already the best",
    Claim.BEST_IF_ANY: "Already the best, if any is",
}


@dataclass(frozen=True)
class Standing:
    """The fact, and the figures that decide.

    Attributes
    ----------
    headline
        The policy to use, or the leader; without a full stop.
    sentence
        The rivals that are open, and the forecast; at the end the claim and what it took.
    leader
        The name of the winner or the leader; empty without one.
    n_rivals, n_open
        The other policies, and those of them that the claim to stop on has still to exclude.
    comparisons
        Those that the decision or the leader rests on.
    """

    headline: str
    sentence: str = ""
    leader: str = ""
    n_rivals: int = 0
    n_open: int = 0
    comparisons: int = 0

    def __str__(self) -> str:
        return f"{self.headline}. {self.sentence}".rstrip()


def standing_of(
    experiment: Experiment,
    snapshot: Snapshot | None,
    names: Sequence[PolicyName],
    *,
    stalled: bool = False,
    late: int = 0,
) -> Standing:
    """The standing by one snapshot.

    ``names``: the policies', by index. ``stalled``: the work stands still, so nobody knows how much is left.
    ``late``: comparisons judged after the last snapshot of an experiment that has ended.
    """
    if experiment.state == Experiment.State.DRAFT:
        return Standing("Not started yet")
    if experiment.state == Experiment.State.CONCLUDED:
        return _ended(experiment, snapshot, names, late)
    if experiment.evidence_stale:
        return Standing("Too early to say")
    if snapshot is None or not snapshot.comparisons:
        return Standing("No judgments yet")
    leads = _leading(experiment, snapshot, names)
    more = closing(experiment)
    if not more and leads.n_open and not stalled and not experiment.used_up:
        more = forecast_words(experiment, remaining_of(experiment, snapshot))
    return Standing(
        leads.headline, f"{leads.sentence} {more}".strip(), leads.leader, leads.n_rivals, leads.n_open,
        leads.comparisons,
    )  # fmt: skip


def closing(experiment: Experiment) -> str:
    """A sentence while the claim waits for the pairs that people have open, and for nothing else."""
    if experiment.closing_since is None or experiment.state != Experiment.State.RUNNING:
        return ""
    n_open = len(actively_held(experiment))
    pairs = "the open pair is" if n_open == 1 else f"the {n_open:,} open pairs are"
    return f"Decided once {pairs} in."


def forecast_words(experiment: Experiment, remaining: Remaining | None) -> str:
    """The sentence on the clicks that are still needed."""
    people = experiment.judge == Experiment.Judge.HUMAN
    what = "more click" if people else "more comparison"
    if remaining is None:
        return f"Too early to say how many {what}s."
    needed = remaining.times(experiment.overlap if people else 1)
    low = f"{two_digits(needed.low):,}"
    if needed.likely is None:
        return f"At least {low} {what}s. The budget of {experiment.budget:,} may not be enough."
    about = f"About {number(two_digits(needed.likely), what)}"
    if needed.high is None:
        return f"{about}, at least {low}; the budget of {experiment.budget:,} may not be enough."
    return f"{about}, {low} to {two_digits(needed.high):,}."


def _leading(experiment: Experiment, snapshot: Snapshot, names: Sequence[PolicyName]) -> Standing:
    if snapshot.best is None:
        return Standing("No policy leads", n_open=snapshot.open_rivals, comparisons=snapshot.comparisons)
    leader, n_rivals, n_open = names[snapshot.best.index].name, _n_rivals(names), snapshot.open_rivals
    claim = Claim(experiment.claim)
    headline = f"Leading: {leader}"
    if not n_open and experiment.stopping == CERTIFIED:
        headline = f"{_REACHED[claim]}: {leader}"
    shown = SHOWN[claim if experiment.stopping == CERTIFIED else Claim.BEST_IF_ANY]
    return Standing(
        headline, _rivals(n_rivals, n_open, shown), leader, n_rivals, n_open, snapshot.comparisons
    )


def _n_rivals(names: Sequence[PolicyName]) -> int:
    return sum(name.present for name in names) - 1


def _rivals(n_rivals: int, n_open: int, shown: str) -> str:
    if n_rivals == 1:
        return f"Its only rival is {'open' if n_open else shown}."
    n_shown = n_rivals - n_open
    if not n_shown:
        return f"All {n_rivals:,} rivals are open."
    if not n_open:
        return f"All {n_rivals:,} rivals are {shown}."
    is_shown, is_open = (f"{n:,} {'is' if n == 1 else 'are'}" for n in (n_shown, n_open))
    return f"Of {n_rivals:,} rivals, {is_shown} {shown}; {is_open} open."


def _ended(
    experiment: Experiment, snapshot: Snapshot | None, names: Sequence[PolicyName], late: int
) -> Standing:
    n = snapshot.comparisons if snapshot else 0
    comparisons = number(n, "comparison")
    reason = StopReason(experiment.conclusion)
    if experiment.winner is not None:
        leads = Standing(f"Use {(leader := names[experiment.winner.index].name)}", leader=leader)
        said = [_claimed(experiment, names), f"Decided after {comparisons}."]
    elif reason in {StopReason.CERTIFIED, StopReason.NO_SINGLE_BEST}:
        by = ""
        # Under "best" the margin belongs to "good enough", which is shown too.
        if experiment.claim == Claim.BEST_IF_ANY and experiment.epsilon > 0:
            by = f" in at least {of_100(experiment)} comparisons"
        leads = Standing(f"No policy beats every other{by}")
        said = [f"Decided after {comparisons}.", "The best policies form a cycle, or they are level."]
        if by:
            said[1] = "The best policies form a cycle, or they are level, or none is that far ahead."
    else:
        leads = Standing("No judgments yet")
        if snapshot is not None and n:
            leads = _leading(experiment, snapshot, names)
        ended = f"Stopped by hand after {comparisons}."
        if reason == StopReason.BUDGET:
            ended = f"{comparisons} {'was' if n == 1 else 'were'} not enough."
        said = [ended, f"{leads.headline}. {leads.sentence}"]
        leads = Standing("Not decided", "", leads.leader, leads.n_rivals, leads.n_open)
    if late:
        said.append(f"{late:,} more came later: they count in the win rates alone.")
    return Standing(
        leads.headline, " ".join(filter(None, said)).strip(), leads.leader, _n_rivals(names), leads.n_open, n
    )


def _claimed(experiment: Experiment, names: Sequence[PolicyName]) -> str:
    """The claim that an experiment stopped on, about the policy to use."""
    if not experiment.certified_claim:
        return ""
    winner = experiment.winner and experiment.winner.index
    rivals = [each.name for index, each in enumerate(names) if each.present and index != winner]
    others = f"{rivals[0]} does not" if len(rivals) == 1 else f"None of the {len(rivals):,} others"
    match Claim(experiment.certified_claim):
        case Claim.GOOD_ENOUGH:
            wins = "win" if len(rivals) == 1 else "wins"
            return f"{others} {wins} more than {of_100(experiment)} comparisons against it."
        case Claim.BEST:
            return "It beats every other policy."
        case Claim.BEST_IF_ANY:
            return "If any policy is the best, it is this one."


def of_100(experiment: Experiment) -> str:
    """The share that is so much above one half as the margin: "55 of 100"."""
    return f"{100 * (0.5 + experiment.epsilon):.4g} of 100"
