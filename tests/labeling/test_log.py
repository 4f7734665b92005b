"""The log of an experiment, as its watchers read it."""

import pytest
from django.urls import reverse

from engine.models import AuditEntry
from engine.services.audit import record
from tests.markup import words

pytestmark = pytest.mark.django_db


def fill(experiment, n: int) -> None:
    for number in range(n):
        record(
            experiment=experiment,
            by=None,
            action=AuditEntry.Action.EXPORT,
            details={"what": f"file {number:03}"},
        )


def test_newest_first_with_who_did_it(experiment, owner, viewer, client_for):
    client_for(owner).post(reverse("change_state", args=[experiment.pk]), {"action": "pause"})
    text = words(client_for(viewer).get(reverse("log", args=[experiment.pk])))
    assert text.index("owner Paused.") < text.index("LLM-PO Started.") < text.index("Created the experiment.")


def test_a_long_log_has_pages_and_the_method_its_newest_five(experiment, viewer, client_for):
    fill(experiment, 120)
    client, url = client_for(viewer), reverse("log", args=[experiment.pk])
    first, second = words(client.get(url)), words(client.get(f"{url}?page=2"))
    assert "file 119" in first
    assert "file 019" not in first
    assert "file 019" in second
    method = words(client.get(reverse("method", args=[experiment.pk])))
    assert "file 115" in method
    assert "file 114" not in method


@pytest.mark.parametrize("page", ["0", "x", "99999", "-1"])
def test_a_page_that_there_is_not_is_the_nearest(page, experiment, viewer, client_for):
    url = reverse("log", args=[experiment.pk])
    assert client_for(viewer).get(f"{url}?page={page}").status_code == 200


def test_what_people_wrote_is_shown_as_text(experiment, viewer, client_for):
    record(
        experiment=experiment,
        by=None,
        action=AuditEntry.Action.EXPORT,
        details={"what": "<script>alert(1)</script>"},
    )
    page = client_for(viewer).get(reverse("log", args=[experiment.pk])).content.decode()
    assert "<script>alert" not in page
