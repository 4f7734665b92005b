"""Pages, report, list, API, mails and badge say how an experiment stands in the same words."""

import re
from html import unescape

import pytest
from django.urls import reverse

from engine.models import Experiment, Notification
from engine.services.planning import advance
from tests.accounts import bearer
from tests.factories import click, click_for, make_experiment, subscribed, workers_alive, write_responses

pytestmark = pytest.mark.django_db


@pytest.fixture
def experiment(annotator) -> Experiment:
    workers_alive()
    made = make_experiment(
        n_policies=3, ready=True, annotators=(annotator,), delta=0.3, claim="good_enough", epsilon=0.1
    )
    subscribed(made)
    return made


def said(html: str) -> tuple[str, str, str]:
    """The badge, the headline and the sentence of a page."""
    found = []
    for pattern in (r'id="badge">([^<]*)<', r'class="headline">([^<]*)<', r"data-standing [^>]*>([^<]*)<"):
        match = re.search(pattern, html)
        found.append(unescape(match[1]) if match else "")
    return found[0], found[1], found[2]


def judge(experiment: Experiment, annotator, clicks: int) -> None:
    for _ in range(clicks):
        if experiment.state == "running":
            click_for(experiment, annotator, lambda i, j: i > j)
            advance(experiment_id=experiment.pk)
            write_responses()
            experiment.refresh_from_db()


@pytest.mark.parametrize("clicks", [0, 3, 200])
def test_they_agree_on_one_snapshot(clicks, experiment, annotator, admin, client_for):
    judge(experiment, annotator, clicks)
    client = client_for(admin)
    badge, headline, sentence = said(client.get(reverse("dashboard", args=[experiment.pk])).content.decode())
    words = f"{headline}. {sentence}".strip()
    report = said(client.get(reverse("report", args=[experiment.pk])).content.decode())
    assert report[1:] == (headline, sentence)
    told = client.get(f"/api/experiments/{experiment.pk}", headers=bearer(admin, ["read"])).json()
    assert (told["badge"], told["sentence"]) == (badge, words)
    home = unescape(client.get(reverse("home")).content.decode())
    assert words in home
    assert f">{badge}</span>" in home
    ended = clicks == 200
    assert (experiment.state == "concluded") == ended
    for mail in Notification.objects.all():
        assert mail.subject == f"{experiment.name}: {headline}"
        assert words in mail.text
    assert Notification.objects.count() == ended


def test_an_answer_of_the_api_is_of_one_moment(experiment, annotator, admin, client_for):
    """Clicks that no worker has planned after changed the counts, and neither the sentence nor the claims."""
    judge(experiment, annotator, 3)
    ask = client_for(admin).get
    address, headers = f"/api/experiments/{experiment.pk}", bearer(admin, ["read"])
    before = ask(address, headers=headers).json()
    click(experiment, annotator)
    after = ask(address, headers=headers).json()
    for name in ("comparisons", "pairs", "sentence", "claims", "policies", "best"):
        assert after[name] == before[name]
    assert sum(pair["comparisons"] for pair in before["pairs"]) == before["comparisons"] == 3
    advance(experiment_id=experiment.pk)
    assert ask(address, headers=headers).json()["comparisons"] == 4
