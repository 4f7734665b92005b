"""The evidence is a fold over the log: what the planner stores is what a replay from nothing finds."""

import json
import random
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as settings_of_django
from django.core.management import call_command
from django.db.models import F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.domain.errors import WrongStateError
from engine.importing.votes import Vote, Winner
from engine.models import (
    Assignment,
    Comparison,
    Evidence,
    Experiment,
    Judgment,
    JudgmentVoid,
    ShowingEvent,
    User,
)
from engine.selectors import answers, counts, designs
from engine.selectors.verifying import faults_of
from engine.services import assignments, evidence, serving
from engine.services.experiments import stop
from engine.services.judging import rebuild_counts, void_judgment
from engine.services.past_votes import start_from_votes
from engine.services.planning import advance, plan_round
from engine.services.setting_changes import change_settings
from engine.services.voids import restore_judgment, void_annotator
from tests.concurrency import with_helpers
from tests.factories import (
    assign,
    assign_all,
    assign_next,
    click_on,
    make_experiment,
    make_user,
    write_responses,
)

pytestmark = pytest.mark.django_db

GOOD_ENOUGH = {"claim": "good_enough", "epsilon": 0.1}


def assert_a_replay_agrees(experiment: Experiment) -> None:
    """Bit by bit: the stored state, and that of the numbered events told one by one to a new design."""
    events = designs.logged(designs.in_the_evidence(experiment))
    replayed = designs.replay(experiment, events)
    assert replayed.last == len(events)
    assert Evidence.objects.get(experiment=experiment).state == designs.state_of(replayed)
    assert designs.stored(experiment).design.decision == replayed.design.decision
    numbers = ShowingEvent.objects.filter(experiment=experiment, number__isnull=False)
    assert sorted(numbers.values_list("number", flat=True)) == list(range(1, len(events) + 1))
    assert rebuild_counts(experiment_id=experiment.pk) == {}


DOCS = Path(settings_of_django.BASE_DIR, "docs/export.md")
[PROGRAM] = re.findall(r"```python\n(import json\n.*?)```", DOCS.read_text(), flags=re.DOTALL)


def assert_the_exported_log_agrees(experiment: Experiment, folder: Path) -> None:
    """Bit by bit: the program in docs/export.md comes to the planner's evidence and decision."""
    call_command(
        "export", str(experiment.pk), "--format", "events", "--out", str(folder / "events.jsonl"), "--force",
        verbosity=0,
    )  # fmt: skip
    names: dict[str, Any] = {"print": lambda *_: None}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(PROGRAM, names)  # noqa: S102 - ours
    computed, stored = names["design"], designs.stored(experiment).design
    assert computed.evidence.tolist() == stored.evidence.tolist()
    assert computed.named == stored.named
    assert computed.progress["streams"] == stored.progress["streams"]
    assert computed.by_answers() == stored.by_answers()
    assert computed.decision == stored.decision


class Acts:
    """Acts of people and the planner on an experiment, in any order; an impossible one does nothing."""

    NAMES = (
        "click", "click", "click", "look", "leave", "skip", "undo", "undo",
        "void", "restore", "void_all", "expire", "advance", "advance", "write",
    )  # fmt: skip

    def __init__(self, experiment: Experiment, users: list[User], admin: User, seed: int) -> None:
        self.experiment, self.users, self.admin = experiment, users, admin
        self.random = random.Random(seed)

    def act(self, name: str) -> None:
        user = self.random.choice(self.users)
        with suppress(WrongStateError):
            getattr(self, name)(user)

    def look(self, user: User):
        return assign_next(experiment_id=self.experiment.pk, annotator=user)

    def click(self, user: User) -> None:
        if (held := self.look(user)) is not None:
            serving.answer(
                experiment_id=self.experiment.pk,
                token=held.token,
                annotator=user,
                choice=self.random.choice(["left", "right", "tie"]),
            )

    def leave(self, user: User) -> None:
        assignments.leave(annotator=user)

    def skip(self, user: User) -> None:
        if (held := self.look(user)) is not None:
            serving.skip(experiment=self.experiment, token=held.token, annotator=user, reason="task")

    def undo(self, user: User) -> None:
        newest = answers.newest_answer(self.experiment, user)
        if newest is not None:
            serving.take_back(experiment=self.experiment, answer=newest, annotator=user)

    def void(self, user: User) -> None:
        standing = list(counts.standing_judgments(self.experiment.pk))
        if standing:
            void_judgment(judgment_id=self.random.choice(standing).pk, by=self.admin, reason="Odd")

    def restore(self, user: User) -> None:
        voided = list(JudgmentVoid.objects.filter(judgment__comparison__experiment=self.experiment))
        if voided:
            restore_judgment(judgment_id=self.random.choice(voided).judgment_id, by=self.admin)

    def void_all(self, user: User) -> None:
        if self.random.random() < 0.2:
            void_annotator(experiment_id=self.experiment.pk, annotator=user, by=self.admin, reason="Spam")

    def expire(self, user: User) -> None:
        Assignment.objects.filter(annotator=user).update(expires_at=F("created_at"))

    def advance(self, user: User) -> None:
        advance(experiment_id=self.experiment.pk)

    def write(self, user: User) -> None:
        write_responses()


RULES = [
    {"claim": "best_if_any"},
    {"claim": "best", "n_policies": 4},
    {**GOOD_ENOUGH, "n_policies": 2},
    {**GOOD_ENOUGH, "n_policies": 4, "overlap": 2},
    {**GOOD_ENOUGH, "missing": "answers"},
    {"claim": "best", "overlap": 2, "overlap_rule": "mean"},
]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rules=st.sampled_from(RULES),
    seed=st.integers(0, 10**6),
    names=st.lists(st.sampled_from(Acts.NAMES), min_size=20, max_size=60),
)
def test_what_people_do_in_any_order(db, tmp_path, rules, seed, names):
    users = [make_user() for _ in range(3)]
    experiment = make_experiment(
        ready=True, annotators=tuple(users), allow_tie=True, seed=seed, delta=0.2, **rules
    )
    acts = Acts(experiment, users, make_user(is_superuser=True), seed)
    for name in names:
        acts.act(name)
        experiment.refresh_from_db()
        if experiment.state == "concluded":
            break
    advance(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    if experiment.state != "concluded":
        assert not designs.not_in_the_evidence(experiment.pk).exists()
    assert_a_replay_agrees(experiment)
    assert_the_exported_log_agrees(experiment, tmp_path)
    assert list(faults_of(experiment)) == []


def test_the_log_of_an_experiment_whose_levels_add_up(annotator, tmp_path):
    experiment = make_experiment(ready=True, annotators=(annotator,), n_policies=4, space="factorial")
    click_on(experiment, annotator, 8)
    assert_the_exported_log_agrees(experiment, tmp_path)
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    calls = [json.loads(line)["call"] for line in lines[1:]]
    assert calls == ["show", "end"] * 8


def test_another_claim_is_folded_anew_in_slices(annotator, monkeypatch):
    monkeypatch.setattr(evidence, "_MOST_EVENTS", 5)
    experiment = make_experiment(ready=True, annotators=(annotator,), delta=1e-6)
    click_on(experiment, annotator, 12)
    before = Evidence.objects.get(experiment=experiment).state
    change_settings(experiment_id=experiment.pk, by=None, claim="good_enough", epsilon=0.1)
    experiment.refresh_from_db()
    assert experiment.evidence_stale
    done = plan_round(experiment_id=experiment.pk)
    assert done is not None
    assert done.again
    assert Evidence.objects.get(experiment=experiment).last == 5
    advance(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    assert not experiment.evidence_stale
    assert_a_replay_agrees(experiment)
    after = Evidence.objects.get(experiment=experiment).state
    assert after["last"] == before["last"]
    assert after["progress"] != before["progress"]


def test_what_is_left_counts_against_until_it_is_answered(annotator):
    bob = make_user("bob")
    experiment = make_experiment(ready=True, annotators=(annotator, bob), n_policies=2, **GOOD_ENOUGH)
    click_on(experiment, annotator, 3)
    without = designs.load(experiment).design.evidence
    held = assign(experiment, bob)
    assignments.leave(annotator=bob)
    with_it = designs.load(experiment).design
    assert with_it.open_showings == [held.comparison_id]
    assert (with_it.evidence <= without).all()
    Experiment.objects.filter(pk=experiment.pk).update(missing="answers")
    experiment.refresh_from_db()
    assert (designs.replay(experiment).design.evidence == without).all()


def test_past_votes_are_folded_too():
    votes = [Vote(f"row {n}", "T", "P", "Q", Winner.A if n % 3 else Winner.B) for n in range(30)]
    experiment = start_from_votes(name="Past", votes=votes)
    advance(experiment_id=experiment.pk)
    assert_a_replay_agrees(experiment)
    assert Evidence.objects.get(experiment=experiment).last == 60


def test_what_comes_after_the_end_is_no_part_of_it(annotator):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    click_on(experiment, annotator, 3)
    held = assign(experiment, annotator)
    stop(experiment_id=experiment.pk)
    state = Evidence.objects.get(experiment=experiment).state
    serving.answer(experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left")
    advance(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    assert Evidence.objects.get(experiment=experiment).state == state
    assert designs.not_in_the_evidence(experiment.pk).count() == 1
    assert designs.load(experiment).design.n_comparisons == 3
    assert designs.load(experiment, late=True).design.n_comparisons == 4


def test_no_new_pairs_once_the_claim_would_hold_without_the_open_ones(annotator):
    bob = make_user("bob")
    experiment = make_experiment(ready=True, annotators=(annotator, bob), n_policies=2, **GOOD_ENOUGH)
    assert len(assign_all(experiment_id=experiment.pk, annotator=bob)) > 1
    advance(experiment_id=experiment.pk)
    write_responses()
    n_judged = 0
    while experiment.closing_since is None:
        held = assign(experiment, annotator)
        i_won = held.comparison.policy_i.index == 0
        choice = "left" if i_won == held.comparison.i_on_left else "right"
        serving.answer(experiment_id=experiment.pk, token=held.token, annotator=annotator, choice=choice)
        advance(experiment_id=experiment.pk)
        write_responses()
        experiment.refresh_from_db()
        n_judged += 1
        assert n_judged < 200
    assert experiment.state == "running"
    n_planned = experiment.comparisons.count()
    advance(experiment_id=experiment.pk)
    assert experiment.comparisons.count() == n_planned
    # Nobody looks at them any more: what is left counts against, and others get new ones.
    assignments.leave(annotator=bob)
    advance(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    assert experiment.closing_since is None


@pytest.mark.django_db(transaction=True)
def test_twenty_at_once_and_the_planner(settings, admin):
    settings.BUFFER_MIN = settings.BUFFER_MAX = 80
    users = [make_user() for _ in range(20)]
    experiment = make_experiment(
        ready=True, annotators=tuple(users), n_policies=4, delta=1e-9, budget=5000, allow_tie=True
    )

    def label(user: User, seed: int) -> int:
        acts = Acts(experiment, [user], admin, seed)
        clicks = 0
        for _ in range(12):
            before = Judgment.objects.filter(annotator=user).count()
            acts.act(acts.random.choice(["click", "click", "click", "undo", "leave", "skip", "look"]))
            clicks += Judgment.objects.filter(annotator=user).count() - before
            time.sleep(0.001)
        return clicks

    clicks = with_helpers(
        [lambda user=user, seed=seed: label(user, seed) for seed, user in enumerate(users)],
        [
            lambda: advance(experiment_id=experiment.pk),
            lambda: advance(experiment_id=experiment.pk),
            lambda: write_responses(worker="a"),
        ],
    )
    assert clicks > 50
    advance(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    assert not designs.not_in_the_evidence(experiment.pk).exists()
    assert_a_replay_agrees(experiment)
    assert list(faults_of(experiment)) == []
    # None is lost: each judgment ended its showing, and each void by its annotator opened it again.
    kinds = list(ShowingEvent.objects.values_list("kind", flat=True))
    assert kinds.count("told") >= Judgment.objects.count()
    assert kinds.count("reopened") == JudgmentVoid.objects.count()
    shown = Comparison.objects.exclude(assignments=None).count()
    assert kinds.count("begun") == shown
