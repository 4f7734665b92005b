"""The file broker under a reader that looks all the time."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from kombu import Connection
from kombu.transport.virtual.base import BrokerState, Empty

from llmpo_site.broker import Transport


@pytest.fixture(autouse=True)
def nothing_declared_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """kombu remembers declared queues per process, not per folder, and does not declare them again."""
    monkeypatch.setattr(Transport, "global_state", BrokerState())


def connect(folder: Path) -> Connection:
    messages, control = folder / "messages", folder / "control"
    for each in (messages, control):
        each.mkdir(exist_ok=True)
    options = {
        "data_folder_in": str(messages),
        "data_folder_out": str(messages),
        "control_folder": str(control),
    }
    return Connection("filesystem://", transport="llmpo_site.broker:Transport", transport_options=options)


def send(folder: Path, numbers: range) -> None:
    with connect(folder) as connection, connection.SimpleQueue("wake") as queue:
        for number in numbers:
            queue.put({"number": number})


def receive(folder: Path, expected: int) -> list[int]:
    received = []
    with connect(folder) as connection, connection.SimpleQueue("wake"):
        channel = connection.default_channel
        while len(received) < expected:
            try:
                message = channel._get("wake")
            except Empty:
                continue
            received.append(channel.decode_body(message["body"], message["properties"].get("body_encoding")))
    return received


def test_every_message_arrives_whole_and_once_while_it_is_being_written(tmp_path: Path):
    with connect(tmp_path) as connection:
        connection.SimpleQueue("wake").close()  # declares the queue before anybody sends
    with ThreadPoolExecutor() as pool:
        reader = pool.submit(receive, tmp_path, 1000)
        writers = [pool.submit(send, tmp_path, range(start, start + 500)) for start in (0, 500)]
        for writer in writers:
            writer.result(timeout=60)
        messages = reader.result(timeout=60)
    assert sorted(json.loads(message)["number"] for message in messages) == list(range(1000))


def test_queues_do_not_mix_and_messages_keep_their_order(tmp_path: Path):
    with connect(tmp_path) as connection:
        first, second = connection.SimpleQueue("control"), connection.SimpleQueue("control.more")
        for number in range(5):
            first.put({"number": number})
            second.put({"number": number + 100})
        assert [first.get(timeout=60).payload["number"] for _ in range(5)] == [0, 1, 2, 3, 4]
        assert [second.get(timeout=60).payload["number"] for _ in range(5)] == [100, 101, 102, 103, 104]


def test_workers_that_start_at_once_each_find_and_leave_a_whole_table_of_queues(tmp_path: Path):
    workers, exchanges = range(8), [f"exchange-{number}" for number in range(100)]
    together = Barrier(len(workers), timeout=60)

    def start(worker: int) -> None:
        with connect(tmp_path) as connection:
            channel = connection.default_channel
            for exchange in exchanges:
                together.wait()
                channel._queue_bind(exchange, "key", "", f"queue-of-{worker}")
                assert channel.get_table(exchange)

    with ThreadPoolExecutor(len(workers)) as pool:
        for started in [pool.submit(start, worker) for worker in workers]:
            started.result(timeout=60)
    with connect(tmp_path) as connection:
        for exchange in exchanges:
            bound = connection.default_channel.get_table(exchange)
            assert {each.queue for each in bound} == {f"queue-of-{worker}" for worker in workers}
