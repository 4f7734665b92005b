"""Settings of a design, checked as they are given."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .spaces import Factorial, Space
from .types import Claim, Conclusion, FloatArray, IntArray, Missing, check_real, check_whole


def checked_labels(labels: Sequence[str] | None, space: Space) -> tuple[str, ...]:
    """Names of the policies, as given or made up from the space.

    Raises
    ------
    ValueError
        If there is not one name for each policy, or two are the same.
    """
    if labels is None:
        if isinstance(space, Factorial):
            return tuple(", ".join(map(str, policy)) for policy in space.policies)
        return tuple(f"policy {k}" for k in range(space.n_policies))
    checked = tuple(str(label) for label in labels)
    if len(checked) != space.n_policies or len(set(checked)) != len(checked):
        raise ValueError(
            f"labels must name each of the {space.n_policies} policies, no two the same; "
            f"got {len(checked)} of which {len(set(checked))} differ"
        )
    return checked


def checked_prior(strengths: ArrayLike | None, n_policies: int) -> FloatArray | None:
    """Shape (K,): a copy of the prior strengths, in log-odds; None without any.

    Raises
    ------
    ValueError
        If there is not one finite number for each policy.
    """
    if strengths is None:
        return None
    prior: FloatArray = np.array(strengths, dtype=np.float64)
    if prior.shape != (n_policies,) or not np.isfinite(prior).all():
        raise ValueError(f"prior_strengths must hold one finite number for each of the {n_policies} policies")
    return prior


def centred(strengths: FloatArray) -> FloatArray:
    """Shape (K,): the strengths, in log-odds, shifted to the mean 0."""
    shifted: FloatArray = strengths - strengths.mean()
    return shifted


def checked_claim(claim: Claim | str, epsilon: float) -> Claim:
    """The claim, which may be given by its name.

    Raises
    ------
    ValueError
        If it is unknown, or needs a margin that is not given.
    """
    try:
        checked = Claim(claim)
    except ValueError:
        names = ", ".join(f'"{known}"' for known in Claim)
        raise ValueError(f"claim must be one of {names}; got {claim!r}") from None
    if checked is Claim.GOOD_ENOUGH and epsilon == 0.0:
        raise ValueError(
            'the claim "good_enough" needs a margin: epsilon=0.05 names a policy that loses to no other by '
            'more than 5 points; without a margin, ask for "best"'
        )
    return checked


def checked_missing(missing: Missing | str) -> Missing:
    """The way to count showings without an outcome, which may be given by its name.

    Raises
    ------
    ValueError
        If it is unknown.
    """
    try:
        return Missing(missing)
    except ValueError:
        raise ValueError(f'missing must be "against" or "answers"; got {missing!r}') from None


def left_out_of(entries: Iterable[tuple[int, int, float]], n_policies: int) -> FloatArray:
    """Shape (K, K): the outcomes that estimates leave out, from `Design.progress`.

    Raises
    ------
    ValueError
        If an entry does not fit.
    """
    left_out = np.zeros((n_policies, n_policies))
    try:
        for i, j, won in entries:
            left_out[i, j] = won
    except (TypeError, ValueError, IndexError):
        raise ValueError(
            "left_out must hold entries [i, j, outcomes] as `Design.progress` gave them"
        ) from None
    return left_out


def checked_names(named: Mapping[str, int], n_policies: int) -> dict[Claim, IntArray]:
    """Policies that claims have named, shape (1,) each, from `Design.progress`.

    Raises
    ------
    ValueError
        If a claim or a policy is unknown.
    """
    checked = {}
    for claim, policy in named.items():
        if claim not in set(Claim) or not 0 <= check_whole("a policy in named", policy) < n_policies:
            raise ValueError(
                f"named must hold policies by claim as `Design.progress` gave them; got {dict(named)}"
            )
        checked[Claim(claim)] = np.array([policy])
    return checked


def checked_conclusions(known: Iterable[Mapping[str, Any]]) -> tuple[Conclusion, ...]:
    """Conclusions from `Design.progress`.

    Raises
    ------
    ValueError
        If one does not fit.
    """
    try:
        return tuple(
            Conclusion(**{**each, "claim": Claim(each["claim"]), "among": tuple(each["among"])})
            for each in known
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"conclusions must be as `Design.progress` gave them: {error!r}") from error


def checked_settings(delta: float, epsilon: float, budget: int | None) -> tuple[float, float, int | None]:
    """δ, ε and the budget.

    Raises
    ------
    ValueError
        If one is out of range.
    """
    delta, epsilon = check_real("delta", delta), check_real("epsilon", epsilon)
    if not 0.0 < delta < 0.5:
        raise ValueError(f"delta, the risk level, must lie between 0 and 0.5 (0.05 is usual), got {delta}")
    if not 0.0 <= epsilon < 0.5:
        raise ValueError(f"epsilon, the indifference margin, must be at least 0 and below 0.5, got {epsilon}")
    if budget is None:
        return delta, epsilon, None
    budget = check_whole("budget", budget)
    if budget < 1:
        raise ValueError(f"budget must be at least 1 comparison, or None for no limit, got {budget}")
    return delta, epsilon, budget
