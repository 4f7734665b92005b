"""The risk of claims whose outcomes are drawn without replacement, as from a pool of texts."""

import math


def holds_without_replacement(delta: float, margin: float) -> bool:
    """True if a claim keeps its risk where one annotator's outcomes are drawn without replacement.

    [docs/proofs.md, "Finite pools"]

    An e-value of 1/δ takes a rival whose wins are far below the mean of the null. There a sample without
    replacement is no more likely than independent draws, so that evidence against these is evidence against
    it. How far below suffices is a quadratic inequality, and how far below the wins are, a bound on the
    Kullback-Leibler divergence says.

    Parameters
    ----------
    delta
        The largest chance of a false claim, in (0, 1).
    margin
        ε in [0, ½) of "good enough"; 0 for "best", which may have ties: they are left out of the draws.
        With a margin all outcomes have to be 0 or 1.
    """
    needed = math.log(1.0 / delta)
    if needed <= 1.0:
        return False
    null = 0.5 + margin
    reached = needed**2 * null * (1.0 - null) / math.log(1.0 / (1.0 - null))
    return reached >= max(null, 2.0 * margin * needed / (needed - 1.0)) ** 2
