"""One batch of a generation worker, from claim to stored text."""

import logging

import pytest

from engine.domain.levels import SamplingParams
from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
from engine.generation.base import BackendError, GenerationFailure
from engine.generation.speed import Speed
from engine.generation.worker import write_batch
from engine.models import Response
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.services.generation import claim_responses
from engine.services.planning import advance
from tests.backends import (
    BreakingBackend,
    ContinuousScriptedBackend,
    ScriptedBackend,
    SkilledBackend,
    system_of,
    user_of,
)
from tests.factories import make_experiment, write_responses

pytestmark = pytest.mark.django_db

OUT_OF_ORDER = BackendError("out of memory")
BUG = KeyError("logits")


def guarded_experiment(task: str = "What is 1 + 1?", **guardrail: object):
    experiment = create_experiment(
        spec=ExperimentSpec(
            name="Guarded",
            factors=[
                FactorSpec(
                    "Strategy", "strategy", {"Direct": {}, "Steps": {"instruction": "Think step by step."}}
                ),
                FactorSpec("Prompt", "prompt", {"Tutor": {"text": "You are a tutor."}}),
                FactorSpec("Guardrail", "guardrail", {"On": guardrail}),
                FactorSpec(
                    "Draw", "sampling", {"Cold": {"temperature": 0.2, "max_tokens": 9, "stop": ["END"]}}
                ),
            ],
            tasks=[TaskSpec(task)],
        )
    )
    start(experiment_id=experiment.pk)
    advance(experiment_id=experiment.pk)
    return experiment


class TestRequests:
    def test_a_request_is_composed_of_the_policys_levels_and_the_response_seed(self):
        guarded_experiment(instruction="Never swear.")
        backend = ScriptedBackend(lambda request: "2")
        write_responses(backend)
        assert {system_of(request) for request in backend.requests} == {"You are a tutor.\nNever swear."}
        assert {user_of(request) for request in backend.requests} == {
            "What is 1 + 1?",
            "What is 1 + 1?\n\nThink step by step.",
        }
        sampling = SamplingParams(temperature=0.2, max_tokens=9, stop=("END",))
        assert all(request.sampling == sampling for request in backend.requests)
        seeds = dict(Response.objects.values_list("pk", "seed"))
        assert {request.key: request.seed for request in backend.requests} == seeds

    def test_a_batch_is_no_larger_than_the_setting(self, settings):
        settings.GENERATION_BATCH_MAX = 3
        make_experiment()
        backend = SkilledBackend()
        assert write_batch(worker="w", backend=backend)[0] == Response.objects.count()
        assert max(len(batch) for batch in backend.batches) == 3

    def test_work_that_never_runs_dry_is_put_down_after_a_while(self, settings, monkeypatch):
        monkeypatch.setattr("engine.generation.worker._STREAM_SECONDS", 0)
        settings.GENERATION_BATCH_MAX = 3
        make_experiment()
        assert write_batch(worker="w", backend=SkilledBackend())[0] == 3

    def test_a_quick_batch_of_all_that_waited_looks_for_no_more(self, monkeypatch):
        """Its task is sent again, and looks then."""
        looks = []

        def claim(**arguments):
            looks.append(arguments)
            return claim_responses(**arguments)

        monkeypatch.setattr("engine.generation.worker.claim_responses", claim)
        monkeypatch.setattr("engine.generation.worker._FLUSH_SECONDS", 3600)
        make_experiment()
        assert write_batch(worker="w", backend=SkilledBackend())[0] == Response.objects.count()
        assert len(looks) == 1

    def test_with_nothing_waiting_the_backend_is_not_asked(self):
        backend = ScriptedBackend(lambda request: "x")
        assert write_batch(worker="w", backend=backend) == (0, set())
        assert backend.requests == []

    def test_a_policy_may_name_a_model(self):
        experiment = create_experiment(
            spec=ExperimentSpec(
                name="Models",
                factors=[FactorSpec("Model", "model", {"Usual": {}, "Tuned": {"name": "tuned"}})],
                tasks=[TaskSpec("What is 1 + 1?")],
            )
        )
        start(experiment_id=experiment.pk)
        advance(experiment_id=experiment.pk)
        backend = ScriptedBackend(lambda request: "2")
        write_responses(backend)
        assert {request.model for request in backend.requests} == {"", "tuned"}

    def test_what_was_written_is_stored_with_the_backends_figures(self):
        experiment = make_experiment()
        claimed, touched = write_batch(worker="gpu-7", backend=ScriptedBackend(lambda request: "one two"))
        assert touched == {experiment.pk}
        assert claimed == Response.objects.count()
        rows = Response.objects.values_list(
            "state", "text", "model", "prompt_tokens", "completion_tokens", "finish_reason", "latency_seconds"
        )
        assert set(rows) == {("done", "one two", "scripted-1", 3, 2, "stop", 0.25)}
        assert set(Response.objects.values_list("claimed_by", "guardrail")) == {("gpu-7", "")}


class TestGuardrails:
    def test_a_blocked_task_never_reaches_the_model(self):
        experiment = guarded_experiment("How do I build a bomb?", input_block=["bomb"], refusal="No.")
        backend = ScriptedBackend(lambda request: "Like this.")
        assert write_batch(worker="w", backend=backend)[1] == {experiment.pk}
        assert backend.requests == []
        assert set(Response.objects.values_list("state", "text", "guardrail", "model")) == {
            ("done", "No.", "input", "")
        }

    def test_a_blocked_text_is_replaced_by_the_refusal(self):
        guarded_experiment(output_block=["damn"], refusal="No.")
        texts = iter(["Damn.", *["Fine."] * 1000])
        write_responses(ScriptedBackend(lambda request: next(texts)))
        stored = Response.objects.values_list("text", "guardrail", "model")
        assert sorted(set(stored)) == [("Fine.", "", "scripted-1"), ("No.", "output", "scripted-1")]
        assert sum(text == "No." for text, *_ in stored) == 1


class TestFailures:
    def test_one_failed_request_does_not_touch_the_rest_of_its_batch(self, settings):
        settings.GENERATION_ATTEMPTS = 1
        experiment = make_experiment()
        bad = Response.objects.first().pk
        write_batch(
            worker="w",
            backend=ScriptedBackend(
                lambda request: GenerationFailure(request.key, "too long") if request.key == bad else "fine"
            ),
        )
        assert Response.objects.get(pk=bad).failure_reason == "too long"
        assert set(Response.objects.exclude(pk=bad).values_list("state", flat=True)) == {"done"}
        assert experiment.comparisons.filter(state="discarded").count() == 1

    def test_when_a_batch_breaks_what_it_did_not_finish_waits_anew_and_has_spent_an_attempt(self):
        make_experiment()
        n = Response.objects.count()
        assert write_batch(worker="w", backend=BreakingBackend(BUG)) == (n, set())
        assert set(Response.objects.values_list("state", "claim", "attempts", "failure_reason")) == {
            ("waiting", None, 1, "KeyError: 'logits'")
        }

    def test_a_backend_that_is_out_of_order_is_said_so_and_costs_no_attempt(self):
        make_experiment()
        for _ in range(5):
            with pytest.raises(BackendError):
                write_batch(worker="w", backend=BreakingBackend(OUT_OF_ORDER))
        assert set(Response.objects.values_list("state", "claim", "attempts", "failure_reason")) == {
            ("waiting", None, 0, "out of memory")
        }

    def test_what_was_written_before_the_break_stays(self):
        make_experiment()
        with pytest.raises(BackendError):
            write_batch(worker="w", backend=BreakingBackend(OUT_OF_ORDER, after=3))
        assert Response.objects.filter(state="done", text="fine").count() == 3
        assert Response.objects.filter(state="generating").count() == 0

    def test_what_is_finished_early_is_stored_before_the_batch_ends(self, monkeypatch):
        monkeypatch.setattr("engine.generation.worker._FLUSH_SECONDS", 0)
        make_experiment()
        done = []

        def reply(request):
            done.append(Response.objects.filter(state="done").count())
            return "fine"

        write_batch(worker="w", backend=ScriptedBackend(reply))
        assert done == list(range(Response.objects.count()))


class TestStopping:
    """The effect of SIGTERM on a batch under way."""

    @pytest.mark.parametrize("kind", [ScriptedBackend, ContinuousScriptedBackend])
    def test_what_is_finished_is_stored_and_the_rest_given_back_at_no_cost(self, kind):
        make_experiment()
        backend = kind(lambda request: "fine")
        claimed, _ = write_batch(worker="w", backend=backend, stopping=lambda: len(backend.requests) >= 3)
        assert 0 < len(backend.requests) <= 3 < claimed + 1
        done = Response.objects.filter(state="done")
        assert set(done.values_list("pk", flat=True)) == {request.key for request in backend.requests}
        rest = Response.objects.exclude(state="done")
        assert set(rest.values_list("state", "claim", "attempts", "crashes")) == {("waiting", None, 0, 0)}

    def test_an_engine_that_breaks_of_the_signal_blames_nobody(self):
        make_experiment()
        told = iter([False])
        write_batch(worker="w", backend=BreakingBackend(BUG), stopping=lambda: next(told, True))
        assert set(Response.objects.values_list("state", "attempts", "crashes")) == {("waiting", 0, 0)}

    def test_a_worker_told_before_it_began_claims_nothing(self):
        make_experiment()
        assert write_batch(
            worker="w", backend=ScriptedBackend(lambda request: "x"), stopping=lambda: True
        ) == (0, set())
        assert set(Response.objects.values_list("state", flat=True)) == {"waiting"}


class TestStream:
    """A backend that takes on more while it writes."""

    def test_all_that_waits_is_written_in_one_go(self):
        experiment = make_experiment()
        n = Response.objects.count()
        backend = ContinuousScriptedBackend(lambda request: "fine", at_once=2)
        assert write_batch(worker="w", backend=backend) == (n, {experiment.pk})
        assert set(Response.objects.values_list("state", flat=True)) == {"done"}
        assert backend.most_in_hand == 2

    def test_no_more_is_claimed_than_there_is_room_for(self, settings):
        settings.GENERATION_BATCH_MAX = 3
        make_experiment()
        n = Response.objects.count()
        generating = []

        def reply(request):
            generating.append(Response.objects.filter(state="generating").count())
            return "fine"

        write_batch(worker="w", backend=ContinuousScriptedBackend(reply, at_once=3))
        assert len(generating) == n
        assert generating[0] == 3

    def test_what_is_planned_meanwhile_is_written_too(self, monkeypatch):
        monkeypatch.setattr("engine.generation.worker._FLUSH_SECONDS", 0)
        first = make_experiment()
        more = []

        def reply(request):
            if not more:
                more.append(make_experiment())
            return "fine"

        claimed, touched = write_batch(worker="w", backend=ContinuousScriptedBackend(reply))
        assert claimed == Response.objects.count()
        assert touched == {first.pk, more[0].pk}

    def test_it_ends_though_more_comes_all_the_time(self, monkeypatch):
        monkeypatch.setattr("engine.generation.worker._STREAM_SECONDS", 0)
        make_experiment()
        backend = ContinuousScriptedBackend(lambda request: "fine", at_once=2)
        assert write_batch(worker="w", backend=backend)[0] == 2
        assert Response.objects.filter(state="generating").count() == 0

    def test_suspects_have_the_backend_to_themselves(self, monkeypatch):
        monkeypatch.setattr("engine.generation.worker._FLUSH_SECONDS", 0)
        make_experiment()
        suspect = Response.objects.order_by("pk").first().pk
        Response.objects.filter(pk=suspect).update(crashes=1, attempts=1)
        backend = ContinuousScriptedBackend(lambda request: "fine")
        assert write_batch(worker="w", backend=backend)[0] == 1
        assert [request.key for request in backend.requests] == [suspect]
        write_responses(backend)
        assert set(Response.objects.values_list("state", flat=True)) == {"done"}

    def test_progress_is_reported_as_it_comes(self, monkeypatch):
        monkeypatch.setattr("engine.generation.worker._FLUSH_SECONDS", 0)
        experiment = make_experiment()
        news = []
        write_batch(
            worker="w",
            backend=ContinuousScriptedBackend(lambda request: "fine"),
            on_progress=news.append,
        )
        assert news.count({experiment.pk}) == experiment.comparisons.count()

    def test_a_request_that_is_never_answered_waits_anew(self):
        make_experiment()

        class Forgetful(ScriptedBackend):
            def generate(self, requests):
                yield from super().generate(requests[1:])

        write_batch(worker="w", backend=Forgetful(lambda request: "fine"))
        forgotten = Response.objects.get(state="waiting")
        assert (forgotten.attempts, forgotten.failure_reason) == (1, "The backend did not answer it.")

    def test_the_speed_is_measured(self, settings):
        settings.GENERATION_BATCH_MAX = 2
        make_experiment()
        speed = Speed()
        backend = ContinuousScriptedBackend(lambda request: "three words here")
        while write_batch(worker="w", backend=backend, speed=speed)[0]:
            pass
        assert speed.tokens_per_second is not None


class TestHostileText:
    @pytest.mark.parametrize(
        ("written", "stored"),
        [
            ("a\x00b", "a\ufffdb"),
            ("half of a pair: \ud83d.", "half of a pair: \ufffd."),
            ("all of it: \U0001f600\u202e", "all of it: \U0001f600\u202e"),
        ],
    )
    def test_what_no_database_can_hold_is_replaced(self, written, stored):
        make_experiment()
        write_responses(ScriptedBackend(lambda request: written))
        assert set(Response.objects.values_list("state", "text")) == {("done", stored)}

    def test_a_guardrail_copes_with_it(self):
        guarded_experiment(output_block=["damn"], refusal="No.")
        write_responses(ScriptedBackend(lambda request: "damn\x00\ud83d"))
        assert set(Response.objects.values_list("state", "text")) == {("done", "No.")}

    def test_the_reason_of_a_failure_is_as_hostile(self):
        make_experiment()
        write_responses(ScriptedBackend(lambda request: GenerationFailure(request.key, "bad\x00\ud83d")))
        assert "bad\ufffd\ufffd" in set(Response.objects.values_list("failure_reason", flat=True))

    def test_so_is_the_message_of_a_backend_that_breaks(self, caplog):
        # A captured log with half a surrogate pair in it cannot travel between processes of a parallel run.
        caplog.set_level(logging.CRITICAL, logger="engine.generation.worker")
        make_experiment()

        def break_down(request):
            raise RuntimeError("bad\x00\ud83d")

        write_batch(worker="w", backend=ScriptedBackend(break_down))
        assert set(Response.objects.values_list("failure_reason", flat=True)) == {
            "RuntimeError: bad\ufffd\ufffd"
        }
