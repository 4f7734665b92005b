"""Reads of dashboards and downloads from a replica: here the same database, by a connection of its own."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from engine.selectors import counts, designs, people
from labeling import access
from labeling.replica import connection as read_through
from labeling.replica import reading
from tests.downloads import ask
from tests.factories import click_on, lease, make_experiment, make_user
from tests.starting import settings_with

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


@pytest.fixture
def replica(monkeypatch):
    monkeypatch.setitem(settings.DATABASES, "replica", {**connection.settings_dict})
    # Another connection of the only database that tests may use.
    connections["replica"] = connections.create_connection("default")
    yield connections["replica"]
    connections["replica"].close()
    del connections["replica"]


def test_dashboards_and_downloads_are_read_there_but_not_right_after_a_change(replica, annotator, client_for):
    owner = make_user(is_superuser=True)
    experiment = make_experiment(ready=True, annotators=(annotator,))
    click_on(experiment, annotator, 2)
    client = client_for(owner)

    def asked(name: str, *more: object) -> int:
        with CaptureQueriesContext(replica) as there:
            response = ask(client, name, experiment.pk, *more)
            b"".join(response.streaming_content) if response.streaming else response.content
        assert response.status_code == 200
        return len(there)

    pages = ("dashboard", "dashboard_live", "quality", "method", "judgments_csv", "dpo_jsonl")
    assert all(asked(name) for name in pages)
    assert asked("people") == asked("experiment_settings") == 0
    client.post(reverse("change_state", args=[experiment.pk]), {"action": "pause"})
    assert [asked(name) for name in pages if name != "dashboard_live"] == [0] * 5


def test_rights_are_never_read_there(replica, annotator, client_for, monkeypatch):
    """Somebody who lost a role a moment ago has it there still."""
    experiment = make_experiment(ready=True, annotators=(annotator,))
    rights = (access.may_run, access.may_own, access.may_void)
    asked_there = []
    for right in rights:

        def asked(request, experiment, right=right):
            asked_there.append(read_through() is replica)
            return right(request, experiment)

        monkeypatch.setattr(access, right.__name__, asked)
    client = client_for(make_user(is_superuser=True))
    for name in ("dashboard", "dashboard_live", "quality", "method", "export", "comparisons"):
        assert ask(client, name, experiment.pk).status_code == 200
    assert asked_there
    assert not any(asked_there)


def test_nobody_judges_there(replica, annotator, client_for):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    client = client_for(annotator)
    with CaptureQueriesContext(replica) as there:
        assert client.get(reverse("pair", args=[experiment.pk])).status_code == 200
        token = lease(experiment, annotator).token
        form = {"token": token, "choice": "left"}
        url = reverse("judge", args=[experiment.pk])
        assert client.post(url, form, headers={"HX-Request": "true"}).status_code == 200
    assert len(there) == 0


def test_a_replica_of_sqlite_stops_the_start():
    with pytest.raises(ImproperlyConfigured, match="DATABASE_REPLICA_URL has to be like"):
        settings_with(DATABASE_URL="sqlite:///x", DATABASE_REPLICA_URL="postgres://u@h/d")


@pytest.mark.parametrize("pooled", [True, False])
def test_a_replica_behind_pgbouncer_is_known_to_be(pooled):
    databases = settings_with(
        DATABASE_URL="postgres://u@h/d", DATABASE_REPLICA_URL="postgres://u@r/d", PGBOUNCER=str(pooled)
    )["DATABASES"]
    assert databases["replica"]["DISABLE_SERVER_SIDE_CURSORS"] is pooled
    assert databases["default"]["DISABLE_SERVER_SIDE_CURSORS"] is pooled


def test_compiled_reads_of_pages_are_read_there_and_others_are_not(replica, annotator):
    experiment = make_experiment(ready=True, annotators=(annotator,))
    with CaptureQueriesContext(replica) as there, reading():
        assert counts.comparison_count(experiment.pk) == 0
        assert designs.latest_snapshot(experiment) is not None
        assert len(there) == 2
        assert people.experiment_to_label(annotator, experiment.pk) == experiment
        assert len(there) == 2
    with CaptureQueriesContext(replica) as there:
        assert counts.comparison_count(experiment.pk) == 0
        assert len(there) == 0
