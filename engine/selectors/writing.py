"""The work for writers: the improvements that want texts, the material for these, and first answers."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta

from django.db.models import Q, QuerySet

from engine.domain.proposals import SCREENING_TASKS, Brief, Compared, Tried
from engine.models import Comparison, Experiment, Improvement, Judgment, Level, Policy, Proposal, Task, clock
from engine.selectors.counts import wins_matrix
from engine.selectors.improvements import TEXTS, text_of
from engine.selectors.opinions import experiments_with_opinions, opinions_spent
from engine.selectors.spending import overspent_experiments
from engine.selectors.task_changes import tasks_present

# Longer texts of comparisons are cut for the writer.
_LONGEST = 3_000
_MOST_EFFECTS = 8
# A win rate from fewer comparisons says nothing.
_FEWEST = 5
# After a call that gave nothing usable, the next one comes so much later, twice as late each time.
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=20), timedelta(hours=1)
# A worker that has had one for so long has died.
WRITING_TAKES, _ANSWERS_TAKE = timedelta(minutes=10), timedelta(minutes=5)
SCREENING_TAKES = timedelta(minutes=10)
_MOST_TASKS = 3


def improvements_to_write() -> list[Improvement]:
    """Improvements that want texts now, and that no worker writes for."""
    free = Q(writing_since=None) | Q(writing_since__lt=clock.now() - WRITING_TAKES)
    open_ones = Improvement.objects.filter(free, state=Improvement.State.OPEN).exclude(wants={})
    return [each for each in open_ones if not _pauses(each)]


def _pauses(improvement: Improvement) -> bool:
    """True for a while after calls that gave nothing: the model is away, or writes what cannot be used."""
    fruitless = 0
    newest = list(improvement.writings.order_by("-pk").prefetch_related("proposals")[:12])
    for writing in newest:
        # What the owner refused was usable.
        texts = writing.proposals.all()
        if any(each.state != Proposal.State.REFUSED or each.by_id is not None for each in texts):
            break
        fruitless += 1
    if not fruitless:
        return False
    pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (fruitless - 1))
    return bool(clock.now() < newest[0].created_at + pause)


def proposals_to_answer() -> list[Proposal]:
    """Proposals that wait for an OK and have no first answers yet."""
    free = Q(answers_since=None) | Q(answers_since__lt=clock.now() - _ANSWERS_TAKE)
    waiting = Proposal.objects.filter(free, state=Proposal.State.PROPOSED, answers=[])
    waiting = waiting.exclude(improvement__experiment__in=overspent_experiments())
    return list(waiting.select_related("improvement__experiment", "improvement__factor", "parent"))


def proposals_being_answered() -> QuerySet[Proposal]:
    """Proposals whose first answers a worker writes now."""
    return Proposal.objects.filter(answers=[], answers_since__gte=clock.now() - _ANSWERS_TAKE)


def tasks_to_answer(proposal: Proposal) -> list[Task]:
    """Tasks that are open to the writer: those that judge should decide nothing beforehand."""
    improvement = proposal.improvement
    most = SCREENING_TASKS if screens(improvement.experiment) else _MOST_TASKS
    return list(tasks_present(improvement.experiment).filter(pk__in=improvement.open_tasks)[:most])


def screens(experiment: Experiment) -> bool:
    """True if its language model compares proposals with their parents before people do."""
    asked = experiments_with_opinions().filter(pk=experiment.pk).exists()
    return asked and opinions_spent(experiment) + SCREENING_TASKS <= experiment.llm_budget


def proposals_to_screen(judges: Collection[str]) -> list[Proposal]:
    """Proposals whose first answers one of these connections judges now; "": a worker's own model."""
    free = Q(screened_since=None) | Q(screened_since__lt=clock.now() - SCREENING_TAKES)
    found = Proposal.objects.filter(
        free,
        state=Proposal.State.PROPOSED,
        screened__isnull=True,
        improvement__experiment__in=experiments_with_opinions(),
        improvement__experiment__judge_model__in=judges,
    )
    found = found.exclude(answers=[]).exclude(improvement__experiment__in=overspent_experiments())
    return list(found.select_related("improvement__experiment"))


def levels_of(proposal: Proposal) -> list[Level]:
    """The levels of its parent, in the order of the factors."""
    return list(proposal.parent.levels.select_related("factor").order_by("factor__position"))


def with_all(improvement_id: int) -> Improvement:
    """An improvement with its experiment and factor."""
    return Improvement.objects.select_related("experiment", "factor").get(pk=improvement_id)


def parents_of(improvement: Improvement, indices: Sequence[int]) -> dict[int, Policy]:
    """Policies of its experiment by index."""
    return {each.index: each for each in improvement.experiment.policies.filter(index__in=indices)}


def brief_of(improvement: Improvement, parent: Policy, votes: Sequence[Comparison]) -> Brief:
    """What a writer is told; ``votes`` are the comparisons of the parent that it may see."""
    experiment = improvement.experiment
    comments: dict[int, list[str]] = defaultdict(list)
    said = Judgment.objects.filter(comparison__in=votes, standing=True, comment__gt="").order_by("pk")
    for comparison_id, comment in said.values_list("comparison", "comment"):
        comments[comparison_id].append(comment)
    tried = Proposal.objects.filter(improvement__experiment=experiment).order_by("number")
    return Brief(
        question=experiment.question,
        guidelines=experiment.guidelines,
        factor=improvement.factor.name,
        kind=improvement.factor.get_kind_display().lower(),
        champion=text_of(parent, improvement.factor),
        longest=improvement.longest,
        compared=[_compared(each, parent, comments[each.pk]) for each in votes],
        effects=list(_effects(improvement)),
        tried=[
            Tried(text, ended)
            for each in tried
            for text, ended in ((each.written_text, "edited by people"), (each.text, _ended(each)))
            if text
        ],
        wish=improvement.wish,
    )


def _compared(row: Comparison, parent: Policy, comments: Sequence[str]) -> Compared:
    is_i = row.policy_i_id == parent.pk
    own, other = (row.response_i, row.response_j) if is_i else (row.response_j, row.response_i)
    outcome = row.outcome if row.outcome is not None else 0.5
    return Compared(
        task=row.task.prompt[:_LONGEST],
        champion=own.text[:_LONGEST],
        other=other.text[:_LONGEST],
        outcome=outcome if is_i else 1.0 - outcome,
        comments=comments,
        shown_as="A" if is_i == row.i_on_left else "B",
    )


def _ended(proposal: Proposal) -> str:
    match proposal.state:
        case Proposal.State.DROPPED:
            return f"People preferred the champion: dropped after {proposal.compared} comparisons."
        case Proposal.State.REFUSED if proposal.by_id is not None:
            return f"The owner refused it: {proposal.refused_because}"
        case Proposal.State.REFUSED if proposal.screened:
            return "A language model preferred the champion's answers."
        case Proposal.State.REFUSED:
            # The reason may quote a task that judges.
            return "Refused by rule: too long, nearly a copy, or about single tasks or the judges."
        case Proposal.State.PROMOTED:
            return "People preferred it: it became the champion."
    return "Not settled yet."


def _effects(improvement: Improvement) -> Iterator[str]:
    """How often the texts of this factor were preferred to others, the most compared first."""
    wins = wins_matrix(improvement.experiment)
    policies = improvement.experiment.policies.prefetch_related("levels")
    at: dict[int, list[int]] = defaultdict(list)
    levels = {}
    for policy in policies:
        level = next(each for each in policy.levels.all() if each.factor_id == improvement.factor_id)
        at[level.pk].append(policy.index)
        levels[level.pk] = level
    rows = []
    for pk, indices in at.items():
        others = [policy.index for policy in policies if policy.index not in indices]
        won, lost = wins[indices][:, others].sum(), wins[others][:, indices].sum()
        if won + lost >= _FEWEST:
            rows.append((won + lost, won, levels[pk].value.get(TEXTS[improvement.factor.kind], "")))
    for met, won, text in sorted(rows, key=lambda row: -row[0])[:_MOST_EFFECTS]:
        yield f"“{text[:300]}” was preferred in {won:g} of {met:g} comparisons with others."
