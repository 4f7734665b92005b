"""The work of analysis workers: replays without each annotator."""

import itertools
from collections.abc import Sequence
from datetime import timedelta

import pytest
from celery.worker import state
from django.utils import timezone

from engine import tasks
from engine.core import Design, Unstructured
from engine.domain.outcome_of_answers import joint_outcome
from engine.domain.specs import TaskSpec
from engine.models import Examination, Experiment, User, WorkerPulse
from engine.selectors import counts, designs, replays
from engine.services import analysis, worker_holds
from engine.services.analysis import request_replays
from engine.services.judging import void_judgment
from engine.services.planning import advance
from engine.services.policies import add_policies, retire_policy
from engine.services.setting_changes import change_settings
from engine.services.task_changes import add_tasks
from engine.services.voids import void_annotator
from tests.analysis import examine
from tests.factories import assign, click_for, make_experiment, make_user, write_responses

pytestmark = pytest.mark.django_db

# More than the judgments of each test.
BUDGET = 120


def judged(n: int, overlap: int = 1, people: int = 2, **settings) -> Experiment:
    """``n`` rounds in which everybody judges; the first person is contrary."""
    users = tuple(make_user(f"person{k}") for k in range(people))
    settings = {"budget": BUDGET} | settings
    experiment = make_experiment(n_policies=3, ready=True, annotators=users, overlap=overlap, **settings)
    go_on(experiment, users, n)
    experiment.refresh_from_db()
    return experiment


def go_on(experiment: Experiment, users: Sequence[User], n: int) -> None:
    advance(experiment_id=experiment.pk)
    write_responses()
    for _ in range(n):
        for k, user in enumerate(users):
            click_for(experiment, user, lambda i, j, k=k: (i > j) == (k > 0))
        advance(experiment_id=experiment.pk)
        write_responses()


def as_told(outcomes) -> replays.Told:
    return replays.Told(outcomes, list(range(len(outcomes))))


def one_step_a_turn(monkeypatch) -> None:
    monkeypatch.setattr(analysis, "_CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(analysis, "_TURN_SECONDS", 0.0)


def replayed_for_two_turns(monkeypatch) -> Experiment:
    experiment = judged(6)
    one_step_a_turn(monkeypatch)
    request_replays(experiment_id=experiment.pk)
    examine(experiment_id=experiment.pk)
    examine(experiment_id=experiment.pk)
    return experiment


def finish(experiment: Experiment) -> Examination:
    while examine(experiment_id=experiment.pk):
        pass
    return Examination.objects.get(experiment=experiment)


def told_until_it_stops(experiment: Experiment, told: list[tuple[int, int, float]]) -> Design:
    design = Design(Unstructured(3), **designs.design_settings(experiment))
    for each in told:
        if not design.stopped:
            design.tell(*each)
    return design


class TestReplays:
    def test_they_say_what_the_others_alone_would_have_led_to(self):
        experiment = judged(12)
        request_replays(experiment_id=experiment.pk)
        findings = finish(experiment).findings
        assert findings["n_judgments"] == 24
        assert sorted(row["annotator"] for row in findings["rows"]) == ["person0", "person1"]
        for row in findings["rows"]:
            assert row["judgments"] == row["comparisons"] == 12
            others = [
                (
                    judgment.comparison.policy_i.index,
                    judgment.comparison.policy_j.index,
                    judgment.outcome,
                )
                for judgment in counts.standing_judgments(experiment.pk)
                .exclude(annotator__username=row["annotator"])
                .order_by("pk")
            ]
            decision = Design.replay(
                Unstructured(3), others, claim="best_if_any", delta=experiment.delta
            ).decision
            assert (row["best"], row["reason"]) == (decision.best, str(decision.reason or ""))

    def test_of_a_comparison_that_several_judged_the_others_are_heard(self):
        experiment = judged(5, overlap=3, people=3)
        without = replays.outcomes_without(
            experiment, [user.user_id for user in experiment.memberships.order_by("user_id")], 10**9
        )
        for annotator_id, told in without.items():
            assert len(told.outcomes) == 5
            for (_, _, outcome), comparison in zip(
                told.outcomes,
                experiment.comparisons.filter(state="judged").order_by("judged_at"),
                strict=True,
            ):
                others = comparison.judgments.exclude(annotator_id=annotator_id)
                assert outcome == joint_outcome([each.outcome for each in others], "majority")

    @pytest.mark.parametrize("in_turns", [False, True])
    def test_policies_join_and_retire_at_their_places(self, monkeypatch, in_turns):
        experiment = judged(6, claim="good_enough")
        users = list(User.objects.filter(memberships__experiment=experiment).order_by("pk"))
        add_policies(experiment_id=experiment.pk, levels={"System prompt": {"Warm": {"text": "quality 9"}}})
        go_on(experiment, users, 5)
        retire_policy(experiment_id=experiment.pk, index=0, reason="")
        add_tasks(experiment_id=experiment.pk, tasks=[TaskSpec("What is 9 + 9?")], anew=True)
        go_on(experiment, users, 5)
        if in_turns:
            one_step_a_turn(monkeypatch)
        request_replays(experiment_id=experiment.pk)
        found = finish(experiment).findings
        for row in found["rows"]:
            [user] = [each for each in users if each.username == row["annotator"]]
            alone = Design(Unstructured(3), claim="good_enough", epsilon=0.05)
            for event in experiment.showing_events.exclude(number=None).order_by("number"):
                if event.kind == "joined":
                    alone.add(parent=event.policy.parent.index)
                elif event.kind == "retired":
                    alone.retire(event.policy.index)
                elif event.kind == "stage":
                    alone.begin_stage()
                elif event.kind == "told" and not event.comparison.judgments.filter(annotator=user).exists():
                    of = event.comparison
                    alone.tell(of.policy_i.index, of.policy_j.index, event.outcome)
            assert row["comparisons"] == alone.n_comparisons > 10
            assert row["best"] == alone.decision.best
        # Nothing was open for long, so that the order of asking is nearly that of the answers.
        everybody = designs.stored(experiment).design
        assert found["as_asked"]["comparisons"] == everybody.n_comparisons
        assert found["as_asked"]["best"] == everybody.decision.best

    def test_in_turns_they_come_to_the_same(self, monkeypatch):
        experiment = judged(6)
        request_replays(experiment_id=experiment.pk)
        whole = finish(experiment).findings
        one_step_a_turn(monkeypatch)
        request_replays(experiment_id=experiment.pk)
        steps = []
        while examine(experiment_id=experiment.pk):
            examination = Examination.objects.get(experiment=experiment)
            assert examination.claim is None
            steps.append(examination.replays.get("step", 0))
        assert [step for step in steps if step] == list(range(1, whole["as_asked"]["comparisons"]))
        again = Examination.objects.get(experiment=experiment).findings
        assert (again["rows"], again["as_asked"]) == (whole["rows"], whole["as_asked"])

    def test_in_the_order_of_asking_they_end_before_the_first_open_comparison(self, monkeypatch):
        """A comparison that is discarded meanwhile changes nothing."""
        experiment = judged(3, people=3)
        slow, quick, _ = (member.user for member in experiment.memberships.order_by("user_id"))
        held = assign(experiment, slow).comparison
        for _ in range(4):
            click_for(experiment, quick, lambda i, j: i > j)
            advance(experiment_id=experiment.pk)
            write_responses()
        one_step_a_turn(monkeypatch)
        request_replays(experiment_id=experiment.pk)
        examine(experiment_id=experiment.pk)
        examine(experiment_id=experiment.pk)
        asked = list(experiment.comparisons.order_by("pk").select_related("policy_i", "policy_j"))
        prefix = [
            (each.policy_i.index, each.policy_j.index, each.outcome)
            for each in itertools.takewhile(lambda each: each.outcome is not None, asked)
        ]
        assert asked[len(prefix)] == held
        experiment.comparisons.filter(pk=held.pk).update(state="discarded")
        found = finish(experiment).findings["as_asked"]
        assert (found["comparisons"], found["judged"]) == (len(prefix), 13)
        decision = Design.replay(Unstructured(3), prefix, claim="best_if_any").decision
        assert found["best"] == decision.best

    def test_they_stop_where_the_experiment_would(self, monkeypatch):
        """Judgments after the decision could turn it into another one."""
        experiment = judged(2)
        told = [(0, 1, 1.0), (0, 2, 1.0), (1, 2, 1.0)] * 20 + [(0, 1, 0.0), (2, 0, 1.0)] * 60
        monkeypatch.setattr(replays, "outcomes_as_asked", lambda *_: replays.Asked(as_told(told), len(told)))
        live = told_until_it_stops(experiment, told)
        one_step_a_turn(monkeypatch)
        request_replays(experiment_id=experiment.pk)
        found = finish(experiment).findings["as_asked"]
        assert (found["comparisons"], found["best"]) == (live.n_comparisons, 0)
        assert found["reason"] == "certified"

    def test_they_stop_at_the_budget_as_the_experiment_does(self, monkeypatch):
        """Judgments after that could even come to a decision."""
        experiment = judged(2, budget=30)
        told = [(0, 1, 1.0), (1, 2, 1.0), (2, 0, 1.0)] * 10 + [(0, 1, 1.0), (0, 2, 1.0)] * 40
        somebody = User.objects.get(username="person0")
        monkeypatch.setattr(replays, "outcomes_as_asked", lambda *_: replays.Asked(as_told(told), len(told)))
        monkeypatch.setattr(replays, "outcomes_without", lambda *_: {somebody.pk: as_told(told)})
        live = told_until_it_stops(experiment, told).decision
        one_step_a_turn(monkeypatch)
        monkeypatch.setattr(analysis, "_annotators", lambda _: [(somebody.pk, "person0", 2)])
        request_replays(experiment_id=experiment.pk)
        findings = finish(experiment).findings
        assert (live.n_comparisons, live.reason) == (30, "budget")
        for found in (findings["as_asked"], *findings["rows"]):
            assert (found["comparisons"], found["best"], found["reason"]) == (30, live.best, "budget")

    def test_where_a_judgment_is_taken_back_meanwhile_they_begin_anew(self, monkeypatch):
        experiment = replayed_for_two_turns(monkeypatch)
        first = counts.standing_judgments(experiment.pk).order_by("pk").first()
        void_judgment(judgment_id=first.pk, by=first.annotator, reason="a slip")
        examine(experiment_id=experiment.pk)
        state = Examination.objects.get(experiment=experiment).replays
        assert (state["step"], state["n_judgments"]) == (1, 11)
        assert finish(experiment).findings["n_judgments"] == 11

    def test_one_that_is_taken_back_in_the_middle_stops_them(self, monkeypatch):
        experiment = judged(6)
        monkeypatch.setattr(analysis, "_CHECKPOINT_SECONDS", 0.0)
        request_replays(experiment_id=experiment.pk)
        first = counts.standing_judgments(experiment.pk).order_by("pk").first()
        ticked: list[int] = []

        def void_once() -> None:
            ticked.append(1)
            if len(ticked) == 1:
                void_judgment(judgment_id=first.pk, by=first.annotator, reason="a slip")

        assert examine(experiment_id=experiment.pk, tick=void_once)
        examination = Examination.objects.get(experiment=experiment)
        assert (examination.replays["step"], examination.findings, examination.claim) == (1, {}, None)
        assert finish(experiment).findings["n_judgments"] == 11

    def test_asking_twice_is_asking_once(self):
        experiment = judged(3)
        first = request_replays(experiment_id=experiment.pk).replays_wanted_at
        assert request_replays(experiment_id=experiment.pk).replays_wanted_at == first

    def test_without_any_judgment_there_is_nothing_to_find(self):
        experiment = make_experiment(budget=BUDGET)
        request_replays(experiment_id=experiment.pk)
        assert finish(experiment).findings["rows"] == []


class TestOtherSettings:
    def test_findings_under_another_risk_are_forgotten(self):
        experiment = judged(3)
        request_replays(experiment_id=experiment.pk)
        assert finish(experiment).findings["rows"]
        change_settings(experiment_id=experiment.pk, by=None, delta=0.001)
        assert Examination.objects.get().findings == {}

    def test_so_are_those_with_somebody_whose_judgments_were_all_voided(self):
        experiment = judged(3)
        request_replays(experiment_id=experiment.pk)
        assert finish(experiment).findings["rows"]
        somebody = User.objects.get(username="person0")
        void_annotator(experiment_id=experiment.pk, annotator=somebody, by=somebody, reason="Asleep.")
        assert Examination.objects.get().findings == {}

    def test_replays_that_were_under_way_when_they_changed_stop_and_are_dropped(self, monkeypatch):
        experiment = judged(3)
        request_replays(experiment_id=experiment.pk)
        monkeypatch.setattr(worker_holds, "_KEEP_SECONDS", 0.0)
        ticked = []

        def change_meanwhile() -> None:
            ticked.append(1)
            if len(ticked) == 3:
                change_settings(experiment_id=experiment.pk, by=None, delta=0.001)

        examine(experiment_id=experiment.pk, tick=change_meanwhile)
        assert len(ticked) == 3
        examination = Examination.objects.get()
        assert (examination.findings, examination.replays) == ({}, {})


class KilledError(Exception):
    """Stands for kill -9: nothing that the worker would do at its end is done."""


def killed_after(n: int):
    left = iter(range(n))

    def tick() -> None:
        if next(left, None) is None:
            raise KilledError

    return tick


def past_its_deadline() -> None:
    Examination.objects.update(claim_expires_at=timezone.now() - timedelta(seconds=1))


class TestClaim:
    def test_what_another_worker_has_in_hand_is_left_to_it(self):
        experiment = judged(3)
        request_replays(experiment_id=experiment.pk)
        worker_holds.take(Examination.objects.all(), seconds=60, by="another")
        assert not examine(experiment_id=experiment.pk)
        assert Examination.objects.get(experiment=experiment).findings == {}

    def test_a_worker_that_died_holds_nothing_back(self):
        experiment = judged(3)
        request_replays(experiment_id=experiment.pk)
        worker_holds.take(Examination.objects.all(), seconds=-1, by="dead")
        assert finish(experiment).findings["rows"]

    def test_after_a_kill_replays_go_on_from_what_was_stored(self, monkeypatch):
        experiment = judged(6)
        monkeypatch.setattr(analysis, "_CHECKPOINT_SECONDS", 0.0)
        request_replays(experiment_id=experiment.pk)
        in_all: list[int] = []
        examine(experiment_id=experiment.pk, tick=lambda: in_all.append(1))
        whole = Examination.objects.get().findings["rows"]
        request_replays(experiment_id=experiment.pk)
        n_steps = len(in_all)
        with pytest.raises(KilledError):
            examine(experiment_id=experiment.pk, tick=killed_after(n_steps - 1))
        assert not examine(experiment_id=experiment.pk), "the dead worker's, until its deadline has passed"
        past_its_deadline()
        more: list[int] = []
        examine(experiment_id=experiment.pk, tick=lambda: more.append(1))
        assert Examination.objects.get().findings["rows"] == whole
        assert 0 < len(more) < n_steps

    def test_a_worker_that_is_stopped_gives_it_back_at_once(self):
        experiment = judged(3)
        request_replays(experiment_id=experiment.pk)

        def stop() -> None:
            raise worker_holds.StoppedError

        with pytest.raises(worker_holds.StoppedError):
            analysis.examine_next(tick=stop)
        assert Examination.objects.get(experiment=experiment).claim is None

    def test_what_fails_keeps_no_other_from_its_turn_and_is_tried_again_later(self, monkeypatch, caplog):
        broken, sound = judged(3), make_experiment(budget=BUDGET)
        request_replays(experiment_id=broken.pk)
        request_replays(experiment_id=sound.pk)
        findings = analysis._found

        def failing(experiment, *args):
            return findings(experiment, *args) if experiment.pk == sound.pk else 1 / 0

        monkeypatch.setattr(analysis, "_found", failing)
        assert analysis.examine_next()
        assert f"The analysis of experiment {broken.pk} failed" in caplog.text
        assert Examination.objects.get(experiment=sound).findings
        assert not analysis.examine_next(), "the broken one waits"
        monkeypatch.undo()
        past_its_deadline()
        assert analysis.examine_next()
        assert Examination.objects.get(experiment=broken).findings

    def test_where_nothing_is_due_it_does_nothing(self):
        experiment = make_experiment(running=False)
        assert not analysis.examine(experiment_id=experiment.pk)


class TestTask:
    @pytest.fixture
    def sent(self, monkeypatch) -> list[str]:
        messages: list[str] = []
        monkeypatch.setattr(
            tasks.analyse, "apply_async", lambda args=(), **options: messages.append("analyse")
        )
        return messages

    def test_it_comes_back_until_nothing_is_left(self, sent, django_capture_on_commit_callbacks):
        experiment = judged(3)
        request_replays(experiment_id=experiment.pk)
        for n_sent in (1, 1):
            with django_capture_on_commit_callbacks(execute=True):
                tasks.analyse()
            assert len(sent) == n_sent
        assert Examination.objects.get().findings["rows"]

    def test_it_says_that_the_analysis_worker_is_alive(self, sent):
        tasks.analyse()
        assert list(WorkerPulse.objects.values_list("queue", "worker")) == [("analysis", "local")]

    def test_in_the_middle_of_long_work_too(self, sent, monkeypatch):
        request_replays(experiment_id=judged(3).pk)
        monkeypatch.setattr(tasks, "_PULSE_SECONDS", 0.0)
        seen = []
        monkeypatch.setattr(tasks, "note_pulse", lambda queue, worker: seen.append(queue))
        tasks.analyse()
        assert len(seen) > 2
        assert set(seen) == {"analysis"}

    def test_a_worker_that_is_told_to_stop_ends_in_the_middle(
        self, sent, monkeypatch, django_capture_on_commit_callbacks
    ):
        experiment = judged(3)
        request_replays(experiment_id=experiment.pk)
        monkeypatch.setattr(state, "should_stop", 0)
        with django_capture_on_commit_callbacks(execute=True):
            tasks.analyse()
        examination = Examination.objects.get(experiment=experiment)
        assert (examination.findings, examination.claim, sent) == ({}, None, [])
