"""The embedded backend keeps the contract of all backends."""

import pytest

from engine.generation.embedded import EmbeddedBackend
from tests.generation.contract import BackendContract


@pytest.fixture(scope="module")
def backend() -> EmbeddedBackend:
    return EmbeddedBackend()


class TestEmbedded(BackendContract):
    pass
