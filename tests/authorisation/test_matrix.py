"""Every address × every role × every method × own, another's and mixed:
who may do what, as table.py has it.
"""

from urllib.parse import unquote

import pytest
from django.test import Client
from django.urls import reverse

from tests.authorisation.table import (
    METHODS,
    OUTSIDERS,
    PLACES,
    ROLES,
    TABLE,
    TOKENS,
    expected,
    is_api,
    is_listed,
)
from tests.authorisation.world import World, may_be_kept, routes

pytestmark = pytest.mark.django_db

EVERY_ROUTE = list(dict.fromkeys(routes()))
OF_AN_EXPERIMENT = [route for route in TABLE if "<experiment_id>" in route]
PAGES = [route for route in TABLE if not is_api(route)]


def places(route: str) -> list[str]:
    """The places to try: ``mixed`` needs a thing of an experiment in the route, ``other`` any thing.

    Tasks and proposals are numbered, and the other experiment's number is one of the own too.
    """
    parameters = route.count("<")
    if "<experiment_id>" in route:
        numbered = any(each in route for each in ("<action>", "/tasks/", "/proposals/"))
        things = parameters > 1 and not numbered
        return list(PLACES) if things else ["own", "other"]
    return (
        ["own", "other"]
        if any(part in route for part in ("join/<", "report/<", "<token_id>", "<connection_id>"))
        else ["own"]
    )


def methods(route: str, role: str, place: str) -> list[str]:
    """The methods to try. HEAD is answered as GET is, and a method that an address does not take is refused
    before anything is looked up: both are tried by those who differ most.
    """
    if route not in TABLE:
        return ["get", "post"] if role in {"anonymous", "owner"} else []
    taken = TABLE[route].methods
    if place == "own" and role in {"anonymous", "superuser", "read token"}:
        return list(METHODS)
    return [method for method in METHODS if method in taken and method != "head"]


def test_every_address_is_in_the_table_and_the_table_has_no_other():
    missing = [route for route in EVERY_ROUTE if not is_listed(route)]
    assert not missing, (
        f"New addresses without a row: {missing}. Say in TABLE of tests/authorisation/table.py who "
        "may do what there."
    )
    gone = [route for route in TABLE if route not in EVERY_ROUTE]
    assert not gone, (
        f"Rows of addresses that there are not: {gone}. Remove them from tests/authorisation/table.py."
    )


@pytest.mark.parametrize("role", [*ROLES, *TOKENS])
def test_every_cell_has_the_status_of_the_table(role, world: World):
    """Each answer has the status that the table names, and holds nothing that the role may not read. Nobody
    keeps it.
    """
    wrong = []
    for route in EVERY_ROUTE:
        row = TABLE.get(route)
        if role in TOKENS and not is_api(route):
            continue
        for place in places(route):
            path = world.path(route, role, place)
            for method in methods(route, role, place):
                response = world.call(role, method, path, row and row.bodies.get(method))
                wanted = expected(route, role, method, place)
                if response.status_code not in wanted:
                    wrong.append(f"{method} {path} ({place}): {response.status_code}, not {sorted(wanted)}")
                leaks = world.leaks(role, response, told=row.tells if row else ())
                wrong += [f"{method} {path} ({place}) shows {leak}" for leak in leaks]
                if may_be_kept(response):
                    wrong.append(f"{method} {path} ({place}) may be kept by browsers and proxies")
    assert not wrong, f"As {role}:\n" + "\n".join(wrong)


@pytest.mark.parametrize("role", OUTSIDERS)
@pytest.mark.parametrize("htmx", [False, True], ids=["plain", "htmx"])
def test_who_is_not_logged_in_is_led_to_the_login_and_back(role, htmx, world: World):
    headers = {"HX-Request": "true"} if htmx else {}
    wrong = []
    for route in PAGES:
        row = TABLE[route]
        for method, statuses in row.methods.items():
            if role in statuses:
                continue
            path = world.path(route, role, "own")
            # An annotator whose click came too late is back at the pair, and not at the click.
            back = reverse("pair", args=[world.own.experiment.pk]) if row.back_to_pair else path
            location = world.call(role, method, path, headers=headers).get("Location", "")
            if unquote(location) != f"{reverse('login')}?next={back}":
                wrong.append(f"{method} {path}: {location}")
    assert not wrong, "\n".join(wrong)


def allowed(route: str) -> tuple[str, str]:
    """A role that may do something at this address, the least one, and by which method."""
    method, statuses = next(iter(TABLE[route].methods.items()))
    return method, next(role for role in ROLES if role in statuses)


@pytest.mark.parametrize(
    ("bad_id", "of_api"),
    [
        ("0", 422),
        ("987654321", 404),
        ("9" * 30, 422),
        ("x", 422),
        ("-1", 422),
        ("1.5", 422),
        ("1%20or%201=1", 422),
    ],
)
def test_an_experiment_that_there_is_not(bad_id, of_api, world: World):
    wrong = []
    for route in OF_AN_EXPERIMENT:
        method, role = allowed(route)
        path = world.path(route.replace("<experiment_id>", bad_id), role, "own")
        status = world.call(role, method, path, TABLE[route].bodies.get(method)).status_code
        if status != (of_api if is_api(route) else 404):
            wrong.append(f"{method} {path}: {status}")
    assert not wrong, "\n".join(wrong)


def test_a_request_from_another_site_changes_nothing(world: World):
    """A form elsewhere has no CSRF token; and a session is no token of the API."""
    wrong = []
    for route, row in TABLE.items():
        for method in set(row.methods) & {"post", "put", "patch"}:
            if is_api(route) and "anonymous" in row.methods[method]:
                continue
            role = next(role for role in reversed(ROLES) if role in row.methods[method])
            forger = Client(enforce_csrf_checks=True, raise_request_exception=False)
            path = world.path(route, role, "own")
            if is_api(route):
                forger.cookies = world.session_of(role)
                status, wanted = getattr(forger, method)(path).status_code, 401
            else:
                status, wanted = world.call(role, method, path, client=forger).status_code, 403
            if status != wanted:
                wrong.append(f"{method} {path} as {role}: {status}, not {wanted}")
    assert not wrong, "\n".join(wrong)


def test_what_cannot_be_undone_needs_a_recent_login(world: World):
    """A browser that was left open, or a stolen cookie, makes no tokens and no owners, deletes nothing, and
    takes nobody's data along.
    """
    wrong = []
    for route, row in TABLE.items():
        for method in () if is_api(route) else row.methods.keys() & {"get", "post"}:
            role = next(role for role in reversed(ROLES) if role in row.methods[method])
            path = world.path(route, role, "own")
            asked = [
                world.call(role, method, path, row.bodies.get(method), recent=recent)
                .get("Location", "")
                .startswith(reverse("account_reauthenticate"))
                for recent in (True, False)
            ]
            if (asked == [False, True]) != (method in row.recent):
                wrong.append(f"{method} {path} as {role}: asks for the password {asked}")
    invitation = {"role": "owner", "most_uses": 1, "valid_days": 1}
    path = f"/experiments/{world.own.experiment.pk}/invitations/"
    assert world.call("owner", "post", path, invitation).status_code == 200
    assert world.call("owner", "post", path, invitation, recent=False)["Location"].startswith(
        reverse("account_reauthenticate")
    )
    assert world.call("owner", "post", path, invitation | {"role": "viewer"}, recent=False).status_code == 200
    assert not wrong, "\n".join(wrong)


# Visitors who opened the link for an annotator: the next page's answers to GET and to an empty POST.
# Outsiders need an account first; the role of ``removed`` was taken after the link was made.
AT_THE_LINK = dict.fromkeys(ROLES, (200, 302)) | {
    "anonymous": (200, 400),
    "deactivated": (200, 400),
    "annotator": (302, 302),
    "removed": (410, 410),
}


@pytest.mark.parametrize("role", ROLES)
def test_a_link_lets_in_its_visitors(role, world: World):
    seen = []
    for method in ("get", "post"):
        with world.visit(role) as client:
            assert client.get(world.path("join/<token>/", role, "own")).status_code == 302
            response = getattr(client, method)("/join/")
            seen.append(response.status_code)
            response.text_read, response.said = response.content, []
            assert not world.leaks(role, response)
    assert tuple(seen) == AT_THE_LINK[role]


def test_nobody_answers_for_somebody_else(world: World):
    """A pair that another annotator is shown, and an answer of theirs, are as if they were not there."""
    experiment = world.own.experiment.pk
    theirs, made_up = world.own.things["token_on_show_of_another"], "00000000-0000-4000-8000-000000000000"
    for action, form in (("judge", {"choice": "left"}), ("skip", {"reason": "broken"}), ("beat", {})):
        path = f"/label/{experiment}/{action}/"
        asked = [
            world.call("annotator", "post", path, form | {"token": token}) for token in (theirs, made_up)
        ]
        assert len({(each.status_code, each.get("Location")) for each in asked}) == 1, path
    for action, form in (("judgments", {"choice": "left"}), ("skip", {"reason": "broken"})):
        path = f"/api/label/{experiment}/{action}"
        assert world.call("annotator", "post", path, form | {"token": str(theirs)}).status_code == 404, path
    path = f"/label/{experiment}/history/{world.own.things['token_of_another']}/reopen/"
    assert world.call("annotator", "post", path).status_code == 404


@pytest.mark.parametrize("state", ["draft", "by rule"])
def test_what_people_do_not_judge_is_not_there_for_annotators(state, world: World):
    wrong = []
    for route in OF_AN_EXPERIMENT:
        if "label/" not in route or "<token>" in route:
            continue
        method, role = allowed(route)
        path = world.path(route.replace("<experiment_id>", str(world.by_state[state].pk)), role, "own")
        status = world.call(role, method, path, TABLE[route].bodies.get(method)).status_code
        if status != 404:
            wrong.append(f"{method} {path}: {status}")
    assert not wrong, "\n".join(wrong)


def test_one_person_may_have_several_roles(world: World):
    """The account that is an annotator and a viewer may do what either may."""
    for route in (f"/label/{world.own.experiment.pk}/", f"/experiments/{world.own.experiment.pk}/"):
        assert world.call("both", "get", route).status_code == 200
