"""The client on the network: where it goes, how long it waits, and what it never tells."""

import asyncio
import base64
import html
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from engine.domain.addresses import check_connection
from engine.domain.conversations import chat
from engine.domain.profiles import Provider
from engine.generation.base import Fault, Finish, GenerationFailure, GenerationRequest, GenerationResult
from engine.generation.remote import network
from engine.generation.remote.client import Client
from engine.generation.remote.errors import Answer, host_of
from engine.generation.remote.replies import read
from engine.generation.remote.scrubbing import scrub, scrub_answer
from tests.generation.chat_server import ChatServer, completion, serve
from tests.servers import Asker, asking, serving, target_at

KEY = "sk-proj-Ab3dEf6hIj9kLm2nOp5q"
PUBLIC = "93.184.216.34"


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def ask() -> Iterator[Asker]:
    with asking() as asker:
        yield asker


@pytest.fixture
def private(settings: Any) -> None:
    settings.ALLOW_PRIVATE_CONNECTIONS = True


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Names and their addresses; every connection to a public one leads to this machine."""
    known: dict[str, list[str]] = {}
    ask_system = socket.getaddrinfo

    def look_up(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name not in known:
            return ask_system(host, port, *more, **named)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in known[name]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known


class TestWhereItGoes:
    def test_a_private_address_is_refused_and_nothing_is_sent(self, server, ask):
        before = len(server.asked)
        for address in (server.url, server.url.replace("127.0.0.1", "localhost"), "https://127.0.0.1/v1"):
            outcome = ask(target_at(address, "fine"))
            assert isinstance(outcome, GenerationFailure)
            assert outcome.fault == Fault.ACCESS
            assert "not a public address" in outcome.reason or "is not allowed" in outcome.reason
        assert len(server.asked) == before

    def test_a_name_with_one_private_address_is_refused(self, ask, names):
        names["two.example"] = [PUBLIC, "127.0.0.1"]
        outcome = ask(target_at("https://two.example/v1", "fine"))
        assert isinstance(outcome, GenerationFailure)
        assert outcome.fault == Fault.ACCESS
        assert "two.example leads to an address that is not public" in outcome.reason
        assert "127.0.0.1" not in outcome.reason

    def test_the_address_that_was_checked_is_the_one_connected_to(self, ask, names, monkeypatch):
        connected = []

        async def connect(self: Any, address: str, port: int, timeout: float | None) -> Any:
            connected.append((address, port))
            names["rebound.example"] = ["127.0.0.1"]
            raise OSError

        monkeypatch.setattr(network.PinnedBackend, "_connect", connect)
        names["rebound.example"] = [PUBLIC]
        outcome = ask(target_at("https://rebound.example/v1", "fine"))
        assert outcome == GenerationFailure(7, "rebound.example cannot be reached.", Fault.BUSY)
        assert connected == [(PUBLIC, 443)]

    def test_the_next_address_is_tried_where_the_first_does_not_answer(self, server, ask, names, private):
        names["two.example"] = ["127.0.0.9", "127.0.0.1"]
        url = server.url.replace("127.0.0.1", "two.example")
        assert isinstance(ask(target_at(url, "fine")), GenerationResult)

    def test_names_that_hang_keep_no_other_waiting(self, server, private, monkeypatch):
        found, go_on = network.resolve, threading.Event()

        def look_up(host: str, *rest: Any) -> list[str]:
            if host.startswith("slow"):
                go_on.wait(20)
                raise OSError
            return found(host, *rest)

        async def both(client: Client) -> Any:
            asked = GenerationRequest(7, chat("Hi"))
            slow = [target_at(f"http://slow{n}.example/v1", "fine") for n in range(50)]
            waiting = [asyncio.create_task(client.ask(each, asked)) for each in slow]
            await asyncio.sleep(0.1)
            try:
                return await client.ask(target_at(server.url, "fine"), asked)
            finally:
                go_on.set()
                await asyncio.gather(*waiting)

        monkeypatch.setattr(network, "resolve", look_up)
        with asking() as asked:
            assert isinstance(asked.runner.run(both(asked.client)), GenerationResult)

    def test_no_redirect_is_followed(self, server, ask, private):
        before = len(server.asked)
        outcome = ask(target_at(server.url, "redirect"))
        assert isinstance(outcome, GenerationFailure)
        assert (outcome.fault, len(server.asked)) == (Fault.ACCESS, before + 1)

    def test_proxies_of_the_environment_do_not_count(self, server, private, monkeypatch):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        with asking() as asked:
            assert isinstance(asked(target_at(server.url, "fine")), GenerationResult)

    def test_the_operators_proxy_is_asked_with_its_password(self, server, private, settings):
        settings.CONNECTION_PROXY = server.url.replace("http://", "http://me:pa%20ss@").removesuffix("/v1")
        with asking() as asked:
            outcome = asked(target_at("http://models.example/v1", "fine"))
            assert isinstance(outcome, GenerationResult)
            assert server.paths[-1] == "http://models.example/v1/chat/completions"
            credentials = server.headers[-1]["proxy-authorization"].removeprefix("Basic ")
            assert base64.b64decode(credentials) == b"me:pa ss"
            settings.ALLOW_PRIVATE_CONNECTIONS = False
            inner = asked(target_at("http://localhost/v1", "fine"))
            assert isinstance(inner, GenerationFailure)
            assert inner.fault == Fault.ACCESS

    def test_a_server_of_our_own_backends_is_asked_wherever_it_is(self, server, ask):
        own = replace(target_at(server.url, "fine", key=KEY), connection_id=0)
        assert isinstance(ask(own), GenerationResult)

    @pytest.mark.parametrize(
        ("url", "has_key", "message"),
        [
            ("https://api.example/v1", True, ""),
            ("http://api.example/v1", False, ""),
            ("http://api.example/v1", True, "A key is sent to https://"),
            ("https://api.example:8443/v1", True, "Port 8443 is not allowed"),
            ("https://api.example:22/v1", False, "Port 22 is not allowed"),
            ("https://me:pw@api.example/v1", True, "Remove the name and the password"),
            ("https://api.example/v1?key=x", True, "Remove the query"),
            ("https://api.example/v1#x", True, "Remove the query"),
            ("https://api.example/v 1", True, "without spaces"),
            ("https://169.254.169.254/latest", False, "not a public address"),
            ("https://[::ffff:10.0.0.1]/v1", False, "not a public address"),
            ("file:///etc/passwd", False, "starts with https://"),
        ],
    )
    def test_addresses_of_connections(self, url, has_key, message):
        if not message:
            assert check_connection(url, has_key=has_key).hostname
            return
        with pytest.raises(ValueError, match=message):
            check_connection(url, has_key=has_key)

    def test_the_operator_may_name_hosts_and_ports(self, settings):
        settings.CONNECTION_HOSTS = ["api.example", "Own.example:8443"]
        check_connection("https://api.example/v1", has_key=True)
        check_connection("https://own.example:8443/v1", has_key=True)
        for refused in ("https://other.example/v1", "https://own.example/v1", "https://api.example:8443/v1"):
            with pytest.raises(ValueError, match="CONNECTION_HOSTS"):
                check_connection(refused, has_key=True)


class TestKeys:
    @pytest.mark.parametrize(
        ("provider", "header", "value"),
        [
            (Provider.COMPATIBLE, "authorization", f"Bearer {KEY}"),
            (Provider.AZURE, "api-key", KEY),
            (Provider.ANTHROPIC, "x-api-key", KEY),
            (Provider.BEDROCK, "authorization", f"Bearer {KEY}"),
        ],
    )
    def test_each_vendor_has_its_header(self, server, ask, private, provider, header, value):
        ask(target_at(server.url, "fine", provider, key=KEY))
        assert server.headers[-1][header] == value

    def test_without_a_key_no_header_is_sent(self, server, ask, private):
        ask(target_at(server.url, "fine"))
        assert not {"authorization", "api-key", "x-api-key"} & server.headers[-1].keys()

    @pytest.mark.parametrize("status", [200, 400, 401, 429, 500])
    @pytest.mark.parametrize("provider", [Provider.COMPATIBLE, Provider.AZURE])
    def test_a_server_that_repeats_everything_tells_nothing(
        self, server, ask, private, provider, status, caplog
    ):
        target = target_at(
            server.url, f"echo{status}", provider, key=KEY, headers={"X-Secret": "t0p-s3cret-h3ader"}
        )
        with caplog.at_level(logging.DEBUG):
            outcome = ask(target)
        told = repr(outcome)
        assert "No: " in told
        for form in encodings(KEY):
            size = 8 if status != 200 else 16
            for at in range(len(form) - size + 1):
                assert form[at : at + size].lower() not in told.lower()
        if status != 200:
            assert "t0p-s3cret" not in told
            assert "http://…@host/?key=…" in told
        assert KEY not in caplog.text

    @pytest.mark.parametrize(
        ("words", "cut"),
        [
            ("Incorrect API key provided: sk-proj-Ab3d****Op5q.", "Incorrect API key provided: …****Op5q."),
            ("Bearer abcdefgh is wrong", "Bearer … is wrong"),
            ("see https://me:pw@host/x?api_key=12345&b=1", "see https://…@host/x?api_key=…&b=1"),
            ("The model does not exist", "The model does not exist"),
            ("a  b\n\nc", "a b c"),
        ],
    )
    def test_secrets_are_cut_and_words_stay(self, words, cut):
        assert scrub(words, target_at("https://host", "m", key=KEY)) == cut

    def test_a_short_key_is_cut_whole(self):
        target = target_at("https://host", "m", key="t1ny")
        assert scrub("your key T1NY or t1n", target) == "your key … or t1n"
        assert scrub_answer("your key t1ny or t1n", target) == "your key … or t1n"

    @pytest.mark.parametrize("key", ["t1/n", "a<\"b'&c", "0123456789-abcde", KEY])
    def test_a_key_is_cut_however_it_is_written(self, key):
        target = target_at("https://host", "m", key=key)
        base64s = [base64.b64encode(before + key.encode()) for before in (b"", b"a", b"ab")]
        written = [
            key, key.encode().hex(), key.encode().hex().upper(), quote(key, safe=""), json.dumps(key)[1:-1],
            json.dumps(key)[1:-1].replace("/", "\\/"), html.escape(key), *map(bytes.decode, base64s),
            *(each.decode().rstrip("=") for each in base64s),
            *(each.decode().replace("+", "-").replace("/", "_") for each in base64s),
            *("".join(code.format(ord(each)) for each in key) for code in ("%{:02x}", "\\u{:04X}")),
        ]  # fmt: skip
        for form in written:
            for cut in (scrub, scrub_answer):
                left = cut(f"It is {form}, he said.", target)
                # The first and the last letter of base64 also hold bits of their neighbours.
                assert form[1:-1] not in left
                assert (left[:6], left[-10:]) == ("It is ", ", he said.")

    def test_hostile_words_are_cut_in_no_time(self):
        target = target_at("https://host", "m", key=KEY)
        started = time.monotonic()
        for words in ("a" * 10**6, "a:" * 10**5, "//" * 10**5, "?key=" * 10**5, KEY * 10**4, "sk-" * 10**5):
            assert len(scrub(words, target)) <= 600
        assert time.monotonic() - started < 5

    @pytest.mark.parametrize("key", ["with\nnewline", "ümlaut", "nul\x00"])
    def test_a_key_that_cannot_be_sent_says_so(self, server, ask, private, key):
        outcome = ask(target_at(server.url, "fine", key=key))
        assert outcome == GenerationFailure(
            7, "The key or a header for 127.0.0.1 holds characters that cannot be sent.", Fault.ACCESS
        )


def encodings(key: str) -> Iterator[str]:
    yield key
    yield base64.b64encode(key.encode()).decode().rstrip("=")[:-1]
    for prefix, offset in (("Bearer ", 10), ("user:", 8)):
        yield base64.b64encode(f"{prefix}{key}".encode()).decode().rstrip("=")[offset:-1]


class TestTime:
    def test_an_answer_that_takes_too_long_is_the_servers_fault(self, server, ask, private):
        outcome = ask(target_at(server.url, "slow", answer_seconds=0.2))
        assert outcome == GenerationFailure(7, "No answer from 127.0.0.1 within 0.2 s.", Fault.SERVER)

    def test_a_slow_answer_is_waited_for_and_others_overtake_it(self, server, private):
        async def both() -> tuple[float, float]:
            async def timed(model: str) -> float:
                request = GenerationRequest(1, chat("Hi"))
                assert isinstance(await client.ask(target_at(server.url, model), request), GenerationResult)
                return time.monotonic() - started

            async with Client() as client:
                started = time.monotonic()
                slow, fast = await asyncio.gather(timed("slow"), timed("fine"))
                return slow, fast

        slow, fast = asyncio.run(both())
        assert fast < slow >= 1.5

    def test_drops_for_ever_end_with_the_limit(self, private, ask):
        def drip(connection: socket.socket) -> None:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            try:
                while True:
                    connection.sendall(b" ")
                    time.sleep(0.05)
            except OSError:
                connection.close()

        with socket.create_server(("127.0.0.1", 0)) as listener:
            threading.Thread(target=lambda: drip(listener.accept()[0]), daemon=True).start()
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
            outcome = ask(target_at(url, "m", answer_seconds=0.5))
        assert isinstance(outcome, GenerationFailure)
        assert (outcome.fault, "within 0.5 s" in outcome.reason) == (Fault.SERVER, True)

    def test_connecting_has_a_limit_of_its_own(self, private, ask, monkeypatch):
        monkeypatch.setattr("engine.generation.remote.client._CONNECT_SECONDS", 0.3)
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            port = full.getsockname()[1]
            waiting = []
            for _ in range(3):
                each = socket.socket()
                each.setblocking(False)
                each.connect_ex(("127.0.0.1", port))
                waiting.append(each)
            outcome = ask(target_at(f"http://127.0.0.1:{port}/v1", "m", answer_seconds=60))
            for each in waiting:
                each.close()
        assert outcome == GenerationFailure(7, "127.0.0.1 cannot be reached.", Fault.BUSY)

    def test_nobody_listens_and_nobody_has_the_name(self, private, ask):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        closed = ask(target_at(f"http://127.0.0.1:{port}/v1", "m"))
        assert closed == GenerationFailure(7, "127.0.0.1 cannot be reached.", Fault.BUSY)
        unknown = ask(target_at("http://nobody.invalid/v1", "m"))
        assert unknown == GenerationFailure(7, "nobody.invalid is not found.", Fault.BUSY)

    def test_a_request_that_is_given_up_is_cancelled(self, server, private):
        async def give_up() -> None:
            async with Client() as client:
                asked = asyncio.create_task(
                    client.ask(target_at(server.url, "slow"), GenerationRequest(1, chat("Hi")))
                )
                await asyncio.sleep(0.2)
                asked.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asked

        asyncio.run(give_up())


def test_an_error_of_ours_is_told_without_its_words(server, ask, private, monkeypatch, caplog):
    def fail(*_: Any) -> None:
        raise RuntimeError(KEY)

    monkeypatch.setattr("engine.generation.remote.client.read", fail)
    outcome = ask(target_at(server.url, "fine", key=KEY))
    assert outcome == GenerationFailure(7, "Asking 127.0.0.1 failed (RuntimeError).", Fault.WORKER)
    assert KEY not in caplog.text


def test_connections_are_kept_open(private):
    with serve(lambda asked: completion("fine")) as server, asking() as asked:
        connections = set()
        handle = server.handle

        def counted(handler: BaseHTTPRequestHandler) -> None:
            connections.add(handler.client_address)
            handle(handler)

        server.handle = counted  # type: ignore[method-assign]
        for _ in range(3):
            assert isinstance(asked(target_at(server.url, "m")), GenerationResult)
    assert len(connections) == 1


def test_a_certificate_counts_with_ssl_cert_file_alone(private, monkeypatch, tmp_path):
    certificate = own_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = b'{"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.socket = context.wrap_socket(httpd.socket, server_side=True)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    target = target_at(f"https://localhost:{httpd.server_address[1]}/v1", "m", key=KEY)
    try:
        with asking() as asked:
            refused = asked(target)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with asking() as asked:
            trusted = asked(target)
    finally:
        httpd.shutdown()
        httpd.server_close()
    assert isinstance(refused, GenerationFailure)
    assert (refused.fault, "SSL_CERT_FILE" in refused.reason) == (Fault.ACCESS, True)
    assert isinstance(trusted, GenerationResult)
    assert (trusted.text, trusted.finish_reason) == ("fine", Finish.STOP)


def own_certificate(folder: Path) -> Path:
    """A certificate for localhost and its key, in one file."""
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415

    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 17, now, now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "own.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return path


def test_a_target_without_a_host_has_a_name():
    assert host_of(target_at("", "m")) == "The server"


@pytest.mark.parametrize(
    "text",
    [
        "<think></think>" * 20_000,
        "<think>" * 40_000,
        "</think>" * 40_000,
        "<|channel|>a" * 30_000,
        "x" + "<|im_end|>" * 30_000,
        "<|" * 100_000,
        "analysis" * 30_000,
        KEY * 10_000,
    ],
    ids=lambda text: text[:16],
)
def test_a_hostile_answer_keeps_the_others_waiting_for_no_time(text):
    request = GenerationRequest(7, chat("Hi"))
    body = completion(text).body
    for status, answer in ((200, body), (400, {"error": {"message": text}})):
        started = time.monotonic()
        read(
            target_at("https://host/v1", "m", key=KEY),
            request,
            Answer(status, {}, json.dumps(answer).encode()),
            1.0,
        )
        assert time.monotonic() - started < 3
