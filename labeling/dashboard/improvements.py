"""An improvement as its page shows it: the verdict, the picture and the family tree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.core.improvement import clicks_to_explore
from engine.domain.improvement_sentences import dropped_because, percent
from engine.models import Experiment, Factor, Improvement, Proposal
from engine.selectors.improvements import (
    TEXTS,
    names_of,
    newest_improvement,
    race_of,
    sentence_of,
    tasks_left,
    verdict_of,
    waiting_in,
)
from engine.services.policies import policies_may_change
from engine.writing.registry import PREPARED
from labeling.forms.improvements import ProposalForm, writer_shown


@dataclass(frozen=True)
class Person:
    """A text of the family tree. ``mark``: a word for its standing; ``kind``: that word's colour."""

    name: str
    number: int | None
    text: str
    parent_text: str
    mark: str
    kind: str
    note: str
    reason: str
    children: list[Person] = field(default_factory=list)


@dataclass(frozen=True)
class Waiting:
    """A proposal that waits for an OK. ``returned``: what somebody made of it that cannot join."""

    proposal: Proposal
    parent: str
    parent_text: str
    returned: ProposalForm | None = None


def page_of(improvement: Improvement) -> dict[str, Any]:
    """Everything that the page of one improvement shows."""
    proposals = list(improvement.proposals.select_related("parent", "policy", "writing", "by"))
    # Read last: one that joins meanwhile has a name too.
    names, key = names_of(improvement.experiment), TEXTS[improvement.factor.kind]
    of_policies = improvement.factor.levels.values_list("policies", "value")
    texts = {pk: str(value.get(key, "")) for pk, value in of_policies}
    racing = any(each.state == Proposal.State.JOINED for each in proposals)
    waiting = [each for each in proposals if each.state == Proposal.State.PROPOSED and improvement.needs_ok]
    return {
        "improvement": improvement,
        "sentence": sentence_of(improvement, names),
        "champion": names[improvement.champion.index],
        "champion_text": texts[improvement.champion_id],
        "is_original": improvement.champion_id == improvement.original_id,
        # Beliefs that promote a champion are more hopeful than those that recommend it.
        "best": names[(best := improvement.verdict["policy"])],
        "best_index": best,
        "original": names[improvement.original.index],
        "original_text": texts[improvement.original_id],
        "writer": writer_shown(improvement),
        "is_prepared": improvement.writer == PREPARED,
        "tasks": tasks_left(improvement),
        "explore_until": clicks_to_explore(improvement.clicks),
        "trouble": _trouble(improvement),
        "waiting": [Waiting(each, names[each.parent.index], texts[each.parent_id]) for each in waiting],
        "racing": racing,
        "can_judge": racing or improvement.phase == Improvement.Phase.CERTIFY,
        "chart": chart(improvement, proposals, names),
        "tree": _tree(improvement, proposals, texts, names),
        "n_proposals": len(proposals),
        "writings": list(improvement.writings.order_by("-pk").prefetch_related("proposals")[:20]),
    }


def stopping(improvement: Improvement) -> dict[str, Any]:
    """What ending an open improvement now means."""
    experiment = improvement.experiment
    improvement.verdict = verdict_of(improvement, race_of(improvement), ends=True)
    runs_on = improvement.was_running and experiment.state == Experiment.State.RUNNING
    return page_of(improvement) | {"experiment": experiment, "runs_on": runs_on}


def _trouble(improvement: Improvement) -> str:
    """Why the writer's last call gave nothing; empty if it did, and once the improvement has ended."""
    newest = improvement.writings.order_by("-pk").first()
    if newest is None or improvement.state != Improvement.State.OPEN:
        return ""
    if improvement.exhausted and not newest.fault:
        return "All texts of its last five calls were refused."
    return newest.fault


def factors_to_change(experiment: Experiment) -> list[Factor]:
    """The factors whose text a writer may change."""
    return [each for each in experiment.factors.all() if each.kind in TEXTS]


def may_improve(experiment: Experiment) -> bool:
    """True if an improvement can begin here, apart from one that runs."""
    written = experiment.responses != Experiment.Responses.IMPORTED
    return written and bool(factors_to_change(experiment)) and policies_may_change(experiment)


def step_to_improvement(experiment: Experiment, *, may_run: bool) -> dict[str, Any]:
    """What the page Result says of improvements: whether one may begin or be looked at, and what waits."""
    newest = newest_improvement(experiment)
    is_open = newest is not None and newest.state == Improvement.State.OPEN
    waiting = waiting_in(newest) if newest and is_open else 0
    shown = newest is not None or (may_run and may_improve(experiment))
    return {
        "shown": shown,
        "is_open": is_open,
        "n_waiting": waiting if may_run else 0,
        "sentence": sentence_of(newest) if newest and not is_open else "",
    }


def chart(
    improvement: Improvement, proposals: Sequence[Proposal], names: Mapping[int, str]
) -> list[dict[str, Any]]:
    """The champion's win rate against the original over the clicks, and what happened up to each."""
    rows = [
        {
            "used": used,
            "champion": names[champion],
            "percents": [round(100 * rate, 1) for rate in rates],
            "marks": set[str](),
            "happened": [],
        }
        for used, champion, *rates in improvement.course
    ]
    said = {Proposal.State.PROMOTED.value: "became champion", Proposal.State.DROPPED.value: "dropped"}
    happened = (
        (each.at, each.policy.index, each.state) for each in proposals if each.policy and each.at is not None
    )
    for at, index, state in sorted(happened):
        row = next((row for row in rows if row["used"] >= at), rows[-1])
        row["happened"].append(f"{names[index]} {said[state]}")
        row["marks"].add(state)
    return rows


_MARKS = {
    Proposal.State.PROPOSED: ("waits for an OK", "draft"),
    Proposal.State.REFUSED: ("refused", "budget"),
    Proposal.State.JOINED: ("in the race", "running"),
    Proposal.State.DROPPED: ("dropped", "budget"),
    Proposal.State.PROMOTED: ("was champion", "running"),
    Proposal.State.LEFT: ("not settled", "draft"),
}


def _tree(
    improvement: Improvement, proposals: Sequence[Proposal], texts: dict[int, str], names: Mapping[int, str]
) -> Person:
    """The original with its descendants."""
    children: dict[int, list[Proposal]] = defaultdict(list)
    for each in proposals:
        children[each.parent_id].append(each)

    def descend(proposals: Sequence[Proposal]) -> list[Person]:
        return [person(each) for each in proposals]

    def person(each: Proposal) -> Person:
        mark, kind = _MARKS[Proposal.State(each.state)]
        if each.state == Proposal.State.PROPOSED and not improvement.needs_ok:
            mark = "is being screened"
        if each.policy_id == improvement.champion_id:
            mark, kind = "champion", "certified"
        return Person(
            name=f"Proposal {each.number}" if each.policy is None else names[each.policy.index],
            number=None if each.policy is None else each.policy.index + 1,
            text=each.text,
            parent_text=texts[each.parent_id],
            mark=mark,
            kind=kind,
            note=_note(each),
            reason=each.reason,
            children=descend(children[each.policy_id]) if each.policy_id else [],
        )

    original = improvement.original
    is_champion = original.pk == improvement.champion_id
    return Person(
        name=names[original.index],
        number=original.index + 1,
        text=texts[original.pk],
        parent_text=texts[original.pk],
        mark="original and champion" if is_champion else "original",
        kind="certified" if is_champion else "draft",
        note="",
        reason="",
        children=descend(children[original.pk]),
    )


def _note(proposal: Proposal) -> str:
    chance = proposal.probability or 0.0
    match proposal.state:
        case Proposal.State.DROPPED:
            return dropped_because(proposal.compared, chance)
        case Proposal.State.PROMOTED:
            return f"Better than the champion before it with a probability of {percent(chance)}."
        case Proposal.State.REFUSED | Proposal.State.LEFT:
            return proposal.refused_because
    return ""


def improvements_of(experiment: Experiment) -> list[Improvement]:
    """All improvements of an experiment, the newest first."""
    return list(experiment.improvements.select_related("original", "champion", "factor").order_by("-pk"))
