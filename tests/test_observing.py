"""Traces and errors, collected by a real OTLP endpoint and by Sentry's own client."""

import gzip
import os
import subprocess
import sys
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from llmpo_site import traces_and_errors

SECRET = "s3cr3t" * 5
# One request to a secret link, and its errors, in a process of its own: instrumenting cannot be undone.
REQUEST = f"""
import logging
from llmpo_site.wsgi import application
from django.test import Client
client = Client(raise_request_exception=False, headers={{"user-agent": "Ann's browser", "host": "localhost"}})
print(client.get("/join/{SECRET}/?email=ann@example.org", REMOTE_ADDR="192.0.2.7").status_code)
logging.getLogger("engine").error("Refused: /join/{SECRET}/")
"""


class Collector(BaseHTTPRequestHandler):
    """Takes what is sent to it."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        packed = self.headers.get("Content-Encoding") == "gzip"
        self.server.received[self.path] += gzip.decompress(body) if packed else body
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.mark.slow
def test_traces_and_errors_arrive_without_people_and_secrets(tmp_path):
    pytest.importorskip("opentelemetry.sdk", reason="pip install -r requirements-dev.txt")
    server = HTTPServer(("127.0.0.1", 0), Collector)
    server.received = defaultdict(bytes)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    port = server.server_address[1]
    done = subprocess.run(
        [sys.executable, "-c", REQUEST],
        cwd=settings.BASE_DIR,
        env={
            **os.environ,
            "DATABASE_URL": f"sqlite:///{tmp_path}/none.sqlite3",
            "TRACES_ENDPOINT": f"http://127.0.0.1:{port}/v1/traces",
            "SENTRY_DSN": f"http://key@127.0.0.1:{port}/1",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    server.shutdown()
    server.server_close()
    assert done.returncode == 0, done.stderr
    traces, errors = server.received["/v1/traces"], server.received["/api/1/envelope/"]
    assert b"llm-po-web" in traces
    assert b"join/<str:token>/" in traces
    assert b"Refused: /join/" in errors
    for personal in (SECRET, "Ann's browser", "192.0.2.7", "ann@example.org"):
        assert personal.encode() not in traces
        assert personal.encode() not in errors


def test_what_is_configured_but_not_installed_stops_the_start(settings, monkeypatch):
    settings.SENTRY_DSN = "https://key@sentry.example.org/1"
    monkeypatch.setitem(sys.modules, "sentry_sdk", None)
    with pytest.raises(ImproperlyConfigured, match=r"sentry_sdk: pip install -r requirements-observe\.txt"):
        traces_and_errors.start("web")
