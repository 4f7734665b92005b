"""The broker that needs no server: kombu's file broker, with messages that appear whole or not at all."""

import time
import uuid
from pathlib import Path
from typing import Any

from kombu.transport import filesystem
from kombu.utils.json import dumps


class Channel(filesystem.Channel):
    """Writes each file under another name and then renames it.

    kombu (5.7) opens the file under its final name and fills it afterwards. So a consumer now and then takes
    an empty message, or a worker that starts beside others reads an empty table of queues. Either ends with a
    JSON error.
    """

    # kombu names the second argument in two ways.
    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override]
        # Consumers take the first name in sorted order and tell queues apart by what follows the first dot.
        message = Path(self.data_folder_out, f"{time.time_ns():020}_{uuid.uuid4()}.{queue}.msg")
        _write(message, payload)

    def _queue_bind(
        self, exchange: str, routing_key: str | None, pattern: str | None, queue: str | None
    ) -> None:
        table = self.control_folder / f"{exchange}.exchange"
        self.control_folder.mkdir(exist_ok=True)
        with table.with_suffix(".lock").open("w") as one_at_a_time:
            filesystem.lock(one_at_a_time, filesystem.LOCK_EX)  # type: ignore[attr-defined]
            queues = self.get_table(exchange)
            bound = filesystem.exchange_queue_t(routing_key or "", pattern or "", queue or "")
            if bound not in queues:
                _write(table, [bound, *queues])


def _write(file: Path, content: Any) -> None:
    partial = file.with_suffix(".partial")
    partial.write_text(dumps(content))
    partial.replace(file)


class Transport(filesystem.Transport):
    """``CELERY_BROKER_TRANSPORT`` of the embedded setup."""

    Channel = Channel
