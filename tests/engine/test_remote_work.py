"""Workers whose connections lead to servers that answer, wait, refuse, hang or are away."""

from __future__ import annotations

import asyncio
import inspect
import resource
import time
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any

import pytest
from django.utils import timezone

from engine.domain.connection_targets import Target
from engine.domain.replies import Fault, Finish, Usage
from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
from engine.domain.wording import moment
from engine.generation.base import GenerationFailure, GenerationRequest, GenerationResult, Outcome
from engine.generation.remote.backend import RemoteBackend
from engine.generation.worker import write_batch
from engine.judges import llm_worker
from engine.models import (
    Charge,
    Connection,
    Experiment,
    Judgment,
    Level,
    Loan,
    Opinion,
    Response,
    WorkerPulse,
)
from engine.selectors import refused_policies
from engine.selectors.offered_models import Offer
from engine.selectors.queue_health import queue_health
from engine.selectors.spending import costs_of, judging_spent, spent_in, spent_with
from engine.services import connection_pauses, generation
from engine.services.drafts import create_experiment
from engine.services.experiments import start, try_again
from engine.services.generation import claim_responses
from engine.services.opinions import ask_opinions, change_llm_judge
from engine.services.planning import advance
from labeling.dashboard.cards import cards
from labeling.dashboard.figures import result_figures
from labeling.dashboard.status import status_of
from tests.factories import make_user
from tests.opinions import opinions_of, verdict

pytestmark = pytest.mark.django_db

REMOTE = Offer("remote", "")
Answers = Callable[[GenerationRequest], Any]


def result(request: GenerationRequest, text: str = "", **parts: Any) -> GenerationResult:
    """A reply with this text; by default one that no other request gets."""
    values = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "finish_reason": Finish.STOP,
        "latency_seconds": 0.1,
        "model": request.model,
    }
    return GenerationResult(request.key, text or f"Text {request.key}.", **(values | parts))


def failure(request: GenerationRequest, fault: Fault, **words: Any) -> GenerationFailure:
    return GenerationFailure(request.key, words.pop("reason", "It answered 500."), fault, **words)


class Servers:
    """Stands in for the client: what each connection answers, and who was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Answers] = {}
        self.asked: list[tuple[str, int]] = []
        self.under_way: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def __aenter__(self) -> Servers:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    async def ask(self, target: Target, request: GenerationRequest) -> Outcome:
        self.asked.append((target.name, request.key))
        self.under_way[target.name] += 1
        self.most[target.name] = max(self.most[target.name], self.under_way[target.name])
        try:
            outcome = self.answers.get(target.name, result)(request)
            return await outcome if inspect.isawaitable(outcome) else outcome
        finally:
            self.under_way[target.name] -= 1


@pytest.fixture
def servers(monkeypatch) -> Servers:
    scripted = Servers()
    monkeypatch.setattr("engine.generation.remote.backend.Client", lambda: scripted)
    return scripted


def connect(*names: str, **fields: Any) -> list[Connection]:
    values = {"provider": "compatible", "model_id": "m", "address": "https://x/v1", "everybody": True}
    return [Connection.objects.create(name=name, **(values | fields)) for name in names]


def compare(*names: str, guard: dict[str, Any] | None = None, **settings: Any) -> Experiment:
    """A running experiment over these connections, with its first comparisons planned."""
    factors = [FactorSpec("Model", "model", {name: {"name": name} for name in names})]
    if guard is not None:
        factors.append(FactorSpec("Guardrail", "guardrail", {"On": {"refusal": "No."} | guard}))
    if len(names) == 1:
        factors.append(FactorSpec("Prompt", "prompt", {"Kind": {"text": "Be kind."}, "Terse": {"text": "T"}}))
    experiment = create_experiment(
        spec=ExperimentSpec(
            name=f"{names} {guard} {settings}",
            factors=factors,
            tasks=[TaskSpec(f"What is {n} + 1?") for n in range(4)],
            settings={"seed": 0, "claim": "best_if_any"} | settings,
        )
    )
    start(experiment_id=experiment.pk)
    advance(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    return experiment


def write(stopping: Callable[[], bool] = lambda: False, offer: Offer = REMOTE) -> int:
    backend = RemoteBackend()
    try:
        return write_batch(worker="remote@host", backend=backend, offer=offer, stopping=stopping)[0]
    finally:
        backend.close()


def states(name: str = "") -> Counter[str]:
    rows = Response.objects.all()
    if name:
        rows = rows.filter(policy__levels__value__name=name)
    return Counter(rows.values_list("state", flat=True))


def pulse() -> None:
    WorkerPulse.objects.create(queue="control", worker="c")
    WorkerPulse.objects.create(queue="generation", worker="remote@host", details=REMOTE.details())


class TestWriting:
    def test_each_policy_is_written_by_its_connection_with_all_its_parts(self, servers):
        [dear, _] = connect("dear", "free", price_prompt=1.0, price_completion=10.0)
        Connection.objects.filter(name="free").update(price_prompt=None)
        experiment = compare("dear", "free")
        servers.answers["dear"] = lambda request: result(
            request, thinking="Hm.", served_model="m-2", marks=("</s>",), thinking_tokens=2
        )
        assert write() == Response.objects.count()
        assert set(states()) == {"done"}
        row = Response.objects.filter(policy__levels__value__name="dear").first()
        assert (row.thinking, row.served_model, row.marks) == ("Hm.", "m-2", ["</s>"])
        assert (row.connection, row.model, row.thinking_tokens) == (dear, "dear", 2)
        assert costs_of([row.pk])[row.pk] == {"USD": pytest.approx((10 * 1 + 5 * 10) / 1e6)}
        free = Charge.objects.filter(model="free")
        assert set(free.values_list("prompt_tokens", "completion_tokens", "cost", "currency")) == {
            (10, 5, None, "")
        }
        assert set(experiment.comparisons.values_list("state", flat=True)) == {"ready"}

    def test_what_is_not_lent_is_not_asked(self, servers):
        connect("mine", "ours")
        experiment = compare("mine", "ours")
        Connection.objects.filter(name="mine").update(everybody=False)
        write()
        assert {name for name, _ in servers.asked} == {"ours"}
        pulse()
        assert "'mine'" in queue_health(experiment).ailment
        owner = make_user()
        Loan.objects.create(connection=Connection.objects.get(name="mine"), experiment=experiment, by=owner)
        write()
        assert set(states()) == {"done"}

    @pytest.mark.parametrize("everybody", [False, True])
    def test_naming_no_model_is_no_way_to_a_connection_that_is_not_lent(self, servers, settings, everybody):
        settings.OPENAI_MODEL = "usual"
        [usual] = connect("usual")
        compare("usual")
        Level.objects.filter(factor__kind="model").update(value={"name": ""})
        usual.everybody = everybody
        usual.owner = make_user("owner") if everybody else None
        usual.save()
        assert write(offer=Offer("remote", "usual")) == 0
        usual.everybody, usual.owner = True, None
        usual.save()
        write(offer=Offer("remote", "usual"))
        assert set(states()) == {"done"}

    def test_a_connection_gets_no_more_at_once_than_it_may(self, servers):
        async def slowly(request):
            await asyncio.sleep(0.02)
            return result(request)

        connect("narrow", at_once=2)
        connect("wide")
        compare("narrow", "wide")
        servers.answers["narrow"] = servers.answers["wide"] = slowly
        write()
        assert set(states()) == {"done"}
        assert servers.most["narrow"] == 2

    def test_nor_more_in_a_minute(self, servers):
        connect("slow", per_minute=3)
        compare("slow")
        stop_at = time.monotonic() + 1
        write(stopping=lambda: time.monotonic() > stop_at)
        assert len(servers.asked) == 3
        assert set(Response.objects.values_list("state", "attempts")) == {("done", 1), ("waiting", 0)}

    def test_requests_under_way_do_not_use_up_the_files_of_the_process(self, servers):
        now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, most), most))
            connect("a", "b")
            compare("a", "b")
            write()
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(most, 65_536), most)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (now, most))

    def test_a_request_that_hangs_keeps_no_other_waiting(self, servers):
        async def hang(request):
            if request.key == stuck:
                await asyncio.sleep(60)
            return result(request)

        connect("hangs", "works")
        compare("hangs", "works")
        stuck = Response.objects.filter(policy__levels__value__name="hangs").first().pk
        servers.answers["hangs"] = hang
        write(stopping=lambda: states()["done"] == Response.objects.count() - 1)
        assert Response.objects.get(pk=stuck).state == "waiting"
        assert Response.objects.get(pk=stuck).attempts == 0

    def test_a_request_in_hand_is_not_sent_once_its_loan_has_ended(self, servers, monkeypatch):
        monkeypatch.setattr("engine.generation.remote.backend._READ_SECONDS", 0)
        connect("theirs", everybody=False, at_once=1)
        connect("free")
        owner = make_user("owner")
        Connection.objects.update(everybody=True)
        experiment = compare("theirs", "free")
        Connection.objects.filter(name="theirs").update(everybody=False)
        Loan.objects.create(connection=Connection.objects.get(name="theirs"), experiment=experiment, by=owner)

        def end_loan():
            if servers.asked:
                Loan.objects.all().delete()
            return False

        write(stopping=end_loan)
        asked = Counter(name for name, _ in servers.asked)["theirs"]
        assert 1 <= asked < states("theirs").total()
        assert states("theirs") == {"done": asked, "waiting": states("theirs").total() - asked}
        assert Connection.objects.get(name="theirs").failures == 0

    def test_a_worker_that_dies_is_not_the_fault_of_what_it_asked(self, servers):
        connect("a", "b")
        compare("a", "b")
        pulse()
        for begun_anew in ("", "remote@host"):
            claim_responses(worker="remote@host", limit=100, rooms={"a": 99, "b": 99}, offer=REMOTE)
            if not begun_anew:
                Response.objects.update(claim_expires_at=timezone.now() - timedelta(hours=1))
            generation.expire_claims(begun_anew="another@host")
            assert states()["generating"] == (states().total() if begun_anew else 0)
            generation.expire_claims(begun_anew=begun_anew)
        assert set(Response.objects.values_list("state", "attempts", "crashes")) == {("waiting", 0, 0)}


class TestServersFaults:
    @pytest.fixture
    def two_tries(self, monkeypatch):
        monkeypatch.setattr("engine.generation.remote.backend._TRIES", 2)

    @pytest.mark.usefixtures("two_tries")
    def test_a_request_that_always_breaks_the_server_is_no_answer_in_the_end(self, servers):
        connect("a", "b", at_once=1)
        experiment = compare("a", "b")
        bad = Response.objects.filter(policy__levels__value__name="a").first().pk

        def poisoned(request):
            if request.key == bad:
                return failure(request, Fault.SERVER, reason="It failed (500).", said="Oops.")
            return result(request)

        servers.answers["a"] = poisoned
        for n in range(2):
            Response.objects.filter(pk=bad).update(
                faults=n * (generation.MOST_FAULTS - 1), taken_at=timezone.now() - timedelta(hours=1)
            )
            # It keeps no place from the others, and rests.
            Response.objects.exclude(pk=bad).update(state="waiting", text="", done_at=None)
            write()
            assert states()["done"] == states().total() - 1 + n
            assert write() == 0
        row = Response.objects.get(pk=bad)
        assert (row.state, row.text, row.finish_reason, row.model) == ("done", "", Finish.ERROR, "a")
        assert "It failed (500)." in row.failure_reason
        assert row.said == "Oops."
        assert not experiment.comparisons.filter(state="discarded").exists()

    @pytest.mark.usefixtures("two_tries")
    @pytest.mark.parametrize("fault", [Fault.SERVER, Fault.BUSY])
    def test_nothing_is_given_up_while_a_server_answers_nobody_or_asks_for_time(self, servers, fault):
        connect("a", "b", at_once=1)
        compare("a", "b")
        Response.objects.update(faults=generation.MOST_FAULTS - 1)
        bad = set(Response.objects.filter(policy__levels__value__name="a").values_list("pk", flat=True))
        bad -= {min(bad)} if fault == Fault.BUSY else set()
        servers.answers["a"] = lambda request: (
            failure(request, fault) if request.key in bad else result(request)
        )
        write(stopping=lambda: len(servers.asked) > 25)
        assert set(Response.objects.filter(pk__in=bad).values_list("state", "faults", "attempts")) == {
            ("waiting", generation.MOST_FAULTS - 1, 0)
        }

    def test_a_server_that_asks_for_time_gets_it_and_nothing_is_lost(self, servers):
        [busy, _] = connect("busy", "works")
        experiment = compare("busy", "works")
        tries: Counter[int] = Counter()

        def overloaded(request):
            tries[request.key] += 1
            if tries[request.key] == 1:
                return failure(request, Fault.SERVER, reason="It answered 429.", wait_seconds=0.3)
            return result(request)

        servers.answers["busy"] = overloaded
        began = time.monotonic()
        write()
        assert time.monotonic() - began >= 0.3
        assert set(states()) == {"done"}
        assert set(Response.objects.values_list("attempts", flat=True)) == {1}
        assert not experiment.comparisons.filter(state="discarded").exists()
        busy.refresh_from_db()
        assert (busy.waits_until, busy.failures, busy.trouble) == (None, 0, "")

    def test_a_long_wait_gives_the_work_back_and_says_until_when(self, servers):
        connect("busy", "works")
        experiment = compare("busy", "works")
        pulse()
        servers.answers["busy"] = lambda request: failure(
            request, Fault.SERVER, reason="It answered 429.", said="Slow down.", wait_seconds=3600
        )
        write()
        assert states("works") == {"done": states("works").total()}
        assert states("busy") == {"waiting": states("busy").total()}
        assert not experiment.comparisons.filter(state="discarded").exists()
        n = len(servers.asked)
        assert write() == 0, "nothing is asked meanwhile"
        assert len(servers.asked) == n
        busy = Connection.objects.get(name="busy")
        status = status_of(experiment)
        assert status.badge == "Unhealthy"
        assert f"Waiting for busy until {moment(busy.waits_until)}: It answered 429." in status.sentence
        assert "Slow down." not in status.sentence
        assert queue_health(experiment).said == ["Slow down."]

    def test_one_broken_answer_pauses_nothing(self, servers):
        connect("flaky", "works")
        compare("flaky", "works")
        broken = []

        def flaky(request):
            if not broken:
                broken.append(request.key)
                return failure(request, Fault.SERVER)
            return result(request)

        servers.answers["flaky"] = flaky
        write()
        assert set(states()) == {"done"}
        assert Connection.objects.get(name="flaky").failures == 0

    def test_failures_in_a_row_pause_ever_longer_and_minutes_at_most(self):
        [row] = connect("down")
        for n in range(connection_pauses._PATIENCE + 12):
            connection_pauses.note_failure(row, Fault.SERVER, reason="Away.")
            if n + 1 < connection_pauses._PATIENCE:
                assert row.waits_until is None
                continue
            seconds = (row.waits_until - timezone.now()).total_seconds()
            assert 1 < seconds <= 120
            # The database has a clock of its own.
            row.waits_until = timezone.now() - timedelta(seconds=1)
        assert seconds > 100
        connection_pauses.note_success(row)
        row.refresh_from_db()
        assert (row.failures, row.waits_until, row.trouble) == (0, None, "")

    def test_after_a_pause_one_request_tries_it(self, servers):
        [row, _] = connect("down", "works")
        Connection.objects.filter(pk=row.pk).update(waits_until=timezone.now(), failures=7)
        compare("down", "works")
        servers.answers["down"] = lambda request: failure(request, Fault.SERVER)
        write()
        assert sum(name == "down" for name, _ in servers.asked) == 1
        assert states("works") == {"done": states("works").total()}


class TestAccess:
    def test_a_refused_key_stops_its_connection_alone(self, servers):
        connect("closed", "works")
        experiment = compare("closed", "works")
        pulse()
        servers.answers["closed"] = lambda request: failure(
            request, Fault.ACCESS, reason="The server at x refuses the key (401).", said="Bad key."
        )
        write()
        assert states("works") == {"done": states("works").total()}
        assert set(Response.objects.filter(state="waiting").values_list("attempts", "failure_reason")) <= {
            (0, "The server at x refuses the key (401)."),
            (0, ""),
        }
        status = status_of(experiment)
        assert (status.badge, "closed" in status.sentence) == ("Unhealthy", True)
        assert "refuses the key (401)" in status.sentence
        assert [each["name"] for each in result_figures(experiment)["verdict"]["waits"]] == ["closed"]
        [card] = cards([experiment])
        assert "waiting for closed" in card["pulse"]
        # Somebody mends it.
        Connection.objects.filter(name="closed").update(waits_until=None, failures=0, trouble="")
        servers.answers.clear()
        write()
        assert set(states()) == {"done"}
        assert status_of(experiment).badge == "Running"


class TestSettings:
    @pytest.fixture
    def halted(self, servers, settings) -> Experiment:
        settings.BUFFER_MIN = 8
        connect("strict", "works")
        experiment = compare("strict", "works")
        pulse()
        servers.answers["strict"] = lambda request: failure(
            request, Fault.SETTINGS, reason="The server at x refuses the request (400).", said="No top_k."
        )
        write()
        assert states("strict")["waiting"] >= refused_policies.MOST_REFUSED
        return experiment

    def test_a_policy_that_is_refused_again_and_again_stops_the_spending_on_its_rivals(self, halted, servers):
        assert not halted.comparisons.filter(state="discarded").exists()
        # More would be paid for in vain.
        Response.objects.filter(state="done").update(state="waiting")
        n = len(servers.asked)
        assert write() == 0
        assert advance(experiment_id=halted.pk).planned == 0
        assert len(servers.asked) == n

    def test_the_page_names_the_policy_the_message_and_the_remedy(self, halted):
        status = status_of(halted)
        assert status.badge == "Unhealthy"
        for words in ("“strict”", "refuses the request (400)", "Try again"):
            assert words in status.sentence
        assert "No top_k." not in status.sentence

    def test_somebody_says_again(self, halted, servers):
        servers.answers.clear()
        try_again(experiment_id=halted.pk, by=None)
        write()
        assert set(states()) == {"done"}
        assert status_of(halted).badge == "Running"
        assert halted.audit_entries.filter(action="try_again").count() == 1

    def test_a_few_refusals_halt_nothing(self, servers):
        connect("strict", "works")
        experiment = compare("strict", "works")
        pulse()
        bad = Response.objects.filter(policy__levels__value__name="strict").first().pk
        servers.answers["strict"] = lambda request: (
            failure(request, Fault.SETTINGS, reason="No.") if request.key == bad else result(request)
        )
        write()
        assert status_of(experiment).badge == "Running"
        assert "1 request of “strict” refused" in status_of(experiment).sentence


RULE = "Say safe or unsafe."


class TestGuards:
    @pytest.mark.parametrize(
        ("parts", "stored"),
        [
            ({"text": "safe"}, ("Fine.", "", "stop")),
            ({"text": "unsafe"}, ("No.", "guard_output", "stop")),
            ({"text": "safe", "thinking": "could this be unsafe? no"}, ("Fine.", "", "stop")),
            ({"text": "", "finish_reason": Finish.LENGTH, "thinking": "hm"}, ("", "", "error")),
            ({"text": "safe, as the", "finish_reason": Finish.LENGTH}, ("", "", "error")),
            ({"text": "unsafe, as the", "finish_reason": Finish.LENGTH}, ("No.", "guard_output", "stop")),
            ({"text": "", "finish_reason": Finish.STOP}, ("", "", "error")),
            ({"text": "", "finish_reason": Finish.FILTERED}, ("No.", "guard_output", "stop")),
            ({"text": "", "finish_reason": Finish.REFUSED}, ("No.", "guard_output", "stop")),
            ({"text": "", "finish_reason": Finish.ERROR, "reason": "too long"}, ("", "", "error")),
        ],
    )
    def test_only_a_whole_verdict_in_the_text_lets_a_response_pass(self, servers, parts, stored):
        connect("writer", "guard", price_prompt=1.0, price_completion=1.0)
        compare("writer", guard={"guard_model": "guard", "guard_instruction": RULE})
        servers.answers["writer"] = lambda request: result(request, "Fine.", thinking="A plan.")
        servers.answers["guard"] = lambda request: GenerationResult(
            request.key, **({"prompt_tokens": 10, "completion_tokens": 5} | DEFAULTS | parts)
        )
        write()
        assert set(Response.objects.values_list("text", "guardrail", "finish_reason")) == {stored}
        assert {(bool(row.thinking), row.text) for row in Response.objects.all()} == {
            (stored[0] == "Fine.", stored[0])
        }
        charges = Charge.objects.values_list("connection__name", "purpose", "cost").distinct()
        assert sorted(charges) == [("guard", "guard", 15 / 1e6), ("writer", "response", 15 / 1e6)]
        assert Charge.objects.count() == 2 * Response.objects.count()
        assert all(row.failure_reason for row in Response.objects.filter(finish_reason="error"))

    def test_a_guard_that_is_away_is_asked_again_and_its_policies_wait(self, servers):
        connect("writer", "guard", "other")
        compare("writer", "other", guard={"guard_model": "guard", "guard_instruction": RULE})
        Connection.objects.filter(name="guard").update(
            waits_until=timezone.now() + timedelta(hours=1), failures=9
        )
        assert write() == 0
        assert servers.asked == []

    def test_no_answer_needs_no_guard(self, servers):
        connect("writer", "guard")
        compare("writer", guard={"guard_model": "guard", "guard_instruction": RULE})
        servers.answers["writer"] = lambda request: GenerationResult(
            request.key, "", 10, 0, Finish.FILTERED, 0.1, model="writer"
        )
        write()
        assert {name for name, _ in servers.asked} == {"writer"}
        assert set(Response.objects.values_list("state", "text", "finish_reason")) == {
            ("done", "", "filtered")
        }


DEFAULTS = {"finish_reason": Finish.STOP, "latency_seconds": 0.1, "model": "guard"}


class TestNoAnswer:
    @staticmethod
    def silent(servers: Servers, *names: str) -> None:
        for name in names:
            servers.answers[name] = lambda request: GenerationResult(
                request.key, "", 10, 0, Finish.REFUSED, 0.1, model=request.model, refusal="I will not."
            )

    def test_by_setting_it_loses_without_a_click(self, servers):
        connect("silent", "talks")
        experiment = compare("silent", "talks", no_answer="loses")
        self.silent(servers, "silent")
        write()
        assert set(experiment.comparisons.values_list("state", flat=True)) == {"planned"}
        advance(experiment_id=experiment.pk)
        judged = Judgment.objects.filter(comparison__experiment=experiment)
        assert set(judged.values_list("via", "judge")) == {("no_answer", "rule")}
        talks = experiment.policies.get(levels__value__name="talks").pk
        for each in judged.select_related("comparison"):
            left = each.comparison.left.policy_id
            assert (each.choice == "left") == (left == talks)
        assert Response.objects.filter(refusal="I will not.").exists()

    def test_otherwise_people_judge_it(self, servers):
        connect("silent", "talks")
        experiment = compare("silent", "talks")
        self.silent(servers, "silent")
        write()
        assert set(experiment.comparisons.values_list("state", flat=True)) == {"ready"}

    def test_two_without_an_answer_go_to_people(self, servers):
        connect("silent", "mute")
        experiment = compare("silent", "mute", no_answer="loses")
        self.silent(servers, "silent", "mute")
        write()
        assert set(experiment.comparisons.values_list("state", flat=True)) == {"ready"}


PRICES: dict[str, Any] = {"price_prompt": 1.0, "price_completion": 2.0}
# Of 10 tokens read and 5 written, at these prices.
EACH = 20 / 1e6


class TestMoney:
    """Whoever answered was paid, whatever became of the answer."""

    def test_a_guard_is_paid_by_its_own_connection_in_its_own_currency(self, servers):
        [writer] = connect("writer", **PRICES)
        [guard] = connect("guard", currency="EUR", **PRICES)
        experiment = compare("writer", guard={"guard_model": "guard", "guard_instruction": RULE})
        servers.answers["guard"] = lambda request: result(request, "safe")
        n = write()
        each = pytest.approx(n * EACH)
        assert spent_with([writer.pk, guard.pk]) == {writer.pk: {"USD": each}, guard.pk: {"EUR": each}}
        assert spent_in(experiment) == {"USD": each, "EUR": each}

    def test_an_answer_that_comes_too_late_was_paid(self, servers):
        connect("a", "b", **PRICES)
        experiment = compare("a", "b")

        def taken_for_dead() -> bool:
            # Another worker has the responses now.
            Response.objects.filter(state="generating").update(claim=uuid.uuid4())
            return False

        n = write(taken_for_dead)
        assert states() == {"generating": n}
        assert spent_in(experiment) == {"USD": pytest.approx(n * EACH)}

    def test_a_worker_that_dies_before_the_verdict_leaves_what_the_answer_cost(self, servers):
        connect("writer", **PRICES)
        connect("guard")
        experiment = compare("writer", guard={"guard_model": "guard", "guard_instruction": RULE})
        servers.answers["guard"] = lambda request: asyncio.sleep(60)
        began = time.monotonic()

        def killed() -> bool:
            if time.monotonic() > began + 2.0:
                raise SystemExit
            return False

        with pytest.raises(SystemExit):
            write(killed)
        n = states()["generating"]
        assert spent_in(experiment) == {"USD": pytest.approx(n * EACH)}

    def test_an_answer_that_cannot_be_read_was_paid(self, servers, monkeypatch, settings):
        settings.GENERATION_ATTEMPTS = 1
        connect("a", "b", **PRICES)
        experiment = compare("a", "b")
        monkeypatch.setattr("engine.generation.responses.find_leak", lambda *_, **__: 1 / 0)
        n = write()
        assert "done" not in states()
        assert spent_in(experiment) == {"USD": pytest.approx(n * EACH)}

    def test_each_answer_that_breaks_off_was_paid(self, servers, monkeypatch):
        monkeypatch.setattr("engine.generation.remote.backend._TRIES", 2)
        connect("a", **PRICES)
        connect("b")
        experiment = compare("a", "b")
        broken = Counter()

        def breaks(request: GenerationRequest) -> Outcome:
            broken[request.key] += 1
            if broken.total() == 1:
                return failure(request, Fault.SERVER, usage=Usage(prompt=10, completion=5))
            return result(request)

        servers.answers["a"] = breaks
        write()
        assert states("a") == {"done": len(broken)}
        assert broken.total() == len(broken) + 1
        assert spent_in(experiment) == {"USD": pytest.approx(broken.total() * EACH)}

    def test_what_a_judge_cost_stays_when_another_judges(self, servers, settings):
        settings.JUDGE_BACKEND, settings.BUFFER_MIN = "", 6
        connect("a", "b")
        [old, new] = connect("old", "new", **PRICES)
        experiment = compare("a", "b")
        write()
        for name, text in (("old", verdict("A")), ("new", "I cannot say.")):
            servers.answers[name] = lambda request, text=text: result(request, text)
            change_llm_judge(
                experiment_id=experiment.pk, stage="shadow", rubric="", budget=100, judge_model=name
            )
            experiment.refresh_from_db()
            Opinion.objects.create(
                comparison=experiment.comparisons.first(), identity=llm_worker.identity(experiment), seed=1
            )
            TestJudge.opine()
        assert set(Opinion.objects.values_list("state", flat=True)) == {"done", "waiting"}
        assert spent_with([old.pk])[old.pk] == {"USD": pytest.approx(2 * EACH)}
        # It is asked again as long as it has attempts; each counts.
        assert spent_with([new.pk])[new.pk]["USD"] >= 2 * EACH

    def test_one_verdict_is_paid_though_the_other_never_comes(self, servers, settings):
        settings.JUDGE_BACKEND = ""
        connect("a", "b")
        connect("judge", **PRICES)
        experiment = compare("a", "b")
        write()
        change_llm_judge(
            experiment_id=experiment.pk, stage="shadow", rubric="", budget=9, judge_model="judge"
        )
        experiment.refresh_from_db()
        Opinion.objects.create(
            comparison=experiment.comparisons.first(), identity=llm_worker.identity(experiment), seed=1
        )
        servers.answers["judge"] = lambda request: (
            failure(request, Fault.ACCESS) if request.key % 2 else result(request, verdict("A"))
        )
        TestJudge.opine()
        assert judging_spent(experiment) == (10, 5, {"USD": pytest.approx(EACH)})

    def test_a_limit_stops_the_asking_and_nothing_is_lost(self, servers):
        async def slowly(request: GenerationRequest) -> GenerationResult:
            await asyncio.sleep(0.3)
            return result(request)

        connect("a", "b", at_once=1, **PRICES)
        experiment = compare("a", "b", money_limit=EACH)
        servers.answers["a"] = servers.answers["b"] = slowly
        n = states()["waiting"]
        write(Charge.objects.exists)
        written = states()["done"]
        assert 0 < written < n
        assert write() == 0
        assert states() == {"done": written, "waiting": n - written}
        Experiment.objects.update(money_limit=1.0)
        write()
        assert states() == {"done": n}
        assert spent_in(experiment) == {"USD": pytest.approx(n * EACH)}

    @pytest.mark.parametrize("limit", ["connections", "experiments"])
    def test_a_limit_that_is_reached_asks_nothing_and_loses_nothing(self, servers, monkeypatch, limit):
        [dear, _] = connect("dear", "cheap")
        experiment = compare("dear", "cheap")
        pulse()
        spent = {dear.pk} if limit == "connections" else {experiment.pk}
        modules = {
            "connections": ("engine.generation.worker", "engine.selectors.pulses"),
            "experiments": ("engine.services.generation", "engine.selectors.pulses"),
        }
        for module in modules[limit]:
            monkeypatch.setattr(f"{module}.overspent_{limit}", lambda: spent)
        monkeypatch.setattr("engine.selectors.pulses.money_trouble", lambda experiment: "It is spent.")
        write()
        assert {name for name, _ in servers.asked} == ({"cheap"} if limit == "connections" else set())
        assert states("dear") == {"waiting": states("dear").total()}
        assert status_of(experiment).badge == "Unhealthy"


class TestJudge:
    @pytest.fixture
    def judged(self, servers, settings) -> Experiment:
        settings.JUDGE_BACKEND, settings.BUFFER_MIN = "", 6
        connect("a", "b")
        connect("judge", price_prompt=1.0, price_completion=1.0)
        experiment = compare("a", "b")
        write()
        change_llm_judge(
            experiment_id=experiment.pk, stage="shadow", rubric="", budget=100, judge_model="judge"
        )
        experiment.refresh_from_db()
        for comparison in experiment.comparisons.all()[:6]:
            Opinion.objects.create(
                comparison=comparison, identity=llm_worker.identity(experiment), seed=comparison.pk
            )
        return experiment

    @staticmethod
    def opine() -> int:
        backend = RemoteBackend()
        try:
            return llm_worker.give_opinions(worker="remote@host", backend=backend)
        finally:
            backend.close()

    def test_a_connection_judges_and_its_cost_is_known(self, judged, servers):
        servers.answers["judge"] = lambda request: result(request, verdict("A"))
        n = len(opinions_of(judged))
        assert self.opine() == n
        assert {each.state for each in opinions_of(judged)} == {"done"}
        assert {each.model for each in opinions_of(judged)} == {"judge"}
        assert judging_spent(judged) == (20 * n, 10 * n, {"USD": pytest.approx(n * 30 / 1e6)})

    @pytest.mark.parametrize("fault", [Fault.SERVER, Fault.ACCESS])
    def test_a_server_that_is_away_costs_no_attempt(self, judged, servers, fault):
        servers.answers["judge"] = lambda request: failure(request, fault, wait_seconds=3600)
        self.opine()
        assert {(each.state, each.attempts) for each in opinions_of(judged)} == {("waiting", 0)}
        assert self.opine() == 0

    @pytest.mark.parametrize(
        ("finish", "remedy"), [(Finish.LENGTH, "JUDGE_MAX_TOKENS"), (Finish.FILTERED, "another judge")]
    )
    def test_verdicts_that_never_come_halt_it_with_the_remedy(
        self, judged, servers, settings, finish, remedy
    ):
        settings.JUDGE_ATTEMPTS = 1
        servers.answers["judge"] = lambda request: result(request, verdict("A"), finish_reason=finish)
        assert len(opinions_of(judged)) >= 5
        self.opine()
        judged.refresh_from_db()
        assert remedy in judged.llm_halted

    def test_a_connection_that_is_not_lent_judges_nothing(self, judged):
        Connection.objects.filter(name="judge").update(everybody=False)
        assert self.opine() == 0
        assert ask_opinions(experiment_id=judged.pk, most=9) == 0
