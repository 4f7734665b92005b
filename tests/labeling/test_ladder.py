"""Every address, for everybody: logged out, in the wrong role, with a wrong id, by the wrong method."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import get_resolver, reverse

from engine.models import User
from labeling import urls
from tests.factories import add_member, make_experiment
from tests.labeling.ladder import LADDER, ROLES, address

pytestmark = pytest.mark.django_db

ANNOTATOR_ACTIONS = {"judge", "skip", "flag", "undo", "reopen", "beat", "leave"}

each_endpoint = pytest.mark.parametrize("endpoint", LADDER, ids=lambda endpoint: endpoint.name)
each_private_endpoint = pytest.mark.parametrize(
    "endpoint", [endpoint for endpoint in LADDER if not endpoint.public], ids=lambda endpoint: endpoint.name
)
each_endpoint_of_an_experiment = pytest.mark.parametrize(
    "endpoint",
    [endpoint for endpoint in LADDER if endpoint.of_experiment],
    ids=lambda endpoint: endpoint.name,
)


@pytest.fixture
def users(stranger, annotator, viewer, editor, owner, admin) -> dict[str, User]:
    return dict(zip(ROLES, (stranger, annotator, viewer, editor, owner, admin), strict=True))


def test_no_address_is_missing_from_the_ladder():
    assert sorted(endpoint.name for endpoint in LADDER) == sorted(route.name for route in urls.urlpatterns)


def test_no_address_is_outside_of_the_pages_the_accounts_and_the_admin_site():
    routes = [str(route.pattern) for route in get_resolver().url_patterns]
    assert routes == ["admin/", "accounts/", "language/", "api/", ""]


@each_private_endpoint
@pytest.mark.parametrize("htmx", [False, True], ids=["plain", "htmx"])
def test_who_is_not_logged_in_is_asked_to(endpoint, htmx, experiment, client):
    headers = {"HX-Request": "true"} if htmx else {}
    url = address(endpoint, experiment)
    response = getattr(client, endpoint.method)(url, headers=headers)
    # After logging in, an annotator whose click came too late is back at the pair, and not at the click.
    back = reverse("pair", args=[experiment.pk]) if endpoint.name in ANNOTATOR_ACTIONS else url
    assert response.status_code == 302
    assert response["Location"] == f"{reverse('login')}?next={back}"


@each_endpoint
@pytest.mark.parametrize("role", ROLES)
def test_every_role_gets_what_is_its_own_and_to_the_others_it_does_not_exist(
    endpoint, role, users, experiment, client_for
):
    response = getattr(client_for(users[role]), endpoint.method)(address(endpoint, experiment))
    assert response.status_code == endpoint.statuses.get(role, 404)


@each_endpoint_of_an_experiment
@pytest.mark.parametrize("role", [role for role in ROLES if role not in {"stranger", "admin"}])
def test_a_role_in_another_experiment_opens_nothing(endpoint, role, users, client_for):
    other = make_experiment(ready=True)
    response = getattr(client_for(users[role]), endpoint.method)(address(endpoint, other))
    assert response.status_code == 404


@each_endpoint_of_an_experiment
def test_who_is_no_longer_a_member_finds_nothing(endpoint, users, experiment, client_for):
    role = endpoint.allowed_roles[0]
    client = client_for(users[role])
    url = address(endpoint, experiment)
    experiment.memberships.filter(user=users[role]).delete()
    assert getattr(client, endpoint.method)(url).status_code == 404


@each_private_endpoint
def test_who_is_deactivated_is_logged_out(endpoint, users, experiment, client_for):
    user = users[endpoint.allowed_roles[0]]
    client = client_for(user)
    url = address(endpoint, experiment)
    User.objects.filter(pk=user.pk).update(is_active=False)
    response = getattr(client, endpoint.method)(url)
    assert response.status_code == 302
    assert response["Location"].startswith(reverse("login"))


@each_endpoint_of_an_experiment
@pytest.mark.parametrize("bad_id", ["0", "987654321", "9" * 30])
def test_an_experiment_that_does_not_exist_is_not_found(endpoint, bad_id, users, experiment, client_for):
    client = client_for(users[endpoint.allowed_roles[-1]])
    url = address(endpoint, experiment).replace(f"/{experiment.pk}/", f"/{bad_id}/", 1)
    assert getattr(client, endpoint.method)(url).status_code == 404


@each_endpoint_of_an_experiment
@pytest.mark.parametrize("bad_id", ["x", "-1", "1.5", "1%20or%201=1"])
def test_an_id_that_is_no_number_is_not_found(endpoint, bad_id, users, experiment, client_for):
    client = client_for(users[endpoint.allowed_roles[-1]])
    url = address(endpoint, experiment).replace(f"/{experiment.pk}/", f"/{bad_id}/", 1)
    assert getattr(client, endpoint.method)(url).status_code == 404


@each_endpoint
def test_other_methods_are_refused(endpoint, users, experiment, client_for):
    client = client_for(users[endpoint.allowed_roles[-1]])
    url = address(endpoint, experiment)
    for method in {"get", "head", "post", "put", "patch", "delete", "options"} - endpoint.methods:
        assert getattr(client, method)(url).status_code == 405, method


@pytest.mark.parametrize(
    "endpoint", [endpoint for endpoint in LADDER if "post" in endpoint.methods], ids=lambda e: e.name
)
def test_a_request_from_another_site_changes_nothing(endpoint, users, experiment):
    client = Client(enforce_csrf_checks=True)
    client.force_login(users[endpoint.allowed_roles[-1]])
    assert client.post(address(endpoint, experiment)).status_code == 403


# Of a judgment there is none before an experiment starts, nor any of one's own where the rule judges.
each_endpoint_of_annotators = pytest.mark.parametrize(
    "endpoint",
    [e for e in LADDER if e.of_experiment and e.allowed_roles == ["annotator"] and e.name != "reopen"],
    ids=lambda endpoint: endpoint.name,
)


@each_endpoint_of_annotators
def test_a_draft_is_not_there_for_its_annotators(endpoint, annotator, client_for):
    draft = make_experiment(running=False, annotators=(annotator,))
    url = address(endpoint, draft)
    assert getattr(client_for(annotator), endpoint.method)(url).status_code == 404


@each_endpoint_of_annotators
def test_a_rule_judged_experiment_is_not_there_for_people_to_judge(endpoint, annotator, client_for):
    by_rule = make_experiment(judge="rule", ready=True, annotators=(annotator,))
    url = address(endpoint, by_rule)
    assert getattr(client_for(annotator), endpoint.method)(url).status_code == 404


def test_one_person_may_have_several_roles(experiment, annotator, client_for):
    add_member(experiment, annotator, "owner")
    client = client_for(annotator)
    assert client.get(reverse("pair", args=[experiment.pk])).status_code == 200
    assert client.get(reverse("dashboard", args=[experiment.pk])).status_code == 200
