"""Claims where the same responses are shown again: what they hold on, and whether their risk is proven."""

from django.db.models import Count, Exists, OuterRef, Q

from engine.core.finite_pools import holds_without_replacement
from engine.domain.claim_settings import CERTIFIED
from engine.domain.wording import number
from engine.models import Assignment, Comparison, Experiment, Judgment, Response
from engine.selectors import designs, pools
from engine.selectors.annotators import people_behind
from engine.selectors.policies import policy_names
from engine.selectors.task_changes import tasks_changed, tasks_present


def of_pool(experiment: Experiment) -> list[str]:
    """Sentences on the tasks and responses that a claim is about, where these are not simply all that there
    are: tasks changed, or the same responses are shown repeatedly, and the risk may not be proven.
    """
    if experiment.responses == Experiment.Responses.FRESH:
        return tasks_changed(experiment)
    tasks = experiment.tasks.count()
    if experiment.responses == Experiment.Responses.REUSE:
        # Also about those that nobody has judged yet: they would have been drawn as well.
        tasks -= _n_left_out(experiment)
        held = f"one response of each policy to {'the task' if tasks == 1 else f'each of {tasks:,} tasks'}"
    else:
        written = Response.objects.filter(policy__experiment=experiment, state=Response.State.DONE)
        held = f"these {written.count():,} responses to {number(tasks, 'task')}"
    return [each for each in (f"It holds on {held}.", *_lacking(experiment), unproven(experiment)) if each]


def unproven(experiment: Experiment) -> str:
    """Sentences on the risk of claims where people judge and the same texts come again; empty elsewhere.

    Their outcomes are drawn without replacement; see docs/algorithm.md, "Finite pools".
    """
    if experiment.stopping != CERTIFIED or not pools.is_finite(experiment):
        return ""
    said = (
        "Here the same texts come again, so judgments are not fresh draws. The risk of "
        f"{100 * experiment.delta:.3g}% is"
    )
    if against := _settings_against(experiment) or _facts_against(experiment):
        return f"{said} not proven: {', and '.join(against)}."
    claims, nor = "“best”", ""
    if experiment.epsilon > 0.0:
        if experiment.allow_tie or experiment.allow_both_bad:
            nor = ", nor for “good enough”, because ties are offered"
        elif not holds_without_replacement(experiment.delta, experiment.epsilon):
            nor = ", nor for “good enough”, because the margin is too large"
        else:
            claims += " and “good enough”"
    texts = (
        "each policy has one response to every task, no two responses to a task are the same, and nobody was "
        "shown two pairs of one task"
    )
    if _pool_is_known(experiment):
        proven = f"proven for {claims}: no more than one person has judged, {texts}"
    else:
        proven = f"proven only for {claims}, if one person alone judges, {texts}"
    return f"{said} {proven}. For “no single best” it is not{nor}."


def _pool_is_known(experiment: Experiment) -> bool:
    """True if all responses of an experiment are there, and stay as they are."""
    imported = experiment.responses == Experiment.Responses.IMPORTED
    return imported and experiment.state != Experiment.State.DRAFT


def _settings_against(experiment: Experiment) -> list[str]:
    """The reasons in an experiment's settings why the risk on a finite pool is not proven."""
    reasons = {
        "past votes count": experiment.past_votes > 0,
        "a language model votes": experiment.llm_judge == Experiment.LLMJudge.VOTES,
        "the effects of levels are assumed to add up": experiment.space != Experiment.Space.UNSTRUCTURED,
        "it is too large for the proof": not holds_without_replacement(experiment.delta, margin=0.0),
    }
    return [reason for reason, holds in reasons.items() if holds]


def _facts_against(experiment: Experiment) -> list[str]:
    """The same of the judgments and the responses."""
    judgments = Judgment.objects.filter(comparison__experiment=experiment)
    if experiment.concluded_at is not None:
        # Late clicks change no finding, which is stored with what was so then. The clocks of two machines may
        # differ, so what is in the evidence is no late click.
        counted = designs.counted_in(designs.stored(experiment), "comparison")
        judgments = judgments.exclude(~counted, created_at__gt=experiment.concluded_at)
    given = Assignment.objects.filter(comparison__experiment=experiment).order_by()
    reasons = {
        "more than one person judged": len(people_behind(judgments)[:2]) > 1,
        # Not by its opinions: an export that is imported again has none. The index begins with the annotator.
        "a language model voted": judgments.filter(annotator=None, judge=Judgment.Judge.LLM).exists(),
        # It is compared on the tasks that are left, and its texts may follow the judgments on the others.
        "a policy joined when some tasks were judged already": any(
            experiment.policies.values_list("joined_at", flat=True)
        ),
        "somebody was shown two pairs of one task": given.count()
        > given.values("annotator", "comparison__task").distinct().count(),
    }
    if _pool_is_known(experiment):
        pool = pools.ready_made(experiment)
        reasons |= {
            "a policy has no response to a task, or several": not pool.is_single,
            "two responses to a task are the same": not pool.is_distinct,
        }
    return [reason for reason, holds in reasons.items() if holds]


def tasks_left_out(experiment: Experiment) -> list[str]:
    """A sentence where some tasks were not compared, or not of every policy: no model could respond to them,
    or ready-made responses lack.
    """
    failed = _n_left_out(experiment)
    if not failed:
        return _lacking(experiment)
    tasks = experiment.tasks.count()
    them = "it" if failed == 1 else "them"
    return [f"The result says nothing about {failed:,} of {tasks:,} tasks: the model failed on {them}."]


def _lacking(experiment: Experiment) -> list[str]:
    """A sentence where policies have ready-made responses to some of the tasks alone."""
    if experiment.responses != Experiment.Responses.IMPORTED:
        return []
    tasks = tasks_present(experiment).count()
    there = Q(responses__state=Response.State.DONE, responses__task__left_at=None)
    counted = experiment.policies.present().annotate(n=Count("responses__task", filter=there, distinct=True))
    found = dict(counted.filter(n__lt=tasks).order_by("n", "index").values_list("index", "n"))
    if not found:
        return []
    fewest, n = next(iter(found.items()))
    name = policy_names(experiment)[fewest].name
    if len(found) == 1:
        return [f"{name} has responses to {n:,} of {tasks:,} tasks: it is compared on these alone."]
    return [
        f"{len(found):,} policies have responses to some of the {tasks:,} tasks alone, {name} to {n:,}: two "
        "policies are compared on the tasks that both have."
    ]


def _n_left_out(experiment: Experiment) -> int:
    responses = Response.objects.filter(task=OuterRef("pk"), state=Response.State.FAILED, attempts__gt=0)
    judged = Comparison.objects.filter(task=OuterRef("pk"), state=Comparison.State.JUDGED)
    return experiment.tasks.filter(Exists(responses), ~Exists(judged)).count()
