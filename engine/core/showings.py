"""A pair that was shown, from its beginning on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .ledger import OPEN
from .pooled_evidence import Bets
from .types import Bounds


@dataclass(slots=True)
class Showing:
    """A pair that was shown: what was fixed as it began, and how it counts now.

    Attributes
    ----------
    i, j
        Its policies.
    bets
        The bets of the streams on it; None without streams.
    bounds
        How the proofs count it.
    outcome
        D in [0, 1], of i; None where it has none.
    estimate
        The outcome that estimates take; None where they leave it out.
    n_moves
        How often capital had moved when it ended last.
    kept
        [least, most] of the end that was taken back after capital had moved; None where there is none. The
        proofs keep the worse of it and the next end: capital was given at a price that knew it.
    """

    i: int
    j: int
    bets: Bets | None
    bounds: Bounds = OPEN
    outcome: float | None = None
    estimate: float | None = None
    n_moves: int = 0
    kept: tuple[float, float] | None = None

    def data(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return {
            "pair": [self.i, self.j],
            "bets": None
            if self.bets is None
            else [self.bets.stakes[:, 0].tolist(), self.bets.favourite[:, 0].tolist()],
            "bounds": None if self.bounds.open else [self.bounds.least, self.bounds.most],
            "outcome": self.outcome,
            "estimate": self.estimate,
            "n_moves": self.n_moves,
            "kept": None if self.kept is None else list(self.kept),
        }

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """The showing of which `data` is the value.

        Raises
        ------
        ValueError
            If something is missing, or is no such value.
        """
        try:
            i, j = data["pair"]
            bets, bounds, outcome = data["bets"], data["bounds"], data["outcome"]
            if bets is not None:
                stakes, favourite = bets
                bets = Bets(
                    np.array(stakes, dtype=np.float64).reshape(2, 1),
                    np.array(favourite, dtype=np.bool_).reshape(2, 1),
                )
            if bounds is not None:
                least, most = map(float, bounds)
                bounds = Bounds(least, most, missing=outcome is None)
            kept = data["kept"] and (float(data["kept"][0]), float(data["kept"][1]))
            return cls(i, j, bets, bounds or OPEN, outcome, data["estimate"], int(data["n_moves"]), kept)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"a stored showing is incomplete: {error!r}") from error
