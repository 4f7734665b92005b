"""Finite pools: nobody judges the same two texts twice, and what is used up."""

import pytest
from django.urls import reverse

from engine.domain.specs import ExperimentSpec, FactorSpec
from engine.importing.items import read_responses
from engine.models import Comparison, Evidence, Experiment, Judgment, Response, ShowingEvent
from engine.selectors import designs, pairs_ahead, pools
from engine.selectors.findings import finding_of
from engine.selectors.pool_claims import of_pool, unproven
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.services.judging import record_answer
from engine.services.planning import advance
from labeling.dashboard.figures import result_figures
from labeling.dashboard.status import USED_UP, status_of, through, too_few_texts
from tests.factories import (
    add_member,
    assign_next,
    certify,
    make_experiment,
    make_user,
    skip,
    workers_alive,
    write_responses,
)

pytestmark = pytest.mark.django_db

N_TASKS = 4


def pool_of(policies: dict[str, list[str]], **settings: object) -> Experiment:
    """A running experiment on ready-made responses: one text of each policy to each task."""
    rows = [
        f"Task {task},{policy},{text}"
        for policy, texts in policies.items()
        for task, text in enumerate(texts)
    ]
    answers = read_responses("\n".join(["task,policy,response", *rows]))
    spec = ExperimentSpec(
        name=str(settings.pop("name", "A pool")),
        factors=[FactorSpec("Policy", "imported", {name: {} for name in answers.policies})],
        tasks=answers.tasks,
        settings={"responses": "imported", "seed": 0, "delta": 0.01} | settings,
        ready_made=answers.responses,
    )
    experiment = create_experiment(spec=spec)
    start(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    return experiment


def texts(policy: str) -> list[str]:
    return [f"{policy} on {task}" for task in range(N_TASKS)]


def judged_by(
    experiment: Experiment, user, choice: str = "left", most: int = 1000
) -> list[tuple[str, frozenset[str]]]:
    """The pairs of texts that somebody judges until there is none, planning before each click."""
    seen = []
    while len(seen) < most:
        advance(experiment_id=experiment.pk)
        assignment = assign_next(experiment_id=experiment.pk, annotator=user)
        if assignment is None:
            break
        pair = assignment.comparison
        seen.append((pair.task.prompt, frozenset({pair.response_i.text, pair.response_j.text})))
        record_answer(experiment_id=experiment.pk, token=assignment.token, annotator=user, choice=choice)
    return seen


class TestNobodyTwice:
    @pytest.mark.parametrize("responses", ["imported", "reuse"])
    def test_two_people_judge_each_two_texts_once_each_and_then_it_is_used_up(
        self, responses, settings, client
    ):
        settings.BUFFER_MIN = 3
        ann, bob = make_user("ann"), make_user("bob")
        if responses == "imported":
            experiment = pool_of({name: texts(name) for name in "ABC"})
            add_member(experiment, ann)
        else:
            experiment = make_experiment(n_tasks=N_TASKS, responses="reuse", delta=0.01, annotators=(ann,))
            for _ in range(12):
                write_responses()
                advance(experiment_id=experiment.pk)
        seen = (
            judged_by(experiment, ann)
            if responses == "imported"
            else self.written_and_judged(experiment, ann)
        )
        assert len(seen) == len(set(seen)) == 3 * N_TASKS
        experiment.refresh_from_db()
        assert experiment.used_up
        workers_alive("control", "analysis", "generation")
        assert "Every annotator has judged each two texts" in status_of(experiment).sentence
        verdict = result_figures(experiment)["verdict"]
        assert verdict["sentences"] == [USED_UP]
        assert "more click" not in verdict["standing"].sentence
        client.force_login(ann)
        page = client.get(reverse("pair", args=[experiment.pk])).content.decode()
        assert "You have judged everything there is." in page
        add_member(experiment, bob)
        theirs = judged_by(experiment, bob)
        assert sorted(theirs, key=repr) == sorted(seen, key=repr)
        assert assign_next(experiment_id=experiment.pk, annotator=ann) is None

    def written_and_judged(self, experiment, user):
        seen = []
        while more := judged_by(experiment, user):
            seen += more
            write_responses()
        return seen

    def test_an_equal_text_of_another_policy_is_the_same_text(self):
        ann = make_user("ann")
        same = texts("A")
        experiment = pool_of({"A": same, "B": texts("B"), "C": same})
        add_member(experiment, ann)
        seen = judged_by(experiment, ann)
        assert len(seen) == len(set(seen)) == N_TASKS
        experiment.refresh_from_db()
        assert experiment.used_up
        assert not experiment.comparisons.filter(state__in=Comparison.PENDING).exists()

    def test_a_skipped_pair_does_not_come_back_under_another_number(self):
        ann, bob = make_user("ann"), make_user("bob")
        experiment = pool_of({name: ["one", name][: 1 + (name > "A")][-1:] for name in "AB"})
        for user in (ann, bob):
            add_member(experiment, user)
        advance(experiment_id=experiment.pk)
        assignment = assign_next(experiment_id=experiment.pk, annotator=ann)
        skip(experiment_id=experiment.pk, token=assignment.token, annotator=ann)
        assert judged_by(experiment, ann) == []
        # These two texts may be planned anew for somebody else, as another showing.
        assert len(judged_by(experiment, bob)) <= 1

    def test_one_who_has_less_left_is_planned_for_first(self, settings):
        settings.BUFFER_MIN = 2
        ann, bob = make_user("ann"), make_user("bob")
        experiment = pool_of({name: texts(name) for name in "AB"})
        add_member(experiment, ann)
        first = judged_by(experiment, ann)[: N_TASKS - 1]
        assert len(first) == N_TASKS - 1
        add_member(experiment, bob)
        # Everything that waits now is over for Ann; Bob is served, and Ann waits for nothing.
        advance(experiment_id=experiment.pk)
        assert assign_next(experiment_id=experiment.pk, annotator=ann) is None
        assert assign_next(experiment_id=experiment.pk, annotator=bob) is not None
        experiment.refresh_from_db()
        assert not experiment.used_up

    def test_the_time_that_remains_is_shared_by_those_who_have_something_left(self):
        """A time for three people stood there, and two of them had judged all that they could."""
        ann, bob, eve = (make_user(name) for name in ("ann", "bob", "eve"))
        experiment = pool_of({name: texts(name) for name in "ABC"}, allow_tie=True)
        for user in (ann, bob, eve):
            add_member(experiment, user)
        for user in (ann, bob):
            judged_by(experiment, user, choice="tie")
        workers_alive("control", "analysis", "generation")
        experiment.refresh_from_db()
        verdict = result_figures(experiment)["verdict"]
        assert through(2, 3) in verdict["sentences"]
        assert verdict["time"].endswith("of judging by one person.")

    def test_texts_that_will_not_do_are_told_before_they_are_used_up(self):
        """“About 190 more clicks” stood there, and the texts had 90 left."""
        experiment = pool_of({name: texts(name) for name in "ABC"}, allow_tie=True)
        add_member(experiment, ann := make_user("ann"))
        workers_alive("control", "analysis", "generation")
        judged_by(experiment, ann, choice="tie", most=2)
        experiment.refresh_from_db()
        experiment.snapshots.update(remaining={"low": 90.0, "likely": 190.0, "high": 400.0})
        n_left = 3 * N_TASKS - 2
        assert pools.supply(experiment).n_answers == n_left
        assert too_few_texts(n_left) in result_figures(experiment)["verdict"]["sentences"]
        for _ in range(200):
            add_member(experiment, make_user())
        assert pools.supply(experiment).n_answers == n_left + 200 * 3 * N_TASKS
        verdict = result_figures(experiment)["verdict"]
        assert "more click" in verdict["standing"].sentence
        assert not any("to these texts" in each for each in verdict["sentences"])

    def test_nobody_is_through_for_whom_something_can_still_be_planned(self, settings, monkeypatch):
        """Nothing waits for members who are away while somebody is here, however much is left for them."""
        settings.BUFFER_MIN = 1
        experiment = pool_of({"A": texts("A"), "B": texts("B"), "C": texts("A")})
        away, here = make_user("away"), make_user("here")
        for user in (away, here):
            add_member(experiment, user)
        judged_by(experiment, away, most=N_TASKS - 1)
        monkeypatch.setattr(pairs_ahead, "annotators_present", lambda experiment: {here.pk})
        waiting = {away.pk: 1}
        while waiting[away.pk]:
            judged_by(experiment, here, most=1)
            advance(experiment_id=experiment.pk)
            waiting = {stock.annotator: stock.n_waiting for stock in pools.stocks(experiment)}
        assert waiting[here.pk]
        assert pools.supply(experiment).n_through == 0
        monkeypatch.undo()
        settings.BUFFER_MIN = 1
        judged_by(experiment, away)
        assert pools.supply(experiment).n_through == 1

    def test_what_waits_for_somebody_who_left_is_discarded(self):
        ann, bob = make_user("ann"), make_user("bob")
        experiment = pool_of({name: texts(name) for name in "AB"})
        add_member(experiment, ann)
        assert len(judged_by(experiment, ann)) == N_TASKS
        member = add_member(experiment, bob)
        advance(experiment_id=experiment.pk)
        member.delete()
        assert experiment.comparisons.filter(state=Comparison.State.READY).count() == N_TASKS
        advance(experiment_id=experiment.pk)
        left = experiment.comparisons.exclude(state=Comparison.State.JUDGED)
        assert (
            list(left.values_list("state", "discard_reason"))
            == [("discarded", "Every annotator has judged these two texts.")] * N_TASKS
        )

    def test_nothing_that_waits_is_discarded_while_nobody_annotates(self):
        experiment = pool_of({name: texts(name) for name in "AB"})
        first = advance(experiment_id=experiment.pk)
        assert first is not None
        assert first.planned
        advance(experiment_id=experiment.pk)
        assert set(experiment.comparisons.values_list("state", flat=True)) == {"ready"}


def test_the_claim_names_the_pool():
    experiment = pool_of({"A": ["a"] * 3, "B": ["b"] * 3}, budget=2)
    assert Response.objects.count() == 6
    observed = designs.replay(experiment)
    for _ in range(200):
        observed.design.tell(0, 1, 1.0)
    said = finding_of(experiment, observed)
    assert "It holds on these 6 responses to 3 tasks." in said
    assert f"The risk of {100 * experiment.delta:g}% is proven for “best” and “good enough”: no more" in said
    assert said.endswith("For “no single best” it is not.")


def test_the_claim_on_texts_that_are_used_again_is_about_those_to_come_as_well():
    """It named the number of texts that were judged so far, and the proof is about all that may be drawn."""
    experiment = make_experiment(n_policies=3, n_tasks=40, responses="reuse", ready=True)
    assert of_pool(experiment)[0] == "It holds on one response of each policy to each of 40 tasks."
    # Beside it stands that the result says nothing about these.
    policy = experiment.policies.first()
    for task in experiment.tasks.all()[:2]:
        Response.objects.create(policy=policy, task=task, seed=1, state=Response.State.FAILED, attempts=3)
    assert of_pool(experiment)[0] == "It holds on one response of each policy to each of 38 tasks."


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"space": "factorial"}, "not proven: the effects of levels are assumed to add up."),
        ({"past_votes": 3}, "not proven: past votes count."),
        ({"delta": 0.4}, "not proven: it is too large for the proof."),
        ({"llm_judge": "votes"}, "not proven: a language model votes."),
        (
            {"llm_judge": "votes", "past_votes": 1},
            "not proven: past votes count, and a language model votes.",
        ),
        ({"claim": "best", "epsilon": 0.0}, "proven for “best”: no more than one person has judged, each"),
        ({"epsilon": 0.4}, "proven for “best”: no more than one person has judged, each policy"),
        ({"allow_tie": True}, "proven for “best”: no more than one person has judged, each policy"),
        ({"allow_both_bad": True}, "proven for “best”: no more than one person has judged, each policy"),
        (
            {"responses": "reuse"},
            "proven only for “best” and “good enough”, if one person alone judges, each",
        ),
        ({"state": "draft"}, "proven only for “best” and “good enough”, if one person alone judges, each"),
    ],
)
def test_it_says_for_which_claims_and_conditions_the_risk_is_proven(settings, wanted):
    experiment = pool_of({"A": ["a"] * 3, "B": ["b"] * 3})
    Experiment.objects.filter(pk=experiment.pk).update(**settings)
    experiment.refresh_from_db()
    assert f"The risk of {100 * experiment.delta:g}% is {wanted}" in unproven(experiment)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"allow_tie": True}, "because ties are offered"),
        ({"epsilon": 0.4}, "because the margin is too large"),
    ],
)
def test_it_says_why_good_enough_is_not_proven(settings, reason):
    experiment = pool_of({"A": ["a"] * 3, "B": ["b"] * 3})
    Experiment.objects.filter(pk=experiment.pk).update(**settings)
    experiment.refresh_from_db()
    said = f"For “no single best” it is not, nor for “good enough”, {reason}."
    assert unproven(experiment).endswith(said)


@pytest.mark.parametrize(
    ("policies", "reasons"),
    [
        ({"A": ["a", "a", "a"], "B": ["b", "b", "b"]}, None),
        # To different tasks: these are no two texts that anybody compares.
        ({"A": ["a", "a", "b"], "B": ["b", "b", "a"]}, None),
        ({"A": ["a", "x", "a"], "B": ["b", "x", "b"]}, "two responses to a task are the same"),
        ({"A": ["a", "a", "a"], "B": ["b", "b"]}, "a policy has no response to a task, or several"),
        (
            {"A": ["a", "x", "a"], "B": ["b", "x"]},
            "a policy has no response to a task, or several, and two responses to a task are the same",
        ),
    ],
)
def test_the_pool_itself_says_whether_the_risk_is_proven(policies, reasons):
    said = unproven(pool_of(policies))
    assert ("is proven for" in said) == (reasons is None)
    assert reasons is None or said.endswith(f"is not proven: {reasons}.")


def pool_for(*annotators) -> Experiment:
    """A pool of which all conditions of the proof hold, and who judges it."""
    experiment = pool_of({name: texts(name) for name in "AB"})
    for user in annotators:
        add_member(experiment, user)
    return experiment


def test_a_second_judge_ends_the_proof():
    ann, bob = make_user("ann"), make_user("bob")
    experiment = pool_for(ann, bob)
    judged_by(experiment, ann, most=2)
    assert "proven for “best” and “good enough”: no more than one person has judged" in unproven(experiment)
    judged_by(experiment, bob, most=1)
    assert unproven(experiment).endswith("is not proven: more than one person judged.")


def test_a_model_that_voted_ends_the_proof():
    """A judgment that was exported and imported again has no opinion, and the proof was said to hold."""
    ann = make_user("ann")
    experiment = pool_for(ann)
    judged_by(experiment, ann, most=1)
    comparison = experiment.comparisons.filter(state=Comparison.State.READY).first()
    Judgment.objects.create(comparison=comparison, judge="llm", via="import", choice="left", outcome=1.0)
    assert unproven(experiment).endswith("is not proven: a language model voted.")


def test_a_late_click_of_a_second_person_leaves_the_sentence_as_it_was_at_the_conclusion():
    """The finding said that no more than one person has judged, and the report beside it the opposite."""
    ann, bob = make_user("ann"), make_user("bob")
    experiment = pool_for(ann, bob)
    judged_by(experiment, ann, most=2)
    said = unproven(experiment)
    held = assign_next(experiment_id=experiment.pk, annotator=bob)
    certify(experiment)
    record_answer(experiment_id=experiment.pk, token=held.token, annotator=bob, choice="left")
    experiment.refresh_from_db()
    assert "no more than one person has judged" in said
    assert unproven(experiment) == said
    # A click that is in the evidence is none, whatever the clock of its machine said.
    row = Evidence.objects.get(experiment=experiment)
    for event in designs.not_in_the_evidence(experiment.pk):
        row.last += 1
        ShowingEvent.objects.filter(pk=event.pk).update(number=row.last)
    row.save()
    assert unproven(experiment).endswith("is not proven: more than one person judged.")
