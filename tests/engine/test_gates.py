"""Gates: the ends of a changed text against that of main, and what counts as a change."""

import json
from dataclasses import replace

import numpy as np
import pytest

from engine.domain.errors import SpecError, WrongStateError
from engine.domain.specs import TaskSpec
from engine.models import AuditEntry, Experiment, Gate, Level, Loan, Notification, Response
from engine.selectors import gates as selectors
from engine.selectors.designs import load, replay
from engine.selectors.specs import experiment_spec
from engine.selectors.spending import money_trouble, overspent_experiments
from engine.services import keys
from engine.services.drafts import replace_draft
from engine.services.experiments import archive, pause, stop, stop_on
from engine.services.gates import Text, check_texts, set_main_texts
from engine.services.notifications import subscribe
from engine.services.past_votes import add_votes
from engine.services.people import add_group, follow_groups
from engine.services.policies import add_policies
from engine.services.setting_changes import change_settings, reopen
from engine.services.task_changes import add_tasks, leave_out_task
from labeling.dashboard.figures import result_of
from tests.factories import add_member, click_for, connect, make_experiment, make_user, pay, plan_and_write

pytestmark = pytest.mark.django_db

FACTOR, LEVEL = "System prompt", "Prompt 0"


@pytest.fixture
def editor():
    return make_user("editor")


@pytest.fixture
def experiment(annotator, editor):
    made = make_experiment(ready=True, annotators=(annotator,), epsilon=0.2, delta=0.2, budget=60)
    add_member(made, editor, "editor")
    return made


def check(experiment, by, text="quality 9", commit="", factor=FACTOR, level=LEVEL):
    texts = [Text(factor, level, text)]
    return check_texts(experiment_id=experiment.pk, texts=texts, commit=commit, by=by)


def judge(gate, annotator, share, most=200):
    """People prefer the change this often, until its challenge ends."""
    rng = np.random.default_rng(0)
    for _ in range(most):
        plan_and_write(gate.challenge)
        gate.challenge.refresh_from_db()
        if gate.challenge.state == Experiment.State.CONCLUDED:
            break
        won = rng.random() < share
        click_for(gate.challenge, annotator, lambda i, j, won=won: (i > j) == won)
    return selectors.state_of(gate)


@pytest.mark.parametrize(("share", "end"), [(0.5, "passed"), (0.0, "worse")])
def test_the_evidence_ends_a_challenge_once_and_is_audited_like_any_other(
    experiment, editor, annotator, share, end
):
    gate = check(experiment, editor)
    assert selectors.state_of(gate) == "open"
    assert judge(gate, annotator, share) == end
    challenge = gate.challenge
    assert challenge.certified_claim == ("good_enough" if end == "passed" else "best")
    winner = challenge.winner.levels.get()
    assert winner.value["text"] == ("quality 9" if end == "passed" else "quality 0")
    assert winner.name in challenge.finding
    assert result_of(challenge)["verdict"]["risk"] == challenge.delta
    assert replay(challenge).design.evidence == pytest.approx(load(challenge).design.evidence)
    assert check(experiment, editor) == gate, "found again"
    assert Gate.objects.count() == 1


def test_a_name_for_main_alone_ends_nothing(experiment, editor, annotator):
    """That main is good enough says nothing about the change: half of all harmless changes would end so."""
    gate = check(experiment, editor)
    for _ in range(60):
        plan_and_write(gate.challenge)
        design = load(gate.challenge).design
        if design.named.get("good_enough") == 0:
            break
        # Main is ahead, and not by so much that it wins.
        ahead = design.wins[0, 1] < 0.62 * (design.n_comparisons + 1)
        click_for(gate.challenge, annotator, lambda i, j, ahead=ahead: (i < j) == ahead)
    plan_and_write(gate.challenge)
    gate.challenge.refresh_from_db()
    assert load(gate.challenge).design.named["good_enough"] == 0
    assert selectors.state_of(gate) == "open"
    stop_on(experiment_id=gate.challenge.pk, claim="good_enough", by=editor)
    gate.challenge.refresh_from_db()
    assert gate.challenge.winner.index == 0
    assert selectors.state_of(gate) == "stopped"


def test_a_budget_that_is_spent_and_a_stop_claim_nothing(experiment, editor, annotator):
    Experiment.objects.filter(pk=experiment.pk).update(budget=3)
    gate = check(experiment, editor)
    assert judge(gate, annotator, 0.5) == "stopped"
    assert gate.challenge.conclusion == "budget"
    reopen(experiment_id=gate.challenge.pk, by=editor, budget=60)
    gate.challenge.refresh_from_db()
    assert selectors.state_of(gate) == "open"
    stop(experiment_id=gate.challenge.pk, by=editor)
    gate.challenge.refresh_from_db()
    assert selectors.state_of(gate) == "stopped"


def test_a_challenge_has_the_people_and_the_connections_of_its_experiment(experiment, editor, annotator):
    owner = make_user("owner")
    add_member(experiment, owner, "owner")
    model = connect("gpt", "https://models.example.org/v1", everybody=False)
    Experiment.objects.filter(pk=experiment.pk).update(model="gpt", responses="fresh")
    Loan.objects.create(connection=model, experiment=experiment, by=owner)
    challenge = check(experiment, editor).challenge

    def roles(of):
        return set(of.memberships.values_list("user__username", "role"))

    assert roles(challenge) == roles(experiment)
    assert challenge.loans.get().connection == model
    assert challenge.state == "running"
    assert {each.by for each in AuditEntry.objects.filter(action="gate")} == {editor}


def test_the_texts_that_are_sent_are_compared(annotator, editor):
    experiment = make_experiment(n_tasks=2, epsilon=0.2)
    add_member(experiment, editor, "editor")
    experiment.tasks.update(variables={"name": "Ann"})
    Level.objects.filter(name=LEVEL).update(value={"text": "Call her {{ name }}."})
    assert check(experiment, editor, "Call her {{name}}.") is None
    assert check(experiment, editor, "Call her {{ name }}.") is None
    assert check(experiment, editor, "Call her {{ name }}. ") is not None


def test_main_moves_on_and_the_next_change_meets_what_it_has_now(experiment, editor):
    first = check(experiment, editor, "quality 9")
    merged = [Text(FACTOR, LEVEL, "quality 9")]
    set_main_texts(experiment_id=experiment.pk, texts=merged, by=editor)
    set_main_texts(experiment_id=experiment.pk, texts=merged, by=editor)
    assert AuditEntry.objects.filter(action="main_texts").count() == 1
    assert check(experiment, editor, "quality 9") is None
    second = check(experiment, editor, "quality 0")
    assert second != first
    sides = [each.levels.get().value["text"] for each in second.challenge.policies.all()]
    assert sides == ["quality 9", "quality 0"]


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"factor": "Tone"}, SpecError),
        ({"level": "Prompt 9"}, SpecError),
        ({"text": "Call her {{ name }}."}, SpecError),
    ],
)
def test_what_cannot_be_compared_is_refused(experiment, editor, given, fault):
    with pytest.raises(fault):
        check(experiment, editor, **given)
    assert not Gate.objects.exists()


def test_a_margin_is_needed_and_one_level_of_each_factor(experiment, editor):
    twice = [Text(FACTOR, LEVEL, "a"), Text(FACTOR, "Prompt 1", "b")]
    with pytest.raises(SpecError):
        check_texts(experiment_id=experiment.pk, texts=twice, by=editor)
    Experiment.objects.filter(pk=experiment.pk).update(epsilon=0)
    with pytest.raises(WrongStateError):
        check(experiment, editor)


@pytest.mark.parametrize("setting", ["epsilon", "delta"])
def test_another_margin_or_risk_is_another_question(experiment, editor, setting):
    first = check(experiment, editor)
    change_settings(experiment_id=experiment.pk, by=editor, **{setting: 0.1})
    second = check(experiment, editor)
    assert second != first
    assert getattr(second.challenge, setting) == 0.1


def test_a_challenge_keeps_its_two_policies_and_its_one_risk(experiment, editor):
    """Without main a pass would be about another policy, and each new beginning would add the risk again."""
    challenge = check(experiment, editor).challenge
    with pytest.raises(WrongStateError, match="gate"):
        add_policies(experiment_id=challenge.pk, levels={FACTOR: {"Third": {"text": "quality 5"}}}, by=editor)
    with pytest.raises(WrongStateError, match="gate"):
        add_tasks(experiment_id=challenge.pk, tasks=[TaskSpec("More?")], anew=True, by=editor)


def test_a_pass_names_no_risk_that_it_has_not(experiment, editor, annotator):
    gate = check(experiment, editor)
    plan_and_write(gate.challenge)
    click_for(gate.challenge, annotator, lambda i, j: i > j)
    leave_out_task(experiment_id=gate.challenge.pk, position=0, reason="Wrong.", by=editor)
    assert judge(gate, annotator, 1.0) == "passed"
    assert "20%" not in selectors.in_few_words("passed", gate.challenge)
    plain = check(experiment, editor, "quality 8")
    assert judge(plain, annotator, 1.0) == "passed"
    assert "20%" in selectors.in_few_words("passed", plain.challenge)


def on_a_forge(experiment, by):
    return subscribe(
        experiment=experiment,
        by=by,
        kind="github",
        target="https://github.com/ann/prompts",
        events=["concluded"],
        token="ghp_secret",
    )


def test_a_commit_hears_only_of_its_newest_challenge(experiment, editor):
    """Main has moved on: what was compared with the old one is no word on the new one."""
    on_a_forge(experiment, editor)
    first = check(experiment, editor, commit="a" * 40)
    set_main_texts(experiment_id=experiment.pk, texts=[Text(FACTOR, LEVEL, "quality 1")], by=editor)
    second = check(experiment, editor, commit="a" * 40)
    stop(experiment_id=first.challenge.pk, by=editor)
    assert Notification.objects.get().key == f"{'a' * 40} {second.pk} open"
    # Main is what it was: the state is posted again.
    Notification.objects.update(state=Notification.State.SENT)
    set_main_texts(experiment_id=experiment.pk, texts=[Text(FACTOR, LEVEL, "quality 0")], by=editor)
    check(experiment, editor, commit="a" * 40)
    assert Notification.objects.get().key == f"{'a' * 40} {first.pk} stopped"


def test_only_the_newest_state_of_a_commit_waits_to_be_posted(experiment, editor):
    forge = on_a_forge(experiment, editor)
    assert "ghp_secret" not in forge.secret
    assert keys.token_of(forge) == "ghp_secret"
    assert forge.events == []
    gate = check(experiment, editor, commit="a" * 40)
    assert Notification.objects.get().key == f"{'a' * 40} {gate.pk} open"
    stop(experiment_id=gate.challenge.pk, by=editor)
    assert Notification.objects.get().key == f"{'a' * 40} {gate.pk} stopped"


def _forge(experiment, by):
    return subscribe(
        experiment=experiment, by=by, kind="github", target="https://github.com/a/b", events=[], token="t"
    )


def _posted():
    """Send what waits, and return the state that a commit has last."""
    Notification.objects.update(state=Notification.State.SENT)
    return json.loads(Notification.objects.latest("pk").text)["state"]


def test_the_end_of_a_comparison_with_an_older_main_posts_nothing(experiment, editor, annotator):
    _forge(experiment, editor)
    old = check(experiment, editor, commit="a" * 40)
    set_main_texts(experiment_id=experiment.pk, texts=[Text(FACTOR, LEVEL, "quality 5")], by=editor)
    assert check(experiment, editor, commit="a" * 40) != old
    assert judge(old, annotator, 0.5) == "passed"
    assert _posted() == "open"


def test_a_state_is_posted_again_after_another_one(experiment, editor):
    """Main takes the text and gives it up again: the commit waits again."""
    _forge(experiment, editor)
    before = [Text(FACTOR, LEVEL, "quality 0")]
    seen = []
    for main in (before, [Text(FACTOR, LEVEL, "quality 9")], before):
        set_main_texts(experiment_id=experiment.pk, texts=main, by=editor)
        check(experiment, editor, commit="a" * 40)
        seen.append(_posted())
    assert seen == ["open", "same", "open"]


@pytest.mark.parametrize("stricter", [{"epsilon": 0.05}, {"delta": 0.01}])
def test_a_result_is_none_under_stricter_settings(experiment, editor, stricter):
    old = check(experiment, editor)
    change_settings(experiment_id=experiment.pk, by=editor, **stricter)
    new = check(experiment, editor)
    assert new != old
    assert [getattr(new.challenge, name) for name in stricter] == [*stricter.values()]


def test_a_result_is_none_on_other_tasks(experiment, editor):
    old = check(experiment, editor)
    experiment.tasks.update(prompt="Another task.")
    assert check(experiment, editor) != old


def test_without_tasks_nothing_is_the_same(editor):
    draft = make_experiment(running=False, epsilon=0.2)
    draft.tasks.all().delete()
    with pytest.raises(WrongStateError):
        check(draft, editor)


def test_nothing_meets_what_is_in_the_archive(experiment, editor):
    stop(experiment_id=experiment.pk, by=editor)
    archive(experiment_id=experiment.pk, by=editor)
    with pytest.raises(WrongStateError):
        check(experiment, editor)
    with pytest.raises(WrongStateError):
        set_main_texts(experiment_id=experiment.pk, texts=[Text(FACTOR, LEVEL, "x")], by=editor)


def test_groups_keep_their_roles_in_a_challenge(experiment, editor):
    add_group(experiment=experiment, group="raters", role="annotator", by=editor)
    bob = make_user("bob")
    follow_groups(user=bob, groups=["raters"])
    challenge = check(experiment, editor).challenge
    follow_groups(user=bob, groups=["raters"])
    assert bob in {each.user for each in challenge.memberships.all()}
    follow_groups(user=bob, groups=[])
    assert bob not in {each.user for each in challenge.memberships.all()}


@pytest.mark.parametrize("setting", ["epsilon", "delta"])
@pytest.mark.parametrize("where", ["challenge", "experiment"])
def test_only_an_owner_has_a_gate_pass_on_a_weaker_claim(experiment, editor, where, setting):
    gate = check(experiment, editor)
    changed = getattr(gate, where)
    owner = make_user("owner")
    add_member(changed, owner, "owner")
    weaker, stricter = {setting: 0.3}, {setting: 0.1}
    with pytest.raises(WrongStateError):
        change_settings(experiment_id=changed.pk, by=editor, **weaker)
    change_settings(experiment_id=changed.pk, by=editor, **stricter)
    stop(experiment_id=changed.pk, by=editor)
    with pytest.raises(WrongStateError):
        reopen(experiment_id=changed.pk, by=editor, **weaker)
    reopen(experiment_id=changed.pk, by=owner, **weaker)


def test_what_a_forge_relies_on_is_not_weakened_before_the_first_change(editor):
    draft = make_experiment(running=False, epsilon=0.2)
    add_member(draft, editor, "editor")
    _forge(draft, editor)
    spec = experiment_spec(draft)
    with pytest.raises(WrongStateError):
        replace_draft(
            experiment_id=draft.pk, spec=replace(spec, settings=spec.settings | {"epsilon": 0.3}), by=editor
        )
    replace_draft(experiment_id=draft.pk, spec=spec, by=editor)


def test_a_setting_that_is_left_out_weakens_no_gate(editor):
    draft = make_experiment(running=False, epsilon=0.2, delta=0.01)
    add_member(draft, editor, "editor")
    _forge(draft, editor)
    spec = experiment_spec(draft)
    settings = {name: value for name, value in spec.settings.items() if name != "delta"}
    with pytest.raises(WrongStateError):
        replace_draft(experiment_id=draft.pk, spec=replace(spec, settings=settings), by=editor)


def test_votes_from_elsewhere_do_not_decide_a_challenge(experiment, editor):
    challenge = check(experiment, editor).challenge
    pause(experiment_id=challenge.pk, by=editor)
    with pytest.raises(WrongStateError, match="gate"):
        add_votes(experiment_id=challenge.pk, votes=[], by=editor)


def written_in(challenge):
    plan_and_write(challenge)
    return Response.objects.filter(policy__experiment=challenge)[:1]


def test_all_challenges_share_the_limit_of_money(experiment, editor):
    Experiment.objects.filter(pk=experiment.pk).update(money_limit=1.0)
    first, second = (check(experiment, editor, text).challenge for text in ("quality 8", "quality 9"))
    pay(written_in(first), 0.6)
    assert overspent_experiments() == set()
    assert not money_trouble(second)
    pay(written_in(second), 0.6)
    assert overspent_experiments() == {experiment.pk, first.pk, second.pk}
    experiment.refresh_from_db()
    assert all(map(money_trouble, (experiment, first, second)))
