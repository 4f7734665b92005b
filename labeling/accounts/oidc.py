"""Login with the organisation's own accounts: django-allauth's provider for OpenID Connect, made strict.

allauth passes parts of the login's address on to the provider, takes an answer without an id_token, and
checks neither its signature, a nonce nor the issuer.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import jwt
from allauth.account.models import EmailAddress
from allauth.core import context
from allauth.socialaccount.models import SocialApp, SocialLogin, SocialToken
from allauth.socialaccount.providers.base.constants import AuthProcess
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare, get_random_string, salted_hmac

from engine.domain.credentials import hashed
from engine.domain.exchange_deadlines import Deadline, may_carry_secrets

_SECONDS = 5.0
# Threads of a web process that may wait for the provider at once, and the seconds to wait for a place.
_PLACES, _PLACE_SECONDS = threading.BoundedSemaphore(3), 1.0
_KEPT_SECONDS = 600
_CLOCKS_DIFFER_SECONDS = 60
# OpenID Connect Core, section 2.
_LONGEST_SUB = 255
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "userinfo_endpoint", "jwks_uri")


@contextmanager
def exchange(request: HttpRequest) -> Iterator[None]:
    """Talk to the provider, with one deadline for the whole exchange and few threads at a time.

    Raises
    ------
    OAuth2Error
        Too many others are waiting for the provider.
    """
    if not _PLACES.acquire(timeout=_PLACE_SECONDS):
        raise OAuth2Error("Too many logins wait for the provider.")
    try:
        with Deadline(_SECONDS) as request.allauth.deadline:  # type: ignore[attr-defined]
            yield
    finally:
        _PLACES.release()


def http_client() -> httpx2.Client:
    """A client whose requests end with the deadline of :func:`exchange`."""

    def end_in_time(asked: httpx2.Request) -> None:
        asked.extensions["trace"] = context.request.allauth.deadline.trace

    return httpx2.Client(timeout=_SECONDS, event_hooks={"request": [end_in_time]})


@contextmanager
def _what_the_provider_sends() -> Iterator[None]:
    """Anything may come, or nothing; whatever cannot be used is one error.

    Raises
    ------
    OAuth2Error
        allauth answers it with the page that says that the login failed.
    """
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError, httpx2.HTTPError, jwt.PyJWTError) as error:
        raise OAuth2Error(repr(error)) from error


def _fetched(url: str, **headers: str) -> dict[str, Any]:
    with http_client() as client:
        answer = client.get(url, headers=headers)
    document = answer.raise_for_status().json()
    if not isinstance(document, dict):
        raise TypeError(f"{url} is no JSON object.")
    return document


def _text(claims: dict[str, Any], name: str) -> str:
    """A claim as text that can be stored: no NUL (PostgreSQL), no half of a surrogate pair."""
    text = claims.get(name) or ""
    if not isinstance(text, str) or "\0" in text:
        raise ValueError(f"The claim {name} is no text.")
    text.encode()
    return text


def _texts(claims: dict[str, Any], name: str) -> list[str]:
    """A claim of several texts, one text, or an object with these names; none where it is missing."""
    found = claims.get(name) or []
    return [_text({name: each}, name) for each in ([found] if isinstance(found, str) else found)]


def _nonce(state_id: str) -> str:
    """The nonce that belongs to the state of one attempt, which only its browser knows."""
    return salted_hmac("labeling.accounts.oidc", state_id, algorithm="sha256").hexdigest()


class Exchange(OpenIDConnectOAuth2Adapter):
    """Asks the provider on the way of one login, and checks its answers."""

    @property
    def openid_config(self) -> dict[str, Any]:
        provider = self.get_provider()
        address = provider.server_url
        key = f"oidc-configuration-{hashed(address)}"
        found: dict[str, Any] | None = cache.get(key)
        if found is None:
            with _what_the_provider_sends():
                found = _fetched(address)
                if _text(found, "issuer").rstrip("/") != provider.app.settings["server_url"]:
                    raise ValueError(f"The issuer {found['issuer']!r} is not OIDC_ISSUER.")
                if not all(may_carry_secrets(found[endpoint]) for endpoint in _ENDPOINTS):
                    raise ValueError("The provider has endpoints without https.")
            cache.set(key, found, _KEPT_SECONDS)
        return found

    def get_access_token_data(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        with _what_the_provider_sends():
            data = super().get_access_token_data(*args, **kwargs)
            return {"access_token": _text(data, "access_token"), "id_token": _text(data, "id_token")}

    def complete_login(
        self, request: HttpRequest, app: SocialApp, token: SocialToken, **kwargs: Any
    ) -> SocialLogin:
        with _what_the_provider_sends():
            proved = self._proved(app, kwargs["response"]["id_token"])
            if not constant_time_compare(str(proved.get("nonce")), _nonce(request.GET["state"])):
                raise ValueError("The id_token is not for this attempt.")
            userinfo = _fetched(self.profile_url, Authorization=f"Bearer {token.token}")
            if userinfo["sub"] != proved["sub"]:
                raise ValueError("id_token and userinfo are about different people.")
            if not 0 < len(proved["sub"]) <= _LONGEST_SUB:
                raise ValueError("The sub is empty or too long.")
            claims = {name: _text(userinfo, name) for name in ("sub", "preferred_username", "email")}
            if userinfo.get("email_verified") is not True:
                # Some providers send the string "false".
                del claims["email"]
            # Without it nobody knows when; then it was long ago.
            authenticated_at = float(proved.get("auth_time") or 0)
            groups = _texts(userinfo | proved, settings.OIDC_GROUPS_CLAIM)
        login = self.get_provider().sociallogin_from_response(request, claims | {"iss": proved["iss"]})
        login.authenticated_at, login.groups = authenticated_at, groups
        return login

    def _proved(self, app: SocialApp, id_token: str) -> dict[str, Any]:
        """The claims of the id_token, whose signature, audience, issuer and times are right."""
        kid = jwt.get_unverified_header(id_token)["kid"]
        config = self.openid_config
        key = f"oidc-keys-{hashed(config['jwks_uri'])}"
        found = cache.get(key)
        if found is None or kid not in {each.get("kid") for each in found["keys"]}:
            found = _fetched(config["jwks_uri"])
            cache.set(key, found, _KEPT_SECONDS)
        claims: dict[str, Any] = jwt.decode(
            id_token,
            # Use the key's algorithm, never the one that the token names.
            jwt.PyJWKSet.from_dict(found)[kid],
            audience=app.client_id,
            issuer=config["issuer"],
            leeway=_CLOCKS_DIFFER_SECONDS,
            options={"require": ["iss", "sub", "aud", "exp", "iat", "nonce"]},
        )
        return claims


class Provider(OpenIDConnectProvider):
    """The provider of ``OIDC_ISSUER``."""

    oauth2_adapter_class = Exchange

    def redirect(
        self, request: HttpRequest, process: str, next_url: str | None = None, data: Any = None, **_: Any
    ) -> HttpResponse:
        """Nothing else of the login's address is passed on: allauth would take scopes and parameters."""
        state_id = get_random_string(32)
        asked = {"nonce": _nonce(state_id)}
        if process == AuthProcess.LOGIN and request.user.is_authenticated:
            # Somebody confirms that it is they.
            asked |= {"prompt": "login", "max_age": "0"}
        answer: HttpResponse = super().redirect(
            request, process, next_url, data, auth_params=asked, state_id=state_id
        )
        return answer

    def extract_uid(self, data: dict[str, str]) -> str:
        """A link belongs to its issuer: another one may give the same ``sub`` to somebody else."""
        return hashed(f"{data['iss']} {data['sub']}")

    def extract_extra_data(self, data: dict[str, str]) -> dict[str, str]:
        return {"iss": data["iss"], "sub": data["sub"]}

    def extract_common_fields(self, data: dict[str, str]) -> dict[str, str | None]:
        return {"username": data["preferred_username"], "email": data.get("email")}

    def extract_email_addresses(self, data: dict[str, str]) -> list[EmailAddress]:
        return [EmailAddress(email=data["email"], verified=True, primary=True)] if data.get("email") else []
