"""Every operation, for everybody: without a token, in the wrong role, with a wrong id, by the wrong method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from engine.models import Token
from engine.services.tokens import make_token
from labeling.api import api
from tests.factories import make_experiment

pytestmark = pytest.mark.django_db

ROLES = ("stranger", "annotator", "viewer", "editor", "owner", "admin")
WATCHERS = dict.fromkeys(("viewer", "editor", "owner", "admin"), 200)
RUNNERS = ("editor", "owner", "admin")
TOKEN = {"token": "00000000-0000-4000-8000-000000000000"}


@dataclass(frozen=True)
class Operation:
    """What a request with this body is answered with, by role; to whom it does not exist: 404."""

    method: str
    path: str
    statuses: dict[str, int]
    body: Any = None

    @property
    def of_experiment(self) -> bool:
        return "{" in self.path

    def call(self, call, experiment_id: object) -> Any:
        return call(self.method, self.path.replace("{experiment_id}", str(experiment_id)), self.body)


LADDER = (
    Operation("get", "/experiments", dict.fromkeys(ROLES, 200)),
    Operation("post", "/experiments", dict.fromkeys(ROLES, 403) | {"admin": 422},
              {"name": "x", "factors": [], "tasks": []}),
    Operation("get", "/experiments/{experiment_id}", WATCHERS),
    Operation("patch", "/experiments/{experiment_id}", dict.fromkeys(RUNNERS, 200), {"budget": 3000}),
    Operation("post", "/experiments/{experiment_id}/reopen", dict.fromkeys(RUNNERS, 409), {}),
    Operation("post", "/experiments/{experiment_id}/actions/pause", dict.fromkeys(RUNNERS, 200)),
    Operation("post", "/experiments/{experiment_id}/clone",
              {"editor": 403, "owner": 403, "admin": 201}, {"name": "copy"}),
    Operation("get", "/experiments/{experiment_id}/log", WATCHERS),
    Operation("get", "/experiments/{experiment_id}/judgments.csv", WATCHERS),
    Operation("get", "/experiments/{experiment_id}/judgments.jsonl", WATCHERS),
    Operation("post", "/label/{experiment_id}/next", {"annotator": 200}, {}),
    Operation("post", "/label/{experiment_id}/judgments", {"annotator": 404}, TOKEN | {"choice": "left"}),
    Operation("post", "/label/{experiment_id}/skip", {"annotator": 404}, TOKEN),
    Operation("post", "/label/{experiment_id}/flag", {"annotator": 404}, TOKEN | {"reason": "broken"}),
    Operation("post", "/label/{experiment_id}/undo", {"annotator": 409}),
)  # fmt: skip

each_operation = pytest.mark.parametrize("operation", LADDER, ids=lambda o: f"{o.method} {o.path}")
each_operation_of_an_experiment = pytest.mark.parametrize(
    "operation", [o for o in LADDER if o.of_experiment], ids=lambda o: f"{o.method} {o.path}"
)


def a_role_of(operation: Operation) -> str:
    return [role for role in ROLES if role in operation.statuses][-1]


def test_no_operation_is_missing_from_the_ladder():
    described = {
        (method, path.removeprefix("/api").replace("{action}", "pause"))
        for path, methods in api.get_openapi_schema(path_prefix="/api/")["paths"].items()
        for method in methods
    }
    assert described == {(operation.method, operation.path) for operation in LADDER}


@each_operation
@pytest.mark.parametrize("role", ROLES)
def test_every_role_gets_what_is_its_own_and_to_the_others_it_does_not_exist(
    operation, role, people, experiment, caller_for
):
    response = operation.call(caller_for(people[role]), experiment.pk)
    assert response.status_code == operation.statuses.get(role, 404), response.content


@each_operation
def test_without_a_token_nothing(operation, experiment, caller_for):
    response = operation.call(caller_for(None), experiment.pk)
    assert (response.status_code, response.json()) == (401, {"detail": "Unauthorized"})


@each_operation
def test_a_session_is_no_token(operation, people, experiment):
    """Else any site could have a browser call the API in the name of whoever is logged in."""
    client = Client()
    client.force_login(people[a_role_of(operation)])
    path = "/api" + operation.path.replace("{experiment_id}", str(experiment.pk))
    options = {} if operation.body is None else {"data": operation.body, "content_type": "application/json"}
    assert getattr(client, operation.method)(path, **options).status_code == 401


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Bearer x", "Basic eDp5", "llmpo_x", "Bearer ü"])
def test_what_is_no_token_is_none(header, db):
    assert Client().get("/api/experiments", headers={"Authorization": header}).status_code == 401


@pytest.mark.parametrize(
    "fate", [{"expires_at": timezone.now() - timedelta(days=1)}, {"revoked_at": timezone.now()}]
)
def test_an_expired_or_revoked_token_is_none(fate, admin, caller_for):
    call = caller_for(admin)
    assert call("get", "/experiments").status_code == 200
    Token.objects.update(**fate)
    assert call("get", "/experiments").status_code == 401


def test_a_deactivated_users_token_is_none(admin, caller_for):
    call = caller_for(admin)
    admin.is_active = False
    admin.save()
    assert call("get", "/experiments").status_code == 401


@each_operation_of_an_experiment
def test_a_role_in_another_experiment_opens_nothing(operation, people, caller_for):
    role = next(role for role in ROLES if role in operation.statuses)
    other = make_experiment(ready=True)
    assert operation.call(caller_for(people[role]), other.pk).status_code == 404


@each_operation_of_an_experiment
@pytest.mark.parametrize(
    ("bad_id", "status"), [(987654321, 404), (0, 422), (-1, 422), ("x", 422), ("9" * 30, 422)]
)
def test_an_experiment_that_there_is_not(operation, bad_id, status, people, experiment, caller_for):
    response = operation.call(caller_for(people[a_role_of(operation)]), bad_id)
    assert response.status_code == status
    assert response.json()["detail"]


@each_operation
def test_other_methods_are_refused(operation, people, experiment, caller_for):
    call = caller_for(people[a_role_of(operation)])
    path = operation.path.replace("{experiment_id}", str(experiment.pk))
    taken = {other.method for other in LADDER if other.path == operation.path}
    for method in {"get", "post", "put", "patch", "delete"} - taken:
        assert call(method, path).status_code == 405, method


@pytest.fixture
def clock(monkeypatch) -> Callable[[float], None]:
    """Stops the throttle's clock, and moves it on."""
    now = timezone.now().replace(second=30)

    def move(seconds: float = 0) -> None:
        nonlocal now
        now += timedelta(seconds=seconds)
        monkeypatch.setattr("labeling.api.auth.timezone", SimpleNamespace(now=lambda: now))

    move()
    return move


def test_so_many_requests_a_minute_and_no_more(people, caller_for, settings, clock):
    settings.API_REQUESTS_PER_MINUTE = 3
    call = caller_for(people["admin"])
    assert [call("get", "/experiments").status_code for _ in range(5)] == [200, 200, 200, 429, 429]
    refused = call("get", "/experiments")
    assert refused.json() == {"detail": "Too many requests."}
    assert 0 < int(refused["Retry-After"]) <= 60
    other = caller_for(people["viewer"])
    assert other("get", "/experiments").status_code == 200, "a token of its own, a count of its own"
    clock(60)
    assert call("get", "/experiments").status_code == 200


def test_the_tokens_user_is_who_it_was_made_for(people):
    _, secret = make_token(user=people["viewer"], name="mine", valid_days=1)
    client = Client()
    client.force_login(people["admin"])
    seen = client.get("/api/experiments", headers={"Authorization": f"Bearer {secret}"}).json()
    make_experiment()
    assert seen["count"] == 1, "what its own user may see, whoever is logged in"
