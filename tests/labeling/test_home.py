"""The first page after login."""

from __future__ import annotations

import pytest
from django.urls import reverse
from django.utils import timezone

from engine.models import WorkerPulse
from engine.services.experiments import pause, stop
from tests.factories import add_member, click, make_experiment

pytestmark = pytest.mark.django_db


def page(client) -> str:
    response = client.get(reverse("home"))
    assert response.status_code == 200
    return response.content.decode()


def test_an_annotator_finds_what_there_is_to_label_and_how_much_they_did(experiment, annotator, client_for):
    click(experiment, annotator)
    html = page(client_for(annotator))
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
    for queue in ("control", "generation"):
        WorkerPulse.objects.create(queue=queue, worker="w", seen_at=timezone.now())
    html = page(client_for(viewer))
    assert reverse("dashboard", args=[experiment.pk]) in html
    assert reverse("pair", args=[experiment.pk]) not in html
    assert "Running" in html
    assert "No judgments yet." in html


def test_workers_that_were_never_seen_are_said_so(experiment, viewer, client_for):
    html = page(client_for(viewer))
    assert "Unhealthy" in html
    assert "The control worker has never run. Start it." in html


def test_an_admin_sees_every_experiment(experiment, admin, client_for):
    other = make_experiment(name="Another one")
    html = page(client_for(admin))
    assert reverse("dashboard", args=[experiment.pk]) in html
    assert reverse("dashboard", args=[other.pk]) in html


def test_somebody_without_an_experiment_is_told_what_to_do(experiment, stranger, client_for):
    html = page(client_for(stranger))
    assert "Nothing here yet" in html
    assert experiment.name not in html


def test_a_name_with_markup_in_it_is_only_text(annotator, client_for):
    make_experiment(name="<script>alert(1)</script>", annotators=(annotator,))
    html = page(client_for(annotator))
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


def test_who_labels_and_runs_an_experiment_finds_it_once_in_each_list(experiment, annotator, client_for):
    for role in ("viewer", "owner"):
        add_member(experiment, annotator, role)
    html = page(client_for(annotator))
    assert html.count(f'href="{reverse("pair", args=[experiment.pk])}"') == 1
    assert html.count(f'href="{reverse("dashboard", args=[experiment.pk])}"') == 1
