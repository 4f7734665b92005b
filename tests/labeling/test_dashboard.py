"""The result, the quality and the method of one experiment, and the parts of them that update themselves."""

import re

import pytest
from django.urls import reverse

from engine.core import StopReason
from engine.models import Experiment, Response
from engine.selectors.counts import wins_matrix
from engine.selectors.policies import policy_names
from engine.services.experiments import conclude, pause, stop
from engine.services.judging import record_answer
from engine.services.planning import advance
from tests.factories import (
    add_member,
    assign,
    click_for,
    click_on,
    make_experiment,
    make_user,
    plan_and_write,
    workers_alive,
    write_responses,
)
from tests.markup import text_of

pytestmark = pytest.mark.django_db

TABS = ["dashboard", "quality", "method"]
POLLED = ["dashboard_live", "quality_charts", "method_live", "method_charts"]

each_result = pytest.mark.parametrize("view", ["dashboard", "dashboard_live"])


@pytest.fixture(autouse=True)
def alive(db) -> None:
    workers_alive()


def page(client, experiment, view: str = "dashboard", **headers: str) -> str:
    response = client.get(reverse(view, args=[experiment.pk]), headers=headers)
    assert response.status_code == 200
    return response.content.decode()


def race_table(html: str) -> list[list[str]]:
    table = re.search(r'<table id="race-table">.*?<tbody>(.*?)</tbody>', html, re.DOTALL)[1]
    return [re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row) for row in re.findall(r"<tr>.*?</tr>", table)]


def clear_winner(experiment: Experiment, annotator) -> Experiment:
    """Judge it to its end: the larger index wins."""
    while experiment.state == "running":
        click_for(experiment, annotator, lambda i, j: i > j)
        advance(experiment_id=experiment.pk)
        write_responses()
        experiment.refresh_from_db()
    return experiment


class TestVerdict:
    @each_result
    def test_before_the_first_click_it_names_the_goal_and_no_leader(
        self, view, experiment, viewer, client_for
    ):
        words = text_of(page(client_for(viewer), experiment, view))
        assert "No judgments yet" in words
        assert "Leading" not in words
        assert "It stops when one is the best, if there is one" in words

    @each_result
    def test_while_it_runs_it_names_the_leader_what_is_settled_and_what_remains(
        self, view, experiment, annotator, viewer, client_for
    ):
        for _ in range(5):
            click_on(experiment, annotator, 1)
        words = text_of(page(client_for(viewer), experiment, view))
        assert re.search(r"Leading: Prompt \d All 2 rivals are open\.", words)

    def test_without_annotators_the_next_action_is_to_invite_somebody(self, annotator, admin, client_for):
        for lonely, experiment in (
            (True, make_experiment()),
            (False, make_experiment(annotators=(annotator,))),
            (False, make_experiment(judge="rule")),
        ):
            invite = f'href="{reverse("invite", args=[experiment.pk])}">Invite somebody</a>'
            assert (invite in page(client_for(admin), experiment)) == lonely

    def test_a_certified_winner_comes_with_its_claim_its_risk_and_its_prompt(
        self, annotator, admin, client_for
    ):
        experiment = make_experiment(n_policies=2, ready=True, annotators=(annotator,), delta=0.3)
        html = page(client_for(admin), clear_winner(experiment, annotator))
        words = text_of(html)
        assert "Use Prompt 1" in words
        row = re.search(r'class="numbers">(\d+)%', html)  # the rival's, in the ranking
        said = f"Preferred to the other policy in an estimated {100 - int(row[1])}% of comparisons"
        assert f"{said}; risk of a wrong pick at most 30%" in words
        assert "It rests on the judgments of one person alone." in words
        assert "quality 1</pre>" in html
        assert reverse("policy_request", args=[experiment.pk, 2]) in html
        assert "hx-trigger" not in html
        assert '<span class="badge certified">winner</span>' in html

    def test_a_winner_shows_three_of_its_wins_and_its_losses_to_read(self, annotator, admin, client_for):
        experiment = make_experiment(n_policies=2, n_tasks=9, ready=True, annotators=(annotator,))
        wins = experiment.policies.get(index=1)
        for n in range(9):
            click_for(experiment, annotator, lambda i, j, n=n: (i > j) == (n != 4))
            advance(experiment_id=experiment.pk)
            write_responses()
        conclude(
            experiment=Experiment.objects.get(pk=experiment.pk),
            conclusion=StopReason.CERTIFIED,
            winner=wins,
            claim="best_if_any",
            finding="It is.",
            by=None,
        )
        html = page(client_for(admin), experiment)
        won, lost = html.split("<h3>Preferred</h3>")[1].split("<h3>Not preferred</h3>")
        assert won.count('<article class="example">') == 3
        assert lost.count('<article class="example">') == 1
        # What people chose is marked, by either policy.
        assert re.search(r'<blockquote class="chosen"><p[^>]*>(?!<span)', won)
        assert re.search(r'<blockquote class="chosen"><p[^>]*><span class="muted">Prompt 0:</span>', lost)


class TestRanking:
    def test_the_card_counts_the_rivals_that_it_shows_as_open(self, viewer, annotator, client_for):
        """It said "2 of 3 ruled out", those of the claim "best", above three that were ruled out."""
        experiment = make_experiment(
            n_policies=3, ready=True, annotators=(annotator,), delta=0.3, claim="best"
        )
        add_member(experiment, viewer, "viewer")
        n_open = 2
        while n_open == 2:
            for _ in range(3):
                click_for(experiment, annotator, lambda i, j: i > j)
                plan_and_write(experiment)
            experiment.refresh_from_db()
            assert experiment.state == "running", "the claim has excluded none all the time"
            html = page(client_for(viewer), experiment)
            n_open = int(re.search(r'data-rivals="2" data-open="(\d)"', html)[1])
            assert html.count('<tr data-standing="open">') == n_open
            assert html.count('<tr data-standing="beaten">') == 2 - n_open
            method = page(client_for(viewer), experiment, "method")
            assert int(re.search(r"<dd data-open>(\d)", method)[1]) == n_open

    def test_late_judgments_count_in_it(self, annotator, admin, client_for):
        """One definition, which the file has too: all counts, as the sentence of the verdict says."""
        experiment = make_experiment(ready=True, annotators=(annotator,))
        click_on(experiment, annotator, 3)
        held = assign(experiment, annotator)
        stop(experiment_id=experiment.pk)
        record_answer(experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left")
        html = page(client_for(admin), experiment)
        assert "1 more came later" in html
        rows = re.findall(r'<td class="number less">(\d+)</td><td', html)
        assert sum(map(int, rows)) == 2 * 4


class TestQuality:
    def test_it_says_how_often_the_longer_response_was_preferred(
        self, experiment, annotator, viewer, client_for
    ):
        click_on(experiment, annotator, 4)
        judged = list(experiment.comparisons.filter(state="judged").order_by("pk"))
        for n, row in enumerate(judged):
            long, short = (row.response_i, row.response_j)
            if (row.outcome > 0.5) != (n < 3):
                long, short = short, long
            type(long).objects.filter(pk=long.pk).update(completion_tokens=50)
            type(short).objects.filter(pk=short.pk).update(completion_tokens=20)
        words = text_of(page(client_for(viewer), experiment, "quality"))
        assert "The longer response was preferred in 75% of 4 comparisons." in words

    def test_it_says_how_many_responses_of_each_policy_were_cut_off(self, experiment, viewer, client_for):
        written = Response.objects.filter(policy__experiment=experiment, policy__index=1, state="done")
        written.update(finish_reason="length")
        words = text_of(page(client_for(viewer), experiment, "quality"))
        name = policy_names(experiment)[1].name
        assert f"{name}: {written.count()} of {written.count()}" in words


class TestMethod:
    def test_it_shows_the_win_rates(self, experiment, annotator, viewer, client_for):
        click_on(experiment, annotator, 5)
        html = page(client_for(viewer), experiment, "method")
        wins = wins_matrix(experiment)
        counts = wins + wins.T
        for i, j in zip(*counts.nonzero(), strict=True):
            assert f"{round(100 * wins[i, j] / counts[i, j])}%<small>{int(counts[i, j])}</small>" in html

    def test_the_race_is_a_table_of_every_snapshot(self, experiment, annotator, viewer, client_for):
        for _ in range(3):
            click_on(experiment, annotator, 1)
        rows = race_table(page(client_for(viewer), experiment, "method"))
        snapshots = list(experiment.snapshots.order_by("pk"))
        assert [int(row[0]) for row in rows] == [s.comparisons for s in snapshots] == [0, 1, 2, 3]
        for row, snapshot in zip(rows, snapshots, strict=True):
            assert [float(value) for value in row[1:]] == [round(value, 3) for value in snapshot.evidence]

    @pytest.mark.parametrize("language", ["de", "hi"])
    def test_the_chart_can_read_the_numbers_in_every_language(
        self, language, experiment, annotator, viewer, client_for
    ):
        click_on(experiment, annotator, 2)
        html = page(client_for(viewer), experiment, "method", **{"Accept-Language": language})
        for row in race_table(html):
            assert all(re.fullmatch(r"-?\d+(\.\d+)?", value) for value in row), row
        assert float(re.search(r'data-threshold="([^"]*)"', html)[1]) == pytest.approx(2.996)


class TestParts:
    @pytest.mark.parametrize("view", [*POLLED, "without"])
    def test_a_part_is_a_part_and_its_tab_holds_it(self, view, experiment, annotator, viewer, client_for):
        click_on(experiment, annotator, 2)
        other = make_user()
        add_member(experiment, other)
        click_on(experiment, other, 1)
        client = client_for(viewer)
        part = page(client, experiment, view)
        assert "<html" not in part
        tab = {"dashboard": "dashboard", "method": "method"}.get(view.split("_")[0])
        whole = without_moving_numbers(page(client, experiment, tab or "quality"))
        # htmx puts the badge, the charts and the queue into places of their own.
        for section in re.split(
            r'(?=<section class="card" id="queue")|(?<=</span>\n)(?=\n*<div)|(?=<div id="charts")', part
        ):
            assert without_moving_numbers(section).strip() in whole

    @pytest.mark.parametrize(
        ("tab", "polls"),
        [
            ("dashboard", ["dashboard_live"]),
            ("quality", ["quality_charts"]),
            ("method", ["method_live", "method_charts"]),
        ],
    )
    def test_a_tab_updates_itself_only_while_the_experiment_runs(
        self, tab, polls, experiment, viewer, client_for
    ):
        client = client_for(viewer)
        html = page(client, experiment, tab)
        for part in polls:
            assert f'hx-get="{reverse(part, args=[experiment.pk])}' in html
        pause(experiment_id=experiment.pk)
        assert "hx-get" not in page(client, experiment, tab)

    @pytest.mark.parametrize("view", POLLED)
    def test_a_page_that_still_polls_after_the_end_is_loaded_anew(self, view, experiment, viewer, client_for):
        client = client_for(viewer)
        assert "HX-Refresh" not in client.get(reverse(view, args=[experiment.pk]), {"seen": "it"})
        stop(experiment_id=experiment.pk)
        answer = client.get(reverse(view, args=[experiment.pk]), {"seen": "it"})
        assert (answer["HX-Refresh"], answer.content) == ("true", b"")


def without_moving_numbers(html: str) -> str:
    """Without secrets that differ each time, places of htmx, and seconds that pass meanwhile."""
    return re.sub(
        r'value="[A-Za-z0-9]{64}"|\d+ seconds? ago| hx-swap-oob="true"|<time [^>]*>[^<]*</time>|made=[^"]*',
        "",
        html,
    )


@pytest.mark.parametrize(
    ("before", "offered"),
    [
        ("draft", {"start", "archive"}),
        ("running", {"pause", "stop"}),
        ("paused", {"start", "stop", "archive"}),
        ("concluded", {"archive"}),
    ],
)
def test_who_may_run_it_is_offered_what_its_state_allows(before, offered, admin, client_for):
    experiment = make_experiment(running=before != "draft")
    if before == "paused":
        pause(experiment_id=experiment.pk)
    if before == "concluded":
        stop(experiment_id=experiment.pk)
    # A draft has no result: its address leads to the setup.
    html = client_for(admin).get(reverse("dashboard", args=[experiment.pk]), follow=True).content.decode()
    actions = set(re.findall(r'name="action" value="(\w+)"', html))
    assert actions & {"start", "pause", "stop", "archive"} == offered


def test_a_viewer_is_offered_no_button(experiment, viewer, editor, client_for):
    assert 'name="action"' not in page(client_for(viewer), experiment)
    assert 'name="action"' in page(client_for(editor), experiment)


@pytest.mark.parametrize("view", [*TABS, "setup"])
def test_names_with_markup_in_them_are_only_text(view, annotator, client_for):
    experiment = make_experiment(
        name="<b>bold</b>", question="<i>Which?</i>", ready=True, annotators=(annotator,)
    )
    vera = make_user()
    add_member(experiment, vera, "viewer")
    level = experiment.factors.get().levels.first()
    level.name = "<script>alert(1)</script>"
    level.save()
    click_on(experiment, annotator, 3)
    html = page(client_for(vera), experiment, view)
    for markup in ("<b>bold", "<i>Which", "<script>alert"):
        assert markup not in html
    assert ("&lt;script&gt;alert(1)&lt;/script&gt;" in html) == (view != "quality" or "alert" in html)
