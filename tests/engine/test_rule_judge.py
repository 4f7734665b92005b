"""The judge that knows the right answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.judges.rule import final_answer, is_correct, judge, shows_steps
from engine.judges.rule_worker import judge_comparisons
from engine.models import Comparison, Experiment, Judgment
from engine.services.experiments import pause
from tests.backends import ScriptedBackend, system_of, user_of
from tests.factories import make_experiment, write_responses


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        # a bare answer
        ("5", "5"),
        ("five", "five"),
        ("  Five!\n", "Five"),
        ("three animals", "three animals"),
        ("first\nsecond", "first"),
        # after a marker; the last one counts
        ("The answer is 5.", "5"),
        ("Answer: five", "five"),
        ("1 + 2 = 3. Answer: three", "three"),
        ("**Answer:** 12", "12"),
        ("answer = 3.5", "3.5"),
        ("Answer:\n42", "42"),
        ("Answer: 4. No, wait. Answer: 5", "5"),
        ("The answer is 5 animals.", "5 animals"),
        ("ANSWER IS: yes. Or so I think.", "yes"),
        # a marker with nothing after it says nothing
        ("It is 4. The answer is", "It is 4"),
        # else the last word of the first sentence
        ("I count one pig and two ducks, which makes three. Nice.", "three"),
        ("The answer to your question is 7", "7"),
        ("Unscrambled, the letters give you planet; I am sure.", "planet"),
        # numbers keep their sign, their decimals and their thousands
        ("-5", "-5"),
        ("Answer: −5", "−5"),
        ("10-5", "10-5"),
        ("3.5", "3.5"),
        ("1,000", "1,000"),
        # nothing at all
        ("", ""),
        ("...", ""),
        ("?!\n", ""),
        # unicode
        ("５", "5"),
        ("Antwort: Élan vital", "Antwort Élan vital"),
        ("答え", "答え"),
    ],
)
def test_what_a_response_finally_answers(text, answer):
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("5", "5"),
        ("Five.", "5"),
        ("5", "five"),
        ("The answer is TWENTY", "20"),
        ("zero", "0"),
        ("Planet!", "planet"),
        ("STRASSE", "straße"),
        ("－５", "-5"),
        ("−5", "-5"),
        ("Answer: don't", "Don't"),
    ],
)
def test_case_punctuation_and_number_words_do_not_matter(text, reference):
    assert is_correct(text, reference)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("6", "5"),
        ("-5", "5"),
        ("5", "-5"),
        ("0.5", "5"),
        ("15", "5"),
        ("planets", "planet"),
        ("The answer is 5. But the answer is 6.", "5"),
        ("", "5"),
        ("", ""),
        ("anything", "  "),
    ],
)
def test_another_answer_is_wrong_and_without_a_reference_nothing_is_right(text, reference):
    assert not is_correct(text, reference)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("5", False),
        ("The answer is 5.", False),
        ("two plus three makes five. Answer: 5", True),
        ("One pig. Two ducks. Three in all, so the answer is 3", True),
    ],
)
def test_whether_a_response_shows_its_steps(text, steps):
    assert shows_steps(text) is steps


STEPS = "First there are two, then three more. Answer: 5"
DIRECT = "Answer: 5"


@pytest.mark.parametrize(
    ("left", "right", "prefer", "choice", "reason"),
    [
        ("Answer: 5", STEPS.replace("5", "6"), "steps", "left", "Only this response is correct."),
        ("6", "5", "concise", "right", "Only this response is correct."),
        (STEPS, DIRECT, "steps", "left", "Both are correct; this one shows its steps."),
        (DIRECT, STEPS, "steps", "right", "Both are correct; this one shows its steps."),
        (STEPS, DIRECT, "concise", "right", "Both are correct; this one is more concise."),
        (DIRECT, "5", "steps", "right", "Both are correct; this one is more concise."),
        (STEPS, "Well now: " + STEPS, "steps", "left", "Both are correct; this one is more concise."),
        ("5", "  5\n", "steps", None, "Both are correct and equally long: a fair coin."),
        ("6", STEPS.replace("5", "7"), "steps", None, "Both are wrong: a fair coin."),
        ("", "", "concise", None, "Both are wrong: a fair coin."),
    ],
)
def test_the_verdicts_of_the_rule(left, right, prefer, choice, reason):
    verdict = judge(left=left, right=right, reference="5", prefer=prefer, seed=3)
    assert verdict.reason == reason
    if choice is not None:
        assert verdict.choice == choice


TEXTS = st.text(max_size=40) | st.sampled_from(["5", "five", "6", DIRECT, STEPS, STEPS + " Answer: 7"])
SEEDS = st.integers(0, 2**31 - 1)
PREFERENCES = st.sampled_from(["steps", "concise"])


@given(TEXTS, TEXTS, PREFERENCES, SEEDS)
def test_swapping_the_sides_swaps_the_verdict_unless_a_coin_decided(left, right, prefer, seed):
    one = judge(left=left, right=right, reference="5", prefer=prefer, seed=seed)
    other = judge(left=right, right=left, reference="5", prefer=prefer, seed=seed)
    assert one.reason == other.reason
    if "coin" not in one.reason:
        assert {one.choice, other.choice} == {"left", "right"}


@given(TEXTS, st.sampled_from(["5", "Five!", DIRECT, STEPS, "the answer is five"]), PREFERENCES, SEEDS)
def test_a_correct_response_always_beats_an_incorrect_one(wrong, right, prefer, seed):
    if is_correct(wrong, "5"):
        return
    assert judge(left=wrong, right=right, reference="5", prefer=prefer, seed=seed).choice == "right"
    assert judge(left=right, right=wrong, reference="5", prefer=prefer, seed=seed).choice == "left"


@given(TEXTS, TEXTS, st.text(max_size=10), PREFERENCES, SEEDS)
def test_the_same_comparison_is_always_judged_the_same_way(left, right, reference, prefer, seed):
    arguments = {"left": left, "right": right, "reference": reference, "prefer": prefer, "seed": seed}
    verdict = judge(**arguments)
    assert verdict == judge(**arguments)
    assert verdict.choice in {"left", "right"}


def test_the_coin_is_fair():
    lefts = sum(
        judge(left="6", right="7", reference="5", prefer="steps", seed=seed).choice == "left"
        for seed in range(2000)
    )
    assert abs(lefts - 1000) < 4 * (2000 / 4) ** 0.5


@pytest.mark.django_db
class TestJudgeComparisons:
    def test_every_ready_comparison_is_judged_once_and_counted_for_the_right_policy(self):
        experiment = make_experiment(judge="rule", n_policies=2)
        best = experiment.policies.get(index=1)
        write_responses(
            ScriptedBackend(
                lambda request: (
                    user_of(request)[len("What is ")] if system_of(request) == "quality 1" else "?"
                )
            )
        )
        n = experiment.comparisons.count()
        assert judge_comparisons(experiment.pk) == n
        assert judge_comparisons(experiment.pk) == 0
        for judgment in Judgment.objects.select_related("comparison"):
            chosen = judgment.comparison.left if judgment.choice == "left" else judgment.comparison.right
            assert chosen.policy == best
            assert judgment.outcome == 0.0
            assert (judgment.judge, judgment.via) == ("rule", "rule")
            assert judgment.reason == "Only this response is correct."
        assert Judgment.objects.count() == n

    def test_a_comparison_that_is_still_being_written_waits(self):
        experiment = make_experiment(judge="rule")
        assert judge_comparisons(experiment.pk) == 0

    def test_experiments_of_people_are_left_to_people(self):
        experiment = make_experiment(ready=True)
        assert judge_comparisons(experiment.pk) == 0
        assert set(experiment.comparisons.values_list("state", flat=True)) == {"ready"}

    def test_a_paused_experiment_is_not_judged(self):
        experiment = make_experiment(ready=True, judge="rule")
        pause(experiment_id=experiment.pk)
        assert judge_comparisons(experiment.pk) == 0

    def test_the_preference_of_the_experiment_decides_between_two_correct_responses(self):
        winners = {}
        for preference in Experiment.RulePreference:
            experiment = make_experiment(judge="rule", n_policies=2, rule_preference=preference)
            write_responses(
                ScriptedBackend(
                    lambda request: (
                        (
                            "Let me see what that could possibly be. "
                            if system_of(request) == "quality 1"
                            else ""
                        )
                        + f"Answer: {user_of(request)[len('What is ')]}"
                    )
                )
            )
            judge_comparisons(experiment.pk)
            outcomes = Judgment.objects.filter(comparison__experiment=experiment)
            winners[preference] = set(outcomes.values_list("outcome", flat=True))
        assert winners == {"steps": {0.0}, "concise": {1.0}}
        assert not Comparison.objects.filter(state="ready").exists()


@pytest.mark.parametrize("text", ["There are 3.", "It is three", "3"])
def test_a_short_sentence_is_right_where_its_last_word_is(text):
    assert is_correct(text, "3")
    assert not is_correct(text, "4")


@pytest.mark.django_db
def test_by_setting_the_rule_lets_no_answer_lose():
    experiment = make_experiment(ready=True, judge="rule", no_answer="loses")
    silent, *answered = experiment.comparisons.filter(state="ready").order_by("number")
    silent.response_i.text = ""
    silent.response_i.save()
    judge_comparisons(experiment.pk)
    assert Judgment.objects.get(comparison=silent).outcome == 0.0
    assert Judgment.objects.filter(comparison__in=answered).count() == len(answered) > 0
