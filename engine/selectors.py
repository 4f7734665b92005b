"""The read side: counts, designs, progress, health. Nothing here writes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Count, Q, QuerySet, Sum
from django.utils import timezone

from engine.core import Design, Unstructured
from engine.models import (
    Check,
    Comparison,
    Experiment,
    Judgment,
    Lease,
    Membership,
    PairCount,
    Response,
    Snapshot,
    WorkerPulse,
)
from engine.outcomes import joint_outcome

Pair = tuple[int, int]

# ---------------------------------------------------------------- counts and designs


def standing(judgments: QuerySet[Judgment]) -> QuerySet[Judgment]:
    """Those that were not taken back."""
    return judgments.filter(void__isnull=True)


def standing_judgments(experiment_id: int) -> QuerySet[Judgment]:
    """The judgments of an experiment that were not taken back."""
    return standing(Judgment.objects.filter(comparison__experiment_id=experiment_id))


def choices(experiment: Experiment) -> list[str]:
    """What an annotator of this experiment may answer."""
    offered = [Judgment.Choice.LEFT, Judgment.Choice.RIGHT]
    if experiment.allow_tie:
        offered.append(Judgment.Choice.TIE)
    if experiment.allow_both_bad:
        offered.append(Judgment.Choice.BOTH_BAD)
    return [str(choice) for choice in offered]


def comparison_count(experiment_id: int) -> int:
    """Judged comparisons that stand."""
    total = PairCount.objects.filter(experiment_id=experiment_id).aggregate(total=Sum("comparisons"))["total"]
    return int(total or 0)


def pair_counts(experiment: Experiment) -> dict[Pair, tuple[float, int]]:
    """``{(i, j): (wins of i, comparisons)}`` for the pairs i < j, by policy index."""
    rows = PairCount.objects.filter(experiment=experiment).values_list(
        "policy_i__index", "policy_j__index", "wins_i", "comparisons"
    )
    return {(i, j): (wins, n) for i, j, wins, n in rows}


def outcomes(experiment: Experiment) -> Iterator[tuple[int, int, float]]:
    """``(i, j, D)`` of every judged comparison by policy index, in the order in which they were completed.

    Computed from the standing judgments alone: this is what the counts must equal.
    """
    needed = experiment.overlap if experiment.judge == Experiment.Judge.HUMAN else 1
    heard: defaultdict[int, list[float]] = defaultdict(list)
    rows = (
        standing_judgments(experiment.pk)
        .order_by("pk")
        .values_list("comparison_id", "comparison__policy_i__index", "comparison__policy_j__index", "outcome")
    )
    for comparison_id, i, j, outcome in rows.iterator():
        heard[comparison_id].append(outcome)
        if len(heard[comparison_id]) == needed:
            yield i, j, joint_outcome(heard.pop(comparison_id), experiment.overlap_rule)


def counts_from_judgments(experiment: Experiment) -> dict[Pair, tuple[float, int]]:
    """The same as :func:`pair_counts`, counted afresh from the judgments; pairs without any are left out."""
    wins: defaultdict[Pair, float] = defaultdict(float)
    comparisons: Counter[Pair] = Counter()
    for i, j, outcome in outcomes(experiment):
        wins[i, j] += outcome
        comparisons[i, j] += 1
    return {pair: (wins[pair], n) for pair, n in comparisons.items()}


def wins_matrix(experiment: Experiment) -> npt.NDArray[np.float64]:
    """K×K: entry (i, j) is the sum of outcomes of i against j."""
    n_policies = experiment.policies.count()
    wins = np.zeros((n_policies, n_policies))
    for (i, j), (wins_i, n) in pair_counts(experiment).items():
        wins[i, j] = wins_i
        wins[j, i] = n - wins_i
    return wins


def in_flight_matrix(experiment: Experiment) -> npt.NDArray[np.int64]:
    """K×K, symmetric: comparisons of each pair whose outcome is still to come."""
    n_policies = experiment.policies.count()
    in_flight = np.zeros((n_policies, n_policies), dtype=np.int64)
    pending = (
        Comparison.objects.filter(experiment=experiment, state__in=Comparison.PENDING)
        .values_list("policy_i__index", "policy_j__index")
        .annotate(n=Count("pk"))
    )
    for i, j, n in pending:
        in_flight[i, j] = in_flight[j, i] = n
    return in_flight


def design_seed(experiment: Experiment) -> list[int]:
    """The seed of the next picks: a function of the experiment and of how many it has planned."""
    return [experiment.seed, experiment.planned_count]


def _design_settings(experiment: Experiment) -> dict[str, Any]:
    return {
        "delta": experiment.delta,
        "epsilon": experiment.epsilon,
        "sampler": experiment.sampler,
        "stopping": experiment.stopping,
        "seed": design_seed(experiment),
        "budget": experiment.budget,
    }


def design(experiment: Experiment) -> Design:
    """The experiment's design as its counts stand now."""
    latest = latest_snapshot(experiment)
    wins = wins_matrix(experiment)
    return Design.from_counts(
        Unstructured(len(wins)),
        wins,
        in_flight=in_flight_matrix(experiment),
        peak_evidence=None if latest is None else np.array(latest.peak_evidence),
        **_design_settings(experiment),
    )


def replayed_design(experiment: Experiment) -> Design:
    """The experiment's design told every standing judgment in order, from nothing."""
    replay = Design(
        space=Unstructured(experiment.policies.count()),
        **_design_settings(experiment),
    )
    for i, j, outcome in outcomes(experiment):
        replay.tell(i, j, outcome)
    return replay


def latest_snapshot(experiment: Experiment) -> Snapshot | None:
    return experiment.snapshots.order_by("-pk").first()


def expected_left(experiment: Experiment) -> float | None:
    """Comparisons that a running experiment still needs, where that is known and within its budget."""
    latest = latest_snapshot(experiment)
    if experiment.state != Experiment.State.RUNNING or latest is None or latest.expected_left is None:
        return None
    within_budget = latest.comparisons + latest.expected_left <= experiment.budget
    return latest.expected_left if within_budget else None


# ---------------------------------------------------------------- buffer

_PRESENCE = timedelta(seconds=60)
_SAFETY = 2.0
_SAFETY_NEAR_DECISION = 1.7


def annotators_present(experiment: Experiment) -> int:
    """Annotators who look at a pair now, or judged one within the last minute and may be waiting for another."""
    since = timezone.now() - _PRESENCE
    leases = Lease.objects.filter(comparison__experiment=experiment)
    here = leases.filter(Q(state=Lease.State.ACTIVE) | Q(comparison__judged_at__gte=since))
    return here.values("annotator").distinct().count()


def click_seconds(experiment: Experiment) -> float | None:
    """Mean time from seeing a pair to judging it, over the last fifty."""
    judged = Lease.objects.filter(comparison__experiment=experiment, state=Lease.State.JUDGED)
    recent = judged.order_by("-comparison__judged_at")
    spans = [
        end - start
        for start, end in recent.values_list("granted_at", "comparison__judged_at")[:50]
        if end is not None
    ]
    return _mean_seconds(spans)


def click_rate(experiment: Experiment) -> float:
    """Judgments per second that the annotators who are here would make if they never had to wait.

    Not the judgments of late: of those there are few just when pairs are lacking.
    """
    seconds = click_seconds(experiment)
    return annotators_present(experiment) / seconds if seconds else 0.0


def generation_seconds(experiment: Experiment) -> float | None:
    """Mean time from planning a comparison to its being ready, over the last fifty."""
    recent = Comparison.objects.filter(experiment=experiment, ready_at__isnull=False).order_by("-pk")
    return _mean_seconds([end - start for end, start in recent.values_list("ready_at", "created_at")[:50]])


def _mean_seconds(spans: Sequence[timedelta]) -> float | None:
    return sum(spans, timedelta()).total_seconds() / len(spans) if spans else None


def buffer_target(experiment: Experiment) -> int:
    """How many planned and ready comparisons to keep ahead.

    People: Little's law, what is asked for while one comparison is being generated, with a safety factor;
    and at least one for every annotator who is here. Near the decision no more than is expected to be needed, and a smaller
    factor. The rule judge never waits, so there generation sets the pace: one batch being written and one
    waiting. A small buffer is worth having, since pairs chosen ahead are chosen knowing less.

    While generation cannot keep up, a longer queue would help nobody: then the least is enough.
    """
    if waiting_responses() >= _LONG_QUEUE_BATCHES * settings.GENERATION_BATCH_MAX:
        return settings.BUFFER_MIN
    if experiment.judge == Experiment.Judge.RULE:
        return min(settings.BUFFER_MAX, max(settings.BUFFER_MIN, settings.GENERATION_BATCH))
    demand = click_rate(experiment) * (generation_seconds(experiment) or 0.0)
    ample = max(annotators_present(experiment), math.ceil(_SAFETY * demand))
    left = expected_left(experiment)
    if left is not None and left < ample:
        ample = max(math.ceil(left), math.ceil(_SAFETY_NEAR_DECISION * demand))
    return min(settings.BUFFER_MAX, settings.BUFFER_MIN + ample)


_LONG_QUEUE_BATCHES = 2


def waiting_responses() -> int:
    """Responses of all experiments that no worker has taken yet."""
    return Response.objects.filter(state=Response.State.WAITING).count()


@dataclass(frozen=True)
class Waste:
    """What was generated and never judged."""

    generated: int
    unused: int
    unused_tokens: int

    @property
    def share(self) -> float:
        return self.unused / self.generated if self.generated else 0.0


def waste(experiment: Experiment) -> Waste:
    """How much of what was written no judgment has used: after the decision, none ever will."""
    written = Response.objects.filter(policy__experiment=experiment, state=Response.State.DONE)
    judged = Comparison.objects.filter(experiment=experiment, state=Comparison.State.JUDGED)
    unused = written.exclude(pk__in=judged.values("response_i")).exclude(pk__in=judged.values("response_j"))
    return Waste(
        generated=written.count(),
        unused=unused.count(),
        unused_tokens=unused.aggregate(total=Sum("completion_tokens"))["total"] or 0,
    )


def cost(experiment: Experiment) -> float:
    """What the experiment's tokens cost at the prices of the settings, in their currency."""
    tokens = Response.objects.filter(policy__experiment=experiment).aggregate(
        prompt=Sum("prompt_tokens"), completion=Sum("completion_tokens")
    )
    prompt = (tokens["prompt"] or 0) * settings.PRICE_PROMPT_TOKENS
    return (prompt + (tokens["completion"] or 0) * settings.PRICE_COMPLETION_TOKENS) / 1e6


_FAILING_RUN = 20
_PROBE_INTERVAL = timedelta(seconds=30)


def generation_is_failing(experiment: Experiment) -> bool:
    """Whether the latest responses all failed, so that planning more would only make more failures."""
    settled = Response.objects.filter(
        policy__experiment=experiment, state__in=[Response.State.DONE, Response.State.FAILED]
    ).order_by("-pk")
    states = list(settled.values_list("state", flat=True)[:_FAILING_RUN])
    return len(states) == _FAILING_RUN and Response.State.DONE not in states


def probe_is_due(experiment: Experiment) -> bool:
    """Whether nothing was planned for half a minute: time to see if generation works again."""
    since = timezone.now() - _PROBE_INTERVAL
    return not Comparison.objects.filter(experiment=experiment, created_at__gte=since).exists()


# ---------------------------------------------------------------- people


def annotator_count(experiment_id: int) -> int:
    return Membership.objects.filter(
        experiment_id=experiment_id, role=Membership.Role.ANNOTATOR, user__is_active=True
    ).count()


def experiments_to_label(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Experiment]:
    """Experiments in which this user is an annotator and that have left the drawing board."""
    return (
        Experiment.objects.filter(
            judge=Experiment.Judge.HUMAN,
            memberships__user=user,
            memberships__role=Membership.Role.ANNOTATOR,
        )
        .exclude(state=Experiment.State.DRAFT)
        .annotate(
            mine=Count(
                "comparisons__judgments",
                filter=Q(comparisons__judgments__annotator=user, comparisons__judgments__void__isnull=True),
            )
        )
    )


def experiments_to_watch(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Experiment]:
    """Experiments whose dashboard this user may see."""
    if getattr(user, "is_superuser", False):
        return Experiment.objects.all()
    roles = [Membership.Role.VIEWER, Membership.Role.EDITOR, Membership.Role.OWNER]
    return Experiment.objects.filter(memberships__user=user, memberships__role__in=roles).distinct()


def experiments_to_run(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Experiment]:
    """Experiments that this user may start, pause and stop."""
    if getattr(user, "is_superuser", False):
        return Experiment.objects.all()
    roles = [Membership.Role.EDITOR, Membership.Role.OWNER]
    return Experiment.objects.filter(memberships__user=user, memberships__role__in=roles).distinct()


def own_judgments(experiment: Experiment, user: AbstractBaseUser | AnonymousUser) -> QuerySet[Judgment]:
    """This user's judgments that stand, newest first."""
    return (
        standing_judgments(experiment.pk)
        .filter(annotator=user)
        .select_related("comparison__task", "comparison__response_i", "comparison__response_j")
        .order_by("-pk")
    )


def judged_today(experiment_id: int, user: AbstractBaseUser | AnonymousUser) -> int:
    """This user's answers of today: judgments that stand, and checks, which must not stand out by not counting."""
    midnight = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    judged = standing_judgments(experiment_id).filter(annotator=user, created_at__gte=midnight)
    checks = Check.objects.filter(
        experiment_id=experiment_id, annotator=user, judged_at__gte=midnight, passed__isnull=False
    )
    return judged.count() + checks.exclude(kind=Check.Kind.PRACTICE).count()


# ---------------------------------------------------------------- queue health


@dataclass(frozen=True)
class QueueHealth:
    """What the workers are doing about one experiment."""

    comparisons: dict[str, int]
    responses: dict[str, int]
    oldest_waiting_seconds: float
    generation_seconds: float | None
    tokens: int
    control_seen_seconds: float | None
    generation_seen_seconds: float | None
    last_failure: str
    leaks: int

    @property
    def control_alive(self) -> bool:
        return is_recent(self.control_seen_seconds)

    @property
    def generation_alive(self) -> bool:
        return is_recent(self.generation_seen_seconds)

    @property
    def healthy(self) -> bool:
        return self.control_alive and self.generation_alive and self.oldest_waiting_seconds < 60


def is_recent(seconds: float | None) -> bool:
    """Whether a worker last seen so long ago counts as alive: one busy with a batch is silent for a while."""
    return seconds is not None and seconds < settings.CLAIM_SECONDS + 3 * settings.SWEEP_SECONDS


def queue_health(experiment: Experiment) -> QueueHealth:
    now = timezone.now()
    responses = Response.objects.filter(policy__experiment=experiment)
    waiting = responses.filter(state=Response.State.WAITING)
    oldest = waiting.order_by("created_at").values_list("created_at", flat=True).first()
    troubled = responses.filter(state__in=[Response.State.FAILED, Response.State.WAITING])
    failure = troubled.exclude(failure_reason="").exclude(claimed_by="").order_by("-claimed_at").first()
    return QueueHealth(
        comparisons=_tally(Comparison.objects.filter(experiment=experiment)),
        responses=_tally(responses),
        oldest_waiting_seconds=0.0 if oldest is None else (now - oldest).total_seconds(),
        generation_seconds=generation_seconds(experiment),
        tokens=responses.aggregate(total=Sum("completion_tokens"))["total"] or 0,
        control_seen_seconds=_seen(WorkerPulse.objects.filter(queue="control"), now),
        generation_seen_seconds=_seen(WorkerPulse.objects.filter(queue="generation"), now),
        last_failure="" if failure is None else failure.failure_reason,
        leaks=responses.exclude(leak="").count(),
    )


def _tally(rows: QuerySet[Comparison] | QuerySet[Response]) -> dict[str, int]:
    return Counter(dict(rows.values_list("state").annotate(n=Count("pk")).order_by()))


def _seen(pulses: QuerySet[WorkerPulse], now: datetime) -> float | None:
    latest = pulses.order_by("-seen_at").values_list("seen_at", flat=True).first()
    return None if latest is None else (now - latest).total_seconds()


# ---------------------------------------------------------------- dashboard


def race(experiment: Experiment, most: int = 200) -> list[Snapshot]:
    """The evidence race: at most ``most`` snapshots, evenly spread, the first and the last among them."""
    ids = list(experiment.snapshots.order_by("pk").values_list("pk", flat=True))
    if len(ids) > most:
        picked = np.linspace(0, len(ids) - 1, most).round().astype(int)
        ids = [ids[i] for i in picked]
    return list(experiment.snapshots.filter(pk__in=ids).order_by("pk"))


def judged_rows(experiment: Experiment) -> QuerySet[Judgment]:
    """The rows of the export: every standing judgment with all that it hangs on, in order."""
    return (
        standing_judgments(experiment.pk)
        .select_related(
            "annotator",
            "comparison__task",
            "comparison__policy_i",
            "comparison__policy_j",
            "comparison__response_i",
            "comparison__response_j",
        )
        .order_by("pk")
    )
