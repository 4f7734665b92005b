"""Connections by the API: no token sets a key, reads one or lends."""

import pytest

from engine.services import connections, keys
from labeling.api import connections as api

pytestmark = pytest.mark.django_db

KEY = "sk-proj-0123456789abcdefghijklmnop-WXYZ"
NEW = {"name": "gpt", "provider": "openai", "model_id": "gpt-5"}


@pytest.fixture(autouse=True)
def sent(monkeypatch) -> list:
    messages: list = []
    monkeypatch.setattr(api, "wake", lambda task, *args: messages.append(args))
    return messages


def test_it_is_made_changed_tested_and_retired(admin, caller_for, sent):
    call = caller_for(admin)
    made = call("post", "/connections", NEW | {"site": True, "everybody": True})
    assert made.status_code == 201, made.content
    pk = made.json()["id"]
    path = f"/connections/{pk}"
    assert made.json() | {"everybody": True, "address": "https://api.openai.com/v1"} == made.json()
    assert call("patch", path, {"at_once": 3, "takes": {"seed": ""}}).json()["at_once"] == 3
    assert call("post", f"{path}/test").json()["testing"] is True
    assert sent == [(pk,)]
    assert call("delete", path).status_code == 204
    assert call("get", "/connections").json()[0]["state"] == "Retired"


@pytest.mark.parametrize("field", ["key", "sealed_key", "key_variable", "key_hint", "owner", "test", "said"])
def test_no_token_sets_a_key_or_an_owner(field, admin, caller_for):
    call = caller_for(admin)
    assert call("post", "/connections", NEW | {field: "x"}).status_code == 422
    connection = connections.make(by=admin, owner=admin, key=KEY, **NEW)
    assert call("patch", f"/connections/{connection.pk}", {field: "x"}).status_code == 422
    connection.refresh_from_db()
    assert keys.target_of(connection).key == KEY


@pytest.mark.parametrize(
    "wrong", [{"provider": "x"}, {"name": ""}, {"address": "https://10.0.0.1"}, {"headers": {"Host": "x"}},
              {"takes": {"x": 1}}, {"address": None}, {"name": None}],
)  # fmt: skip
def test_a_value_that_cannot_be_used_is_refused(wrong, admin, caller_for):
    call = caller_for(admin)
    status = call("post", "/connections", NEW | wrong).status_code
    if wrong == {"headers": {"Host": "x"}}:
        assert call("post", "/connections", NEW | wrong).json()["detail"].startswith("headers: ")
    assert status == (201 if wrong == {"address": None} else 422)


def test_no_token_opens_one_with_a_key_to_everybody(admin, caller_for):
    made = connections.make(by=admin, owner=None, key=KEY, **NEW)
    answer = caller_for(admin)("patch", f"/connections/{made.pk}", {"everybody": True})
    assert answer.status_code == 403
    made.refresh_from_db()
    assert not made.everybody
