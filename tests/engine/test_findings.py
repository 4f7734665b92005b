"""The claim of an experiment: which one stops it, which hold besides, and the sentence of its conclusion."""

from dataclasses import replace

import pytest
from django.template.loader import render_to_string

from engine.core import Claim
from engine.domain.claim_settings import Rules, completed
from engine.domain.errors import SpecError, WrongStateError
from engine.importing.votes import Vote, Winner
from engine.models import Evidence, Experiment, Notification, User, clock
from engine.selectors import consequences, specs
from engine.selectors.findings import ladder
from engine.selectors.snapshots import latest_snapshot
from engine.services.drafts import clone, create_experiment
from engine.services.experiments import stop_on
from engine.services.judging import record_answer
from engine.services.past_votes import start_from_votes
from engine.services.planning import advance
from engine.services.setting_changes import change_settings, reopen
from tests.factories import assign, click_for, make_experiment, make_spec, subscribed, write_responses
from tests.markup import text_of

pytestmark = pytest.mark.django_db


def judge_until_held(experiment: Experiment, annotators: tuple[User, ...], claim: str) -> None:
    """The policy of the lower index always wins; one annotator after the other."""
    for number in range(200):
        if any(rung.holds and rung.claim == claim for rung in ladder(experiment).rungs):
            return
        click_for(experiment, annotators[number % len(annotators)], lambda i, j: i < j)
        advance(experiment_id=experiment.pk)
        write_responses()
        experiment.refresh_from_db()
    raise AssertionError("the claim never held")


@pytest.fixture
def good_enough(annotator) -> Experiment:
    """It is to stop on "best", and "good enough" holds already."""
    experiment = make_experiment(
        n_policies=2, ready=True, annotators=(annotator,), claim="best", epsilon=0.2, delta=0.1
    )
    judge_until_held(experiment, (annotator,), "good_enough")
    assert experiment.state == "running"
    return experiment


class TestChoice:
    def test_a_new_experiment_is_to_find_one_that_is_good_enough_by_five_points(self):
        spec = make_spec()
        experiment = create_experiment(spec=replace(spec, settings={}))
        assert (experiment.claim, experiment.epsilon) == ("good_enough", 0.05)
        assert Experiment().claim == "good_enough"

    @pytest.mark.parametrize(
        ("given", "claim", "margin"),
        [
            ({}, "good_enough", 0.05),
            ({"claim": "best"}, "best", 0.0),
            ({"claim": "best_if_any"}, "best_if_any", 0.0),
            ({"claim": "best_if_any", "epsilon": 0.1}, "best_if_any", 0.1),
            ({"epsilon": 0.02}, "good_enough", 0.02),
            ({"stopping": "heuristic"}, "best_if_any", 0.0),
        ],
    )
    def test_each_claim_has_its_usual_margin(self, given, claim, margin):
        settings = completed(given)
        assert (settings["claim"], settings["epsilon"]) == (claim, margin)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (
                {"claim": "good_enough", "epsilon": 0.0},
                "epsilon: the claim good_enough needs a margin above 0",
            ),
            ({"claim": "best", "stopping": "heuristic"}, "claim: the heuristic stop can only look for"),
            ({"claim": "first"}, "claim: "),
        ],
    )
    def test_a_claim_that_cannot_be_is_refused(self, given, message):
        with pytest.raises(SpecError, match=message):
            create_experiment(spec=make_spec(**given))

    def test_the_margin_of_best_is_no_part_of_its_forecast(self):
        experiment = make_experiment(running=False, claim="best", epsilon=0.1)
        rules = Rules.of(experiment)
        assert (rules.design()["epsilon"], rules.plan()["epsilon"]) == (0.1, 0.0)

    def test_it_is_part_of_the_description_and_of_a_copy(self, admin):
        experiment = make_experiment(running=False, claim="best", epsilon=0.1)
        assert specs.experiment_spec(experiment).settings["claim"] == "best"
        assert clone(experiment=experiment, by=admin, name="Copy").claim == "best"

    def test_it_stops_on_its_claim(self, annotator):
        stopped = {}
        for claim in Claim:
            experiment = make_experiment(
                ready=True, annotators=(annotator,), claim=claim.value, epsilon=0.2, delta=0.2
            )
            judge_until_held(experiment, (annotator,), claim.value)
            assert (experiment.conclusion, experiment.certified_claim) == ("certified", claim)
            assert experiment.winner.index == 0
            [text] = [rung.text for rung in ladder(experiment).rungs if rung.claim == claim]
            assert experiment.finding.startswith(text)
            stopped[claim] = latest_snapshot(experiment).comparisons
        assert stopped[Claim.GOOD_ENOUGH] < stopped[Claim.BEST]


def ladder_of(experiment: Experiment) -> dict[Claim, bool]:
    return {rung.claim: rung.holds for rung in ladder(experiment).rungs}


class TestLadder:
    def test_it_says_which_claims_hold(self, good_enough):
        found = ladder(good_enough)
        assert [(rung.claim, rung.holds, rung.stops) for rung in found.rungs] == [
            ("good_enough", True, False),
            ("best_if_any", False, False),
            ("best", False, True),
        ]
        assert found.rungs[0].text.startswith(
            "Prompt 0 loses to no other policy by more than 20 points (none wins more than 70% against it); "
        )
        assert found.joint_risk == pytest.approx(0.3)

    def test_a_claim_that_follows_from_best_is_not_open_and_nobody_stops_on_it(self, annotator, admin):
        experiment = make_experiment(n_policies=2, ready=True, annotators=(annotator,), delta=0.1)
        judge_until_held(experiment, (annotator,), "best")
        assert experiment.state == "running"
        follows, best = ladder(experiment).rungs
        assert (follows.claim, follows.holds, follows.follows_from) == ("best_if_any", False, "best")
        assert (best.holds, best.follows_from) == (True, None)
        assert (follows.policy, follows.n_open) == (0, 0)
        assert "it is Prompt 0; this follows from “Prompt 0 beats every other policy”" in follows.text
        page = {"ladder": ladder(experiment), "experiment": experiment, "may_stop": True, "may_run": True}
        said = text_of(render_to_string("dashboard/_ladder.html", page))
        assert "Best, if there is a best stops here follows from “best” ✓ Best" in said
        assert "Not established" not in said
        assert said.count("Stop here…") == 1
        with pytest.raises(WrongStateError, match=r"hold by itself\. If some policy .* this follows from"):
            stop_on(experiment_id=experiment.pk, claim="best_if_any", by=admin)

    def test_two_claims_that_exclude_each_other_say_so_on_the_card(self, annotator):
        experiment = make_experiment(n_policies=2, ready=True, annotators=(annotator,), delta=0.1)
        judge_until_held(experiment, (annotator,), "best")
        # The streams may rule out every policy where the proof of "best" has none of them.
        progress = experiment.evidence.progress | {"peak_evidence": [9.0, 9.0]}
        Evidence.objects.filter(experiment=experiment).update(progress=progress)
        page = {"ladder": ladder(experiment), "experiment": experiment, "may_stop": True}
        said = text_of(render_to_string("dashboard/_ladder.html", page))
        assert "✓ Best it beats every other; the evidence also says the opposite, see Details" in said
        assert "Prompt 0 beats every other policy; the risk" in said
        assert (
            "The evidence also establishes that no policy beats every other. One of the two is wrong" in said
        )
        assert "The evidence also establishes that Prompt 0 beats every other policy. One of the two" in said

    def test_each_claim_is_defined_whether_it_holds_or_not(self, good_enough):
        """A claim that did not hold had a number of comparisons, which the sentence above it says, and no
        meaning.
        """
        page = {"ladder": ladder(good_enough), "experiment": good_enough, "may_stop": True}
        said = text_of(render_to_string("dashboard/_ladder.html", page))
        assert "✓ Good enough no other wins more than 70% of its comparisons with it" in said
        assert "Best stops here to be shown: it beats every other" in said

    def test_without_a_margin_there_is_no_good_enough(self):
        experiment = make_experiment(claim="best_if_any")
        assert list(ladder_of(experiment)) == ["best_if_any", "best"]
        assert ladder(experiment).joint_risk == pytest.approx(0.1)

    def test_another_stop_than_the_certified_one_makes_no_claims(self):
        assert ladder(make_experiment(stopping="heuristic")).rungs == []


class TestStopOn:
    def test_it_concludes_on_that_claim_and_says_the_risk_of_choosing_after_looking(self, good_enough, admin):
        subscribed(good_enough)
        stop_on(experiment_id=good_enough.pk, claim="good_enough", by=admin)
        good_enough.refresh_from_db()
        assert (good_enough.state, good_enough.conclusion) == ("concluded", "certified")
        assert (good_enough.certified_claim, good_enough.winner.index) == ("good_enough", 0)
        assert "loses to no other policy by more than 20 points" in good_enough.finding
        assert (
            "looking at 3 claims; the risk that any of them is ever made wrongly is at most 30%."
            in good_enough.finding
        )
        entry = good_enough.audit_entries.first()
        assert (entry.action, entry.by) == ("stop_on", admin)
        assert "on the claim “good enough”. Prompt 0 loses to no other" in entry.sentence
        assert good_enough.finding in Notification.objects.get().text
        assert "Use Prompt 0" in Notification.objects.get().subject

    def test_a_claim_that_does_not_hold_stops_nothing(self, good_enough, admin):
        for claim in ("best", "best_if_any"):
            with pytest.raises(WrongStateError, match="Not established yet"):
                stop_on(experiment_id=good_enough.pk, claim=claim, by=admin)
        good_enough.refresh_from_db()
        assert good_enough.state == "running"

    def test_it_can_be_reopened_and_goes_on_to_its_own_claim(self, good_enough, admin):
        # It waited for the pairs on a screen alone, as most do at their end.
        Experiment.objects.filter(pk=good_enough.pk).update(closing_since=clock.now())
        stop_on(experiment_id=good_enough.pk, claim="good_enough", by=admin)
        reopen(experiment_id=good_enough.pk, by=admin)
        good_enough.refresh_from_db()
        assert (good_enough.state, good_enough.certified_claim, good_enough.finding) == ("running", "", "")
        assert good_enough.closing_since is None
        assert ladder_of(good_enough)["good_enough"], "a name once given stays"


ALONE = "It rests on the judgments of one person alone."


class TestWhose:
    def test_the_sentence_says_when_it_rests_on_one_person(self, annotator):
        for people in ((annotator,), (annotator, User.objects.create_user("ben"))):
            experiment = make_experiment(
                n_policies=2, ready=True, annotators=people, epsilon=0.3, claim="good_enough", delta=0.3
            )
            judge_until_held(experiment, people, "good_enough")
            assert (ALONE in experiment.finding) == (len(people) == 1)

    def test_so_does_each_claim_that_holds_before_the_end(self, good_enough):
        """Only the conclusion said so, and who asked to stop read it too late."""
        assert [ALONE in rung.text for rung in ladder(good_enough).rungs] == [True, False, False]

    def test_who_judges_after_the_decision_has_no_part_in_it(self, annotator):
        ben = User.objects.create_user("ben")
        experiment = make_experiment(
            n_policies=2, ready=True, annotators=(annotator, ben), epsilon=0.3, claim="good_enough", delta=0.3
        )
        held = assign(experiment, ben)
        judge_until_held(experiment, (annotator,), "good_enough")
        record_answer(experiment_id=experiment.pk, token=held.token, annotator=ben, choice="left")
        [said] = [rung.text for rung in ladder(experiment).rungs if rung.stops]
        assert ALONE in said

    @pytest.mark.parametrize(("names", "alone"), [([""], False), (["ann"], True), (["ann", ""], False)])
    def test_of_votes_without_a_name_nobody_knows_whose_they_are(self, names, alone):
        """120 votes of unknown people were said to be one person's."""
        votes = [
            Vote(f"line {n}", f"T{n % 7}", "P", "Q", Winner.A, annotator=names[n % len(names)])
            for n in range(120)
        ]
        experiment = start_from_votes(name="Past", votes=votes)
        advance(experiment_id=experiment.pk)
        experiment.refresh_from_db()
        said = [rung.text for rung in ladder(experiment).rungs if rung.holds]
        assert said
        assert [ALONE in text for text in said] == [alone] * len(said)


class TestChange:
    def test_a_claim_chosen_after_looking_has_the_risk_of_all_of_them(self, good_enough, admin):
        change_settings(experiment_id=good_enough.pk, by=admin, claim="good_enough")
        good_enough.refresh_from_db()
        assert (good_enough.claim, good_enough.first_claim) == ("good_enough", "best")
        sentence = good_enough.audit_entries.first().sentence
        assert sentence.startswith("Changed the claim to stop on from “best” to “good enough”.")
        # The dashboard has 30%, of the three claims there: a fourth could be chosen here.
        chosen = (
            "four claims together "
            "(the three on the dashboard, and “best, if there is a best” with the margin)"
        )
        assert f"has the risk of {chosen}: at most 40% instead of 10%" in sentence
        assert consequences.caveats(good_enough) == [
            "The claim was changed from “best” to “good enough” after "
            "outcomes had been seen, so the risk is up to 40% instead of 10%. "
            f"It is that of {chosen}."
        ]
        advance(experiment_id=good_enough.pk)
        good_enough.refresh_from_db()
        assert good_enough.certified_claim == "good_enough"

    def test_who_then_stops_on_yet_another_one_is_told_the_same_risk(self, good_enough, admin):
        """The question and the conclusion said 30%, and the caveat beside them 40%."""
        change_settings(experiment_id=good_enough.pk, by=admin, claim="best_if_any")
        advance(experiment_id=good_enough.pk)
        good_enough.refresh_from_db()
        found = ladder(good_enough)
        assert (len(found.rungs), found.n_claims, found.joint_risk) == (3, 4, pytest.approx(0.4))
        stop_on(experiment_id=good_enough.pk, claim="good_enough", by=admin)
        good_enough.refresh_from_db()
        assert "looking at 4 claims; the risk that any of them is ever made wrongly is at most 40%." in (
            good_enough.finding
        )

    def test_before_anybody_saw_an_outcome_it_is_free(self, admin):
        experiment = make_experiment(claim="best")
        change_settings(experiment_id=experiment.pk, by=admin, claim="good_enough", epsilon=0.1)
        experiment.refresh_from_db()
        assert (experiment.claim, experiment.first_claim) == ("good_enough", "")
        assert consequences.caveats(experiment) == []

    def test_good_enough_needs_a_margin(self, admin):
        experiment = make_experiment(claim="best")
        with pytest.raises(SpecError, match="needs a margin above 0"):
            change_settings(experiment_id=experiment.pk, by=admin, claim="good_enough")
