"""The planner's estimates, from the question to the answer."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone

from engine import tasks
from engine.core import Plan, Unstructured, forecast
from engine.models import Estimate
from engine.services.estimates import Question, ask, compute_waiting

pytestmark = pytest.mark.django_db

QUESTION = Question(
    space="unstructured",
    levels=[2, 2],
    excluded=[{0: 1, 1: 1}],
    delta=0.1,
    epsilon=0.0,
    sampler="balanced",
    stopping="certified",
    budget=300,
    log_odds=0.8,
)


def test_the_answer_is_the_planners_and_is_kept():
    asked = ask(question=QUESTION)
    assert (asked.state, asked.progress) == ("waiting", 0.0)
    assert compute_waiting() == 1
    done = ask(question=QUESTION)
    assert (done.pk, done.state, done.progress) == (asked.pk, "done", 1.0)
    expected = forecast(
        Plan(Unstructured(3), claim="best_if_any", streams=False, delta=0.1, budget=300),
        log_odds=0.8,
        n_runs=60,
        progress=lambda done, total: None,
    )
    assert done.answer["expected"] == expected.expected
    assert done.answer["decided"] == expected.decided
    assert compute_waiting() == 0


def test_other_settings_are_another_question():
    first = ask(question=QUESTION)
    assert ask(question=replace(QUESTION, space="factorial")).pk != first.pk
    assert ask(question=replace(QUESTION)).pk == first.pk


def test_the_structure_is_told_apart():
    for space in ("unstructured", "factorial"):
        ask(question=replace(QUESTION, levels=[2, 3], excluded=[], space=space))
    assert compute_waiting() == 2
    expected = {e.question["space"]: e.answer["expected"] for e in Estimate.objects.all()}
    assert expected["factorial"] != expected["unstructured"]


def test_what_nobody_asks_for_any_more_waits():
    asked = ask(question=QUESTION)
    Estimate.objects.update(asked_at=timezone.now() - timedelta(minutes=1))
    assert compute_waiting() == 0
    ask(question=QUESTION)
    assert compute_waiting() == 1
    asked.refresh_from_db()
    assert asked.state == "done"


def test_a_page_that_stops_asking_stops_the_computation(monkeypatch):
    asked = ask(question=QUESTION)

    def impatient(plan: Plan, *, progress, **options: object) -> None:
        Estimate.objects.update(asked_at=timezone.now() - timedelta(minutes=1))
        progress(6, 60)

    monkeypatch.setattr("engine.services.estimates.forecast", impatient)
    compute_waiting()
    asked.refresh_from_db()
    assert (asked.state, asked.answer) == ("waiting", None)


def test_one_process_is_enough_and_a_dead_one_is_replaced():
    ask(question=QUESTION)
    Estimate.objects.update(state="running", beat_at=timezone.now())
    ask(question=replace(QUESTION, delta=0.2))
    assert compute_waiting() == 0
    Estimate.objects.filter(state="running").update(beat_at=timezone.now() - timedelta(hours=1))
    ask(question=QUESTION)
    assert compute_waiting() == 2


def test_settings_that_cannot_be_planned_are_said_to_be():
    ask(question=replace(QUESTION, levels=[1], excluded=[]))
    compute_waiting()
    estimate = Estimate.objects.get()
    assert estimate.state == "failed"
    assert "at least 2 policies" in estimate.failure_reason


def test_old_answers_are_forgotten():
    ask(question=QUESTION)
    Estimate.objects.update(asked_at=timezone.now() - timedelta(days=31))
    ask(question=replace(QUESTION, delta=0.2))
    assert Estimate.objects.count() == 1


def test_the_worker_starts_a_process_of_its_own(monkeypatch):
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: started.append(command))
    tasks.estimate()
    assert started == [[sys.executable, "-m", "django", "compute_estimates"]]


def test_the_process_does_what_waits(monkeypatch):
    monkeypatch.setattr(os, "nice", lambda increment: increment)
    ask(question=QUESTION)
    call_command("compute_estimates")
    assert Estimate.objects.get().state == "done"
