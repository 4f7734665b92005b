"""The download of judgments."""

from __future__ import annotations

import csv
import io
import uuid

import numpy as np
import pytest
from django.http import StreamingHttpResponse
from django.test import Client
from django.urls import reverse

from engine.models import Experiment, Judgment
from engine.selectors import counts
from engine.services.judging import void_judgment
from labeling.exports.people import pseudonym
from tests.backends import ScriptedBackend
from tests.factories import click, click_on, make_experiment, make_user, write_responses

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


def test_it_is_streamed_as_a_file_named_after_the_experiment(experiment, viewer, client_for):
    response = client_for(viewer).post(reverse("judgments_csv", args=[experiment.pk]))
    assert isinstance(response, StreamingHttpResponse)
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    assert response["Content-Disposition"] == 'attachment; filename="which-is-best-judgments.csv"'


def test_a_name_without_letters_or_with_quotes_makes_no_trouble(admin, client_for):
    for name, stem in (("日本", "experiment-{pk}"), ('a"; x="b\r\nX: y', "a-xb-x-y")):
        experiment = make_experiment(name=name)
        response = client_for(admin).post(reverse("judgments_csv", args=[experiment.pk]))
        assert (
            response["Content-Disposition"]
            == f'attachment; filename="{stem.format(pk=experiment.pk)}-judgments.csv"'
        )


def test_without_judgments_it_is_only_the_heading(experiment, viewer, client_for):
    assert download(client_for(viewer), experiment) == []


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


def test_the_counts_can_be_made_again_from_the_file(experiment, annotator, viewer, client_for):
    click_on(experiment, annotator, 9)
    click_on(experiment, annotator, 3, "right")
    wins = np.zeros((3, 3))
    for row in download(client_for(viewer), experiment):
        i, j = (int(row[f"policy_{side}"].removeprefix("P")) - 1 for side in "ij")
        wins[i, j] += float(row["outcome"])
        wins[j, i] += 1 - float(row["outcome"])
        assert row["chosen_policy"] == row["policy_i" if row["outcome"] == "1.0" else "policy_j"]
        assert row["chosen_policy"] == row["left_policy" if row["choice"] == "left" else "right_policy"]
    assert np.array_equal(wins, counts.wins_matrix(experiment))


def test_a_judgment_taken_back_is_left_out(experiment, annotator, admin, client_for):
    kept, void = click(experiment, annotator), click(experiment, annotator)
    void_judgment(judgment_id=void.pk, by=admin, reason="A slip.")
    assert [row["judgment_id"] for row in download(client_for(admin), experiment)] == [str(kept.pk)]


def test_another_experiment_is_left_out(experiment, annotator, viewer, client_for):
    click(make_experiment(ready=True, annotators=(annotator,)), annotator)
    assert download(client_for(viewer), experiment) == []


def test_a_rule_judged_row_has_its_reason_and_no_annotator(admin, client_for):
    experiment = make_experiment(ready=True, judge="rule")
    comparison = experiment.comparisons.first()
    Judgment.objects.create(
        comparison=comparison,
        judge="rule",
        via="rule",
        choice="left",
        outcome=1.0,
        reason="Because.",
        token=uuid.uuid4(),
    )
    [row] = download(client_for(admin), experiment)
    assert (row["judge"], row["annotator"], row["shown_at"], row["reason"]) == ("rule", "", "", "Because.")


@pytest.mark.parametrize("evil", ["=1+1", "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "%00", "|calc"])
def test_no_cell_is_a_formula_to_a_spreadsheet(evil, admin, client_for):
    user = make_user(evil if evil == "@SUM(A1)" else None)
    experiment = make_experiment(annotators=(user,))
    experiment.tasks.update(prompt=evil, reference=evil)
    write_responses(ScriptedBackend(lambda request: f"{evil}{request.seed}"))
    click(experiment, user)
    [row] = download(client_for(admin), experiment)
    for column in ("task", "reference", "response_i", "response_j", "chosen_response"):
        assert row[column].startswith("'"), column
        assert row[column].replace("\\|", "|").startswith(f"'{evil}")
    assert all(not cell or cell[0] not in "=+-@%|" for cell in row.values())


@pytest.mark.parametrize(
    "text", ["a,b", 'say "yes"', "one\ntwo\r\nthree", "naïve 🙂 \u202e", "inner spaces  "]
)
def test_any_text_comes_through_unharmed(text, annotator, admin, client_for):
    experiment = make_experiment(annotators=(annotator,))
    write_responses(ScriptedBackend(lambda request: f"{request.seed}{text}"))
    click(experiment, annotator)
    [row] = download(client_for(admin), experiment)
    assert row["chosen_response"] in {row["response_i"], row["response_j"]}
    assert all(row[column].lstrip("0123456789") == text for column in ("response_i", "response_j"))
