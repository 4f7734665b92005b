"""A language model that judges compares proposals with their parents before people do."""

from datetime import timedelta

import pytest

from engine.judges.screening import screen_proposals
from engine.models import Charge, Improvement, Judgment, Opinion, Proposal, clock
from engine.selectors.improvements import race_of
from engine.selectors.offered_models import Offer
from engine.selectors.opinions import opinions_spent
from engine.selectors.writing import brief_of
from engine.services.improvements import add_proposals, start_improvement
from engine.services.opinions import change_llm_judge
from engine.writing.first_answers import answer_proposals
from tests.backends import ScriptedBackend, user_of
from tests.improving import answer, make_world, plan_and_answer
from tests.opinions import judge_that, shadow, verdict

pytestmark = pytest.mark.django_db


def dislikes_warmth(first: str, second: str) -> str:
    if ("Thank you" in first) == ("Thank you" in second):
        return verdict("tie")
    return verdict("B" if "Thank you" in first else "A")


def begun(annotator, *, needs_ok: bool = False, budget: int = 500) -> Improvement:
    """With a warm and a short proposal."""
    experiment = make_world([annotator])
    shadow(experiment, budget=budget)
    found = start_improvement(experiment_id=experiment.pk, clicks=60, writer="prepared", needs_ok=needs_ok)
    written = [("You are a clerk. Be warm.", ""), ("You are a clerk. Be short.", "")]
    add_proposals(improvement_id=found.pk, parent=found.original.index, written=written)
    plan_and_answer(experiment)
    assert states(found) == ["proposed", "proposed"]
    return found


def states(improvement: Improvement) -> list[str]:
    return list(improvement.proposals.values_list("state", flat=True))


def work(reads=dislikes_warmth) -> ScriptedBackend:
    answer_proposals(ScriptedBackend(answer), Offer("smollm2", "scripted-1"))
    judge = judge_that(reads)
    screen_proposals(judge)
    return judge


def test_what_it_finds_worse_is_refused_and_nothing_of_it_is_evidence(annotator):
    improvement = begun(annotator)
    judge = work()
    warm, short = improvement.proposals.all()
    assert (warm.state, warm.screened) == (Proposal.State.REFUSED, [0.0] * 5)
    assert "language model" in warm.refused_because
    assert (short.state, short.screened) == (Proposal.State.JOINED, [0.5] * 5)
    # Each pair in both orders, on tasks that do not judge.
    assert len(judge.requests) == 20
    closed = improvement.experiment.tasks.exclude(pk__in=improvement.open_tasks)
    asked = [user_of(each) for each in judge.requests]
    assert not [each for each in closed if any(f"{each.prompt}\n" in text for text in asked)]
    assert Charge.objects.filter(purpose=Charge.Purpose.OPINION).count() == 20
    assert opinions_spent(improvement.experiment) == 10
    plan_and_answer(improvement.experiment)
    race = race_of(improvement)
    assert (race.challengers, race.used) == ({short.policy.index: improvement.original.index}, 0)
    assert not Judgment.objects.exists()
    assert not Opinion.objects.exists()
    improvement.refresh_from_db()
    assert improvement.wants == {str(improvement.original.index): 1}
    [told, _] = brief_of(improvement, improvement.original, []).tried
    assert "language model" in told.ended
    # Once is enough.
    assert not work().requests


def test_where_an_owner_decides_they_wait_on(annotator):
    improvement = begun(annotator, needs_ok=True)
    work()
    assert states(improvement) == ["refused", "proposed"]


def test_a_judge_that_cannot_say_refuses_nothing(annotator):
    improvement = begun(annotator)
    work(lambda first, second: "Who knows?")
    assert states(improvement) == ["joined", "joined"]
    assert {tuple(each.screened) for each in improvement.proposals.all()} == {()}


@pytest.mark.parametrize("how", ["is silent", "is off"])
def test_nobody_waits_for_a_judge_that(how, annotator):
    improvement = begun(annotator)
    if how == "is off":
        change_llm_judge(experiment_id=improvement.experiment_id, stage="off", rubric="", budget=500)
    else:
        Proposal.objects.update(created_at=clock.now() - timedelta(minutes=11))
    plan_and_answer(improvement.experiment)
    assert states(improvement) == ["joined", "joined"]


def test_it_keeps_within_the_budget_of_opinions(annotator):
    improvement = begun(annotator, budget=7)
    work()
    plan_and_answer(improvement.experiment)
    assert states(improvement) == ["refused", "joined"]
    assert [each.screened is None for each in improvement.proposals.all()] == [False, True]
