"""The same file imported by several workers at once, in real threads."""

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from engine.models import Experiment, Judgment, Upload
from engine.services.imports import run_import
from tests.concurrency import at_once
from tests.factories import make_user
from tests.tables import run_imports

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

VOTES = b"task,policy_a,policy_b,winner\nT,P,Q,a\nT,P,Q,b\n"


def test_a_file_that_four_workers_take_at_once_is_imported_once():
    client = Client()
    client.force_login(make_user("ann", is_superuser=True))
    client.post(reverse("import_votes"), {"name": "Mine", "votes": SimpleUploadedFile("v.csv", VOTES)})
    kept = Upload.objects.get()
    made = at_once([lambda: run_import(kept.pk)] * 4)
    assert sum(each is not None for each in made) == 1
    assert (Experiment.objects.count(), Judgment.objects.count()) == (1, 2)


def test_a_page_that_is_sent_four_times_at_once_counts_its_votes_once():
    user = make_user("ann", is_superuser=True)

    def send() -> None:
        client = Client()
        client.force_login(user)
        client.post(reverse("import_votes"), {"name": "Mine", "votes": SimpleUploadedFile("v.csv", VOTES)})

    at_once([send] * 4)
    run_imports()
    assert (Experiment.objects.count(), Judgment.objects.count()) == (1, 2)
    # A page that came after the first import was refused at once: its name is taken.
    *later, done = sorted(Upload.objects.values_list("state", flat=True))
    assert (set(later) <= {"asking"}, done) == (True, "done")
