"""A person who annotates and sees policies learns nothing about pairs still to judge."""

import csv
import io
import json
import zipfile

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from engine.domain.errors import MembershipError
from engine.domain.specs import ExperimentSpec, FactorSpec, ReadyMade, TaskSpec
from engine.judges.rule_worker import judge_comparisons
from engine.models import Assignment, Comparison, Experiment, Judgment, Membership, Response, User, clock
from engine.selectors import blinding
from engine.selectors.policies import policy_names
from engine.services import serving
from engine.services.drafts import create_experiment
from engine.services.experiments import start, stop
from engine.services.invitations import create_invitation
from engine.services.judging import record_answer, void_judgment
from engine.services.people import begin_to_judge, change_role, remove_member
from engine.services.tokens import make_token
from engine.services.voids import restore_judgment, void_annotator
from tests.accounts import let_create, logged_in
from tests.downloads import ask
from tests.factories import add_member, assign, click, make_experiment, make_user
from tests.markup import words

pytestmark = pytest.mark.django_db

WATCHING = ["viewer", "editor", "owner"]
REASON = "hidden from everybody until"


@pytest.fixture
def experiment(annotator: User) -> Experiment:
    return make_experiment(name="Both", ready=True, annotators=(annotator,))


def get(client: Client, name: str, *args: int, **query: str) -> HttpResponse:
    return ask(client, name, *args, **query)


def content(response: HttpResponse) -> str:
    body = b"".join(response.streaming_content) if response.streaming else response.content
    return body.decode()


def open_again(experiment: Experiment) -> None:
    """A pair whose answer was taken back by somebody who does not watch."""
    colleague = make_user()
    add_member(experiment, colleague)
    judgment = click(experiment, colleague)
    serving.take_back(experiment=experiment, answer=judgment, annotator=colleague)


def void_one(judgment: Judgment, by: User) -> None:
    void_judgment(judgment_id=judgment.pk, by=by, reason="A slip.")


def void_all(judgment: Judgment, by: User) -> None:
    void_annotator(
        experiment_id=judgment.comparison.experiment_id, annotator=judgment.annotator, by=by, reason="Spam"
    )


def with_role(user: User, experiment: Experiment, role: str) -> User:
    if role == "superuser":
        User.objects.filter(pk=user.pk).update(is_superuser=True, is_staff=True)
        user.refresh_from_db()
    else:
        add_member(experiment, user, role)
    return user


@pytest.fixture(params=[*WATCHING, "superuser"])
def both(request: pytest.FixtureRequest, experiment: Experiment, annotator: User) -> User:
    """Annotates, and has another role."""
    return with_role(annotator, experiment, request.param)


class TestUnfinishedPairsAreHidden:
    """From everybody: whoever may see pairs, and invite a second self or tell a friend, could judge them."""

    @pytest.fixture(params=[*WATCHING, "superuser"])
    def watcher(self, request: pytest.FixtureRequest, experiment: Experiment) -> User:
        """Has this role, and does not annotate."""
        return with_role(make_user("watcher"), experiment, request.param)

    def test_the_list_leaves_them_out_and_says_how_many(self, watcher, experiment, annotator):
        judged = click(experiment, annotator).comparison_id
        held = assign(experiment, annotator).comparison_id
        page = get(logged_in(watcher), "comparisons", experiment.pk)
        listed = content(page)
        assert reverse("comparison", args=[experiment.pk, judged]) in listed
        for hidden in experiment.comparisons.exclude(pk=judged):
            assert reverse("comparison", args=[experiment.pk, hidden.pk]) not in listed
        assert experiment.comparisons.get(pk=held).state == "assigned"
        assert f'data-unfinished="{experiment.comparisons.exclude(pk=judged).count()}"' in listed

    @pytest.mark.parametrize("state", ["planned", "ready", "assigned"])
    def test_the_page_of_one_shows_nothing_of_it(self, watcher, experiment, annotator, state):
        comparison = assign(experiment, annotator).comparison
        Comparison.objects.filter(pk=comparison.pk).update(state=state)
        # A response of one digit may stand in the page by chance, as part of a number.
        Response.objects.filter(pk=comparison.left.pk).update(text="the response of this pair")
        comparison.refresh_from_db()
        page = get(logged_in(watcher), "comparison", experiment.pk, comparison.pk)
        assert page.status_code == 403
        assert REASON in words(page)
        for secret in (comparison.policy_i.label, comparison.left.text, comparison.task.prompt, "Prompt 0"):
            assert secret not in words(page)

    def test_they_appear_once_they_are_finished(self, both, experiment):
        comparison = click(experiment, both).comparison
        page = get(logged_in(both), "comparison", experiment.pk, comparison.pk)
        assert page.status_code == 200
        assert policy_names(experiment)[comparison.policy_i.index].name in words(page)

    @pytest.mark.parametrize("name", ["judgments_csv", "judgments_jsonl"])
    def test_exports_leave_them_out(self, watcher, experiment, annotator, name):
        """A judgment that was taken back leaves its pair open, to be shown again."""
        finished = click(experiment, annotator)
        serving.take_back(experiment=experiment, answer=click(experiment, annotator), annotator=annotator)
        reply = content(get(logged_in(watcher), name, experiment.pk, judgments=""))
        rows = (
            csv.DictReader(io.StringIO(reply))
            if name.endswith("csv")
            else map(json.loads, reply.splitlines())
        )
        assert [int(row["judgment_id"]) for row in rows] == [finished.pk]

    def test_the_page_of_exports_counts_so(self, watcher, experiment, annotator):
        serving.take_back(experiment=experiment, answer=click(experiment, annotator), annotator=annotator)
        page = get(logged_in(watcher), "export", experiment.pk, judgments="")
        assert REASON in words(page)
        assert '<dd id="judgments">0</dd>' in content(page)

    def test_the_log_of_showings_comes_after_the_end(self, watcher, experiment, annotator):
        """It names the policies of open pairs."""
        click(experiment, annotator)
        held, client = assign(experiment, annotator), logged_in(watcher)
        assert get(client, "events_jsonl", experiment.pk).status_code == 403
        assert "events.jsonl" not in content(get(client, "export", experiment.pk))
        stop(experiment_id=experiment.pk)
        assert get(client, "events_jsonl", experiment.pk).status_code == 403, "one pair is on a screen"
        record_answer(experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left")
        assert get(client, "events_jsonl", experiment.pk).status_code == 200

    def test_the_api_leaves_them_out(self, watcher, experiment, annotator):
        serving.take_back(experiment=experiment, answer=click(experiment, annotator), annotator=annotator)
        key = make_token(user=watcher, name="t", valid_days=1)[1]
        for path, said in (("judgments.jsonl?judgments=", ""), ("responses", '{"count": 0, "items": []}')):
            reply = Client().get(
                f"/api/experiments/{experiment.pk}/{path}", headers={"Authorization": f"Bearer {key}"}
            )
            assert (reply.status_code, content(reply)) == (200, said)

    def test_where_a_machine_judges_nothing_is_hidden(self, admin):
        experiment = make_experiment(ready=True, judge="rule")
        comparison, client = experiment.comparisons.first(), logged_in(admin)
        assert comparison.state in Comparison.PENDING
        assert get(client, "comparison", experiment.pk, comparison.pk).status_code == 200
        assert get(client, "events_jsonl", experiment.pk).status_code == 200


class TestWhoAnnotatesToo:
    def ready_made(self, both: User) -> Experiment:
        """An experiment on ready-made responses, in which they have the same roles."""
        ready = [ReadyMade(n, name, f"{name} says {n}") for name in ("Long", "Short") for n in range(3)]
        experiment = create_experiment(
            spec=ExperimentSpec(
                name="Ready",
                factors=[FactorSpec("Model", "imported", {"Long": {}, "Short": {}})],
                tasks=[TaskSpec(f"What is {n}?") for n in range(3)],
                ready_made=ready,
                settings={"responses": "imported"},
            )
        )
        roles = Membership.objects.filter(user=both)
        for role in {"annotator", *roles.values_list("role", flat=True)}:
            add_member(experiment, both, role)
        start(experiment_id=experiment.pk)
        return experiment

    def test_ready_made_responses_are_in_no_description(self, both, admin):
        experiment = self.ready_made(both)
        for reader, given in ((both, False), (admin, True)):
            description = content(get(logged_in(reader), "setup_file", experiment.pk))
            export = get(logged_in(reader), "judgments_csv", experiment.pk, zip="1")
            with zipfile.ZipFile(io.BytesIO(b"".join(export.streaming_content))) as archive:
                manifest = archive.read(archive.namelist()[-1]).decode()
            assert ("Long says 1" in description, "Long says 1" in manifest) == (given, given)

    def test_ready_made_responses_are_in_no_copy_of_their_own(self, both, admin):
        experiment = self.ready_made(both)
        let_create(both)
        page = logged_in(both).post(reverse("clone", args=[experiment.pk]), {"name": "Mine"})
        key = make_token(user=both, name="t", valid_days=1, scopes=["manage"])[1]
        reply = Client().post(
            f"/api/experiments/{experiment.pk}/clone",
            {"name": "Mine"},
            content_type="application/json",
            headers={"Authorization": f"Bearer {key}"},
        )
        assert (page.status_code, reply.status_code) == (403, 403)
        assert not Experiment.objects.filter(name="Mine").exists()
        offers = 'id="clone-title"'
        if Experiment.objects.run_by(both).filter(pk=experiment.pk).exists():
            assert "who wrote its responses" in reply.json()["detail"]
            assert offers not in content(get(logged_in(both), "experiment_settings", experiment.pk))
        assert offers in content(get(logged_in(admin), "experiment_settings", experiment.pk))
        stop(experiment_id=experiment.pk)
        if Experiment.objects.run_by(both).filter(pk=experiment.pk).exists():
            assert logged_in(both).post(reverse("clone", args=[experiment.pk]), {"name": "Mine"}).url
            assert Experiment.objects.filter(name="Mine").exists()

    def test_who_lost_the_role_of_annotator_is_still_kept_from_them(self, both, experiment):
        """They could look, and come back to judge what they saw."""
        comparison = assign(experiment, both).comparison
        remove_member(membership_id=Membership.objects.get(user=both, role="annotator").pk, by=both)
        assert get(logged_in(both), "comparison", experiment.pk, comparison.pk).status_code == 403

    def test_an_answer_that_was_taken_back_is_none(self, both, experiment):
        """The page of the finished comparison may have been read meanwhile."""
        judgment, other = click(experiment, both), make_user()
        add_member(experiment, other)
        page = logged_in(both).post(
            reverse("undo", args=[experiment.pk]), {"answer": judgment.token}, follow=True
        )
        assert "it counts as no answer" in words(page)
        judgment.comparison.refresh_from_db()
        assert (judgment.comparison.state, judgment.comparison.skips) == ("discarded", 1)
        for user in (both, other):
            assert assign(experiment, user).comparison_id != judgment.comparison_id

    @pytest.mark.parametrize("void", [void_one, void_all])
    def test_one_that_an_editor_voided_is_too(self, both, experiment, admin, void):
        judgment = click(experiment, both)
        void(judgment, by=admin)
        assert assign(experiment, both).comparison_id != judgment.comparison_id

    def test_an_unanswered_repeat_is_not_told(self, both, experiment):
        judgment = click(experiment, both)
        judgment.repeats.create(experiment=experiment, annotator=both, kind="repeat", expires_at=clock.now())
        page = get(logged_in(both), "comparison", experiment.pk, judgment.comparison_id)
        assert "again with sides swapped" not in words(page)


class TestJudgmentsAreMarked:
    def marks(self, experiment: Experiment) -> list[bool]:
        owner = make_user()
        add_member(experiment, owner, "owner")
        reply = get(logged_in(owner), "judgments_jsonl", experiment.pk)
        return [json.loads(line)["annotator_could_see_policies"] for line in content(reply).splitlines()]

    @pytest.mark.parametrize("role", WATCHING)
    def test_by_the_roles_of_their_time(self, role, experiment, annotator):
        click(experiment, annotator)
        second = add_member(experiment, annotator, role)
        add_member(experiment, make_user(), "owner")
        click(experiment, annotator)
        remove_member(membership_id=second.pk, by=None)
        click(experiment, annotator)
        assert self.marks(experiment) == [False, True, True], "what they saw stays seen"

    def test_who_watched_first_and_annotates_later(self, experiment, admin):
        """Nobody holds both roles at any time."""
        former = make_user()
        member = add_member(experiment, former, "viewer")
        change_role(membership_id=member.pk, by=admin, role="annotator")
        click(experiment, former)
        assert self.marks(experiment) == [True]

    def test_a_role_elsewhere_does_not_matter(self, experiment, annotator):
        add_member(make_experiment(), annotator, "owner")
        click(experiment, annotator)
        assert self.marks(experiment) == [False]

    def test_superusers_see_everything(self, experiment, annotator):
        User.objects.filter(pk=annotator.pk).update(is_superuser=True)
        annotator.refresh_from_db()
        click(experiment, annotator)
        assert self.marks(experiment) == [True]

    def test_a_judgment_that_is_restored_keeps_its_mark(self, experiment, annotator, admin):
        add_member(experiment, annotator, "viewer")
        judgment = click(experiment, annotator)
        void_judgment(judgment_id=judgment.pk, by=admin, reason="A slip.")
        restore_judgment(judgment_id=judgment.pk)
        assert self.marks(experiment) == [True]

    def test_a_judge_that_is_no_person_is_never_marked(self):
        experiment = make_experiment(ready=True, judge="rule")
        assert judge_comparisons(experiment.pk) > 0
        assert set(self.marks(experiment)) == {False}


class TestOwnersWhoJudge:
    """They may, and become annotators by it."""

    @pytest.fixture
    def owner(self, experiment: Experiment) -> User:
        owner = make_user("the-owner")
        add_member(experiment, owner, "owner")
        return owner

    def test_what_they_may_be_shown_is_hidden_from_then_on(self, owner, experiment):
        client = logged_in(owner)
        comparison = experiment.comparisons.first()
        assert get(client, "comparison", experiment.pk, comparison.pk).status_code == 403
        assert client.head(reverse("pair", args=[experiment.pk])).status_code == 200
        page = words(get(client, "people", experiment.pk))
        assert "judge pairs yourself" in page
        key = make_token(user=owner, name="t", valid_days=1, scopes=["annotate"])[1]
        asked = {"content_type": "application/json", "headers": {"Authorization": f"Bearer {key}"}}
        pair = client.post(f"/api/label/{experiment.pk}/next", {}, **asked).json()["pair"]
        for each in experiment.comparisons.all():
            assert get(client, "comparison", experiment.pk, each.pk).status_code == 403
        answer = {"token": pair["token"], "choice": "left"}
        assert client.post(f"/api/label/{experiment.pk}/judgments", answer, **asked).json()["created"]
        judged = Judgment.objects.get()
        assert (judged.annotator_could_see_policies, judged.comparison.state) == (True, "judged")
        assert get(client, "comparison", experiment.pk, judged.comparison_id).status_code == 200
        page = words(get(client, "people", experiment.pk))
        assert "Began to judge as an owner" in page
        assert "judge pairs yourself" not in page
        quality = words(get(client, "quality", experiment.pk))
        assert "1 of 1 vote was given by people who may see which policy wrote what." in quality
        assert "Added the-owner as annotator." in words(get(client, "log", experiment.pk))

    def test_the_page_asks_before_it_makes_them_annotators_and_does_so_once(self, owner, experiment):
        client = logged_in(owner)
        for page in ("pair", "history", "welcome"):
            assert get(client, page, experiment.pk).status_code == 200
        assert "Judge pairs yourself?" in words(get(client, "pair", experiment.pk))
        assert list(owner.memberships.values_list("role", flat=True)) == ["owner"]
        assert not Assignment.objects.exists()
        for _ in range(2):
            begun = client.post(reverse("begin", args=[experiment.pk]), follow=True)
            assert experiment.question in words(begun)
        begin_to_judge(experiment_id=experiment.pk, by=owner)
        assert sorted(owner.memberships.values_list("role", flat=True)) == ["annotator", "owner"]

    def test_nobody_else_does(self, experiment):
        editor = make_user()
        add_member(experiment, editor, "editor")
        assert get(logged_in(editor), "pair", experiment.pk).status_code == 403
        with pytest.raises(MembershipError, match="Only annotators and owners judge"):
            begin_to_judge(experiment_id=experiment.pk, by=editor)
        assert not Assignment.objects.exists()


class TestWarnings:
    @pytest.mark.parametrize(("has", "gets"), [("annotator", "viewer"), ("owner", "annotator")])
    def test_the_invitation_warns_who_has_the_other_role(self, has, gets, experiment):
        user, owner = make_user(), make_user()
        add_member(experiment, user, has)
        add_member(experiment, owner, "owner")
        link = invitation_link(experiment, owner, gets)
        assert "exports mark your judgments" in words(logged_in(user).get(link, follow=True))
        assert "your judgments are marked" not in words(logged_in(make_user()).get(link, follow=True))

    def test_a_change_of_role_warns_the_owner(self, experiment, annotator):
        owner = make_user()
        add_member(experiment, owner, "owner")
        second = add_member(experiment, annotator, "viewer")
        address = reverse("change_role", args=[experiment.pk, second.pk])
        page = logged_in(owner).post(address, {"role": "editor"}, follow=True)
        assert f"{annotator} now annotates and may see which policy wrote what." in words(page)

    def test_the_people_page_marks_them(self, experiment, annotator):
        owner = make_user()
        add_member(experiment, owner, "owner")
        client = logged_in(owner)
        assert "Sees policies and annotates" not in words(get(client, "people", experiment.pk))
        add_member(experiment, annotator, "viewer")
        page = words(get(client, "people", experiment.pk))
        assert page.count("Sees policies and annotates") == 2  # once for each of their roles
        assert "let other people annotate" in page

    def test_who_is_one_of_them(self, experiment, annotator):
        superuser, both, viewer = make_user(is_superuser=True), make_user(), make_user()
        for user, role in (
            (superuser, "annotator"), (both, "annotator"), (both, "owner"), (viewer, "viewer"),
        ):  # fmt: skip
            add_member(experiment, user, role)
        assert blinding.unblinded_annotators(experiment) == {superuser.pk, both.pk}


def invitation_link(experiment: Experiment, by: User, role: str) -> str:
    _, secret = create_invitation(experiment=experiment, by=by, role=role, most_uses=1, valid_days=1)
    return reverse("join", args=[secret])
