"""The stopping rules of an experiment, in the form that designs, plans and replays of `engine.core` take."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol, Self

from engine.core import Claim
from engine.domain.errors import SpecError
from engine.domain.tags import normal_tags

USUAL_CLAIM = Claim.GOOD_ENOUGH
# ε of "good enough" where none is given: five points of a hundred.
USUAL_MARGIN = 0.05
SMALLEST_RISK, LARGEST_RISK = 1e-9, 0.49
LARGEST_MARGIN = 0.4
# A round number below the largest of PostgreSQL's integers.
LARGEST_BUDGET = 2_000_000_000
CERTIFIED = "certified"
# The rungs from the weakest statement to the strongest, as pages list them.
LADDER = (Claim.GOOD_ENOUGH, Claim.BEST_IF_ANY, Claim.BEST)


class HasRules(Protocol):
    """An experiment, or a question about one that is not stored yet."""

    @property
    def claim(self) -> str:
        """The claim to stop on."""
        ...

    @property
    def delta(self) -> float:
        """The accepted risk, in (0, ½)."""
        ...

    @property
    def epsilon(self) -> float:
        """The margin, in [0, ½)."""
        ...

    @property
    def capital_moves(self) -> bool:
        """True if proofs may move capital to those who stand best."""
        ...

    @property
    def missing(self) -> str:
        """The way showings without an outcome count: "against" every claim, or by "answers" alone."""
        ...

    @property
    def strict(self) -> bool:
        """True if all conclusions ever share one risk."""
        ...

    @property
    def sampler(self) -> str:
        """The name of the sampler."""
        ...

    @property
    def stopping(self) -> str:
        """The name of the stopping rule."""
        ...


@dataclass(frozen=True)
class Rules:
    """The stopping rules of an experiment, as `engine.core` takes them."""

    claim: Claim
    delta: float
    epsilon: float
    capital_moves: bool
    missing: str
    strict: bool
    sampler: str
    stopping: str

    @classmethod
    def of(cls, experiment: HasRules) -> Self:
        """The rules of an experiment."""
        return cls(
            claim=Claim(experiment.claim),
            delta=experiment.delta,
            epsilon=experiment.epsilon,
            capital_moves=experiment.capital_moves,
            missing=experiment.missing,
            strict=experiment.strict,
            sampler=experiment.sampler,
            stopping=experiment.stopping,
        )

    @property
    def margin_of_best(self) -> float:
        """ε in [0, ½) with which a policy is ruled out as the best:
        only "best, if there is a best" has one.
        """
        return self.epsilon if self.claim is Claim.BEST_IF_ANY else 0.0

    def design(self) -> dict[str, Any]:
        """The rules as `Design` takes them."""
        return asdict(self)

    def replay(self) -> dict[str, Any]:
        """The rules as `engine.core.robustness.replay` takes them: it asks for no pairs."""
        rules = self.design()
        del rules["sampler"], rules["strict"]
        return rules

    def plan(self) -> dict[str, Any]:
        """The rules as `Plan` takes them. The claim "best" has no margin: ε only adds a claim to watch."""
        plan = self.design() | ({"epsilon": 0.0} if self.claim is Claim.BEST else {})
        # In a forecast nothing is missing, and nobody joins.
        del plan["missing"], plan["strict"]
        return plan


def usual_margin(claim: str) -> float:
    """ε in [0, ½) of a claim where a description names none."""
    return USUAL_MARGIN if claim == Claim.GOOD_ENOUGH else 0.0


def completed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a description with what depends on others filled in, and its tags as stored.

    Only the certified stop makes claims, so the other stops get "best, if there is a best". Ready-made
    responses come again, and then the risk of "good enough" is proven only without ties.
    """
    certified = settings.get("stopping", CERTIFIED) == CERTIFIED
    claim = settings.get("claim", USUAL_CLAIM if certified else Claim.BEST_IF_ANY)
    tags = normal_tags(settings.get("tags", ""))
    usual = {
        "claim": str(claim),
        "epsilon": usual_margin(claim),
        "allow_tie": settings.get("responses") != "imported",
    }
    return usual | dict(settings) | {"tags": tags}


def check_claim(*, claim: str, epsilon: float, stopping: str) -> None:
    """Refuse a claim that the margin or the stopping rule does not allow.

    Raises
    ------
    SpecError
        Says which of them to change.
    """
    if stopping != CERTIFIED and claim != Claim.BEST_IF_ANY:
        raise SpecError(
            f"claim: the {stopping} stop can only look for the best policy, if there is one. Set claim: "
            f"{Claim.BEST_IF_ANY}, or stopping: {CERTIFIED}.",
            ("claim",),
        )
    if claim == Claim.GOOD_ENOUGH and epsilon == 0.0:
        raise SpecError(
            f"epsilon: the claim {Claim.GOOD_ENOUGH} needs a margin above 0, such as {USUAL_MARGIN} for five "
            f"points. Without a margin, set claim: {Claim.BEST} or claim: {Claim.BEST_IF_ANY}.",
            ("epsilon",),
        )
