"""The ranking and the facts about past votes, made once for all viewers."""

from __future__ import annotations

from collections.abc import Hashable

from engine.models import Experiment
from engine.selectors.counts import comparison_count
from engine.selectors.rankings import Ranked, ranking
from labeling.caching import shared
from labeling.dashboard.past_votes import facts

# Largest ages, in units of DASHBOARD_SECONDS: after a change, and without one.
_AGES = (1.0, 12.0)


def ranked(experiment: Experiment) -> list[Ranked]:
    """The policies, the best first."""
    return shared(f"ranking:{experiment.pk}", _version(experiment), lambda: ranking(experiment), ages=_AGES)


def facts_of_past_votes(experiment: Experiment) -> list[str]:
    """Sentences about the past votes; empty where there are none."""
    name = f"past-votes:{experiment.pk}:{experiment.state}"
    return shared(name, _version(experiment), lambda: facts(experiment), ages=_AGES)


def _version(experiment: Experiment) -> Hashable:
    return (experiment.past_votes, experiment.evidence_stale, comparison_count(experiment.pk))
