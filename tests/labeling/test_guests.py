"""Guests: people who judge by a link, without an account of their own."""

import csv
import io

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from engine.domain.errors import InvitationError
from engine.models import Allowance, Assignment, Experiment, InvitationUse, Judgment, Membership, User
from engine.services import guests
from engine.services.guests import admit_guest
from engine.services.invitations import create_invitation
from tests.factories import add_member, make_experiment, make_user
from tests.markup import Markup, stage, words

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def many_at_once(settings):
    settings.BUFFER_MIN = 20


@pytest.fixture
def experiment() -> Experiment:
    return make_experiment(ready=True, n_tasks=20)


@pytest.fixture
def owner(experiment: Experiment) -> User:
    user = make_user("boss")
    add_member(experiment, user, Membership.Role.OWNER)
    return user


def link(experiment: Experiment, by: User, **guests) -> str:
    _, secret = create_invitation(
        experiment=experiment, by=by, role="annotator", most_uses=3, valid_days=7, guests=True, **guests
    )
    return reverse("join", args=[secret])


def come(url: str, **sent: str) -> Client:
    """A new browser that follows the link and begins."""
    client = Client()
    assert client.get(url, follow=True).status_code == 200
    client.post(reverse("accept_invitation"), sent)
    return client


def judge(client: Client, experiment: Experiment, choice: str = "left"):
    """Answer the pair on the page; the page after it."""
    page = client.get(reverse("pair", args=[experiment.pk]))
    client.post(reverse("judge", args=[experiment.pk]), {"token": stage(page)["token"], "choice": choice})
    return client.get(reverse("pair", args=[experiment.pk]))


def onward(page) -> dict[str, str]:
    [found] = [each for each in Markup(page.content.decode()).elements if "data-onward" in each.attributes]
    return found.attributes


class TestByNickname:
    def test_a_nickname_is_enough_to_judge_and_the_browser_goes_on(self, experiment, owner):
        client = come(link(experiment, owner), nickname="Ann Onymous!")
        judge(client, experiment)
        assert Judgment.objects.get().annotator.username == "guest-Ann-Onymous"
        again = client.get(reverse("pair", args=[experiment.pk]))
        assert "token" in stage(again)
        assert not User.objects.get(username="guest-Ann-Onymous").has_usable_password()

    def test_two_of_one_name_are_two_people(self, experiment, owner):
        url = link(experiment, owner)
        come(url, nickname="Ann")
        come(url, nickname="ann")
        assert {use.user.username for use in InvitationUse.objects.all()} == {"guest-Ann", "guest-ann-2"}

    def test_without_a_name_nobody_comes_in(self, experiment, owner):
        come(link(experiment, owner), nickname="  ")
        assert not InvitationUse.objects.exists()

    def test_the_link_lets_in_as_many_as_it_says(self, experiment, owner):
        url = link(experiment, owner)
        for name in "abc":
            come(url, nickname=name)
        client = Client()
        assert client.get(url, follow=True).status_code == 410
        assert experiment.memberships.filter(role="annotator").count() == 3

    def test_guests_have_no_other_role(self, experiment, owner):
        with pytest.raises(InvitationError, match="annotators"):
            create_invitation(
                experiment=experiment, by=owner, role="viewer", most_uses=1, valid_days=1, guests=True
            )


class TestCrowds:
    def test_the_link_says_who_comes_and_the_same_person_goes_on_elsewhere(self, experiment, owner):
        url = link(
            experiment,
            owner,
            id_parameter="PROLIFIC_PID",
            most_answers=2,
            completion="https://a.example/cc=1",
        )
        first = come(f"{url}?PROLIFIC_PID=p1&STUDY_ID=s")
        judge(first, experiment)
        # Another browser, the same person: one guest, whose pairs are theirs.
        elsewhere = Client()
        elsewhere.get(f"{url}?PROLIFIC_PID=p1", follow=True)
        page = judge(elsewhere, experiment, "right")
        assert InvitationUse.objects.get().outside_id == "p1"
        assert Judgment.objects.count() == 2
        assert onward(page)["href"] == "https://a.example/cc=1"
        assert "token" not in stage(page)

    def test_another_person_in_the_same_browser_is_another_guest(self, experiment, owner):
        url = link(experiment, owner, id_parameter="workerId")
        client = come(f"{url}?workerId=w1")
        client.get(f"{url}?workerId=w2", follow=True)
        client.post(reverse("accept_invitation"))
        assert {*InvitationUse.objects.values_list("outside_id", flat=True)} == {"w1", "w2"}

    def test_a_link_alone_logs_nobody_out_of_another_account(self, experiment, owner, client_for):
        url = link(experiment, owner, id_parameter="PROLIFIC_PID")
        come(f"{url}?PROLIFIC_PID=p1")
        client = client_for(owner)
        assert client.get(f"{url}?PROLIFIC_PID=p1", follow=True).status_code == 200
        assert client.session["_auth_user_id"] == str(owner.pk)
        client.post(reverse("accept_invitation"))
        assert client.session["_auth_user_id"] == str(InvitationUse.objects.get().user_id)

    @pytest.mark.parametrize(
        ("query", "words_of_it"),
        [
            ("", "PROLIFIC_PID"),
            ("PROLIFIC_PID=", "PROLIFIC_PID"),
            ("PROLIFIC_PID={{%PROLIFIC_PID%}}", "PROLIFIC_PID"),
            ("PROLIFIC_PID=one&PROLIFIC_PID=two", "PROLIFIC_PID"),
            ("PROLIFIC_PID=%3Cscript%3E", "PROLIFIC_PID"),
            ("hitId=3HIT&assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE", "preview"),
        ],
    )
    def test_without_one_identifier_nobody_comes_in(self, query, words_of_it, experiment, owner):
        url = link(experiment, owner, id_parameter="PROLIFIC_PID, workerId")
        page = Client().get(f"{url}?{query}", follow=True)
        assert page.status_code == 410
        assert words_of_it in words(page)
        assert not InvitationUse.objects.exists()

    @pytest.mark.parametrize("gains", ["a role", "a password"])
    def test_an_identifier_opens_no_account_that_has_more_than_a_guest(self, gains, experiment, owner):
        url = link(experiment, owner, id_parameter="PROLIFIC_PID")
        come(f"{url}?PROLIFIC_PID=p1")
        guest = InvitationUse.objects.get().user
        if gains == "a role":
            add_member(experiment, guest, Membership.Role.EDITOR)
        else:
            guest.set_password("a secret of their own")
            guest.save()
        stranger = Client()
        assert stranger.get(f"{url}?PROLIFIC_PID=p1", follow=True).status_code == 410
        assert "_auth_user_id" not in stranger.session

    def test_two_requests_of_one_person_at_once_make_one_guest(self, experiment, owner):
        link(experiment, owner, id_parameter="PROLIFIC_PID")
        both = [
            admit_guest(
                invitation_id=experiment.invitations.get().pk,
                nickname="",
                outside_id="p1",
                parameters={"PROLIFIC_PID": ["p1"]},
            )
            for _ in range(2)
        ]
        assert both[0] == both[1]
        assert InvitationUse.objects.count() == 1

    def test_of_several_names_one_is_read_and_all_parameters_are_kept(self, experiment, owner):
        url = link(experiment, owner, id_parameter="PROLIFIC_PID, prolific_id")
        come(f"{url}?prolific_id=p2&SESSION_ID=a")
        Client().get(f"{url}?prolific_id=p2&SESSION_ID=b", follow=True)
        use = InvitationUse.objects.get()
        assert use.outside_id == "p2"
        assert [each["SESSION_ID"] for each in use.parameters] == [["a"], ["b"]]

    def test_parameters_are_stored_within_limits(self, experiment, owner, monkeypatch):
        monkeypatch.setattr(guests, "_MOST_VISITS", 2)
        url = link(experiment, owner, id_parameter="PROLIFIC_PID")
        for number in range(4):
            come(f"{url}?PROLIFIC_PID=p1&a={number}%00")
        # PostgreSQL stores no NUL.
        assert [each["a"] for each in InvitationUse.objects.get().parameters] == [["0\ufffd"], ["1\ufffd"]]

    def test_a_skipped_pair_is_none_of_theirs_and_a_code_is_shown_at_the_end(self, experiment, owner):
        client = come(link(experiment, owner, most_answers=1, completion="C0DE"), nickname="Ann")
        token = stage(client.get(reverse("pair", args=[experiment.pk])))["token"]
        client.post(reverse("skip", args=[experiment.pk]), {"token": token, "reason": "cannot_tell"})
        assert "C0DE" in words(judge(client, experiment))
        assert Assignment.objects.count() == 2

    def test_a_page_that_asks_ahead_sees_no_code_before_the_answers(self, experiment, owner):
        client = come(link(experiment, owner, most_answers=1, completion="C0DE"), nickname="Ann")
        address = reverse("pair", args=[experiment.pk])
        token = stage(client.get(address))["token"]
        ahead = client.get(address, {"after": token}, headers={"HX-Request": "true"})
        assert "token" not in stage(ahead)
        assert "C0DE" not in ahead.content.decode()
        sent = {"token": token, "choice": "left"}
        last = client.post(reverse("judge", args=[experiment.pk]), sent, headers={"HX-Request": "true"})
        assert "C0DE" in words(last)

    def test_who_fails_the_gold_items_goes_back_by_the_other_link(self, owner):
        gold = make_experiment(ready=True, n_tasks=20, n_gold=5, gold_rate=0.2)
        add_member(gold, owner, Membership.Role.OWNER)
        url = link(gold, owner, completion="DONE", screen_out="https://a.example/out")
        client = come(url, nickname="Ann")
        page = client.get(reverse("pair", args=[gold.pk]))
        while token := stage(page).get("token"):
            right = Assignment.objects.get(token=token).expected
            page = judge(client, gold, "left" if right == "right" else "right")
        assert onward(page)["href"] == "https://a.example/out"

    def test_the_owner_reads_whom_to_pay_and_forgets_by_identifier(self, experiment, owner, client_for):
        url = link(experiment, owner, id_parameter="PROLIFIC_PID", most_answers=1)
        judge(come(f"{url}?PROLIFIC_PID=p1"), experiment)
        come(f"{url}?PROLIFIC_PID=p2")
        file = client_for(owner).get(reverse("guests", args=[experiment.pk])).content.decode()
        done, working = csv.DictReader(io.StringIO(file))
        assert (done["id"], done["answers"], done["state"]) == ("p1", "1", "done")
        assert (working["id"], working["state"]) == ("p2", "working")
        call_command("forget_person", "p1")
        assert not InvitationUse.objects.filter(outside_id="p1").exists()
        assert Judgment.objects.get().annotator.username.startswith("former-annotator")

    def test_a_number_of_pairs_holds_for_guests_alone(self, experiment, owner, client_for):
        come(link(experiment, owner, most_answers=1), nickname="Ann")
        assert Allowance.objects.get().most_answers == 1
        client = client_for(owner)
        client.post(reverse("begin", args=[experiment.pk]))
        assert "token" in stage(judge(client, experiment))
