"""The audit log itself; that each service writes to it is tested with the service."""

from __future__ import annotations

import pytest

from engine.models import AuditEntry
from engine.services.audit import SENTENCES, record
from tests.factories import make_experiment

pytestmark = pytest.mark.django_db


def test_an_entry_says_who_what_and_when(admin):
    experiment = make_experiment(running=False)
    entry = record(
        experiment=experiment,
        by=admin,
        action=AuditEntry.Action.VOID,
        details={"count": 2, "reason": "Robots.", "judgments": [1, 2]},
    )
    entry.refresh_from_db()
    assert entry.sentence == "Voided judgments, 2 in all: Robots."
    assert entry.details["judgments"] == [1, 2]
    assert (entry.experiment, entry.by) == (experiment, admin)


def test_every_action_has_a_sentence():
    assert set(SENTENCES) == set(AuditEntry.Action)


def test_a_detail_that_is_missing_is_an_error(admin):
    with pytest.raises(KeyError, match="count"):
        record(experiment=None, by=admin, action=AuditEntry.Action.VOID, details={"reason": "Robots."})


def test_braces_in_what_people_wrote_stay_what_they_are(admin):
    entry = record(
        experiment=None, by=admin, action=AuditEntry.Action.EXPORT, details={"what": "{by.password}"}
    )
    assert entry.sentence == "Exported {by.password}."
