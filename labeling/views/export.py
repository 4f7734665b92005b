"""Downloads of what people judged."""

from __future__ import annotations

from collections.abc import Iterator

from defusedcsv import csv
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.text import slugify
from django.views.decorators.http import require_safe

from engine import selectors
from engine.models import Experiment, Judgment
from labeling import access
from labeling.status import policy_names

COLUMNS = (
    "judgment_id",
    "comparison_id",
    "judge",
    "annotator",
    "shown_at",
    "judged_at",
    "task",
    "reference",
    "policy_i",
    "policy_j",
    "policy_i_name",
    "policy_j_name",
    "response_i",
    "response_j",
    "left_policy",
    "right_policy",
    "choice",
    "chosen_policy",
    "chosen_response",
    "outcome",
    "reason",
    "sampler",
    "sampling_seed",
    "sampling_draw",
)


@login_required
@require_safe
def judgments_csv(request: HttpRequest, experiment_id: int) -> StreamingHttpResponse:
    """Every judgment that the estimates rest on, one row each, streamed."""
    experiment = access.to_watch(request, experiment_id)
    response = StreamingHttpResponse(_lines(experiment), content_type="text/csv; charset=utf-8")
    filename = f"{slugify(experiment.name) or 'experiment'}-judgments.csv"
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    return response


class _Echo:
    """A file that hands each line straight back, so that nothing is ever held in memory."""

    def write(self, line: str) -> str:
        return line


def _lines(experiment: Experiment) -> Iterator[str]:
    writer = csv.writer(_Echo())
    names = [name.long for name in policy_names(experiment)]
    yield writer.writerow(COLUMNS)
    for judgment in selectors.judged_rows(experiment).iterator(chunk_size=1000):
        yield writer.writerow(_row(judgment, names))


def _row(judgment: Judgment, names: list[str]) -> list[object]:
    comparison = judgment.comparison
    i, j = comparison.policy_i, comparison.policy_j
    left, right = (i, j) if comparison.i_on_left else (j, i)
    chose_left = judgment.choice == Judgment.Choice.LEFT
    chosen = comparison.left if chose_left else comparison.right
    return [
        judgment.pk,
        comparison.pk,
        judgment.judge,
        judgment.annotator.get_username() if judgment.annotator else "",
        judgment.shown_at.isoformat() if judgment.shown_at else "",
        judgment.created_at.isoformat(),
        comparison.task.prompt,
        comparison.task.reference,
        i.label,
        j.label,
        names[i.index],
        names[j.index],
        comparison.response_i.text,
        comparison.response_j.text,
        left.label,
        right.label,
        judgment.choice,
        (left if chose_left else right).label,
        chosen.text,
        judgment.outcome,
        judgment.reason,
        comparison.plan["sampler"],
        " ".join(map(str, comparison.plan["seed"])),
        comparison.plan["draw"],
    ]
