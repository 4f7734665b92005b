"""The rights of a token: its user's rights, limited by its scopes and by its experiment."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from engine import tasks
from engine.models import Token
from engine.services.people import change_role
from engine.services.tokens import make_token
from labeling.api import api
from labeling.api.auth import TokenAuth
from tests.authorisation.table import TABLE
from tests.factories import add_member, make_user

pytestmark = pytest.mark.django_db

# The table says what each operation needs; tests/authorisation tries every operation with every kind of
# token.
NEEDS = {
    (method, "/" + re.sub(r"<(\w+)>", r"{\1}", route.removeprefix("api/"))): row.scopes[method]
    for route, row in TABLE.items()
    for method in row.methods
    if method in row.scopes
}


def test_a_refusal_names_the_scope(people, experiment, caller_for):
    call = caller_for(people["owner"], scopes=["annotate", "manage"])
    response = call("get", f"/experiments/{experiment.pk}")
    assert response.status_code == 403
    assert "This token lacks the scope “read”" in response.json()["detail"]


def test_an_operation_that_declares_no_scope_lets_nobody_in(admin, rf):
    """A forgotten declaration must not open anything."""
    _, secret = make_token(user=admin, name="all", valid_days=1, scopes=Token.Scope.values)
    assert TokenAuth().authenticate(rf.get("/"), secret) is None


def test_the_description_says_which_scope_each_operation_needs(client):
    schema = api.get_openapi_schema(path_prefix="/api/")
    schemes = schema["components"]["securitySchemes"]
    said = {}
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            [[name]] = operation["security"]
            key = (method, path.removeprefix("/api"))
            said[key] = schemes[name]["description"]
    assert said == {key: f"A token with the scope “{scope}”" for key, scope in NEEDS.items()}
    assert "A token with the scope “annotate”" in client.get("/api/docs").content.decode()


def test_a_demotion_narrows_what_a_token_can_do(people, experiment, caller_for):
    call = caller_for(people["editor"])
    assert call("patch", f"/experiments/{experiment.pk}", {"budget": 3000}).status_code == 200
    member = experiment.memberships.get(user=people["editor"])
    change_role(membership_id=member.pk, by=people["owner"], role="viewer")
    assert call("patch", f"/experiments/{experiment.pk}", {"budget": 4000}).status_code == 403
    assert call("get", f"/experiments/{experiment.pk}").status_code == 200


@pytest.mark.parametrize("path", ["", "/{}", "/{}/log", "/{}/ranking"])
def test_reading_writes_nothing_and_its_use_is_noted_by_a_worker_once_an_hour(
    path, experiment, caller_for, monkeypatch, django_capture_on_commit_callbacks
):
    notes = []
    monkeypatch.setattr(tasks.note_token_use, "apply_async", lambda args, **_: notes.append(args))
    viewer = make_user()
    add_member(experiment, viewer, "viewer")
    call = caller_for(viewer, scopes=["read"])
    with CaptureQueriesContext(connection) as queries, django_capture_on_commit_callbacks(execute=True):
        for _ in range(3):
            assert call("get", "/experiments" + path.format(experiment.pk)).status_code == 200
    # PostgreSQL reads long results through a cursor, which it declares.
    reading = re.compile(r"\(?SELECT |DECLARE \S+ NO SCROLL CURSOR FOR SELECT ")
    assert [q["sql"] for q in queries if not reading.match(q["sql"])] == []
    assert notes == [(Token.objects.get().pk,)]
