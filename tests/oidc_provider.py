"""A small OpenID Connect provider on a port of this machine: real redirects, real codes, tokens signed with
RS256.
"""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID, CLIENT_SECRET = "llm-po", "a client's secret"
_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def signed(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, _KEY, algorithm="RS256", headers={"kid": "one"})


class Provider:
    """Says of everybody who comes that they are ``claims``, and have logged in at ``logged_in_at``.

    ``refuse``: that they said no. ``instead``: claims of the id_token alone; one that is ``None`` is left
    out. ``id_token``: makes the token. ``document``: what else the configuration says. ``slow``: paths whose
    answers come a byte at a time, for as long as somebody reads them.
    """

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {"sub": "1234", "email": "ann@example.org", "email_verified": True}
        self.logged_in_at = time.time()
        self.instead: dict[str, Any] = {}
        self.id_token: Callable[[dict[str, Any]], str | None] = signed
        self.document: dict[str, Any] = {}
        self.slow: set[str] = set()
        self.answered: list[str] = []
        self.refuse = False
        self.asked: list[dict[str, str]] = []
        self._granted: dict[str, dict[str, str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def configuration(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "jwks_uri": f"{self.url}/keys",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        } | self.document

    def keys(self) -> dict[str, Any]:
        key = jwt.algorithms.RSAAlgorithm.to_jwk(_KEY.public_key(), as_dict=True)
        return {"keys": [key | {"kid": "one", "use": "sig", "alg": "RS256"}]}

    def authorize(self, asked: dict[str, str]) -> str:
        """The address to which the browser is sent back."""
        self.asked.append(asked)
        if self.refuse:
            answer = {"error": "access_denied"}
        else:
            answer = {"code": secrets.token_urlsafe(8)}
            self._granted[answer["code"]] = asked
        return f"{asked['redirect_uri']}?{urlencode(answer | {'state': asked['state']})}"

    def token(self, form: dict[str, str]) -> dict[str, Any] | None:
        """Tokens for a code, once, to the client that asked for it and can prove so."""
        asked = self._granted.pop(form.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if (
            asked is None
            or (form.get("client_id"), form.get("client_secret")) != (CLIENT_ID, CLIENT_SECRET)
            or form.get("redirect_uri") != asked["redirect_uri"]
            or asked["code_challenge"] != challenge.decode().rstrip("=")
        ):
            return None
        now = int(time.time())
        if asked.get("prompt") == "login":
            self.logged_in_at = now
        claims = self.claims | {"iss": self.url, "aud": CLIENT_ID, "iat": now, "exp": now + 300}
        claims |= {"nonce": asked.get("nonce"), "auth_time": int(self.logged_in_at)} | self.instead
        id_token = self.id_token({name: value for name, value in claims.items() if value is not None})
        return {"access_token": "an access token", "token_type": "Bearer", "id_token": id_token}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                if url.path == "/authorize":
                    asked = {name: values[0] for name, values in parse_qs(url.query).items()}
                    self.send_response(302)
                    self.send_header("Location", provider.authorize(asked))
                    self.end_headers()
                    return
                self._answer(
                    {
                        "/.well-known/openid-configuration": provider.configuration,
                        "/keys": provider.keys,
                        "/userinfo": lambda: provider.claims,
                    }[url.path]()
                )

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = {name: values[0] for name, values in parse_qs(body).items()}
                if kind_and_secret := self.headers["Authorization"]:
                    client = base64.b64decode(kind_and_secret.removeprefix("Basic ")).decode()
                    form["client_id"], form["client_secret"] = client.split(":")
                tokens = provider.token(form)
                self._answer(tokens or {"error": "invalid_grant"}, 200 if tokens else 400)

            def _answer(self, document: dict[str, Any], status: int = 200) -> None:
                path = urlsplit(self.path).path
                provider.answered.append(path)
                body = json.dumps(document).encode()
                if path in provider.slow:
                    self._drip()
                    return
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _drip(self) -> None:
                with suppress(OSError):
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
                    while True:
                        self.wfile.write(b"x")
                        time.sleep(0.01)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@contextmanager
def a_provider() -> Iterator[Provider]:
    provider = Provider()
    try:
        yield provider
    finally:
        provider.stop()


def settings_for(provider: Provider) -> dict[str, Any]:
    """The settings that the environment variables OIDC_* produce."""
    return {
        "OIDC_ISSUER": provider.url,
        "OIDC_NAME": "Example SSO",
        "SOCIALACCOUNT_PROVIDERS": {
            "openid_connect": {
                "provider_class": "labeling.accounts.oidc.Provider",
                "OAUTH_PKCE_ENABLED": True,
                "APPS": [
                    {
                        "provider_id": "sso",
                        "name": "Example SSO",
                        "client_id": CLIENT_ID,
                        "secret": CLIENT_SECRET,
                        "settings": {"server_url": provider.url},
                    }
                ],
            }
        },
    }
