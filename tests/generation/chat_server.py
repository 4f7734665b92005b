"""A real HTTP server that speaks as much of OpenAI's chat protocol as the tests need."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "small"


@dataclass
class Reply:
    """An answer of the server. ``body`` is sent unchanged if it is bytes.

    ``missing``: the connection ends so many bytes before the end that was announced.
    """

    body: dict[str, Any] | bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    missing: int = 0


def completion(text: str, **choice: Any) -> Reply:
    return Reply(
        {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": MODEL,
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": text},
                    **choice,
                }
            ],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        }
    )


def error(status: int, message: str, code: str | None = None, **headers: str) -> Reply:
    return Reply({"error": {"message": message, "type": "error", "code": code}}, status, headers)


class ChatServer:
    """Answers with what ``respond`` makes of each request's JSON, and remembers what it was asked."""

    def __init__(self, respond: Callable[[dict[str, Any]], Reply]) -> None:
        self.respond = respond
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.url = ""

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        asked = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            self.asked.append(asked)
            self.headers.append({name.lower(): value for name, value in handler.headers.items()})
            self.paths.append(handler.path)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            reply = self.respond(asked)
        finally:
            with self.lock:
                self.at_once -= 1
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Type", reply.content_type)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: len(body) - reply.missing])
        handler.close_connection = bool(reply.missing)


@contextmanager
def serve(respond: Callable[[dict[str, Any]], Reply]) -> Iterator[ChatServer]:
    """Run a :class:`ChatServer` on a free port of this machine."""
    chat = ChatServer(respond)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            try:
                chat.handle(self)
            except (BrokenPipeError, ConnectionResetError):
                # The client has given up, as some tests intend.
                self.close_connection = True

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    # A client may end a connection whose answer is too large.
    httpd.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    chat.url = f"http://127.0.0.1:{httpd.server_address[1]}/v1"
    try:
        yield chat
    finally:
        chat.closing.set()
        httpd.shutdown()
        httpd.server_close()
        thread.join()
