"""Results by task and by tag as CSV, and the table of responses that a new policy lacks."""

import csv
import io
from collections.abc import Iterable, Sequence

from engine.domain.policy_space import PolicyName
from engine.importing.formula_cells import defused
from engine.selectors.breakdown import Part

COLUMNS = {
    "task": ("task", "tags", "policy", "wins", "comparisons", "share"),
    "tag": ("tag", "tasks", "policy", "wins", "comparisons", "share"),
}
_DIGITS = 4


def breakdown_csv(parts: Iterable[Part], names: Sequence[PolicyName], by: str) -> str:
    """A line for each policy at each task or tag; `docs/export.md` explains the columns.

    ``by``: a key of `COLUMNS`.
    """
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(COLUMNS[by])
    for part in parts:
        first = part.tasks[0]
        place = [part.tag, len(part.tasks)] if by == "tag" else [first.prompt, "; ".join(first.tags)]
        for policy, won in sorted(part.policies.items()):
            cells = [*place, names[policy].name]
            writer.writerow(
                [
                    *(defused(cell) if isinstance(cell, str) else cell for cell in cells),
                    round(won.wins, _DIGITS),
                    won.comparisons,
                    round(won.share, _DIGITS),
                ]
            )
    return lines.getvalue()


def responses_csv(prompts: Iterable[str]) -> str:
    """A line for each task, where a policy's name and its response are missing."""
    lines = io.StringIO()
    rows = [("task", "policy", "response"), *((defused(prompt), "", "") for prompt in prompts)]
    csv.writer(lines, lineterminator="\n").writerows(rows)
    return lines.getvalue()
