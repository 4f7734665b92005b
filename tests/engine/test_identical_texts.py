"""Comparisons of one text twice: held back, and a tie that nobody sees when it is their turn."""

import pytest

from engine.models import Comparison, Judgment, PairCount, Response
from engine.selectors import counts, designs, pairs_ahead
from engine.services.identical_texts import name_and_hold_back, settle_by_rule
from engine.services.judging import rebuild_counts, void_judgment
from engine.services.planning import advance, plan_round
from tests.backends import ScriptedBackend
from tests.engine.test_pools import N_TASKS, judged_by, pool_of
from tests.factories import add_member, make_experiment, make_user, write_responses

pytestmark = pytest.mark.django_db


def hold_back(comparison: Comparison) -> None:
    """Have both responses of a comparison come out the same."""
    for response in (comparison.response_i, comparison.response_j):
        Response.objects.filter(pk=response.pk).update(state="done", digest="the same")
    Comparison.objects.filter(pk=comparison.pk).update(state="ready", ready_at=comparison.created_at)
    name_and_hold_back(comparison_ids=[comparison.pk])


def test_identical_texts_are_held_back_among_the_comparisons_that_are_given():
    experiment = make_experiment(ready=True, annotators=(make_user(),))
    given, alike = experiment.comparisons.filter(state="ready").order_by("pk")[:2]
    Response.objects.filter(pk=alike.response_i.pk).update(
        text=alike.response_j.text, digest=alike.response_j.digest
    )
    name_and_hold_back(comparison_ids=[given.pk])
    alike.refresh_from_db()
    assert alike.state == "ready"
    name_and_hold_back(comparison_ids=[given.pk, alike.pk])
    assert [
        each.pk for each in experiment.comparisons.filter(state="planned", plan__by_rule="identical")
    ] == [alike.pk]


@pytest.mark.parametrize(("responses", "are_named"), [("reuse", True), ("fresh", False)])
def test_only_texts_that_come_again_are_named(responses, are_named):
    experiment = make_experiment(ready=True, responses=responses, annotators=(make_user(),))
    ready = experiment.comparisons.filter(state="ready")
    assert ready.exists()
    assert all(bool(each.texts) is are_named for each in ready)


def test_identical_ready_made_texts_are_a_tie_that_nobody_sees():
    ann = make_user("ann")
    experiment = pool_of({"A": ["same", "a", "x"], "B": ["same ", "b", "y"]}, budget=50)
    add_member(experiment, ann)
    seen = judged_by(experiment, ann)
    assert sorted(len(pair) for _, pair in seen) == [2, 2]
    tie = Judgment.objects.get(via="identical")
    assert (tie.judge, tie.choice, tie.outcome, tie.annotator) == ("rule", "tie", 0.5, None)
    assert counts.comparison_count(experiment.pk) == 3
    assert rebuild_counts(experiment_id=experiment.pk) == {}


@pytest.mark.parametrize("overlap", [1, 3])
def test_new_responses_that_come_out_the_same_are_one_too(overlap):
    experiment = make_experiment(n_policies=2, overlap=overlap, annotators=(make_user(),))
    n_planned = experiment.comparisons.count()
    write_responses(ScriptedBackend(lambda request: "fine"))
    advance(experiment_id=experiment.pk)
    assert experiment.comparisons.filter(state="judged", outcome=0.5).count() == n_planned
    assert PairCount.objects.get(experiment=experiment).wins_i == n_planned / 2
    assert rebuild_counts(experiment_id=experiment.pk) == {}
    assert designs.replay(experiment).design.n_comparisons == n_planned


def test_a_tie_that_is_taken_back_is_discarded_and_not_shown():
    editor = make_user("editor")
    experiment = make_experiment(n_policies=2, annotators=(make_user(),))
    write_responses(ScriptedBackend(lambda request: "fine"))
    advance(experiment_id=experiment.pk)
    tie = Judgment.objects.filter(via="identical").first()
    void_judgment(judgment_id=tie.pk, by=editor, reason="A test")
    tie.comparison.refresh_from_db()
    assert tie.comparison.state == "discarded"
    assert rebuild_counts(experiment_id=experiment.pk) == {}


def test_a_tie_waits_for_nothing():
    experiment = make_experiment(n_policies=2, annotators=(make_user(),))
    *others, tie = experiment.comparisons.order_by("number")
    hold_back(tie)
    settle_by_rule(experiment=experiment)
    tie.refresh_from_db()
    assert tie.state == "judged"
    assert {Comparison.objects.get(pk=each.pk).state for each in others} == {"planned"}


def test_the_ties_of_another_experiment_stay_held_back():
    ours, others = (pool_of({a: ["same"] * N_TASKS for a in "AB"}, name=name) for name in ("one", "two"))
    for experiment in (ours, others):
        plan_round(experiment_id=experiment.pk)
    held = others.comparisons.filter(state="planned").count()
    assert held
    settle_by_rule(experiment=ours)
    assert not ours.comparisons.filter(state="planned").exists()
    assert others.comparisons.filter(state="planned").count() == held


def test_nothing_is_to_be_written_for_those_that_are_held_back():
    """Each round that planned some woke the writers."""
    experiment = pool_of({name: ["same"] * N_TASKS for name in "AB"})
    done = plan_round(experiment_id=experiment.pk)
    assert done.ready == done.planned > 0


def test_what_waits_for_members_who_are_away_holds_back_no_tie(settings, monkeypatch):
    """With as many held back as may be, nothing was planned for those who are here."""
    settings.BUFFER_MIN, settings.BUFFER_MAX = 1, 2
    away, here = make_user("away"), make_user("here")
    experiment = pool_of({name: [name, *(["same"] * 40), f"{name} too"] for name in "AB"})
    for user in (away, here):
        add_member(experiment, user)
    monkeypatch.setattr(pairs_ahead, "annotators_present", lambda experiment: {here.pk})
    seen = judged_by(experiment, here, most=1)
    known = Judgment.objects.get(annotator=here).comparison.texts
    monkeypatch.setattr(pairs_ahead, "annotators_present", lambda experiment: {away.pk})
    advance(experiment_id=experiment.pk)
    while not experiment.comparisons.filter(state="ready", texts=known).exists():
        judged_by(experiment, away, most=1)
        advance(experiment_id=experiment.pk)
    monkeypatch.setattr(pairs_ahead, "annotators_present", lambda experiment: {here.pk})
    seen += judged_by(experiment, here)
    assert len(set(seen)) == 2
    assert not experiment.comparisons.filter(state="planned").exists()


def test_a_rule_judges_identical_texts_itself():
    experiment = make_experiment(n_policies=2, judge="rule")
    write_responses(ScriptedBackend(lambda request: "fine"))
    assert not Judgment.objects.exists()
    assert experiment.comparisons.filter(state="ready").exists()


@pytest.mark.parametrize(("silent", "outcome"), [("response_i", 0.0), ("response_j", 1.0)])
def test_by_setting_no_answer_loses_without_a_click(silent, outcome):
    experiment = make_experiment(ready=True, annotators=(make_user(),), no_answer="loses")
    comparison = experiment.comparisons.filter(state="ready").first()
    response = getattr(comparison, silent)
    response.text = ""
    response.save()
    name_and_hold_back(comparison_ids=[comparison.pk])
    settle_by_rule(experiment=experiment)
    judgment = Judgment.objects.get(comparison=comparison)
    assert (judgment.via, judgment.judge, judgment.outcome) == ("no_answer", "rule", outcome)
