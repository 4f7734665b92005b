"""The stored state of a design, with room for one policy more."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .beliefs import PRECISION
from .capital import NO_CAPITAL
from .evidence import NO_WEIGHT
from .types import FloatArray

# What each policy has in the stored streams, and what a newcomer has.
_OF_NEWCOMER = {"won": 0.0, "lost": 0.0, "log_bets": 0.0, "curvature": PRECISION, "capital": 0.0}


def padded(matrix: Any, with_what: float = 0.0) -> Any:
    """A matrix of shape (K, K) with one row and column more."""
    return np.pad(matrix, (0, 1), constant_values=with_what)


def expected_with_one_more(prior: FloatArray, parent: int | None) -> FloatArray:
    """Prior strengths of shape (K,) and of a newcomer: that of its parent, or the mean."""
    return np.append(prior, prior.mean() if parent is None else prior[parent])


def with_one_more(progress: Mapping[str, Any], parent: int | None) -> dict[str, Any]:
    """The value of `Design.progress` with room for a policy that has still to join.

    Its strength is expected to be that of its parent.
    """
    streams = dict(progress["streams"])
    for name, value in _OF_NEWCOMER.items():
        if name in streams:
            streams[name] = [*streams[name], value]
    streams["theta"] = [*streams["theta"], 0.0 if parent is None else streams["theta"][parent]]
    if "weights" in streams:
        streams["weights"] = padded(streams["weights"], NO_WEIGHT).tolist()
    streams["stakes"] = {
        claim: {
            **held,
            "account": [*held["account"], 0.0],
            "start": [*held["start"], 0.0],
            "log_share": [*held["log_share"], NO_CAPITAL],
        }
        for claim, held in streams["stakes"].items()
    }
    if "starts" in streams:
        streams["starts"] = [padded(wins).tolist() for wins in streams["starts"]]
    streams.pop("none_peak", None)
    return {
        **progress,
        "streams": streams,
        "peak_evidence": [*progress["peak_evidence"], NO_CAPITAL],
        "showings": (),
    }
