"""Langfuse, MLflow, LangSmith and a webhook, each by its own HTTP interface."""

import base64
import json
import re
import uuid
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from engine.domain.addresses import check_url
from engine.domain.conversations import as_json
from engine.domain.variables import NAME
from engine.notifying.signed_calls import WebhookError, call, exchange
from engine.publishing.base import MADE, Ask, Place, Registry, RegistryError, Request
from engine.publishing.winners import Winner

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_LABEL = re.compile(r"[a-z0-9][a-z0-9_.-]{0,35}")
_NOT_FOUND, _CONFLICT = 404, 409
_PLACES = re.compile(rf"\{{\{{\s*({NAME.pattern})\s*\}}\}}")


def _body(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


class _OverHttp(Registry):
    """What the servers have in common: a base address, a name, a label, and a key in a header."""

    def check(self, to: Place, *, has_key: bool) -> Place:
        """Check address, name and label."""
        parts = check_url(to.address, has_key=has_key)
        if parts.query or parts.fragment:
            raise ValueError("Remove the query from the URL: give the server's address alone.")
        if not _NAME.fullmatch(to.name):
            raise ValueError("The prompt's name has letters, digits, full stops, hyphens and underscores.")
        if not _LABEL.fullmatch(to.label) or to.label == "latest" or re.fullmatch(r"v\d+", to.label):
            raise ValueError(
                "The label has small letters, digits, full stops, hyphens and underscores, such as "
                "production; registries give latest, v1, v2 … by themselves."
            )
        return replace(to, address=to.address.rstrip("/"))

    def headers(self, key: str) -> dict[str, str]:
        """The header with the key: a name and a password with a colon between, or a token."""
        if not key:
            return {}
        if ":" in key:
            return {"Authorization": f"Basic {base64.b64encode(key.encode()).decode()}"}
        return {"Authorization": f"Bearer {key}"}

    def is_missing(self, status: int, answer: Any) -> bool:
        """True for an answer that says that there is no such thing."""
        return status == _NOT_FOUND

    def exists(self, status: int, answer: Any) -> bool:
        """True for an answer that says that there is one of this name."""
        return status == _CONFLICT

    def send(self, request: Request, to: Place, key: str) -> Any:
        """Send it and read the JSON that comes back."""
        try:
            status, content = exchange(
                method=request.method,
                url=f"{to.address}{request.path}",
                headers=self.headers(key) | {"Accept": "application/json"},
                body=request.body.encode(),
            )
        except WebhookError as error:
            raise RegistryError(str(error)) from error
        try:
            answer = json.loads(content or b"{}")
        except (ValueError, RecursionError):
            answer = {}
        if request.method == "GET" and self.is_missing(status, answer):
            return None
        if 200 <= status < 300 or (request.may_exist and self.exists(status, answer)):
            return answer
        advice = " Check the key." if status in {401, 403} else ""
        raise RegistryError(f"{request.method} {request.path} was answered with {status}.{advice}")


class Langfuse(_OverHttp):
    """A version of a chat prompt, with a label."""

    title = "Langfuse"
    key_help = "Langfuse: public key, a colon, secret key."

    def requests(self, winner: Winner, to: Place) -> list[Request]:
        """Make a version that has the label, which leaves the one before."""
        body = {
            "type": "chat",
            "name": to.name,
            "prompt": as_json(winner.messages),
            "config": {**_settings(winner), "llm_po": winner.evidence},
            "labels": [to.label],
            "tags": ["llm-po"],
            "commitMessage": _message(winner),
        }
        return [Request("POST", "/api/public/v2/prompts", _body(body))]

    def back(self, before: str, to: Place) -> list[Request]:
        """Move the label."""
        path = f"/api/public/v2/prompts/{quote(to.name, safe='')}/versions/{before}"
        return [Request("PATCH", path, _body({"newLabels": [to.label]}))]

    def marked(self, to: Place, ask: Ask) -> str | None:
        """Ask for the version with the label."""
        query = urlencode({"label": to.label})
        answer = ask(Request("GET", f"/api/public/v2/prompts/{quote(to.name, safe='')}?{query}"))
        return "" if answer is None else str(answer["version"])

    def version(self, request: Request, answer: Any) -> str:
        """The version's number."""
        return str(answer.get("version", ""))


class MLflow(_OverHttp):
    """A version of a chat prompt with an alias: to MLflow a registered model with tags of its own."""

    title = "MLflow"
    key_help = "MLflow: a token, or a name, a colon and a password; empty without a login."
    _api = "/api/2.0/mlflow"

    def requests(self, winner: Winner, to: Place) -> list[Request]:
        """Make the prompt if it is not there, a version, and move the alias."""
        settings = _settings(winner)
        known = ("temperature", "max_tokens", "top_p", "top_k")
        config = {"provider": settings["provider"], "model_name": settings["model"]}
        config |= {name: settings[name] for name in known if name in settings}
        if "stop" in settings:
            config["stop_sequences"] = settings["stop"]
        others = settings.keys() - {*known, "provider", "model", "stop"}
        if others:
            config["extra_params"] = {name: settings[name] for name in sorted(others)}
        is_prompt = {"key": "mlflow.prompt.is_prompt", "value": "true"}
        tags = {
            "mlflow.prompt.text": json.dumps(as_json(winner.messages), ensure_ascii=False),
            "_mlflow_prompt_type": "chat",
            "_mlflow_prompt_model_config": json.dumps(config, ensure_ascii=False),
        } | {f"llm_po.{name}": str(value) for name, value in winner.evidence.items() if value is not None}
        version = {
            "name": to.name,
            "source": "dummy-source",  # MLflow's own client sends it: a prompt has no files
            "description": _message(winner),
            "tags": [is_prompt, *({"key": key, "value": value} for key, value in tags.items())],
        }
        made = {"name": to.name, "tags": [is_prompt]}
        return [
            Request("POST", f"{self._api}/registered-models/create", _body(made), may_exist=True),
            Request("POST", f"{self._api}/model-versions/create", _body(version)),
            *self.back(MADE, to),
        ]

    def back(self, before: str, to: Place) -> list[Request]:
        """Move the alias."""
        body = {"name": to.name, "alias": to.label, "version": before}
        return [Request("POST", f"{self._api}/registered-models/alias", _body(body))]

    def marked(self, to: Place, ask: Ask) -> str | None:
        """Ask for the version with the alias."""
        query = urlencode({"name": to.name, "alias": to.label})
        answer = ask(Request("GET", f"{self._api}/registered-models/alias?{query}"))
        return "" if answer is None else str(answer["model_version"]["version"])

    def version(self, request: Request, answer: Any) -> str:
        """The version's number."""
        return str(answer.get("model_version", {}).get("version", ""))

    def is_missing(self, status: int, answer: Any) -> bool:
        """An alias that is not there is answered in two ways, by the age of the server."""
        codes = {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}
        return status == _NOT_FOUND or answer.get("error_code") in codes

    def exists(self, status: int, answer: Any) -> bool:
        """MLflow says it with a code of its own."""
        return bool(answer.get("error_code") == "RESOURCE_ALREADY_EXISTS")


class LangSmith(_OverHttp):
    """A commit of a chat prompt, with a commit tag."""

    title = "LangSmith"
    key_help = "LangSmith: an API key."

    def headers(self, key: str) -> dict[str, str]:
        """LangSmith has a header of its own."""
        return {"X-Api-Key": key}

    def requests(self, winner: Winner, to: Place) -> list[Request]:
        """Make the prompt if it is not there, a commit on top of the newest, and move the tag."""
        repo = {"repo_handle": to.name, "description": "", "readme": "", "tags": [], "is_public": False}
        commit = {"parent_commit": MADE, "manifest": _manifest(winner), "description": _message(winner)}
        tag = {"tag_name": to.label, "commit_id": MADE}
        return [
            Request("POST", "/repos/", _body(repo), may_exist=True),
            Request("GET", f"/commits/-/{to.name}/?limit=1&offset=0"),
            Request("POST", f"/commits/-/{to.name}", _body(commit)),
            Request("POST", f"/repos/-/{to.name}/tags", _body(tag), may_exist=True),
            *self.back(MADE, to),
        ]

    def back(self, before: str, to: Place) -> list[Request]:
        """Move the tag."""
        return [Request("PATCH", f"/repos/-/{to.name}/tags/{to.label}", _body({"commit_id": before}))]

    def marked(self, to: Place, ask: Ask) -> str | None:
        """Look for the tag among those of the prompt."""
        tags = ask(Request("GET", f"/repos/-/{to.name}/tags")) or []
        return next((str(each["commit_id"]) for each in tags if each["tag_name"] == to.label), "")

    def version(self, request: Request, answer: Any) -> str:
        """The newest commit's hash before, and the new one's id after."""
        if request.method == "GET":
            commits = (answer or {}).get("commits") or [{}]
            return str(commits[0].get("commit_hash", ""))
        is_commit = isinstance(answer, dict) and isinstance(answer.get("commit"), dict)
        return str(answer["commit"].get("id", "")) if is_commit else ""


class Webhook(_OverHttp):
    """A signed call with the winner as JSON; going back repeats the call before."""

    title = "Webhook"
    key_help = "Webhook: a secret of your choice, which signs the calls."

    def check(self, to: Place, *, has_key: bool) -> Place:
        """Take the address alone."""
        check_url(to.address)
        return replace(to, name="", label="")

    def requests(self, winner: Winner, to: Place) -> list[Request]:
        """Say everything in one call."""
        body = {
            "event": "winner",
            "policy": {"code": winner.code, "name": winner.name},
            "messages": as_json(winner.messages),
            **_settings(winner),
            "evidence": winner.evidence,
            "not_included": winner.lacking,
        }
        return [Request("POST", "", _body(body))]

    def back(self, before: str, to: Place) -> list[Request]:
        """Repeat the call before."""
        return [Request("POST", "", before)]

    def marked(self, to: Place, ask: Ask) -> str | None:
        """A webhook answers nothing."""
        return None

    def version(self, request: Request, answer: Any) -> str:
        """What was sent."""
        return request.body

    def send(self, request: Request, to: Place, key: str) -> Any:
        """Sign and send it."""
        try:
            call(url=to.address, secret=key, body=request.body.encode(), delivery=str(uuid.uuid4()))
        except WebhookError as error:
            raise RegistryError(str(error)) from error
        return None


def _settings(winner: Winner) -> dict[str, Any]:
    return {"model": winner.target.model_id, "provider": winner.target.provider.value} | winner.settings


def _message(winner: Winner) -> str:
    said = f"{winner.name}, the winner of {winner.evidence['experiment']}. {winner.evidence['claim']}"
    return said[:1000]


def _manifest(winner: Winner) -> dict[str, Any]:
    """The messages as LangChain's serialised prompt."""

    def made(kind: str, path: list[str], values: dict[str, Any]) -> dict[str, Any]:
        return {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain_core", "prompts", *path, kind],
            "kwargs": values,
        }

    messages, names = [], set()
    last = len(winner.messages) - 1
    for number, each in enumerate(winner.messages):
        is_template = each.role == "system" or number == last
        template, found = _f_string(each.content) if is_template else (_braces(each.content), set())
        names |= found
        values = {"input_variables": sorted(found), "template": template, "template_format": "f-string"}
        kind = {"system": "System", "user": "Human", "assistant": "AI"}[each.role]
        prompt = made("PromptTemplate", ["prompt"], values)
        messages.append(made(f"{kind}MessagePromptTemplate", ["chat"], {"prompt": prompt}))
    return made("ChatPromptTemplate", ["chat"], {"input_variables": sorted(names), "messages": messages})


def _f_string(text: str) -> tuple[str, set[str]]:
    """A template of ours as an f-string of LangChain, and its variables."""
    pieces = _PLACES.split(text)
    names = set(pieces[1::2])
    return "".join(f"{{{each}}}" if n % 2 else _braces(each) for n, each in enumerate(pieces)), names


def _braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
