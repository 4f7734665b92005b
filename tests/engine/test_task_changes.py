"""Tasks that join an experiment which has started, and are left out of it."""

import json

import pytest
from django.urls import reverse

from engine.core import Design, Unstructured
from engine.domain.errors import SpecError, WrongStateError
from engine.domain.specs import TaskSpec
from engine.models import AuditEntry, Comparison, Experiment, Improvement
from engine.selectors import designs, specs
from engine.selectors.findings import doubts_about_risk
from engine.selectors.improvements import tasks_for, tasks_left
from engine.selectors.task_changes import tasks_changed
from engine.services.experiments import pause
from engine.services.improvements import (
    add_proposals,
    fix_champion,
    go_on_improving,
    note_writer_failure,
    stop_improvement,
    why_not_go_on,
)
from engine.services.planning import advance
from engine.services.policies import add_policies
from engine.services.setting_changes import change_settings
from engine.services.task_changes import add_tasks, leave_out_task
from tests.engine import test_improvements
from tests.engine.test_policies import NEW, agree, begun, better, judged
from tests.factories import assign_all, click_for, click_on, make_experiment, plan_and_write
from tests.improving import plan_and_answer

pytestmark = pytest.mark.django_db

MORE = [TaskSpec("What is 30 + 1?"), TaskSpec("What is 31 + 1?")]


def compared(experiment: Experiment) -> set[int]:
    """The positions of the tasks that were compared."""
    judged_ones = experiment.comparisons.filter(state=Comparison.State.JUDGED)
    return set(judged_ones.values_list("task__position", flat=True))


class TestAll:
    """Every comparison counts on."""

    @pytest.mark.parametrize("paused", [False, True])
    def test_tasks_join_and_are_compared(self, annotator, paused):
        experiment = begun(annotator, n_tasks=2)
        click_on(experiment, annotator, 6)
        if paused:
            pause(experiment_id=experiment.pk)
        before = designs.load(experiment).design.evidence.tolist()
        added = add_tasks(experiment_id=experiment.pk, tasks=MORE)
        assert [task.position for task in added] == [2, 3]
        assert designs.load(experiment).design.evidence.tolist() == before
        if not paused:
            click_on(experiment, annotator, 40)
            assert compared(experiment) == {0, 1, 2, 3}
        said, risk = tasks_changed(experiment)
        n = experiment.comparisons.filter(state=Comparison.State.JUDGED).count()
        assert said.startswith("2 tasks joined 2")
        assert said.endswith(f"after 6 of the {n} comparisons.")
        assert risk.endswith(
            "of each of these times, is at most 10%, if the tasks did not change because of answers."
        )
        assert risk in doubts_about_risk(experiment)
        assert agree(experiment)

    def test_a_conclusion_has_the_risk_of_each_set_of_tasks(self, annotator):
        experiment = begun(annotator, n_policies=2)
        click_on(experiment, annotator, 2)
        add_tasks(experiment_id=experiment.pk, tasks=MORE)
        experiment = judged(experiment, annotator)
        [drawn] = experiment.conclusions.all()
        assert (drawn.risk, drawn.joint_risk) == (pytest.approx(0.1), pytest.approx(0.1))
        assert "risk of at most 10%" in drawn.text

    def test_one_is_left_out(self, annotator):
        experiment = begun(annotator, n_tasks=3)
        click_on(experiment, annotator, 3)
        assign_all(experiment_id=experiment.pk, annotator=annotator)
        leave_out_task(experiment_id=experiment.pk, position=1, reason="Private.")
        theirs = experiment.comparisons.filter(task__position=1)
        assert not theirs.filter(state__in=["planned", "ready"]).exists()
        last = experiment.comparisons.latest("pk").pk
        click_on(experiment, annotator, 20)
        assert not theirs.filter(pk__gt=last).exists()
        left = specs.experiment_spec(experiment).tasks
        assert [task.prompt for task in left] == ["What is 0 + 0?", "What is 2 + 0?"]
        entry = AuditEntry.objects.get(experiment=experiment, action="task_left_out")
        assert entry.details["reason"] == "Private."
        assert tasks_changed(experiment)[0].startswith("1 task was left out 2")
        assert agree(experiment)


class TestAnew:
    """Comparisons count from there on alone."""

    def test_a_stage_begins(self, annotator):
        experiment = begun(annotator)
        for _ in range(20):
            plan_and_write(experiment)
            click_for(experiment, annotator, better)
        assert designs.load(experiment).design.decision.claims[0].risk < 1.0
        add_tasks(experiment_id=experiment.pk, tasks=MORE, anew=True)
        design = designs.load(experiment).design
        assert design.stage == 2
        assert design.decision.claims[0].risk == 1.0
        assert not experiment.comparisons.filter(state__in=["planned", "ready"]).exists()
        experiment = judged(experiment, annotator)
        [drawn] = experiment.conclusions.all()
        # A stage that was given up has had its chance to err.
        assert (drawn.stage, drawn.policy, drawn.risk) == (2, 2, pytest.approx(0.1))
        [said] = tasks_changed(experiment)
        assert said.endswith("; the claim counts those since then alone.")
        assert agree(experiment)

    def test_a_stage_that_was_given_up_erred_on_each_set_of_its_tasks(self, annotator):
        experiment = begun(annotator)
        add_tasks(experiment_id=experiment.pk, tasks=MORE[:1])
        add_tasks(experiment_id=experiment.pk, tasks=MORE[1:], anew=True)
        [drawn] = judged(experiment, annotator).conclusions.all()
        assert (drawn.risk, drawn.joint_risk) == (pytest.approx(0.15), pytest.approx(0.15))

    def test_a_concluded_experiment_runs_again(self, annotator, admin_client, monkeypatch):
        experiment = judged(begun(annotator), annotator)
        with pytest.raises(WrongStateError, match="counted anew"):
            add_tasks(experiment_id=experiment.pk, tasks=MORE)
        assert experiment.tasks.count() == 20
        add_tasks(experiment_id=experiment.pk, tasks=MORE, anew=True)
        experiment.refresh_from_db()
        assert experiment.state == Experiment.State.RUNNING
        experiment = judged(experiment, annotator)
        assert [(each.stage, each.risk) for each in experiment.conclusions.all()] == [(1, 0.05), (2, 0.05)]
        add_policies(experiment_id=experiment.pk, levels=NEW)
        experiment = judged(experiment, annotator)
        assert experiment.conclusions.last().joint_risk == pytest.approx(0.15)
        assert agree(experiment)
        # From the file alone.
        monkeypatch.setattr("labeling.exports.downloads.events_may_go_out", lambda _: True)
        log = admin_client.post(reverse("events_jsonl", args=[experiment.pk])).getvalue().decode()
        first, *events = map(json.loads, log.splitlines())
        design = Design(Unstructured(3), labels=first["policies"], **first["settings"])
        for event in events:
            getattr(design, event.pop("call"))(**event)
        assert [each.policy for each in design.decision.conclusions] == [
            each["policy"] for each in first["conclusions"]
        ]
        assert design.evidence.tolist() == designs.stored(experiment).design.evidence.tolist()

    def test_open_pairs_and_other_settings_between(self, annotator):
        experiment = begun(annotator)
        click_on(experiment, annotator, 8)
        assign_all(experiment_id=experiment.pk, annotator=annotator)
        add_tasks(experiment_id=experiment.pk, tasks=MORE, anew=True)
        click_on(experiment, annotator, 8)
        change_settings(experiment_id=experiment.pk, by=None, delta=0.01)
        advance(experiment_id=experiment.pk)
        assert designs.load(experiment).design.stage == 2
        assert agree(Experiment.objects.get())

    @pytest.mark.parametrize(
        "spec", [{"strict": True}, {"claim": "best_if_any", "epsilon": 0.0}, {"space": "factorial"}]
    )
    def test_what_has_one_risk_cannot_begin_anew(self, annotator, spec):
        experiment = begun(annotator, **spec)
        with pytest.raises(WrongStateError):
            add_tasks(experiment_id=experiment.pk, tasks=MORE, anew=True)
        add_tasks(experiment_id=experiment.pk, tasks=MORE)


class TestRefused:
    def test_no_task_and_the_last_one(self, annotator):
        experiment = begun(annotator, n_tasks=1)
        with pytest.raises(SpecError):
            add_tasks(experiment_id=experiment.pk, tasks=[])
        with pytest.raises(WrongStateError):
            leave_out_task(experiment_id=experiment.pk, position=0, reason="")

    def test_a_task_without_the_answer_that_the_rule_needs(self, annotator):
        experiment = make_experiment(judge="rule")
        with pytest.raises(SpecError):
            add_tasks(experiment_id=experiment.pk, tasks=MORE)

    def test_a_pool_of_texts(self, annotator):
        experiment = begun(annotator, responses="reuse")
        with pytest.raises(WrongStateError, match="pool of texts"):
            add_tasks(experiment_id=experiment.pk, tasks=MORE)

    def test_a_draft(self):
        with pytest.raises(WrongStateError):
            add_tasks(experiment_id=make_experiment(running=False).pk, tasks=MORE)


class TestInAnImprovement:
    @pytest.fixture
    def improvement(self, annotator) -> Improvement:
        improvement = test_improvements.begun([annotator], n_tasks=4, clicks=40)
        written = [("Be warm.", ""), ("Be short.", "")]
        add_proposals(improvement_id=improvement.pk, parent=0, written=written)
        plan_and_answer(improvement.experiment)
        return improvement

    def test_new_tasks_are_divided_and_compared(self, improvement, annotator):
        experiment = improvement.experiment
        for _ in range(2):
            click_for(experiment, annotator, lambda i, j: i > j)
        before = improvement.open_tasks
        added = {task.pk for task in add_tasks(experiment_id=experiment.pk, tasks=MORE * 3)}
        improvement.refresh_from_db()
        assert improvement.open_tasks[:2] == before
        assert len(improvement.open_tasks) == 5
        assert set(improvement.open_tasks[2:]) < added
        # What they open is drawn, and not the first ones.
        assert set(improvement.open_tasks[2:]) != set(sorted(added)[:3])
        note_writer_failure(improvement_id=improvement.pk, parent=0, reason="No more.", exhausted=True)
        for _ in range(60):
            plan_and_answer(experiment)
            improvement.refresh_from_db()
            if improvement.state != Improvement.State.OPEN:
                break
            if assign_all(experiment_id=experiment.pk, annotator=annotator, n_wanted=1):
                click_for(experiment, annotator, lambda i, j: i > j)
        assert improvement.verdict["kind"] == "certified"
        proved = experiment.comparisons.filter(plan__phase="certify", state="judged")
        judging = {each.task_id for each in proved}
        assert judging & added
        assert not judging & set(improvement.open_tasks)
        test_improvements.agree(improvement)

    def test_a_task_is_left_out_while_two_judge(self, improvement, annotator):
        experiment = improvement.experiment
        opened = experiment.tasks.get(pk=improvement.open_tasks[0])
        judging, _ = experiment.tasks.exclude(pk__in=improvement.open_tasks)
        leave_out_task(experiment_id=experiment.pk, position=opened.position, reason="Wrong.")
        with pytest.raises(WrongStateError, match="judge"):
            leave_out_task(experiment_id=experiment.pk, position=judging.position, reason="Wrong.")
        add_tasks(experiment_id=experiment.pk, tasks=MORE * 2)
        leave_out_task(experiment_id=experiment.pk, position=judging.position, reason="Wrong.")
        assert tasks_left(improvement).judging >= 2
        assert judging.pk not in tasks_for(improvement, "certify")

    def test_the_tasks_that_judge_stay_where_a_champion_counts_on(self, improvement, annotator):
        experiment = improvement.experiment

        def click(n):
            for _ in range(n):
                plan_and_answer(experiment)
                assign_all(experiment_id=experiment.pk, annotator=annotator, n_wanted=1)
                click_for(experiment, annotator, lambda i, j: i > j)
            plan_and_answer(experiment)
            improvement.refresh_from_db()

        click(16)
        assert improvement.champion != improvement.original
        fix_champion(improvement_id=improvement.pk)
        click(2)
        judging = set(tasks_for(improvement, "certify"))
        stop_improvement(improvement_id=improvement.pk)
        first = {task.pk for task in add_tasks(experiment_id=experiment.pk, tasks=MORE)}
        improvement.refresh_from_db()
        assert why_not_go_on(improvement) == ""
        go_on_improving(improvement_id=improvement.pk, clicks=40)
        second = {task.pk for task in add_tasks(experiment_id=experiment.pk, tasks=MORE)}
        improvement.refresh_from_db()
        assert set(tasks_for(improvement, "certify")) == judging
        assert first | second < set(improvement.open_tasks)
        position = experiment.tasks.get(pk=min(judging)).position
        with pytest.raises(WrongStateError, match="counts on"):
            leave_out_task(experiment_id=experiment.pk, position=position, reason="Wrong.")
        stop_improvement(improvement_id=improvement.pk)
        leave_out_task(experiment_id=experiment.pk, position=position, reason="Wrong.")
        improvement.refresh_from_db()
        assert "left out" in why_not_go_on(improvement)
        with pytest.raises(WrongStateError, match="left out"):
            go_on_improving(improvement_id=improvement.pk, clicks=40)

    def test_nothing_is_counted_anew_and_tasks_stay_once_the_champion_is_fixed(self, improvement):
        with pytest.raises(WrongStateError, match="improvement"):
            add_tasks(experiment_id=improvement.experiment_id, tasks=MORE, anew=True)
        Improvement.objects.update(phase="certify")
        with pytest.raises(WrongStateError, match="improvement"):
            add_tasks(experiment_id=improvement.experiment_id, tasks=MORE)
