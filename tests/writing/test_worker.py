"""The worker that asks a writer: what it sends, what it stores, when it asks again; and first answers."""

import json
from datetime import timedelta

import numpy as np
import pytest

from engine.models import Charge, Comparison, Connection, Improvement, Proposal, Response, Writing, clock
from engine.selectors.improvements import open_votes, race_of, text_of
from engine.selectors.offered_models import Offer
from engine.selectors.pulses import pulses
from engine.selectors.writing import brief_of, improvements_to_write
from engine.services.improvements import add_proposals, refuse_proposal, start_improvement
from engine.tasks import write_proposals as task
from engine.writing import registry
from engine.writing.first_answers import answer_proposals
from engine.writing.worker import write_proposals
from tests.backends import ScriptedBackend, system_of
from tests.factories import make_user
from tests.generation.chat_server import completion, error, serve
from tests.improving import judge, make_world, plan_and_answer

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def on_this_machine(settings):
    settings.ALLOW_PRIVATE_CONNECTIONS = True


@pytest.fixture
def editor():
    return make_user("editor")


def begun(annotator, *, judged: int = 0, **given) -> Improvement:
    experiment = make_world([annotator])
    rng = np.random.default_rng(1)
    for _ in range(judged):
        if not judge(experiment, annotator, rng):
            plan_and_answer(experiment)
    improvement = start_improvement(experiment_id=experiment.pk, clicks=100, **{"writer": "prepared"} | given)
    # Whom a race compares next is drawn.
    Improvement.objects.update(seed=1)
    plan_and_answer(experiment)
    improvement.refresh_from_db()
    assert improvement.wants
    return improvement


def texts_of(improvement: Improvement) -> list[str]:
    return list(improvement.proposals.values_list("text", flat=True))


def later(seconds: float) -> None:
    """Time passes."""
    Writing.objects.update(created_at=clock.now() - timedelta(seconds=seconds))


class TestAModel:
    def asked(self, annotator, respond, times: int = 1, **given):
        with serve(respond) as server:
            Connection.objects.create(
                name="W", provider="compatible", model_id="w", address=server.url, everybody=True
            )
            improvement = begun(annotator, writer="reflective", connection="W", **given)
            for _ in range(times):
                write_proposals(improvement.pk)
                later(10_000)
        improvement.refresh_from_db()
        return improvement, server

    def test_it_reads_votes_on_open_tasks_alone_and_everything_is_kept(self, annotator):
        texts = ["Be short and warm.", "End with a question."]
        reply = json.dumps({"proposals": [{"reason": "Warmth won.", "text": text} for text in texts]})
        improvement, server = self.asked(
            annotator, lambda asked: completion(reply), judged=30, wish="Be kind."
        )
        assert texts_of(improvement) == texts
        assert {each.reason for each in improvement.proposals.all()} == {"Warmth won."}
        [sent] = [each["content"] for each in server.asked[0]["messages"]]
        assert "Be kind." in sent
        writing = improvement.writings.get()
        assert json.loads(writing.sent)[0]["content"] == sent
        for vote in open_votes(improvement, improvement.original):
            assert f"shown as A: {vote.left.text}\n" in sent
            assert f"shown as B: {vote.right.text}\n" in sent
        assert writing.gave == reply
        assert 0 < len(writing.opened_tasks) <= 6
        assert set(writing.opened_tasks) <= set(improvement.open_tasks)
        closed = improvement.experiment.tasks.exclude(pk__in=improvement.open_tasks)
        assert not [each.prompt for each in closed if f"{each.prompt}\n" in sent]
        assert Charge.objects.filter(purpose=Charge.Purpose.WRITING).count() == 1
        assert improvement.wants == {}
        assert not improvements_to_write()

    @pytest.mark.parametrize(
        ("respond", "because"),
        [
            (lambda asked: completion("Be warm."), "JSON"),
            (lambda asked: completion('{"proposals": []}'), "no text"),
            (lambda asked: error(401, "Who are you?"), ""),
        ],
    )
    def test_a_call_without_texts_is_told_and_repeated_later_and_later(self, annotator, respond, because):
        improvement, _ = self.asked(annotator, respond)
        writing = improvement.writings.get()
        assert because in writing.fault
        assert writing.fault
        assert improvements_to_write() == [improvement]
        later(1)
        assert not improvements_to_write(), "it has just failed"
        for _ in range(5):
            Writing.objects.create(improvement=improvement, parent=improvement.original, fault="No.")
        later(300)
        assert not improvements_to_write(), "it has failed often"

    def test_while_the_model_is_away_the_race_goes_on_with_the_children_that_there_are(
        self, annotator, monkeypatch
    ):
        # Both children beat the original always: one is promoted, the other goes on.
        monkeypatch.setattr("tests.improving.TASTE", {"short": 50.0, "warm": 50.0, "asks": 0.0})
        reply = json.dumps({"proposals": [{"reason": "", "text": f"Be {how}."} for how in ("short", "warm")]})

        def once(asked):
            return error(503, "Come back later.") if len(server.asked) > 1 else completion(reply)

        rng = np.random.default_rng(2)
        with serve(once) as server:
            Connection.objects.create(
                name="W", provider="compatible", model_id="w", address=server.url, everybody=True
            )
            improvement = begun(annotator, writer="reflective", connection="W", needs_ok=False)
            for _ in range(200):
                write_proposals(improvement.pk)
                later(10_000)
                judge(improvement.experiment, annotator, rng) or plan_and_answer(improvement.experiment)
                improvement.refresh_from_db()
                if improvement.writings.exclude(fault="").exists():
                    break
            used = improvement.used
            assert len(race_of(improvement).challengers) == 1
            for _ in range(4):
                judge(improvement.experiment, annotator, rng) or plan_and_answer(improvement.experiment)
        plan_and_answer(improvement.experiment)
        improvement.refresh_from_db()
        assert improvement.used > used
        assert improvement.state == Improvement.State.OPEN

    def test_a_writer_that_only_copies_is_not_asked_without_end(self, annotator):
        copy = json.dumps({"proposals": [{"reason": "", "text": "You are a formal clerk!"}] * 2})
        improvement, server = self.asked(annotator, lambda asked: completion(copy))
        assert set(improvement.proposals.values_list("state", flat=True)) == {"refused"}
        later(1)
        assert not improvements_to_write()
        assert len(server.asked) == 1

    def test_what_the_owner_refuses_is_told_to_the_writer_which_is_asked_at_once(self, annotator, editor):
        reply = json.dumps({"proposals": [{"reason": "", "text": f"Be warm {n}."} for n in range(2)]})
        improvement, _ = self.asked(annotator, lambda asked: completion(reply))
        later(0)
        for each in improvement.proposals.all():
            refuse_proposal(proposal_id=each.pk, reason="Too mild.", by=editor)
        assert improvements_to_write() == [improvement]
        with serve(lambda asked: completion("{}")) as server:
            Connection.objects.update(address=server.url)
            write_proposals(improvement.pk)
        assert "The owner refused it: Too mild." in server.asked[0]["messages"][0]["content"]

    def test_a_refusal_by_rule_tells_the_writer_no_word_of_a_judging_task(self, annotator):
        improvement = begun(annotator)
        [named, *_] = improvement.experiment.tasks.exclude(pk__in=improvement.open_tasks)
        text = f"If asked “{named.prompt}”, be warm."
        [refused] = add_proposals(
            improvement_id=improvement.pk, parent=improvement.original.index, written=[(text, "")]
        )
        assert refused.state == Proposal.State.REFUSED
        [tried] = brief_of(improvement, improvement.original, []).tried
        assert "subject" not in tried.ended


class TestThePreparedTexts:
    def test_they_come_one_after_the_other_and_the_file_ends(self, annotator, editor):
        improvement = begun(annotator)
        for _ in range(30):
            write_proposals(improvement.pk)
            for each in improvement.proposals.filter(state=Proposal.State.PROPOSED):
                refuse_proposal(proposal_id=each.pk, reason="", by=editor)
            improvement.refresh_from_db()
            if improvement.exhausted:
                break
        assert improvement.exhausted
        assert len(set(texts_of(improvement))) == 20
        # No model was asked, so no task was seen.
        assert {tuple(each.opened_tasks) for each in improvement.writings.all()} == {()}

    def test_the_task_asks(self, annotator):
        improvement = begun(annotator)
        task(improvement.pk, improvement.experiment_id)
        assert len(texts_of(improvement)) == 2

    def test_two_workers_do_not_write_at_once(self, annotator):
        improvement = begun(annotator)
        Improvement.objects.update(writing_since=clock.now())
        assert not improvements_to_write()
        assert write_proposals(improvement.pk) == 0


def test_a_writer_that_raises_is_a_failure_and_no_crash(annotator, monkeypatch):
    class Broken:
        def write(self, brief, n):
            raise ZeroDivisionError

    monkeypatch.setitem(registry._OWN, "prepared", lambda ask: Broken())
    improvement = begun(annotator)
    write_proposals(improvement.pk)
    assert "ZeroDivisionError" in improvement.writings.get().fault


class TestFirstAnswers:
    def test_a_proposal_that_waits_answers_open_tasks_and_no_pool_holds_it(self, annotator):
        improvement = begun(annotator)
        write_proposals(improvement.pk)
        n_responses, n_comparisons = Response.objects.count(), Comparison.objects.count()
        backend = ScriptedBackend(lambda request: f"Answer by: {system_of(request)}")
        answer_proposals(backend, Offer("smollm2", "scripted-1"))
        for each in improvement.proposals.all():
            assert [answer["text"] for answer in each.answers] == [f"Answer by: {each.text}"] * 3
            assert text_of(each.parent, improvement.factor) != each.text
            tasks = improvement.experiment.tasks.filter(prompt__in=[each["task"] for each in each.answers])
            assert set(tasks.values_list("pk", flat=True)) <= set(improvement.open_tasks)
        assert (Response.objects.count(), Comparison.objects.count()) == (n_responses, n_comparisons)
        # Only once.
        n_asked = len(backend.requests)
        answer_proposals(backend, Offer("smollm2", "scripted-1"))
        assert len(backend.requests) == n_asked

    def test_while_a_worker_writes_them_responses_that_wait_say_nothing_of_its_health(self, annotator):
        improvement = begun(annotator)
        write_proposals(improvement.pk)
        experiment = improvement.experiment
        long_ago = clock.now() - timedelta(minutes=2)
        Response.objects.update(state=Response.State.WAITING, created_at=long_ago, done_at=None)
        found = []

        def reply(request):
            found.append(pulses([experiment])[experiment.pk].writing)
            return "An answer."

        assert not pulses([experiment])[experiment.pk].writing
        answer_proposals(ScriptedBackend(reply), Offer("smollm2", "scripted-1"))
        assert all(found)
        assert not pulses([experiment])[experiment.pk].writing

    def test_a_worker_with_another_model_leaves_it_alone(self, annotator):
        improvement = begun(annotator)
        improvement.experiment.backend = "vllm"
        improvement.experiment.save()
        write_proposals(improvement.pk)
        answer_proposals(ScriptedBackend(lambda request: "no"), Offer("smollm2", "scripted-1"))
        assert not [each for each in improvement.proposals.all() if each.answers]
