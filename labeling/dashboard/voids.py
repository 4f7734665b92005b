"""The sentence about judgments that were voided by hand."""

from __future__ import annotations

from engine.domain.wording import number
from engine.models import Experiment
from engine.selectors import designs, voids
from engine.selectors.voids import Named, Voided
from labeling.caching import remembered

# A page may take no longer.
_REPLAY_SECONDS = 3.0


def sentence_about(experiment: Experiment, *, names: bool = True) -> str:
    """All that was voided by hand, and which policy is named with and without it; empty where nothing was.

    ``names``: of people, who are anonymous otherwise.
    """
    groups = voids.groups_of(experiment)
    if not groups:
        return ""
    n = sum(group.judgments for group in groups)
    listed = [_group(group, names=names) for group in groups]
    what, were = number(n, "judgment"), "was" if n == 1 else "were"
    named = named_with_and_without(experiment)
    if named.without is None:
        return f"{what} {were} voided by hand: {'; '.join(listed)}."
    without = listed[0] if len(listed) == 1 else f"{what} that {were} voided by hand ({'; '.join(listed)})"
    return (
        f"Without the {without}: {named.without or 'still open'}. "
        f"With {'it' if n == 1 else 'them'}: {named.given or 'still open'}."
    )


def named_with_and_without(experiment: Experiment) -> Named:
    """The policy named with and without the voids, computed once for each state of the evidence."""
    last = experiment.showing_events.order_by("-pk").values_list("pk", flat=True).first()
    rules = str(designs.design_settings(experiment))
    version = (last, experiment.evidence_stale, experiment.state, experiment.winner_id, rules)
    name = f"voids:{experiment.pk}"
    return remembered(name, version, lambda: voids.named(experiment, seconds=_REPLAY_SECONDS))


def _group(group: Voided, *, names: bool) -> str:
    what, on = number(group.judgments, "judgment"), f"{group.on:%Y-%m-%d}"
    if names:
        return f"{what} of {group.of or group.judge} that {group.by} voided on {on}"
    return f"{what} of {group.judge if group.of is None else 'one person'} voided by hand on {on}"
