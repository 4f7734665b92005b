"""Results by task and by tag: the comparisons that each policy won there."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import Count, Sum

from engine.models import Comparison, Experiment, Task

# Fewer comparisons say little about a policy at one tag.
ENOUGH = 3


@dataclass
class Won:
    """The comparisons of one policy, and how many of them it won; a tie is half a win."""

    wins: float = 0.0
    comparisons: int = 0

    @property
    def share(self) -> float:
        """The share of its comparisons that it won, in [0, 1]."""
        return self.wins / self.comparisons

    def add(self, wins: float, comparisons: int) -> None:
        """Count some more."""
        self.wins += wins
        self.comparisons += comparisons


@dataclass(frozen=True)
class Part:
    """A task, or the tasks of a tag, with the policies that were compared there.

    Attributes
    ----------
    tasks
        One task, or the compared tasks with the tag.
    tag
        Empty for a single task.
    comparisons
        Judged comparisons there.
    policies
        By policy index.
    """

    tasks: Sequence[Task]
    tag: str
    comparisons: int
    policies: dict[int, Won]


def by_task(experiment: Experiment) -> list[Part]:
    """Each task that was compared, in the order of the tasks."""
    rows = (
        Comparison.objects.filter(experiment=experiment, state=Comparison.State.JUDGED)
        .values_list("task_id", "policy_i__index", "policy_j__index")
        .annotate(wins=Sum("outcome"), n=Count("pk"))
        .order_by()
    )
    found: dict[int, dict[int, Won]] = defaultdict(lambda: defaultdict(Won))
    totals: dict[int, int] = defaultdict(int)
    for task, i, j, wins, n in rows:
        found[task][i].add(wins, n)
        found[task][j].add(n - wins, n)
        totals[task] += n
    tasks = experiment.tasks.in_bulk(list(found))
    parts = [Part([tasks[task]], "", totals[task], dict(won)) for task, won in found.items()]
    return sorted(parts, key=lambda part: part.tasks[0].position)


def by_tag(parts: Iterable[Part]) -> list[Part]:
    """The parts of the tasks added up by tag, sorted; a task with several tags counts for each of them."""
    of_tag: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        for tag in part.tasks[0].tags:
            of_tag[tag].append(part)
    together = []
    for tag, those in sorted(of_tag.items()):
        policies: dict[int, Won] = defaultdict(Won)
        for part in those:
            for policy, won in part.policies.items():
                policies[policy].add(won.wins, won.comparisons)
        tasks = [part.tasks[0] for part in those]
        together.append(Part(tasks, tag, sum(part.comparisons for part in those), dict(policies)))
    return together
