"""Policy spaces: what is assumed about the preference probabilities μ(i, j)."""

import copy
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from scipy.spatial import cKDTree

from .memory import check_memory
from .types import FloatArray, check_whole

Level: TypeAlias = str | int | float
# Rows closer than this, in units of each column's spread, are the same.
_SAME_ROW = 1e-9
_TWINS_SHOWN = 5


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
        object.__setattr__(self, "n_policies", check_whole("the number of policies", self.n_policies))
        if self.n_policies < 2:
            raise ValueError(f"an experiment compares at least 2 policies, got {self.n_policies}")


class BradleyTerry:
    """Linear Bradley-Terry space: μ(i, j) = σ(θᵀ(x_i - x_j)). [LLM-PO, section "Structured Policy Space"]

    Parameters
    ----------
    features
        Shape (K, d): one row x_i per policy. Only differences of rows matter, so there is no intercept.
    columns
        Names of the d features, for messages and reports; "feature 0" and so on by default.
    rows
        Names of the K policies, for messages; "policy 0" and so on by default.

    Raises
    ------
    ValueError
        If a feature is not finite, or the differences of the rows do not span all d dimensions: then θ
        cannot be told from the data. The message names the columns. Also if two rows are the same. The model
        gives such policies the same strength whatever the data say, so that neither can be the best. The
        message names the rows.
    """

    def __init__(
        self,
        features: ArrayLike,
        columns: Sequence[str] | None = None,
        rows: Sequence[str] | None = None,
    ) -> None:
        table = np.array(features, dtype=np.float64)
        if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 1:
            raise ValueError(
                "features must be a table with a row for each of at least 2 policies; "
                f"got shape {table.shape}"
            )
        names = (
            tuple(columns) if columns is not None else tuple(f"feature {k}" for k in range(table.shape[1]))
        )
        if len(names) != table.shape[1]:
            raise ValueError(f"there are {table.shape[1]} feature columns but {len(names)} column names")
        self._set(table, names, rows)
        # Share of head-to-head counts in the evidence: pooling pays by how much fewer features there are.
        self.pairwise_share = 0.5 * min(1.0, table.shape[1] / (table.shape[0] - 1))

    def _set(self, table: FloatArray, names: tuple[str, ...], rows: Sequence[str] | None) -> None:
        _check_columns(table, names)
        _check_rows(table, rows)
        table.setflags(write=False)
        self.features: FloatArray = table
        self.columns = names

    @cached_property
    def precision(self) -> FloatArray:
        """Shape (d, d): precision of the prior under which the log-odds of a random pair vary by 1.

        The pairs are those that the experiment began with.
        """
        i, j = np.triu_indices(self.n_policies, 1)
        contrasts = self.features[i] - self.features[j]
        precision: FloatArray = (contrasts.T @ contrasts) / i.size * self.n_features
        return precision

    def grown(self, row: Sequence[Any]) -> Self:
        """The space with one policy more.

        What is assumed about θ stays as it was. Features that are new vary on their own, by a standard
        deviation of 1 where the log-odds of a random pair do.

        Parameters
        ----------
        row
            Its features. Beyond the d that there are, every other policy has 0.

        Raises
        ------
        ValueError
            If it has fewer features, or those of another policy.
        """
        features = np.array(row, dtype=np.float64)
        d = self.n_features
        if features.ndim != 1 or features.size < d:
            raise ValueError(f"a policy has {d} features or more, got {reprlib.repr(row)}")
        table = np.vstack([np.pad(self.features, ((0, 0), (0, features.size - d))), features])
        names = (*self.columns, *(f"feature {k}" for k in range(d, features.size)))
        return self._grown(table, names, list(range(d)))

    def _grown(
        self, table: FloatArray, names: tuple[str, ...], old: list[int], rows: Sequence[str] | None = None
    ) -> Self:
        """The space with these features, of which the d old ones are in the columns `old`."""
        precision = np.eye(len(names))
        precision[np.ix_(old, old)] = self.precision
        space = copy.copy(self)
        space._set(table, names, rows)
        space.precision = precision
        return space

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.n_policies} policies by {reprlib.repr(self.columns)}>"

    @classmethod
    def one_hot(cls, n_policies: int) -> Self:
        """One strength per policy, measured from policy 0: the classical Bradley-Terry model.

        It has d = K - 1 features. [Bradley and Terry 1952]

        Raises
        ------
        ValueError
            If a design of so many policies would not fit into memory.
        """
        # The features alone are a matrix of K × (K - 1).
        check_memory(check_whole("the number of policies", n_policies))
        space = cls.__new__(cls)
        BradleyTerry.__init__(space, np.eye(n_policies)[:, 1:], [f"policy {k}" for k in range(1, n_policies)])
        return space

    @property
    def n_policies(self) -> int:
        """Number of policies K."""
        return int(self.features.shape[0])

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return int(self.features.shape[1])


class Factorial(BradleyTerry):
    """Policies that are tuples of levels, one per factor, sharing strength between them.

    Levels are dummy coded: every level but a factor's first has a column. Its entry in θ is then the worth of
    that level over the first, and d is the sum over factors of (levels - 1).

    Parameters
    ----------
    levels
        For each factor, by name, its levels; the first is the reference.
    feasible
        Which combinations to keep, as a predicate on the tuple of levels; all of them by default.
    numeric
        Factors whose levels are numbers with a linear effect. Each has one column, scaled to run from 0 at
        the smallest level to 1 at the largest.

    Attributes
    ----------
    policies
        The K tuples of levels; policy i is the i-th.

    Raises
    ------
    ValueError
        If a factor has no levels or repeats one, or a numeric level is not a number. Also if the feasible
        combinations do not tell the levels apart, or memory would not do for all combinations.
    """

    def __init__(
        self,
        levels: Mapping[str, Sequence[Level]],
        *,
        feasible: Callable[[tuple[Level, ...]], bool] | None = None,
        numeric: Iterable[str] = (),
    ) -> None:
        numeric = set(numeric)
        if unknown := numeric - set(levels):
            raise ValueError(f"numeric names no factor: {', '.join(sorted(unknown))}")
        for factor, values in levels.items():
            if len(values) == 0 or len(set(values)) != len(values):
                raise ValueError(
                    f"factor {factor!r} needs levels that differ from each other, got {list(values)}"
                )
        self.levels = {factor: tuple(values) for factor, values in levels.items()}
        self._ends = {
            factor: _ends(factor, self.levels[factor]) for factor in self.levels if factor in numeric
        }
        if feasible is None:
            check_memory(math.prod(len(values) for values in self.levels.values()))
        combinations = product(*self.levels.values())
        self.policies = tuple(c for c in combinations if feasible is None or feasible(c))
        if len(self.policies) < 2:
            raise ValueError(f"an experiment compares at least 2 policies, {len(self.policies)} are feasible")
        super().__init__(*self._coded())

    def _coded(self) -> tuple[FloatArray, list[str], list[str]]:
        """The features of all policies, and the names of columns and rows."""
        coded = [
            _scaled(factor, self._ends[factor], [policy[k] for policy in self.policies])
            if factor in self._ends
            else _dummies(factor, values, [policy[k] for policy in self.policies])
            for k, (factor, values) in enumerate(self.levels.items())
        ]
        names = [name for part, _ in coded for name in part]
        rows = [", ".join(map(str, policy)) for policy in self.policies]
        return np.hstack([table for _, table in coded]), names, rows

    def grown(self, row: Sequence[Any]) -> Self:
        """The space with one combination more; see `BradleyTerry.grown`.

        Parameters
        ----------
        row
            A level for each factor. Levels that are new become the last ones of their factors.

        Raises
        ------
        ValueError
            If there is not one for each factor, or the combination is there already.
        """
        policy = tuple(row)
        if len(policy) != len(self.levels):
            raise ValueError(f"a policy has a level for each of {list(self.levels)}, got {list(policy)}")
        space = copy.copy(self)
        space.levels = {
            factor: values if level in values else (*values, level)
            for (factor, values), level in zip(self.levels.items(), policy, strict=True)
        }
        space.policies = (*self.policies, policy)
        table, names, rows = space._coded()
        return space._grown(table, tuple(names), [names.index(name) for name in self.columns], rows)


def _dummies(factor: str, values: Sequence[Level], chosen: Sequence[Level]) -> tuple[list[str], FloatArray]:
    table = np.array([[float(level == value) for value in values[1:]] for level in chosen])
    return [f"{factor}={value}" for value in values[1:]], table.reshape(len(chosen), len(values) - 1)


def _ends(factor: str, values: Sequence[Level]) -> tuple[float, float]:
    """The smallest level of a numeric factor, and how far the largest is from it."""
    try:
        numbers = np.array([float(value) for value in values])
    except ValueError:
        raise ValueError(f"factor {factor!r} is numeric, but not all of {list(values)} are numbers") from None
    spread = numbers.max() - numbers.min()
    if not np.isfinite(spread) or spread == 0.0:
        raise ValueError(f"factor {factor!r} is numeric and needs at least two different finite levels")
    return float(numbers.min()), float(spread)


def _scaled(factor: str, ends: tuple[float, float], chosen: Sequence[Level]) -> tuple[list[str], FloatArray]:
    low, spread = ends
    return [factor], (np.array([float(level) for level in chosen])[:, None] - low) / spread


def _check_columns(table: FloatArray, names: Sequence[str]) -> None:
    bad = [name for name, column in zip(names, table.T, strict=True) if not np.all(np.isfinite(column))]
    if bad:
        raise ValueError(f"these feature columns hold values that are not finite: {', '.join(bad)}")
    centred = table - table.mean(axis=0)
    constant = [
        name for name, column in zip(names, centred.T, strict=True) if not np.any(np.abs(column) > 1e-12)
    ]
    if constant:
        raise ValueError(
            f"these feature columns are the same for every policy, so nothing can be learnt about them; "
            f"drop them: {', '.join(constant)}"
        )
    _, triangle, order = linalg.qr(centred / np.linalg.norm(centred, axis=0), mode="economic", pivoting=True)
    diagonal = np.zeros(table.shape[1])
    diagonal[: min(triangle.shape)] = np.abs(np.diagonal(triangle))
    dependent = [names[column] for column, size in zip(order, diagonal, strict=True) if size < 1e-9]
    if dependent:
        raise ValueError(
            "these feature columns repeat what the others say, so that θ is not determined; drop them or "
            f"add policies that tell them apart: {', '.join(sorted(dependent))}"
        )


def _check_rows(table: FloatArray, names: Sequence[str] | None) -> None:
    scale = np.abs(table - table.mean(axis=0)).max(axis=0)
    twins = sorted(cKDTree(table / scale).query_pairs(_SAME_ROW))
    if not twins:
        return
    shown = [
        " and ".join(f"policy {k}" if names is None else f"policy {k} ({names[k]})" for k in pair)
        for pair in twins[:_TWINS_SHOWN]
    ]
    more = len(twins) - len(shown)
    raise ValueError(
        "these policies have the same features, so that the model cannot tell them apart; keep one of each "
        f"or add a feature that differs: {'; '.join(shown)}{f'; and {more} more' if more > 0 else ''}"
    )


Space: TypeAlias = Unstructured | BradleyTerry


def grown(space: Space, row: Sequence[Any] | None) -> Space:
    """The space with one policy more; `row` is as for `Design.add`.

    Raises
    ------
    ValueError
        If `row` does not fit.
    """
    if isinstance(space, Unstructured):
        if row is not None:
            raise ValueError("nothing is assumed about the policies, so that they have no features")
        return Unstructured(space.n_policies + 1)
    if row is None:
        raise ValueError("a policy of a Bradley-Terry space needs its levels or features: row=…")
    return space.grown(row)
