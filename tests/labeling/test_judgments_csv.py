"""The download of judgments."""

import csv
import io

import pytest
from django.test import Client
from django.urls import reverse

from engine.models import Experiment, Judgment
from labeling.exports.people import pseudonym
from tests.factories import click, make_experiment

pytestmark = pytest.mark.django_db

COLUMNS = [
    "judgment_id", "comparison_id", "judge", "annotator", "shown_at", "judged_at", "task", "reference",
    "policy_i", "policy_j", "policy_i_name", "policy_j_name", "response_i", "response_j",
    "left_policy", "right_policy", "choice", "chosen_policy", "chosen_response", "outcome", "reason",
    "sampler", "sampling_seed", "sampling_draw",
]  # fmt: skip


def download(client: Client, experiment: Experiment) -> list[dict[str, str]]:
    response = client.post(reverse("judgments_csv", args=[experiment.pk]))
    assert response.status_code == 200
    reader = csv.DictReader(io.StringIO(b"".join(response.streaming_content).decode()))
    rows = list(reader)
    assert reader.fieldnames[: len(COLUMNS)] == COLUMNS
    assert all(None not in row and None not in row.values() for row in rows)
    return rows


def test_a_name_without_letters_or_with_quotes_makes_no_trouble(admin, client_for):
    for name, stem in (("日本", "experiment-{pk}"), ('a"; x="b\r\nX: y', "a-xb-x-y")):
        experiment = make_experiment(name=name)
        response = client_for(admin).post(reverse("judgments_csv", args=[experiment.pk]))
        assert (
            response["Content-Disposition"]
            == f'attachment; filename="{stem.format(pk=experiment.pk)}-judgments.csv"'
        )


def test_every_row_says_what_was_shown_where_and_what_was_chosen(experiment, annotator, viewer, client_for):
    for choice in ("left", "right", "left", "right"):
        click(experiment, annotator, choice)
    rows = download(client_for(viewer), experiment)
    assert len(rows) == 4
    for row, judgment in zip(rows, Judgment.objects.order_by("pk"), strict=True):
        comparison = judgment.comparison
        names = {k: f"Prompt {k}" for k in range(3)}
        i, j = comparison.policy_i, comparison.policy_j
        left, right = (i, j) if comparison.i_on_left else (j, i)
        chosen = left if judgment.choice == "left" else right
        response = comparison.response_i if chosen == i else comparison.response_j
        assert {name: row[name] for name in COLUMNS} == {
            "judgment_id": str(judgment.pk),
            "comparison_id": str(comparison.pk),
            "judge": "human",
            "annotator": pseudonym(experiment, annotator.pk),
            "shown_at": judgment.shown_at.isoformat(),
            "judged_at": judgment.created_at.isoformat(),
            "task": comparison.task.prompt,
            "reference": comparison.task.reference,
            "policy_i": i.label,
            "policy_j": j.label,
            "policy_i_name": names[i.index],
            "policy_j_name": names[j.index],
            "response_i": comparison.response_i.text,
            "response_j": comparison.response_j.text,
            "left_policy": left.label,
            "right_policy": right.label,
            "choice": judgment.choice,
            "chosen_policy": chosen.label,
            "chosen_response": response.text,
            "outcome": "1.0" if chosen == i else "0.0",
            "reason": "",
            "sampler": "balanced",
            "sampling_seed": " ".join(map(str, comparison.plan["seed"])),
            "sampling_draw": str(comparison.plan["draw"]),
        }
