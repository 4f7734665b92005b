"""Commit statuses as GitHub and GitLab take them."""

from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from engine.domain.addresses import check_url

# The name of a status is that of its experiment: a branch's rules require it by name.
_NAME = "llmpo/{}"
_LONGEST = 140
# Any end but a pass fails: a status that is neither would let a required check through.
_GITHUB = {
    "same": "success",
    "passed": "success",
    "worse": "failure",
    "stopped": "failure",
    "open": "pending",
}
_GITLAB = _GITHUB | {"worse": "failed", "stopped": "failed"}


class StatusCall(NamedTuple):
    """A call that posts a status."""

    url: str
    headers: dict[str, str]
    body: dict[str, Any]


def check_repository(kind: str, repository: str) -> None:
    """Refuse what is no address of a repository, or would send a token in the open.

    Raises
    ------
    ValueError
        Says what is wrong with it.
    """
    check_url(repository, has_key=True)
    names = _path(repository).split("/")
    if not all(names) or len(names) < 2 or (kind == "github" and len(names) > 2):
        raise ValueError("Give the address of a repository, such as https://github.com/owner/name.")
    check_url(_statuses(kind, repository))


def status_call(
    kind: str, repository: str, token: str, *, sha: str, state: str, experiment: int, words: str, link: str
) -> StatusCall:
    """The call that posts the state of a commit at the gate of an experiment."""
    name, words = _NAME.format(experiment), words[:_LONGEST]
    url = f"{_statuses(kind, repository)}/{sha}"
    if kind == "github":
        body = {"state": _GITHUB[state], "context": name, "description": words, "target_url": link}
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}
        return StatusCall(url, headers, body)
    body = {"state": _GITLAB[state], "name": name, "description": words, "target_url": link}
    return StatusCall(url, {"PRIVATE-TOKEN": token}, body)


def _statuses(kind: str, repository: str) -> str:
    parts, path = urlsplit(repository), _path(repository)
    if kind == "gitlab":
        return f"{parts.scheme}://{parts.netloc}/api/v4/projects/{quote(path, safe='')}/statuses"
    api = "api.github.com" if parts.hostname == "github.com" else f"{parts.netloc}/api/v3"
    return f"{parts.scheme}://{api}/repos/{quote(path)}/statuses"


def _path(repository: str) -> str:
    return urlsplit(repository).path.strip("/").removesuffix(".git")
