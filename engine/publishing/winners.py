"""The winner of a concluded experiment as it leaves: its messages, model and settings, and the evidence."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from django.conf import settings as site
from django.urls import reverse

from engine.domain.connection_targets import Target
from engine.domain.conversations import Message, chat
from engine.domain.levels import Composition, SamplingParams
from engine.domain.policy_space import code_of
from engine.domain.specs import TaskSpec
from engine.generation.responses import composition_of
from engine.models import Experiment
from engine.selectors import specs
from engine.selectors.counts import comparison_count
from engine.selectors.findings import doubts_about_risk
from engine.selectors.policies import model_that_wrote, policy_names, written_elsewhere
from engine.services.keys import targets_shown

_FILTER = re.compile(r"\{\{[^}\"']*\|")


@dataclass(frozen=True)
class Winner:
    """The policy that won, and what is claimed about it.

    Attributes
    ----------
    code, name
        The policy's.
    target
        The connection that wrote, without its key.
    tasks
        Those that are present.
    evidence
        Experiment, claim, accepted risk, comparisons and report, by name.
    """

    code: str
    name: str
    composition: Composition
    target: Target
    tasks: Sequence[TaskSpec]
    evidence: dict[str, Any]

    @property
    def slot(self) -> str:
        """The variable for the text of a task: a name that no variable of the tasks has."""
        taken = {name for task in self.tasks for name in task.variables}
        name = "task"
        while name in taken:
            name += "_"
        return name

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages for any task. Examples mean their own letters; the first and last are templates."""
        return self.composition.messages(chat(f"{{{{ {self.slot} }}}}"))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that are sent, by the names that levels have."""
        sampling, unset = self.composition.sampling, SamplingParams()
        said = {each.name: getattr(sampling, each.name) for each in fields(SamplingParams)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in said.items()
            if value != getattr(unset, name)
        }

    @property
    def lacking(self) -> list[str]:
        """Sentences on what the messages and settings of this policy do not hold."""
        guards = self.composition.guardrails
        said = []
        if any(each.input_block or each.output_block or each.asks_guard_about("both") for each in guards):
            said.append("Patterns and guard models of its guardrails are not included.")
        if self.composition.sampling.seed:
            said.append("Each response had a seed of its own, which is not included.")
        if any(_FILTER.search(each.content) for each in self.messages):
            said.append("Filters behind variables stand as they are: not every tool knows them.")
        if not self.target.connection_id:
            said.append("No connection wrote its responses: set the address of the model's server.")
        return said


def winner_of(experiment: Experiment) -> Winner | None:
    """The winner of a concluded experiment; ``None`` without one, or where its prompt is not known here."""
    if experiment.state != Experiment.State.CONCLUDED or experiment.winner is None:
        return None
    policy = experiment.policies.composable().at(experiment.winner.index)
    if policy is None or written_elsewhere(policy):
        return None
    composition = composition_of(policy)
    model = composition.model or model_that_wrote(policy)
    drawn = experiment.conclusions.last() if experiment.certified_claim else None
    caveats = doubts_about_risk(experiment)
    return Winner(
        code_of(policy.index),
        policy_names(experiment)[policy.index].name,
        composition,
        targets_shown([model])[model],
        specs.tasks_of(experiment),
        {
            "experiment": experiment.name,
            "claim": experiment.finding,
            "risk": None if drawn is None or caveats else drawn.joint_risk,
            "caveats": " ".join(caveats) or None,
            "comparisons": comparison_count(experiment.pk),
            "concluded_at": experiment.concluded_at and experiment.concluded_at.isoformat(timespec="seconds"),
            "report": site.SITE_URL + reverse("report", args=[experiment.pk]),
        },
    )
