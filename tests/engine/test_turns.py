"""Annotators take turns, so that no one's session weighs on a pair of policies alone."""

import pytest

from engine.importing.votes import Vote, Winner
from engine.models import Comparison, Experiment, Judgment, PairCount
from engine.models.append_only import lifted
from engine.selectors.annotators import long_solo_runs
from engine.services.past_votes import start_from_votes
from engine.services.planning import advance
from tests.factories import assign, click, make_experiment, make_user, write_responses

pytestmark = pytest.mark.django_db


def pair_of(comparison: Comparison) -> tuple[int, int]:
    return comparison.policy_i.index, comparison.policy_j.index


class TestServing:
    def test_a_pair_goes_to_somebody_other_than_its_last_judge_where_possible(self, annotator):
        ben = make_user("ben")
        experiment = make_experiment(
            n_policies=3, sampler="round_robin", ready=True, annotators=(annotator, ben)
        )
        waiting = experiment.comparisons.filter(state="ready").order_by("pk")
        oldest = waiting.first()
        PairCount.objects.filter(
            experiment=experiment, policy_i=oldest.policy_i, policy_j=oldest.policy_j
        ).update(last_annotator=annotator)
        assert pair_of(assign(experiment, annotator).comparison) != pair_of(oldest)
        assert assign(experiment, ben).comparison == oldest

    def test_the_person_who_completes_a_comparison_is_the_last_one_of_its_pair(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        judged = click(experiment, annotator).comparison
        row = PairCount.objects.get(last_annotator=annotator)
        assert (row.policy_i, row.policy_j) == (judged.policy_i, judged.policy_j)

    def test_nobody_waits_for_their_turn(self, annotator):
        experiment = make_experiment(n_policies=2, ready=True, annotators=(annotator, make_user("ben")))
        first = click(experiment, annotator).comparison
        assert pair_of(assign(experiment, annotator).comparison) == pair_of(first)


class TestSoloRuns:
    def run(self, experiment: Experiment, *people_and_clicks: tuple[object, int]) -> None:
        for person, n_clicks in people_and_clicks:
            for _ in range(n_clicks):
                click(experiment, person)
                advance(experiment_id=experiment.pk)
                write_responses()

    def test_the_longest_run_of_one_person_is_found(self, annotator):
        ben = make_user("ben")
        experiment = make_experiment(ready=True, annotators=(annotator, ben), delta=1e-6)
        self.run(experiment, (annotator, 2), (ben, 4), (annotator, 3))
        [run] = long_solo_runs(experiment, longer_than=3)
        assert (run.annotator, run.start, run.length) == ("ben", 2, 4)
        assert long_solo_runs(experiment) == [], "four are no long run"

    def test_a_vote_of_somebody_unknown_ends_a_run_and_a_tie_of_identical_texts_does_not(self):
        """Those without an annotator were passed over, so "nobody else's in between" was untrue."""
        who = ["ann"] * 3 + [""] + ["ann"] * 2 + [""] * 4 + ["ben"]
        votes = [
            Vote(f"line {n}", f"T{n}", "P", "Q", Winner.TIE, annotator=name) for n, name in enumerate(who)
        ]
        experiment = start_from_votes(name="Past", votes=votes)
        [run] = long_solo_runs(experiment, longer_than=2)
        assert (run.annotator, run.start, run.length) == (f"ann@import-{experiment.pk}", 0, 3)
        with lifted():
            Judgment.objects.filter(annotator=None).update(via="identical", judge="rule")
        [run] = long_solo_runs(experiment, longer_than=2)
        assert (run.annotator, run.length) == (f"ann@import-{experiment.pk}", 5)

    def test_one_person_alone_has_nobody_to_take_turns_with(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,), delta=1e-6)
        self.run(experiment, (annotator, 3))
        assert long_solo_runs(experiment, longer_than=2) == []
