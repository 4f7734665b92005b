"""The pages on which a superuser looks somebody up and forgets them, and one's own file."""

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.urls import reverse

from engine.models import AuditEntry, User
from tests.factories import click, make_user
from tests.markup import words

pytestmark = pytest.mark.django_db


@pytest.fixture
def page(admin, client_for):
    return client_for(admin)


def test_accounts_are_found_by_name(page, annotator):
    for n in range(3):
        make_user(f"bert{n}")
    everybody = words(page.get(reverse("persons")))
    assert all(name in everybody for name in ("ann", "bert0", "bert2", "admin"))
    some = words(page.get(reverse("persons"), {"q": "BERT1"}))
    assert "bert1" in some
    assert "bert2" not in some
    assert "No account has such a name." in words(page.get(reverse("persons"), {"q": "nobody"}))


def test_somebody_is_forgotten_once_their_name_is_typed(page, admin, experiment, annotator):
    click(experiment, annotator)
    url = reverse("person", args=[annotator.pk])
    assert "<dt>Judgments</dt><dd>1</dd>" in page.get(url).content.decode()
    refused = page.post(url, {"name": "anne"})
    assert refused.status_code == 400
    assert "This is not the user name of this account." in words(refused)
    assert User.objects.filter(username="ann").exists()
    done = page.post(url, {"name": "ann", "delete": "on"}, follow=True)
    assert "Forgotten: now former-annotator-1." in words(done)
    assert "Forgotten on" in words(page.get(url))
    assert AuditEntry.objects.get(action="forget").by == admin


def test_the_file_of_a_person_is_logged(page, admin, annotator):
    response = page.post(reverse("data_of_person", args=[annotator.pk]))
    assert response["Content-Disposition"] == 'attachment; filename="ann.json"'
    assert response.json()["account"]["username"] == "ann"
    entry = AuditEntry.objects.get()
    assert (entry.by, entry.text) == (admin, "Exported everything that is stored about ann.")


def test_ones_own_file_is_ones_own(experiment, annotator, stranger, client_for):
    click(experiment, annotator)
    mine = client_for(annotator).post(reverse("own_data")).json()
    assert mine["account"]["username"] == "ann"
    assert mine["judgments"] == []
    assert mine["answers_until_the_experiment_concludes"] == [{"experiment": "Which is best?", "answers": 1}]
    assert client_for(stranger).post(reverse("own_data")).json()["memberships"] == []
    link = f'action="{reverse("own_data")}"'
    assert link in client_for(annotator).get(reverse("account")).content.decode()


def test_ones_own_file_takes_no_look_at_sessions_of_others(annotator, stranger, client_for, monkeypatch):
    client_for(stranger)
    mine = client_for(annotator)
    UserSession.objects.create(user=annotator, ip="127.0.0.1", session_key=mine.session.session_key)
    monkeypatch.setattr(Session, "get_decoded", lambda _: pytest.fail("A session was read."))
    assert len(mine.post(reverse("own_data")).json()["sessions"]) == 1
