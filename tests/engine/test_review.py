"""Bringing voided judgments back, and voiding all of one annotator's."""

from __future__ import annotations

import numpy as np
import pytest

from engine.core import Design
from engine.domain.errors import WrongStateError
from engine.models import Experiment, Judgment, JudgmentVoid, User
from engine.models.append_only import lifted
from engine.selectors import counts, designs
from engine.services.experiments import pause, stop
from engine.services.judging import judge_leased, rebuild_counts, void_judgment
from engine.services.planning import advance
from engine.services.review import restore_judgment, void_annotator, void_one
from tests.factories import (
    add_member,
    click,
    click_on,
    lease,
    lease_next,
    make_experiment,
    make_user,
    nobodys_turn,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def experiment(annotator) -> Experiment:
    return make_experiment(ready=True, annotators=(annotator,), overlap=1)


def void(judgment: Judgment, by: User) -> Judgment:
    void_judgment(judgment_id=judgment.pk, by=by, reason="A slip.")
    return judgment


def assert_counts_are_those_of_the_judgments(experiment: Experiment) -> None:
    assert rebuild_counts(experiment_id=experiment.pk) == {}
    advance(experiment_id=experiment.pk)
    snapshot = designs.latest_snapshot(experiment)
    replayed = designs.replayed(experiment).design
    assert snapshot.comparisons == replayed.n_comparisons
    assert np.array_equal(snapshot.evidence, replayed.evidence)
    assert np.array_equal(snapshot.peak_evidence, replayed.peak_evidence)


class TestRestore:
    def test_it_is_a_new_judgment_that_copies_and_names_the_old_one(self, experiment, annotator, admin):
        old = void(click(experiment, annotator, "right"), admin)
        with lifted():
            Judgment.objects.filter(pk=old.pk).update(comment="Hm.", reason="Because.")
        new = restore_judgment(judgment_id=old.pk)
        old.refresh_from_db()
        assert new.pk != old.pk
        assert new.restores == old
        assert old.restored_by == new
        for field in (
            "comparison",
            "judge",
            "annotator",
            "choice",
            "outcome",
            "comment",
            "reason",
            "shown_at",
        ):
            assert getattr(new, field) == getattr(old, field), field
        assert JudgmentVoid.objects.filter(judgment=old).exists()
        assert not JudgmentVoid.objects.filter(judgment=new).exists()
        new.comparison.refresh_from_db()
        assert (new.comparison.state, new.comparison.outcome) == ("judged", old.outcome)
        assert_counts_are_those_of_the_judgments(experiment)

    def test_it_came_as_the_old_one_came(self, experiment, annotator, admin):
        held = lease(experiment, annotator)
        judgment = judge_leased(
            experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left", via="api"
        ).judgment
        void_judgment(judgment_id=judgment.pk, by=admin, reason="A slip.")
        assert restore_judgment(judgment_id=judgment.pk, by=admin).via == "api"

    def test_counts_and_evidence_are_those_of_before_the_void_to_the_bit(self, annotator, admin):
        # A restored judgment is the newest one, and streams depend on the order.
        experiment = make_experiment(ready=True, annotators=(annotator,), streams=False)
        click_on(experiment, annotator, 11)
        before = designs.design(experiment)
        restore_judgment(judgment_id=void(click_of(experiment, 3), admin).pk)
        after = designs.design(experiment)
        assert np.array_equal(before.wins, after.wins)
        assert np.array_equal(before.evidence, after.evidence)
        assert_counts_are_those_of_the_judgments(experiment)

    def test_void_and_restore_may_go_on_for_ever(self, experiment, annotator, admin):
        judgment = click(experiment, annotator)
        for _ in range(3):
            judgment = restore_judgment(judgment_id=void(judgment, admin).pk)
        assert counts.comparison_count(experiment.pk) == 1
        void(judgment, admin)
        assert counts.comparison_count(experiment.pk) == 0
        assert_counts_are_those_of_the_judgments(experiment)
        # After a void, the same annotator may judge the pair again.
        comparison = judgment.comparison
        comparison.leases.exclude(state="judged").get()
        nobodys_turn(experiment)
        assert lease(experiment, annotator).comparison == comparison

    def test_a_restored_pair_is_not_shown_to_its_annotator_again(self, annotator, admin):
        other = make_user()
        experiment = make_experiment(ready=True, annotators=(annotator, other), overlap=2)
        old = void(click(experiment, annotator), admin)
        restore_judgment(judgment_id=old.pk)
        shown = set()
        while (
            held := lease_next(experiment_id=experiment.pk, annotator=annotator, besides=shown)
        ) is not None:
            assert held.comparison_id != old.comparison_id
            shown.add(held.token)
        assert lease(experiment, other).comparison_id == old.comparison_id

    def test_one_of_several_judgments_counts_only_when_all_are_in(self, annotator, admin):
        other = make_user()
        experiment = make_experiment(ready=True, annotators=(annotator, other), overlap=2)
        old = click(experiment, annotator)
        void(old, admin)
        restore_judgment(judgment_id=old.pk)
        assert counts.comparison_count(experiment.pk) == 0
        assert click(experiment, other).comparison_id == old.comparison_id
        assert counts.comparison_count(experiment.pk) == 1
        assert rebuild_counts(experiment_id=experiment.pk) == {}

    def test_it_works_while_paused(self, experiment, annotator, admin):
        old = void(click(experiment, annotator), admin)
        pause(experiment_id=experiment.pk)
        restore_judgment(judgment_id=old.pk)
        assert_counts_are_those_of_the_judgments(experiment)


class TestRefusedRestore:
    def refused(self, judgment: Judgment, why: str) -> None:
        rows = Judgment.objects.count()
        with pytest.raises(WrongStateError, match=why):
            restore_judgment(judgment_id=judgment.pk)
        assert Judgment.objects.count() == rows

    def test_a_judgment_that_stands_is_not_restored(self, experiment, annotator):
        self.refused(click(experiment, annotator), "not voided")

    def test_a_judgment_is_restored_once(self, experiment, annotator, admin):
        old = void(click(experiment, annotator), admin)
        void(restore_judgment(judgment_id=old.pk), admin)
        self.refused(old, "already been restored")

    def test_of_a_concluded_experiment(self, experiment, annotator, admin):
        old = void(click(experiment, annotator), admin)
        stop(experiment_id=experiment.pk)
        self.refused(old, "final")

    def test_of_a_pair_judged_anew_by_somebody_else(self, experiment, annotator, admin):
        old = void(click(experiment, annotator), admin)
        other = make_user()
        add_member(experiment, other)
        assert click(experiment, other).comparison == old.comparison
        self.refused(old, "has been judged again")

    def test_of_a_pair_judged_anew_by_the_same_person(self, annotator, admin):
        experiment = make_experiment(ready=True, annotators=(annotator, make_user()), overlap=2)
        old = void(click(experiment, annotator), admin)
        assert click(experiment, annotator).comparison == old.comparison
        self.refused(old, "ann has judged")

    def test_of_a_pair_that_somebody_looks_at(self, experiment, annotator, admin):
        old = void(click(experiment, annotator), admin)
        nobodys_turn(experiment)
        assert lease(experiment, annotator).comparison == old.comparison
        self.refused(old, "looking")

    def test_of_a_discarded_pair(self, experiment, annotator, admin):
        old = void(click(experiment, annotator), admin)
        experiment.comparisons.filter(pk=old.comparison_id).update(state="discarded")
        self.refused(old, "discarded")


def click_of(experiment: Experiment, number: int) -> Judgment:
    return Judgment.objects.filter(comparison__experiment=experiment).order_by("pk")[number]


class TestVoidAnnotator:
    def test_all_of_one_annotator_and_nobody_elses(self, annotator, admin):
        other = make_user()
        experiment = make_experiment(ready=True, annotators=(annotator, other))
        elsewhere = click(make_experiment(ready=True, annotators=(annotator,)), annotator)
        for number in range(8):
            click_on(experiment, (annotator, other)[number % 2], 1, "left" if number % 3 else "right")
        kept = list(Judgment.objects.filter(annotator=other).values_list("pk", flat=True))
        taken = void_annotator(experiment_id=experiment.pk, annotator=annotator, by=admin, reason="Spam")
        assert taken == 4
        standing = counts.standing_judgments(experiment.pk)
        assert sorted(standing.values_list("pk", flat=True)) == sorted(kept)
        assert set(JudgmentVoid.objects.values_list("by", "reason")) == {(admin.pk, "Spam")}
        assert not JudgmentVoid.objects.filter(judgment=elsewhere).exists()
        assert_counts_are_those_of_the_judgments(experiment)
        voided = Judgment.objects.filter(annotator=annotator, comparison__experiment=experiment)
        assert set(voided.values_list("comparison__state", "comparison__outcome")) == {("ready", None)}
        told = Design.replay(
            designs.space(experiment), counts.outcomes(experiment), delta=experiment.delta,
            claim="best_if_any", budget=experiment.budget,
        )  # fmt: skip
        assert np.array_equal(told.evidence, designs.design(experiment).evidence)

    def test_it_is_one_replay_however_many_they_are(self, experiment, annotator, admin):
        click_on(experiment, annotator, 9)
        before = experiment.snapshots.count()
        void_annotator(experiment_id=experiment.pk, annotator=annotator, by=admin, reason="Spam")
        assert experiment.snapshots.count() == before
        advance(experiment_id=experiment.pk)
        assert experiment.snapshots.count() == before + 1

    def test_with_several_judges_a_pair_loses_its_outcome_and_keeps_the_others(self, annotator, admin):
        other = make_user()
        experiment = make_experiment(
            ready=True, annotators=(annotator, other), overlap=2, overlap_rule="mean"
        )
        for choice in ("left", "right", "left"):
            mine = click(experiment, annotator, choice)
            assert click(experiment, other, "left").comparison == mine.comparison
        half = click(experiment, annotator)
        assert void_annotator(experiment_id=experiment.pk, annotator=annotator, by=admin, reason="Spam") == 4
        assert counts.comparison_count(experiment.pk) == 0
        assert_counts_are_those_of_the_judgments(experiment)
        half.comparison.refresh_from_db()
        assert half.comparison.state == "ready"
        # The pairs may be judged again, and count with what the other one said.
        click(experiment, annotator)
        assert counts.comparison_count(experiment.pk) == 1
        assert rebuild_counts(experiment_id=experiment.pk) == {}

    def test_nothing_to_void_is_nothing_done(self, experiment, admin):
        assert void_annotator(experiment_id=experiment.pk, annotator=admin, by=admin, reason="Spam") == 0
        assert JudgmentVoid.objects.count() == 0

    def test_a_concluded_experiment_is_final(self, experiment, annotator, admin):
        click(experiment, annotator)
        stop(experiment_id=experiment.pk)
        with pytest.raises(WrongStateError, match="final"):
            void_annotator(experiment_id=experiment.pk, annotator=annotator, by=admin, reason="Spam")
        assert JudgmentVoid.objects.count() == 0

    def test_the_experiment_goes_on_afterwards(self, experiment, annotator, admin):
        click_on(experiment, annotator, 5)
        void_annotator(experiment_id=experiment.pk, annotator=annotator, by=admin, reason="Spam")
        advance(experiment_id=experiment.pk)
        click_on(experiment, annotator, 5)
        assert counts.comparison_count(experiment.pk) == 5


class TestLog:
    def entries(self, experiment) -> list[tuple[str, object, str]]:
        log = experiment.audit_entries.filter(action__in=["void", "restore"]).order_by("pk")
        return [(entry.action, entry.by, entry.text) for entry in log]

    def test_what_an_editor_takes_back_and_brings_back_is_logged(self, experiment, annotator, admin):
        judgment = click(experiment, annotator)
        void_one(judgment_id=judgment.pk, by=admin, reason="Spam")
        restored = restore_judgment(judgment_id=judgment.pk, by=admin)
        void_annotator(experiment_id=experiment.pk, annotator=annotator, by=admin, reason="A robot")
        assert self.entries(experiment) == [
            ("void", admin, f"Voided judgments, 1 in all: number {judgment.pk}. Spam"),
            (
                "restore",
                admin,
                f"Restored voided judgments, 1 in all: number {judgment.pk}, as number {restored.pk}.",
            ),
            ("void", admin, "Voided judgments, 1 in all: all of ann. A robot"),
        ]

    def test_nothing_taken_back_is_not_logged(self, experiment, admin):
        void_annotator(experiment_id=experiment.pk, annotator=admin, by=admin, reason="Spam")
        assert self.entries(experiment) == []
