"""`/metrics`: what Prometheus reads, and the dashboard that shows it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from engine.models import Charge, Connection, Experiment, Response, WorkerPulse
from tests.accounts import bearer
from tests.factories import click, make_experiment

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]
TOKEN = "only-for-prometheus"


@pytest.fixture
def scraper(settings) -> Client:
    """As Prometheus asks: by the container's address, without a login, without TLS."""
    settings.METRICS_TOKEN = TOKEN
    settings.SECURE_SSL_REDIRECT = True
    return Client(headers={"host": "10.0.0.7:8000", "authorization": f"Bearer {TOKEN}"})


def samples(scraper: Client) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    reply = scraper.get("/metrics")
    assert reply.status_code == 200
    assert reply["Cache-Control"] == "no-store"
    families = text_string_to_metric_families(reply.content.decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(found: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str) -> float:
    return found.get((name, frozenset(labels.items())), 0.0)


def test_without_the_token_there_is_nothing(scraper, settings):
    for sent in ("", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", "Bearer ünknown"):
        assert Client(headers={"authorization": sent}).get("/metrics").status_code == 401
    assert scraper.post("/metrics").status_code == 405
    settings.METRICS_TOKEN, settings.SECURE_SSL_REDIRECT = "", False
    assert Client(headers={"authorization": "Bearer "}).get("/metrics").status_code == 404


def test_it_tells_what_waits_what_was_done_and_who_is_alive(scraper, annotator):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    before = value(samples(scraper), "llmpo_judgments_total")
    judgment = click(experiment, annotator)
    half = judgment.comparison.response_i
    Response.objects.filter(pk=half.pk).update(
        state="failed", failure_reason="The server answered 503: try again after 7 s"
    )
    WorkerPulse.objects.create(queue="control", worker="control@here")
    gpt = Connection.objects.create(name="GPT", provider="openai", model_id="m")
    Charge.objects.create(model="GPT", connection=gpt, purpose="test", cost=0.5, currency="EUR")
    found = samples(scraper)
    assert value(found, "llmpo_judgments_total") > before
    assert value(found, "llmpo_experiments", state="running") == 1
    n_ready = experiment.comparisons.filter(state="ready").count()
    assert value(found, "llmpo_comparisons", experiment=str(experiment.pk), state="ready") == n_ready > 0
    assert value(found, "llmpo_newest_assignments", state="judged") == 1
    assert value(found, "llmpo_newest_responses", state="failed", reason="The server answered") == 1
    assert value(found, "llmpo_generation_tokens_per_second") > 0
    assert value(found, "llmpo_spent_24h", model="GPT", currency="EUR") == 0.5
    assert value(found, "llmpo_worker_alive", queue="control", worker="control@here") == 1


def test_it_times_requests_by_view_and_keeps_made_up_names_out(scraper, client, settings, annotator):
    settings.SECURE_SSL_REDIRECT = False
    experiment = make_experiment(annotators=(annotator,))
    counted = {"view": "pair", "method": "GET", "status": "200"}
    nowhere = {"view": "", "method": "", "status": "404"}
    before = samples(scraper)
    client.force_login(annotator)
    assert client.get(f"/label/{experiment.pk}/").status_code == 200
    client.generic("INVENTED", "/no/such/page/")
    after = samples(scraper)
    for labels in (counted, nowhere):
        name = "llmpo_request_seconds_count"
        assert value(after, name, **labels) - value(before, name, **labels) == 1
    assert "INVENTED" not in scraper.get("/metrics").content.decode()
    missed = {"experiment": str(experiment.pk)}
    name = "llmpo_buffer_misses_total"
    assert value(after, name, **missed) - value(before, name, **missed) == 1


@pytest.mark.parametrize(("state", "misses"), [("running", 1), ("paused", 0)])
def test_a_program_that_asks_in_vain_counts_while_the_experiment_runs(
    state, misses, scraper, client, settings, annotator
):
    settings.SECURE_SSL_REDIRECT = False
    experiment = make_experiment(annotators=(annotator,))
    Experiment.objects.filter(pk=experiment.pk).update(state=state)
    name, counted = "llmpo_buffer_misses_total", {"experiment": str(experiment.pk)}
    before = value(samples(scraper), name, **counted)
    reply = client.post(
        f"/api/label/{experiment.pk}/next",
        {},
        content_type="application/json",
        headers=bearer(annotator, ["annotate"]),
    )
    assert reply.json()["pair"] is None
    assert value(samples(scraper), name, **counted) - before == misses


def test_the_dashboard_shows_figures_that_exist(scraper, annotator):
    click(make_experiment(ready=True, annotators=(annotator,)), annotator)
    said = {
        family.name for family in text_string_to_metric_families(scraper.get("/metrics").content.decode())
    }
    board = json.loads((ROOT / "docs" / "grafana-dashboard.json").read_text())
    shown = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"llmpo_\w+", target["expr"])
    }
    assert {re.sub("_(total|count|bucket)$", "", name) for name in shown} <= said
    assert len({panel["title"] for panel in board["panels"]}) == len(board["panels"]) >= 12


def test_the_document_names_figures_that_exist(scraper, annotator):
    click(make_experiment(ready=True, annotators=(annotator,)), annotator)
    WorkerPulse.objects.create(queue="control", worker="control@here")
    families = text_string_to_metric_families(scraper.get("/metrics").content.decode())
    exist = {f"{each.name}_total" if each.type == "counter" else each.name for each in families}
    named = set(re.findall(r"`(llmpo_\w+)[`{]", (ROOT / "docs" / "operations.md").read_text()))
    assert named
    assert named <= exist


def test_the_processes_of_a_server_count_together(tmp_path):
    """As gunicorn's do: each tells of all."""
    count = "from labeling.metrics import BUFFER_MISSES; BUFFER_MISSES.labels(7).inc()"
    read = (
        "from labeling import metrics; from prometheus_client import generate_latest, CollectorRegistry;"
        "metrics.Installation.collect = lambda self: iter(()); print(metrics.exposition().decode())"
    )
    environment = {
        **os.environ,
        "PROMETHEUS_MULTIPROC_DIR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "llmpo_site.settings",
    }

    def run(code: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", f"import django; django.setup(); {code}"],
            cwd=ROOT, env=environment, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip

    run(count)
    assert 'llmpo_buffer_misses_total{experiment="7"} 2.0' in run(f"{count}; {read}")
