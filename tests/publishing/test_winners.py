"""The winner of an experiment as a file of promptfoo: pages, API, client and command."""

import pytest
from django.core.management.base import CommandError
from django.urls import reverse

from engine.models import Connection, Experiment
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from tests.accounts import bearer, logged_in
from tests.commands import run
from tests.engine.test_promptfoo import configured, read
from tests.factories import add_member, certify, make_experiment, make_user
from tests.publishing.test_promptfoo import policies_of, sent

pytestmark = pytest.mark.django_db


def from_promptfoo(*names: str) -> Experiment:
    """A concluded experiment with the last policy of these files as its winner."""
    told = read(*names)
    for wanted in told.connections:
        Connection.objects.create(
            name=wanted.name, provider=wanted.provider, model_id=wanted.model_id, everybody=True
        )
    experiment = create_experiment(spec=told.spec)
    start(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    certify(experiment, winner=told.n_policies - 1)
    return experiment


def test_from_promptfoo_to_a_winner_and_back():
    told = read("01-two-by-two.yaml")
    experiment = from_promptfoo("01-two-by-two.yaml")
    viewer = make_user()
    add_member(experiment, viewer, "viewer")
    client = logged_in(viewer)
    address = reverse("winner_file", args=[experiment.pk])
    assert address in client.get(reverse("export", args=[experiment.pk])).content.decode()
    text = client.get(address).content.decode()
    again = configured(text)
    [(_, new)] = policies_of(again)
    *_, (_, won) = policies_of(told)
    assert again.n_policies == 1
    assert sent(new, again.spec.tasks) == sent(won, told.spec.tasks)
    assert (new.model, new.sampling) == (won.model, won.sampling)
    assert "# claim: It is good enough." in text.splitlines()
    headers = bearer(viewer, ["read"])
    of_api = client.get(f"/api/experiments/{experiment.pk}/winner.yaml", headers=headers)
    assert of_api.content.decode() == text == run("winner", experiment.pk)


def test_without_a_winner_there_is_no_file(tmp_path):
    experiment = make_experiment()
    with pytest.raises(CommandError):
        run("winner", experiment.pk, out=tmp_path / "winner.yaml")
    assert list(tmp_path.iterdir()) == []


def test_ready_made_responses_have_no_prompt_to_give():
    told = read("10-results.json")
    experiment = create_experiment(spec=told.spec)
    start(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    certify(experiment)
    owner = make_user(is_superuser=True)
    address = reverse("winner_file", args=[experiment.pk])
    client = logged_in(owner)
    assert client.get(address).status_code == 404
    assert address not in client.get(reverse("export", args=[experiment.pk])).content.decode()
