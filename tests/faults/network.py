"""A network between the processes and their servers, and a server, to be broken at will."""

import contextlib
import socket
import subprocess
import threading
from pathlib import Path

from tests.workers import free_port, wait_until


class Proxy:
    """Carries every connection to a server, until it is cut."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self.port = free_port()
        self._ends: list[socket.socket] = []
        self._door: socket.socket | None = None
        self._flows = threading.Event()
        self._flows.set()

    def open(self) -> None:
        """Take connections."""
        door = self._door = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._take, args=(door,), daemon=True).start()

    def hang(self) -> None:
        """Carry nothing more, and keep every connection, as with a server that is stopped by SIGSTOP."""
        self._flows.clear()

    def go_on(self) -> None:
        """Carry what waits, and everything after it."""
        self._flows.set()

    def cut(self) -> None:
        """Break off every connection, and refuse new ones."""
        assert self._door is not None
        # A thread that waits in accept() holds the port until it is woken.
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._ends.clear()

    def _take(self, door: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = door.accept()
                try:
                    server = socket.create_connection(self._server)
                except OSError:
                    client.close()
                    continue
                self._ends += [client, server]
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65_536):
                self._flows.wait()
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)


class Redis:
    """A server of one's own, which keeps nothing when it ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""],
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )
        wait_until(lambda: self.command("PING") == b"+PONG\r\n", 30, "Redis")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def command(self, words: str) -> bytes:
        """The server's reply; empty if it cannot be reached."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(f"{words}\r\n".encode())
                return connection.recv(1000)
        except OSError:
            return b""
