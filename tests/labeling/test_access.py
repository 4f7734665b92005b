"""Access to an experiment, asked directly: each function of labeling.access, for who may and who may not."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from allauth.core.exceptions import ReauthenticationRequired
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.test import RequestFactory
from django.urls import reverse

from engine.models import Experiment, Token, User
from engine.services.experiments import stop
from engine.services.tokens import make_token
from labeling import access
from tests.accounts import let_create
from tests.factories import add_member, invited, make_experiment, make_user

pytestmark = pytest.mark.django_db

ROLES = ["stranger", "annotator", "viewer", "editor", "owner", "superuser"]
WATCH, RUN, OWN = ROLES[2:], ROLES[3:], ROLES[4:]


def request_of(user: User, method: str = "get", token: Token | None = None) -> HttpRequest:
    request = getattr(RequestFactory(), method)("/")
    request.user = user
    if token is not None:
        request.auth = token
    return request


@pytest.fixture
def experiment(annotator: User) -> Experiment:
    return make_experiment(ready=True, annotators=(annotator,))


@pytest.fixture
def people(experiment: Experiment, annotator: User) -> dict[str, User]:
    users = {role: make_user(f"the {role}", is_superuser=role == "superuser") for role in ROLES}
    for role in ("viewer", "editor", "owner"):
        add_member(experiment, users[role], role)
    return users | {"annotator": annotator}


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        (access.to_label, ["annotator", "owner"]),
        (access.to_watch, WATCH),
        (access.to_run, RUN),
        (access.to_own, OWN),
    ],
)
def test_an_experiment_is_found_by_its_roles_and_by_nobody_else(rule, allowed, experiment, people):
    make_experiment()
    for role in ROLES:
        request = request_of(people[role])
        if role in allowed:
            assert rule(request, experiment.pk) == experiment, role
        elif role == "stranger":
            with pytest.raises(Http404):
                rule(request, experiment.pk)
        else:
            with pytest.raises(PermissionDenied, match=r"may"):
                rule(request, experiment.pk)
        with pytest.raises(Http404):
            rule(request, 10**6)


def test_who_judges_ready_made_responses_makes_no_copy_of_them(experiment, people):
    for role in ("editor", "owner"):
        let_create(people[role])
    both, owner = request_of(people["editor"]), request_of(people["owner"])
    add_member(experiment, people["editor"])
    assert access.to_copy(both, experiment.pk) == experiment
    Experiment.objects.filter(pk=experiment.pk).update(responses=Experiment.Responses.IMPORTED)
    assert access.to_copy(owner, experiment.pk) == experiment
    with pytest.raises(PermissionDenied, match="who wrote its responses"):
        access.to_copy(both, experiment.pk)
    stop(experiment_id=experiment.pk)
    assert access.to_copy(both, experiment.pk) == experiment


def test_who_may_make_no_experiments_makes_no_copy(experiment, people):
    with pytest.raises(PermissionDenied, match="You may not create experiments"):
        access.to_copy(request_of(people["owner"]), experiment.pk)


@pytest.mark.parametrize("role", ["viewer", "editor", "owner"])
def test_who_has_two_roles_has_the_experiment_once(role, experiment, people):
    user = people[role]
    for other in {"viewer", "editor", "owner", "annotator"} - {role}:
        add_member(experiment, user, other)
    request = request_of(user)
    assert list(access.watched(request)) == list(access.runnable(request)) == [experiment]
    assert list(Experiment.objects.held_by(user)) == [experiment]


@pytest.mark.parametrize(("rule", "allowed"), [(access.may_run, RUN), (access.may_own, OWN)])
def test_the_questions_are_answered_as_the_addresses_are(rule, allowed, experiment, people):
    other = make_experiment()
    for role in ROLES:
        assert rule(request_of(people[role]), experiment) is (role in allowed), role
        assert rule(request_of(people[role]), other) is (role == "superuser"), role


@pytest.mark.parametrize("rule", [access.to_create, access.to_administer])
def test_only_superusers_make_experiments_and_run_the_site(rule, people):
    for role in ROLES:
        if role == "superuser":
            assert rule(request_of(people[role])) is None
        else:
            with pytest.raises(Http404):
                rule(request_of(people[role]))
    assert [role for role in ROLES if access.may_create(request_of(people[role]))] == ["superuser"]


def test_a_bound_token_reaches_one_experiment_of_its_holders(experiment, people):
    superuser = people["superuser"]
    other = make_experiment()
    token, _ = make_token(user=superuser, name="t", valid_days=1, experiment=other)
    free, _ = make_token(user=superuser, name="f", valid_days=1)
    request = request_of(superuser, token=token)
    assert access.bound_to(request) == other.pk
    assert list(access.watched(request)) == [other]
    for rule in (access.to_watch, access.to_run, access.to_own):
        assert rule(request, other.pk) == other
        with pytest.raises(Http404):
            rule(request, experiment.pk)
    assert (access.may_run(request, other), access.may_run(request, experiment)) == (True, False)
    assert (access.may_own(request, other), access.may_own(request, experiment)) == (True, False)
    for unbound in (request_of(superuser), request_of(superuser, token=free)):
        assert access.bound_to(unbound) is None
        assert set(access.watched(unbound)) == {experiment, other}
    assert access.check_may_create(request_of(superuser, token=free)) is None
    with pytest.raises(PermissionDenied, match="limited to one experiment"):
        access.check_may_create(request)


def test_an_invitation_is_found_by_who_may_give_its_role(experiment, people):
    to_owners, to_all = (invited(experiment, role).pk for role in ("owner", "annotator"))
    owner, editor, viewer = (request_of(people[role]) for role in ("owner", "editor", "viewer"))
    assert access.invitation_to_give(owner, experiment.pk, to_owners).pk == to_owners
    assert access.invitation_to_give(editor, experiment.pk, to_all).pk == to_all
    with pytest.raises(PermissionDenied):
        access.invitation_to_give(viewer, experiment.pk, to_all)
    other = invited(make_experiment()).pk
    for request, invitation in ((editor, to_owners), (owner, other)):
        with pytest.raises(Http404):
            access.invitation_to_give(request, experiment.pk, invitation)


def test_an_owner_becomes_an_annotator_by_sending_not_by_reading(experiment, people):
    owner = people["owner"]
    assert not access.may_begin_to_judge(request_of(owner), make_experiment())
    for method, begun in (("get", False), ("post", True)):
        assert access.may_begin_to_judge(request_of(owner), experiment)
        found = access.to_label(request_of(owner, method), experiment.pk)
        assert found == experiment, method
        assert hasattr(found, "mine_today") is begun, "annotators have it"
        assert experiment.memberships.filter(user=owner, role="annotator").exists() is begun, method
    assert not access.may_begin_to_judge(request_of(owner), experiment)
    assert not access.may_begin_to_judge(request_of(people["editor"]), experiment)


def test_judgments_are_taken_back_by_who_may_run_it_until_it_ends(experiment, people):
    def who() -> list[str]:
        return [role for role in ROLES if access.may_void(request_of(people[role]), experiment)]

    assert who() == RUN
    experiment.state = Experiment.State.CONCLUDED
    assert who() == []


def test_ready_made_responses_are_kept_from_who_judges_them_until_the_end(experiment, people):
    both = people["annotator"]
    add_member(experiment, both, "editor")

    def withheld(role: str) -> bool:
        return access.withholds_responses(request_of(people[role]), experiment)

    assert (withheld("annotator"), withheld("viewer"), withheld("editor")) == (True, False, False)
    experiment.state = Experiment.State.CONCLUDED
    assert not withheld("annotator")
    # Who edits a draft brings them; who only watches it does not.
    experiment.state = Experiment.State.DRAFT
    assert not withheld("annotator")
    experiment.memberships.filter(user=both, role="editor").update(role="viewer")
    assert withheld("annotator")


def test_who_judges_and_does_not_watch_judges_blind_until_the_end(experiment, people):
    def blind() -> list[str]:
        return [role for role in ROLES if access.judges_blind(request_of(people[role]), experiment)]

    assert blind() == ["annotator"]
    assert not access.judges_blind(request_of(AnonymousUser()), experiment)
    other = make_experiment()
    assert not access.judges_blind(request_of(people["annotator"]), other)
    add_member(other, people["annotator"], "viewer")
    assert blind() == ["annotator"], "another experiment is none of this one's"
    experiment.state = Experiment.State.CONCLUDED
    assert blind() == []


def test_nobody_gives_a_role_above_their_own(experiment, people):
    given = {
        role: [name for name, _ in access.roles_to_give(request_of(people[role]), experiment)]
        for role in ("editor", "owner")
    }
    assert "owner" not in given["editor"]
    assert "annotator" in given["editor"]
    assert set(given["editor"]) < set(given["owner"])
    labels = dict(access.roles_to_give(request_of(people["owner"]), experiment))
    assert labels["annotator"] != "annotator"


class TestAnnotatorAction:
    def view(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        return HttpResponse(f"{args} {kwargs}")

    def test_it_is_a_post(self, annotator):
        answer = access.annotator_action(self.view)(request_of(annotator), 7)
        assert answer.status_code == 405

    def test_who_is_logged_in_gets_through_with_all_arguments(self, annotator):
        answer = access.annotator_action(self.view)(request_of(annotator, "post"), 7, "a", b=1)
        assert answer.content == b"(7, 'a') {'b': 1}"

    def test_who_is_not_comes_back_at_the_pair(self):
        answer = access.annotator_action(self.view)(request_of(AnonymousUser(), "post"), 7)
        assert answer["Location"] == f"{reverse('login')}?next={reverse('pair', args=[7])}"


class TestRecentLogin:
    @pytest.fixture(autouse=True)
    def an_hour(self, settings):
        settings.ACCOUNT_REAUTHENTICATION_TIMEOUT = 3600

    @pytest.fixture(autouse=True)
    def stopped_clock(self, monkeypatch):
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now)

    def records(self, monkeypatch, *records: dict[str, object]) -> None:
        monkeypatch.setattr(access, "get_authentication_records", lambda request, user: list(records))

    @pytest.mark.parametrize(("seconds", "recent"), [(3599, True), (3600, False), (10**6, False)])
    def test_it_holds_for_an_hour(self, seconds, recent, annotator, monkeypatch):
        self.records(monkeypatch, {"at": time.time() - seconds, "reauthenticated": True})
        assert access.logged_in_recently(request_of(annotator)) is recent

    def test_what_was_no_confirmation_does_not_count(self, annotator, monkeypatch):
        self.records(monkeypatch, {"at": time.time(), "reauthenticated": False})
        assert access.logged_in_recently(request_of(annotator)) is False

    def test_any_confirmation_will_do(self, annotator, monkeypatch):
        self.records(
            monkeypatch,
            {"at": time.time() - 10**6, "reauthenticated": True},
            {"at": time.time() - 60, "reauthenticated": True},
        )
        assert access.logged_in_recently(request_of(annotator)) is True

    def test_only_people_who_are_logged_in_are_asked(self, annotator, monkeypatch):
        self.records(monkeypatch)
        access.require_recent_login(request_of(AnonymousUser()))
        with pytest.raises(ReauthenticationRequired):
            access.require_recent_login(request_of(annotator))
        self.records(monkeypatch, {"at": time.time(), "reauthenticated": True})
        access.require_recent_login(request_of(annotator))

    @pytest.mark.parametrize("method", ["get", "head", "options"])
    def test_reading_needs_none(self, method, annotator, monkeypatch):
        self.records(monkeypatch)
        view = access.recent_login_required(
            lambda request, *args, **more: SimpleNamespace(args=args, more=more)
        )
        answer = view(request_of(annotator, method), 1, two=2)
        assert (answer.args, answer.more) == ((1,), {"two": 2})

    @pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
    def test_changing_does(self, method, annotator, monkeypatch):
        self.records(monkeypatch)
        view = access.recent_login_required(lambda request: HttpResponse())
        with pytest.raises(ReauthenticationRequired):
            view(request_of(annotator, method))
