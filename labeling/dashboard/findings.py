"""The decision in the order of asking, and without each annotator, in words."""

from datetime import datetime
from typing import Any

from engine.core import StopReason
from engine.models import Experiment
from engine.selectors import counts
from engine.selectors.policies import policy_names
from engine.selectors.replays import examination_of
from engine.selectors.snapshots import latest_snapshot


def without_each_annotator(experiment: Experiment) -> dict[str, Any]:
    """The finding without each annotator, and that in the order of asking, from the comparisons before the
    first one that is open; with ``percent_done`` while they are computed.

    A finding ``differs`` if another policy leads.
    """
    examination = examination_of(experiment)
    if examination is None:
        return {"percent_done": None}
    percent_done = None
    if examination.replays_wanted_at is not None:
        percent_done = int(100 * examination.replays.get("step", 0) / examination.replays.get("total", 1))
    findings = examination.findings
    if not findings:
        return {"percent_done": percent_done}
    names = [name.name for name in policy_names(experiment)]
    snapshot = latest_snapshot(experiment)
    best = None if snapshot is None or snapshot.best is None else snapshot.best.index
    rows = [
        row | {"finding": _finding(row, names), "differs": row["best"] != best} for row in findings["rows"]
    ]
    as_asked = findings["as_asked"]
    return {
        "percent_done": percent_done,
        "rows": rows,
        "n_differing": sum(row["differs"] for row in rows),
        "at": datetime.fromisoformat(findings["at"]),
        "n_newer": counts.standing_judgments(experiment.pk).count() - findings["n_judgments"],
        "as_asked": as_asked
        | {
            "finding": _finding(as_asked, names),
            "differs": as_asked["comparisons"] > 0 and as_asked["best"] != best,
        }
        if as_asked["judged"]
        else None,
    }


def _finding(row: dict[str, Any], names: list[str]) -> str:
    if row["reason"] in {StopReason.CERTIFIED, StopReason.NO_SINGLE_BEST}:
        return str(row["text"])
    if row["best"] is None:
        return "No judgments would remain."
    return f"Leading: {names[row['best']]}. Not decided."
