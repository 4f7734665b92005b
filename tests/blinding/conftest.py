"""One session for each number of policies, which all attackers look at."""

from __future__ import annotations

import pytest
from django.db import transaction
from pytest_django import DjangoDbBlocker

from tests.blinding.session import Session, play


@pytest.fixture(scope="module", params=[2, 6], ids=["two policies", "six policies"])
def session(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Session:
    """Played once, in a transaction that leaves nothing behind."""
    with django_db_blocker.unblock(), transaction.atomic():
        played = play(request.param)
        transaction.set_rollback(True)
    return played
