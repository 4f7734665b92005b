"""The expected size of an experiment: policies, pairs, and the planner's comparisons and hours."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from engine.core import Claim, Forecast, closed_form
from engine.core.problem import BradleyTerry
from engine.domain import limits
from engine.domain.errors import SpecError
from engine.domain.policy_space import combinations, policy_space
from engine.domain.prices import Money
from engine.domain.replies import Usage
from engine.domain.rules import CERTIFIED, LADDER, USUAL_MARGIN, Rules
from engine.domain.specs import ExperimentSpec
from engine.models import Estimate, Experiment
from engine.selectors import workers
from engine.selectors.capabilities import writers_of
from engine.selectors.policies import connections_named
from engine.selectors.spending import cost_each, cost_of
from engine.services import estimates
from engine.services.estimates import Question
from engine.tasks import analyse, wake
from labeling.forms.draft import USUAL_SPREAD, DraftEditor

# Standard deviation of the log-odds between two policies, as the planner takes it. Then its name, and how
# many of 100 comparisons the better of two policies wins.
SPREADS = {"0.2": ("A little", 54), "0.4": ("Somewhat", 58), "0.8": ("A lot", 65)}
_HALF = 0.5
# The upper end of a forecast leaves out a tenth: where more runs are cut, it is the budget and nothing else.
_NEARLY_ALL = 0.9


@dataclass(frozen=True)
class Expected:
    """The figures of an experiment that stops on one claim: simulated ones, or the formula's until the
    simulation is done.
    """

    claim: Claim
    name: str
    chosen: bool
    comparisons: float
    understated: bool
    pending: bool


# Tokens that a response is assumed to read and to write until a trial tells better.
_TOKENS = 500


@dataclass(frozen=True)
class Cost:
    """The expected price of all responses.

    Attributes
    ----------
    each
        The price of one response; ``None`` where it is unknown.
    tried
        True if a trial tells the price of one response.
    responses
        How many are to be written, as far as is known.
    """

    each: Money | None
    tried: bool
    responses: float | None
    unpriced: Sequence[str]

    @property
    def total(self) -> Money | None:
        return None if self.each is None or self.responses is None else self.each.times(self.responses)


@dataclass(frozen=True)
class Size:
    """The figures of the page before Start. ``estimate`` is None if there is nothing to ask the planner.

    ``formula`` is the planner's first figure, which needs no simulation. ``worker_alive`` says whether
    anybody is there to simulate. ``most_answers``: the most that one person can give if all texts exist
    already; ``None`` if new ones are written. ``writers``: the models that would write now. ``has_ties``:
    whether people may answer that neither is better. ``demo_writers``: the small models among the writers.
    """

    policies: int = 0
    pairs: int = 0
    dimensions: int | None = None
    fault: str = ""
    estimate: Estimate | None = None
    formula: Forecast | None = None
    worker_alive: bool = True
    hours: tuple[float, float, float] | None = None
    share: int = 0
    overlap: int = 1
    seconds: float = 20.0
    budget: int = 0
    claims: tuple[Expected, ...] = ()
    most_answers: int | None = None
    writers: Sequence[str] = ()
    demo_writers: Sequence[str] = ()
    has_ties: bool = False
    cost: Cost | None = None

    @property
    def people(self) -> int | None:
        """The least number of people, if one person cannot give all expected answers; else ``None``."""
        if self.most_answers is None or self.figures is None:
            return None
        people = math.ceil(self.figures["expected"] * self.overlap / max(1, self.most_answers))
        return people if people > 1 else None

    @property
    def pending(self) -> bool:
        return self.estimate is not None and self.estimate.state == Estimate.State.WAITING

    @property
    def waiting(self) -> bool:
        """True while any figure of the page is still the formula's."""
        return self.pending or any(claim.pending for claim in self.claims)

    @property
    def percent(self) -> int:
        return round(100 * self.estimate.progress) if self.estimate else 0

    @property
    def answer(self) -> dict[str, Any] | None:
        return self.estimate.answer if self.estimate else None

    @property
    def figures(self) -> dict[str, Any] | None:
        """The simulated figures, or those of the formula until the simulation is done."""
        return self.answer or (asdict(self.formula) if self.formula and self.pending else None)

    @property
    def cut_short(self) -> bool:
        """True if there was no time to simulate as far as the budget."""
        return self.answer is not None and self.answer["horizon"] < self.budget

    @property
    def mostly_undecided(self) -> bool:
        return self.figures is not None and self.figures["decided"] < _HALF

    @property
    def runs_out(self) -> bool:
        """True if most such experiments would spend the budget without a decision, as far as is known."""
        return self.mostly_undecided and not self.cut_short

    @property
    def could_ask_for_less(self) -> bool:
        """True if another claim than the chosen one takes the fewest comparisons."""
        return any(each.claim is Claim.GOOD_ENOUGH and not each.chosen for each in self.claims)

    @property
    def budget_concern(self) -> str:
        """The warning of a budget that will not do, with what to do."""
        return _budget_concern(could_ask_for_less=self.could_ask_for_less)

    @property
    def understated(self) -> bool:
        """True if so many runs are cut at the budget that their mean and upper end would be higher."""
        return self.figures is not None and self.figures["decided"] < _NEARLY_ALL


def size_of(editor: DraftEditor) -> Size:
    """The size of a page's experiment. It requests the estimate if there is none yet."""
    spread = editor.spread if editor.spread in SPREADS else USUAL_SPREAD
    question = editor.question(float(spread))
    if question is None:
        return Size(fault="Give every factor a level, and fill in the risk and the budget, to see the size.")
    levels = {str(f): [str(level) for level in range(n)] for f, n in enumerate(question.levels)}
    excluded = [{str(f): str(level) for f, level in each.items()} for each in question.excluded]
    try:
        limits.check_counts(question.levels, len(excluded))
        policies = combinations(levels, excluded)
        limits.check_space(
            question.levels,
            policies=len(policies),
            factorial=question.space == Experiment.Space.FACTORIAL,
        )
        space = policy_space(question.space, levels, policies)
    except (SpecError, ValueError) as error:
        return Size(fault=str(error))
    others = [
        _ask(question, claim)
        for claim in LADDER
        if claim != question.claim and question.stopping == CERTIFIED
    ]
    # Ask for this one last: a worker computes the newest question first.
    answer = _ask(question, Claim(question.claim))
    asked = [answer, *others]
    if any(estimate.state == Estimate.State.WAITING for estimate in asked):
        wake(analyse)
    known = editor.settings.cleaned_data
    people = known.get("judge") == Experiment.Judge.HUMAN
    overlap = known.get("overlap") or 1
    seconds = _seconds(editor.data.get("seconds", ""))
    plan, log_odds = estimates.plan_of(answer.question)
    writers, demo_writers = writers_of(editor.needs)
    size = Size(
        policies=len(policies),
        pairs=len(policies) * (len(policies) - 1) // 2,
        dimensions=space.n_features if isinstance(space, BradleyTerry) else None,
        estimate=answer,
        formula=closed_form(plan, log_odds=log_odds),
        worker_alive=workers.is_alive("analysis"),
        share=SPREADS[spread][1],
        overlap=overlap,
        seconds=seconds,
        budget=question.budget,
        claims=_expected(asked, question) if others else (),
        most_answers=_most_answers(editor.stored) if people and editor.imported and editor.stored else None,
        writers=writers,
        demo_writers=demo_writers,
        has_ties=bool(known.get("allow_tie") or known.get("allow_both_bad")),
    )
    size = replace(size, cost=_cost(editor, size))
    if size.figures is None or not people:
        return size
    low, mean, high = (size.figures[name] * overlap * seconds / 3600 for name in ("low", "expected", "high"))
    return replace(size, hours=(low, mean, high))


def _cost(editor: DraftEditor, size: Size) -> Cost | None:
    """The expected price; ``None`` where no connection writes."""
    named = {name for need in editor.needs for name in need.models}
    writing = list(connections_named(named).values())
    if not writing:
        return None
    usage = Usage(prompt=_TOKENS, completion=_TOKENS)
    prices = [(each.currency, cost_of(each, usage)) for each in writing]
    known = [(currency, price) for currency, price in prices if price is not None]
    tried = cost_each(editor.experiment) if editor.experiment else None
    assumed = Money.of(known).times(1 / len(known)) if len(known) == len(prices) else None
    responses = None
    if size.figures is not None:
        responses = 2 * size.figures["expected"]
        if editor.settings.cleaned_data.get("responses") == Experiment.Responses.REUSE:
            responses = min(responses, size.policies * editor.n_tasks)
    return Cost(
        each=assumed if tried is None else tried,
        tried=tried is not None,
        responses=responses,
        unpriced=[each.name for each, price in zip(writing, prices, strict=True) if price[1] is None],
    )


def _most_answers(spec: ExperimentSpec) -> int:
    """The pairs of texts of two policies to one task: nobody judges the same two texts twice."""
    texts: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for each in spec.ready_made:
        texts[each.task][each.policy].add(each.response)
    pairs = 0
    for by_policy in texts.values():
        numbers = [len(responses) for responses in by_policy.values()]
        pairs += (sum(numbers) ** 2 - sum(n**2 for n in numbers)) // 2
    return pairs


def _ask(question: Question, claim: Claim) -> Estimate:
    """The estimate of the same experiment under a claim, with that claim's usual margin where it is another
    one.
    """
    if claim == question.claim:
        return estimates.ask(question=question)
    margin = question.epsilon or USUAL_MARGIN if claim is Claim.GOOD_ENOUGH else 0.0
    return estimates.ask(question=replace(question, claim=claim.value, epsilon=margin))


def _expected(asked: Sequence[Estimate], question: Question) -> tuple[Expected, ...]:
    """The expected comparisons of each claim, in the order of the ladder; none of an estimate that failed."""
    names = dict(Experiment.CLAIMS)
    found = {}
    for estimate in asked:
        if estimate.state == Estimate.State.FAILED:
            continue
        plan, log_odds = estimates.plan_of(estimate.question)
        figures = estimate.answer or asdict(closed_form(plan, log_odds=log_odds))
        claim = Claim(estimate.question["claim"])
        found[claim] = Expected(
            claim=claim,
            name=names[claim.value],
            chosen=claim == question.claim,
            comparisons=figures["expected"],
            understated=figures["decided"] < _NEARLY_ALL,
            pending=estimate.state == Estimate.State.WAITING,
        )
    return tuple(found[claim] for claim in LADDER if claim in found)


def _budget_concern(*, could_ask_for_less: bool) -> str:
    less = "choose “good enough”, " if could_ask_for_less else ""
    return (
        "Most experiments like this one would spend their budget without a decision. Raise the budget, "
        f"{less}accept a larger risk, or compare fewer policies."
    )


def budget_concern(experiment: Experiment) -> str:
    """The same warning of a draft; empty where its budget will do."""
    if not _spends_budget(experiment):
        return ""
    certified = experiment.stopping == CERTIFIED
    return _budget_concern(could_ask_for_less=certified and experiment.claim != Claim.GOOD_ENOUGH)


def _spends_budget(experiment: Experiment) -> bool:
    """True if most experiments like this draft would spend their budget without a decision.

    This comes from a simulation if the setup page has asked for one, and otherwise from the formula.
    """
    factors = list(experiment.factors.prefetch_related("levels"))
    numbers = {factor.name: n for n, factor in enumerate(factors)}
    levels = {factor.name: [level.name for level in factor.levels.all()] for factor in factors}
    rules = asdict(Rules.of(experiment))
    del rules["missing"]  # no part of a question
    question = Question(
        levels=[len(names) for names in levels.values()],
        excluded=[
            {numbers[factor]: levels[factor].index(level) for factor, level in each.items()}
            for each in experiment.excluded
        ],
        log_odds=float(USUAL_SPREAD),
        space=experiment.space,
        budget=experiment.budget,
        **rules,
    )
    estimate = estimates.known(question)
    if estimate is not None and estimate.answer is not None:
        simulated_whole = estimate.answer["horizon"] >= experiment.budget
        return bool(simulated_whole and estimate.answer["decided"] < _HALF)
    plan, log_odds = estimates.plan_of(asdict(question))
    return closed_form(plan, log_odds=log_odds).decided < _HALF


def _seconds(given: str) -> float:
    try:
        return min(3600.0, max(1.0, float(given)))
    except ValueError:
        return 20.0
