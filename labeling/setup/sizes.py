"""The expected size of an experiment before its start: policies, pairs, comparisons, hours and money."""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from engine.core import SPREADS, Claim, Plan, Remaining, forecast, random_strengths
from engine.core.spaces import BradleyTerry
from engine.core.types import FloatArray
from engine.domain import limits
from engine.domain.claim_settings import CERTIFIED, LADDER, LARGEST_MARGIN, LARGEST_RISK, USUAL_MARGIN, Rules
from engine.domain.errors import SpecError
from engine.domain.list_prices import Money
from engine.domain.policy_space import Combination, combinations, policy_space
from engine.domain.replies import Usage
from engine.domain.specs import ExperimentSpec
from engine.models import Experiment
from engine.selectors import people
from engine.selectors.measured_strengths import measured_strengths, source_of
from engine.selectors.offered_models import writers_of
from engine.selectors.policies import connections_named
from engine.selectors.spending import cost_each, cost_of
from labeling.formatting import points, risk, rough, rough_hours
from labeling.forms.draft import DraftEditor, Outline
from labeling.forms.factors import factor_specs

# How different policies may be, and how many of 100 comparisons the better of two wins then.
_NAMES = (("Hardly", 54), ("Somewhat", 58), ("Clearly", 65), ("A lot", 72), ("Very much", 80))
# Tokens that a response is assumed to read and to write until a trial tells better.
_TOKENS = 500
USUAL_SECONDS, USUAL_PEOPLE = 20, 3
# With fewer policies there is no half to compare.
_FEWEST_TO_HALVE = 4


@dataclass(frozen=True)
class _Forecasts:
    """Forecasts of a plan and of others like it, for strengths that may be measured."""

    outline: Outline
    policies: list[Combination]
    measured: FloatArray | None

    def plan(self, **changes: Any) -> Plan:
        outline = replace(self.outline, **changes)
        return Plan(_space(outline, self.policies), **Rules.of(outline).plan(), budget=outline.budget)

    def of(self, **changes: Any) -> Remaining:
        """The forecast with other settings."""
        return forecast(self.plan(**changes), self.strengths())

    def strengths(self, *spreads: float) -> FloatArray:
        if self.measured is not None:
            return self.measured
        return random_strengths(len(self.policies), *spreads)

    def of_half(self) -> Remaining:
        """The forecast of half of the policies: of the best half, where strengths are measured."""
        n, strengths = len(self.policies) // 2, self.strengths()
        if self.measured is not None:
            strengths = strengths[:, (-strengths.mean(axis=0)).argsort()]
        space = policy_space(Experiment.Space.UNSTRUCTURED, {}, self.policies[:n])
        return forecast(replace(self.plan(), space=space), strengths[:, :n])


def size_of(editor: DraftEditor) -> dict[str, Any]:
    """The expected size and cost of a draft, for its setup page."""
    outline = editor.outline()
    if outline is None:
        return {"fault": "Give every factor a level, and fill in the risk and the budget, to see the size."}
    try:
        limits.check_counts(outline.levels, len(outline.excluded))
        policies = _policies(outline)
        limits.check_space(
            outline.levels,
            policies=len(policies),
            factorial=outline.space == Experiment.Space.FACTORIAL,
        )
        space = _space(outline, policies)
    except (SpecError, ValueError) as error:
        return {"fault": str(error)}
    known = editor.settings.cleaned_data
    by_people = known.get("judge") == Experiment.Judge.HUMAN
    overlap = known.get("overlap") or 1
    hours_each = overlap * _number(editor.data.get("seconds"), USUAL_SECONDS) / 3600 if by_people else 0.0
    source = source_of(editor.experiment) if editor.experiment else None
    measured = None if source is None else measured_strengths(source, _values(editor, policies))
    forecasts = _Forecasts(outline, policies, measured)
    remaining = forecasts.of()
    writers, demo_writers = writers_of(editor.needs)
    claims = _by_claim(forecasts)
    size: dict[str, Any] = {
        "policies": len(policies),
        "pairs": len(policies) * (len(policies) - 1) // 2,
        "dimensions": space.n_features if isinstance(space, BradleyTerry) else None,
        "comparisons": in_words(remaining, outline.budget),
        "source": None if measured is None else source,
        "by_spread": [] if measured is not None else _by_spread(forecasts, hours_each),
        "claims": claims,
        "levers": _levers(forecasts),
        "overlap": overlap,
        "writers": writers,
        "demo_writers": demo_writers,
        "has_ties": bool(known.get("allow_tie") or known.get("allow_both_bad")),
        "runs_out": remaining.likely is None,
        "budget_concern": _budget_concern(outline),
        "cost": _cost(editor, remaining, outline.budget, len(policies)),
    }
    if not by_people:
        return size
    likely = remaining.likely or outline.budget
    comes_again = editor.imported or known.get("responses") == Experiment.Responses.REUSE
    if comes_again and len(policies) > 2 and editor.n_tasks:
        n_people = math.ceil(likely * overlap / editor.n_tasks)
        size["people_on_new_tasks"] = n_people if n_people > 1 else None
    n_people = people_of(editor)
    size["hours"] = in_words(remaining.times(hours_each), outline.budget * hours_each, rough_hours)
    size["n_people"] = n_people
    size["hours_each"] = rough_hours(likely * hours_each / n_people)
    if editor.imported and editor.stored:
        # All texts exist already, so one person can give only so many answers.
        most = size["most_answers"] = _most_answers(editor.stored)
        n_people = math.ceil(likely * overlap / max(1, most))
        size["people"] = n_people if n_people > 1 else None
    return size


def people_of(editor: DraftEditor) -> int:
    """The number of people who share the judging: as typed, or those who were invited, or three."""
    invited = people.annotators(editor.experiment.pk).count() if editor.experiment else 0
    return int(_number(editor.data.get("n_people"), invited or USUAL_PEOPLE))


def _policies(outline: Outline) -> list[Combination]:
    """The policies of an outline, their factors and levels named by numbers."""
    levels = _numbered(outline)
    excluded = [{str(f): str(level) for f, level in each.items()} for each in outline.excluded]
    return combinations(levels, excluded)


def _numbered(outline: Outline) -> dict[str, list[str]]:
    return {str(f): [str(level) for level in range(n)] for f, n in enumerate(outline.levels)}


def _space(outline: Outline, policies: list[Combination]) -> Any:
    return policy_space(outline.space, _numbered(outline), policies)


def _values(editor: DraftEditor, policies: list[Combination]) -> list[dict[str, Any]]:
    """The value of each factor's level of these policies, by the factor's name."""
    factors = editor.stored.factors if editor.imported and editor.stored else factor_specs(editor.factors)[0]
    values = [(factor.name, list(factor.levels.values())) for factor in factors]
    if any(len(values) != len(policy) for policy in policies):
        return [{} for _ in policies]  # a factor is incomplete
    return [
        {name: levels[int(level)] for (name, levels), level in zip(values, policy, strict=True)}
        for policy in policies
    ]


def in_words(remaining: Remaining, most: float, written: Callable[[float], str] = rough) -> dict[str, str]:
    """A range and a likely number for a page: "300 – over 2,000" and "likely 1,300"."""
    low, high = written(remaining.low), remaining.high
    if remaining.low >= most:
        return {"range": f"over {written(most)}", "likely": ""}
    end = f"over {written(most)}" if high is None else written(high)
    middle = f"over {written(most)}" if remaining.likely is None else written(remaining.likely)
    return {"range": f"{low} – {end}", "likely": f"likely {middle}"}


def _by_spread(forecasts: _Forecasts, hours_each: float) -> list[dict[str, Any]]:
    """The forecast for each guess of how different the policies are."""
    plan, budget = forecasts.plan(), forecasts.outline.budget
    found = []
    for spread, (name, share) in zip(SPREADS, _NAMES, strict=True):
        remaining = forecast(plan, forecasts.strengths(spread))
        hours = (
            in_words(remaining.times(hours_each), budget * hours_each, rough_hours) if hours_each else None
        )
        found.append(
            {"name": name, "share": share, "comparisons": in_words(remaining, budget), "hours": hours}
        )
    return found


def _by_claim(forecasts: _Forecasts) -> list[dict[str, Any]]:
    """The forecast under each claim, with its usual margin where it is another one than chosen."""
    outline = forecasts.outline
    if outline.stopping != CERTIFIED:
        return []
    names, found = dict(Experiment.CLAIMS), []
    for claim in LADDER:
        chosen = claim == outline.claim
        margin = outline.epsilon
        if not chosen:
            margin = (outline.epsilon or USUAL_MARGIN) if claim is Claim.GOOD_ENOUGH else 0.0
        words = in_words(forecasts.of(claim=claim.value, epsilon=margin), outline.budget)
        found.append({"claim": claim, "name": names[claim.value], "chosen": chosen, "comparisons": words})
    return found


def _levers(forecasts: _Forecasts) -> list[dict[str, Any]]:
    """Changes that save comparisons, and the forecast with each."""
    outline, n = forecasts.outline, len(forecasts.policies)
    found: list[tuple[str, Remaining]] = []
    if 0.0 < 2 * outline.epsilon <= LARGEST_MARGIN:
        label = f"{points(2 * outline.epsilon)} in place of {points(outline.epsilon).split()[0]}"
        found.append((label, forecasts.of(epsilon=2 * outline.epsilon)))
    if 2 * outline.delta <= LARGEST_RISK:
        label = f"A risk of {risk(2 * outline.delta)} in place of {risk(outline.delta)}"
        found.append((label, forecasts.of(delta=2 * outline.delta)))
    varied = sum(number > 1 for number in outline.levels)
    if varied > 1 and outline.space == Experiment.Space.UNSTRUCTURED:
        label = "The factors act independently, as an assumption"
        found.append((label, forecasts.of(space=Experiment.Space.FACTORIAL)))
    if n >= _FEWEST_TO_HALVE:
        label = f"{n // 2} policies in place of {n}"
        if forecasts.measured is not None:
            label = f"Without the {n - n // 2} weakest policies"
        found.append((label, forecasts.of_half()))
    now = forecasts.of().low
    return [
        {"label": label, "comparisons": in_words(each, outline.budget)}
        for label, each in found
        if each.low < now
    ]


def _cost(editor: DraftEditor, remaining: Remaining, budget: int, n_policies: int) -> dict[str, Any] | None:
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
    if each is not None:
        reused = editor.settings.cleaned_data.get("responses") == Experiment.Responses.REUSE
        most = n_policies * editor.n_tasks if reused else math.inf

        def money(comparisons: float) -> str:
            return str(each.times(min(2 * comparisons, most)))

        total = in_words(remaining, budget, money)
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


def _budget_concern(outline: Outline) -> str:
    could_ask_for_less = outline.stopping == CERTIFIED and outline.claim != Claim.GOOD_ENOUGH
    less = "choose “good enough”, " if could_ask_for_less else ""
    return (
        "Most experiments like this one would spend their budget without a decision. Raise the budget, "
        f"{less}accept a larger risk, or compare fewer policies."
    )


def budget_concern(experiment: Experiment) -> str:
    """The same warning of a draft; empty where its budget will do."""
    factors = list(experiment.factors.prefetch_related("levels"))
    numbers = {factor.name: n for n, factor in enumerate(factors)}
    levels = {factor.name: [level.name for level in factor.levels.all()] for factor in factors}
    outline = Outline(
        levels=[len(names) for names in levels.values()],
        excluded=[
            {numbers[factor]: levels[factor].index(level) for factor, level in each.items()}
            for each in experiment.excluded
        ],
        space=experiment.space,
        budget=experiment.budget,
        **asdict(Rules.of(experiment)),
    )
    runs_out = _Forecasts(outline, _policies(outline), None).of().likely is None
    return _budget_concern(outline) if runs_out else ""


def _number(given: str | None, usual: float) -> float:
    """A number that somebody typed, in reasonable limits; the usual one where it is none."""
    try:
        return min(3600.0, max(1.0, float(given or usual)))
    except ValueError:
        return usual
