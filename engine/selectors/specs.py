"""An experiment's description, read back from its rows."""

from django.db.models import Max

from engine.domain.conversations import Message
from engine.domain.policy_space import name_of
from engine.domain.specs import SETTINGS, ExperimentSpec, FactorSpec, GoldSpec, ReadyMade, TaskSpec
from engine.domain.text_checks import read_checks
from engine.models import AuditEntry, Experiment, Response
from engine.selectors.policies import combinations_of
from engine.selectors.task_changes import tasks_present


def version_of(experiment: Experiment) -> int:
    """A number that grows with each change of a draft."""
    edits = AuditEntry.objects.filter(experiment=experiment, action=AuditEntry.Action.EDIT)
    last: int = edits.aggregate(last=Max("pk", default=0))["last"]
    return last


def experiment_spec(experiment: Experiment) -> ExperimentSpec:
    """The description that would make this experiment anew: every setting is named, whether usual or not.

    It has neither the state, the people and the comparisons, nor the permission of a language model to vote.
    """
    imported = experiment.responses == Experiment.Responses.IMPORTED
    settings = {name: getattr(experiment, name) for name in SETTINGS}
    if experiment.llm_judge == Experiment.LLMJudge.VOTES:
        settings["llm_judge"] = Experiment.LLMJudge.SHADOW
    return ExperimentSpec(
        name=experiment.name,
        factors=[
            FactorSpec(factor.name, factor.kind, {level.name: level.value for level in factor.levels.all()})
            for factor in experiment.factors.prefetch_related("levels")
        ],
        tasks=tasks_of(experiment),
        settings=settings,
        gold=[
            GoldSpec(
                gold.prompt,
                gold.better,
                gold.worse,
                gold.explanation,
                tuple(Message(**each) for each in gold.messages),
            )
            for gold in experiment.gold_items.order_by("pk")
        ],
        ready_made=_ready_made(experiment) if imported else (),
    )


def tasks_of(experiment: Experiment) -> list[TaskSpec]:
    """The tasks that are present."""
    rows = tasks_present(experiment).values_list(
        "prompt", "reference", "messages", "variables", "tags", "checks"
    )
    return [
        TaskSpec(
            prompt,
            reference,
            tuple(Message(**each) for each in messages),
            variables,
            tuple(tags),
            read_checks(checks),
        )
        for prompt, reference, messages, variables, tags, checks in rows
    ]


def _ready_made(experiment: Experiment) -> list[ReadyMade]:
    responses = Response.objects.filter(policy__experiment=experiment).order_by("pk")
    names = [*map(name_of, combinations_of(experiment))]
    return [
        ReadyMade(task, names[policy], *rest)
        for task, policy, *rest in responses.values_list(
            "task__position", "policy__index", "text", "thinking", "finish_reason"
        )
    ]
