"""Policies that join an experiment which has started, and retire from it."""

from dataclasses import replace

import pytest
from django.db import DatabaseError

from engine.core import StopReason
from engine.domain.errors import SpecError, WrongStateError
from engine.domain.specs import ExperimentSpec, FactorSpec, ReadyMade, TaskSpec
from engine.models import (
    Assignment,
    AuditEntry,
    Charge,
    Comparison,
    Connection,
    Experiment,
    Loan,
    Response,
    Trial,
    clock,
)
from engine.selectors import designs, specs
from engine.selectors.connection_pauses import usable_names
from engine.selectors.findings import ladder
from engine.selectors.offered_models import needs_of
from engine.selectors.pairs_ahead import most_at_once
from engine.selectors.policies import policy_names
from engine.selectors.pool_claims import unproven
from engine.selectors.pools import n_texts, supply
from engine.selectors.remaining import remaining_after_joining
from engine.selectors.trials import tried_responses
from engine.selectors.verifying import faults_of
from engine.services.descriptions import check_description
from engine.services.drafts import create_experiment, delete_experiment
from engine.services.experiments import pause, start, stop_on
from engine.services.judging import rebuild_counts
from engine.services.planning import advance
from engine.services.policies import add_policies, forget_tried_drafts, retire_policy, try_policies
from engine.services.setting_changes import change_settings, reopen
from tests.factories import (
    add_member,
    assign_all,
    click_for,
    click_on,
    make_experiment,
    make_user,
    plan_and_write,
    sums_spec,
    write_responses,
)

pytestmark = pytest.mark.django_db

NEW = {"System prompt": {"Warm": {"text": "quality 9"}}}


def better(i: int, j: int) -> bool:
    """The policy of the larger index is better."""
    return i > j


def judged(experiment: Experiment, annotator, n: int = 500) -> Experiment:
    """Judge by `better` until it has concluded."""
    for _ in range(n):
        plan_and_write(experiment)
        experiment.refresh_from_db()
        if experiment.state != Experiment.State.RUNNING:
            return experiment
        click_for(experiment, annotator, better)
    raise AssertionError("no conclusion")


def begun(annotator, **spec) -> Experiment:
    return make_experiment(
        ready=True, annotators=(annotator,), **{"claim": "good_enough", "n_tasks": 20} | spec
    )


def agree(experiment: Experiment) -> bool:
    """The evidence is that of a replay, and nothing stored disagrees."""
    replayed = designs.replay(experiment, designs.logged(designs.in_the_evidence(experiment)))
    assert designs.state_of(designs.stored(experiment)) == designs.state_of(replayed)
    assert list(faults_of(experiment)) == []
    return rebuild_counts(experiment_id=experiment.pk) == {}


class TestJoining:
    def test_after_a_conclusion_the_losers_leave_and_the_next_one_is_about_the_two(self, annotator):
        experiment = judged(begun(annotator), annotator)
        assert experiment.winner.index == 2
        n_before = experiment.comparisons.filter(state=Comparison.State.JUDGED).count()
        [policy] = add_policies(experiment_id=experiment.pk, levels=NEW)
        experiment.refresh_from_db()
        assert experiment.state == Experiment.State.RUNNING
        assert list(experiment.policies.exclude(retired_at=None).values_list("index", flat=True)) == [0, 1]
        assert policy.parent.index == 2
        experiment = judged(experiment, annotator)
        assert experiment.conclusion == StopReason.CERTIFIED
        assert experiment.winner == policy
        conclusions = designs.load(experiment).design.decision.conclusions
        assert [(each.stage, each.policy, each.among) for each in conclusions] == [
            (1, 2, (0, 1, 2)),
            (2, 3, (2, 3)),
        ]
        assert [each.joint_risk for each in conclusions] == pytest.approx([0.05, 0.1])
        later = experiment.comparisons.filter(state=Comparison.State.JUDGED).order_by("pk")[n_before:]
        assert {(each.policy_i.index, each.policy_j.index) for each in later} == {(2, 3)}
        assert agree(experiment)

    def test_one_risk_for_the_whole_life_of_an_experiment(self, annotator):
        experiment = judged(begun(annotator, strict=True), annotator)
        add_policies(experiment_id=experiment.pk, levels=NEW)
        experiment = judged(experiment, annotator)
        conclusions = designs.load(experiment).design.decision.conclusions
        assert [(each.stage, each.policy, each.joint_risk) for each in conclusions] == [
            (1, 2, 0.05),
            (1, 3, 0.05),
        ]
        assert "this page ever concludes something wrong is at most 5%" in ladder(experiment).risk_of_all
        assert specs.experiment_spec(experiment).settings["strict"]
        assert agree(experiment)

    def test_an_experiment_with_a_newcomer_can_be_deleted(self, annotator):
        experiment = judged(begun(annotator), annotator)
        add_policies(experiment_id=experiment.pk, levels=NEW)
        judged(experiment, annotator)
        delete_experiment(experiment_id=experiment.pk, by=None)
        assert not Experiment.objects.exists()

    @pytest.mark.parametrize("parent", [0, 2])
    def test_a_parent_that_leaves_leaves_once_and_nobody_is_left_alone(self, annotator, parent):
        experiment = judged(begun(annotator), annotator)
        again = {"experiment_id": experiment.pk, "parent": parent, "parent_leaves": True}
        if parent == experiment.winner.index:
            with pytest.raises(WrongStateError):
                add_policies(levels=NEW, **again)
            add_policies(levels=NEW, losers_leave=False, **again)
        else:
            add_policies(levels=NEW, **again)
        gone = AuditEntry.objects.filter(experiment=experiment, action="policy_retired")
        assert len(gone) == experiment.policies.exclude(retired_at=None).count()
        experiment.refresh_from_db()
        click_on(experiment, annotator, 3)
        assert agree(experiment)

    def test_chosen_combinations_alone_join(self, annotator):
        experiment = begun(annotator, n_policies=2)
        levels = {"System prompt": {"Warm": {"text": "a"}, "Cool": {"text": "b"}}}
        add_policies(experiment_id=experiment.pk, levels=levels, chosen=[{"System prompt": "Cool"}])
        assert [each.name for each in policy_names(experiment)] == ["Prompt 0", "Prompt 1", "Cool"]
        # A copy has the same ones.
        assert len(check_description(specs.experiment_spec(Experiment.objects.get())).policies) == 3

    def test_ready_made_responses_come_with_it(self, annotator):
        factor, names, tasks = "Model", ["One", "Two"], [TaskSpec(f"Task {n}") for n in range(30)]
        written = [ReadyMade(task, name, f"{name} {task}") for name in names for task in range(30)]
        spec = ExperimentSpec(
            name="Ready-made",
            factors=[FactorSpec(factor, "imported", {name: {} for name in names})],
            tasks=tasks,
            ready_made=written,
            settings={"responses": "imported"},
        )
        experiment = create_experiment(spec=spec)
        add_member(experiment, annotator)
        start(experiment_id=experiment.pk)
        advance(experiment_id=experiment.pk)
        with pytest.raises(SpecError, match="no task in common"):
            add_policies(experiment_id=experiment.pk, levels={factor: {"New": {}}})
        own = [ReadyMade(task, "New", f"Newly {task}") for task in range(experiment.tasks.count())]
        [policy] = add_policies(experiment_id=experiment.pk, levels={factor: {"New": {}}}, responses=own)
        assert policy.responses.count() == len(own)
        click_on(experiment, annotator, 12)
        assert experiment.comparisons.filter(policy_j=policy).exists()
        # Its texts may follow the judgments, and it is compared on the tasks that are left alone.
        said = "a policy joined when some tasks were judged already"
        assert unproven(Experiment.objects.get()).endswith(f"is not proven: {said}.")

    @pytest.mark.parametrize(
        "levels",
        [
            {"Nothing": {"Warm": {"text": "x"}}},
            {"System prompt": {"Prompt 0": {"text": "x"}}},
            {"System prompt": {"Warm": {"text": 3}}},
            {"System prompt": {}},
        ],
    )
    def test_what_is_unusable_is_refused_and_nothing_is_stored(self, annotator, levels):
        experiment = begun(annotator)
        with pytest.raises(SpecError):
            add_policies(experiment_id=experiment.pk, levels=levels)
        assert experiment.policies.count() == 3
        assert experiment.factors.get().levels.count() == 3

    def test_in_a_space_of_levels_too(self, annotator):
        experiment = begun(annotator, space="factorial")
        click_on(experiment, annotator, 5)
        add_policies(experiment_id=experiment.pk, levels=NEW)
        click_on(experiment, annotator, 12)
        retire_policy(experiment_id=experiment.pk, index=0, reason="")
        click_on(experiment, annotator, 5)
        assert designs.load(experiment).design.space.policies[3] == ("Warm",)
        assert agree(experiment)

    def test_under_a_rule_that_makes_no_claim_nobody_joins(self, annotator):
        experiment = begun(annotator, stopping="heuristic", claim="best_if_any")
        with pytest.raises(WrongStateError):
            add_policies(experiment_id=experiment.pk, levels=NEW)

    def test_nobody_joins_a_draft(self):
        with pytest.raises(WrongStateError):
            add_policies(experiment_id=make_experiment(running=False).pk, levels=NEW)

    def test_under_other_settings_all_of_it_is_replayed(self, annotator):
        experiment = judged(begun(annotator), annotator)
        add_policies(experiment_id=experiment.pk, levels=NEW)
        click_on(experiment, annotator, 6)
        change_settings(experiment_id=experiment.pk, by=None, delta=0.01, claim="best")
        advance(experiment_id=experiment.pk)
        assert agree(Experiment.objects.get())


class TestConclusions:
    """They stay, whatever the claim and its risk become."""

    def test_under_a_smaller_risk(self, annotator):
        experiment = judged(begun(annotator), annotator)
        reopen(experiment_id=experiment.pk, by=None, delta=0.01)
        experiment.refresh_from_db()
        assert [each.delta for each in experiment.conclusions.all()] == [0.05]
        assert len(ladder(experiment).conclusions) == 1
        experiment = judged(experiment, annotator)
        assert [(each.delta, each.risk, each.policy) for each in experiment.conclusions.all()] == [
            (0.05, 0.05, 2),
            (0.01, 0.01, 2),
        ]
        assert experiment.conclusions.last().joint_risk == pytest.approx(0.06)
        assert ladder(experiment).risk_of_all.endswith("wrong with at most 6%.")
        # Back under the first settings the replay draws the first one again, which is the same.
        reopen_as = {"delta": 0.001, "claim": "best"}
        reopen(experiment_id=experiment.pk, by=None, **reopen_as)
        change_settings(experiment_id=experiment.pk, by=None, delta=0.05, claim="good_enough")
        advance(experiment_id=experiment.pk)
        experiment.refresh_from_db()
        assert experiment.state == Experiment.State.CONCLUDED
        assert experiment.conclusions.count() == 2
        assert agree(experiment)

    def test_on_another_claim_of_the_ladder(self, annotator):
        experiment = begun(annotator, claim="best", epsilon=0.05, n_policies=2)
        for _ in range(100):
            plan_and_write(experiment)
            if designs.load(experiment).design.decision.holds("good_enough"):
                break
            click_for(experiment, annotator, better)
        stop_on(experiment_id=experiment.pk, claim="good_enough", by=None)
        [drawn] = experiment.conclusions.all()
        # Picked after a look at three claims.
        assert (drawn.claim, drawn.policy, drawn.among) == ("good_enough", 1, [0, 1])
        assert drawn.risk == pytest.approx(0.15)
        experiment.refresh_from_db()
        reopen(experiment_id=experiment.pk, by=None)
        experiment = judged(Experiment.objects.get(), annotator)
        first, second = experiment.conclusions.all()
        assert (first.pk, second.claim) == (drawn.pk, "best")
        assert second.joint_risk == pytest.approx(0.2)
        assert ladder(experiment).conclusions[0].endswith(drawn.text)

    def test_nobody_changes_one(self, annotator):
        experiment = judged(begun(annotator, n_policies=2), annotator)
        with pytest.raises(DatabaseError):
            experiment.conclusions.update(risk=0.01)


class TestTryingBefore:
    def test_the_first_answers_are_seen_beside_the_parents_and_leave_no_trace(self, annotator):
        experiment = begun(annotator)
        by = make_user()
        before = experiment.comparisons.count(), Response.objects.count()
        tried = {"experiment_id": experiment.pk, "levels": NEW, "by": by}
        try_policies(**tried, positions=[0])
        draft = try_policies(**tried, positions=[2, 4])
        write_responses()
        rows = tried_responses(draft)
        assert [(row.task.prompt, row.policy.levels.get().name) for row in rows] == [
            (task.prompt, name)
            for task in experiment.tasks.filter(position__in=[2, 4])
            for name in ("Prompt 0", "Warm")
        ]
        assert all(row.state == Response.State.DONE for row in rows)
        assert experiment.policies.count() == 3
        assert Trial.objects.filter(experiment=experiment, by=by).count() == 2
        assert (
            not Experiment.objects.held_by(make_user("root", is_superuser=True)).filter(pk=draft.pk).exists()
        )
        add_policies(experiment_id=experiment.pk, levels=NEW)
        assert list(Experiment.objects.all()) == [experiment]
        assert Response.objects.count() == before[1]
        assert agree(experiment)

    def test_it_asks_what_is_lent_to_the_experiment_and_is_paid_there(self, annotator):
        experiment, by = begun(annotator), make_user()
        connection = Connection.objects.create(name="GPT", provider="openai", model_id="gpt", owner=by)
        Experiment.objects.filter(pk=experiment.pk).update(model="GPT")
        tried = {"experiment_id": experiment.pk, "levels": NEW, "positions": [0], "by": by}
        with pytest.raises(WrongStateError):
            try_policies(**tried)
        assert list(Experiment.objects.all()) == [experiment]
        Loan.objects.create(connection=connection, experiment=experiment, by=by)
        draft = try_policies(**tried)
        [need] = needs_of([draft], usable_names([draft.pk]))[draft.pk]
        assert need.remote == {"GPT"}
        write_responses()
        assert {charge.experiment_id for charge in Charge.objects.filter(purpose="trial")} == {experiment.pk}

    def test_it_goes_with_its_experiment_or_after_a_while(self, annotator):
        experiment = judged(begun(annotator), annotator)
        try_policies(experiment_id=experiment.pk, levels=NEW, positions=[0], by=make_user())
        forget_tried_drafts(before=experiment.created_at)
        assert Experiment.objects.count() == 2
        delete_experiment(experiment_id=experiment.pk, by=None)
        assert not Experiment.objects.exists()

    def test_old_ones_are_forgotten(self, annotator):
        experiment = begun(annotator)
        try_policies(experiment_id=experiment.pk, levels=NEW, positions=[0], by=make_user())
        forget_tried_drafts(before=clock.now())
        assert list(Experiment.objects.all()) == [experiment]


class TestRetiring:
    def test_nobody_is_shown_it_any_more(self, annotator):
        experiment = begun(annotator)
        click_on(experiment, annotator, 3)
        assign_all(experiment_id=experiment.pk, annotator=annotator)
        retire_policy(experiment_id=experiment.pk, index=1, reason="It is rude.")
        theirs = experiment.comparisons.filter(policy_i__index=1) | experiment.comparisons.filter(
            policy_j__index=1
        )
        assert not theirs.filter(state__in=["planned", "ready"]).exists()
        assert not Response.objects.filter(policy__index=1, state=Response.State.WAITING).exists()
        last = experiment.comparisons.latest("pk").pk
        click_on(experiment, annotator, 20)
        assert not theirs.filter(pk__gt=last).exists()
        entry = AuditEntry.objects.get(experiment=experiment, action="policy_retired")
        assert entry.details["reason"] == "It is rude."
        assert agree(experiment)

    def test_no_response_is_written_for_a_pair_that_is_gone(self, annotator):
        experiment = begun(annotator, budget=200)
        Response.objects.update(state=Response.State.WAITING)
        retire_policy(experiment_id=experiment.pk, index=1, reason="It is rude.")
        pending = experiment.comparisons.filter(state__in=Comparison.PENDING)
        halves = {pk for row in pending.values_list("response_i", "response_j") for pk in row}
        assert (
            set(Response.objects.filter(state=Response.State.WAITING).values_list("pk", flat=True)) == halves
        )
        assert Response.objects.filter(policy__index=0, state=Response.State.FAILED).exists()

    def test_the_last_two_stay(self, annotator):
        experiment = begun(annotator)
        retire_policy(experiment_id=experiment.pk, index=0, reason="")
        with pytest.raises(WrongStateError):
            retire_policy(experiment_id=experiment.pk, index=1, reason="")

    def test_in_a_paused_experiment_too(self, annotator):
        experiment = begun(annotator)
        pause(experiment_id=experiment.pk)
        retire_policy(experiment_id=experiment.pk, index=0, reason="")
        add_policies(experiment_id=experiment.pk, levels=NEW)
        advance(experiment_id=experiment.pk)
        assert designs.load(experiment).design.present.tolist() == [False, True, True, True]
        assert agree(experiment)

    @pytest.mark.parametrize("responses", ["reuse", "imported"])
    def test_a_pool_is_used_up_once_the_pairs_of_those_who_are_left_are(self, annotator, responses):
        names = "ABC"
        if responses == "imported":
            spec = ExperimentSpec(
                "Pool",
                [FactorSpec("Policy", "imported", {name: {} for name in names})],
                [TaskSpec(f"{n}?") for n in range(3)],
                {"responses": "imported"},
                ready_made=[ReadyMade(n, name, f"{name} says {n}") for n in range(3) for name in names],
            )
            experiment = create_experiment(spec=spec)
            add_member(experiment, annotator)
            start(experiment_id=experiment.pk)
        else:
            experiment = begun(annotator, n_tasks=3, responses="reuse")
        click_on(experiment, annotator, 2)
        n_seen = Assignment.objects.filter(
            comparison__policy_i__index__gt=0, comparison__policy_j__index__gt=0
        ).count()
        retire_policy(experiment_id=experiment.pk, index=0, reason="Rude.")
        plan_and_write(experiment)
        assert n_texts(experiment) == 3
        assert supply(experiment).n_answers == 3 - n_seen
        click_on(experiment, annotator, 3 - n_seen)
        # It raised: pairs of who had left seemed to be there.
        advance(experiment_id=experiment.pk)
        experiment.refresh_from_db()
        assert experiment.used_up
        assert supply(experiment).n_answers == 0

    def test_what_it_needs_is_not_asked_for_any_more(self, annotator):
        factors = [FactorSpec("Model", "model", {name: {"name": name} for name in ("GPT", "Own", "Small")})]
        Connection.objects.create(name="GPT", provider="openai", model_id="gpt", everybody=True)
        spec = ExperimentSpec("Models", factors, [TaskSpec(f"What is {n} + 0?") for n in range(9)])
        experiment = create_experiment(spec=spec)
        start(experiment_id=experiment.pk)
        Connection.objects.update(retired_at=clock.now())
        pause(experiment_id=experiment.pk)
        with pytest.raises(WrongStateError):
            start(experiment_id=experiment.pk)
        retire_policy(experiment_id=experiment.pk, index=0, reason="The model was withdrawn.")
        start(experiment_id=experiment.pk)
        [needs] = needs_of([experiment], usable_names([experiment.pk])).values()
        assert {need.writer for need in needs} == {"Own", "Small"}

    def test_one_that_fails_holds_up_nothing_once_it_is_out(self, annotator):
        experiment = begun(annotator)
        failed = {"state": Response.State.FAILED, "attempts": 3}
        Response.objects.bulk_create(
            Response(policy=experiment.policies.first(), task=task, seed=0, **failed)
            for task in experiment.tasks.all()
        )
        assert most_at_once(experiment) == 0
        retire_policy(experiment_id=experiment.pk, index=0, reason="It fails.")
        assert most_at_once(experiment) > 1


class TestForecast:
    """The comparisons that a policy takes that joins."""

    @staticmethod
    def likely(space: str, *, parent_leaves: bool = False) -> float:
        spec = sums_spec(space=space, budget=10**6, claim="good_enough")
        draft = create_experiment(spec=replace(spec, name=f"{space} {parent_leaves}"))
        new = [("Careful tutor", ""), ("In a hurry", "")]
        return remaining_after_joining(
            draft, draft.policies.get(index=0), new, losers_leave=True, parent_leaves=parent_leaves
        ).likely

    @pytest.mark.parametrize("space", ["unstructured", "factorial"])
    def test_whoever_leaves_saves_comparisons(self, space):
        assert 8 < self.likely(space, parent_leaves=True) < self.likely(space)

    def test_nobody_alone_has_one(self, annotator):
        experiment = judged(begun(annotator), annotator)
        who = {"losers_leave": True, "parent_leaves": True}
        assert remaining_after_joining(experiment, experiment.winner, [("Warm",)], **who) is None
