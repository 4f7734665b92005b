"""The broker that needs no server: kombu's file broker, with messages that appear whole or not at all."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

from kombu.transport import filesystem
from kombu.utils.json import dumps


class Channel(filesystem.Channel):
    """Writes each message under another name and then renames it.

    kombu (5.7) opens the file under its final name and fills it afterwards, so that a consumer now and then
    takes an empty message and its worker ends with a JSON error.
    """

    # kombu names the second argument in two ways.
    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override]
        # Consumers take the first name in sorted order and tell queues apart by what follows the first dot.
        message = Path(self.data_folder_out, f"{time.time_ns():020}_{uuid.uuid4()}.{queue}.msg")
        partial = message.with_suffix(".partial")
        partial.write_text(dumps(payload))
        partial.rename(message)


class Transport(filesystem.Transport):
    """``CELERY_BROKER_TRANSPORT`` of the embedded setup."""

    Channel = Channel
