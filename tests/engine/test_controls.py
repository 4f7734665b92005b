"""Changing an experiment's settings, reopening, archiving, cloning: what happens, what is said, what is
logged.
"""

import numpy as np
import pytest

from engine.domain.errors import SpecError, WrongStateError
from engine.models import AuditEntry, Evidence, Experiment, User
from engine.selectors import consequences, counts, designs, specs
from engine.selectors.snapshots import latest_snapshot
from engine.services.drafts import clone
from engine.services.experiments import archive, pause, start, stop, stop_on, unarchive
from engine.services.judging import void_judgment
from engine.services.planning import advance
from engine.services.setting_changes import change_settings, reopen
from tests.factories import click_for, make_experiment, make_user, write_responses

pytestmark = pytest.mark.django_db


def judge_until(experiment: Experiment, user, n_comparisons: int) -> None:
    """The policy of the lower index always wins."""
    for _ in range(n_comparisons):
        experiment.refresh_from_db()
        if experiment.state != Experiment.State.RUNNING:
            return
        click_for(experiment, user, beats=lambda i, j: i < j)
        advance(experiment_id=experiment.pk)
        write_responses()


@pytest.fixture(scope="class")
def judged_once(shared_rows: None) -> tuple[int, int]:
    """The keys of an experiment that runs, with a handful of judgments and far from a decision, and of the
    person who judged.
    """
    person = make_user()
    experiment = make_experiment(ready=True, annotators=(person,), delta=0.01)
    judge_until(experiment, person, 6)
    return experiment.pk, person.pk


@pytest.fixture
def judged(judged_once: tuple[int, int], db: None) -> Experiment:
    return Experiment.objects.get(pk=judged_once[0])


@pytest.fixture
def who_judged(judged_once: tuple[int, int], db: None) -> User:
    return User.objects.get(pk=judged_once[1])


@pytest.fixture
def certified(annotator) -> Experiment:
    experiment = make_experiment(ready=True, annotators=(annotator,), n_policies=2, delta=0.2)
    judge_until(experiment, annotator, 60)
    experiment.refresh_from_db()
    assert experiment.conclusion == "certified"
    return experiment


def last_entry(experiment: Experiment) -> AuditEntry:
    return experiment.audit_entries.order_by("-pk").first()


@pytest.mark.usefixtures("judged_once")
class TestChange:
    def test_what_is_not_given_stays_and_is_not_logged(self, judged, admin):
        n_entries = judged.audit_entries.count()
        change_settings(experiment_id=judged.pk, by=admin, budget=judged.budget + 100)
        judged.refresh_from_db()
        assert (judged.budget, judged.delta, judged.epsilon) == (2100, 0.01, 0)
        assert judged.audit_entries.count() == n_entries + 1
        entry = last_entry(judged)
        assert (entry.action, entry.by) == ("budget", admin)
        assert entry.sentence.startswith("Changed the budget from 2000 to 2100 comparisons.")

    def test_a_smaller_delta_breaks_nothing_and_moves_the_line(self, judged, admin):
        change_settings(experiment_id=judged.pk, by=admin, delta=0.001)
        advance(experiment_id=judged.pk)
        judged.refresh_from_db()
        assert consequences.caveats(judged) == []
        assert latest_snapshot(judged).threshold == pytest.approx(np.log(1000))
        assert "1,000 to 1" in last_entry(judged).sentence

    def test_a_larger_delta_after_looking_is_marked_until_it_is_taken_back(self, judged, admin):
        change_settings(experiment_id=judged.pk, by=admin, delta=0.1)
        judged.refresh_from_db()
        assert "breaks the guarantee" in last_entry(judged).sentence
        assert consequences.caveats(judged) == [
            (
                "The accepted risk was raised from 0.01 to 0.1 after outcomes had been seen, so the risk "
                "is not guaranteed."
            )
        ]
        change_settings(experiment_id=judged.pk, by=admin, delta=0.05)
        judged.refresh_from_db()
        assert len(consequences.caveats(judged)) == 1, "smaller than a moment ago, but not than at first"
        change_settings(experiment_id=judged.pk, by=admin, delta=0.01)
        judged.refresh_from_db()
        assert consequences.caveats(judged) == []

    def test_before_anybody_saw_an_outcome_anything_goes(self, admin):
        experiment = make_experiment(ready=True)
        change_settings(experiment_id=experiment.pk, by=admin, delta=0.2, epsilon=0.1)
        experiment.refresh_from_db()
        assert consequences.caveats(experiment) == []
        assert experiment.first_delta is experiment.first_epsilon is None

    def test_an_outcome_that_was_taken_back_was_seen_all_the_same(self, annotator, admin):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        judgment = click_for(experiment, annotator, beats=lambda i, j: True)
        void_judgment(judgment_id=judgment.pk, by=annotator, reason="Oops")
        change_settings(experiment_id=experiment.pk, by=admin, delta=0.2)
        experiment.refresh_from_db()
        assert len(consequences.caveats(experiment)) == 1

    def test_another_epsilon_recomputes_all_evidence_and_is_marked(self, judged, admin):
        before = latest_snapshot(judged)
        change_settings(experiment_id=judged.pk, by=admin, epsilon=0.1)
        advance(experiment_id=judged.pk)
        judged.refresh_from_db()
        snapshot = latest_snapshot(judged)
        replayed = designs.replay(judged).design
        assert snapshot.pk != before.pk
        assert snapshot.evidence == list(replayed.evidence)
        assert snapshot.peak_evidence == list(replayed.peak_evidence)
        assert snapshot.evidence != before.evidence
        assert "60%" in last_entry(judged).sentence
        assert "The margin was changed from 0 to 0.1" in consequences.caveats(judged)[0]

    def test_the_planner_goes_on_from_the_new_evidence(self, judged, who_judged, admin):
        change_settings(experiment_id=judged.pk, by=admin, epsilon=0.1)
        judge_until(judged, who_judged, 3)
        judged.refresh_from_db()
        assert latest_snapshot(judged).evidence == pytest.approx(list(designs.replay(judged).design.evidence))

    def test_there_and_back_again_is_where_one_was(self, judged, admin):
        before = list(designs.load(judged).design.evidence)
        for epsilon in (0.2, 0.0):
            change_settings(experiment_id=judged.pk, by=admin, epsilon=epsilon)
        judged.refresh_from_db()
        assert list(designs.replay(judged).design.evidence) == before
        assert consequences.caveats(judged) == []

    @pytest.mark.parametrize("wrong", [{"delta": 0.9}, {"delta": 0.0}, {"epsilon": 0.5}, {"budget": 0}])
    def test_a_value_out_of_range_changes_nothing(self, wrong, judged, admin):
        n_entries = judged.audit_entries.count()
        with pytest.raises(SpecError):
            change_settings(experiment_id=judged.pk, by=admin, **({"budget": 77} | wrong))
        judged.refresh_from_db()
        assert judged.budget == 2000
        assert judged.audit_entries.count() == n_entries

    def test_a_budget_that_is_spent_already_concludes_it_at_the_next_look(self, judged, admin):
        change_settings(experiment_id=judged.pk, by=admin, budget=3)
        said = last_entry(judged).sentence
        assert "concludes as soon as it runs. Its evidence is that of the first 3." in said
        advance(experiment_id=judged.pk)
        judged.refresh_from_db()
        assert (judged.state, judged.conclusion) == ("concluded", "budget")
        latest, again = latest_snapshot(judged), designs.replay(judged)
        assert latest.comparisons == 3
        assert Evidence.objects.get(experiment=judged).state == designs.state_of(again)

    def test_a_concluded_one_has_to_be_reopened(self, judged, admin):
        stop(experiment_id=judged.pk)
        with pytest.raises(WrongStateError, match="Reopen it"):
            change_settings(experiment_id=judged.pk, by=admin, budget=5000)


@pytest.mark.usefixtures("judged_once")
class TestReopen:
    def test_a_spent_budget_is_extended_and_it_goes_on(self, annotator, admin):
        experiment = make_experiment(ready=True, annotators=(annotator,), budget=4, delta=1e-6)
        judge_until(experiment, annotator, 10)
        experiment.refresh_from_db()
        assert experiment.conclusion == "budget"
        with pytest.raises(WrongStateError, match="Give it a larger budget"):
            reopen(experiment_id=experiment.pk, by=admin)
        reopen(experiment_id=experiment.pk, by=admin, budget=8)
        experiment.refresh_from_db()
        assert (experiment.state, experiment.conclusion, experiment.concluded_at) == ("running", "", None)
        advance(experiment_id=experiment.pk)
        write_responses()
        judge_until(experiment, annotator, 10)
        experiment.refresh_from_db()
        assert experiment.conclusion == "budget"
        assert counts.comparison_count(experiment.pk) == 8

    def test_a_winner_is_certified_anew_at_a_stricter_delta(self, certified, annotator, admin):
        judged = counts.comparison_count(certified.pk)
        with pytest.raises(WrongStateError, match="smaller risk"):
            reopen(experiment_id=certified.pk, by=admin)
        reopen(experiment_id=certified.pk, by=admin, delta=0.02)
        certified.refresh_from_db()
        assert (certified.state, certified.winner) == ("running", None)
        advance(experiment_id=certified.pk)
        write_responses()
        judge_until(certified, annotator, 100)
        certified.refresh_from_db()
        assert certified.conclusion == "certified"
        assert certified.winner.index == 0
        assert counts.comparison_count(certified.pk) > judged
        assert consequences.caveats(certified) == []

    def test_a_refusal_leaves_no_trace(self, certified, admin):
        n_entries, winner = certified.audit_entries.count(), certified.winner
        with pytest.raises(WrongStateError):
            reopen(experiment_id=certified.pk, by=admin, budget=99_999)
        certified.refresh_from_db()
        assert (certified.state, certified.winner, certified.budget) == ("concluded", winner, 2000)
        assert certified.audit_entries.count() == n_entries

    def test_what_was_stopped_by_hand_needs_no_change(self, judged, admin):
        stop(experiment_id=judged.pk, by=admin)
        reopen(experiment_id=judged.pk, by=admin)
        judged.refresh_from_db()
        assert judged.state == "running"
        assert "it had concluded: Stopped by hand" in last_entry(judged).sentence

    def test_only_what_has_concluded_is_reopened(self, judged, admin):
        with pytest.raises(WrongStateError, match="this one is running"):
            reopen(experiment_id=judged.pk, by=admin)

    def test_not_out_of_the_archive(self, judged, admin):
        stop(experiment_id=judged.pk, by=admin)
        archive(experiment_id=judged.pk, by=admin)
        with pytest.raises(WrongStateError, match="Take it out of the archive first"):
            reopen(experiment_id=judged.pk, by=admin)


@pytest.mark.usefixtures("judged_once")
class TestArchive:
    def test_nothing_changes_there(self, judged, admin):
        pause(experiment_id=judged.pk)
        archive(experiment_id=judged.pk, by=admin)
        key = {"experiment_id": judged.pk, "by": admin}
        for change, values in (
            (change_settings, {"budget": 77}), (stop, {}), (stop_on, {"claim": "best"}), (start, {}),
        ):  # fmt: skip
            with pytest.raises(WrongStateError, match="Take it out of the archive first"):
                change(**key, **values)
        judged.refresh_from_db()
        assert judged.state == "paused"
        assert judged.budget != 77
        unarchive(**key)
        assert stop(**key).state == "concluded"

    def test_in_and_out_each_logged_once(self, admin):
        experiment = make_experiment(running=False)
        for _ in range(2):
            archive(experiment_id=experiment.pk, by=admin)
        experiment.refresh_from_db()
        assert experiment.archived_at is not None
        for _ in range(2):
            unarchive(experiment_id=experiment.pk, by=admin)
        experiment.refresh_from_db()
        assert experiment.archived_at is None
        assert [e.action for e in experiment.audit_entries.order_by("pk")] == [
            "create",
            "archive",
            "unarchive",
        ]

    def test_not_while_it_runs(self, judged, admin):
        with pytest.raises(WrongStateError, match="pause or stop it first"):
            archive(experiment_id=judged.pk, by=admin)

    def test_it_does_not_start_in_there(self, admin):
        experiment = make_experiment(running=False)
        archive(experiment_id=experiment.pk, by=admin)
        with pytest.raises(WrongStateError, match="Take it out of the archive first"):
            start(experiment_id=experiment.pk, by=admin)


@pytest.mark.usefixtures("judged_once")
class TestClone:
    def test_a_copy_is_a_draft_of_the_same_description_that_its_maker_owns(self, judged, admin):
        copy = clone(experiment=judged, by=admin, name="Again")
        assert (copy.name, copy.state) == ("Again", "draft")
        ours, theirs = specs.experiment_spec(copy), specs.experiment_spec(judged)
        assert (ours.factors, ours.tasks, ours.settings, ours.gold) == (
            theirs.factors,
            theirs.tasks,
            theirs.settings | {"seed": copy.seed},
            theirs.gold,
        )
        assert counts.comparison_count(copy.pk) == 0
        assert [(m.user, m.role) for m in copy.memberships.all()] == [(admin, "owner")]
        assert last_entry(copy).sentence == f"Cloned from {judged.name}."

    def test_a_name_that_is_taken_is_refused(self, judged, admin):
        # Somebody else's experiment may have it.
        clone(experiment=judged, by=admin, name=judged.name)
        with pytest.raises(SpecError, match="You have an experiment of this name already"):
            clone(experiment=judged, by=admin, name=judged.name)
        assert Experiment.objects.count() == 2


def test_what_is_refused_is_not_logged():
    experiment = make_experiment(running=False)
    with pytest.raises(WrongStateError):
        pause(experiment_id=experiment.pk)
    assert experiment.audit_entries.count() == 1
