"""Practice, gold items and repeats: what they show, when they come, and that they never count."""

import uuid
from itertools import pairwise

import pytest

from engine.domain import secret_draws
from engine.domain.errors import AssignmentLostError, SpecError, UnknownTokenError
from engine.models import Assignment, Experiment, Flag, GoldItem, Judgment, User
from engine.models.append_only import lifted
from engine.selectors import admission, answers, browsing, counts
from engine.selectors.annotators import check_results
from engine.services import serving
from engine.services.checks import check_due
from engine.services.experiments import pause
from engine.services.judging import rebuild_counts, void_judgment
from engine.services.planning import advance
from tests.factories import click, click_on, make_experiment, make_user, write_responses

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_admission(monkeypatch: pytest.MonkeyPatch) -> None:
    """These answers are not meant to be right; `test_admission.py` has those that are."""
    monkeypatch.setattr(admission, "ADMISSION_ITEMS", 0)


def draw(experiment: Experiment, annotator, shown: int) -> float:
    """The secret coin of the pair that comes after ``shown`` others."""
    return secret_draws.check_draw(experiment.secret, annotator.pk, shown)


def show(experiment: Experiment, annotator):
    return serving.show_next(experiment=experiment, annotator=annotator)


def answer(experiment: Experiment, annotator, token, choice="left", **fields):
    return serving.answer(
        experiment_id=experiment.pk, token=token, annotator=annotator, choice=choice, **fields
    )


def work(experiment: Experiment, annotator, n_pairs: int) -> list[str]:
    """Answer pair after pair; which kind each was."""
    kinds = []
    for _ in range(n_pairs):
        shown = show(experiment, annotator)
        check = Assignment.objects.checks().filter(token=shown.token).first()
        kinds.append(check.kind if check else "comparison")
        answer(experiment, annotator, shown.token)
        advance(experiment_id=experiment.pk)
        write_responses()
    return kinds


class TestPractice:
    def test_it_comes_first_all_of_it_and_only_once(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,), practice=3, n_gold=5)
        assert work(experiment, annotator, 5) == ["practice"] * 3 + ["comparison"] * 2

    def test_it_says_that_it_is_practice_and_which_was_right_and_why(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,), practice=2, n_gold=2)
        for number, right in enumerate((True, False)):
            shown = show(experiment, annotator)
            assert shown.practice
            assert (shown.prompt, {shown.left, shown.right}) == (
                f"Gold {number}",
                {f"right {number}", f"wrong {number}"},
            )
            better = "left" if shown.left.startswith("right") else "right"
            choice = better if right else {"left": "right", "right": "left"}[better]
            told = answer(experiment, annotator, shown.token, choice).feedback
            side = {"left": "A", "right": "B"}[better]
            # The page shows it above the next pair, which may count: it names the pair that it speaks of.
            verdict = (
                "The last practice pair: right."
                if right
                else f"In the last practice pair, {side} was the better one."
            )
            assert told == f"{verdict} Reason {number}."
        assert list(Assignment.objects.checks().order_by("pk").values_list("passed", flat=True)) == [
            True,
            False,
        ]

    def test_each_annotator_has_a_practice_of_their_own(self, annotator):
        other = make_user()
        experiment = make_experiment(ready=True, annotators=(annotator, other), practice=1, n_gold=1)
        assert work(experiment, annotator, 2) == work(experiment, other, 2) == ["practice", "comparison"]

    def test_an_experiment_with_more_practice_than_gold_is_refused(self):
        with pytest.raises(SpecError, match="Practice pairs are gold items"):
            make_experiment(running=False, practice=2, n_gold=1)

    def test_it_waits_while_the_experiment_does_not_run(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,), practice=1, n_gold=1)
        pause(experiment_id=experiment.pk)
        experiment.refresh_from_db()
        assert show(experiment, annotator) is None
        assert not Assignment.objects.checks().exists()


class TestGold:
    def test_it_comes_where_the_secret_coin_says_and_nowhere_else(self, annotator):
        experiment = make_experiment(
            ready=True, annotators=(annotator,), gold_rate=0.4, n_gold=40, n_tasks=50
        )
        expected = ["gold" if draw(experiment, annotator, n) < 0.4 else "comparison" for n in range(25)]
        assert set(expected) == {"gold", "comparison"}
        assert work(experiment, annotator, 25) == expected

    def test_pairs_fetched_ahead_follow_the_same_coin(self, annotator):
        """Else no check follows another, and somebody who knows one knows the next pair for none."""
        experiment = make_experiment(
            ready=True, annotators=(annotator,), gold_rate=0.5, n_gold=40, n_tasks=50
        )
        kinds: list[bool] = []
        for n in range(40):
            held = serving.desk(experiment=experiment, annotator=annotator, n_wanted=min(n + 1, 3)).pairs
            is_gold = held[-1].comparison_id is None
            assert is_gold is (draw(experiment, annotator, n) < 0.5)
            kinds.append(is_gold)
            if len(held) == 3:
                answer(experiment, annotator, held[0].token)
            advance(experiment_id=experiment.pk)
            write_responses()
        assert (True, True) in pairwise(kinds)

    def test_no_item_is_shown_twice_to_one_annotator_nor_one_of_the_practice_again(self, annotator):
        experiment = make_experiment(
            ready=True, annotators=(annotator,), gold_rate=0.5, practice=2, n_gold=4, n_tasks=50
        )
        kinds = work(experiment, annotator, 26)
        assert kinds.count("practice") + kinds.count("gold") == 4
        assert sorted(Assignment.objects.checks().values_list("gold", flat=True)) == sorted(
            GoldItem.objects.values_list("pk", flat=True)
        )

    def test_it_does_not_give_itself_away(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,), gold_rate=0.5, n_gold=20)
        while not Assignment.objects.checks().filter(kind="gold").exists():
            shown = show(experiment, annotator)
            told = answer(experiment, annotator, shown.token)
            assert (shown.practice, told.feedback) == (False, "")
            advance(experiment_id=experiment.pk)
            write_responses()

    def test_the_better_one_is_on_either_side(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,), practice=24, n_gold=24)
        sides = set()
        for _ in range(24):
            shown = show(experiment, annotator)
            check = Assignment.objects.checks().get(token=shown.token)
            assert check.expected == ("left" if shown.left.startswith("right") else "right")
            sides.add(check.expected)
            answer(experiment, annotator, shown.token)
        assert sides == {"left", "right"}


@pytest.fixture(scope="class")
def judged_once(shared_rows: None) -> tuple[int, int]:
    """The keys of an experiment with enough judgments to repeat, and of its annotator."""
    annotator = make_user("ann")
    experiment = make_experiment(ready=True, annotators=(annotator,), n_tasks=50, seed=2)
    click_on(experiment, annotator, 14)
    Experiment.objects.filter(pk=experiment.pk).update(repeat_rate=0.5)
    return experiment.pk, annotator.pk


class TestRepeats:
    @pytest.fixture
    def experiment(self, judged_once: tuple[int, int], db: None) -> Experiment:
        return Experiment.objects.get(pk=judged_once[0])

    @pytest.fixture
    def annotator(self, judged_once: tuple[int, int], db: None) -> User:
        return User.objects.get(pk=judged_once[1])

    def a_repeat(self, experiment, annotator) -> tuple[Assignment, serving.ShownPair]:
        for _ in range(20):
            shown = show(experiment, annotator)
            check = Assignment.objects.checks().filter(token=shown.token).first()
            if check is not None:
                return check, shown
            answer(experiment, annotator, shown.token)
            advance(experiment_id=experiment.pk)
            write_responses()
        pytest.fail("The coin never said repeat.")

    def test_it_shows_an_own_earlier_pair_with_its_sides_swapped(self, experiment, annotator):
        check, shown = self.a_repeat(experiment, annotator)
        first = check.repeated
        assert check.kind == "repeat"
        assert first.annotator == annotator
        assert (shown.left, shown.right) == (first.comparison.right.text, first.comparison.left.text)
        assert shown.prompt == first.comparison.task.prompt

    def test_at_least_ten_other_answers_lie_in_between(self, experiment, annotator):
        check, _ = self.a_repeat(experiment, annotator)
        later = Judgment.objects.filter(annotator=annotator, pk__gt=check.repeated_id)
        assert later.count() >= 10

    @pytest.mark.parametrize(("first", "agrees"), [("left", "right"), ("right", "left")])
    def test_who_prefers_the_same_response_again_agrees(self, first, agrees, experiment, annotator):
        with lifted():
            Judgment.objects.update(choice=first)
        check, shown = self.a_repeat(experiment, annotator)
        assert check.expected == agrees
        answer(experiment, annotator, shown.token, agrees)
        given = Judgment.objects.get(token=shown.token)
        assert (given.comparison, given.assignment, given.choice) == (None, check, agrees)
        check.refresh_from_db()
        assert check.passed is True

    def test_who_chooses_the_same_side_again_does_not(self, experiment, annotator):
        check, shown = self.a_repeat(experiment, annotator)
        answer(experiment, annotator, shown.token, "left")
        check.refresh_from_db()
        assert check.passed is False

    def test_a_judgment_is_repeated_once_and_never_one_that_was_taken_back_or_chose_no_side(
        self, experiment, annotator, admin
    ):
        taken_back, tied = Judgment.objects.order_by("pk")[:2]
        void_judgment(judgment_id=taken_back.pk, by=admin, reason="A slip.")
        with lifted():
            Judgment.objects.filter(pk=tied.pk).update(choice="tie")
        kinds = work(experiment, annotator, 30)
        repeated = list(Assignment.objects.checks().values_list("repeated", flat=True))
        assert kinds.count("repeat") == len(repeated) > 3
        assert len(set(repeated)) == len(repeated)
        assert not {taken_back.pk, tied.pk} & set(repeated)

    def test_one_that_is_voided_while_it_is_chosen_is_shown_all_the_same(
        self, experiment, annotator, admin, monkeypatch
    ):
        chosen = secret_draws.repeat_choice

        def choose_and_void(*args):
            judgment = chosen(*args)
            void_judgment(judgment_id=judgment, by=admin, reason="A slip.")
            return judgment

        monkeypatch.setattr(secret_draws, "repeat_choice", choose_and_void)
        monkeypatch.setattr(secret_draws, "check_draw", lambda *args: 0.0)
        shown = show(experiment, annotator)
        assert Assignment.objects.checks().get(token=shown.token).repeated.choice == "left"

    def test_nobody_gets_the_pairs_of_somebody_else(self, experiment, annotator):
        other = make_user()
        for shown in range(30):
            if draw(experiment, other, shown) < 0.5:
                break
        assert check_due(experiment=experiment, annotator=other, n_shown=shown) is None


class TestAnswers:
    @pytest.fixture
    def experiment(self, annotator) -> Experiment:
        return make_experiment(ready=True, annotators=(annotator,), practice=2, n_gold=2)

    def test_the_same_answer_twice_is_one_and_the_first_stands(self, experiment, annotator):
        shown = show(experiment, annotator)
        better, worse = ("left", "right") if shown.left.startswith("right") else ("right", "left")
        first = answer(experiment, annotator, shown.token, better)
        second = answer(experiment, annotator, shown.token, better)
        assert (first.created, second.created) == (True, False)
        assert second.feedback == first.feedback
        with pytest.raises(AssignmentLostError, match="That answer stands"):
            answer(experiment, annotator, shown.token, worse)
        assert (Judgment.objects.get().choice, Assignment.objects.get().passed) == (better, True)

    @pytest.mark.parametrize("is_check", [False, True], ids=["comparison", "gold"])
    def test_another_answer_to_the_same_pair_is_not_counted_and_that_is_said(
        self, annotator, is_check, monkeypatch
    ):
        monkeypatch.setattr(secret_draws, "check_draw", lambda *args: 0.0 if is_check else 1.0)
        experiment = make_experiment(ready=True, annotators=(annotator,), gold_rate=0.5, n_gold=9)
        token = show(experiment, annotator).token
        assert Assignment.objects.checks().filter(token=token).exists() is is_check
        answer(experiment, annotator, token, "left")
        with pytest.raises(AssignmentLostError, match="That answer stands"):
            answer(experiment, annotator, token, "right")
        given = answers.own_answer(experiment, annotator, token)
        serving.take_back(experiment=experiment, answer=given, annotator=annotator)
        for choice in ("left", "right"):
            with pytest.raises(AssignmentLostError, match="was taken back"):
                answer(experiment, annotator, token, choice)

    def test_nothing_is_fetched_ahead_of_what_is_to_be_learned_from_practice(self, experiment, annotator):
        first = show(experiment, annotator)
        assert len(serving.desk(experiment=experiment, annotator=annotator, n_wanted=2).pairs) == 1
        answer(experiment, annotator, first.token)
        second = show(experiment, annotator)
        assert Assignment.objects.checks().filter(token=second.token).exists()
        assert Assignment.objects.checks().count() == 2

    def test_a_reload_shows_the_same_check(self, experiment, annotator):
        assert show(experiment, annotator) == show(experiment, annotator)
        assert Assignment.objects.checks().count() == 1

    def test_nobody_answers_for_somebody_else_nor_at_another_experiment(self, experiment, annotator):
        shown = show(experiment, annotator)
        other = make_user()
        elsewhere = make_experiment(ready=True, annotators=(annotator,))
        for where, who in ((experiment, other), (elsewhere, annotator)):
            with pytest.raises(UnknownTokenError):
                answer(where, who, shown.token)
        assert Assignment.objects.get().state == "open"

    def test_a_made_up_token_names_no_check(self, experiment, annotator):
        with pytest.raises(UnknownTokenError):
            answer(experiment, annotator, uuid.uuid4())

    def test_a_check_that_is_skipped_is_over_and_flags_no_comparison(self, experiment, annotator):
        first = show(experiment, annotator)
        serving.skip(experiment=experiment, token=first.token, annotator=annotator, reason="task")
        assert show(experiment, annotator).token != first.token
        assert not Flag.objects.exclude(comparison=None).exists()


def test_an_undo_passes_no_check(annotator, monkeypatch):
    """The first answer says how well somebody judges."""
    monkeypatch.setattr(secret_draws, "check_draw", lambda *args: 0.0)
    experiment = make_experiment(ready=True, annotators=(annotator,), gold_rate=0.5, n_gold=9)
    token = show(experiment, annotator).token
    wrong, right = sorted(("left", "right"), key=Assignment.objects.get(token=token).expected.__eq__)
    answer(experiment, annotator, token, wrong)
    given = answers.own_answer(experiment, annotator, token)
    again = serving.take_back(experiment=experiment, answer=given, annotator=annotator)
    assert answers.newest_answer(experiment, annotator) is None
    answer(experiment, annotator, again.token, right)
    stands = answers.newest_answer(experiment, annotator)
    assert (stands.choice, stands.assignment.passed) == (right, False)
    assert check_results(experiment) == {(annotator.username, "gold"): (1, 0)}


def test_no_check_ever_enters_the_counts(annotator):
    experiment = make_experiment(
        ready=True,
        annotators=(annotator,),
        gold_rate=0.3,
        repeat_rate=0.3,
        practice=2,
        n_gold=30,
        n_tasks=50,
    )
    kinds = work(experiment, annotator, 40)
    assert {"practice", "gold", "repeat", "comparison"} == set(kinds)
    counted = kinds.count("comparison")
    assert counts.comparison_count(experiment.pk) == counted
    assert Judgment.objects.filter(comparison__isnull=False).count() == counted
    assert rebuild_counts(experiment_id=experiment.pk) == {}
    assert browsing.selected_judgments(experiment, browsing.Selection()).count() == counted


def test_without_rates_nothing_but_comparisons_is_shown(annotator):
    experiment = make_experiment(ready=True, annotators=(annotator,), n_gold=5)
    click(experiment, annotator)
    assert work(experiment, annotator, 5) == ["comparison"] * 5
