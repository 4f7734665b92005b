"""Starting, pausing, stopping."""

import pytest
from django.urls import reverse

from engine.services.experiments import pause, stop
from tests.factories import add_member, make_experiment
from tests.markup import Markup, words

pytestmark = pytest.mark.django_db


@pytest.fixture
def draft(editor):
    experiment = make_experiment(running=False)
    add_member(experiment, editor, "editor")
    return experiment


def change(client, experiment, action: str | None, confirmed: str = "", **options):
    form = {"confirmed": confirmed} | ({} if action is None else {"action": action})
    return client.post(reverse("change_state", args=[experiment.pk]), form, **options)


def test_a_draft_is_started_and_its_first_comparisons_are_planned_right_away(
    draft, editor, client_for, sent, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True):
        response = change(client_for(editor), draft, "start")
    assert response.status_code == 302
    assert response["Location"] == reverse("dashboard", args=[draft.pk])
    draft.refresh_from_db()
    assert draft.state == "running"
    assert sent == [(draft.pk,)]


def test_pause_resume_and_stop(experiment, owner, client_for):
    client = client_for(owner)
    for action, state in (("pause", "paused"), ("start", "running"), ("stop", "concluded")):
        assert change(client, experiment, action, confirmed="1").status_code == 302
        experiment.refresh_from_db()
        assert experiment.state == state
    assert experiment.conclusion == "stopped"


@pytest.mark.parametrize(
    ("before", "action", "words"),
    [
        ("running", "start", "Only a draft or paused experiment can be started; this one is running."),
        ("paused", "pause", "Only a running experiment can be paused; this one is paused."),
        ("concluded", "stop", "Only a running or paused experiment can be stopped; this one is concluded."),
    ],
)
def test_what_its_state_does_not_allow_is_explained_on_the_dashboard(
    before, action, words, experiment, editor, client_for
):
    if before == "paused":
        pause(experiment_id=experiment.pk)
    if before == "concluded":
        stop(experiment_id=experiment.pk)
    response = change(client_for(editor), experiment, action, follow=True)
    assert response.status_code == 200
    assert words in response.content.decode()
    experiment.refresh_from_db()
    assert experiment.state == before


@pytest.mark.parametrize("before", ["running", "paused"])
def test_stop_asks_first_and_says_what_it_means(before, experiment, owner, client_for):
    """One click on the wrong button ended an experiment for good. Works without
    JavaScript.
    """
    if before == "paused":
        pause(experiment_id=experiment.pk)
    client = client_for(owner)
    asked = change(client, experiment, "stop")
    assert asked.status_code == 200
    text = words(asked)
    assert "Stop this experiment?" in text
    assert "ends without a decision" in text
    assert "already hold" not in text
    assert "You can reopen the experiment later" in text
    assert ("Pause instead" in text) == (before == "running")
    experiment.refresh_from_db()
    assert experiment.state == before
    form = {
        e.attributes["name"]: e.attributes["value"]
        for e in Markup(asked.content.decode()).elements
        if e.attributes.get("name") in {"confirmed", "action"} and e.attributes["value"] != "pause"
    }
    assert client.post(reverse("change_state", args=[experiment.pk]), form).status_code == 302
    experiment.refresh_from_db()
    assert (experiment.state, experiment.conclusion) == ("concluded", "stopped")


@pytest.mark.parametrize("action", [None, "", "delete", "START"])
def test_an_action_that_does_not_exist_is_a_bad_request(action, experiment, editor, client_for):
    assert change(client_for(editor), experiment, action).status_code == 400
    experiment.refresh_from_db()
    assert experiment.state == "running"
