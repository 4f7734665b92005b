"""A language model beside people: opinions that do not count, and votes once an admin has accepted its
agreement.
"""

from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone
from environs import EnvValidationError

from engine import tasks
from engine.domain.errors import SpecError, WrongStateError
from engine.generation import registry
from engine.generation.base import BackendError, Fault, GenerationFailure
from engine.judges import llm_worker
from engine.models import (
    Charge,
    Comparison,
    Connection,
    Experiment,
    Judgment,
    Notification,
    Opinion,
    WorkerPulse,
)
from engine.selectors import counts, experiment_log, pairs_ahead
from engine.selectors.opinions import agreement_table, opinion_report, votes_now, votes_to_cast
from engine.selectors.rubrics import DEFAULT_RUBRIC, identity
from engine.services import assignments
from engine.services.drafts import clone
from engine.services.experiments import pause, stop
from engine.services.judging import rebuild_counts, record_answer, void_judgment
from engine.services.notifications import subscribe
from engine.services.opinions import (
    Asked,
    ask_opinions,
    cast_votes,
    change_llm_judge,
    claim_opinions,
    expire_opinions,
    store_opinion,
)
from engine.services.planning import advance
from tests.backends import (
    BreakingBackend,
    ContinuousScriptedBackend,
    ScriptedBackend,
    number_in,
    user_of,
)
from tests.factories import assign, click, make_experiment, make_user, write_responses
from tests.generation.chat_server import completion, error, serve
from tests.opinions import (
    judge_that,
    opine,
    opinions_of,
    prefers_first,
    shadow,
    texts_of,
    verdict,
    vote,
)
from tests.starting import settings_with

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def small_numbers(settings):
    settings.BUFFER_MIN = settings.BUFFER_MAX = 20
    settings.JUDGE_CALIBRATION = 10


@pytest.fixture
def experiment(annotator):
    return make_experiment(ready=True, annotators=(annotator,), n_tasks=12)


@pytest.fixture
def calibrated(experiment, annotator):
    """Ten comparisons judged by both."""
    shadow(experiment)
    for _ in range(10):
        click(experiment, annotator)
    opine(experiment)
    return experiment


class TestShadow:
    def test_only_what_people_have_judged_is_asked_about_twice_and_nothing_is_counted(
        self, experiment, annotator
    ):
        shadow(experiment)
        judged = [click(experiment, annotator).comparison for _ in range(3)]
        before = counts.pair_counts(experiment)
        backend = opine(experiment)
        opinions = opinions_of(experiment)
        assert {opinion.comparison_id for opinion in opinions} == {c.pk for c in judged}
        assert {opinion.state for opinion in opinions} == {"done"}
        assert len(backend.requests) == 6
        for comparison in judged:
            orders = [
                texts_of(request)
                for request in backend.requests
                if Opinion.objects.get(pk=request.key // 2).comparison_id == comparison.pk
            ]
            texts = (comparison.left.text, comparison.right.text)
            assert orders == [texts, texts[::-1]]
        assert counts.pair_counts(experiment) == before
        assert Judgment.objects.filter(judge="llm").count() == 0

    def test_both_verdicts_are_kept_and_where_they_differ_it_is_a_tie(self, experiment, annotator):
        shadow(experiment)
        click(experiment, annotator)
        opine(experiment, prefers_first)
        [opinion] = opinions_of(experiment)
        assert (opinion.left_first, opinion.right_first, opinion.choice) == ("left", "right", "tie")
        assert opinion.reason == "It is better.\nIt is better."
        assert opinion.model == "scripted-1"
        assert set(Charge.objects.filter(purpose="opinion").values_list("prompt_tokens", flat=True)) == {3}

    def test_one_that_goes_by_content_says_the_same_side_in_both_orders(self, experiment, annotator):
        shadow(experiment)
        for _ in range(6):
            click(experiment, annotator)
        opine(experiment)
        for opinion in opinions_of(experiment):
            left, right = (number_in(r.text) for r in (opinion.comparison.left, opinion.comparison.right))
            expected = "tie" if left == right else "left" if left > right else "right"
            assert (opinion.left_first, opinion.right_first, opinion.choice) == (expected,) * 3

    def test_what_it_is_told(self, annotator):
        experiment = make_experiment(
            ready=True,
            annotators=(annotator,),
            question="Which is kinder?",
            guidelines="Kind words win.",
            allow_tie=True,
        )
        shadow(experiment)
        click(experiment, annotator)
        asked = opine(experiment).requests[0]
        assert "Which is kinder?" in user_of(asked)
        assert "Kind words win." in user_of(asked)
        assert '"tie"' in user_of(asked)
        assert asked.sampling.temperature == 0
        shadow(experiment, rubric="Shorter wins.")
        asked = opine(experiment).requests[0]
        assert "Shorter wins." in user_of(asked)
        assert "Kind words" not in user_of(asked)

    def test_without_rubric_and_guidelines_it_is_told_what_goes_for_most_tasks(self, experiment, annotator):
        shadow(experiment)
        click(experiment, annotator)
        assert DEFAULT_RUBRIC in user_of(opine(experiment).requests[0])

    def test_the_budget_is_never_exceeded(self, experiment, annotator):
        shadow(experiment, budget=2)
        for _ in range(5):
            click(experiment, annotator)
        opine(experiment)
        assert len(opinions_of(experiment)) == 2
        shadow(experiment, budget=3)
        opine(experiment)
        assert len(opinions_of(experiment)) == 3

    def test_off_draft_concluded_and_rule_judged_experiments_ask_nothing(self, experiment, annotator):
        click(experiment, annotator)
        assert ask_opinions(experiment_id=experiment.pk, most=5) == 0
        shadow(experiment)
        assert ask_opinions(experiment_id=experiment.pk, most=5) == 1
        stop(experiment_id=experiment.pk)
        assert llm_worker.give_opinions(worker="j", backend=judge_that(prefers_first)) == 0
        with pytest.raises(WrongStateError, match="concluded"):
            shadow(experiment)
        with pytest.raises(WrongStateError, match="by rule"):
            shadow(make_experiment(judge="rule"))


class TestAgreement:
    def test_of_people_and_the_model_over_what_both_judged(self, experiment, annotator):
        shadow(experiment)
        for number in range(8):
            click(experiment, annotator, "left" if number % 4 else "right")
        opine(experiment)
        report = opinion_report(experiment)
        table = [[0] * 3 for _ in range(3)]
        names = ["left", "right", "tie"]
        for opinion in opinions_of(experiment):
            people = opinion.comparison.judgments.get().choice
            table[names.index(people)][names.index(opinion.choice)] += 1
        assert report.table == table
        assert report.agreement.exact.n == 8
        assert report.consistent.share == 1

    def test_taken_back_judgments_are_left_out(self, experiment, annotator, admin):
        shadow(experiment)
        judgments = [click(experiment, annotator) for _ in range(3)]
        opine(experiment)
        void_judgment(judgment_id=judgments[0].pk, by=admin, reason="A slip.")
        assert opinion_report(experiment).agreement.exact.n == 2

    def test_several_people_are_one_answer_and_divided_people_are_a_tie(self, annotator, settings):
        settings.BUFFER_MIN = settings.BUFFER_MAX = 1
        second = make_user()
        experiment = make_experiment(ready=True, annotators=(annotator, second), overlap=2)
        shadow(experiment)
        comparison = click(experiment, annotator, "left").comparison
        assert click(experiment, second, "right").comparison == comparison
        opine(experiment)
        assert sum(agreement_table(experiment)[2]) == 1
        assert sum(map(sum, agreement_table(experiment))) == 1

    def test_preferring_the_first_one_is_seen(self, experiment, annotator):
        shadow(experiment)
        for _ in range(4):
            click(experiment, annotator)
        opine(experiment, prefers_first)
        report = opinion_report(experiment)
        assert (report.consistent.hits, report.consistent.n) == (0, 4)
        assert (report.first_twice, report.second_twice) == (4, 0)
        assert report.table == [[0, 0, 4], [0, 0, 0], [0, 0, 0]]

    @pytest.mark.parametrize("change", ["rubric", "model", "question"])
    def test_another_judge_starts_from_nothing(self, change, calibrated, settings):
        assert opinion_report(calibrated).agreement.exact.n == 10
        match change:
            case "rubric":
                shadow(calibrated, rubric="Shorter wins.")
            case "model":
                settings.JUDGE_MODEL = "another"
            case "question":
                Experiment.objects.update(question="Which is kinder?")
        calibrated.refresh_from_db()
        assert opinion_report(calibrated).agreement.exact.n == 0
        opine(calibrated)
        assert opinion_report(calibrated).agreement.exact.n == 10
        assert opinion_report(calibrated).spent == 20


class TestVotes:
    def test_it_may_not_vote_before_enough_was_judged_by_both(self, experiment, annotator):
        shadow(experiment)
        for _ in range(9):
            click(experiment, annotator)
        opine(experiment)
        with pytest.raises(WrongStateError, match=r"both judged 9 comparisons\. It may vote from 10 on"):
            vote(experiment)
        experiment.refresh_from_db()
        assert experiment.llm_judge == "shadow"

    def test_a_rubric_that_nobody_was_measured_with_may_not_vote(self, calibrated):
        with pytest.raises(WrongStateError, match="both judged 0"):
            vote(calibrated, rubric="Shorter wins.")
        calibrated.refresh_from_db()
        assert calibrated.rubric == ""

    def test_opinions_on_ready_comparisons_become_judgments_exactly_once(self, calibrated, annotator):
        vote(calibrated)
        held = assign(calibrated, annotator)
        ready = set(calibrated.comparisons.filter(state="ready").values_list("pk", flat=True))
        assert ready
        opine(calibrated)
        assert cast_votes(experiment_id=calibrated.pk) == len(ready)
        assert cast_votes(experiment_id=calibrated.pk) == 0
        votes = Judgment.objects.filter(judge="llm")
        assert set(votes.values_list("comparison_id", flat=True)) == ready
        for judgment in votes:
            assert judgment.choice == judgment.opinion.choice
            assert (judgment.annotator, judgment.via) == (None, "model")
            assert judgment.reason.startswith("scripted-1: It is better.")
        held.refresh_from_db()
        assert held.state == "open"
        assert counts.comparison_count(calibrated.pk) == 10 + len(ready)
        assert rebuild_counts(experiment_id=calibrated.pk) == {}

    def test_a_tie_counts_half_also_where_people_may_not_tie(self, calibrated):
        vote(calibrated)
        opine(calibrated, prefers_first)
        cast_votes(experiment_id=calibrated.pk)
        assert set(Judgment.objects.filter(judge="llm").values_list("choice", "outcome")) == {("tie", 0.5)}

    def test_what_somebody_was_given_is_theirs(self, calibrated, annotator):
        vote(calibrated)
        opine(calibrated)
        held = assign(calibrated, annotator)
        cast_votes(experiment_id=calibrated.pk)
        assert record_answer(
            experiment_id=calibrated.pk, token=held.token, annotator=annotator, choice="left"
        ).created
        advance(experiment_id=calibrated.pk)
        write_responses()
        opine(calibrated)
        held = assign(calibrated, annotator)
        assignments.leave(annotator=annotator)
        cast_votes(experiment_id=calibrated.pk)
        assert not held.comparison.judgments.exists()
        assert record_answer(
            experiment_id=calibrated.pk, token=held.token, annotator=annotator, choice="left"
        ).created
        assert rebuild_counts(experiment_id=calibrated.pk) == {}

    @pytest.mark.parametrize("ends", ["off", "shadow", "paused", "model"])
    def test_it_stops_when_it_is_told_to(self, ends, calibrated, settings):
        vote(calibrated)
        opine(calibrated)
        match ends:
            case "paused":
                pause(experiment_id=calibrated.pk)
            case "model":
                settings.JUDGE_MODEL = "another"
            case "shadow":
                shadow(calibrated)
            case "off":
                Experiment.objects.update(llm_judge="off")
        assert cast_votes(experiment_id=calibrated.pk) == 0

    def test_a_vote_that_was_taken_back_is_not_cast_again(self, calibrated, admin):
        vote(calibrated)
        opine(calibrated)
        cast_votes(experiment_id=calibrated.pk)
        judgment = Judgment.objects.filter(judge="llm").first()
        void_judgment(judgment_id=judgment.pk, by=admin, reason="Nonsense.")
        opine(calibrated)
        assert cast_votes(experiment_id=calibrated.pk) == 0
        judgment.comparison.refresh_from_db()
        assert judgment.comparison.state == "discarded"
        assert rebuild_counts(experiment_id=calibrated.pk) == {}

    def test_what_it_cannot_judge_has_no_outcome(self, calibrated):
        vote(calibrated)
        opine(calibrated)
        calibrated.refresh_from_db()
        failed = votes_to_cast(calibrated).first()
        Opinion.objects.filter(pk=failed.pk).update(state="failed", choice="")
        cast_votes(experiment_id=calibrated.pk)
        failed.comparison.refresh_from_db()
        assert failed.comparison.state == "discarded"
        rows = failed.comparison.showing_events.order_by("pk")
        assert list(rows.values_list("kind", "outcome")) == [("begun", None), ("told", None)]

    def test_what_was_shown_to_somebody_is_left_to_people(self, calibrated):
        shown = list(calibrated.comparisons.filter(state="ready").values_list("pk", flat=True)[:2])
        Comparison.objects.filter(pk__in=shown).update(showing="open")
        vote(calibrated)
        opine(calibrated)
        cast_votes(experiment_id=calibrated.pk)
        left = calibrated.comparisons.filter(state="ready").values_list("pk", flat=True)
        assert set(left) == set(shown)

    def test_where_several_judge_each_comparison_it_is_one_of_them(self, settings):
        settings.BUFFER_MIN = settings.BUFFER_MAX = 12
        people = (make_user(), make_user())
        experiment = make_experiment(ready=True, annotators=people, overlap=2, n_tasks=12)
        shadow(experiment)
        for _ in range(10):
            for person in people:
                click(experiment, person)
        opine(experiment)
        vote(experiment)
        opine(experiment)
        cast_votes(experiment_id=experiment.pk)
        assert experiment.comparisons.filter(state="judged").count() == 10
        assert experiment.comparisons.filter(state="ready", judgments__judge="llm").count() == 2
        assert cast_votes(experiment_id=experiment.pk) == 0
        assert click(experiment, people[0]).comparison.state == "judged"
        assert counts.comparison_count(experiment.pk) == 11
        assert rebuild_counts(experiment_id=experiment.pk) == {}

    def test_a_buffer_of_at_least_a_batch_waits_for_it(self, calibrated, settings):
        settings.BUFFER_MIN, settings.BUFFER_MAX, settings.JUDGE_BATCH = 4, 64, 32
        # Written in no time, so that a slow machine asks for no larger buffer.
        calibrated.comparisons.update(ready_at=F("created_at"))
        before = pairs_ahead.buffer_target(calibrated)
        vote(calibrated)
        calibrated.refresh_from_db()
        assert before < 36 == pairs_ahead.buffer_target(calibrated)


class TestWhatGoesWrong:
    @pytest.fixture
    def asked(self, experiment, annotator):
        shadow(experiment)
        for _ in range(3):
            click(experiment, annotator)
        ask_opinions(experiment_id=experiment.pk, most=3)
        return experiment

    def test_unreadable_answers_are_tried_again_with_another_draw_and_then_failed(self, asked, settings):
        refusal = "I would rather not."
        backend = opine(asked, lambda first, second: refusal)
        assert {o.state for o in opinions_of(asked)} == {"failed"}
        assert {o.attempts for o in opinions_of(asked)} == {settings.JUDGE_ATTEMPTS}
        assert "names no verdict" in opinions_of(asked)[0].failure_reason
        temperatures = [request.sampling.temperature for request in backend.requests]
        assert temperatures[:6] == [0.0] * 6
        assert set(temperatures[6:]) == {0.7}
        assert (
            len({request.seed for request in backend.requests if request.key == backend.requests[0].key}) == 3
        )
        # Every attempt was paid for.
        n_opinions = len(opinions_of(asked))
        assert opinion_report(asked).completion_tokens == n_opinions * 3 * 2 * len(refusal.split())
        assert "names no verdict" in opinion_report(asked).last_failure

    def test_one_verdict_of_two_is_no_opinion(self, asked):
        answers = iter([verdict("A"), "Hm."] * 100)
        opine(asked, lambda first, second: next(answers))
        assert {o.state for o in opinions_of(asked)} == {"failed"}

    def test_a_request_that_cannot_succeed_is_not_repeated(self, asked):
        backend = ScriptedBackend(lambda request: GenerationFailure(request.key, "Too long.", Fault.SETTINGS))
        llm_worker.give_opinions(worker="j", backend=backend)
        assert {(o.state, o.attempts, o.failure_reason) for o in opinions_of(asked)} == {
            ("failed", 1, "Too long.")
        }

    def test_unstorable_characters_do_no_harm(self, asked):
        opine(asked, lambda first, second: '{"reason": "a\\u0000b \\ud800", "verdict": "A"}')
        assert opinions_of(asked)[0].reason.splitlines()[0] == "a\ufffdb \ufffd"

    def test_a_backend_that_is_away_costs_no_attempt(self, asked):
        with pytest.raises(BackendError):
            llm_worker.give_opinions(worker="j", backend=BreakingBackend(BackendError("no server")))
        assert {(o.state, o.attempts) for o in opinions_of(asked)} == {("waiting", 0)}

    def test_a_batch_that_breaks_down_costs_one(self, asked):
        assert llm_worker.give_opinions(worker="j", backend=BreakingBackend(ZeroDivisionError("oh"))) == 3
        assert {(o.state, o.attempts) for o in opinions_of(asked)} == {("waiting", 1)}

    def test_a_worker_told_to_stop_keeps_what_it_has_and_gives_back_the_rest(self, asked):
        stops = iter([False] * 3 + [True] * 100)
        backend = ContinuousScriptedBackend(lambda request: verdict("A"), at_once=1)
        llm_worker.give_opinions(worker="j", backend=backend, stopping=lambda: next(stops))
        states = [(o.state, o.attempts) for o in opinions_of(asked)]
        assert ("waiting", 0) in states
        assert all(state in {("done", 1), ("waiting", 0)} for state in states)

    def test_what_a_dead_worker_was_asking_waits_again_and_costs_no_attempt(self, asked, settings):
        claim = claim_opinions(worker="dead", limit=1)
        long_ago = timezone.now() - timedelta(seconds=settings.CLAIM_SECONDS + 1)
        Opinion.objects.filter(claim=claim.token).update(claim_expires_at=long_ago)
        claim_opinions(worker="restarted", limit=1)
        claim_opinions(worker="alive", limit=1)
        expire_opinions(begun_anew="restarted")
        states = {(o.claimed_by, o.state, o.attempts) for o in opinions_of(asked)}
        assert states == {("dead", "waiting", 0), ("restarted", "waiting", 0), ("alive", "asking", 1)}

    def test_what_comes_after_the_claim_was_lost_is_dropped(self, asked):
        late = claim_opinions(worker="slow", limit=1)
        Opinion.objects.filter(claim=late.token).update(claim_expires_at=timezone.now() - timedelta(hours=1))
        expire_opinions()
        asked_late = Asked(late.opinions[0].pk, left_first="left", right_first="left")
        assert not store_opinion(claim=late.token, asked=asked_late, model="m")
        assert {o.state for o in opinions_of(asked)} == {"waiting"}

    def test_what_was_to_be_asked_in_other_words_is_not_asked(self, asked):
        shadow(asked, rubric="Shorter wins.")
        backend = judge_that(prefers_first)
        llm_worker.give_opinions(worker="j", backend=backend)
        assert backend.requests == []
        assert {o.state for o in opinions_of(asked)} == {"failed"}
        opine(asked)
        asked.refresh_from_db()
        assert Opinion.objects.filter(identity=identity(asked), state="done").count() == 3


def unreadable(first: str, second: str) -> str:
    return "I would rather not say."


class TestHalting:
    """108 of 108 opinions failed quietly and used up 108 of the budget."""

    @pytest.fixture
    def judged(self, experiment, annotator):
        for _ in range(8):
            click(experiment, annotator)
        shadow(experiment, budget=8)
        return experiment

    def test_five_failures_in_a_row_halt_it_for_a_reason_that_is_kept_told_and_logged(self, judged, caplog):
        subscribe(experiment=judged, by=make_user(), kind="email", target="a@b.org", events=["unhealthy"])
        backend = opine(judged, unreadable)
        judged.refresh_from_db()
        assert judged.llm_halted.startswith("5 opinions in a row failed. The last one: ")
        assert "names no verdict" in judged.llm_halted
        assert experiment_log.audit_entries(judged)[0].action == "llm_halted"
        assert "names no verdict" in experiment_log.audit_entries(judged)[0].sentence
        assert "names no verdict" in Notification.objects.get().text
        assert "Halted the language model" in caplog.text
        # The rest was not asked about for the last time, and nothing more is asked.
        assert sum(o.state == "failed" for o in opinions_of(judged)) == 5
        assert sum(o.state == "waiting" for o in opinions_of(judged)) == 3
        asked = len(backend.requests)
        assert opine(judged).requests == []
        assert len(backend.requests) == asked

    def test_failed_opinions_do_not_use_up_the_budget(self, judged):
        opine(judged, unreadable)
        assert opinion_report(judged).spent == 3
        shadow(judged, budget=3)
        opine(judged)
        assert sum(o.state == "done" for o in opinions_of(judged)) == 3

    def test_a_success_in_between_ends_the_row(self, judged):
        answers = iter([unreadable] * 4 + [prefers_first] + [unreadable] * 3)
        for _ in range(8):
            reads = next(answers)
            ask_opinions(experiment_id=judged.pk, most=1)
            for _ in range(3):
                llm_worker.give_opinions(worker="j", backend=judge_that(reads))
        judged.refresh_from_db()
        assert (judged.llm_halted, judged.llm_failures) == ("", 3)

    def test_it_resumes_when_somebody_says_so_and_only_then(self, judged):
        opine(judged, unreadable)
        tasks.give_opinions.apply()
        tasks.sweep.apply()
        judged.refresh_from_db()
        assert judged.llm_halted
        shadow(judged, budget=8)
        judged.refresh_from_db()
        assert judged.llm_halted == ""
        assert "(halted)" in experiment_log.audit_entries(judged)[0].sentence
        assert {o.attempts for o in opinions_of(judged) if o.state == "waiting"} == {0}
        opine(judged)
        assert sum(o.state == "done" for o in opinions_of(judged)) == 3

    def test_halted_it_does_not_vote_either(self, calibrated):
        vote(calibrated)
        calibrated.refresh_from_db()
        assert votes_now(calibrated)
        opine(calibrated, unreadable)
        calibrated.refresh_from_db()
        assert not votes_now(calibrated)
        assert not votes_to_cast(calibrated).exists()

    def test_what_is_outdated_is_no_failure_of_the_model(self, judged):
        ask_opinions(experiment_id=judged.pk, most=8)
        shadow(judged, rubric="Shorter wins.")
        llm_worker.give_opinions(worker="j", backend=judge_that(prefers_first))
        judged.refresh_from_db()
        assert {o.state for o in opinions_of(judged)} == {"failed"}
        assert (judged.llm_failures, judged.llm_halted) == (0, "")

    def test_another_experiment_in_the_same_batch_goes_on(self, judged, annotator):
        other = make_experiment(ready=True, annotators=(annotator,), question="Which is kinder?")
        click(other, annotator)
        shadow(other)
        for experiment in (judged, other):
            ask_opinions(experiment_id=experiment.pk, most=8)
        backend = ScriptedBackend(
            lambda request: verdict("A") if "kinder" in user_of(request) else "I would rather not say."
        )
        while llm_worker.give_opinions(worker="j", backend=backend):
            pass
        judged.refresh_from_db()
        assert judged.llm_halted
        assert [o.state for o in opinions_of(other)] == ["done"]


class TestNoModelThatCanJudge:
    """No worker's own model judges, and the experiment names no connection."""

    @pytest.fixture(autouse=True)
    def none(self, settings):
        settings.JUDGE_BACKEND = ""
        registry.judge_backend.cache_clear()

    def test_it_cannot_be_switched_on_but_off(self, experiment):
        with pytest.raises(WrongStateError, match="Choose a connection"):
            shadow(experiment)
        change_llm_judge(experiment_id=experiment.pk, stage="off", rubric="", budget=1)

    def test_nor_with_a_connection_that_it_may_not_use(self, experiment):
        Connection.objects.create(name="mine", provider="compatible", model_id="m")
        with pytest.raises(WrongStateError, match="may not use the connection 'mine'"):
            change_llm_judge(
                experiment_id=experiment.pk, stage="shadow", rubric="", budget=1, judge_model="mine"
            )

    def test_no_description_may_ask_for_it(self):
        with pytest.raises(SpecError, match="llm_judge: No language model that can judge"):
            make_experiment(llm_judge="shadow")

    def test_nothing_is_asked_where_it_was_on(self, experiment, annotator):
        click(experiment, annotator)
        Experiment.objects.update(llm_judge="shadow")
        assert ask_opinions(experiment_id=experiment.pk, most=8) == 0
        assert tasks.give_opinions.apply().successful()
        assert not Opinion.objects.exists()

    def test_no_worker_loads_it(self):
        with pytest.raises(BackendError, match="No language model"):
            registry.judge_backend()

    def test_a_copy_is_made_without_it(self, experiment):
        Experiment.objects.update(llm_judge="shadow")
        experiment.refresh_from_db()
        assert clone(experiment=experiment, by=make_user(), name="Copy").llm_judge == "off"


@pytest.mark.parametrize("judge", ["smollm2", "remote"])
def test_no_process_starts_with_a_model_as_its_own_judge_that_cannot_be_one(judge):
    with pytest.raises(EnvValidationError, match="JUDGE_BACKEND"):
        settings_with(JUDGE_BACKEND=judge)


class TestThroughTheTask:
    @pytest.fixture
    def sent(self, monkeypatch):
        messages = []
        for task in (tasks.advance, tasks.give_opinions, tasks.generate, tasks.judge):
            monkeypatch.setattr(
                task, "apply_async", lambda args=(), task=task, **o: messages.append((task.name, tuple(args)))
            )
        return messages

    @pytest.fixture
    def connection(self, settings, experiment):
        settings.GENERATION_BACKEND, settings.JUDGE_BACKEND = "remote", ""
        settings.ALLOW_PRIVATE_CONNECTIONS = True
        made = Connection.objects.create(
            name="judge-1",
            provider="compatible",
            model_id="m-1",
            address="http://127.0.0.1:1/v1",
            everybody=True,
        )
        change_llm_judge(
            experiment_id=experiment.pk, stage="shadow", rubric="", budget=500, judge_model="judge-1"
        )
        yield made
        registry.judge_backend().close()
        registry.judge_backend.cache_clear()

    def test_from_first_opinion_to_vote_against_a_real_server(
        self, experiment, annotator, connection, sent, django_capture_on_commit_callbacks
    ):
        def respond(asked):
            _, user = (message["content"] for message in asked["messages"])
            assert asked["model"] == "m-1"
            assert "[RESPONSE A" in user
            return completion("Verdict: **B**")

        with serve(respond) as chat:
            Connection.objects.update(address=chat.url)
            for _ in range(10):
                click(experiment, annotator)
            for _ in range(4):
                with django_capture_on_commit_callbacks(execute=True):
                    tasks.give_opinions.apply()
            assert {opinion.choice for opinion in opinions_of(experiment)} == {"tie"}
            vote(experiment)
            for _ in range(4):
                tasks.give_opinions.apply()
        assert Judgment.objects.filter(judge="llm").count() == 10
        assert WorkerPulse.objects.get(queue="judging").details == {
            "backend": "remote",
            "model": "",
            "trouble": "",
        }
        assert ("engine.tasks.advance", (experiment.pk,)) in sent
        assert rebuild_counts(experiment_id=experiment.pk) == {}

    @pytest.mark.parametrize("fault", ["refused", "garbage", "busy"])
    def test_a_server_out_of_order_never_takes_the_worker_down(
        self, fault, experiment, annotator, connection, sent
    ):
        replies = {
            "refused": error(401, "no"),
            "garbage": completion("lorem ipsum"),
            "busy": error(429, "oops", retry_after="600"),
        }
        click(experiment, annotator)
        with serve(lambda asked: replies[fault]) as chat:
            Connection.objects.update(address=chat.url)
            assert tasks.give_opinions.apply().successful()
        [opinion] = opinions_of(experiment)
        assert opinion.failure_reason
        if fault == "garbage":
            assert (opinion.state, opinion.attempts) == ("waiting", 1)
            return
        assert (opinion.state, opinion.attempts) == ("waiting", 0)
        connection.refresh_from_db()
        assert connection.trouble, "an admin can read why nothing happens"

    def test_the_sweep_wakes_it_where_an_experiment_wants_it_only(
        self, experiment, sent, django_capture_on_commit_callbacks
    ):
        with django_capture_on_commit_callbacks(execute=True):
            tasks.sweep.apply()
        assert ("engine.tasks.give_opinions", ()) not in sent
        shadow(experiment)
        with django_capture_on_commit_callbacks(execute=True):
            tasks.sweep.apply()
        assert ("engine.tasks.give_opinions", ()) in sent

    def test_where_nothing_wants_it_no_backend_is_loaded(self, experiment, monkeypatch):
        monkeypatch.setattr(registry, "judge_backend", lambda: pytest.fail("loaded"))
        assert tasks.give_opinions.apply().successful()
        assert not WorkerPulse.objects.exists()
