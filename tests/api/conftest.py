"""Callers of the API: one person per role, each with a token."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from django.core import signals
from django.db import close_old_connections
from django.http import HttpResponse
from django.test import Client

from engine.models import Experiment, Token, User
from tests.accounts import bearer
from tests.factories import add_member, make_experiment, make_user

Call = Callable[..., HttpResponse]
CallerFor = Callable[[User | None], Call]


@pytest.fixture
def connection_stays_open() -> Iterator[None]:
    """A real request ends the connection that the test's own transaction is on; Django's test client does the
    same.
    """
    for signal in (signals.request_started, signals.request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (signals.request_started, signals.request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def caller_for() -> CallerFor:
    """Calls with a token of this user: ``call("post", "/experiments", {...})``; nobody's without one.

    The token has every scope and reaches all experiments, unless told otherwise.
    """

    def caller(
        user: User | None, *, scopes: Sequence[str] = Token.Scope.values, experiment: Experiment | None = None
    ) -> Call:
        client = Client()
        headers = {}
        if user is not None:
            headers = bearer(user, scopes, experiment)

        def call(method: str, path: str, body: Any = None) -> HttpResponse:
            options = {} if body is None else {"data": body, "content_type": "application/json"}
            return getattr(client, method)(f"/api{path}", headers=headers, **options)

        return call

    return caller


@pytest.fixture
def experiment(annotator: User) -> Experiment:
    return make_experiment(name="Which is best?", ready=True, annotators=(annotator,))


@pytest.fixture
def people(experiment: Experiment, annotator: User, admin: User) -> dict[str, User]:
    roles = {role: make_user(role) for role in ("stranger", "viewer", "editor", "owner")}
    for role in ("viewer", "editor", "owner"):
        add_member(experiment, roles[role], role)
    return roles | {"annotator": annotator, "admin": admin}
