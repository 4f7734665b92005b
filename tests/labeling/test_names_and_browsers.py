"""One name is one account, whatever its case; and which accounts share a browser."""

from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse

from engine.models import Browser, Experiment, User
from engine.selectors.people import accounts_of_one_browser
from engine.selectors.person_data import person_data
from engine.services.forgetting import forget_person
from engine.services.imported_votes import made_people, name_in_file
from tests.accounts import PASSWORD, is_logged_in
from tests.concurrency import at_once
from tests.factories import add_member, click, invited, make_experiment, make_user

SIGN_UP = {"username": "newcomer", "password1": "a very long phrase", "password2": "a very long phrase"}


def opened(experiment: Experiment, client: Client | None = None) -> Client:
    """A browser in which somebody looks at an invitation."""
    client = client or Client()
    client.get(reverse("join", args=[invited(experiment).token]), follow=True)
    return client


def join(client: Client, name: str, **extra: Any) -> int:
    return client.post(reverse("accept_invitation"), SIGN_UP | {"username": name}, **extra).status_code


class TestNames:
    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize(
        "names", [["newcomer"] * 10, ["CaseX", "casex", "CASEX"] * 3], ids=["one", "case"]
    )
    def test_ten_who_want_one_name_at_once(self, names):
        experiment = make_experiment()
        clients = [opened(experiment) for _ in names]
        answers = at_once(
            [lambda c=client, n=name: join(c, n) for client, name in zip(clients, names, strict=True)]
        )
        assert sorted(answers) == [302] + [400] * (len(names) - 1)
        assert User.objects.filter(username__iexact=names[0]).count() == 1

    @pytest.mark.django_db
    def test_the_database_refuses_a_second_one(self):
        make_user("CaseX")
        for make in (
            lambda: make_user("casex"),
            lambda: User.objects.bulk_create([User(username="CASEX")]),
            lambda: User.objects.filter(pk=make_user("other").pk).update(username="cASEx"),
        ):
            with pytest.raises(IntegrityError), transaction.atomic():
                make()

    @pytest.mark.django_db
    def test_the_name_is_typed_in_any_case(self):
        make_user("CaseX")
        client = Client()
        client.post(reverse("login"), {"username": "cAsEx", "password": PASSWORD})
        assert is_logged_in(client)

    @pytest.mark.django_db
    def test_people_in_a_file_of_votes_may_differ_by_case(self):
        experiment = make_experiment()
        made = made_people(experiment, ["Ann", "ann", "ANN"])
        assert len({user.pk for user in made.values()}) == 3
        assert [name_in_file(user.username, experiment.pk) for user in made.values()] == list(made)


@pytest.mark.django_db
class TestBrowsers:
    def test_who_joins_twice_in_one_browser_is_noticed(self, experiment):
        one, other = opened(experiment), opened(experiment)
        join(one, "first")
        one.post(reverse("logout"))
        join(opened(experiment, one), "second")
        join(other, "third")
        [group] = accounts_of_one_browser(experiment)
        assert [user.username for user in group] == ["first", "second"]
        assert accounts_of_one_browser(make_experiment()) == []

    def test_so_is_who_logs_in_there_later(self, experiment, annotator, viewer):
        client = Client()
        for user in (annotator, viewer):
            client.post(reverse("login"), {"username": user.username, "password": PASSWORD})
            client.post(reverse("logout"))
        assert accounts_of_one_browser(experiment) == [sorted([annotator, viewer], key=str)]

    def test_people_who_judged_and_left_count_and_strangers_do_not(self, experiment, annotator, stranger):
        click(experiment, annotator)
        other = make_user()
        add_member(experiment, other, "viewer")
        for user in (annotator, stranger, other):
            Browser.objects.create(user=user, hash="h")
        annotator.memberships.all().delete()
        assert accounts_of_one_browser(experiment) == [sorted([annotator, other], key=str)]

    def test_two_browsers_of_the_same_people_are_one_group(self, experiment, annotator, viewer):
        for number in "ab":
            for user in (annotator, viewer):
                Browser.objects.create(user=user, hash=number)
        assert len(accounts_of_one_browser(experiment)) == 1

    def test_only_a_digest_is_kept_which_its_owner_sees_and_forgetting_erases(self, annotator):
        client = Client()
        for _ in range(2):
            client.post(reverse("login"), {"username": annotator.username, "password": PASSWORD})
            client.post(reverse("logout"))
        [row] = person_data(annotator, complete=False)["known_browsers"]
        assert len(row["digest"]) == 64
        assert row["digest"] not in client.cookies["known_browser"].value
        forget_person(user_id=annotator.pk, by=None)
        assert not Browser.objects.exists()


@pytest.mark.django_db
class TestLimits:
    @pytest.fixture(autouse=True)
    def few(self, settings) -> None:
        settings.ACCOUNT_RATE_LIMITS = settings.ACCOUNT_RATE_LIMITS | {"join": "5/15m/ip,2/15m/key"}

    def test_one_browser_joins_a_few_times(self, experiment):
        client = Client()
        answers = []
        for name in ("one", "two", "three"):
            answers.append(join(opened(experiment, client), name))
            client.post(reverse("logout"))
        assert answers == [302, 302, 429]
        assert join(opened(experiment), "four") == 302, "another browser at the same address"

    def test_browsers_without_the_cookie_count_as_one(self, experiment):
        answers = []
        for name in ("one", "two", "three"):
            client = opened(experiment)
            del client.cookies["known_browser"]
            answers.append(join(client, name))
        assert answers == [302, 302, 429]

    def test_one_address_joins_a_few_times_more(self, experiment):
        names = ("one", "two", "three", "four", "five", "six")
        assert [join(opened(experiment), name) for name in names] == [302] * 5 + [429]
        assert join(opened(experiment), "seven", REMOTE_ADDR="192.0.2.7") == 302

    def test_who_is_logged_in_joins_without_limit(self, experiment, stranger, client_for):
        client = client_for(stranger)
        for _ in range(6):
            opened(experiment, client)
            assert client.post(reverse("accept_invitation")).status_code == 302
            stranger.memberships.all().delete()
