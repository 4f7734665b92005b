"""Settings of an experiment, offers of workers, and claims that respect both."""

from datetime import timedelta

import pytest
from django.utils import timezone

from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
from engine.models import Experiment, Response, WorkerPulse
from engine.selectors import offered_models
from engine.selectors.connection_pauses import usable_names
from engine.selectors.offered_models import Need, Offer
from engine.selectors.queue_health import queue_health
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.services.generation import claim_responses
from engine.services.planning import advance
from tests.factories import make_experiment

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]

LLAMA = Offer("vllm", "llama", others=("polite",))
QWEN = Offer("vllm", "qwen")
REMOTE = Offer("remote", "theirs")
SMALL = Offer("smollm2", "small")


def compare_models(*names: str, **settings: object) -> Experiment:
    """An experiment whose policies differ in the model that writes."""
    experiment = create_experiment(
        spec=ExperimentSpec(
            name=f"Models {names} {settings}",
            factors=[
                FactorSpec(
                    "Model", "model", {name or "usual": {"name": name} if name else {} for name in names}
                )
            ],
            tasks=[TaskSpec("What is 1 + 1?")],
            settings=settings,
        )
    )
    start(experiment_id=experiment.pk)
    advance(experiment_id=experiment.pk)
    return experiment


def pulse(worker: str, offer: Offer | None, **details: object) -> None:
    said = {} if offer is None else offer.details() | details
    WorkerPulse.objects.create(queue="generation", worker=worker, details=said)


def claimed_models(offer: Offer, limit: int = 1000) -> set[str]:
    claim = claim_responses(worker="w", limit=limit, offer=offer)
    return {
        level.value.get("name", "") for response in claim.responses for level in response.policy.levels.all()
    }


class TestOffer:
    @pytest.mark.parametrize(
        ("offer", "backend", "models", "served"),
        [
            (LLAMA, "", set(), True),
            (LLAMA, "vllm", {"llama"}, True),
            (LLAMA, "", {"polite"}, True),
            (LLAMA, "", {"llama", "polite"}, True),
            (LLAMA, "", {"qwen"}, False),
            (LLAMA, "", {"llama", "qwen"}, False),
            (LLAMA, "remote", set(), False),
            (REMOTE, "remote", set(), True),
            (REMOTE, "", {"theirs"}, False),
            (REMOTE, "vllm", {"theirs"}, False),
            (SMALL, "smollm2", {"large"}, False),
        ],
    )
    def test_a_worker_serves_its_own_backend_and_the_models_that_it_has(self, offer, backend, models, served):
        assert offer.serves(Need(backend, frozenset(models))) is served

    @pytest.mark.parametrize("offer", [LLAMA, REMOTE, SMALL])
    def test_a_pulse_carries_it_there_and_back(self, offer):
        pulse("w", offer)
        assert offered_models.live_offers() == {"w": offer}


class TestClaims:
    def test_a_worker_takes_only_what_it_can_serve(self):
        compare_models("llama", "qwen", "polite")
        assert claimed_models(QWEN) == {"qwen"}
        assert claimed_models(LLAMA) == {"llama", "polite"}
        assert not Response.objects.filter(state="waiting").exists()

    def test_the_experiments_model_is_that_of_policies_that_name_none(self):
        compare_models("", "qwen", model="llama")
        assert claimed_models(LLAMA) == {""}
        assert claimed_models(QWEN) == {"qwen"}

    def test_an_experiment_for_another_backend_is_left_alone(self):
        elsewhere = make_experiment(backend="remote")
        here = make_experiment()
        claim = claim_responses(worker="w", limit=1000, offer=LLAMA)
        assert {response.policy.experiment_id for response in claim.responses} == {here.pk}
        claim = claim_responses(worker="w", limit=1000, offer=REMOTE)
        assert {response.policy.experiment_id for response in claim.responses} == {elsewhere.pk}

    def test_suspects_of_another_worker_do_not_stand_in_the_way(self):
        elsewhere = make_experiment(backend="remote")
        Response.objects.filter(policy__experiment=elsewhere).update(crashes=1, attempts=1)
        here = make_experiment()
        claim = claim_responses(worker="w", limit=1000, offer=LLAMA)
        assert {response.policy.experiment_id for response in claim.responses} == {here.pk}
        assert len(claim.responses) == Response.objects.filter(policy__experiment=here).count()

    def test_a_worker_that_serves_nothing_of_what_waits_gets_nothing(self):
        make_experiment(backend="remote")
        assert claim_responses(worker="w", limit=1000, offer=LLAMA).responses == []


def unserved(experiment: Experiment) -> list[str]:
    needed = offered_models.needs_of([experiment], usable_names([experiment.pk]))
    return offered_models.unserved_needs(needed[experiment.pk])


class TestUnserved:
    def test_what_no_worker_alive_serves_is_named(self):
        experiment = compare_models("llama", "qwen", backend="vllm")
        pulse("gpu0", LLAMA)
        assert unserved(experiment) == [Need("vllm", frozenset({"qwen"})).unserved]
        assert not queue_health(experiment).healthy
        pulse("gpu1", QWEN)
        assert unserved(experiment) == []

    def test_a_worker_that_went_away_serves_nothing(self):
        experiment = make_experiment(model="qwen")
        pulse("gpu0", LLAMA)
        pulse("gpu1", QWEN)
        WorkerPulse.objects.filter(worker="gpu1").update(seen_at=timezone.now() - timedelta(hours=1))
        assert unserved(experiment) == [Need("", frozenset({"qwen"})).unserved]

    def test_a_worker_that_has_not_said_what_it_serves_may_serve_it(self):
        experiment = make_experiment(model="qwen")
        pulse("gpu0", LLAMA)
        pulse("gpu1", None)
        assert unserved(experiment) == []

    def test_without_any_worker_that_is_not_the_trouble(self):
        assert unserved(make_experiment(model="qwen")) == []


class TestWorkerHealth:
    def test_what_a_worker_tells_is_shown(self):
        experiment = make_experiment()
        claim = claim_responses(worker="gpu0", limit=3)
        assert len(claim.responses) == 3
        pulse("gpu0", LLAMA, tokens_per_second=812.5, gpu_memory=[3, 4], trouble="out of memory")
        (worker,) = queue_health(experiment).workers
        assert (worker.name, worker.backend, worker.model, worker.others) == (
            "gpu0",
            "vllm",
            "llama",
            ("polite",),
        )
        assert (worker.tokens_per_second, worker.in_hand) == (812.5, 3)
        assert (worker.gpu_used_bytes, worker.gpu_total_bytes) == (3, 4)
        assert worker.trouble == "out of memory"
        assert worker.alive

    def test_what_it_has_not_told_is_unknown_and_who_left_long_ago_is_forgotten(self):
        experiment = make_experiment()
        pulse("new", None)
        pulse("old", LLAMA)
        WorkerPulse.objects.filter(worker="old").update(seen_at=timezone.now() - timedelta(hours=2))
        (worker,) = queue_health(experiment).workers
        assert (worker.name, worker.backend, worker.tokens_per_second, worker.gpu_used_bytes) == (
            "new",
            "",
            None,
            None,
        )

    def test_time_in_the_queue_runs_from_planning_to_taking(self):
        experiment = make_experiment()
        assert queue_health(experiment).queue_seconds is None
        now = timezone.now()
        Response.objects.update(created_at=now - timedelta(seconds=8), taken_at=now - timedelta(seconds=5))
        last = Response.objects.last()
        Response.objects.filter(pk=last.pk).update(taken_at=None)
        assert queue_health(experiment).queue_seconds == pytest.approx(3)

    def test_taking_sets_the_time_and_storing_does_not_change_it(self):
        make_experiment(ready=True)
        assert not Response.objects.filter(taken_at=None).exists()

    def test_guardrails_are_counted_by_policy(self):
        experiment = make_experiment(ready=True)
        assert queue_health(experiment).guardrails == []
        Response.objects.filter(policy__index=1).update(guardrail="guard_output")
        first = Response.objects.filter(policy__index=1).first()
        Response.objects.filter(pk=first.pk).update(guardrail="input")
        of_policy = {count.policy: count for count in queue_health(experiment).guardrails}
        written = Response.objects.filter(policy__index=1).count()
        second = of_policy["P2"]
        assert (second.written, second.input, second.guard_output) == (written, 1, written - 1)
        assert second.acted == written
        assert of_policy["P1"].acted == 0

    def test_a_backend_out_of_order_is_trouble_while_something_waits(self):
        experiment = make_experiment()
        pulse("gpu0", LLAMA, trouble="no quota left")
        WorkerPulse.objects.create(queue="control", worker="c")
        health = queue_health(experiment)
        assert (health.trouble, health.healthy) == ("no quota left", False)
        pulse("gpu1", LLAMA)
        assert queue_health(experiment).healthy
        WorkerPulse.objects.filter(worker="gpu1").delete()
        Response.objects.update(state="done")
        assert queue_health(experiment).healthy
