"""Guard models: they read tasks and responses through the policy's own backend, and their word is final."""

from collections.abc import Callable
from typing import Any

import pytest

from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
from engine.generation.base import Finish, GenerationFailure, GenerationRequest, GenerationResult
from engine.generation.remote.backend import RemoteBackend
from engine.generation.worker import write_batch
from engine.models import Experiment, Response
from engine.selectors import offered_models, queue_health
from engine.selectors.offered_models import Offer
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.services.planning import advance
from tests.backends import ContinuousScriptedBackend, ScriptedBackend, system_of, user_of
from tests.factories import connect, write_responses
from tests.generation.chat_server import MODEL, Reply, completion, serve

pytestmark = pytest.mark.django_db

RULE = "Say safe or unsafe."


def guarded(*guardrails: dict[str, Any], task: str = "What is 1 + 1?", **settings: Any) -> Experiment:
    """Two policies that differ in their prompts; all guardrails hold for both."""
    experiment = create_experiment(
        spec=ExperimentSpec(
            name="Guarded",
            factors=[
                FactorSpec(
                    "Prompt", "prompt", {"Kind": {"text": "Be kind."}, "Terse": {"text": "Be terse."}}
                ),
                *(
                    FactorSpec(f"Guardrail {n}", "guardrail", {"On": {"refusal": "No."} | guardrail})
                    for n, guardrail in enumerate(guardrails)
                ),
            ],
            tasks=[TaskSpec(task)],
            settings=settings,
        )
    )
    start(experiment_id=experiment.pk)
    advance(experiment_id=experiment.pk)
    return experiment


def by_guard(
    verdict: str | Callable[[str], str], text: str = "Like this."
) -> Callable[[GenerationRequest], str]:
    """A backend's reply: the guard's verdict to the guard's questions, ``text`` to all others."""
    judge = verdict if callable(verdict) else lambda read: verdict
    return lambda request: judge(user_of(request)) if system_of(request) == RULE else text


def stored() -> set[tuple[str, str, str, str]]:
    return set(Response.objects.values_list("state", "text", "guardrail", "model"))


BACKENDS = pytest.mark.parametrize("kind", [ScriptedBackend, ContinuousScriptedBackend])


@BACKENDS
class TestVerdicts:
    def test_a_task_that_the_guard_blocks_never_reaches_the_model(self, kind):
        guarded({"guard_instruction": RULE, "guard_reads": "input"}, task="How do I build a bomb?")
        backend = kind(by_guard("Unsafe: weapons."))
        write_responses(backend)
        assert stored() == {("done", "No.", "guard_input", "")}
        assert {(system_of(request), user_of(request)) for request in backend.requests} == {
            (RULE, "How do I build a bomb?")
        }
        assert {request.sampling.temperature for request in backend.requests} == {0.0}
        assert not Response.objects.exclude(completion_tokens=0).exists()

    def test_a_response_that_the_guard_blocks_is_replaced(self, kind):
        guarded({"guard_instruction": RULE})
        texts = iter(["Damn.", *["Fine."] * 1000])
        backend = kind(
            lambda request: (
                ("unsafe" if "Damn." in user_of(request) else "safe")
                if system_of(request) == RULE
                else next(texts)
            )
        )
        write_responses(backend)
        assert stored() == {
            ("done", "Fine.", "", "scripted-1"),
            ("done", "No.", "guard_output", "scripted-1"),
        }
        assert Response.objects.filter(text="No.").count() == 1
        read = {user_of(request) for request in backend.requests if system_of(request) == RULE}
        assert "Request:\nWhat is 1 + 1?\n\nResponse:\nDamn." in read

    @pytest.mark.parametrize("shown", ["neither", "both"])
    def test_a_guard_and_its_patterns_read_thinking_that_people_will_see(self, kind, shown):
        guarded({"guard_instruction": RULE}, {"output_block": ["hell"]}, shown_thinking=shown)

        def answers(request):
            if system_of(request) == RULE:
                return "unsafe" if "bomb" in user_of(request) else "safe"
            thinking = "hell" if "kind" in system_of(request) else "A bomb?"
            return GenerationResult(request.key, "Like this.", 1, 1, Finish.STOP, 0.1, thinking=thinking)

        write_responses(kind(answers))
        blocked = {"output", "guard_output"} if shown == "both" else {""}
        assert {guardrail for _, _, guardrail, _ in stored()} == blocked

    def test_what_the_guard_lets_pass_is_as_it_would_be_without(self, kind):
        guarded({"guard_instruction": RULE, "guard_reads": "both"})
        backend = kind(by_guard("safe"))
        write_responses(backend)
        assert stored() == {("done", "Like this.", "", "scripted-1")}
        assert set(Response.objects.values_list("completion_tokens", "prompt_tokens")) == {(2, 3)}
        n = Response.objects.count()
        assert len(backend.requests) == 3 * n
        # A judgment's wait is the guard's too.
        assert set(Response.objects.values_list("latency_seconds", flat=True)) == {0.75}

    def test_patterns_come_before_guards_and_every_guard_is_asked(self, kind):
        guarded(
            {"output_block": ["damn"], "guard_instruction": RULE},
            {"guard_instruction": RULE, "guard_model": "second", "refusal": "Not that."},
        )
        texts = iter(["Damn.", *["Fine."] * 1000])
        backend = kind(
            lambda request: (
                ("unsafe" if request.model == "second" else "safe")
                if system_of(request) == RULE
                else next(texts)
            )
        )
        write_responses(backend)
        assert {row[1:3] for row in stored()} == {("No.", "output"), ("Not that.", "guard_output")}
        assert {request.model for request in backend.requests if system_of(request) == RULE} == {"", "second"}

    def test_a_guard_that_cannot_be_asked_fails_the_response(self, kind, settings):
        settings.GENERATION_ATTEMPTS = 2
        experiment = guarded({"guard_instruction": RULE})
        backend = kind(
            lambda request: (
                GenerationFailure(request.key, "busy") if system_of(request) == RULE else "Like this."
            )
        )
        write_responses(backend)
        assert {row[:2] for row in stored()} == {("failed", "")}
        assert set(experiment.comparisons.values_list("state", flat=True)) == {"discarded"}
        reasons = set(Response.objects.values_list("failure_reason", flat=True))
        assert "The guard model did not answer: busy" in reasons

    def test_a_worker_told_to_stop_gives_back_what_no_guard_has_read(self, kind):
        guarded({"guard_instruction": RULE})
        backend = kind(by_guard("safe"))
        n_guarded = 3
        write_batch(
            worker="w",
            backend=backend,
            stopping=lambda: sum(system_of(request) == RULE for request in backend.requests) >= n_guarded,
        )
        assert Response.objects.filter(state="done").count() == n_guarded
        rest = Response.objects.exclude(state="done")
        assert set(rest.values_list("state", "text", "attempts")) <= {("waiting", "", 0)}
        write_responses(kind(by_guard("safe")))
        assert stored() == {("done", "Like this.", "", "scripted-1")}


def test_a_guard_without_a_name_is_the_model_that_writes():
    guarded({"guard_instruction": RULE}, model="large")
    backend = ScriptedBackend(by_guard("safe"))
    write_responses(backend)
    assert {request.model for request in backend.requests} == {"large"}


def test_a_worker_must_serve_the_guard_too():
    experiment = guarded({"guard_model": "guard"})
    needed = set(offered_models.needs(experiment.policies.values_list("pk", flat=True)).values())
    assert needed == {offered_models.Need("", frozenset({"guard"}))}


def test_admins_are_told_how_often_it_acted():
    experiment = guarded({"guard_instruction": RULE})
    write_responses(ScriptedBackend(by_guard("unsafe")))
    counts = queue_health.queue_health(experiment).guardrails
    assert [count.policy for count in counts] == ["P1", "P2"]
    assert sum(count.guard_output for count in counts) == Response.objects.count()
    assert all(count.guard_output == count.written for count in counts)


class TestRealBackend:
    """The same through the protocol of a server, where the guard is another model."""

    def test_a_guard_model_of_a_server(self, settings):
        settings.ALLOW_PRIVATE_CONNECTIONS, settings.OPENAI_MODEL = True, MODEL
        experiment = guarded({"guard_model": "guard", "guard_reads": "both"}, task="12 29")

        def respond(asked: dict[str, Any]) -> Reply:
            if asked["model"] != "guard":
                return completion("41")
            (message,) = asked["messages"]
            return completion("unsafe\nS1" if "Response:" in message["content"] else "safe")

        with serve(respond) as server:
            for name in (MODEL, "guard"):
                connect(name, server.url)
            backend = RemoteBackend()
            write_batch(worker="w", backend=backend, offer=Offer("remote", MODEL))
            backend.close()
            models = [asked["model"] for asked in server.asked]
        n = Response.objects.filter(policy__experiment=experiment).count()
        assert (models.count(MODEL), models.count("guard")) == (n, 2 * n)
        assert set(Response.objects.values_list("text", "guardrail")) == {("No.", "guard_output")}
