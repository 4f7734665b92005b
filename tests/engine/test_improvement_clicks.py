"""What counts in an improvement where people are checked, skip, slip, are voided or stay away."""

import math
from datetime import timedelta

import pytest

from engine.core import Succession
from engine.domain.showings import Kind
from engine.domain.specs import GoldSpec
from engine.models import Assignment, Experiment, Improvement, Judgment, ShowingEvent, User
from engine.selectors import admission, answers
from engine.selectors.counts import standing
from engine.selectors.improvements import planned_in, race_of
from engine.services import serving
from engine.services.improvements import add_proposals, note_writer_failure
from engine.services.judging import record_answer, void_judgment
from tests.engine.test_improvements import agree, begun
from tests.factories import assign, click_for, make_user, skip
from tests.improving import plan_and_answer

pytestmark = pytest.mark.django_db

PHASES = ("explore", "certify")


@pytest.fixture(scope="class", params=PHASES)
def keys(request, shared_rows) -> tuple[int, int]:
    """An improvement in this phase, with a few answers in it, and who gave them."""
    # That of the other phase is still there.
    Experiment.objects.update(name="Earlier")
    person = make_user()
    gold = [GoldSpec(f"Gold {n}", f"right {n}", f"wrong {n}", "So.") for n in range(9)]
    improvement = begun([person, make_user()], clicks=40, gold=gold)
    add_proposals(improvement_id=improvement.pk, parent=0, written=[("Be warm.", "")])
    note_writer_failure(improvement_id=improvement.pk, parent=0, reason="No more.", exhausted=True)
    plan_and_answer(improvement.experiment)
    while improvement.phase != request.param:
        choose(improvement, person, better=True)
    for better in (True, False):
        choose(improvement, person, better=better)
    assert improvement.phase == request.param
    return improvement.pk, person.pk


def choose(improvement: Improvement, person: User, *, better: bool) -> Judgment:
    """Prefer the new text, or the original, and have the round come."""
    given = click_for(improvement.experiment, person, lambda i, j: (i > j) == better)
    plan_and_answer(improvement.experiment)
    improvement.refresh_from_db()
    return given


def shown_in(improvement: Improvement, phase: str) -> list[int]:
    """The comparisons of this phase that anybody was shown, the first one first."""
    pairs = planned_in(improvement).filter(plan__phase=phase)
    events = ShowingEvent.objects.filter(kind=Kind.BEGUN, comparison__in=pairs).order_by("pk")
    return list(events.values_list("comparison", flat=True))


class TestWhatCounts:
    @pytest.fixture
    def improvement(self, keys, db, monkeypatch) -> Improvement:
        monkeypatch.setattr(admission, "ADMISSION_ITEMS", 0)
        return Improvement.objects.select_related("experiment").get(pk=keys[0])

    @pytest.fixture
    def person(self, keys, db) -> User:
        return User.objects.get(pk=keys[1])

    def counts(self, improvement: Improvement, voided: int | None = None) -> None:
        """Clicks are the answers that stand; the claim takes each pair that was shown, lost without one."""
        plan_and_answer(improvement.experiment)
        agree(improvement)
        given = standing(Judgment.objects.filter(comparison__in=planned_in(improvement)))
        race = race_of(improvement)
        assert race.used == given.count()
        claim = Succession(improvement.delta)
        told = dict(given.values_list("comparison", "outcome"))
        if voided is not None:
            # What was told stays in the claim.
            told[voided] = Judgment.objects.get(comparison=voided).outcome
        for comparison in shown_in(improvement, "certify"):
            outcome = told.get(comparison)
            # Outcomes are those of the policy that came first, the original.
            claim.tell(None if outcome is None else 1.0 - outcome)
        expected = min(1.0, math.exp(-claim.log_e)) if race.phase == "certify" else 1.0
        assert race.verdict.risk == pytest.approx(expected)

    def a_check(self, improvement: Improvement, person: User, **rates: float) -> None:
        Experiment.objects.filter(pk=improvement.experiment_id).update(**rates)
        experiment = improvement.experiment
        for _ in range(30):
            experiment.refresh_from_db()
            shown = serving.show_next(experiment=experiment, annotator=person)
            check = Assignment.objects.checks().filter(token=shown.token).exists()
            serving.answer(experiment_id=experiment.pk, token=shown.token, annotator=person, choice="left")
            plan_and_answer(experiment)
            if check:
                return
        pytest.fail("no check came")

    def test_a_gold_item(self, improvement, person):
        self.a_check(improvement, person, gold_rate=0.5)
        self.counts(improvement)

    def test_a_repeat(self, improvement, person, monkeypatch):
        monkeypatch.setattr(answers, "REPEAT_DISTANCE", 1)
        self.a_check(improvement, person, repeat_rate=0.5)
        self.counts(improvement)

    def test_a_skip(self, improvement, person):
        used, phase = race_of(improvement).used, improvement.phase
        held = assign(improvement.experiment, person)
        skip(experiment_id=improvement.experiment_id, token=held.token, annotator=person)
        assert race_of(improvement).used == used
        assert held.comparison_id in shown_in(improvement, phase)
        self.counts(improvement)

    def test_a_void(self, improvement, person, admin):
        given = choose(improvement, person, better=True)
        used = race_of(improvement).used
        void_judgment(judgment_id=given.pk, by=admin, reason="She had misread it.")
        self.counts(improvement, given.comparison_id)
        assert race_of(improvement).used == used - 1

    def test_an_answer_that_is_taken_back_and_given_anew(self, improvement, person):
        given = choose(improvement, person, better=True)
        used = race_of(improvement).used
        serving.take_back(experiment=improvement.experiment, answer=given, annotator=person)
        self.counts(improvement)
        assert race_of(improvement).used == used - 1
        again = choose(improvement, person, better=False)
        assert again.comparison_id == given.comparison_id
        self.counts(improvement)
        assert race_of(improvement).used == used

    def test_one_who_stays_away_and_answers_late(self, improvement, person):
        held = assign(improvement.experiment, person)
        for each in Assignment.objects.filter(pk=held.pk):
            for name in ("created_at", "granted_at", "expires_at"):
                setattr(each, name, getattr(each, name) - timedelta(days=2))
            each.save()
        self.counts(improvement)
        record_answer(
            experiment_id=improvement.experiment_id, token=held.token, annotator=person, choice="left"
        )
        self.counts(improvement)
