"""Improvements: their race, replayed from the log of showings, and what pages and files say of them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db.models import Q, QuerySet

from engine.core import Improvement as Race
from engine.domain.improvement_sentences import verdict_sentence
from engine.domain.policy_space import code_of
from engine.domain.showings import Kind, Logged
from engine.models import Comparison, Experiment, Factor, Improvement, Policy, Proposal, Writing
from engine.selectors import designs
from engine.selectors.policies import policy_names
from engine.selectors.pools import is_finite
from engine.selectors.task_changes import tasks_present

# The text that a writer changes in a level of each of these kinds.
TEXTS = {
    Factor.Kind.PROMPT.value: "text",
    Factor.Kind.STRATEGY.value: "instruction",
    Factor.Kind.GUARDRAIL.value: "instruction",
}
# Tasks that judge, at least.
FEWEST_JUDGING = 2
# Comparisons that a writer is shown at a time.
_MOST_VOTES = 6
# Comparisons to choose them from.
_LATEST = 200


def open_improvement(experiment: Experiment) -> Improvement | None:
    """The improvement that runs in this experiment now."""
    return experiment.improvements.filter(state=Improvement.State.OPEN).first()


def waits_for_texts(experiment: Experiment) -> bool:
    """True if its improvement has nothing to compare before new texts join."""
    open_ones = experiment.improvements.filter(state=Improvement.State.OPEN, phase=Improvement.Phase.EXPLORE)
    return open_ones.exclude(proposals__state=Proposal.State.JOINED).exists()


def newest_improvement(experiment: Experiment) -> Improvement | None:
    """The one that runs, or else the last one that ran."""
    return experiment.improvements.order_by("-pk").first()


def proposal_of(improvement: Improvement, number: int) -> Proposal | None:
    """Its proposal of this number."""
    return improvement.proposals.filter(number=number).select_related("improvement").first()


def text_of(policy: Policy, factor: Factor) -> str:
    """The text of this factor's level in a policy."""
    return str(policy.levels.get(factor=factor).value.get(TEXTS[factor.kind], ""))


def waiting_in(improvement: Improvement) -> int:
    """How many of its proposals wait for an OK."""
    waiting = improvement.proposals.filter(improvement__needs_ok=True, state=Proposal.State.PROPOSED)
    return waiting.count()


# ---------------------------------------------------------------- the race


def race_of(improvement: Improvement) -> Race:
    """The race after all that the evidence has of it, from the log alone."""
    turns = list(improvement.turns)
    race = Race(
        improvement.original.index,
        clicks=improvement.clicks - sum(more or 0 for _, more in turns),
        delta=improvement.delta,
        seed=improvement.seed,
    )
    children = set(improvement.proposals.exclude(policy=None).values_list("policy", flat=True))
    phases = dict(planned_in(improvement).values_list("pk", "plan__phase"))
    known = set[int]()
    for number, event in enumerate(_events_of(improvement), improvement.first + 1):
        while turns and number > turns[0][0]:
            take_turn(race, turns.pop(0)[1])
        if event.policy:
            if event.kind == Kind.JOINED and event.policy in children:
                race.add(event.i, event.j)
            elif event.kind == Kind.RETIRED and event.i in race.challengers:
                race.withdraw(event.i)
        elif event.kind == Kind.BEGUN:
            # One that was planned for the race and begins after it says nothing about the judging tasks.
            if phases.get(event.comparison) != race.phase:
                continue
            known.add(race.show(event.i, event.j, event.comparison))
        elif event.comparison not in known:
            continue
        elif event.kind == Kind.TOLD:
            race.end(event.comparison, event.outcome, least=event.least, most=event.most)
        elif event.kind == Kind.REOPENED:
            race.reopen(event.comparison)
        else:
            race.revise(event.comparison, event.outcome)
    for _, more in turns:
        take_turn(race, more)
    return race


def take_turn(race: Race, more: int | None) -> None:
    """Have a race go as its owner decided; see :attr:`engine.models.Improvement.turns`."""
    if more is None:
        race.certify()
    else:
        race.go_on(more)


def _events_of(improvement: Improvement) -> list[Logged]:
    events = designs.in_the_evidence(improvement.experiment, improvement.first)
    return designs.logged(events if improvement.last is None else events.filter(number__lte=improvement.last))


def planned_in(improvement: Improvement) -> QuerySet[Comparison]:
    """The comparisons that were planned for an improvement."""
    return Comparison.objects.filter(experiment=improvement.experiment_id, plan__improvement=improvement.pk)


def verdict_of(improvement: Improvement, race: Race, *, ends: bool = False) -> dict[str, Any]:
    """The verdict of a race, as the improvement stores it; where it ``ends`` now, as at its end."""
    verdict = asdict(race.verdict)
    # A race that is stopped, or whose last pairs nobody answers, says what it would say at its end.
    if ends and verdict["kind"] == "open":
        better = verdict["policy"] != improvement.original.index
        verdict["kind"] = "leads" if better else "nothing_better"
    return verdict


# ---------------------------------------------------------------- tasks


def seen_tasks(experiment: Experiment) -> set[int]:
    """The numbers of the tasks of which a writer has seen votes, in any improvement."""
    opened = Writing.objects.filter(improvement__experiment=experiment).values_list("opened_tasks", flat=True)
    return {task for tasks in opened for task in tasks}


def unseen_tasks(experiment: Experiment) -> list[int] | None:
    """The numbers of the tasks of which no writer has seen votes: on these alone are pairs compared.

    ``None`` where that is all of them.
    """
    if not (seen := seen_tasks(experiment)):
        return None
    return [task for task in _tasks_of(experiment) if task not in seen]


def _tasks_of(experiment: Experiment) -> list[int]:
    return list(tasks_present(experiment).values_list("pk", flat=True))


def tasks_for(improvement: Improvement, phase: str) -> list[int] | None:
    """The numbers of the tasks on which pairs may be compared in this phase; ``None`` for all."""
    if phase == Improvement.Phase.EXPLORE:
        return unseen_tasks(improvement.experiment)
    return [task for task in _tasks_of(improvement.experiment) if task not in set(improvement.open_tasks)]


def open_votes(improvement: Improvement, parent: Policy, most: int = _MOST_VOTES) -> list[Comparison]:
    """What a writer may see of a policy: judged comparisons on tasks that are open to it, lost ones first.

    Each has its texts and the answers that stand.
    """
    judged = improvement.experiment.comparisons.filter(
        Q(policy_i=parent) | Q(policy_j=parent),
        task__in=improvement.open_tasks,
        task__left_at=None,
        state=Comparison.State.JUDGED,
    )
    rows = judged.select_related("task", "response_i", "response_j").order_by("-number")[:_LATEST]
    best_last = sorted(rows, key=lambda each: _won(each, parent))
    # Mostly what it lost, and one in three that it won: what is good must stay.
    n_won = min(most // 3, max(0, len(best_last) - most))
    return best_last[: most - n_won] + best_last[len(best_last) - n_won :]


def _won(comparison: Comparison, policy: Policy) -> float:
    outcome = comparison.outcome or 0.0
    return outcome if comparison.policy_i_id == policy.pk else 1.0 - outcome


# ---------------------------------------------------------------- what is said


@dataclass(frozen=True)
class Tasks:
    """How many tasks judge, are open to writers, and were seen by one."""

    judging: int
    open: int
    seen: int


def tasks_left(improvement: Improvement) -> Tasks:
    """The division of the tasks now."""
    here, seen = set(_tasks_of(improvement.experiment)), seen_tasks(improvement.experiment)
    open_ones = here & set(improvement.open_tasks)
    return Tasks(len(here - open_ones), len(open_ones - seen), len(here & seen))


def sentence_of(improvement: Improvement, names: dict[int, str] | None = None) -> str:
    """The verdict in words."""
    names = names_of(improvement.experiment) if names is None else names
    verdict, by_itself = improvement.verdict, improvement.state == Improvement.State.ENDED
    return verdict_sentence(
        verdict["kind"],
        champion=names[verdict["policy"]],
        used=improvement.used,
        unused=improvement.left if by_itself else 0,
        share=verdict["share"],
        n_told=verdict["n_told"],
        lower=verdict["lower"],
        delta=improvement.delta,
        proven=not is_finite(improvement.experiment),
    )


def risk_of_several(improvements: Sequence[Improvement]) -> str:
    """The risk of all improvements of an experiment, in words; empty for one."""
    if len(improvements) < 2:
        return ""
    risk = min(1.0, sum(each.delta for each in improvements))
    return (
        f"{len(improvements)} improvements began here, each with a risk of its own. The risk that any of "
        f"them certifies wrongly is at most {100 * risk:.4g}%."
    )


def names_of(experiment: Experiment) -> dict[int, str]:
    """The names of policies by index."""
    return {index: name.name for index, name in enumerate(policy_names(experiment))}


def record_of(improvement: Improvement) -> dict[str, Any]:
    """All that is kept of an improvement, as an export and the API give it; policies by their codes.

    With the log of showings it is enough to run the race again: docs/export.md says how.
    """
    positions = dict(improvement.experiment.tasks.values_list("pk", "position"))
    race = race_of(improvement)
    judged = planned_in(improvement).exclude(state__in=Comparison.PENDING).order_by("number")
    compared: dict[str, list[int]] = {"explore": [], "certify": []}
    for phase, number in judged.values_list("plan__phase", "number"):
        compared[phase].append(number)
    own = (
        "state", "phase", "clicks", "used", "delta", "wish", "needs_ok", "longest", "writer", "connection",
        "seed", "first", "last", "turns", "started_at", "ended_at",
    )  # fmt: skip
    return {name: getattr(improvement, name) for name in own} | {
        "factor": improvement.factor.name,
        "original": improvement.original.label,
        "champion": improvement.champion.label,
        "sentence": sentence_of(improvement),
        "verdict": improvement.verdict | {"policy": code_of(improvement.verdict["policy"])},
        "open_tasks": sorted(positions[task] + 1 for task in improvement.open_tasks),
        "tasks": asdict(tasks_left(improvement)),
        "comparisons": compared,
        "writings": [
            {
                "parent": each.parent.label,
                "opened_tasks": sorted(positions[task] + 1 for task in each.opened_tasks),
                "sent": each.sent,
                "gave": each.gave,
                "fault": each.fault,
                "at": each.created_at,
            }
            for each in improvement.writings.select_related("parent").order_by("pk")
        ],
        "proposals": [
            {
                "number": each.number,
                "policy": each.policy and each.policy.label,
                "parent": each.parent.label,
                "text": each.text,
                "written_text": each.written_text,
                "reason": each.reason,
                "state": each.state,
                "refused_because": each.refused_because,
                "screened": each.screened,
                "compared": each.compared,
                "probability": each.probability,
                "created_at": each.created_at,
                "settled_at": each.settled_at,
            }
            for each in improvement.proposals.select_related("parent", "policy")
        ],
        "promotions": [
            asdict(each) | {"child": code_of(each.child), "over": code_of(each.over)}
            for each in race.promotions
        ],
        "dropped": [
            asdict(each) | {"child": code_of(each.child), "parent": code_of(each.parent)}
            for each in race.dropped
        ],
    }
