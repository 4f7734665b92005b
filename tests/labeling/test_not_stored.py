"""No browser and no proxy keeps an answer: pages, exports, setup files and API replies are personal."""

import pytest
from django.test import Client
from django.urls import reverse

from tests.accounts import bearer
from tests.authorisation.table import TABLE
from tests.authorisation.world import World, may_be_kept, routes

pytestmark = pytest.mark.django_db


def test_every_answer_of_the_admin_site():
    """tests/authorisation/test_matrix.py looks at those of all other addresses."""
    world, kept = World(), []
    for route in dict.fromkeys(routes()):
        for role in ("anonymous", "annotator", "owner", "superuser") if route not in TABLE else ():
            path = world.path(route, role, "own")
            if may_be_kept(world.call(role, "get", path)):
                kept.append(f"get {path} as {role}")
    assert not kept


def test_the_api_and_its_errors(experiment, admin):
    headers = bearer(admin)
    for path in ("experiments", f"experiments/{experiment.pk}", f"experiments/{experiment.pk}/judgments.csv"):
        assert not may_be_kept(Client().get(f"/api/{path}", headers=headers)), path
        assert not may_be_kept(Client().get(f"/api/{path}")), path


def test_an_answer_that_failed(experiment, admin, client_for, monkeypatch):
    monkeypatch.setattr("labeling.exports.downloads.record_export", lambda **_: 1 / 0)
    client = client_for(admin)
    client.raise_request_exception = False
    response = client.post(reverse("judgments_csv", args=[experiment.pk]))
    assert response.status_code == 500
    assert not may_be_kept(response)


def test_static_files_may_be_kept(settings):
    settings.WHITENOISE_USE_FINDERS = settings.WHITENOISE_AUTOREFRESH = True
    response = Client().get("/static/css/site.css")
    assert response.status_code == 200
    assert "no-store" not in response.headers.get("Cache-Control", "")
