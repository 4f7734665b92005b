"""Fixtures that several folders of tests share."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from pytest_django import Settings

from tests.factories import make_user


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of row locks need a database that has them; the PostgreSQL job of CI runs them."""
    if "postgresql" in settings.DATABASES["default"]["ENGINE"]:
        return
    for item in items:
        if item.get_closest_marker("postgres"):
            item.add_marker(pytest.mark.skip(reason="needs PostgreSQL: set DATABASE_URL"))


@pytest.fixture(autouse=True)
def fast_passwords(settings: Settings) -> None:
    """Hashing that takes a tenth of a second on purpose is most of the time of a test that makes users."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def annotator(db: None) -> User:
    return make_user("ann")


@pytest.fixture
def admin(db: None) -> User:
    return make_user("admin", is_staff=True, is_superuser=True)
