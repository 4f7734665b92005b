"""Several judgments of one comparison: by different people, one outcome, exact after every void."""

import numpy as np
import pytest
from django.urls import reverse

from engine.judges.rule_worker import judge_comparisons
from engine.models import Comparison, Experiment, Judgment, PairCount
from engine.selectors import counts
from engine.selectors.answers import newest_answer
from engine.services import assignments, serving
from engine.services.judging import rebuild_counts, record_answer, void_judgment
from engine.services.planning import advance
from tests.factories import (
    assign,
    assign_all,
    assign_next,
    click,
    make_experiment,
    make_user,
    write_responses,
)

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


@pytest.fixture
def people(annotator):
    return [annotator, *(make_user(name) for name in ("bob", "cleo", "dan"))]


def overlapping(people, **settings) -> Experiment:
    return make_experiment(ready=True, annotators=tuple(people), **{"overlap": 3} | settings)


def judge_as(experiment, user, outcome: float) -> Judgment:
    """Judge the next pair so that D is this for it."""
    held = assign(experiment, user)
    choice = "tie" if outcome == 0.5 else "left" if (outcome == 1.0) == held.comparison.i_on_left else "right"
    return record_answer(
        experiment_id=experiment.pk, token=held.token, annotator=user, choice=choice
    ).judgment


def exact_counts(experiment) -> list[tuple[int, str, int]]:
    """The counts bit by bit."""
    rows = PairCount.objects.filter(experiment=experiment).order_by("pk")
    return [(row.pk, row.wins_i.hex(), row.comparisons) for row in rows]


@pytest.mark.parametrize(
    ("overlap", "outcomes"), [(2, [1.0, 0.5]), (4, [1.0, 1.0, 1.0, 0.0]), (4, [0.5, 0.0, 0.0, 0.0])]
)
def test_the_quality_of_people_who_half_agree_has_a_page(overlap, outcomes, people, admin, client):
    experiment = overlapping(people[:overlap], overlap=overlap, overlap_rule="mean", allow_tie=True)
    for user, outcome in zip(people, outcomes, strict=False):
        judge_as(experiment, user, outcome)
    wins, ties = counts.wins_and_ties(experiment)
    # As many ties as the wins allow, each of which is half a win for either side.
    assert ties.tolist() == (2 * np.minimum(wins, wins.T)).tolist()
    advance(experiment_id=experiment.pk)
    client.force_login(admin)
    for tab in ("dashboard", "quality", "method"):
        assert client.get(reverse(tab, args=[experiment.pk])).status_code == 200


class TestOverlap:
    @pytest.mark.parametrize(
        ("rule", "overlap", "outcomes", "joint"),
        [
            ("majority", 3, [1.0, 0.0, 1.0], 1.0),
            ("majority", 3, [0.0, 0.0, 1.0], 0.0),
            ("majority", 3, [0.5, 0.5, 0.0], 0.0),
            ("majority", 2, [1.0, 0.0], 0.5),
            ("mean", 4, [1.0, 1.0, 1.0, 0.0], 0.75),
            ("mean", 4, [0.5, 0.0, 0.0, 0.0], 0.125),
            ("mean", 2, [1.0, 0.5], 0.75),
        ],
    )
    def test_m_judgments_by_different_people_are_one_comparison_with_one_outcome(
        self, rule, overlap, outcomes, joint, people
    ):
        experiment = overlapping(people, overlap=overlap, overlap_rule=rule, allow_tie=True)
        comparison = experiment.comparisons.order_by("pk").first()
        for user, outcome in zip(people, outcomes, strict=False):
            assert counts.comparison_count(experiment.pk) == 0
            assert judge_as(experiment, user, outcome).comparison == comparison
        comparison.refresh_from_db()
        assert (comparison.state, comparison.outcome) == ("judged", joint)
        pair = (comparison.policy_i.index, comparison.policy_j.index)
        counted = {key: count for key, count in counts.pair_counts(experiment).items() if count[1]}
        assert counted == {pair: (joint, 1)} == counts.counts_from_judgments(experiment)

    def test_nobody_is_shown_a_pair_that_they_have_judged(self, people):
        experiment = overlapping(people)
        seen = [judge_as(experiment, people[0], 1.0).comparison_id for _ in range(3)]
        assert len(set(seen)) == 3
        assert judge_as(experiment, people[1], 1.0).comparison_id == seen[0]

    def test_who_judged_everything_that_is_ready_waits_for_the_others(self, people):
        experiment = overlapping(people)
        ready = experiment.comparisons.filter(state="ready").count()
        for _ in range(ready):
            judge_as(experiment, people[0], 1.0)
        assert assign_next(experiment_id=experiment.pk, annotator=people[0]) is None
        assert experiment.comparisons.filter(state="ready").count() == ready

    def test_several_look_at_a_pair_at_a_time(self, people):
        experiment = overlapping(people)
        held = [assign(experiment, user) for user in people]
        assert len({each.comparison_id for each in held[:3]}) == 1
        assert held[3].comparison_id != held[0].comparison_id
        for user, each in zip(people, held, strict=True):
            record_answer(experiment_id=experiment.pk, token=each.token, annotator=user, choice="left")
        assert counts.comparison_count(experiment.pk) == 1

    @pytest.mark.parametrize("last", ["judges", "skips"])
    @pytest.mark.parametrize(
        ("overlap", "rule", "outcomes", "joint"),
        [(2, "majority", [1.0], 1.0), (3, "majority", [1.0, 0.0], 0.5), (4, "mean", [1.0, 1.0, 0.0], 0.625)],
    )
    def test_who_skips_is_replaced_by_nobody_and_counts_for_neither(
        self, people, last, overlap, rule, outcomes, joint
    ):
        experiment = overlapping(people, overlap=overlap, overlap_rule=rule)
        skipper, *others = people[:overlap]
        held = assign(experiment, skipper)

        def skip() -> None:
            serving.skip(experiment=experiment, token=held.token, annotator=skipper, reason="task")

        if last == "judges":
            skip()
        for user, outcome in zip(others, outcomes, strict=True):
            assert judge_as(experiment, user, outcome).comparison == held.comparison
        if last == "skips":
            skip()
        held.comparison.refresh_from_db()
        assert (held.comparison.state, held.comparison.outcome) == ("judged", joint)
        assert counts.comparison_count(experiment.pk) == 1

    def test_what_all_skipped_has_no_outcome(self, people):
        experiment = overlapping(people[:2], overlap=2)
        for user in people[:2]:
            held = assign(experiment, user)
            serving.skip(experiment=experiment, token=held.token, annotator=user, reason="task")
        held.comparison.refresh_from_db()
        assert (held.comparison.state, held.comparison.outcome) == ("discarded", None)

    def test_the_rule_judge_judges_once_whatever_the_overlap(self):
        experiment = make_experiment(judge="rule", ready=True, overlap=3)
        judge_comparisons(experiment.pk)
        comparison = Comparison.objects.filter(state="judged").first()
        assert comparison.judgments.count() == 1
        assert rebuild_counts(experiment_id=experiment.pk) == {}

    def test_taking_one_back_before_all_have_judged_changes_no_count(self, people, admin):
        experiment = overlapping(people)
        first = judge_as(experiment, people[0], 1.0)
        before = exact_counts(experiment)
        void_judgment(judgment_id=first.pk, by=admin, reason="A slip.")
        assert exact_counts(experiment) == before
        for user in people[1:3]:
            judge_as(experiment, user, 0.0)
        first.comparison.refresh_from_db()
        assert first.comparison.outcome == 0.0

    @pytest.mark.parametrize(
        "rules",
        [
            {"overlap": 1},
            {"overlap": 2, "overlap_rule": "mean"},
            {"overlap": 4, "overlap_rule": "mean"},
            {"overlap": 3, "overlap_rule": "majority"},
        ],
        ids=str,
    )
    def test_counts_are_bit_identical_after_the_last_three_are_taken_back(self, rules, people):
        experiment = overlapping(people, allow_tie=True, n_tasks=20, **rules)
        values = [1.0, 0.5, 0.0, 1.0, 0.5, 1.0, 0.0, 0.0, 0.5]
        for round_ in range(3):
            for who, user in enumerate(people):
                judge_as(experiment, user, values[(round_ + 2 * who) % len(values)])
                advance(experiment_id=experiment.pk)
                write_responses()
        standing_before = counts.comparison_count(experiment.pk)
        before = exact_counts(experiment)
        undone = []
        for user in people[:3]:
            undone.append(judge_as(experiment, user, 0.5))
            advance(experiment_id=experiment.pk)
            write_responses()
        for judgment in reversed(undone):
            serving.take_back(experiment=experiment, answer=judgment, annotator=judgment.annotator)
        assert exact_counts(experiment) == before
        assert counts.comparison_count(experiment.pk) == standing_before
        assert rebuild_counts(experiment_id=experiment.pk) == {}

    def test_rebuild_counts_mends_what_differs_by_joint_outcomes(self, people):
        experiment = overlapping(people, overlap=2, overlap_rule="mean")
        comparison = judge_as(experiment, people[0], 1.0).comparison
        judge_as(experiment, people[1], 0.0)
        before = exact_counts(experiment)
        PairCount.objects.filter(experiment=experiment).update(wins_i=7.0, comparisons=9)
        differences = rebuild_counts(experiment_id=experiment.pk)
        pair = (comparison.policy_i.index, comparison.policy_j.index)
        assert differences[pair] == ((7.0, 9), (0.5, 1))
        assert exact_counts(experiment) == before


class TestTakeBack:
    @pytest.fixture
    def experiment(self, annotator) -> Experiment:
        return make_experiment(ready=True, annotators=(annotator, make_user("bob")))

    def test_the_answer_that_was_taken_back_cannot_be_sent_again(self, experiment, annotator):
        judgment = click(experiment, annotator)
        serving.take_back(experiment=experiment, answer=judgment, annotator=annotator)
        late = record_answer(
            experiment_id=experiment.pk, token=judgment.token, annotator=annotator, choice="left"
        )
        assert not late.created
        assert counts.comparison_count(experiment.pk) == 0

    def test_a_pair_that_was_taken_back_comes_before_all_that_came_later(self, experiment, annotator):
        judgment = click(experiment, annotator)
        assign_all(experiment_id=experiment.pk, annotator=annotator, n_wanted=3)
        serving.take_back(experiment=experiment, answer=judgment, annotator=annotator)
        assignments.leave(annotator=annotator)
        again = click(experiment, annotator)
        assert again.comparison == judgment.comparison
        assert again.token != judgment.token
        assert counts.comparison_count(experiment.pk) == 1

    def test_while_a_colleague_looks_at_the_pair_it_is_taken_back_all_the_same(self, people):
        experiment = overlapping(people, overlap=2)
        judgment = judge_as(experiment, people[0], 1.0)
        theirs = assign(experiment, people[1])
        assert theirs.comparison == judgment.comparison
        again = serving.take_back(experiment=experiment, answer=judgment, annotator=people[0])
        assert newest_answer(experiment, people[0]) is None
        assert record_answer(
            experiment_id=experiment.pk, token=theirs.token, annotator=people[1], choice="left"
        ).created
        assert counts.comparison_count(experiment.pk) == 0
        assert rebuild_counts(experiment_id=experiment.pk) == {}
        assert record_answer(
            experiment_id=experiment.pk, token=again.token, annotator=people[0], choice="left"
        ).created
        assert counts.comparison_count(experiment.pk) == 1
        assert rebuild_counts(experiment_id=experiment.pk) == {}
