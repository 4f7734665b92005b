"""Bringing voided judgments back, and voiding all of one annotator's."""

import numpy as np
import pytest

from engine.domain.errors import WrongStateError
from engine.models import Experiment, Judgment, JudgmentVoid, User
from engine.models.append_only import lifted
from engine.selectors import counts, designs
from engine.selectors.snapshots import latest_snapshot
from engine.services import serving
from engine.services.experiments import pause, stop
from engine.services.judging import rebuild_counts, record_answer, void_judgment
from engine.services.planning import advance
from engine.services.voids import restore_judgment, void_annotator, void_one
from tests.factories import (
    assign,
    assign_all,
    click,
    click_on,
    make_experiment,
    make_user,
    skip,
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
    snapshot = latest_snapshot(experiment)
    replayed = designs.replay(experiment).design
    assert snapshot.comparisons == counts.comparison_count(experiment.pk)
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
        held = assign(experiment, annotator)
        judgment = record_answer(
            experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left", via="api"
        ).judgment
        void_judgment(judgment_id=judgment.pk, by=admin, reason="A slip.")
        assert restore_judgment(judgment_id=judgment.pk, by=admin).via == "api"

    def test_counts_are_those_of_before_the_void_to_the_bit(self, annotator, admin):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        click_on(experiment, annotator, 11)
        before = designs.load(experiment).design.wins
        restore_judgment(judgment_id=void(click_of(experiment, 3), admin).pk)
        assert np.array_equal(before, designs.load(experiment).design.wins)
        assert_counts_are_those_of_the_judgments(experiment)

    def test_void_and_restore_may_go_on_for_ever(self, experiment, annotator, admin):
        judgment = click(experiment, annotator)
        for _ in range(3):
            judgment = restore_judgment(judgment_id=void(judgment, admin).pk)
        assert counts.comparison_count(experiment.pk) == 1
        void(judgment, admin)
        assert counts.comparison_count(experiment.pk) == 0
        assert_counts_are_those_of_the_judgments(experiment)

    def test_a_restored_pair_is_not_shown_to_its_annotator_again(self, annotator, admin):
        other = make_user()
        experiment = make_experiment(ready=True, annotators=(annotator, other), overlap=2)
        old = void(click(experiment, annotator), admin)
        restore_judgment(judgment_id=old.pk)
        held = assign_all(experiment_id=experiment.pk, annotator=annotator)
        assert held
        assert old.comparison_id not in {each.comparison_id for each in held}
        assert assign(experiment, other).comparison_id == old.comparison_id

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

    def test_of_a_pair_judged_anew_by_the_same_person(self, experiment, annotator):
        old = taken_back(experiment, annotator)
        assert click(experiment, annotator).comparison == old.comparison
        self.refused(old, "ann has judged")

    def test_of_a_pair_that_somebody_looks_at(self, experiment, annotator):
        self.refused(taken_back(experiment, annotator), "looking")

    def test_of_a_pair_that_was_skipped_after_all(self, experiment, annotator):
        old = taken_back(experiment, annotator)
        held = assign(experiment, annotator)
        assert held.comparison == old.comparison
        skip(experiment_id=experiment.pk, token=held.token, annotator=annotator)
        self.refused(old, "discarded")


def taken_back(experiment: Experiment, annotator: User) -> Judgment:
    """An answer that its own annotator took back."""
    judgment = click(experiment, annotator)
    serving.take_back(experiment=experiment, answer=judgment, annotator=annotator)
    return judgment


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
        found = set(voided.values_list("comparison__state", "comparison__outcome"))
        assert found == {("discarded", None)}

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
        # What the other one said counts alone, and nobody judges the pairs in place of the first.
        assert counts.comparison_count(experiment.pk) == 3
        assert_counts_are_those_of_the_judgments(experiment)
        outcomes = experiment.comparisons.filter(state="judged").values_list("outcome", flat=True)
        assert set(outcomes) <= {0.25, 0.75}
        assert click(experiment, other).comparison == half.comparison
        assert counts.comparison_count(experiment.pk) == 4
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
