"""No browser and no proxy keeps an answer: pages, exports, setup files and API replies are personal."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from engine.services.tokens import make_token
from tests.authorisation.table import TABLE
from tests.authorisation.world import World, routes

pytestmark = pytest.mark.django_db


def is_kept_by_nobody(response) -> bool:
    words = {word.strip() for word in response["Cache-Control"].split(",")}
    return {"private", "no-store"} <= words and "public" not in words


def test_every_answer_of_every_address():
    """Exports and setup files could be kept by proxies and in the browser's cache. Also pages added later,
    whether it is found or not.
    """
    world, kept = World(), []
    for route in dict.fromkeys(routes()):
        for role in ("anonymous", "annotator", "owner", "superuser"):
            path = world.path(route, role, "own")
            if not is_kept_by_nobody(world.call(role, "get", path)):
                kept.append(f"get {path} as {role}")
        posts = route in TABLE and "post" in TABLE[route].methods
        if posts and not is_kept_by_nobody(world.call("superuser", "post", path)):
            kept.append(f"post {path}")
    assert not kept


def test_the_api_and_its_errors(experiment, admin):
    _, secret = make_token(user=admin, name="a program", valid_days=1)
    headers = {"Authorization": f"Bearer {secret}"}
    for path in ("experiments", f"experiments/{experiment.pk}", f"experiments/{experiment.pk}/judgments.csv"):
        assert is_kept_by_nobody(Client().get(f"/api/{path}", headers=headers)), path
        assert is_kept_by_nobody(Client().get(f"/api/{path}")), path


def test_an_answer_that_failed(experiment, admin, client_for, monkeypatch):
    monkeypatch.setattr("labeling.exports.downloads.record_export", lambda **_: 1 / 0)
    client = client_for(admin)
    client.raise_request_exception = False
    response = client.get(reverse("judgments_csv", args=[experiment.pk]))
    assert response.status_code == 500
    assert is_kept_by_nobody(response)


def test_static_files_may_be_kept(settings):
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    response = Client().get("/static/css/site.css")
    assert response.status_code == 200
    assert "no-store" not in response.headers.get("Cache-Control", "")
