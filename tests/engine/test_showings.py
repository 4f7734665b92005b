"""The log of showings: which events each act leaves."""

import pytest
from django.db import IntegrityError, transaction

from engine.domain.showings import Answer, Event, Fate, Kind, Phase, Showing, events, showing_of
from engine.generation.base import GenerationFailure
from engine.importing.votes import Vote, Winner
from engine.judges.rule_worker import judge_comparisons
from engine.models import Assignment, Comparison, Experiment, Judgment, ShowingEvent, User
from engine.selectors import counts
from engine.selectors.answers import newest_answer
from engine.services import assignments, serving
from engine.services.experiments import stop
from engine.services.judging import rebuild_counts, void_judgment
from engine.services.past_votes import start_from_votes
from engine.services.planning import advance
from engine.services.voids import restore_judgment, void_annotator
from tests.backends import ScriptedBackend
from tests.factories import add_member, assign, click, make_experiment, make_user, write_responses

pytestmark = pytest.mark.django_db


@pytest.fixture
def experiment(annotator) -> Experiment:
    return make_experiment(ready=True, annotators=(annotator,))


def log(comparison: Comparison) -> list[tuple[str, float | None, float | None, float | None]]:
    rows = comparison.showing_events.order_by("pk")
    return list(rows.values_list("kind", "outcome", "least", "most"))


def logged() -> dict[int, list[str]]:
    """The kinds of the events of each comparison that has any."""
    found: dict[int, list[str]] = {}
    for number, kind in ShowingEvent.objects.order_by("pk").values_list("comparison", "kind"):
        found.setdefault(number, []).append(kind)
    return found


def undo(experiment: Experiment, user: User) -> None:
    answer = newest_answer(experiment, user)
    assert answer is not None
    serving.take_back(experiment=experiment, answer=answer, annotator=user)


def of(judgment: Judgment, outcome: float | None = None) -> tuple[str, float, float, float]:
    said = judgment.outcome if outcome is None else outcome
    return ("told", said, said, said)


BEGUN, REOPENED = ("begun", None, None, None), ("reopened", None, None, None)
NONE = ("told", None, 0.0, 1.0)


class TestOnePerson:
    def test_a_pair_that_is_shown_begins_and_a_click_ends_it(self, experiment, annotator):
        held = assign(experiment, annotator)
        assert log(held.comparison) == [BEGUN]
        judgment = click(experiment, annotator)
        assert log(judgment.comparison) == [BEGUN, of(judgment)]
        assert not ShowingEvent.objects.exclude(comparison=judgment.comparison).exists()

    def test_what_is_left_stays_open(self, experiment, annotator):
        held = assign(experiment, annotator)
        assignments.leave(annotator=annotator)
        assert log(held.comparison) == [BEGUN]
        assert assign(experiment, annotator).comparison == held.comparison
        assert log(held.comparison) == [BEGUN]

    def test_a_slip_is_as_if_it_had_not_been(self, experiment, annotator):
        judgment = click(experiment, annotator, "left")
        undo(experiment, annotator)
        again = click(experiment, annotator, "right")
        assert again.comparison == judgment.comparison
        assert log(judgment.comparison) == [BEGUN, of(judgment), REOPENED, of(again)]

    def test_an_answer_taken_back_later_bounds_the_next_one(self, experiment, annotator):
        judgment = click(experiment, annotator, "left")
        second = click(experiment, annotator)
        undo(experiment, annotator)
        undo(experiment, annotator)
        for _ in range(2):
            again = click(experiment, annotator, "right")
            if again.comparison == second.comparison:
                # Nothing was answered after the second one, so it was a slip.
                assert log(second.comparison)[-1] == of(again)
        first = Judgment.objects.get(comparison=judgment.comparison, standing=True)
        assert first.outcome != judgment.outcome
        expected = ("told", first.outcome, 0.0, 1.0)
        assert log(judgment.comparison) == [BEGUN, of(judgment), REOPENED, expected]

    def test_an_undo_and_a_skip_is_an_answer_that_is_missing(self, experiment, annotator):
        judgment = click(experiment, annotator)
        undo(experiment, annotator)
        held = assign(experiment, annotator)
        serving.skip(experiment=experiment, token=held.token, annotator=annotator, reason="task")
        assert log(judgment.comparison) == [BEGUN, of(judgment), REOPENED, NONE]

    def test_a_pair_that_is_let_go_is_over(self, experiment, annotator):
        held = assign(experiment, annotator)
        serving.skip(experiment=experiment, token=held.token, annotator=annotator, reason="broken")
        held.comparison.refresh_from_db()
        assert (held.comparison.state, log(held.comparison)) == ("discarded", [BEGUN, NONE])
        bob = make_user("bob")
        add_member(experiment, bob)
        assert assign(experiment, bob).comparison != held.comparison


class TestByHand:
    def test_a_void_leaves_the_proofs_as_they_were(self, experiment, annotator, admin):
        judgment = click(experiment, annotator)
        void_judgment(judgment_id=judgment.pk, by=admin, reason="Spam")
        judgment.comparison.refresh_from_db()
        assert judgment.comparison.state == "discarded"
        assert log(judgment.comparison) == [BEGUN, of(judgment), ("revised", None, None, None)]
        assert counts.comparison_count(experiment.pk) == 0
        assert assign(experiment, annotator).comparison != judgment.comparison

    def test_a_restore_brings_it_back_to_the_estimates(self, experiment, annotator, admin):
        judgment = click(experiment, annotator)
        void_judgment(judgment_id=judgment.pk, by=admin, reason="Spam")
        restored = restore_judgment(judgment_id=judgment.pk, by=admin)
        void_judgment(judgment_id=restored.pk, by=admin, reason="Spam")
        last = restore_judgment(judgment_id=restored.pk, by=admin)
        revised = [("revised", outcome, None, None) for outcome in (None, last.outcome) * 2]
        assert log(judgment.comparison) == [BEGUN, of(judgment), *revised]
        assert counts.comparison_count(experiment.pk) == 1
        assert rebuild_counts(experiment_id=experiment.pk) == {}

    def test_all_of_one_annotator(self, experiment, annotator, admin):
        bob = make_user("bob")
        add_member(experiment, bob)
        theirs = [click(experiment, annotator) for _ in range(3)]
        other = click(experiment, bob)
        assert void_annotator(experiment_id=experiment.pk, annotator=annotator, by=admin, reason="Spam") == 3
        for judgment in theirs:
            assert log(judgment.comparison) == [BEGUN, of(judgment), ("revised", None, None, None)]
        assert log(other.comparison) == [BEGUN, of(other)]
        assert counts.comparison_count(experiment.pk) == 1
        assert rebuild_counts(experiment_id=experiment.pk) == {}


class TestSeveralPeople:
    @pytest.fixture
    def bob(self) -> User:
        return make_user("bob")

    @pytest.fixture
    def experiment(self, annotator, bob) -> Experiment:
        return make_experiment(
            ready=True, annotators=(annotator, bob, make_user("cem")), overlap=3, overlap_rule="majority"
        )

    def judge(self, comparison: Comparison, user: User, *, for_i: bool = True) -> Judgment:
        while (held := assign(comparison.experiment, user)).comparison != comparison:
            serving.skip(experiment=comparison.experiment, token=held.token, annotator=user, reason="task")
        choice = "left" if for_i == comparison.i_on_left else "right"
        serving.answer(
            experiment_id=comparison.experiment_id, token=held.token, annotator=user, choice=choice
        )
        return Judgment.objects.get(token=held.token)

    def test_all_of_them_end_it_once(self, experiment, annotator, bob):
        comparison = assign(experiment, annotator).comparison
        for user, for_i in ((annotator, True), (bob, False), (User.objects.get(username="cem"), True)):
            assert log(comparison)[1:] == []
            self.judge(comparison, user, for_i=for_i)
        assert log(comparison) == [BEGUN, ("told", 1.0, 1.0, 1.0)]

    def test_one_who_left_may_have_said_either(self, experiment, annotator, bob):
        comparison = assign(experiment, annotator).comparison
        self.judge(comparison, annotator)
        held = assign(experiment, bob)
        assert held.comparison == comparison
        serving.skip(experiment=experiment, token=held.token, annotator=bob, reason="task")
        self.judge(comparison, User.objects.get(username="cem"), for_i=False)
        comparison.refresh_from_db()
        assert (comparison.state, comparison.outcome) == ("judged", 0.5)
        assert log(comparison) == [BEGUN, ("told", 0.5, 0.0, 1.0)]

    def test_a_void_by_hand_leaves_the_joint_outcome_of_the_others(self, experiment, annotator, bob, admin):
        comparison = assign(experiment, annotator).comparison
        first = self.judge(comparison, annotator)
        self.judge(comparison, bob)
        void_judgment(judgment_id=first.pk, by=admin, reason="Spam")
        self.judge(comparison, User.objects.get(username="cem"), for_i=False)
        # The proofs have it as it was given, two against one.
        assert log(comparison) == [BEGUN, ("told", 1.0, 1.0, 1.0), ("revised", 0.5, None, None)]
        restore_judgment(judgment_id=first.pk, by=admin)
        assert log(comparison)[-1] == ("revised", 1.0, None, None)
        assert rebuild_counts(experiment_id=experiment.pk) == {}


class TestMachines:
    def test_a_text_that_fails_is_a_showing_without_an_outcome(self, annotator):
        experiment = make_experiment(annotators=(annotator,))
        write_responses(ScriptedBackend(lambda request: GenerationFailure(request.key, "no")))
        discarded = experiment.comparisons.filter(state="discarded")
        assert discarded
        for comparison in discarded:
            assert log(comparison) == [BEGUN, NONE]

    def test_what_is_over_with_its_experiment_is_none(self, experiment, annotator):
        held = assign(experiment, annotator)
        stop(experiment_id=experiment.pk)
        assert logged() == {held.comparison_id: ["begun"]}

    def test_identical_texts_are_a_tie_at_once(self, annotator):
        experiment = make_experiment(annotators=(annotator,))
        write_responses(ScriptedBackend(lambda request: "The same."))
        advance(experiment_id=experiment.pk)
        judged = experiment.comparisons.filter(state="judged")
        assert judged
        for comparison in judged:
            assert log(comparison) == [BEGUN, ("told", 0.5, 0.5, 0.5)]

    def test_two_answers_without_text_are_no_tie(self, annotator):
        experiment = make_experiment(annotators=(annotator,))
        write_responses(ScriptedBackend(lambda request: " \u200b\n"))
        advance(experiment_id=experiment.pk)
        assert not Judgment.objects.exists()
        assert assign(experiment, annotator)

    def test_a_rule_gives_an_outcome_or_none_where_there_is_no_text(self):
        experiment = make_experiment(ready=True, judge="rule")
        assert judge_comparisons(experiment.pk)
        for judgment in Judgment.objects.select_related("comparison"):
            assert log(judgment.comparison) == [BEGUN, of(judgment)]
        blank = make_experiment(judge="rule")
        write_responses(ScriptedBackend(lambda request: ""))
        assert judge_comparisons(blank.pk) == 0
        for comparison in blank.comparisons.all():
            assert (comparison.state, log(comparison)) == ("discarded", [BEGUN, NONE])

    def test_past_votes_come_with_their_outcome(self):
        votes = [Vote(f"row {n}", "T", "P", "Q", winner) for n, winner in enumerate([Winner.A, Winner.TIE])]
        experiment = start_from_votes(name="Past", votes=votes)
        first, second = experiment.comparisons.order_by("number")
        assert log(first) == [BEGUN, ("told", first.outcome, first.outcome, first.outcome)]
        assert log(second) == [BEGUN, ("told", 0.5, 0.5, 0.5)]


class TestTheLog:
    def test_rows_are_not_rewritten_but_for_their_number(self, experiment, annotator):
        click(experiment, annotator)
        rows = ShowingEvent.objects.order_by("pk")
        for change in ({"outcome": 0.5}, {"kind": "revised"}, {"least": 0.0}, {"comparison": None}):
            with pytest.raises(IntegrityError), transaction.atomic():
                rows.update(**change)
        first = rows.filter(pk=rows[0].pk)
        first.update(number=7)
        first.update(showing={})
        with pytest.raises(IntegrityError), transaction.atomic():
            first.update(number=8)
        with pytest.raises(IntegrityError), transaction.atomic():
            rows.delete()

    def test_a_check_is_none(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,), n_gold=3, practice=2)
        shown = serving.show_next(experiment=experiment, annotator=annotator)
        assert Assignment.objects.checks().filter(token=shown.token).exists()
        serving.answer(experiment_id=experiment.pk, token=shown.token, annotator=annotator, choice="left")
        assert not ShowingEvent.objects.exists()


ANN, BEN = "ann", "ben"


def made(answers: list[tuple[str, float, Fate]], *, needed: int = 1, skips: int = 0, **more) -> Showing:
    given = {"rule": "majority"} | more
    return showing_of([Answer(*answer) for answer in answers], needed=needed, skips=skips, **given)


class TestShowingOf:
    @pytest.mark.parametrize(
        ("answers", "given", "expected"),
        [
            ([], {}, Showing(Phase.OPEN)),
            ([], {"skips": 1}, Showing(Phase.TOLD, None, 0.0, 1.0)),
            ([(ANN, 1.0, Fate.STANDS)], {}, Showing(Phase.TOLD, 1.0, 1.0, 1.0)),
            ([(ANN, 1.0, Fate.VOIDED)], {}, Showing(Phase.TOLD, None, 1.0, 1.0)),
            ([(ANN, 1.0, Fate.SLIP)], {}, Showing(Phase.OPEN)),
            ([(ANN, 1.0, Fate.TAKEN_BACK)], {}, Showing(Phase.OPEN, None, 1.0, 1.0)),
            ([(ANN, 1.0, Fate.TAKEN_BACK), (ANN, 0.0, Fate.STANDS)], {}, Showing(Phase.TOLD, 0.0, 0.0, 1.0)),
            ([(ANN, 1.0, Fate.VOIDED), (ANN, 1.0, Fate.STANDS)], {}, Showing(Phase.TOLD, 1.0, 1.0, 1.0)),
            ([(ANN, 1.0, Fate.STANDS)], {"needed": 2}, Showing(Phase.OPEN)),
            ([(ANN, 1.0, Fate.STANDS)], {"needed": 2, "skips": 1}, Showing(Phase.TOLD, 1.0, 0.5, 1.0)),
            (
                [(ANN, 1.0, Fate.STANDS), (BEN, 0.0, Fate.VOIDED)],
                {"needed": 2},
                Showing(Phase.TOLD, 1.0, 0.5, 0.5),
            ),
            (
                [(ANN, 1.0, Fate.STANDS)],
                {"needed": 4, "skips": 3, "rule": "mean"},
                Showing(Phase.TOLD, 0.625, 0.25, 1.0),
            ),
        ],
    )
    def test_cases(self, answers, given, expected):
        assert made(answers, **given) == expected

    def test_an_outcome_of_the_estimates_alone_is_revised_after_it_was_told(self):
        after = made([(ANN, 1.0, Fate.STANDS), (BEN, 0.0, Fate.VOIDED)], needed=2)
        assert events(Showing(Phase.OPEN), after) == [
            Event(Kind.TOLD, 0.5, 0.5, 0.5),
            Event(Kind.REVISED, 1.0),
        ]
