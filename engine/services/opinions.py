"""A language model's opinions: asks for them, claims them, stores them, and turns them into votes."""

import logging
import secrets
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet

from engine.domain.errors import WrongStateError
from engine.models import AuditEntry, Comparison, Experiment, Judgment, Opinion, Subscription, User, clock
from engine.selectors.opinions import (
    agreement_table,
    experiments_with_opinions,
    opinions_spent,
    votes_that_failed,
    votes_to_cast,
    without_opinion,
)
from engine.selectors.rubrics import identity, judge_name, why_no_judge
from engine.selectors.spending import overspent_experiments
from engine.services import audit, charges, worker_holds
from engine.services.judging import record_judgment
from engine.services.locks import locked_experiment
from engine.services.notifications import announce
from engine.services.showings import let_go

logger = logging.getLogger(__name__)

Stage = Experiment.LLMJudge
# A model that fails this often in a row is useless: it is halted until an admin resumes it.
MOST_FAILURES = 5


@transaction.atomic
def change_llm_judge(
    *,
    experiment_id: int,
    stage: str,
    rubric: str,
    budget: int,
    judge_model: str | None = None,
    by: User | None = None,
) -> Experiment:
    """Set the role of a language model: to say nothing, to give opinions that do not count, or to vote.

    It may vote once people and this very judge (this model, with this rubric) have judged enough of the same
    comparisons. A later change of the judge ends its votes until its agreement is measured and accepted
    again. A halted model is asked again; this is the only way to resume it.

    ``judge_model``: the connection that judges from now on, or "" for the judging worker's own model;
    ``None``: as before.

    Raises
    ------
    WrongStateError
        Says why this cannot be.
    """
    experiment = locked_experiment(experiment_id)
    if experiment.state == Experiment.State.CONCLUDED:
        raise WrongStateError("The experiment has concluded, so nobody judges it any more.")
    if experiment.judge != Experiment.Judge.HUMAN:
        raise WrongStateError(
            "A language model judges only beside people, but this experiment is judged by rule."
        )
    if judge_model is not None:
        experiment.judge_model = judge_model
    if stage != Stage.OFF and (reason := why_no_judge(experiment)):
        raise WrongStateError(reason)
    before = experiment.get_llm_judge_display() + (" (halted)" if experiment.llm_halted else "")
    experiment.rubric, experiment.llm_budget = rubric, budget
    agreed = ""
    if stage == Stage.VOTES:
        table = agreement_table(experiment)
        known = sum(map(sum, table))
        if known < settings.JUDGE_CALIBRATION:
            raise WrongStateError(
                f"People and the current language model have both judged {known} comparisons. It may vote "
                f"from {settings.JUDGE_CALIBRATION} on. Until then, let it give opinions while people judge."
            )
        experiment.llm_calibrated = identity(experiment)
        same = sum(table[answer][answer] for answer in range(3))
        agreed = f"It had given the same answer as people to {same} of {known}."
    experiment.llm_judge = stage
    if experiment.llm_halted:
        # Attempts while the model was out of order do not count against these comparisons.
        waiting = Opinion.objects.filter(comparison__experiment=experiment, state=Opinion.State.WAITING)
        waiting.update(attempts=0)
    experiment.llm_failures, experiment.llm_halted = 0, ""
    experiment.save(
        update_fields=[
            "llm_judge",
            "judge_model",
            "rubric",
            "llm_budget",
            "llm_calibrated",
            "llm_failures",
            "llm_halted",
        ]
    )
    audit.record(
        experiment=experiment,
        by=by,
        action=AuditEntry.Action.LLM_JUDGE,
        details={
            "before": before,
            "after": experiment.get_llm_judge_display(),
            "budget": budget,
            "rubric": rubric,
            "model": judge_name(experiment),
            "agreement": agreed,
        },
    )
    return experiment


@transaction.atomic
def ask_opinions(*, experiment_id: int, most: int) -> int:
    """Queue up to ``most`` comparisons for the language model; returns how many.

    Never exceeds the experiment's budget, even with concurrent callers. Failed opinions do not use it.
    """
    experiment = (
        experiments_with_opinions()
        .filter(pk=experiment_id)
        .select_for_update(no_key=True, skip_locked=True)
        .first()
    )
    if experiment is None:
        return 0
    room = min(most, experiment.llm_budget - opinions_spent(experiment))
    comparison_ids: list[int] = []
    for comparisons in without_opinion(experiment):
        if room > len(comparison_ids):
            more = comparisons.exclude(pk__in=comparison_ids).values_list("pk", flat=True)
            comparison_ids += more[: room - len(comparison_ids)]
    judge = identity(experiment)
    Opinion.objects.bulk_create(
        Opinion(comparison_id=pk, identity=judge, seed=secrets.randbelow(2**31)) for pk in comparison_ids
    )
    return len(comparison_ids)


@dataclass(frozen=True)
class ClaimedOpinions:
    """Opinions that one worker is asking for. Every later change of their rows names the token."""

    token: uuid.UUID
    opinions: Sequence[Opinion]


@dataclass(frozen=True)
class Asked:
    """The result of asking twice: both verdicts with reasons, or a failure and whether it may be retried.

    Attributes
    ----------
    outdated
        It was not asked at all, because the judge has changed; the model did not fail.
    blameless
        The server is away or refuses access: it is asked again, and no attempt is spent.
    """

    opinion_id: int
    left_first: str = ""
    right_first: str = ""
    reason: str = ""
    failure: str = ""
    retryable: bool = True
    outdated: bool = False
    blameless: bool = False


@transaction.atomic
def claim_opinions(
    *,
    worker: str,
    limit: int = 0,
    joining: uuid.UUID | None = None,
    rooms: Mapping[str, int] | None = None,
) -> ClaimedOpinions:
    """Take up to ``limit`` waiting opinions; no other worker gets the same ones.

    Experiments that no longer want opinions are left out. ``rooms`` is for a worker that asks connections:
    the most that each connection gets, by its name. Without it only experiments that name none are served.
    ``joining`` adds to a claim.
    """
    waiting = Opinion.objects.filter(
        state=Opinion.State.WAITING, comparison__experiment__in=experiments_with_opinions()
    )
    if overspent := overspent_experiments():
        waiting = waiting.exclude(comparison__experiment__in=overspent)
    ids: list[int] = []
    for name, room in ({"": limit} if rooms is None else rooms).items():
        ids += (
            waiting.filter(comparison__experiment__judge_model=name)
            .order_by("pk")
            .select_for_update(skip_locked=True, of=("self",))
            .values_list("pk", flat=True)[:room]
        )
    rows = Opinion.objects.filter(pk__in=ids)
    token = worker_holds.take(
        rows,
        seconds=settings.CLAIM_SECONDS,
        by=worker,
        joining=joining,
        state=Opinion.State.ASKING,
        attempts=F("attempts") + 1,
    )
    asked = worker_holds.held(rows, token).select_related(
        "comparison__experiment", "comparison__task", "comparison__response_i", "comparison__response_j"
    )
    return ClaimedOpinions(token=token, opinions=list(asked.order_by("pk")))


def renew_claim(*, claim: uuid.UUID) -> None:
    """Extend the claim on the rest of a batch, which is still being asked for."""
    worker_holds.renew(_being_asked(), claim, seconds=settings.CLAIM_SECONDS)


@transaction.atomic
def store_opinion(*, claim: uuid.UUID, asked: Asked, model: str, spent: Iterable[charges.Spent] = ()) -> bool:
    """Store the result of one opinion; ``False`` if its claim was lost meanwhile, and it is dropped. What was
    ``spent`` on it is stored anyway.

    A run of failed opinions halts the language model in the experiment.
    """
    charges.book(spent)
    opinions = (
        worker_holds.held(_being_asked(), claim).select_for_update(of=("self",)).select_related("comparison")
    )
    opinion = opinions.filter(pk=asked.opinion_id).first()
    if opinion is None:
        return False
    opinion.model = model
    opinion.failure_reason = asked.failure
    if not asked.failure:
        opinion.state = Opinion.State.DONE
        opinion.left_first, opinion.right_first = asked.left_first, asked.right_first
        agree = asked.left_first == asked.right_first
        opinion.choice = asked.left_first if agree else Judgment.Choice.TIE
        opinion.reason = asked.reason
        opinion.done_at = clock.now()
    elif asked.blameless:
        opinion.state = Opinion.State.WAITING
        opinion.attempts -= 1
    elif asked.retryable and opinion.attempts < settings.JUDGE_ATTEMPTS:
        opinion.state = Opinion.State.WAITING
    else:
        opinion.state = Opinion.State.FAILED
    for name, value in worker_holds.NOBODY.items():
        setattr(opinion, name, value)
    opinion.save()
    experiment_id = opinion.comparison.experiment_id
    if opinion.state == Opinion.State.DONE:
        Experiment.objects.filter(pk=experiment_id, llm_failures__gt=0).update(llm_failures=0)
    elif opinion.state == Opinion.State.FAILED and not asked.outdated:
        _count_failures(experiment_id, 1, opinion.failure_reason)
    return True


@transaction.atomic
def release_claim(*, claim: uuid.UUID, reason: str, blameless: bool) -> None:
    """Return unfinished opinions to the queue.

    ``blameless``: the worker was stopped or the backend is out of order, so the attempt does not count.
    """
    _give_back(worker_holds.held(_being_asked(), claim), reason, blameless=blameless)


@transaction.atomic
def expire_opinions(*, begun_anew: str = "") -> None:
    """Put back into the queue what dead workers were asking for; ``begun_anew`` as in
    :func:`engine.services.generation.expire_claims`.

    It costs no attempt: no text ends a worker.
    """
    lost = worker_holds.expired(_being_asked(), begun_anew=begun_anew)
    _give_back(lost, "The worker that was asking for it disappeared.", blameless=True)


def _being_asked() -> QuerySet[Opinion]:
    return Opinion.objects.filter(state=Opinion.State.ASKING)


def _give_back(lost: QuerySet[Opinion], reason: str, *, blameless: bool) -> None:
    if blameless:
        lost.update(attempts=F("attempts") - 1)
    spent = dict(
        lost.filter(attempts__gte=settings.JUDGE_ATTEMPTS)
        .select_for_update(of=("self",))
        .values_list("pk", "comparison__experiment")
    )
    worker_holds.release(lost.filter(pk__in=spent), state=Opinion.State.FAILED, failure_reason=reason)
    worker_holds.release(lost, state=Opinion.State.WAITING, failure_reason=reason)
    for experiment_id, failures in sorted(Counter(spent.values()).items()):
        _count_failures(experiment_id, failures, reason)


def is_halted(*, opinion_id: int) -> bool:
    """True if the language model was halted in the experiment of this opinion."""
    return Experiment.objects.filter(comparisons__opinions=opinion_id).exclude(llm_halted="").exists()


def _count_failures(experiment_id: int, failures: int, reason: str) -> None:
    experiment = locked_experiment(experiment_id)
    experiment.llm_failures += failures
    if experiment.llm_failures >= MOST_FAILURES and not experiment.llm_halted:
        experiment.llm_halted = f"{experiment.llm_failures} opinions in a row failed. The last one: {reason}"
        entry = audit.record(
            experiment=experiment,
            by=None,
            action=AuditEntry.Action.LLM_HALTED,
            details={"reason": experiment.llm_halted},
        )
        announce(
            experiment=experiment,
            event=Subscription.Event.UNHEALTHY,
            key=f"llm halted {entry.pk}",
            reason=(
                f"The language model that judges was halted. {experiment.llm_halted}\n"
                "It gets no more questions until somebody resumes it on the dashboard."
            ),
        )
        logger.error("Halted the language model that judges in %s: %s", experiment, experiment.llm_halted)
    experiment.save(update_fields=["llm_failures", "llm_halted"])


def cast_votes(*, experiment_id: int) -> int:
    """Turn the opinions that may vote into judgments, each in a transaction of its own; returns how many."""
    experiment = Experiment.objects.get(pk=experiment_id)
    _let_failures_go(experiment)
    ids = list(votes_to_cast(experiment).values_list("pk", flat=True))
    return sum(_cast_vote(opinion_id) is not None for opinion_id in ids)


@transaction.atomic
def _let_failures_go(experiment: Experiment) -> None:
    """Discard what the model should have judged and could not: why it failed may depend on its answer."""
    failed = votes_that_failed(experiment).select_for_update(no_key=True, skip_locked=True, of=("self",))
    for comparison in failed.order_by("pk"):
        let_go(comparison, "The language model could not judge it.")


@transaction.atomic
def _cast_vote(opinion_id: int) -> Judgment | None:
    """The judgment from one opinion; ``None`` if it may no longer vote or somebody was faster."""
    opinion = Opinion.objects.get(pk=opinion_id)
    comparison = (
        Comparison.objects.select_for_update(no_key=True, skip_locked=True, of=("self",))
        .select_related("experiment")
        .filter(pk=opinion.comparison_id)
        .first()
    )
    # Read again under the lock that every click takes too.
    if comparison is None or not votes_to_cast(comparison.experiment).filter(pk=opinion_id).exists():
        return None
    opinion.judgment = record_judgment(
        comparison=comparison,
        choice=opinion.choice,
        judge=Judgment.Judge.LLM,
        via=Judgment.Via.MODEL,
        token=uuid.uuid4(),
        reason=f"{opinion.model}: {opinion.reason}"[:200],
    )
    opinion.save(update_fields=["judgment"])
    return opinion.judgment
