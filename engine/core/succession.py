"""The claim that the champion beats the original, along a chain of champions."""

import math

from .bernoulli import log_e_value_of_pair
from .evidence import CONCENTRATION
from .intervals import win_rate_at_least
from .types import check_real

_TIE = 0.5


class Succession:
    """Evidence that the present champion beats the original, whoever became champion, when and why.

    It rests on direct comparisons of the two. At a handover the next champion begins with what its
    predecessor had, or began with, whichever is less. So nothing is divided by the number of champions, and
    the claim is ever made wrongly with probability at most δ.

    Attributes
    ----------
    log_account
        Log of what the present champion began with, at most 0.
    won, lost
        Outcomes of the champion against the original since it became champion. A showing without an outcome
        counts as lost, from its beginning on.
    ties
        How many of these outcomes were ties; each is half won and half lost.
    n_champions
        The number of champions so far.
    """

    def __init__(self, delta: float = 0.05) -> None:
        self.delta = delta
        self.log_account = 0.0
        self.won = self.lost = self.ties = 0.0
        self.n_champions = 1

    def tell(self, outcome: float | None, *, instead_of: float | None = None) -> None:
        """Count a showing of champion and original: the champion's outcome in [0, 1], None without one.

        ``instead_of``: what this showing counted as so far, where it has begun or ended before.

        Raises
        ------
        ValueError
            If the outcome is out of range or no number.
        """
        checked = 0.0 if outcome is None else check_real("outcome", outcome)
        if not 0.0 <= checked <= 1.0:
            raise ValueError(f"outcome must lie in [0, 1] or be None, got {outcome}")
        for each, times in ((checked, 1), (instead_of, -1)):
            if each is not None:
                self.won += times * each
                self.lost += times * (1.0 - each)
                self.ties += times * (each == _TIE)

    @property
    def log_e(self) -> float:
        """Evidence (nats) that the champion wins more than half of the comparisons with the original."""
        evidence = log_e_value_of_pair(self.lost, self.won, self.ties, 0.5, CONCENTRATION, narrow=False)
        return float(self.log_account + evidence)

    @property
    def holds(self) -> bool:
        """Whether the champion is shown now to beat the original."""
        return self.log_e >= -math.log(self.delta)

    @property
    def win_rate_at_least(self) -> float:
        """What the champion's win rate against the original is at least, at any time and for every champion.

        It is ever above the true one, of any champion, with probability at most δ.
        """
        s = self.n_champions
        return win_rate_at_least(self.won, self.lost, self.delta / (s * (s + 1)))

    def hand_over(self) -> None:
        """Have another policy be the champion from here on. No showing of the old one counts after that."""
        self.log_account = min(self.log_account, self.log_e)
        self.won = self.lost = self.ties = 0.0
        self.n_champions += 1
