"""Many files of one table."""

from __future__ import annotations

import io
import subprocess

import pytest

from engine.importing.items import read_tasks
from engine.importing.rows import ImportingError
from engine.importing.sources import Source, source_of
from engine.importing.warnings import warnings_of_tasks
from tests.engine.test_sources import DATA_SET, MOST, archive, shard, told


def named(name: str, data: bytes) -> Source:
    return source_of([(name, io.BytesIO(data))], MOST)


def test_all_shards_of_parquet_are_looked_at_in_one_process(monkeypatch):
    runs = []
    run = subprocess.run
    monkeypatch.setattr(
        subprocess, "run", lambda *args, **options: runs.append(args) or run(*args, **options)
    )
    given = named("set.zip", archive(DATA_SET))
    assert [question for question, *_ in told(given)] == ["How many?", "And how old?"]
    warnings_of_tasks(read_tasks(given), given)
    assert len(runs) == 1


def test_the_shard_that_would_end_the_process_is_named(monkeypatch):
    program = "import os; print(flush=True); os.abort()"
    monkeypatch.setattr("engine.importing.parquet._READ_IT_ALL", program)
    with pytest.raises(
        ImportingError, match=r"^data/train-00001-of-00002.parquet: The Parquet file is damaged"
    ):
        read_tasks(named("set.zip", archive(DATA_SET)))


def test_a_shard_that_cannot_be_read_says_why_itself():
    parts = [("good.parquet", io.BytesIO(shard({"task": "One?"}))), ("bad.parquet", io.BytesIO(b"PAR1" * 9))]
    with pytest.raises(ImportingError, match=r"^bad.parquet: The Parquet file cannot be read"):
        read_tasks(source_of(parts, MOST))
