"""The page of one experiment for those who run or watch it, and the part of it that updates itself."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from engine.models import WorkerPulse
from engine.selectors.counts import wins_matrix
from engine.services.experiments import pause, stop
from engine.services.planning import advance
from tests.factories import click_for, click_on, make_experiment, write_responses

pytestmark = pytest.mark.django_db

each_view = pytest.mark.parametrize("view", ["dashboard", "dashboard_live"])
each_part = pytest.mark.parametrize("view", ["dashboard_live", "dashboard_charts", "without"])
with_charts = pytest.mark.parametrize("view", ["dashboard", "dashboard_charts"])


@pytest.fixture(autouse=True)
def alive(db) -> None:
    for queue in ("control", "generation"):
        WorkerPulse.objects.create(queue=queue, worker="w")


def page(client, experiment, view: str = "dashboard", **headers: str) -> str:
    response = client.get(reverse(view, args=[experiment.pk]), headers=headers)
    assert response.status_code == 200
    return response.content.decode()


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def race_table(html: str) -> list[list[str]]:
    table = re.search(r'<table id="race-table">.*?<tbody>(.*?)</tbody>', html, re.DOTALL)[1]
    return [re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row) for row in re.findall(r"<tr>.*?</tr>", table)]


@each_view
def test_before_the_first_click_it_says_so(view, experiment, viewer, client_for):
    html = page(client_for(viewer), experiment, view)
    assert "No judgments yet." in html
    assert "Running" in html
    assert "ruled out</td>" not in html


@each_view
def test_without_annotators_it_says_that_nobody_can_judge_and_where_to_invite(
    view, annotator, admin, client_for
):
    missing = "Nobody can judge yet: this experiment has no annotators."
    lonely = make_experiment()
    html = page(client_for(admin), lonely, view)
    assert missing in html
    assert f'<a href="{reverse("people", args=[lonely.pk])}">Invite annotators</a>' in html
    assert missing not in page(client_for(admin), make_experiment(name="Two", annotators=(annotator,)), view)
    judged_by_rule = make_experiment(name="Three", judge="rule")
    assert missing not in page(client_for(admin), judged_by_rule, view)


@each_view
def test_it_counts_the_comparisons(view, experiment, annotator, viewer, client_for):
    click_on(experiment, annotator, 5)
    assert "Comparisons 5" in text_of(page(client_for(viewer), experiment, view))


@with_charts
def test_it_shows_the_win_rates_and_every_policy(view, experiment, annotator, viewer, client_for):
    click_on(experiment, annotator, 5)
    html = page(client_for(viewer), experiment, view)
    words = text_of(html)
    for k in range(3):
        assert f"P{k + 1} Prompt {k}" in words
    wins = wins_matrix(experiment)
    counts = wins + wins.T
    for i in range(3):
        for j in range(3):
            if counts[i, j]:
                cell = f"{round(100 * wins[i, j] / counts[i, j])}%<small>{int(counts[i, j])}</small>"
                assert cell in html
    assert "not unbiased estimates" in words


@with_charts
def test_the_race_is_a_table_of_every_snapshot(view, experiment, annotator, viewer, client_for):
    click_on(experiment, annotator, 5)
    rows = race_table(page(client_for(viewer), experiment, view))
    snapshots = list(experiment.snapshots.order_by("pk"))
    assert [int(row[0]) for row in rows] == [s.comparisons for s in snapshots] == [0, 1, 2, 3, 4, 5]
    for row, snapshot in zip(rows, snapshots, strict=True):
        assert [float(value) for value in row[1:]] == [round(value, 3) for value in snapshot.evidence]


@pytest.mark.parametrize("language", ["de", "fr", "ar", "hi"])
def test_the_chart_can_read_the_numbers_in_every_language(
    language, experiment, annotator, viewer, client_for
):
    click_on(experiment, annotator, 5)
    html = page(client_for(viewer), experiment, **{"Accept-Language": language})
    for row in race_table(html):
        assert all(re.fullmatch(r"-?\d+(\.\d+)?", value) for value in row), row
    assert float(re.search(r'data-threshold="([^"]*)"', html)[1]) == pytest.approx(2.996)


def test_a_policy_that_is_ruled_out_and_the_one_that_leads_are_told(viewer, annotator, client_for, admin):
    experiment = make_experiment(n_policies=3, ready=True, annotators=(annotator,), delta=0.3)
    while not any(
        peak >= snapshot.threshold
        for snapshot in experiment.snapshots.all()
        for peak in snapshot.peak_evidence
    ):
        click_for(experiment, annotator, lambda i, j: i < j)
        advance(experiment_id=experiment.pk)
        write_responses()
    words = text_of(page(client_for(admin), experiment))
    assert "ruled out" in words
    assert "leads" in words or "winner" in words


def test_a_certified_winner_is_named_with_its_claim_and_its_risk(annotator, admin, client_for):
    experiment = make_experiment(n_policies=2, ready=True, annotators=(annotator,), delta=0.07)
    while experiment.state == "running":
        click_for(experiment, annotator, lambda i, j: i > j)
        advance(experiment_id=experiment.pk)
        write_responses()
        experiment.refresh_from_db()
    html = page(client_for(admin), experiment)
    assert "Certified winner" in html
    assert (
        "If some policy beats every other, it is P2 (Prompt 1); the risk of ever saying so wrongly "
        "is at most 7%"
    ) in html
    assert "It rests on the judgments of one person alone." in html
    assert "certain" not in re.sub(r"Certified|certified", "", html)
    assert "<strong>winner</strong>" in html
    assert "hx-trigger" not in html


@each_view
def test_it_updates_itself_only_while_the_experiment_runs(view, experiment, viewer, client_for):
    client = client_for(viewer)
    assert f'hx-get="{reverse("dashboard_live", args=[experiment.pk])}"' in page(client, experiment, view)
    pause(experiment_id=experiment.pk)
    assert "hx-get" not in page(client, experiment, view)


@each_view
@pytest.mark.parametrize(
    ("before", "offered", "withheld"),
    [
        ("draft", ["start"], ["pause", "stop"]),
        ("running", ["pause", "stop"], ["start"]),
        ("paused", ["start", "stop"], ["pause"]),
        ("concluded", [], ["start", "pause", "stop"]),
    ],
)
def test_who_may_run_it_is_offered_what_its_state_allows(view, before, offered, withheld, admin, client_for):
    experiment = make_experiment(running=before != "draft")
    if before == "paused":
        pause(experiment_id=experiment.pk)
    if before == "concluded":
        stop(experiment_id=experiment.pk)
    html = page(client_for(admin), experiment, view)
    for action in offered:
        assert f'name="action" value="{action}"' in html
    for action in withheld:
        assert f'name="action" value="{action}"' not in html


@each_view
def test_a_viewer_is_offered_no_button(view, experiment, viewer, editor, client_for):
    assert 'name="action"' not in page(client_for(viewer), experiment, view)
    assert 'name="action"' in page(client_for(editor), experiment, view)


@each_part
def test_a_part_is_a_part_and_the_page_holds_it(view, experiment, viewer, client_for):
    client = client_for(viewer)
    part = page(client, experiment, view)
    assert "<html" not in part
    inside = without_moving_numbers(part).replace(' hx-swap-oob="true"', "")
    whole = without_moving_numbers(page(client, experiment))
    # The moving part and the queue stand in two places of the page.
    for section in inside.split('<section class="card" id="queue"'):
        assert section.strip() in whole


def without_moving_numbers(html: str) -> str:
    """Without secrets that differ each time, and seconds that pass meanwhile."""
    return re.sub(r'value="[A-Za-z0-9]{64}"|\d+ s ago', "", html)


@each_view
def test_it_is_never_kept_by_a_cache(view, experiment, viewer, client_for):
    response = client_for(viewer).get(reverse(view, args=[experiment.pk]))
    assert "no-store" in response["Cache-Control"]


@with_charts
def test_names_with_markup_in_them_are_only_text(view, admin, client_for):
    experiment = make_experiment(name="<b>bold</b>", question="<i>Which?</i>")
    level = experiment.factors.get().levels.first()
    level.name = "<script>alert(1)</script>"
    level.save()
    html = page(client_for(admin), experiment, view)
    for markup in ("<b>bold", "<i>Which", "<script>alert"):
        assert markup not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


@pytest.mark.parametrize("view", ["dashboard", "dashboard_live", "dashboard_charts"])
def test_its_cost_does_not_grow_with_the_number_of_judgments(view, experiment, annotator, viewer, client_for):
    client = client_for(viewer)
    click_on(experiment, annotator, 2)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            page(client, experiment, view)
        return len(captured)

    few = queries()
    click_on(experiment, annotator, 10)
    assert queries() <= few <= 65


def test_the_export_is_one_click_away(experiment, viewer, client_for):
    assert reverse("judgments_csv", args=[experiment.pk]) in page(client_for(viewer), experiment)
