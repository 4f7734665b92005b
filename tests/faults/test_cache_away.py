"""The cache's server is away, or says nothing: every page and answer is as without one."""

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from engine.models import Token
from engine.services.tokens import make_token
from llmpo_site import cache as ours
from tests.factories import assign, make_experiment, make_user
from tests.faults.network import Proxy
from tests.workers import free_port


def served_at(port: int) -> dict[str, dict[str, object]]:
    """The default of ``CACHES`` as the settings make it, but for the seconds that a server may be silent."""
    return {
        "default": {
            "BACKEND": "llmpo_site.cache.RedisCache",
            "LOCATION": f"redis://127.0.0.1:{port}/0",
            "OPTIONS": {"socket_connect_timeout": 2, "socket_timeout": 0.2},
        }
    }


@pytest.fixture(autouse=True)
def never_away_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours.RedisCache, "_ask_again_at", 0.0)


@pytest.mark.django_db
class TestAway:
    @pytest.fixture(autouse=True)
    def nobody_there(self, settings) -> None:
        settings.CACHES = settings.CACHES | served_at(free_port())
        # Dashboards share nothing otherwise.
        settings.DASHBOARD_SECONDS = 5.0

    def test_annotators_go_on(self, client, annotator):
        """Behind a proxy that nobody has named, which each request looks up in the cache."""
        experiment = make_experiment(ready=True, annotators=(annotator,))
        client.force_login(annotator)
        proxied = {"HX-Request": "true", "X-Forwarded-For": "192.0.2.1"}
        assert client.get(reverse("pair", args=[experiment.pk]), headers=proxied).status_code == 200
        form = {"token": assign(experiment, annotator).token, "choice": "left"}
        judged = client.post(reverse("judge", args=[experiment.pk]), form, headers=proxied)
        assert judged.status_code == 200
        assert annotator.judgments.count() == 1

    def test_admins_and_programs_go_on(self, client, admin):
        experiment = make_experiment()
        client.force_login(admin)
        for page in ("dashboard", "dashboard_live"):
            assert client.get(reverse(page, args=[experiment.pk])).status_code == 200
        assert client.get(reverse("home")).status_code == 200
        _, secret = make_token(user=admin, name="n", valid_days=1, scopes=[Token.Scope.READ])
        asked = Client().get("/api/experiments", headers={"Authorization": f"Bearer {secret}"})
        assert asked.status_code == 200

    def test_wrong_passwords_are_counted(self, client, settings):
        make_user("ann")
        form = {"username": "ann", "password": "wrong"}
        most = settings.LOGIN_FAILURE_LIMIT
        answers = [client.post(reverse("login"), form).status_code for _ in range(most + 1)]
        assert answers == [200] * most + [429]


def test_a_server_that_is_back_is_asked_again(redis, settings, monkeypatch):
    settings.CACHES = settings.CACHES | served_at(redis.port)
    monkeypatch.setattr(ours, "_AWAY_SECONDS", 0.0)
    cache.set("name", "there")
    redis.kill()
    cache.set("name", "here")
    assert cache.get("name") == "here"
    redis.start()
    assert cache.get("name") is None
    cache.set("name", "there again")
    assert redis.command("DBSIZE") == b":1\r\n"


def test_a_server_that_says_nothing_is_not_waited_for_again(redis, settings, caplog):
    broken = Proxy("127.0.0.1", redis.port)
    broken.open()
    settings.CACHES = settings.CACHES | served_at(broken.port)
    cache.set("name", "there")
    broken.hang()
    for _ in range(5):
        assert cache.get("name", "here") == "here"
    assert len([each for each in caplog.records if each.name == "llmpo_site.cache"]) == 1
    broken.cut()
    broken.go_on()


def test_an_error_of_ours_is_no_fault_of_the_server(redis, settings):
    settings.CACHES = settings.CACHES | served_at(redis.port)
    with pytest.raises(ValueError, match="nothing"):
        cache.incr("nothing")
    assert ours.RedisCache._ask_again_at == 0.0
