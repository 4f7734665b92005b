"""An experiment with one person in every role, and the messages that the pages send."""

from collections.abc import Callable, Iterator

import pytest
from django.test import Client

from engine import tasks
from engine.models import Experiment, User
from tests.accounts import logged_in
from tests.factories import add_member, make_experiment, make_user
from tests.oidc_provider import Provider, a_provider, settings_for

ClientFor = Callable[[User], Client]


@pytest.fixture
def client_for() -> ClientFor:
    """`tests.accounts.logged_in`."""
    return logged_in


@pytest.fixture
def experiment(annotator: User) -> Experiment:
    """Running, with pairs ready for its annotator."""
    return make_experiment(name="Which is best?", ready=True, annotators=(annotator,))


@pytest.fixture
def viewer(experiment: Experiment) -> User:
    return _member(experiment, "viewer")


@pytest.fixture
def editor(experiment: Experiment) -> User:
    return _member(experiment, "editor")


@pytest.fixture
def owner(experiment: Experiment) -> User:
    return _member(experiment, "owner")


@pytest.fixture
def stranger(db: None) -> User:
    return make_user("stranger")


def _member(experiment: Experiment, role: str) -> User:
    user = make_user(role)
    add_member(experiment, user, role)
    return user


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """The experiments for which the planner was called, each as it would go to the broker."""
    messages: list[tuple[object, ...]] = []
    monkeypatch.setattr(tasks.advance, "apply_async", lambda args=(), **options: messages.append(tuple(args)))
    return messages


@pytest.fixture
def provider(settings) -> Iterator[Provider]:
    """The organisation's provider, as the environment variables OIDC_* set it."""
    with a_provider() as provider:
        for name, value in settings_for(provider).items():
            setattr(settings, name, value)
        yield provider
