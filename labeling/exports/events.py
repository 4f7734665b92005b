"""The log of showings as a file, from which `engine.core` alone recomputes the decision."""

from collections.abc import Iterator
from typing import Any

from engine.core import Factorial
from engine.domain.showings import Kind
from engine.models import Experiment
from engine.selectors import designs
from engine.selectors.policies import combinations_of, count_at_first, labelled_space, policy_names


def event_rows(experiment: Experiment) -> Iterator[dict[str, Any]]:
    """The settings of the design, then each event of the evidence as a call of `Design`."""
    space, labels = labelled_space(experiment, count_at_first(experiment))
    settings = designs.design_settings(experiment)
    # It only breaks ties between pairs to choose.
    del settings["seed"]
    yield {
        "policies": labels,
        "factors": space.levels if isinstance(space, Factorial) else None,
        "combinations": space.policies if isinstance(space, Factorial) else None,
        "settings": settings,
        # As they were drawn, also under settings that were others then.
        "conclusions": list(
            experiment.conclusions.values(
                "claim", "delta", "epsilon", "stage", "policy", "among", "risk", "joint_risk", "comparisons"
            )
        ),
    }
    rows, names = combinations_of(experiment), policy_names(experiment)
    events = designs.in_the_evidence(experiment).values_list(
        "comparison__number", "comparison__policy_i__index", "comparison__policy_j__index",
        "kind", "outcome", "least", "most", "policy__index", "policy__parent__index",
    )  # fmt: skip
    for number, i, j, kind, outcome, least, most, policy, parent in events.iterator():
        if kind == Kind.BEGUN:
            yield {"call": "show", "i": i, "j": j, "showing": number}
        elif kind == Kind.TOLD:
            yield {"call": "end", "showing": number, "outcome": outcome, "least": least, "most": most}
        elif kind == Kind.REOPENED:
            yield {"call": "reopen", "showing": number}
        elif kind == Kind.REVISED:
            yield {"call": "revise", "showing": number, "outcome": outcome}
        elif kind == Kind.JOINED:
            row = rows[policy] if isinstance(space, Factorial) else None
            yield {"call": "add", "label": names[policy].name, "parent": parent, "row": row}
        elif kind == Kind.STAGE:
            yield {"call": "begin_stage"}
        elif kind == Kind.WITHHELD:
            yield {"call": "withhold_claims"}
        elif kind == Kind.ALLOWED:
            yield {"call": "allow_claims"}
        else:
            yield {"call": "retire", "policy": policy}
