"""The planner's estimates, from the question to the answer."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import timedelta

import pytest
from django.utils import timezone

from engine.core import Plan, Unstructured, forecast
from engine.models import Estimate
from engine.services import estimates, worker_holds
from engine.services.estimates import Question, ask, compute_next

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("patient_pages")]

QUESTION = Question(
    space="unstructured",
    levels=[2, 2],
    excluded=[{0: 1, 1: 1}],
    delta=0.1,
    claim="best_if_any",
    epsilon=0.0,
    capital_moves=False,
    sampler="balanced",
    stopping="certified",
    budget=300,
    log_odds=0.8,
)


PLAN = Plan(Unstructured(3), claim="best_if_any", capital_moves=False, delta=0.1, budget=300)


def nobody_waits() -> None:
    Estimate.objects.update(asked_at=timezone.now() - timedelta(hours=2))


def test_the_answer_is_the_planners_and_is_kept():
    asked = ask(question=QUESTION)
    assert (asked.state, asked.progress) == ("waiting", 0.0)
    assert compute_next(worker="w")
    done = ask(question=QUESTION)
    assert (done.pk, done.state, done.progress) == (asked.pk, "done", 1.0)
    assert (done.claim, done.claimed_by, done.simulations) == (None, "w", {})
    expected = forecast(PLAN, log_odds=0.8, n_runs=60)
    assert done.answer == asdict(expected)
    assert not compute_next()


def test_other_settings_are_another_question():
    first = ask(question=QUESTION)
    assert ask(question=replace(QUESTION, space="factorial")).pk != first.pk
    assert ask(question=replace(QUESTION)).pk == first.pk


def test_the_structure_is_told_apart():
    for space in ("unstructured", "factorial"):
        ask(question=replace(QUESTION, levels=[2, 3], excluded=[], space=space))
    assert compute_next()
    assert compute_next()
    expected = {e.question["space"]: e.answer["expected"] for e in Estimate.objects.all()}
    assert expected["factorial"] != expected["unstructured"]


def test_the_last_to_ask_is_answered_first():
    ask(question=QUESTION)
    last = ask(question=replace(QUESTION, delta=0.2))
    compute_next()
    assert Estimate.objects.get(state="done").pk == last.pk


def test_what_nobody_asks_for_any_more_waits():
    asked = ask(question=QUESTION)
    nobody_waits()
    assert not compute_next()
    ask(question=QUESTION)
    assert compute_next()
    asked.refresh_from_db()
    assert asked.state == "done"


@pytest.fixture
def always_looks(monkeypatch) -> None:
    """Claims are looked at with every step, and not once a second."""
    monkeypatch.setattr(worker_holds, "_KEEP_SECONDS", 0.0)


@pytest.mark.usefixtures("always_looks")
def test_a_page_that_stops_asking_in_the_middle_stops_the_computation():
    asked = ask(question=QUESTION)
    assert compute_next(tick=nobody_waits)
    asked.refresh_from_db()
    assert (asked.state, asked.answer, asked.claim) == ("waiting", None, None)


def ticks(n: int, error: type[Exception]):
    """Lets so many steps pass, and then raises."""
    left = iter(range(n))

    def tick() -> None:
        if next(left, None) is None:
            raise error

    return tick


class KilledError(Exception):
    """Stands for kill -9: nothing that the worker would do at its end is done."""


def steps_of(n_runs: int) -> int:
    """Steps that the first ``n_runs`` simulated experiments take in all."""
    counted = []

    def enough(done, of) -> None:
        if len(done.left) >= n_runs:
            raise KilledError

    with pytest.raises(KilledError):
        forecast(PLAN, log_odds=0.8, n_runs=60, tick=lambda: counted.append(1), progress=enough)
    return len(counted)


def test_after_a_kill_another_worker_goes_on_from_what_was_stored(settings):
    whole = forecast(PLAN, log_odds=0.8, n_runs=60)
    asked = ask(question=QUESTION)
    with pytest.raises(KilledError):
        compute_next(worker="dead", tick=ticks(steps_of(12) + 1, KilledError))
    asked.refresh_from_db()
    assert (asked.state, asked.claimed_by, asked.progress) == ("waiting", "dead", 0.2)
    assert len(asked.simulations["left"]) == 12
    assert not compute_next(), "the dead worker's, until its deadline has passed"
    Estimate.objects.update(claim_expires_at=timezone.now() - timedelta(seconds=1))
    ask(question=QUESTION)
    more = []
    assert compute_next(tick=lambda: more.append(1))
    asked.refresh_from_db()
    assert asked.answer == asdict(whole)
    in_all = []
    forecast(PLAN, log_odds=0.8, n_runs=60, tick=lambda: in_all.append(1))
    assert len(more) == len(in_all) - steps_of(12)


def test_a_worker_that_is_stopped_gives_it_back_at_once():
    asked = ask(question=QUESTION)
    with pytest.raises(worker_holds.StoppedError):
        compute_next(tick=ticks(3, worker_holds.StoppedError))
    asked.refresh_from_db()
    assert (asked.state, asked.claim) == ("waiting", None)
    assert compute_next()


@pytest.mark.usefixtures("always_looks")
def test_a_late_answer_is_refused():
    asked = ask(question=QUESTION)
    taken: list[object] = []

    def lose_it() -> None:
        if not taken:
            Estimate.objects.update(claim_expires_at=timezone.now() - timedelta(seconds=1))
            taken.append(worker_holds.take(Estimate.objects.all(), seconds=60, by="another"))

    assert compute_next(worker="late", tick=lose_it)
    asked.refresh_from_db()
    assert (asked.state, asked.claimed_by, asked.claim) == ("waiting", "another", taken[0])


def test_settings_that_cannot_be_planned_are_said_to_be():
    ask(question=replace(QUESTION, levels=[1], excluded=[]))
    compute_next()
    estimate = Estimate.objects.get()
    assert (estimate.state, estimate.claim) == ("failed", None)
    assert "at least 2 policies" in estimate.failure_reason


def test_old_answers_are_forgotten():
    ask(question=QUESTION)
    Estimate.objects.update(asked_at=timezone.now() - timedelta(days=31))
    ask(question=replace(QUESTION, delta=0.2))
    assert Estimate.objects.count() == 1


def test_it_takes_only_so_much_processor_time(monkeypatch):
    monkeypatch.setattr(estimates, "_PROCESSOR_SECONDS", 0.0)
    ask(question=QUESTION)
    compute_next()
    answer = Estimate.objects.get().answer
    assert (answer["n_runs"], answer["horizon"], answer["decided"]) == (4, 1, 0.0)
