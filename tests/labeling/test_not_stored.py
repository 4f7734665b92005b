"""No browser and no proxy keeps an answer: pages, exports, setup files and API replies are personal."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from engine.services.tokens import make_token
from tests.labeling.ladder import LADDER, address

pytestmark = pytest.mark.django_db


def is_kept_by_nobody(response) -> bool:
    words = {word.strip() for word in response["Cache-Control"].split(",")}
    return {"private", "no-store"} <= words and "public" not in words


@pytest.mark.parametrize("endpoint", LADDER, ids=lambda endpoint: endpoint.name)
def test_every_page(endpoint, experiment, annotator, admin, client_for):
    """Exports and setup files could be kept by proxies and in the browser's cache."""
    role = annotator if endpoint.statuses.get("admin") is None else admin
    url = address(endpoint, experiment)
    for client in (client_for(role), Client()):
        assert is_kept_by_nobody(getattr(client, endpoint.method)(url)), endpoint.name


def every_path(patterns, prefix: str = "") -> list[str]:
    """Every address of the URLconf, each of its parts that varies filled with something."""
    paths = []
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            paths += every_path(pattern.url_patterns, prefix + _filled(pattern))
        elif isinstance(pattern, URLPattern):
            paths.append(prefix + _filled(pattern))
    return paths


def _filled(pattern: URLPattern | URLResolver) -> str:
    route = str(pattern.pattern)
    for name, converter in pattern.pattern.converters.items():
        kind = type(converter).__name__.removesuffix("Converter").lower()
        value = "1" if kind in {"int", "string", "slug", "path"} else "0b7ee1ee-0000-4000-8000-000000000000"
        route = (
            route.replace(f"<{kind}:{name}>", value)
            .replace(f"<str:{name}>", value)
            .replace(f"<{name}>", value)
        )
    return route.removeprefix("^").removesuffix("$")


def test_every_address_of_the_urlconf(admin, client_for):
    """Also the admin site's and whatever is added later, whether it is found or not."""
    paths = every_path(get_resolver().url_patterns)
    assert len(paths) > 100
    client = client_for(admin)
    for path in paths:
        assert is_kept_by_nobody(client.get(f"/{path}")), path


def test_the_api_and_its_errors(experiment, admin):
    _, secret = make_token(user=admin, name="a program", valid_days=1)
    headers = {"Authorization": f"Bearer {secret}"}
    for path in ("experiments", f"experiments/{experiment.pk}", f"experiments/{experiment.pk}/judgments.csv"):
        assert is_kept_by_nobody(Client().get(f"/api/{path}", headers=headers)), path
        assert is_kept_by_nobody(Client().get(f"/api/{path}")), path


def test_an_answer_that_failed(experiment, admin, client_for, monkeypatch):
    monkeypatch.setattr("labeling.views.export.record_export", lambda **_: 1 / 0)
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
