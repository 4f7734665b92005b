"""The expected size of an experiment: policies, pairs, and the planner's comparisons and hours."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from engine.core import Claim, closed_form
from engine.core.spaces import BradleyTerry
from engine.domain import limits
from engine.domain.claim_settings import CERTIFIED, LADDER, USUAL_MARGIN, Rules
from engine.domain.errors import SpecError
from engine.domain.list_prices import Money
from engine.domain.policy_space import combinations, policy_space
from engine.domain.replies import Usage
from engine.domain.specs import ExperimentSpec
from engine.models import Estimate, Experiment
from engine.selectors import workers
from engine.selectors.offered_models import writers_of
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


# Tokens that a response is assumed to read and to write until a trial tells better.
_TOKENS = 500


def size_of(editor: DraftEditor) -> dict[str, Any]:
    """The expected size and cost of a draft, for its setup page.

    Requests the simulation if there is none yet; until that is done, the figures are the formula's.
    """
    spread = editor.spread if editor.spread in SPREADS else USUAL_SPREAD
    question = editor.question(float(spread))
    if question is None:
        return {"fault": "Give every factor a level, and fill in the risk and the budget, to see the size."}
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
        return {"fault": str(error)}
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
    pending = answer.state == Estimate.State.WAITING
    figures = answer.answer or (asdict(closed_form(plan, log_odds=log_odds)) if pending else None)
    cut_short = answer.answer is not None and answer.answer["horizon"] < question.budget
    undecided = figures is not None and figures["decided"] < _HALF
    claims = _expected(asked, question) if others else []
    size: dict[str, Any] = {
        "policies": len(policies),
        "pairs": len(policies) * (len(policies) - 1) // 2,
        "dimensions": space.n_features if isinstance(space, BradleyTerry) else None,
        "estimate": answer,
        "answer": answer.answer,
        "figures": figures,
        "pending": pending,
        "waiting": pending or any(claim["pending"] for claim in claims),
        "percent": round(100 * answer.progress),
        "worker_alive": workers.is_alive("analysis"),
        "share": SPREADS[spread][1],
        "overlap": overlap,
        "budget": question.budget,
        "claims": claims,
        "writers": writers,
        "demo_writers": demo_writers,
        "has_ties": bool(known.get("allow_tie") or known.get("allow_both_bad")),
        # The simulation ended before the budget, so it is unknown whether the budget suffices.
        "cut_short": cut_short,
        "mostly_undecided": undecided,
        "runs_out": undecided and not cut_short,
        "budget_concern": _budget_concern(
            could_ask_for_less=any(
                each["claim"] is Claim.GOOD_ENOUGH and not each["chosen"] for each in claims
            )
        ),
        # Many runs were cut at the budget: the true mean and upper end are higher.
        "understated": figures is not None and figures["decided"] < _NEARLY_ALL,
        "cost": _cost(editor, figures, len(policies)),
    }
    if figures is None or not people:
        return size
    comes_again = editor.imported or known.get("responses") == Experiment.Responses.REUSE
    if comes_again and len(policies) > 2 and editor.n_tasks:
        n_people = math.ceil(figures["expected"] * overlap / editor.n_tasks)
        size["people_on_new_tasks"] = n_people if n_people > 1 else None
    size["hours"] = [figures[name] * overlap * seconds / 3600 for name in ("low", "expected", "high")]
    if editor.imported and editor.stored:
        # All texts exist already, so one person can give only so many answers.
        most = size["most_answers"] = _most_answers(editor.stored)
        n_people = math.ceil(figures["expected"] * overlap / max(1, most))
        size["people"] = n_people if n_people > 1 else None
    return size


def _cost(editor: DraftEditor, figures: dict[str, Any] | None, n_policies: int) -> dict[str, Any] | None:
    """The expected price of one response and of all of them, as far as they are known; ``None`` where no
    connection writes.
    """
    named = {name for need in editor.needs for name in need.models}
    writing = list(connections_named(named).values())
    if not writing:
        return None
    usage = Usage(prompt=_TOKENS, completion=_TOKENS)
    prices = [(each.currency, cost_of(each, usage)) for each in writing]
    known = [(currency, price) for currency, price in prices if price is not None]
    tried = cost_each(editor.experiment) if editor.experiment else None
    assumed = Money.of(known).times(1 / len(known)) if len(known) == len(prices) else None
    each = assumed if tried is None else tried
    total = None
    if figures is not None and each is not None:
        responses = 2 * figures["expected"]
        if editor.settings.cleaned_data.get("responses") == Experiment.Responses.REUSE:
            responses = min(responses, n_policies * editor.n_tasks)
        total = each.times(responses)
    unpriced = [one.name for one, (_, price) in zip(writing, prices, strict=True) if price is None]
    return {"each": each, "tried": tried is not None, "total": total, "unpriced": unpriced}


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


def _expected(asked: Sequence[Estimate], question: Question) -> list[dict[str, Any]]:
    """The expected comparisons of each claim, in the order of the ladder; none of an estimate that failed."""
    names = dict(Experiment.CLAIMS)
    found = {}
    for estimate in asked:
        if estimate.state == Estimate.State.FAILED:
            continue
        plan, log_odds = estimates.plan_of(estimate.question)
        figures = estimate.answer or asdict(closed_form(plan, log_odds=log_odds))
        claim = Claim(estimate.question["claim"])
        found[claim] = {
            "claim": claim,
            "name": names[claim.value],
            "chosen": claim == question.claim,
            "comparisons": figures["expected"],
            "understated": figures["decided"] < _NEARLY_ALL,
            "pending": estimate.state == Estimate.State.WAITING,
        }
    return [found[claim] for claim in LADDER if claim in found]


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
