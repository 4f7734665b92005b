"""A Redis server of one's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.network import Redis


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    server = Redis(tmp_path)
    server.start()
    yield server
    server.kill()
