"""One world for all tests of a module; every request is rolled back."""

import logging
from collections.abc import Iterator

import pytest
from django.core.cache import cache
from django.db import transaction
from django.test import override_settings

from tests.authorisation.world import World


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: object) -> Iterator[World]:
    # Thousands of refusals on purpose: a line in the log for each would take longer than the refusal.
    logging.disable(logging.ERROR)
    with (
        django_db_blocker.unblock(),
        override_settings(API_REQUESTS_PER_MINUTE=10**6, ACCOUNT_RATE_LIMITS=False),
        transaction.atomic(),
    ):
        cache.clear()
        yield World()
        transaction.set_rollback(True)
    logging.disable(logging.NOTSET)
