"""When an experiment stops: its rules as designs and plans take them, in one place for all who make one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol, Self

from engine.core import Claim


class HasRules(Protocol):
    """An experiment, or a question about one that is not stored yet."""

    @property
    def delta(self) -> float: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def sampler(self) -> str: ...
    @property
    def stopping(self) -> str: ...


@dataclass(frozen=True)
class Rules:
    """What an experiment's choices mean to `engine.core`: keywords of `Design` and of `Plan`."""

    claim: Claim
    delta: float
    epsilon: float
    sampler: str
    stopping: str
    # The evidence is a function of the counts. Streams would be one of the order of the outcomes.
    streams: bool = False

    @classmethod
    def of(cls, experiment: HasRules) -> Self:
        """The rules of an experiment."""
        return cls(
            claim=Claim.BEST_IF_ANY,
            delta=experiment.delta,
            epsilon=experiment.epsilon,
            sampler=experiment.sampler,
            stopping=experiment.stopping,
        )

    def keywords(self) -> dict[str, Any]:
        """The rules as `Design` and `Plan` take them."""
        return asdict(self)
