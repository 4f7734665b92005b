"""Improvements: a writer proposes, people choose, the best meets the original."""

import os
from collections import Counter
from functools import partial

import numpy as np
import pytest
from django.db import transaction

from engine.domain.errors import SpecError, WrongStateError
from engine.models import AuditEntry, Experiment, Improvement, Judgment, Proposal, Response, User
from engine.selectors import answers, designs
from engine.selectors.improvements import race_of, tasks_for
from engine.selectors.snapshots import latest_snapshot
from engine.selectors.verifying import faults_of
from engine.services.drafts import delete_experiment
from engine.services.evidence import settle
from engine.services.experiments import stop
from engine.services.improvements import (
    accept_proposal,
    add_proposals,
    claim_writing,
    fix_champion,
    note_writer_failure,
    refuse_proposal,
    start_improvement,
    stop_improvement,
)
from engine.services.judging import void_judgment
from engine.services.planning import advance
from engine.services.policies import retire_policy
from engine.services.serving import take_back
from tests.concurrency import at_once
from tests.factories import click_for, make_user
from tests.improving import (
    ask_writer,
    judge,
    make_world,
    one_change_at_a_time,
    plan_and_answer,
    run_to_the_end,
)

pytestmark = pytest.mark.django_db


# How often to go the whole way: a run takes a minute of processor time. Ten make the figure of
# docs/reproduction.md.
RUNS = int(os.environ.get("IMPROVEMENT_RUNS", "1"))


def begun(people, clicks=400, needs_ok=False, seed=1, **world) -> Improvement:
    experiment = make_world(people, **world)
    improvement = start_improvement(experiment_id=experiment.pk, clicks=clicks, needs_ok=needs_ok)
    improvement.seed = seed
    improvement.save(update_fields=["seed"])
    return improvement


def agree(improvement: Improvement) -> None:
    """What is stored is what a replay of the record says."""
    improvement.refresh_from_db()
    race = race_of(improvement)
    assert (race.used, race.champion) == (improvement.used, improvement.champion.index)
    stored = improvement.proposals.exclude(probability=None)
    assert {(each.policy.index, each.probability) for each in stored} == {
        (each.child, each.probability) for each in [*race.promotions, *race.dropped]
    }
    experiment = improvement.experiment
    replayed = designs.replay(experiment, designs.logged(designs.in_the_evidence(experiment)))
    assert designs.state_of(designs.stored(experiment)) == designs.state_of(replayed)
    assert list(faults_of(experiment)) == []


@pytest.mark.slow
def test_the_whole_way(annotator):
    certified = sum(goes_the_whole_way(annotator, seed) for seed in range(1, RUNS + 1))
    assert certified >= 0.8 * RUNS


def goes_the_whole_way(annotator: User, seed: int) -> bool:
    """Whether a new prompt is certified at the end of a run."""
    rng = np.random.default_rng(seed)
    improvement = begun([annotator], seed=seed)
    experiment = improvement.experiment
    run_to_the_end(improvement, [annotator], one_change_at_a_time(rng), rng)
    states = Counter(improvement.proposals.values_list("state", flat=True))
    print(f"seed {seed}: {improvement.verdict}, {improvement.used} clicks, {dict(states)}")
    assert improvement.used <= 400
    experiment.refresh_from_db()
    assert experiment.state == Experiment.State.RUNNING
    judging = set(tasks_for(improvement, "certify"))
    proved = experiment.comparisons.filter(plan__phase="certify", state="judged")
    assert {each.task_id for each in proved} <= judging
    assert improvement.proposals.filter(state=Proposal.State.DROPPED, policy__retired_at=None).count() == 0
    assert improvement.course[-1][:2] == [improvement.used, improvement.champion.index]
    assert len(improvement.course) <= 101
    agree(improvement)
    text = improvement.champion.levels.get().value["text"]
    liked = any(each in text for each in ("short", "warm", "question"))
    assert liked or improvement.verdict["kind"] != "certified"
    return improvement.verdict["kind"] == "certified"


def test_a_challenger_that_comes_and_goes_concludes_nothing(annotator, admin):
    experiment = make_world([annotator], n_tasks=60, delta=0.1, epsilon=0.1)

    def judge_by_age() -> None:
        plan_and_answer(experiment)
        click_for(experiment, annotator, lambda i, j: i < j)

    while not experiment.conclusions.exists():
        judge_by_age()
        plan_and_answer(experiment)
    improvement = start_improvement(experiment_id=experiment.pk, clicks=60, needs_ok=True)
    [proposal, _] = ask_writer(improvement, lambda *_: ["Write at great length.", "Write at length."])
    accept_proposal(proposal_id=proposal.pk, by=admin)
    while improvement.proposals.filter(state=Proposal.State.JOINED).exists():
        judge_by_age()
        plan_and_answer(experiment)
    proposal.refresh_from_db()
    assert proposal.state == Proposal.State.DROPPED
    plan_and_answer(experiment)
    design = designs.stored(experiment).design
    assert not design.decision.stopped
    # No sentence on any page says so meanwhile.
    snapshot = latest_snapshot(experiment)
    assert snapshot.open_rivals == experiment.policies.present().count() - 1
    assert snapshot.remaining is None
    # Its two first policies are as they were, so that the claim would hold.
    design.allow_claims()
    assert design.decision.stopped
    assert experiment.conclusions.count() == 1
    stop_improvement(improvement_id=improvement.pk)
    settle(experiment=improvement.experiment)
    assert [each.stage for each in experiment.conclusions.all()] == [1, 2]
    agree(improvement)


def test_nothing_leaves_the_race_again_when_an_answer_is_taken_back(annotator):
    rng = np.random.default_rng(2)
    improvement = begun([annotator], clicks=60)
    experiment = improvement.experiment
    while not improvement.proposals.filter(state=Proposal.State.DROPPED).exists():
        ask_writer(improvement, one_change_at_a_time(rng))
        if not judge(experiment, annotator, rng):
            plan_and_answer(experiment)
            improvement.refresh_from_db()
    dropped = improvement.proposals.filter(state=Proposal.State.DROPPED).first()
    used = race_of(improvement).used
    newest = answers.newest_answer(experiment, annotator)
    take_back(experiment=experiment, answer=newest, annotator=annotator)
    plan_and_answer(experiment)
    # It leaves the beliefs, and nothing that they led to comes back.
    assert race_of(improvement).used == used - 1
    dropped.refresh_from_db()
    assert dropped.state == Proposal.State.DROPPED
    assert dropped.policy.retired_at is not None
    judge(experiment, annotator, rng)
    plan_and_answer(experiment)
    agree(improvement)


class TestProposals:
    def written(self, improvement, *texts: str) -> list[Proposal]:
        assert claim_writing(improvement_id=improvement.pk) == {0: 2}
        # Nobody else writes meanwhile.
        assert claim_writing(improvement_id=improvement.pk) is None
        written = [(text, "Why.") for text in texts]
        return add_proposals(improvement_id=improvement.pk, parent=0, written=written)

    def test_an_answer_in_the_place_of_a_prompt_is_refused(self, annotator):
        improvement = begun([annotator])
        answers = improvement.experiment.policies.get(index=1).responses.filter(
            task__in=improvement.open_tasks, state=Response.State.DONE
        )
        [copied, prompt] = self.written(
            improvement, answers[0].text, "Answer warmly, in the fewest words that do."
        )
        assert (copied.state, prompt.state) == (Proposal.State.REFUSED, Proposal.State.JOINED)
        assert "an answer" in copied.refused_because

    def test_they_wait_for_an_ok_and_join_with_the_text_that_somebody_edited(self, annotator, admin):
        improvement = begun([annotator], needs_ok=True)
        first, second = self.written(improvement, "You are short.", "You are warm.")
        improvement.refresh_from_db()
        assert improvement.wants == {}
        assert race_of(improvement).challengers == {}
        with pytest.raises(SpecError, match="characters"):
            accept_proposal(proposal_id=first.pk, text="Be short. " * 200, by=admin)
        accept_proposal(proposal_id=first.pk, text="You are very short.", by=admin)
        refuse_proposal(proposal_id=second.pk, reason="Too warm.", by=admin)
        plan_and_answer(improvement.experiment)
        improvement.refresh_from_db()
        assert improvement.wants == {"0": 1}
        first.refresh_from_db()
        assert first.policy.levels.get().value == {"text": "You are very short."}
        assert (first.written_text, first.state) == ("You are short.", Proposal.State.JOINED)
        assert race_of(improvement).challengers == {first.policy.index: 0}
        with pytest.raises(WrongStateError):
            accept_proposal(proposal_id=second.pk, by=admin)

    def test_copies_and_texts_that_name_judging_tasks_are_refused_with_the_reason(self, annotator):
        improvement = begun([annotator])
        judging = improvement.experiment.tasks.exclude(pk__in=improvement.open_tasks).first()
        own = "You are a formal clerk."
        found = self.written(improvement, own, f"{own} Begin well. {judging.prompt} is easy.", "Be warm.")
        assert [each.state for each in found] == ["refused", "refused", "joined"]
        assert all(each.refused_because for each in found[:2])

    def test_a_text_that_cannot_join_is_refused_with_the_reason(self, annotator):
        improvement = begun([annotator])
        unfit, fit = self.written(improvement, "Answer about {{ subject }}.", "Be warm.")
        assert [unfit.state, fit.state] == ["refused", "joined"]
        assert "subject" in unfit.refused_because
        improvement.refresh_from_db()
        assert improvement.wants == {"0": 1}

    def test_a_writer_that_gives_nothing_but_copies_is_asked_no_more(self, annotator):
        improvement = begun([annotator], clicks=40)
        for _ in range(5):
            self.written(improvement, "You are a formal clerk.")
        improvement.refresh_from_db()
        assert (improvement.exhausted, improvement.wants) == (True, {})
        plan_and_answer(improvement.experiment)
        improvement.refresh_from_db()
        assert improvement.verdict["kind"] == "nothing_better"

    def test_without_a_writer_the_race_goes_on_and_when_none_comes_any_more_the_claim_is_tested(
        self, annotator
    ):
        rng = np.random.default_rng(3)
        improvement = begun([annotator], clicks=80)
        self.written(improvement, "You are a clerk. Be short. Be warm.", "You are bad.")
        note_writer_failure(improvement_id=improvement.pk, parent=0, reason="It is away.", exhausted=True)
        run_to_the_end(improvement, [annotator], lambda *_: [], rng)
        assert improvement.proposals.count() == 2
        assert improvement.verdict["kind"] in {"certified", "leads"}
        assert [more for _, more in improvement.turns] == [None]
        agree(improvement)


def test_a_writer_whose_texts_grow_meets_the_limit_and_the_race_goes_on(annotator):
    rng = np.random.default_rng(4)
    improvement = begun([annotator], clicks=40)
    calls = []

    def grows(parent: str, votes, n: int) -> list[str]:
        calls.append(n)
        return [f"{parent} {more * 40 * len(calls)}" for more in ("On and on. ", "Go on. ")][:n]

    run_to_the_end(improvement, [annotator], grows, rng)
    lengths = {"joined": [], "refused": []}
    for each in improvement.proposals.all():
        lengths["joined" if each.policy else "refused"].append(len(each.text))
    assert 300 < max(lengths["joined"]) <= improvement.longest < max(lengths["refused"])
    assert improvement.exhausted
    assert improvement.verdict["kind"] in {"leads", "nothing_better"}


def test_who_has_just_become_champion_cannot_be_retired_by_hand(annotator, settings):
    settings.BUFFER_MIN = settings.BUFFER_MAX = 20
    improvement = begun([annotator])
    experiment = improvement.experiment
    [better] = add_proposals(improvement_id=improvement.pk, parent=0, written=[("Be warm.", "")])
    plan_and_answer(experiment)

    def champion() -> int:
        with transaction.atomic():
            settle(experiment=experiment)
            found = race_of(improvement).champion
            transaction.set_rollback(True)
        return found

    while champion() == 0:
        click_for(experiment, annotator, lambda i, j: i > j)
    # No round of planning has noted it.
    better.refresh_from_db()
    assert better.state == Proposal.State.JOINED
    with pytest.raises(WrongStateError, match="improvement"):
        retire_policy(experiment_id=experiment.pk, index=better.policy.index, reason="")
    plan_and_answer(experiment)
    agree(improvement)


class TestEnding:
    def test_its_owner_may_have_the_champion_meet_the_original_at_any_time(self, annotator, admin):
        improvement = begun([annotator], clicks=400)
        experiment = improvement.experiment
        written = [("Be warm.", ""), ("Be short.", "")]
        add_proposals(improvement_id=improvement.pk, parent=0, written=written)
        plan_and_answer(experiment)
        while improvement.champion.index == 0:
            click_for(experiment, annotator, lambda i, j: i > j)
            plan_and_answer(experiment)
            improvement.refresh_from_db()
        improvement = fix_champion(improvement_id=improvement.pk, by=admin)
        assert (improvement.phase, improvement.wants) == ("certify", {})
        assert not improvement.proposals.filter(state=Proposal.State.JOINED).exists()
        with pytest.raises(WrongStateError):
            fix_champion(improvement_id=improvement.pk)
        plan_and_answer(experiment)
        while improvement.state == Improvement.State.OPEN:
            click_for(experiment, annotator, lambda i, j: i > j)
            plan_and_answer(experiment)
            improvement.refresh_from_db()
        assert improvement.verdict["kind"] == "certified"
        assert improvement.used < 40
        agree(improvement)

    def test_stopped_it_says_what_is_established_and_a_concluded_experiment_waits(self, annotator, admin):
        experiment = make_world([annotator])
        stop(experiment_id=experiment.pk)
        improvement = start_improvement(experiment_id=experiment.pk, clicks=40, needs_ok=False, by=admin)
        experiment.refresh_from_db()
        assert experiment.state == Experiment.State.RUNNING
        with pytest.raises(WrongStateError):
            stop(experiment_id=experiment.pk)
        with pytest.raises(WrongStateError):
            start_improvement(experiment_id=experiment.pk)
        rng = np.random.default_rng(5)
        for _ in range(12):
            ask_writer(improvement, one_change_at_a_time(rng))
            if not judge(experiment, annotator, rng):
                plan_and_answer(experiment)
        stop_improvement(improvement_id=improvement.pk, by=admin)
        agree(improvement)
        experiment.refresh_from_db()
        assert (improvement.state, experiment.state) == ("stopped", Experiment.State.PAUSED)
        assert improvement.verdict["kind"] in {"leads", "nothing_better"}
        assert not improvement.proposals.filter(state=Proposal.State.JOINED).exists()
        actions = set(AuditEntry.objects.filter(experiment=experiment).values_list("action", flat=True))
        assert {"improve", "stop_improving", "policy_joined"} <= actions
        delete = start_improvement(experiment_id=experiment.pk, clicks=40, by=admin)
        stop_improvement(improvement_id=delete.pk, by=admin)
        stop(experiment_id=experiment.pk)
        delete_experiment(experiment_id=experiment.pk, by=None)
        assert not Experiment.objects.exists()

    def test_challengers_that_come_late_are_compared_where_texts_are_used_again(self, annotator):
        rng = np.random.default_rng(7)
        improvement = begun([annotator], n_tasks=8, clicks=60, responses="reuse")
        experiment = improvement.experiment
        # Nobody is in the race yet, so nobody has anything to compare.
        plan_and_answer(experiment)
        ask_writer(improvement, one_change_at_a_time(rng))
        plan_and_answer(experiment)
        assert len(race_of(improvement).challengers) == 2
        assert judge(experiment, annotator, rng)

    def test_it_has_its_clicks_whatever_else_the_budget_has_paid(self, annotator, admin):
        rng = np.random.default_rng(8)
        experiment = make_world([annotator], budget=10)
        while Judgment.objects.count() < 8:
            if not judge(experiment, annotator, rng):
                plan_and_answer(experiment)
        for each in Judgment.objects.all():
            void_judgment(judgment_id=each.pk, by=admin, reason="She had misread the question.")
        improvement = start_improvement(experiment_id=experiment.pk, clicks=20, needs_ok=False)
        run_to_the_end(improvement, [annotator], one_change_at_a_time(rng), rng)

    def test_some_tasks_must_be_left_that_no_writer_has_seen(self, annotator):
        improvement = begun([annotator])
        experiment = improvement.experiment
        seen = list(experiment.tasks.values_list("pk", flat=True)[:23])
        improvement.writings.create(parent=improvement.original, opened_tasks=seen)
        stop_improvement(improvement_id=improvement.pk)
        with pytest.raises(SpecError, match="tasks"):
            start_improvement(experiment_id=experiment.pk)

    def test_one_answer_to_each_task_comes_to_an_end_too(self, annotator):
        rng = np.random.default_rng(6)
        improvement = begun([annotator], n_tasks=8, clicks=60, responses="reuse")
        run_to_the_end(improvement, [annotator], one_change_at_a_time(rng), rng)
        assert improvement.used <= 60
        agree(improvement)


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_several_people_at_once_leave_the_race_of_a_replay(settings, annotator):
    settings.BUFFER_MIN = settings.BUFFER_MAX = 40
    people = [annotator, make_user(), make_user()]
    improvement = begun(people, clicks=60)
    experiment = improvement.experiment
    for turn in range(3):
        ask_writer(improvement, one_change_at_a_time(np.random.default_rng(turn)))
        plan_and_answer(experiment)

        def click_on(user, seed: int) -> None:
            rng = np.random.default_rng(seed)
            for _ in range(6):
                judge(experiment, user, rng)

        def plan_on() -> None:
            for _ in range(3):
                advance(experiment_id=experiment.pk)

        at_once([*(partial(click_on, user, n) for n, user in enumerate(people)), plan_on, plan_on])
        plan_and_answer(experiment)
        improvement.refresh_from_db()
    assert improvement.used > 20
    agree(improvement)
