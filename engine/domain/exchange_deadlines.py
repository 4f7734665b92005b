"""Deadlines of whole exchanges with another server, and the addresses to which secrets may go."""

import socket
import threading
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlsplit


class Deadline:
    """Closes the connections of an exchange that takes longer than ``seconds`` as a whole.

    The timeouts of an HTTP client begin anew with every byte. Pass :meth:`trace` to httpx2.
    """

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._connections: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._close)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        for connection in self._connections:
            connection.close()

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """Note a connection when the HTTP client has made it. TLS takes the socket over, so keep another
        handle.
        """
        if event == "connection.connect_tcp.complete":
            self._connections.append(info["return_value"].get_extra_info("socket").dup())
            if self.passed:
                self._close()

    def _close(self) -> None:
        self.passed = True
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def may_carry_secrets(url: str) -> bool:
    """True if nobody on the way can read or change the request: HTTPS, or this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in {"localhost", "127.0.0.1", "::1"}
