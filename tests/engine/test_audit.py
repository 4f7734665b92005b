"""The audit log itself; that each service writes to it is tested with the service."""

from dataclasses import replace

import pytest

from engine.models import AuditEntry
from engine.selectors.specs import experiment_spec
from engine.services.audit import SENTENCES, record
from engine.services.drafts import replace_draft
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


def test_changing_a_draft_says_what_was_changed_and_by_whom(admin):
    experiment = make_experiment(running=False)
    spec = experiment_spec(experiment)
    replace_draft(experiment_id=experiment.pk, spec=spec, by=admin)
    assert not experiment.audit_entries.filter(action="edit").exists(), "nothing was"
    changed = replace(spec, name="Another", settings=spec.settings | {"delta": 0.2, "budget": 7})
    replace_draft(experiment_id=experiment.pk, spec=changed, by=admin)
    entry = experiment.audit_entries.get(action="edit")
    assert entry.by == admin
    assert entry.sentence == "Changed the description: name, delta, budget."


@pytest.mark.parametrize(("tokens", "said"), [(0, "0 API tokens"), (1, "1 API token"), (2, "2 API tokens")])
def test_a_number_stands_with_its_noun(tokens, said, admin):
    entry = record(experiment=None, by=admin, action=AuditEntry.Action.LOG_OUT, details={"tokens": tokens})
    assert entry.sentence == f"Ended all sessions and {said}."
    entry.refresh_from_db()
    assert entry.details == {"tokens": tokens}
