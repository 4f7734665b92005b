"""Celery's way in: messages only wake, and none of them is worth an error or a wait."""

import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import transaction
from django.utils import timezone
from kombu.exceptions import ChannelError, OperationalError
from kombu.utils import symbol_by_name

from engine import tasks
from engine.generation.base import BackendError
from engine.models import Assignment, Experiment, Response, User, WorkerPulse
from engine.selectors import counts
from engine.selectors.snapshots import latest_snapshot
from engine.services import evidence, planning
from engine.services.experiments import pause, stop
from engine.services.generation import claim_responses
from engine.services.judging import record_answer
from llmpo_site.celery import app
from tests.backends import BreakingBackend, SkilledBackend
from tests.engine.test_drawing import imported_spec, started
from tests.factories import (
    add_member,
    assign,
    assign_next,
    click,
    make_experiment,
    make_user,
    write_responses,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def sent(monkeypatch) -> list[tuple[str, tuple[object, ...]]]:
    """The messages that would have gone to the broker."""
    messages: list[tuple[str, tuple[object, ...]]] = []

    def record(name: str) -> Callable[..., None]:
        return lambda args=(), **options: messages.append((name, tuple(args)))

    for name in ("advance", "analyse", "generate", "judge", "sweep"):
        monkeypatch.setattr(getattr(tasks, name), "apply_async", record(name))
    return messages


@pytest.fixture
def backend(monkeypatch) -> SkilledBackend:
    skilled = SkilledBackend()
    monkeypatch.setattr(tasks.registry, "backend", lambda: skilled)
    return skilled


class TestWake:
    def test_the_message_is_sent_once_the_transaction_is_committed(
        self, sent, django_capture_on_commit_callbacks
    ):
        with django_capture_on_commit_callbacks(execute=True):
            tasks.wake(tasks.advance, 7)
            assert sent == []
        assert sent == [("advance", (7,))]

    def test_a_transaction_that_is_rolled_back_wakes_nobody(self, sent, django_capture_on_commit_callbacks):
        def fail() -> None:
            with transaction.atomic():
                tasks.wake(tasks.advance, 7)
                raise ZeroDivisionError

        with django_capture_on_commit_callbacks(execute=True), pytest.raises(ZeroDivisionError):
            fail()
        assert sent == []

    @pytest.mark.parametrize(
        "error",
        [
            OperationalError("connection refused"),
            ChannelError("cannot open the message's file"),
            OSError(errno.ENOSPC, "No space left on device"),
            FileNotFoundError(errno.ENOENT, "No such folder"),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_a_broker_that_is_away_is_logged_and_no_error(
        self, error, monkeypatch, caplog, django_capture_on_commit_callbacks
    ):
        def refuse(*args, **options):
            raise error

        monkeypatch.setattr(tasks.advance, "apply_async", refuse)
        with django_capture_on_commit_callbacks(execute=True):
            tasks.wake(tasks.advance, 7)
        assert "the sweep will drive engine.tasks.advance" in caplog.text

    def test_a_mistake_of_ours_is_not_hidden(self, monkeypatch, django_capture_on_commit_callbacks):
        def blunder(*args, **options):
            raise TypeError("unexpected argument")

        monkeypatch.setattr(tasks.advance, "apply_async", blunder)
        with pytest.raises(TypeError), django_capture_on_commit_callbacks(execute=True):
            tasks.wake(tasks.advance, 7)


def wake_with_broker(url: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """The work of a web process after a click, in a process of its own with another broker."""
    code = (
        "import django; django.setup()\n"
        "from engine.tasks import advance, wake\n"
        "wake(advance, 1)\n"
        "print('went on')\n"
    )
    environment = os.environ | {
        "CELERY_BROKER_URL": url,
        "DJANGO_SETTINGS_MODULE": "llmpo_site.settings",
        "VAR_DIR": str(tmp_path),
        "DATABASE_URL": f"sqlite:///{tmp_path / 'none.sqlite3'}",
    }
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=django_settings.BASE_DIR,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class TestRealBrokers:
    def test_a_redis_that_hangs_up_is_asked_once_so_that_no_click_waits_for_it(self, tmp_path):
        calls = []
        with socket.create_server(("127.0.0.1", 0)) as server:

            def hang_up() -> None:
                while True:
                    try:
                        connection, _ = server.accept()
                    except OSError:
                        return
                    calls.append(1)
                    connection.close()

            threading.Thread(target=hang_up, daemon=True).start()
            done = wake_with_broker(f"redis://127.0.0.1:{server.getsockname()[1]}/0", tmp_path)
            server.shutdown(socket.SHUT_RDWR)
        assert (done.returncode, done.stdout) == (0, "went on\n")
        assert "The broker is away" in done.stderr
        assert calls == [1]


class TestRouting:
    def test_beat_keeps_no_file_that_a_kill_could_tear(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        scheduler = symbol_by_name(app.conf.beat_scheduler)(app=app, schedule_filename="beat-schedule")
        assert "sweep" in scheduler.schedule
        scheduler.close()
        assert list(tmp_path.iterdir()) == []


@pytest.fixture
def committed(monkeypatch) -> None:
    """Tests run in a transaction that never commits: send at once instead."""
    monkeypatch.setattr(tasks.transaction, "on_commit", lambda send: send())


@pytest.mark.usefixtures("committed")
class TestEachTask:
    def test_advance_wakes_generation_only_when_it_planned_something(self, sent):
        experiment = make_experiment(planned=False)
        tasks.advance(experiment.pk)
        assert sent == [("generate", ())]
        tasks.advance(experiment.pk)
        assert sent == [("generate", ())]

    @pytest.fixture
    def clock(self, monkeypatch) -> SimpleNamespace:
        """Time that stands still, and ``booked``: what is to be called, and after how many seconds."""
        clock = SimpleNamespace(now=100.0, booked=[])

        def timer(seconds: float, call: Callable[..., None], arguments: tuple[object, ...]) -> Any:
            clock.booked.append((seconds, partial(call, *arguments)))
            return SimpleNamespace(start=lambda: None)

        monkeypatch.setattr(tasks, "time", SimpleNamespace(monotonic=lambda: clock.now))
        monkeypatch.setattr(tasks, "Timer", timer)
        return clock

    def test_after_a_round_the_next_one_waits_for_three_times_as_long_as_it_took(
        self, annotator, monkeypatch
    ):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        for takes, rest in [(0.01, 0.1), (0.08, 0.24), (9.0, 0.5)]:
            times = iter([0.0, takes])
            monkeypatch.setattr(planning, "time", SimpleNamespace(monotonic=lambda times=times: next(times)))
            click(experiment, annotator)
            before = timezone.now()
            done = planning.plan_round(experiment_id=experiment.pk)
            assert done.rest == pytest.approx(rest)
            experiment.refresh_from_db()
            assert experiment.rests_until >= before + timedelta(seconds=rest)
            assert experiment.round_seconds == pytest.approx(takes + rest)

    def test_where_pairs_are_lacking_the_rest_is_shorter(self, annotator, monkeypatch):
        experiment = make_experiment(planned=False, annotators=(annotator,))
        times = iter([0.0, 0.6])
        monkeypatch.setattr(planning, "time", SimpleNamespace(monotonic=lambda: next(times)))
        assert planning.plan_round(experiment_id=experiment.pk).rest == pytest.approx(0.3)

    @pytest.fixture
    def by_message(self) -> Iterator[None]:
        tasks.advance.push_request(called_directly=False, is_eager=False)
        yield
        tasks.advance.pop_request()

    @pytest.mark.usefixtures("by_message")
    def test_a_message_during_another_workers_round_comes_again(self, sent, clock, annotator, monkeypatch):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        Experiment.objects.update(rests_until=None)
        monkeypatch.setattr(planning, "plan_round", lambda *, experiment_id: None)
        tasks.advance.run(experiment.pk)
        [(_, send)] = clock.booked
        sent.clear()
        send()
        assert sent == [("advance", (experiment.pk,))]
        Experiment.objects.update(state="paused")
        tasks.advance.run(experiment.pk)
        assert len(clock.booked) == 1

    @pytest.mark.usefixtures("by_message")
    def test_one_message_follows_a_rest_and_all_others_are_dropped(self, sent, clock, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        click(experiment, annotator)
        Experiment.objects.update(rests_until=None)
        tasks.advance.run(experiment.pk)
        assert latest_snapshot(experiment).comparisons == 1
        Experiment.objects.update(rests_until=timezone.now() + timedelta(minutes=1))
        click(experiment, annotator)
        tasks.advance.run(experiment.pk)
        assert latest_snapshot(experiment).comparisons == 1
        [(seconds, send)] = clock.booked
        assert seconds > 0.1
        sent.clear()
        send()
        assert sent == [("advance", (experiment.pk,))]
        for booked in (1, 0):  # a round that changes nothing needs no rest
            clock.booked.clear()
            Experiment.objects.update(rests_until=timezone.now() - timedelta(seconds=1))
            tasks.advance.run(experiment.pk)
            assert latest_snapshot(experiment).comparisons == 2
            assert len(clock.booked) == booked

    def test_what_was_judged_during_a_round_is_planned_for_afterwards(self, monkeypatch):
        experiment = make_experiment(ready=True, annotators=(annotator := make_user("ann"),))
        click(experiment, annotator)
        late = assign(experiment, annotator)
        write_snapshot = evidence.write_snapshot

        def click_meanwhile(**arguments: Any) -> Any:
            record_answer(experiment_id=experiment.pk, token=late.token, annotator=annotator, choice="left")
            return write_snapshot(**arguments)

        monkeypatch.setattr(evidence, "write_snapshot", click_meanwhile)
        assert planning.plan_round(experiment_id=experiment.pk).again
        monkeypatch.setattr(evidence, "write_snapshot", write_snapshot)
        planning.plan_round(experiment_id=experiment.pk)
        assert latest_snapshot(experiment).comparisons == 2

    def test_clicks_of_one_moment_ask_for_planning_twice_at_most(self, sent, clock, monkeypatch):
        monkeypatch.setattr(tasks, "_gathering", {})
        monkeypatch.setattr(tasks, "_GATHERING_SECONDS", 0.05)
        for _ in range(20):
            tasks.wake_planner(1)
        assert sent == [("advance", (1,))]
        [(_, send)] = clock.booked
        send()
        assert sent == [("advance", (1,))] * 2

    @pytest.mark.parametrize(
        ("settings", "woken"),
        [({}, []), ({"judge": "rule"}, ["judge"]), ({"llm_judge": "shadow"}, ["judge"])],
        ids=["people", "a rule", "people and a language model"],
    )
    def test_ready_made_responses_wake_no_writer_and_machines_alone_to_judge(self, settings, woken, sent):
        experiment = started(imported_spec(**settings))
        sent.clear()
        tasks.advance(experiment.pk)
        assert experiment.comparisons.filter(state="ready").exists()
        assert sent == [(name, (experiment.pk,)) for name in woken]

    def test_advance_of_an_experiment_that_is_gone_or_does_not_run_is_nothing(self, sent):
        experiment = make_experiment(running=False)
        tasks.advance(experiment.pk)
        tasks.advance(12345)
        assert sent == []

    def test_generate_writes_a_batch_wakes_the_judge_and_comes_back(self, sent, backend):
        experiment = make_experiment()
        tasks.generate()
        assert sent == [("judge", (experiment.pk,)), ("generate", ())]
        assert set(experiment.comparisons.values_list("state", flat=True)) == {"ready"}
        sent.clear()
        tasks.generate()
        assert sent == []

    def test_generate_says_that_its_worker_is_alive(self, sent, backend):
        tasks.generate()
        tasks.generate()
        assert list(WorkerPulse.objects.values_list("queue", "worker")) == [("generation", "local")]

    def test_a_backend_out_of_order_is_logged_and_left_to_the_next_sweep(self, sent, monkeypatch, caplog):
        make_experiment()
        broken = BreakingBackend(BackendError("no weights"))
        monkeypatch.setattr(tasks.registry, "backend", lambda: broken)
        tasks.generate()
        assert sent == []
        assert "no weights" in caplog.text
        assert set(Response.objects.values_list("state", flat=True)) == {"waiting"}

    def test_judge_judges_by_rule_and_plans_on(self, sent):
        experiment = make_experiment(ready=True, judge="rule")
        tasks.judge(experiment.pk)
        assert counts.comparison_count(experiment.pk) == experiment.comparisons.count()
        assert sent == [("advance", (experiment.pk,))]

    def test_judge_leaves_experiments_of_people_alone_and_still_plans_on(self, sent):
        experiment = make_experiment(ready=True)
        tasks.judge(experiment.pk)
        assert counts.comparison_count(experiment.pk) == 0
        assert sent == [("advance", (experiment.pk,))]


@pytest.mark.usefixtures("committed")
class TestWorkersThatServeDifferently:
    @pytest.fixture
    def addressed(self, monkeypatch) -> list[str]:
        """Receivers of the messages to write: "" for any worker."""
        to: list[str] = []
        monkeypatch.setattr(
            tasks.generate,
            "apply_async",
            lambda args=(), queue=None, **options: to.append(queue.name if queue else ""),
        )
        return to

    def introduced(self, worker: str, backend: str) -> None:
        WorkerPulse.objects.create(
            queue="generation", worker=worker, details={"backend": backend, "model": "m"}
        )

    def test_any_of_several_alike_is_woken(self, addressed):
        self.introduced("gpu0@host", "vllm")
        self.introduced("gpu1@host", "vllm")
        tasks.advance(make_experiment(planned=False).pk)
        assert addressed == [""]

    def test_each_of_several_kinds_is_woken(self, addressed):
        self.introduced("gpu0@host", "vllm")
        self.introduced("remote@host", "remote")
        tasks.advance(make_experiment(planned=False).pk)
        assert addressed == ["gpu0@host.dq2", "remote@host.dq2"]

    def test_a_worker_says_what_it_serves_when_it_is_ready(self, monkeypatch):
        consumer = SimpleNamespace(app=app, hostname="gpu0@host")
        monkeypatch.setattr(app.amqp.queues, "_consume_from", {"control": None})
        tasks.introduce(sender=consumer)
        assert not WorkerPulse.objects.exists()
        monkeypatch.setattr(app.amqp.queues, "_consume_from", {"generation": None})
        tasks.introduce(sender=consumer)
        (pulse,) = WorkerPulse.objects.all()
        assert (pulse.queue, pulse.worker, pulse.details["backend"]) == (
            "generation",
            "gpu0@host",
            "smollm2",
        )

    def test_a_backend_that_has_to_load_says_so_first_and_that_it_has_afterwards(self, sent, monkeypatch):
        class Slow(SkilledBackend):
            loaded = False

            def generate(self, requests):
                assert WorkerPulse.objects.get().details["loading"]
                self.loaded = True
                yield from super().generate(requests)

        make_experiment()
        slow = Slow()
        monkeypatch.setattr(tasks.registry, "backend", lambda: slow)
        tasks.generate()
        assert slow.loaded
        assert not WorkerPulse.objects.get().details["loading"]

    def test_a_backend_out_of_order_says_so_in_its_pulse_until_it_works_again(self, sent, monkeypatch):
        make_experiment()
        monkeypatch.setattr(tasks.registry, "backend", lambda: BreakingBackend(BackendError("no quota left")))
        tasks.generate()
        assert WorkerPulse.objects.get().details["trouble"] == "no quota left"
        monkeypatch.setattr(tasks.registry, "backend", SkilledBackend)
        tasks.generate()
        assert WorkerPulse.objects.get().details["trouble"] == ""


@pytest.mark.usefixtures("committed")
class TestSweep:
    def test_it_wakes_everything_that_runs_and_nothing_else(self, sent):
        running, paused, stopped = (make_experiment() for _ in range(3))
        make_experiment(running=False)
        pause(experiment_id=paused.pk)
        stop(experiment_id=stopped.pk)
        tasks.sweep()
        assert sent == [("judge", (running.pk,)), ("analyse", ()), ("generate", ())]

    def test_it_wakes_what_was_paused_before_its_last_answers_were_in_the_evidence(self, sent, annotator):
        experiment, other = (make_experiment(ready=True, annotators=(annotator,)) for _ in range(2))
        click(experiment, annotator, "left")
        for each in (experiment, other):
            pause(experiment_id=each.pk)
        tasks.sweep()
        assert [ids for name, ids in sent if name == "advance"] == [(experiment.pk,)]

    def test_it_takes_back_what_a_dead_worker_was_writing(self, sent, settings):
        make_experiment()
        claim_responses(worker="dead", limit=100)
        Response.objects.update(claim_expires_at=timezone.now() - timedelta(seconds=1))
        tasks.sweep()
        assert set(Response.objects.values_list("state", flat=True)) == {"waiting"}

    def test_what_an_absent_annotator_was_looking_at_stays_theirs(self, sent, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        held = assign(experiment, annotator)
        Assignment.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        tasks.sweep()
        held.refresh_from_db()
        assert held.state == "open"

    def test_it_says_that_the_control_worker_is_alive(self, sent):
        tasks.sweep()
        assert list(WorkerPulse.objects.values_list("queue", "worker")) == [("control", "local")]


class TestWholeRuns:
    """Every message delivered at once, in this process."""

    @pytest.fixture(autouse=True)
    def eager(self, backend) -> Iterator[None]:
        app.conf.update(task_always_eager=True, task_eager_propagates=True)
        yield
        app.conf.update(task_always_eager=False, task_eager_propagates=False)

    def test_with_every_message_lost_the_sweep_alone_brings_it_to_its_end(
        self, django_capture_on_commit_callbacks
    ):
        """Each sweep's own messages arrive; those that the woken tasks send are lost."""
        experiment = make_experiment(planned=False, judge="rule", budget=12)
        for _ in range(100):
            with django_capture_on_commit_callbacks() as messages:
                tasks.sweep()
            with django_capture_on_commit_callbacks():
                for send in messages:
                    send()
                tasks.advance(experiment.pk)
            experiment.refresh_from_db()
            if experiment.state == Experiment.State.CONCLUDED:
                break
        assert experiment.state == Experiment.State.CONCLUDED

    def test_a_sweep_plans_for_those_who_join_after_the_texts_were_used_up(
        self, django_capture_on_commit_callbacks, annotator
    ):
        experiment = make_experiment(responses="reuse", n_tasks=1, delta=0.01, annotators=(annotator,))

        def next_pairs(user: User) -> list[frozenset[str]]:
            """The texts that somebody is shown while nothing but sweeps goes on."""
            shown = []
            for _ in range(6):
                with django_capture_on_commit_callbacks(execute=True):
                    tasks.sweep()
                if held := assign_next(experiment_id=experiment.pk, annotator=user):
                    shown.append(frozenset({held.comparison.left.text, held.comparison.right.text}))
                    record_answer(
                        experiment_id=experiment.pk, token=held.token, annotator=user, choice="left"
                    )
            return shown

        seen = next_pairs(annotator)
        experiment.refresh_from_db()
        assert (len(seen), experiment.used_up) == (3, True)
        add_member(experiment, newcomer := make_user("newcomer"))
        assert set(next_pairs(newcomer)) == set(seen)

    def test_messages_sent_twice_change_nothing(
        self, django_capture_on_commit_callbacks, annotator, settings
    ):
        settings.BUFFER_MIN = settings.BUFFER_MAX = 6  # else it follows how fast this machine is
        experiment = make_experiment(ready=True, annotators=(annotator,))
        click(experiment, annotator)
        for _ in range(2):
            with django_capture_on_commit_callbacks(execute=True):
                tasks.wake(tasks.advance, experiment.pk)
        write_responses()
        assert list(experiment.snapshots.order_by("pk").values_list("comparisons", flat=True)) == [0, 1]
        in_buffer = experiment.comparisons.filter(state__in=["planned", "ready"]).count()
        assert in_buffer == 6
        assert assign_next(experiment_id=experiment.pk, annotator=annotator) is not None
