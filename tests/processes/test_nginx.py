"""The configurations that we ship in a real nginx: docs/nginx.conf in front of a real server, and the one of
compose.yaml and Kubernetes in front of a socket.
"""

import html
import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import httpx2
import pytest
from allauth.account.models import EmailAddress
from allauth.usersessions.models import UserSession
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.conf import global_settings
from django.conf import settings as django_settings
from django.utils import timezone

from engine.services.tokens import make_token
from labeling.local_processes import answers
from llmpo_client import Client
from tests.accounts import PASSWORD
from tests.factories import make_user
from tests.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider
from tests.workers import database_url, free_port, wait_until

pytestmark = pytest.mark.slow

EXAMPLE = Path(django_settings.BASE_DIR) / "docs" / "nginx.conf"
SHIPPED = Path(django_settings.BASE_DIR) / "packaging" / "kubernetes" / "nginx.conf"
# Debian puts it where users' PATH does not lead.
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = timezone.now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


def fill_in(example: str, values: dict[str, str]) -> str:
    """The example with its ports, files and the server's address changed, each of which it must name."""
    for pattern, value in values.items():
        example, n = re.subn(pattern, value, example)
        assert n == 1, f"The configuration names {pattern} {n} times."
    return example


@dataclass(frozen=True)
class Site:
    """nginx in front of the live server."""

    port: int
    plain_port: int
    certificate: Path
    access_log: Path

    def visit(self, address: str, *, referer: str) -> int:
        """Ask for an address, as if from another page; returns the status."""
        trust = ssl.create_default_context(cafile=str(self.certificate))
        with closing(
            http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=trust)
        ) as connection:
            connection.request("GET", address, headers={"Referer": referer})
            return connection.getresponse().status

    def log_in(self, password: str, *, source: str, forged: str | None = None) -> http.client.HTTPResponse:
        """Type a name and a password, from this address of the machine."""
        trust = ssl.create_default_context(cafile=str(self.certificate))
        with closing(
            http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=60, source_address=(source, 0), context=trust
            )
        ) as connection:
            headers = {"Origin": f"https://127.0.0.1:{self.port}"}
            if forged:
                headers |= {"X-Forwarded-For": forged, "X-Real-IP": forged, "Forwarded": f"for={forged}"}
            connection.request("GET", "/accounts/login/", headers=headers)
            page = connection.getresponse()
            token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.read().decode())
            cookie = page.headers["Set-Cookie"].split(";")[0]
            form = urlencode({"csrfmiddlewaretoken": token[1], "username": "ann", "password": password})
            headers |= {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
            connection.request("POST", "/accounts/login/", form, headers)
            answer = connection.getresponse()
            answer.read()
            return answer


@contextmanager
def running_nginx(configuration: Path, port: int) -> Iterator[None]:
    """nginx with this configuration, which listens on the port."""
    if NGINX is None:
        pytest.fail("No nginx found. Install nginx-light; .ci/run does.")
    folder = configuration.parent
    log = folder / "log"
    with log.open("wb") as errors:
        command = [NGINX, "-p", folder, "-c", configuration, "-g", "daemon off;"]
        nginx = subprocess.Popen(command, stderr=errors)

    def is_listening() -> bool:
        assert nginx.poll() is None, log.read_text()
        with closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(is_listening, 60, "nginx listens")
        yield
    finally:
        nginx.terminate()
        nginx.wait(timeout=60)


@pytest.fixture
def site(live_server, settings, tmp_path) -> Iterator[Site]:
    # The steps in the head of the example.
    settings.TRUSTED_PROXIES = [ip_network("127.0.0.1")]
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = settings.SECURE_SSL_REDIRECT = True
    settings.ACCOUNT_RATE_LIMITS = settings.ACCOUNT_RATE_LIMITS | {"login_failed": "3/15m/key"}
    port, plain_port = free_port(), free_port()
    certificate, key = write_certificate(tmp_path)
    example = fill_in(
        EXAMPLE.read_text(),
        {
            r"listen 80;": f"listen 127.0.0.1:{plain_port};",
            r"listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
            r"/etc/letsencrypt/live/label\.example\.org/fullchain\.pem": str(certificate),
            r"/etc/letsencrypt/live/label\.example\.org/privkey\.pem": str(key),
            r"/var/log/nginx/access\.log": str(tmp_path / "access.log"),
            r"proxy_pass http://127\.0\.0\.1:8000;": f"proxy_pass http://{urlsplit(live_server.url).netloc};",
        },
    )
    temporary = "".join(
        f"{kind}_temp_path {tmp_path}/{kind}; "
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(
        f"worker_processes 1; pid {tmp_path}/pid; error_log stderr;\n"
        f"events {{}}\nhttp {{ access_log off; {temporary}\n{example}\n}}\n"
    )
    with running_nginx(configuration, port):
        yield Site(port, plain_port, certificate, tmp_path / "access.log")


def test_two_clients_behind_nginx_are_told_apart_and_a_forged_header_is_not_believed(site):
    """With one address for all, the wrong passwords of 127.0.0.2 closed the name to 127.0.0.1 too."""
    user = make_user("ann")
    statuses = [site.log_in("wrong", source="127.0.0.2").status for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    assert site.log_in(PASSWORD, source="127.0.0.2", forged="127.0.0.7").status == 429
    assert site.log_in(PASSWORD, source="127.0.0.1", forged="127.0.0.2").status == 302
    assert [session.ip for session in UserSession.objects.filter(user=user)] == ["127.0.0.1"]


def test_behind_nginx_the_site_knows_that_it_is_encrypted(site):
    make_user("ann")
    cookies = site.log_in(PASSWORD, source="127.0.0.1").headers.get_all("Set-Cookie")
    assert [name for cookie in cookies if "; Secure" in cookie for name in cookie.split("=")[:1]] == [
        cookie.split("=")[0] for cookie in cookies
    ]
    with closing(http.client.HTTPConnection("127.0.0.1", site.plain_port, timeout=60)) as connection:
        connection.request("GET", "/accounts/login/")
        answer = connection.getresponse()
        assert answer.status == 301
        assert answer.headers["Location"].startswith("https://")


def test_the_access_log_of_nginx_has_every_request_and_no_secret_of_a_link(site):
    """A link to a new password stood there in full, and the page that a browser came from."""
    secret = "aVeryLongSecretThatLetsItsReaderIn0123456789"
    for address in (
        f"/join/{secret}/",
        f"/%6aoin/{secret}/",
        f"/report/{secret}/",
        f"/of/us/join/{secret}/",
        f"/accounts/password/reset/1-{secret}/",
        f"/accounts/email/confirm/{secret}/",
        "/experiments/1/report/share/",
        "/accounts/login/?next=/",
    ):
        # Nobody may hide a request by naming such a page as the one before.
        assert site.visit(address, referer=f"https://127.0.0.1/accounts/email/confirm/{secret}/") < 500
    wait_until(lambda: "/accounts/login/" in site.access_log.read_text(), 60, "nginx has written its log")
    said = site.access_log.read_text()
    assert secret not in said
    assert re.findall(r'"GET (\S+) HTTP/1.1" \d+ \d+ "-" "-"', said) == [
        "/join/...",
        "/join/...",
        "/report/...",
        "/of/us/join/...",
        "/accounts/password/reset/...",
        "/accounts/email/confirm/...",
        "/experiments/1/report/share/",
        "/accounts/login/?next=/",
    ]


def test_half_requests_and_more_than_one_persons_share_never_reach_the_web_server(tmp_path):
    port = free_port()
    with closing(socket.create_server(("127.0.0.1", 0))) as web, ExitStack() as opened:
        web.settimeout(30)
        (tmp_path / "web.conf").write_text(f"server 127.0.0.1:{web.getsockname()[1]};\n")
        configuration = tmp_path / "nginx.conf"
        configuration.write_text(
            fill_in(
                SHIPPED.read_text(),
                {
                    "listen 8080;": f"listen 127.0.0.1:{port};",
                    "worker_processes auto;": "worker_processes 1;",
                    "include /etc/nginx/web.conf;": f"include {tmp_path}/web.conf;",
                    "pid /tmp/nginx.pid;": f"pid {tmp_path}/nginx.pid;",
                }
                | {
                    f"{kind}_temp_path [^;]+;": f"{kind}_temp_path {tmp_path}/{kind};"
                    for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
                },
            )
        )

        def send(person: str, body: bytes) -> socket.socket:
            client = opened.enter_context(closing(socket.create_connection(("127.0.0.1", port), 30)))
            client.sendall(
                b"POST /label/1/judge/ HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"
                + f"Cookie: sessionid={person}\r\n\r\n".encode()
                + body
            )
            return client

        opened.enter_context(running_nginx(configuration, port))
        for _ in range(20):
            send("ann", b"choice")
        assert send("ann", b"choice=up").recv(100).startswith(b"HTTP/1.1 503 ")
        other = send("bob", b"choice=up")
        # The first that arrives, though the others were sent before.
        asked = opened.enter_context(closing(web.accept()[0]))
        asked.settimeout(30)
        received = b""
        while not received.endswith(b"choice=up"):
            received += asked.recv(10_000)
        assert b"sessionid=bob" in received
        assert b"X-Forwarded-For: 127.0.0.1\r\n" in received
        asked.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        assert other.recv(100).startswith(b"HTTP/1.1 204 ")
        web.setblocking(False)
        with pytest.raises(BlockingIOError):
            web.accept()


@pytest.fixture(params=["/llmpo/", ""], ids=["stripped", "passed on"])
def below(request, tmp_path, transactional_db) -> Iterator[str]:
    """The address of a real server below a path, behind nginx that removes the path, or does not."""
    web, port = free_port(), free_port()
    provider = Provider()
    configuration = tmp_path / "nginx.conf"
    target = f"http://127.0.0.1:{web}" + ("/" if request.param else "")
    temporary = "".join(
        f"{kind}_temp_path {tmp_path}/{kind}; "
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    configuration.write_text(
        f"worker_processes 1; pid {tmp_path}/pid; error_log stderr;\n"
        f"events {{}}\nhttp {{ access_log off; {temporary}\n"
        f"server {{ listen 127.0.0.1:{port}; location /llmpo/ {{ proxy_pass {target}; "
        "proxy_set_header Host $http_host; proxy_set_header X-Forwarded-For $remote_addr; } } }\n"
    )
    environment = {
        **os.environ,
        "BASE_PATH": "/llmpo",
        "DATABASE_URL": database_url(),
        "VAR_DIR": str(tmp_path / "var"),
        "DEBUG": "false",
        "SITE_URL": f"http://127.0.0.1:{port}/llmpo/",
        "OIDC_ISSUER": provider.url,
        "OIDC_CLIENT_ID": CLIENT_ID,
        "OIDC_CLIENT_SECRET": CLIENT_SECRET,
    }
    llmpo = [sys.executable, "-m", "llmpo_site"]
    subprocess.run([*llmpo, "manage", "collectstatic", "--no-input", "-v0"], env=environment, check=True)
    command = [*llmpo, "web", "--port", str(web)]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            command, env=environment, cwd=django_settings.BASE_DIR, stderr=log, stdout=log
        )
    try:
        with running_nginx(configuration, port):
            wait_until(lambda: answers(f"127.0.0.1:{web}"), 120, "the server answers")
            yield f"http://127.0.0.1:{port}/llmpo"
    finally:
        server.terminate()
        server.wait(timeout=60)
        provider.stop()


def test_below_a_path_pages_files_forms_cookies_and_the_api_work(below, settings):
    # The other process has the usual ones.
    settings.PASSWORD_HASHERS = global_settings.PASSWORD_HASHERS
    user = make_user("ann", is_superuser=True)
    path = "/llmpo"
    with httpx2.Client(follow_redirects=True, timeout=60) as browser:
        login = browser.get(f"{below}/")
        assert login.url.path == f"{path}/accounts/login/"
        files = re.findall(r'(?:href|src)="([^"]+\.(?:css|js|svg))"', login.text)
        assert files
        assert all(file.startswith(f"{path}/static/") for file in files)
        assert {browser.get(str(login.url.join(file))).status_code for file in files} == {200}
        form = {
            "username": "ann",
            "password": PASSWORD,
            "csrfmiddlewaretoken": browser.cookies["llmpo_csrftoken"],
        }
        home = browser.post(str(login.url), data=form)
        assert home.url.path == f"{path}/", re.sub(r"<[^>]+>|\s+", " ", home.text)
        assert {cookie.path for cookie in browser.cookies.jar} == {path}
        links = set(re.findall(r'(?:href|action|hx-get|hx-post)="(/[^"#?]*)"', home.text))
        assert links
        assert all(link.startswith(f"{path}/") for link in links)
        assert browser.get(f"{below}/help/").status_code == 200
        assert browser.get(f"{below}/nothing/").status_code == 404
    EmailAddress.objects.create(user=user, email="ann@example.org", verified=True, primary=True)
    with httpx2.Client(follow_redirects=True, timeout=60) as browser:
        browser.get(f"{below}/accounts/login/")
        form = {"csrfmiddlewaretoken": browser.cookies["llmpo_csrftoken"]}
        leaving = browser.post(f"{below}/accounts/oidc/sso/login/", data=form).text
        [away] = re.findall(r'content="0; url=([^"]+)"', leaving)
        assert browser.get(html.unescape(away)).url.path == f"{path}/"
    _, secret = make_token(user=user, name="here", valid_days=1)
    with Client(below, secret) as client:
        assert list(client.experiments()) == []
