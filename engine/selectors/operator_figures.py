"""Figures of the whole installation for its operators. None of them depends on an outcome."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, Max, Min

from engine.models import Assignment, Comparison, Experiment, Judgment, Response, clock
from engine.selectors import workers
from engine.selectors.spending import spent_lately
from engine.selectors.workers import Worker

_QUEUES = ("control", "analysis", "generation", "judging")
_NEWEST = 1000
_MINUTE = timedelta(seconds=60)


@dataclass(frozen=True)
class Figures:
    """The figures at one moment.

    Attributes
    ----------
    judgments : int
        The number of the newest judgment. It only grows, and reading it is cheap.
    experiments : dict
        Experiments by state.
    comparisons : dict
        Comparisons of running experiments that wait, by the experiment's number and their state.
    newest_assignments : dict
        The newest thousand assignments, by state; many open ones mean that people leave.
    responses_waiting, oldest_waiting_seconds
        Responses that no worker has taken yet.
    newest_responses : dict
        The newest thousand responses that are over, by state and, of those that failed, the first words of
        the reason.
    tokens_per_second : float
        Tokens of the newest thousand responses that were written within the last minute, for each second.
    spent : dict
        The money spent within 24 hours, by the connection's name and the currency.
    workers : list of Worker
        The workers that were ever seen.
    """

    judgments: int
    experiments: dict[str, int]
    comparisons: dict[tuple[int, str], int]
    newest_assignments: dict[str, int]
    responses_waiting: int
    oldest_waiting_seconds: float
    newest_responses: dict[tuple[str, str], int]
    tokens_per_second: float
    spent: dict[tuple[str, str], float]
    workers: list[Worker]


def figures() -> Figures:
    """Read all figures in a few queries, none of which becomes slower as rows accumulate."""
    now = clock.now()
    waiting = Response.objects.filter(state=Response.State.WAITING).aggregate(
        n=Count("pk"), first=Min("created_at")
    )
    over = Response.objects.filter(state__in=[Response.State.DONE, Response.State.FAILED]).order_by("-pk")
    responses: Counter[tuple[str, str]] = Counter()
    tokens = 0
    for state, reason, n_tokens, done_at in over.values_list(
        "state", "failure_reason", "completion_tokens", "done_at"
    )[:_NEWEST]:
        responses[state, _kind_of(reason) if state == Response.State.FAILED else ""] += 1
        if done_at is not None and done_at > now - _MINUTE:
            tokens += n_tokens or 0
    moving = Comparison.objects.filter(
        experiment__state=Experiment.State.RUNNING, state__in=Comparison.PENDING
    )
    return Figures(
        judgments=Judgment.objects.aggregate(newest=Max("pk"))["newest"] or 0,
        experiments=dict(
            Experiment.objects.order_by()
            .values_list("state")
            .annotate(n=Count("pk"))
            .values_list("state", "n")
        ),
        comparisons={
            (experiment, state): n
            for experiment, state, n in moving.order_by()
            .values_list("experiment_id", "state")
            .annotate(n=Count("pk"))
        },
        newest_assignments=dict(
            Counter(Assignment.objects.order_by("-pk").values_list("state", flat=True)[:_NEWEST])
        ),
        responses_waiting=waiting["n"],
        oldest_waiting_seconds=(now - waiting["first"]).total_seconds() if waiting["first"] else 0.0,
        newest_responses=dict(responses),
        tokens_per_second=tokens / _MINUTE.total_seconds(),
        spent=spent_lately(),
        workers=workers.seen(*_QUEUES),
    )


def _kind_of(reason: str) -> str:
    """The part of a reason that many failures share: up to its first colon, without numbers."""
    words = "".join(character for character in reason.split(":", maxsplit=1)[0] if not character.isdigit())
    return " ".join(words.split())[:60] or "not said"
