"""Past votes become an experiment, or part of one: what is stored, what is refused, and how it goes on."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from benchmarks.arena import arena
from engine.core import Design, Place, Unstructured
from engine.domain.conversations import Message
from engine.domain.errors import ImportedBeforeError, SpecError, WrongStateError
from engine.domain.specs import ExperimentSpec, FactorSpec, ReadyMade, TaskSpec
from engine.importing.votes import Vote, Winner
from engine.models import AuditEntry, Comparison, Experiment, Judgment, Membership, Response, Upload, User
from engine.selectors import consequences, counts, designs
from engine.selectors.answers import newest_answer
from engine.selectors.experiments import paused_and_behind
from engine.selectors.past_votes import past_votes
from engine.selectors.pools import name_of
from engine.selectors.rankings import ranking
from engine.selectors.snapshots import latest_snapshot
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.services.forgetting import forget_person
from engine.services.judging import rebuild_counts, void_judgment
from engine.services.past_votes import add_votes, start_from_votes
from engine.services.planning import advance
from engine.services.uploads import keep_upload
from engine.services.voids import restore_judgment, void_annotator
from tests.backends import ScriptedBackend
from tests.factories import add_member, assign_next, click, make_experiment, make_user, write_responses

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def vote(winner: str = "a", a: str = "P", b: str = "Q", task: str = "T1", **fields: Any) -> Vote:
    return Vote("line 2", task, a, b, Winner(winner), **fields)


def with_texts(*votes: Vote) -> list[Vote]:
    return [
        replace(v, response_a=f"{v.policy_a} on {v.task}", response_b=f"{v.policy_b} on {v.task}")
        for v in votes
    ]


THREE = (vote("a", "P", "Q"), vote("tie", "R", "Q"), vote("b", "R", "P", "T2"), vote("both_bad", "P", "R"))


def made(votes: Sequence[Vote] = THREE, name: str = "Past") -> Experiment:
    return start_from_votes(name=name, votes=votes)


# ---------------------------------------------------------------- what is stored


def test_the_file_makes_the_experiment_and_each_vote_counts_once():
    user = make_user("ann")
    experiment = start_from_votes(name="Past", votes=with_texts(*THREE), by=user)
    assert (experiment.state, experiment.past_votes, experiment.responses) == ("paused", 4, "imported")
    assert (experiment.allow_tie, experiment.allow_both_bad) == (True, True)
    assert Membership.objects.get(experiment=experiment).user == user
    assert [task.prompt for task in experiment.tasks.all()] == ["T1", "T2"]
    # P, Q and R in the order in which the file names them.
    assert counts.pair_counts(experiment) == {(0, 1): (1.0, 1), (1, 2): (0.5, 1), (0, 2): (1.5, 2)}
    assert rebuild_counts(experiment_id=experiment.pk) == {}
    for judgment in Judgment.objects.all():
        assert (judgment.via, judgment.judge, judgment.comparison.state) == ("import", "human", "judged")
    entry = AuditEntry.objects.get(action="import_votes")
    assert (entry.by, entry.details["votes"]) == (user, 4)


def test_the_texts_of_a_vote_have_the_name_that_new_pairs_of_them_get():
    for comparison in made(with_texts(*THREE)).comparisons.all():
        assert comparison.texts == name_of(comparison.response_i, comparison.response_j)
    # Where each comparison gets new texts, none is to be found again.
    fresh = made(THREE, name="Fresh")
    assert set(fresh.comparisons.values_list("texts", flat=True)) == {""}


def test_a_conversation_stays_one():
    turns = (Message("system", "Be brief."), Message("user", "Name a colour."))
    text = "System: Be brief.\n\nUser: Name a colour."
    experiment = made([replace(each, task=text, messages=turns) for each in THREE])
    assert [task.turns for task in experiment.tasks.all()] == [turns]


@pytest.mark.parametrize("a_on_left", [True, False])
@pytest.mark.parametrize(("a", "b"), [("P", "Q"), ("Q", "P")])
@pytest.mark.parametrize("winner", list(Winner))
def test_each_vote_keeps_its_side_its_winner_its_person_and_its_time(a_on_left, a, b, winner):
    votes = arena(1)
    given = replace(votes[0], policy_a=a, policy_b=b, winner=winner, a_on_left=a_on_left)
    # Another vote before it names the policies in their order.
    made([vote("a", "P", "Q"), given])
    judgment = Judgment.objects.select_related("comparison").order_by("pk").last()
    assert judgment is not None
    assert judgment.annotator is not None
    comparison = judgment.comparison
    names = {"P": 0, "Q": 1}
    left, right = (a, b) if a_on_left else (b, a)
    assert comparison.left.policy.index == names[left]
    assert comparison.right.policy.index == names[right]
    by_policy = {
        comparison.response_i.policy.index: comparison.response_i,
        comparison.response_j.policy.index: comparison.response_j,
    }
    assert (by_policy[names[a]].text, by_policy[names[b]].text) == (given.response_a, given.response_b)
    chosen = {"left": left, "right": right}.get(judgment.choice, judgment.choice)
    assert chosen == {Winner.A: a, Winner.B: b}.get(winner, winner.value)
    assert judgment.annotator.username == f"{given.annotator}@import-{comparison.experiment_id}"
    assert not judgment.annotator.has_usable_password()
    assert judgment.created_at == comparison.judged_at == given.judged_at


def test_a_side_that_nobody_knows_is_drawn_and_said_to_be_unknown():
    experiment = made([vote("a", "P", "Q")] * 200)
    left = Comparison.objects.filter(i_on_left=True).count()
    assert 60 < left < 140
    found = past_votes(experiment)
    assert (found.left, found.sided) == (0, 0)


def test_without_texts_a_policy_is_a_model_that_a_backend_can_ask():
    experiment = made(THREE)
    assert experiment.responses == "fresh"
    [factor] = experiment.factors.all()
    assert factor.kind == "model"
    assert [(level.name, level.value) for level in factor.levels.all()] == [(n, {"name": n}) for n in "PQR"]
    # Nobody is shown a text that is not there.
    assert set(Response.objects.values_list("state", flat=True)) == {"failed"}


def test_ready_made_responses_need_a_task_for_each_two_policies():
    apart = with_texts(vote("a", "P", "Q", "T1"), vote("a", "R", "S", "T2"))
    assert made(apart).responses == "fresh"
    assert Response.objects.filter(state="done").count() == 4


def test_the_same_text_is_stored_once():
    made(with_texts(*[vote("a")] * 5, vote("b")))
    assert Response.objects.count() == 2
    assert Comparison.objects.count() == 6


# ---------------------------------------------------------------- evidence and ranking


def test_the_evidence_is_that_of_the_same_votes_told_in_order():
    votes = arena(300, policies=6, tasks=3, ties=0.2)
    experiment = made(votes)
    assert experiment.evidence_stale
    advance(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    assert not experiment.evidence_stale
    snapshot = latest_snapshot(experiment)
    assert snapshot is not None
    index: dict[str, int] = {}
    told = Design(Unstructured(6), **designs.design_settings(experiment))
    for each in votes:
        a, b = (index.setdefault(name, len(index)) for name in (each.policy_a, each.policy_b))
        told.tell(a, b, {Winner.A: 1.0, Winner.B: 0.0}.get(each.winner, 0.5))
    assert snapshot.comparisons == 300
    # To tell at once adds the same numbers in another order.
    assert snapshot.evidence == pytest.approx(told.evidence.tolist(), rel=1e-12)
    assert snapshot.peak_evidence == pytest.approx(told.peak_evidence.tolist(), rel=1e-12)


def test_the_ranking_is_there_before_the_evidence_is_replayed():
    beaten = [vote("a", "P", "Q"), vote("a", "P", "R"), vote("a", "Q", "R")] * 60
    experiment = made(beaten)
    before = ranking(experiment)
    advance(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    for ranked in (before, ranking(experiment)):
        assert [each.name.name for each in ranked] == ["P", "Q", "R"]
        assert [each.comparisons for each in ranked] == [120] * 3
        assert [each.standing.place for each in ranked] == [Place.LEADS, Place.RULED_OUT, Place.RULED_OUT]
        for each in ranked:
            assert each.standing.field.low <= each.standing.field.estimate <= each.standing.field.high


def test_votes_after_the_one_that_decides_do_not_keep_the_planner_busy():
    """Their evidence ends earlier than they do."""
    experiment = made([vote("a", "P", "Q", f"T{n}") for n in range(60)])
    assert paused_and_behind() == [experiment.pk]
    advance(experiment_id=experiment.pk)
    latest = latest_snapshot(experiment)
    assert latest.reason
    assert latest.comparisons < 60
    assert paused_and_behind() == []


def test_an_import_is_not_a_conclusion_and_the_claim_names_its_origin():
    experiment = made([vote("a", "P", "Q")] * 100)
    advance(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    assert experiment.state == "paused"
    [caveat] = consequences.caveats(experiment)
    assert caveat.startswith("100 past votes count.")
    # A report of past votes states no risk beside it.
    assert "The risk of 5% holds only if no vote was dropped or added" in caveat
    experiment.stopping = "heuristic"
    [caveat] = consequences.caveats(experiment)
    assert "risk" not in caveat
    assert consequences.caveats(make_experiment()) == []


def test_votes_about_texts_that_an_earlier_one_was_about_are_counted():
    once = with_texts(*(vote(winner) for winner in "aabb"))
    other_task = with_texts(vote("a", task="T2"), vote("tie", task="T2"))
    found = past_votes(made([*once, *other_task, *with_texts(vote("a", task="T3"))]))
    assert (found.votes, found.repeated) == (7, 4)


def test_position_bias_is_of_the_sides_that_the_file_gives():
    votes = [replace(vote("a"), a_on_left=True), replace(vote("b"), a_on_left=False),
             replace(vote("b"), a_on_left=True),
             replace(vote("tie"), a_on_left=True), vote("a")]  # fmt: skip
    found = past_votes(made(votes))
    assert (found.left, found.sided) == (2, 3)


# ---------------------------------------------------------------- going on


def test_new_votes_are_about_the_texts_of_the_file():
    experiment = made(with_texts(*THREE))
    ben = make_user("ben")
    add_member(experiment, ben)
    start(experiment_id=experiment.pk)
    advance(experiment_id=experiment.pk)
    judgment = click(experiment, ben)
    assert judgment.via == "page"
    assert judgment.comparison.response_i.text in {f"{p} on {t}" for p in "PQR" for t in ("T1", "T2")}
    assert counts.comparison_count(experiment.pk) == 5


def test_without_texts_a_backend_writes_new_ones_and_no_empty_text_is_shown():
    # More than the run of failures after which a backend counts as broken.
    experiment = made([vote("ab"[n % 2], task=f"T{n}") for n in range(30)])
    ben = make_user("ben")
    add_member(experiment, ben)
    start(experiment_id=experiment.pk)
    done = advance(experiment_id=experiment.pk)
    assert done is not None
    assert done.planned > 0
    backend = ScriptedBackend(lambda request: f"A new text of {request.model}.")
    write_responses(backend)
    assert {request.model for request in backend.requests} == {"P", "Q"}
    assert click(experiment, ben).comparison.response_i.text == "A new text of P."


def test_the_budget_has_room_for_as_many_new_comparisons_as_ever():
    default = Experiment._meta.get_field("budget").default
    assert made([vote("a")] * 30).budget == default + 30


def test_a_voided_past_vote_is_judged_by_nobody(admin: User):
    ben = make_user("ben")
    with_them = made(with_texts(vote("a"), vote("tie"), vote("a")), name="With")
    without = made([replace(vote("a"), annotator="ann")] * 2, name="Without")
    for experiment in (with_them, without):
        judgment = Judgment.objects.filter(comparison__experiment=experiment).earliest("pk")
        void_judgment(judgment_id=judgment.pk, by=admin, reason="Wrong.")
        judgment.comparison.refresh_from_db()
        assert judgment.comparison.state == "discarded"
        assert rebuild_counts(experiment_id=experiment.pk) == {}
    restored = restore_judgment(
        judgment_id=Judgment.objects.filter(comparison__experiment=with_them).earliest("pk").pk
    )
    assert restored.via == "import"
    ann = User.objects.get(username__startswith="ann@import-")
    void_annotator(experiment_id=without.pk, annotator=ann, by=admin, reason="Wrong.")
    assert counts.comparison_count(without.pk) == 0
    add_member(without, ben)
    start(experiment_id=without.pk)
    assert assign_next(experiment_id=without.pk, annotator=ben) is None


# ---------------------------------------------------------------- adding to what is there


def draft(**settings: Any) -> Experiment:
    return create_experiment(
        spec=ExperimentSpec(
            name="Ours",
            factors=[
                FactorSpec("Prompt", "prompt", {name: {"text": name} for name in ("Terse", "Long")}),
                FactorSpec("Strategy", "strategy", {"Direct": {}, "Steps": {"instruction": "Think."}}),
            ],
            tasks=[TaskSpec("T1"), TaskSpec("T2")],
            settings=settings,
        )
    )


def test_votes_are_added_where_policies_and_tasks_are_known():
    experiment = draft(budget=500)
    added = add_votes(
        experiment_id=experiment.pk,
        votes=[vote("tie", "Terse · Direct", "Long · Steps"), vote("b", "P4", "Terse · Steps", "T2")],
    ).experiment
    assert (added.state, added.budget, added.past_votes, added.allow_tie) == ("paused", 502, 2, True)
    assert {pair: n for pair, n in counts.pair_counts(added).items() if n[1]} == {
        (0, 3): (0.5, 1),
        (1, 3): (1.0, 1),
    }
    again = add_votes(experiment_id=experiment.pk, votes=[vote("a", "P1", "P2")]).experiment
    assert (again.budget, again.past_votes) == (503, 3)
    advance(experiment_id=experiment.pk)
    assert rebuild_counts(experiment_id=experiment.pk) == {}


def counted_in(experiment: Experiment, votes: Sequence[Vote]) -> str:
    """The beginning of the refusal of votes that count already; empty where they are added."""
    try:
        add_votes(experiment_id=experiment.pk, votes=votes)
    except ImportedBeforeError as error:
        return str(error).partition(" count in")[0]
    return ""


KNOWN = [replace(each, annotator=f"judge {n}") for n, each in enumerate(arena(40, policies=3, tasks=2))]


@pytest.mark.parametrize(
    "lacking",
    [
        {},
        {"annotator": ""},
        {"response_a": None, "response_b": None},
        {"a_on_left": None},
        {"judged_at": None},
    ],
)
def test_a_file_that_shares_votes_with_an_earlier_one_is_refused_with_their_number(lacking):
    votes = [replace(each, **lacking) for each in KNOWN]
    experiment = made(votes[:30])
    assert counted_in(experiment, votes[:30]) == "All 30 votes"
    assert counted_in(experiment, votes[29::-1]) == "All 30 votes"
    assert counted_in(experiment, votes[25:]) == "5 of the 15 votes"
    assert counted_in(experiment, votes[:1]) == "All 1 votes"
    experiment.refresh_from_db()
    assert experiment.past_votes == 30
    assert add_votes(experiment_id=experiment.pk, votes=votes[25:], counted="only_new").n_votes == 10
    with pytest.raises(ImportedBeforeError, match="All 40 votes count in this experiment already"):
        add_votes(experiment_id=experiment.pk, votes=votes, counted="only_new")
    add_votes(experiment_id=experiment.pk, votes=votes[25:], counted="again")
    experiment.refresh_from_db()
    assert experiment.past_votes == 55
    assert rebuild_counts(experiment_id=experiment.pk) == {}


def test_a_file_that_was_imported_meanwhile_is_not_imported_again(admin: User):
    kept = keep_upload(user=admin, material="votes", name="Mine", file_name="mine.csv", data=b"votes")
    late = Upload.objects.get(pk=kept.pk)
    start_from_votes(name="Mine", votes=THREE, by=admin, upload=kept)
    with pytest.raises(WrongStateError, match="another worker"):
        start_from_votes(name="Other", votes=THREE, by=admin, upload=late)
    assert Experiment.objects.count() == 1


def test_a_vote_that_was_voided_does_not_come_back_with_its_file(admin: User):
    experiment = made(KNOWN)
    first = Judgment.objects.earliest("pk")
    void_judgment(judgment_id=first.pk, by=admin, reason="Wrong.")
    assert counted_in(experiment, KNOWN) == "All 40 votes"
    restore_judgment(judgment_id=first.pk)
    assert counted_in(experiment, KNOWN) == "All 40 votes"


@pytest.mark.parametrize(
    "name", ["Zoe\u0301", "\uff21\uff4e\uff4e", "judge " * 30 + "1"], ids=["decomposed", "wide", "long"]
)
def test_a_name_that_is_kept_in_another_form_is_the_same_person(name):
    """Letters with marks have two forms in Unicode, and an account's name is cut."""
    others = [replace(each, annotator=f"{name} too", judged_at=None) for each in KNOWN[:5]]
    votes = [replace(each, annotator=name, judged_at=None) for each in KNOWN[:10]] + others
    experiment = made(votes)
    assert counted_in(experiment, votes) == "All 15 votes"
    more = [replace(each, annotator=name, judged_at=None) for each in KNOWN[10:20]]
    assert add_votes(experiment_id=experiment.pk, votes=[*votes, *more], counted="only_new").n_votes == 10
    assert User.objects.filter(username__endswith=f"@import-{experiment.pk}").count() == 2


def test_the_votes_of_a_forgotten_person_do_not_come_back_with_their_file():
    votes = [replace(each, judged_at=None) for each in KNOWN]
    experiment = made(votes[:30])
    for user in User.objects.filter(username__endswith=f"@import-{experiment.pk}")[:20]:
        forget_person(user_id=user.pk, by=None)
    assert counted_in(experiment, votes[:30]) == "All 30 votes"
    assert add_votes(experiment_id=experiment.pk, votes=votes, counted="only_new").n_votes == 10
    # An equal vote of somebody who is known takes the place of nobody.
    known = replace(votes[0], annotator="somebody else")
    assert add_votes(experiment_id=experiment.pk, votes=[*votes, known], counted="only_new").n_votes == 1


def test_votes_that_only_look_alike_count_when_somebody_says_so():
    """Two people may have voted alike where the file names neither them nor the times: nobody else knows."""
    bare = [vote(winner, task=task) for winner in ("a", "b", "tie") for task in ("T1", "T2")]
    experiment = made(bare[:5])
    with pytest.raises(ImportedBeforeError, match=r"3 of these .* may be other votes that look the same"):
        add_votes(experiment_id=experiment.pk, votes=bare[1:4])
    assert add_votes(experiment_id=experiment.pk, votes=bare[1:4], counted="again").n_votes == 3
    assert counted_in(experiment, [*bare[:5], *bare[1:4], bare[0]]) == "8 of the 9 votes"
    assert counted_in(experiment, bare[5:]) == ""
    assert rebuild_counts(experiment_id=experiment.pk) == {}


@pytest.mark.parametrize("n_before", [2, 5, 12])
@pytest.mark.parametrize("n_more", [1, 12])
def test_of_a_table_to_which_bare_votes_are_appended_only_the_new_ones_count(n_before, n_more):
    """However few they are, and where the new ones look like the old ones."""
    bare = [vote(winner, task=task) for winner in ("a", "b", "tie") for task in ("T1", "T2")] * 4
    experiment = made(bare[:n_before])
    table = bare[: n_before + n_more]
    assert counted_in(experiment, table) == f"{n_before} of the {len(table)} votes"
    assert add_votes(experiment_id=experiment.pk, votes=table, counted="only_new").n_votes == n_more
    experiment.refresh_from_db()
    assert experiment.past_votes == len(table)
    for counted in ("only_new", ""):
        with pytest.raises(ImportedBeforeError, match=f"All {len(table)} votes count"):
            add_votes(experiment_id=experiment.pk, votes=table, counted=counted)
    assert rebuild_counts(experiment_id=experiment.pk) == {}


def test_an_annotator_of_two_files_is_one_person():
    experiment = draft()
    for winner in ("a", "b"):
        add_votes(experiment_id=experiment.pk, votes=[replace(vote(winner, "P1", "P2"), annotator="ann")])
    assert User.objects.filter(username__startswith="ann@import").count() == 1


def test_nobody_gets_the_votes_of_a_file_by_a_name_chosen_before():
    """An annotator could take them back, as their own."""
    experiment = draft()
    joined = make_user(f"ann@import-{experiment.pk}")
    add_member(experiment, joined)
    add_votes(experiment_id=experiment.pk, votes=[replace(vote("a", "P1", "P2"), annotator="ann")])
    judgment = Judgment.objects.get()
    assert judgment.annotator.username == f"ann@import-{experiment.pk}-2"
    assert newest_answer(experiment, joined) is None


def test_somebody_whose_account_has_a_number_is_known_by_the_name_in_the_file():
    """The votes would count twice, and be those of two people."""
    experiment = made(KNOWN[:20])
    make_user(f"ann@import-{experiment.pk}")
    votes = [replace(each, annotator="ann", judged_at=None) for each in KNOWN]
    add_votes(experiment_id=experiment.pk, votes=votes[:10])
    assert counted_in(experiment, votes[:10]) == "All 10 votes"
    assert add_votes(experiment_id=experiment.pk, votes=votes[:20], counted="only_new").n_votes == 10
    judged = Judgment.objects.filter(annotator__username__startswith="ann").distinct()
    assert set(judged.values_list("annotator__username", flat=True)) == {f"ann@import-{experiment.pk}-2"}


def test_votes_of_both_kinds_add_up_in_one_experiment():
    ann = make_user("ann")
    experiment = make_experiment(ready=True, annotators=(ann,), n_policies=3)
    click(experiment, ann)
    with pytest.raises(WrongStateError, match=r"this one is running\. Pause it first"):
        add_votes(experiment_id=experiment.pk, votes=[vote("a", "P1", "P2")])
    Experiment.objects.filter(pk=experiment.pk).update(state="paused")
    task = experiment.tasks.first()
    assert task is not None
    add_votes(experiment_id=experiment.pk, votes=[vote("a", "Prompt 0", "Prompt 1", task.prompt)])
    assert counts.comparison_count(experiment.pk) == 2
    advance(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    replayed = designs.replay(experiment).design
    snapshot = latest_snapshot(experiment)
    assert snapshot is not None
    assert snapshot.evidence == replayed.evidence.tolist()


@pytest.mark.parametrize(
    ("chosen", "given", "words"),
    [
        ({}, vote("a", "P1", "Loud"), "line 2: 'Loud' is no policy of this experiment"),
        ({}, vote("a", "P1", "Terse · Direct"), "line 2: Both policies are the same one"),
        ({}, vote("a", "P1", "P2", "T9"), "line 2: The task 'T9' is not in this experiment"),
        ({"responses": "reuse"}, vote("a", "P1", "P2"), "line 2: There is no text of the response of 'P1'"),
        ({"overlap": 3}, vote("a", "P1", "P2"), "wants 3 judgments of each comparison"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_stored(chosen, given, words):
    experiment = draft(**chosen)
    with pytest.raises(SpecError, match=words):
        add_votes(experiment_id=experiment.pk, votes=[vote("a", "P1", "P3"), given])
    experiment.refresh_from_db()
    assert (experiment.state, Judgment.objects.count(), User.objects.count()) == ("draft", 0, 0)


def test_new_responses_and_tasks_of_a_growing_table_join_the_pool():
    spec = ExperimentSpec(
        "Pool", [FactorSpec("Policy", "imported", {"P": {}, "Q": {}})], [TaskSpec("T1")],
        {"responses": "imported"}, ready_made=[ReadyMade(0, "P", "P on T1"), ReadyMade(0, "Q", "Q on T1")],
    )  # fmt: skip
    experiment = create_experiment(spec=spec)
    [known] = with_texts(vote("a"))
    add_votes(experiment_id=experiment.pk, votes=[known])
    assert Response.objects.count() == 2
    grown = [replace(known, response_b="Another"), replace(known, task="T2")]
    experiment = add_votes(experiment_id=experiment.pk, votes=[known, *grown], counted="only_new").experiment
    assert experiment.past_votes == 3
    assert [task.prompt for task in experiment.tasks.order_by("position")] == ["T1", "T2"]
    assert sorted(Response.objects.values_list("task__prompt", "text")) == [
        ("T1", "Another"), ("T1", "P on T1"), ("T1", "Q on T1"), ("T2", "P on T1"), ("T2", "Q on T1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "spoiled",
    [
        lambda at: at.replace(second=0, microsecond=0),
        lambda at: at.replace(hour=0, minute=0, second=0, microsecond=0),
        lambda at: None,
    ],
    ids=["no seconds", "a date", "emptied"],
)
@pytest.mark.parametrize("texts", [True, False], ids=["with texts", "without"])
def test_the_same_votes_with_the_times_of_a_spreadsheet_do_not_double(spoiled, texts):
    votes = [
        replace(each, annotator=f"judge {n % 5}", judged_at=at)
        for n, each in enumerate(arena(40, policies=4, tasks=3, texts=texts))
        for at in [datetime(2026, 3, 1, 10, 17, 23, 417_000, tzinfo=UTC) + timedelta(seconds=41 * n)]
    ]
    experiment = made(votes)
    again = [replace(vote, judged_at=spoiled(vote.judged_at)) for vote in votes]
    with pytest.raises(ImportedBeforeError, match="All 40 votes"):
        add_votes(experiment_id=experiment.pk, votes=again)
    with pytest.raises(ImportedBeforeError, match="All 40 votes"):
        add_votes(experiment_id=experiment.pk, votes=again, counted="only_new")
    # And the other way about.
    other = start_from_votes(name="Other", votes=again)
    with pytest.raises(ImportedBeforeError, match="All 40 votes"):
        add_votes(experiment_id=other.pk, votes=votes, counted="only_new")


def test_a_concluded_or_archived_experiment_takes_no_votes():
    experiment = draft()
    Experiment.objects.filter(pk=experiment.pk).update(state="concluded", conclusion="stopped")
    with pytest.raises(WrongStateError, match=r"this one is concluded\. Use another name"):
        add_votes(experiment_id=experiment.pk, votes=[vote("a", "P1", "P2")])


@pytest.mark.parametrize(
    ("setting", "most", "words"),
    [
        ("MOST_POLICIES", 3, "60 policies; the limit is 3"),
        ("MOST_TASKS", 3, "13 tasks; the limit is 3"),
        ("MOST_RESPONSES", 3, "ready-made responses; the limit is 3"),
    ],
)
def test_limits_hold_and_nothing_is_stored(setting, most, words, settings):
    votes = arena(400)
    setattr(settings, setting, most)
    with pytest.raises(SpecError, match=words):
        made(votes)
    assert not Experiment.objects.exists()


# ---------------------------------------------------------------- cost


@pytest.mark.postgres_only
def test_postgresql_plans_for_the_votes_from_the_end_of_their_import_on():
    made(arena(500))
    with connection.cursor() as cursor:
        cursor.execute("SELECT reltuples FROM pg_class WHERE relname = %s", [Judgment._meta.db_table])
        assert cursor.fetchone()[0] >= 500
