"""The claims of a design in sentences, each with its assumptions."""

import math

from engine.core import Claim, ClaimState, Conclusion, Design, Missing, StopReason
from engine.core.contradictions import Misfit
from engine.domain.wording import number

_RIVALS_SHOWN = 3
# Larger factors are reported as this value.
_MANY_TIMES = 100.0


def conclusion(design: Design, tested: Misfit | None = None) -> str:
    """The claim that a design may make now, or what is missing for it.

    ``tested``: a test of the Bradley-Terry model on the same outcomes; ``None`` where there was none.
    """
    decision = design.decision
    if not decision.claims:
        return f"The stopping rule {design.stopping!r} makes no claim that holds at any time."
    [if_any] = [state for state in decision.claims if state.claim is Claim.BEST_IF_ANY]
    # Under "best" the claim that stops the experiment has a rival open, and says nothing of the finding.
    if decision.reason is StopReason.NO_SINGLE_BEST and decision.claims[0].policy is not None:
        return _none_best(design, if_any.margin, decision.assumes_model, tested)
    return sentence(design, decision.claims[0], tested)


def earlier(design: Design, told: Conclusion) -> str:
    """A conclusion that the design has come to: about whom it was, and its risk."""
    among = [_name(design, policy) for policy in told.among]
    policy = None if told.policy is None else _name(design, told.policy)
    margin = 0.0 if told.claim is Claim.BEST else design.epsilon
    said = "no policy beats every other" if policy is None else _statement(told.claim, policy, margin)
    risk = f"wrong with a risk of at most {_percent(told.risk)}"
    if told.joint_risk > told.risk:
        risk += f", this or one before it of at most {_percent(told.joint_risk)}"
    return f"Of {len(among)} policies ({', '.join(among)}): {said}; {risk}."


def risk_of_all(design: Design) -> str:
    """The risk of the conclusions of a design in which policies join and leave."""
    risk = _percent(design.delta)
    if design.for_ever:
        return (
            "However often policies join or leave, and whenever somebody looks: the chance that this page "
            f"ever concludes something wrong is at most {risk}."
        )
    return (
        f"Each conclusion is wrong with a probability of at most {risk}, whatever happened before it and "
        "whoever wrote the new policies; the risks of several add up."
    )


def sentence(design: Design, state: ClaimState, tested: Misfit | None = None) -> str:
    """One claim of a design, or what is missing for it; ``tested`` as for :func:`conclusion`."""
    policy = None if state.policy is None else _name(design, state.policy)
    if policy is None and not design.n_comparisons:
        return "Nothing has been compared yet."
    if policy is None:
        text = _none_best(design, state.margin, state.assumes_model, tested)
    elif state.open:
        names = [_name(design, rival) for rival in state.open[:_RIVALS_SHOWN]]
        shown = ", ".join(names) + (", …" if len(state.open) > len(names) else "")
        statement = _statement(state.claim, policy, state.margin)
        text = f"Not established yet: {statement}; {number(len(state.open), 'rival')} still open ({shown})."
    else:
        statement = _statement(state.claim, policy, state.margin) + ";"
        if state.follows_from is not None:
            statement += f" this follows from “{_statement(state.follows_from, policy, 0.0)}”, and so"
        # Names that somebody gave keep their case: "a" and "A" may be two policies.
        if state.claim is Claim.BEST_IF_ANY:
            statement = statement[0].upper() + statement[1:]
        text = f"{statement} {_small_print(design, state.assumes_model, tested, state.n_stages)}"
    return f"{text} {_opposite(design, state)}" if state.contradicted else text


def by_answers_alone(design: Design, policy: int, gamma: float, more: str = "") -> str:
    """The policy that the answers alone name where the claim does not hold, and what that rests on.

    ``gamma``: Γ of ``Answers``. ``more``: how much more would settle it, such as "310 more clicks".
    """
    name, n = design.labels[policy], design.n_missing
    pairs, they, say = f"{n:,} pairs have", "they were", "they say"
    if n == 1:
        pairs, they, say = "1 pair has", "it was", "it says"
    text = (
        f"By the answers alone: {name}. {pairs} no outcome; if {they} left because of what {say}, it may be "
        "wrong."
    )
    if more:
        text += f" About {more} would settle it."
    # Rounded down: it holds up to this.
    times = math.floor(10.0 * min(gamma, _MANY_TIMES)) / 10.0
    often = "no more often" if times <= 1.0 else f"at most {times:g} times as often"
    return (
        f"{text} Taken as it is, it holds as long as pairs are left {often} when {name} would lose, and "
        "none because of a later answer."
    )


def _none_best(design: Design, margin: float, assumes_model: bool, tested: Misfit | None) -> str:
    return f"No policy beats every other{_by(margin)}; {_small_print(design, assumes_model, tested)}"


def _opposite(design: Design, state: ClaimState) -> str:
    """The claim that the evidence also establishes, though it excludes this one."""
    others = (Claim.BEST, Claim.BEST_IF_ANY)
    [other] = [each for each in design.decision.claims if each.claim in others and each.claim != state.claim]
    statement = "no policy beats every other"
    if other.policy is not None and other.holds:
        statement = _statement(other.claim, _name(design, other.policy), 0.0)
    return (
        f"The evidence also establishes that {statement}. One of the two is wrong: the accepted risk allows "
        "for that, or an assumption does not hold."
    )


def _statement(claim: Claim, policy: str, margin: float) -> str:
    if claim is Claim.GOOD_ENOUGH:
        return (
            f"{policy} loses to no other policy by more than {100 * margin:.4g} points "
            f"(none wins more than {_percent(0.5 + margin)} against it)"
        )
    if claim is Claim.BEST:
        return f"{policy} beats every other policy"
    return f"if some policy beats every other{_by(margin)}, it is {policy}"


def _by(margin: float) -> str:
    return f" with a win rate of at least {_percent(0.5 + margin)}" if margin > 0 else ""


def _small_print(design: Design, assumes_model: bool, tested: Misfit | None, n_stages: int = 1) -> str:
    accepted = min(1.0, n_stages * design.delta)
    risk = f"the risk of ever saying so wrongly is at most {_percent(accepted)}"
    # A likelihood knows only what was answered, whatever the rule for proofs head to head.
    if not assumes_model and design.missing is Missing.AGAINST:
        about = "It is about those who judged, each as often as they did."
        return f"{risk}, even if pairs are left unanswered or answered late. {about}"
    assumed = "strengths add up as the model says and " if assumes_model else ""
    note = _on_the_test(tested) if assumes_model and tested is not None else ""
    return (
        f"{risk}, if {assumed}each judgment is a fresh draw with the win rate of its pair, whether it "
        f"comes soon, late or never. {note}".rstrip()
    )


def _on_the_test(tested: Misfit) -> str:
    if tested.contradicted:
        return "The data contradict the model."
    if not tested.has_power:
        return "There are too few comparisons to test the model."
    return "A test of the model that would probably have found a large departure found none."


def _name(design: Design, policy: int) -> str:
    # Names with commas in a list could be any number of names.
    label = design.labels[policy]
    return f"“{label}”" if "," in label else label


def _percent(share: float) -> str:
    return f"{100.0 * share:.4g}%"
