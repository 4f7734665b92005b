"""The sentence about judgments that were voided by hand."""

from engine.domain.wording import number
from engine.models import Experiment
from engine.selectors import designs, voids
from engine.selectors.voids import Named, Voided
from labeling.caching import remembered

# A page may take no longer.
_REPLAY_SECONDS = 3.0


def sentence_about(experiment: Experiment, *, names: bool = True) -> str:
    """What was voided by hand, by whom and when, and which policy is named with and without it; empty where
    nothing was.

    ``names``: of people, and the reasons that they gave; they are anonymous otherwise.
    """
    groups = voids.groups_of(experiment)
    if not groups:
        return ""
    n = sum(group.judgments for group in groups)
    listed = "; ".join(_group(group, names=names) for group in groups)
    named, them = named_with_and_without(experiment), "it" if n == 1 else "them"
    if named.without is None:
        return f"Voided by hand: {listed}."
    given, without = (name or "still open" for name in (named.given, named.without))
    if given == without:
        return f"Voided by hand: {listed}. With and without {them}: {given}."
    return f"Voided by hand: {listed}. With {them}: {given}. Without {them}: {without}."


def named_with_and_without(experiment: Experiment) -> Named:
    """The policy named with and without the voids, computed once for each state of the evidence."""
    last = experiment.showing_events.order_by("-pk").values_list("pk", flat=True).first()
    rules = str(designs.design_settings(experiment))
    version = (last, experiment.evidence_stale, experiment.state, experiment.winner_id, rules)
    name = f"voids:{experiment.pk}"
    return remembered(name, version, lambda: voids.named(experiment, seconds=_REPLAY_SECONDS))


def _group(group: Voided, *, names: bool) -> str:
    what = number(group.judgments, "judgment")
    if not names:
        of, by = "one person" if group.of else group.judge, "somebody who runs the experiment"
        return f"{what} of {of}, by {by} on {group.on:%Y-%m-%d}"
    reasons = ", ".join(f"“{reason}”" for reason in group.reasons)
    return f"{what} of {group.of or group.judge}, by {group.by} on {group.on:%Y-%m-%d} ({reasons})"
