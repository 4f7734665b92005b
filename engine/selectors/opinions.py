"""A language model's opinions on an experiment's comparisons, and its agreement with people."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from django.conf import settings
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet

from engine.core.agreement import Agreement, Proportion, agreement, proportion
from engine.domain.list_prices import Money
from engine.domain.outcome_of_answers import joint_outcome
from engine.domain.texts import NOTHING
from engine.models import Comparison, Experiment, Judgment, Opinion, Proposal
from engine.selectors.connection_pauses import judged_by_connection
from engine.selectors.counts import standing
from engine.selectors.rubrics import identity, why_no_judge
from engine.selectors.spending import judging_spent

_ANSWERS = (Judgment.Choice.LEFT, Judgment.Choice.RIGHT, Judgment.Choice.TIE)


@dataclass(frozen=True)
class OpinionReport:
    """The figures that an admin needs about the language model before and while it votes.

    Attributes
    ----------
    table : list of list of int
        Comparisons that both judged: rows are what people said, columns what the model said, in the order
        left, right, tie.
    consistent : Proportion
        Opinions whose two verdicts, one in either order, are the same.
    first_twice, second_twice : int
        Opinions in which it preferred the first response both times, or the second both times.
    spent : int
        Opinions that count against the budget: every one that was asked for and did not fail.
    votes : int
        Its votes that stand.
    """

    agreement: Agreement
    table: list[list[int]]
    consistent: Proportion
    first_twice: int
    second_twice: int
    states: dict[str, int]
    spent: int
    votes: int
    prompt_tokens: int
    completion_tokens: int
    cost: Money
    last_failure: str
    calibrated: bool

    @property
    def enough(self) -> bool:
        """True if the judge has been compared with people often enough to be allowed to vote."""
        return self.agreement.exact.n >= settings.JUDGE_CALIBRATION


def opinion_report(experiment: Experiment) -> OpinionReport | None:
    """The figures of the present judge (this model, these words); its cost includes earlier judges.

    ``None`` where no opinion was ever asked for.
    """
    every = Opinion.objects.filter(comparison__experiment=experiment)
    if not every.exists():
        return None
    read, written, cost = judging_spent(experiment)
    present = every.filter(identity=identity(experiment))
    states: Counter[str] = Counter()
    orders: Counter[tuple[str, str]] = Counter()
    for state, left_first, right_first, n in present.values_list(
        "state", "left_first", "right_first"
    ).annotate(n=Count("pk")):
        states[state] += n
        if state == Opinion.State.DONE:
            orders[left_first, right_first] += n
    same = sum(n for (left_first, right_first), n in orders.items() if left_first == right_first)
    left, right = Judgment.Choice.LEFT, Judgment.Choice.RIGHT
    failed = present.exclude(failure_reason="").order_by("-pk").first()
    table = agreement_table(experiment)
    return OpinionReport(
        agreement=agreement(np.array(table, dtype=np.float64)),
        table=table,
        consistent=proportion(same, orders.total()),
        first_twice=orders[left, right],
        second_twice=orders[right, left],
        states=dict(states),
        spent=opinions_spent(experiment),
        votes=standing(Judgment.objects.filter(opinion__in=every)).count(),
        prompt_tokens=read,
        completion_tokens=written,
        cost=cost,
        last_failure="" if failed is None else failed.failure_reason,
        calibrated=bool(experiment.llm_calibrated) and experiment.llm_calibrated == identity(experiment),
    )


def agreement_table(experiment: Experiment) -> list[list[int]]:
    """3×3: people's answer by the language model's, over the comparisons of which both are known.

    Several people's judgments of one comparison are combined as for D. A result between the sides (they are
    divided, or it was a tie) is a tie. Judgments that were taken back do not count.
    """
    known = standing(Judgment.objects.filter(judge=Judgment.Judge.HUMAN)).filter(
        comparison__experiment=experiment,
        comparison__opinions__identity=identity(experiment),
        comparison__opinions__state=Opinion.State.DONE,
    )
    heard: dict[tuple[int, bool, str], list[float]] = {}
    for comparison_id, i_on_left, choice, outcome in known.values_list(
        "comparison_id", "comparison__i_on_left", "comparison__opinions__choice", "outcome"
    ):
        heard.setdefault((comparison_id, i_on_left, choice), []).append(outcome)
    table = [[0, 0, 0] for _ in _ANSWERS]
    for (_, i_on_left, choice), outcomes in heard.items():
        people = _side(joint_outcome(outcomes, experiment.overlap_rule), i_on_left)
        table[_ANSWERS.index(people)][_ANSWERS.index(Judgment.Choice(choice))] += 1
    return table


def _side(outcome: float, i_on_left: bool) -> Judgment.Choice:
    if outcome == 0.5:
        return Judgment.Choice.TIE
    return Judgment.Choice.LEFT if (outcome > 0.5) == i_on_left else Judgment.Choice.RIGHT


def experiments_with_opinions() -> QuerySet[Experiment]:
    """The experiments in which a language model may be asked now: a connection that they may use, or, where
    they name none, the judging worker's own.
    """
    can_judge = Q(judged_by_connection())
    if settings.JUDGE_BACKEND:
        can_judge |= Q(judge_model="")
    return Experiment.objects.filter(
        can_judge,
        judge=Experiment.Judge.HUMAN,
        state__in=[Experiment.State.RUNNING, Experiment.State.PAUSED],
        llm_halted="",
    ).exclude(llm_judge=Experiment.LLMJudge.OFF)


def opinions_spent(experiment: Experiment) -> int:
    """Opinions that count against the experiment's budget, with those on proposals of its improvements. Those
    that failed said nothing, so they do not.
    """
    opinions = Opinion.objects.filter(comparison__experiment=experiment)
    screened = Proposal.objects.filter(improvement__experiment=experiment).values_list("screened", flat=True)
    return opinions.exclude(state=Opinion.State.FAILED).count() + sum(len(each or ()) for each in screened)


def without_opinion(experiment: Experiment) -> list[QuerySet[Comparison]]:
    """Comparisons about which the present judge was not asked yet, the more urgent ones first.

    Those that wait for a vote, where it may vote; then those that people have judged, the newest first.
    """
    new = Comparison.objects.filter(experiment=experiment).exclude(
        pk__in=Opinion.objects.filter(identity=identity(experiment)).values("comparison")
    )
    by_people = standing(Judgment.objects.filter(comparison=OuterRef("pk"), judge=Judgment.Judge.HUMAN))
    calibrating = new.filter(Exists(by_people)).order_by("-pk")
    if not votes_now(experiment):
        return [calibrating]
    return [_open_to_votes(new).order_by("pk"), calibrating]


def votes_to_cast(experiment: Experiment) -> QuerySet[Opinion]:
    """Opinions that could become judgments now."""
    if not votes_now(experiment):
        return Opinion.objects.none()
    comparisons = _open_to_votes(Comparison.objects.filter(experiment=experiment))
    return Opinion.objects.filter(
        state=Opinion.State.DONE,
        identity=F("comparison__experiment__llm_calibrated"),
        comparison__in=comparisons,
    ).order_by("pk")


def votes_that_failed(experiment: Experiment) -> QuerySet[Comparison]:
    """The comparisons that the language model was to judge now, and could not."""
    if not votes_now(experiment):
        return Comparison.objects.none()
    failed = Opinion.objects.filter(
        comparison=OuterRef("pk"), state=Opinion.State.FAILED, identity=experiment.llm_calibrated
    )
    return _open_to_votes(Comparison.objects.filter(Exists(failed), experiment=experiment))


def votes_now(experiment: Experiment) -> bool:
    """True if the language model may vote: an admin has accepted it, and it has not changed since."""
    return (
        not experiment.llm_halted
        and experiment.state == Experiment.State.RUNNING
        and experiment.judge == Experiment.Judge.HUMAN
        and experiment.llm_judge == Experiment.LLMJudge.VOTES
        and experiment.llm_calibrated == identity(experiment)
        and not why_no_judge(experiment)
    )


def _open_to_votes(comparisons: QuerySet[Comparison]) -> QuerySet[Comparison]:
    """The ready comparisons that nobody has been shown, with a text to judge.

    What somebody was shown is theirs, or that of the next person whom it needs.
    """
    return comparisons.exclude(response_i__digest=NOTHING, response_j__digest=NOTHING).filter(
        showing="", state=Comparison.State.READY
    )
