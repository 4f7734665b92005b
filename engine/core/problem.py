"""Policy spaces: what is assumed about the preference probabilities μ(i, j)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unstructured:
    """A space of policies with nothing assumed about μ beyond μ(j, i) = 1 - μ(i, j).

    [LLM-PO, section "Unstructured Policy Space"]

    Parameters
    ----------
    n_policies
        Number of policies K, at least 2.
    """

    n_policies: int

    def __post_init__(self) -> None:
        if self.n_policies < 2:
            raise ValueError(f"an experiment compares at least 2 policies, got {self.n_policies}")
