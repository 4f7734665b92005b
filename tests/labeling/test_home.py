"""The first page after login."""

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from engine.core import StopReason
from engine.models import Experiment, User
from engine.selectors.policies import policy_names
from engine.services.experiments import conclude, pause, stop
from tests.factories import add_member, click, make_experiment, make_user, workers_alive

pytestmark = pytest.mark.django_db


def page(client) -> str:
    response = client.get(reverse("home"))
    assert response.status_code == 200
    return response.content.decode()


def test_an_annotator_finds_what_there_is_to_label_and_how_much_they_did(experiment, annotator, client_for):
    assert "Start labeling" in page(client_for(annotator))
    click(experiment, annotator)
    html = page(client_for(annotator))
    assert "Continue labeling" in html
    assert "Start labeling" not in html
    assert experiment.name in html
    assert "1 judged by you" in html
    assert reverse("pair", args=[experiment.pk]) in html
    assert reverse("dashboard", args=[experiment.pk]) not in html


@pytest.mark.parametrize("change", [pause, stop])
def test_what_does_not_run_cannot_be_entered(change, experiment, annotator, client_for):
    change(experiment_id=experiment.pk)
    html = page(client_for(annotator))
    assert {"pause": "is paused", "stop": "was stopped before it was decided"}[change.__name__] in html
    assert f'href="{reverse("pair", args=[experiment.pk])}"' not in html
    assert reverse("history", args=[experiment.pk]) in html


def test_a_viewer_finds_the_dashboards_with_their_badges(experiment, viewer, client_for):
    workers_alive()
    html = page(client_for(viewer))
    assert reverse("dashboard", args=[experiment.pk]) in html
    assert reverse("pair", args=[experiment.pk]) not in html
    assert "Running" in html
    assert "No judgments yet." in html


def test_somebody_without_an_experiment_is_told_what_to_do(experiment, stranger, client_for):
    html = page(client_for(stranger))
    assert "Nothing here yet" in html
    assert experiment.name not in html


def test_a_name_with_markup_in_it_is_only_text(annotator, client_for):
    make_experiment(name="<script>alert(1)</script>", annotators=(annotator,))
    html = page(client_for(annotator))
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


@pytest.mark.parametrize("claim", ["good_enough", "best", "best_if_any"])
def test_a_finished_experiment_says_what_to_use_without_the_finding(claim, admin, client_for):
    """The finding with all its conditions made its card the longest of all."""
    experiment = make_experiment(claim="good_enough", epsilon=0.15)
    winner = experiment.policies.get(index=0)
    finding = "A finding with its conditions."
    conclude(
        experiment=experiment,
        conclusion=StopReason.CERTIFIED,
        winner=winner,
        claim=claim,
        finding=finding,
        by=None,
    )
    html = page(client_for(admin))
    assert f"Use {policy_names(experiment)[0].name}." in html
    assert finding not in html


def test_who_labels_and_runs_an_experiment_finds_it_once_in_each_list(experiment, annotator, client_for):
    for role in ("viewer", "owner"):
        add_member(experiment, annotator, role)
    html = page(client_for(annotator))
    assert html.count(f'href="{reverse("pair", args=[experiment.pk])}"') == 1
    assert html.count(f'href="{reverse("dashboard", args=[experiment.pk])}"') == 1


def test_more_experiments_cost_no_more_queries(admin, annotator, client_for, django_assert_num_queries):
    client = client_for(admin)

    def add() -> None:
        running = make_experiment(ready=True, annotators=(annotator, admin))
        click(running, annotator)
        paused, told = make_experiment(annotators=(admin,)), make_experiment(annotators=(admin,))
        pause(experiment_id=paused.pk)
        winner = told.policies.get(index=0)
        conclude(
            experiment=told, conclusion=StopReason.CERTIFIED, winner=winner, claim="best", finding="", by=None
        )
        Experiment.objects.filter(pk=told.pk).update(tell_outcome=True)
        make_experiment(running=False)

    add()
    page(client)
    with CaptureQueriesContext(connection) as asked:
        page(client)
    add()
    add()
    with django_assert_num_queries(len(asked)):
        html = page(client)
    assert html.count("Your group preferred") == 3
    assert html.count('class="badge') == 12


@pytest.fixture(scope="class")
def many(shared_rows: None) -> int:
    """Eight experiments of two makers, in all states but one; the key of the viewer of all."""
    maker, viewer = make_user("maker"), make_user("viewer")
    named = {}
    for number, name in enumerate(["Alpha", "beta", "Gamma", "delta", "Epsilon", "zeta", "Eta", "theta"]):
        named[name] = make_experiment(name=name, question=f"Is {name} good?", running=number % 2 == 0)
        Experiment.objects.filter(pk=named[name].pk).update(maker=maker if number < 2 else viewer)
        add_member(named[name], viewer, "viewer")
    tagged = {"Alpha": "german, support", "zeta": "support, support-2", "Eta": "support-2"}
    for name, tags in tagged.items():
        Experiment.objects.filter(pk=named[name].pk).update(tags=tags)
    pause(experiment_id=named["Gamma"].pk)
    Experiment.objects.filter(pk=named["theta"].pk).update(archived_at=timezone.now())
    return viewer.pk


class TestFinding:
    @pytest.fixture
    def finder(self, many, client_for) -> Client:
        """The browser of the viewer of all."""
        return client_for(User.objects.get(pk=many))

    @pytest.mark.parametrize(
        ("asked", "names"),
        [
            ("", "Eta zeta Epsilon delta Gamma beta Alpha"),
            ("q=TA", "Eta zeta delta beta"),
            ("q=is+gamma+g", "Gamma"),
            ("state=paused", "Gamma"),
            ("state=archived", "theta"),
            ("sort=name", "Alpha beta delta Epsilon Eta Gamma zeta"),
            ("sort=state&q=a", "zeta delta beta Gamma Eta Alpha"),
            ("maker=mine&state=running", "Eta Epsilon"),
            ("tag=support", "zeta Alpha"),
            ("tag=support-2&sort=name", "Eta zeta"),
            ("q=nothing+of+the+kind", ""),
            # What is not offered asks for nothing.
            ("state=lost&maker=99999&tag=port&sort=up&page=x", "Eta zeta Epsilon delta Gamma beta Alpha"),
            ("q=a%00b", "Eta zeta Epsilon delta Gamma beta Alpha"),
        ],
    )
    def test_what_is_asked_for_is_found_in_order(self, asked, names, finder):
        html = finder.get(f"{reverse('home')}?{asked}").content.decode()
        assert re.findall(r'<h2><a href="[^"]+">(\w+)</a></h2>', html) == names.split()
        assert ("No experiment fits this filter." in html) == (names == "")

    def test_pages_keep_what_was_asked(self, finder, monkeypatch):
        monkeypatch.setattr("labeling.views.home._PER_PAGE", 2)
        html = finder.get(f"{reverse('home')}?q=ta&page=2").content.decode()
        assert re.findall(r'<h2><a href="[^"]+">(\w+)</a></h2>', html) == ["delta", "beta"]
        assert 'href="?q=ta&amp;page=1"' in html
        assert "Page 2 of 2" in html
