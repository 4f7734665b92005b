"""Tokens of the API: which are good, whose they are, and how often they may be used. tests/authorisation has
the rest.
"""

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.test import Client
from django.utils import timezone

from engine.services.tokens import make_token
from tests.factories import make_experiment

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Bearer x", "Basic eDp5", "llmpo_x", "Bearer ü"])
def test_what_is_no_token_is_none(header, db):
    refused = Client().get("/api/experiments", headers={"Authorization": header})
    assert refused.status_code == 401
    assert refused.json()["detail"].endswith("make a new token on the page of API tokens.")


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
    seconds = int(refused["Retry-After"])
    assert 0 < seconds <= 60
    detail = f"Too many requests of this token. Send the same request again in {seconds} seconds."
    assert refused.json() == {"detail": detail}
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
    assert seen["count"] == 1, "only the token's own user decides, not the session"
