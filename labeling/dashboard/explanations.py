"""The reason for the choice of a pair, in plain words."""

from collections.abc import Sequence
from math import log

from engine.domain.policy_space import PolicyName
from engine.models import Comparison

_SAMPLERS = {
    "balanced": "The balanced sampler takes the policy with the least evidence against it, and the opponent "
    "most likely to rule it out soon.",
    "tracking": "The tracking sampler (the paper's) takes the pair that is furthest below its optimal share. "
    "At first it takes the pairs with the fewest comparisons.",
    "round_robin": "The round-robin sampler takes the pair with the fewest comparisons.",
    "random": "The random sampler draws each pair with the same probability.",
    "eps_greedy": "The epsilon-greedy sampler takes the leader and its strongest opponent; one time in "
    "ten it draws any pair.",
    "thompson": "Thompson sampling draws a likely winner and the opponent that is likeliest to beat it.",
    "rucb": "The RUCB sampler takes a policy that may still be the best, and the opponent most likely to "
    "beat it.",
}


def explain(comparison: Comparison, names: Sequence[PolicyName]) -> tuple[list[str], list[tuple[str, str]]]:
    """Why a pair was chosen: sentences, and the recorded terms with their values.

    ``names``: the policies' names, by index.
    """
    plan = comparison.plan
    if not plan:
        return ["The reason for this pair was not recorded."], []
    if plan.get("past"):
        return ["This is a past vote from a file. No sampler chose its pair here."], []
    sampler = plan.get("sampler")
    sentences = [_SAMPLERS.get(sampler, f"The sampler {sampler} chose this pair.")] if sampler else []
    if "comparisons" in plan:
        sentences.append(
            f"At that time {plan['comparisons']:,} comparisons were judged and {plan.get('in_flight', 0):,} "
            "were in progress."
        )
    evidence = plan.get("evidence")
    if evidence:
        sentences.append(
            f"The evidence against being the best was {evidence[0]:.2f} for "
            f"{names[comparison.policy_i.index].name} and {evidence[1]:.2f} for "
            f"{names[comparison.policy_j.index].name}"
            + (f"; {log(1 / plan['delta']):.2f} rules a policy out." if "delta" in plan else ".")
        )
    match plan.get("by_rule"):
        case "identical":
            sentences.append(
                "Both responses are the same text: a tie that counts at once, and is shown to nobody."
            )
        case "no_answer":
            sentences.append("One response is no answer: it loses at once, and the pair is shown to nobody.")
    if plan.get("propensity") is not None:
        sentences.append(f"The probability of drawing this pair was {plan['propensity']:.4f}.")
    terms = {
        "sampler": "Sampler",
        "stopping": "Stopping rule",
        "delta": "Accepted risk",
        "epsilon": "Margin",
        "number": "Number of the choice",
        "draw": "Draw in its round",
        "seed": "Seed of the round",
        "rules": "Version of the rules",
    }
    record = [(term, _said(plan[key])) for key, term in terms.items() if plan.get(key) is not None]
    return [sentence for sentence in sentences if sentence], record


def _said(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
