"""The client: one method for each operation of the API."""

import json
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, Unpack, cast

import httpx2

from llmpo_client import types
from llmpo_client.errors import ApiError, InvalidError, UnreachableError, error_of

_BUSY = (429, 503)
# A proxy answers these while its server starts anew; the request may have had its effect.
_BROKEN = (502, 504)
# The connection is not made, or breaks.
_CUT = (httpx2.NetworkError, httpx2.RemoteProtocolError)
# Seconds before each try where the server does not say how many.
_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
# Seconds between two looks at an import.
_BETWEEN_LOOKS = 1.0

Query = str | int | bool


class Client:
    """Speaks to one server with one token.

    A request that the server is too busy for (503), or that came too soon (429), is sent again. The server
    says after how many seconds. A request that cannot reach the server is sent again after some seconds,
    unless its host is unknown or has no valid certificate. A request that reads is sent again too if the
    connection breaks, or a proxy has no answer (502, 504). Several threads may share a client.

    Parameters
    ----------
    url
        Address of the server, such as ``https://label.example.org``.
    token
        An API token, from the page ``/tokens/``.
    timeout
        Seconds to wait for the server's answer, each time.
    retries
        Number of times that a request is sent again.
    most_wait
        Seconds: a longer wait that the server asks for is an error at once.
    transport
        Another way to the server, for tests.
    sleep
        Waits a number of seconds.

    Raises
    ------
    ValueError
        The token cannot be one.
    ApiError
        From every method: the server refuses. Its subclasses say in which way.
    UnreachableError
        From every method: there is no answer.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float = 60.0,
        retries: int = 5,
        most_wait: float = 120.0,
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not (token.isascii() and token.isprintable() and token.strip() == token != ""):
            raise ValueError("The token is empty, or has a character that no token has. Copy it again.")
        self._http = httpx2.Client(
            base_url=f"{url.rstrip('/')}/api",
            headers={"Authorization": f"Bearer {token}"},
            timeout=timeout,
            transport=transport,
        )
        self._retries = retries
        self._most_wait = most_wait
        self._sleep = sleep

    def __repr__(self) -> str:
        return f"Client({str(self._http.base_url).removesuffix('/api/')!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # ------------------------------------------------------------ experiments

    def experiments(
        self, *, archived: bool = False, tag: str = "", page_size: int = 50
    ) -> Iterator[types.Experiment]:
        """The experiments that you may see, newest first; with ``tag``, those that have it."""
        yield from self._pages("/experiments", page_size, archived=archived, tag=tag)

    def create_experiment(
        self,
        name: str,
        *,
        factors: Sequence[types.Factor],
        tasks: Sequence[types.Task] = (),
        settings: Mapping[str, Any] | None = None,
        gold: Sequence[types.Gold] = (),
    ) -> types.Experiment:
        """Create a draft that you own."""
        body = {
            "name": name,
            "factors": list(factors),
            "tasks": list(tasks),
            "settings": dict(settings or {}),
            "gold": list(gold),
        }
        return cast(types.Experiment, self._json("POST", "/experiments", body))

    def create_from_responses(
        self,
        name: str,
        *files: str | os.PathLike[str],
        columns: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> types.Imported:
        """Create a draft on ready-made responses: the files of one table, or of a run of another tool.

        ``columns``: roles of columns with other names.
        """
        said = {"settings": json.dumps(settings)} if settings else {}
        return self._import(files, columns, material="responses", name=name, **said)

    def create_from_votes(
        self, name: str, file: str | os.PathLike[str], *, columns: Mapping[str, str] | None = None
    ) -> types.Imported:
        """Create a paused experiment of past votes."""
        return self._import([file], columns, material="votes", name=name)

    def add_votes(
        self,
        experiment_id: int,
        file: str | os.PathLike[str],
        *,
        columns: Mapping[str, str] | None = None,
        counted: Literal["", "only_new", "again"] = "",
    ) -> types.Imported:
        """Add past votes to a draft or a paused experiment.

        A file with votes that count already is refused. With ``counted="only_new"`` these votes are left out,
        as for a table that grows; ``"again"`` counts every vote of the file.
        """
        experiment = str(experiment_id)
        return self._import([file], columns, material="votes", experiment=experiment, counted=counted)

    def status(self, experiment_id: int) -> types.Status:
        """The experiment with the dashboard's figures."""
        return cast(types.Status, self._json("GET", f"/experiments/{experiment_id}"))

    def act(self, experiment_id: int, action: types.Action) -> types.Experiment:
        """Start (or resume), pause, stop, archive or unarchive."""
        path = f"/experiments/{experiment_id}/actions/{action}"
        return cast(types.Experiment, self._json("POST", path))

    def change_settings(self, experiment_id: int, **changes: Unpack[types.Patch]) -> types.Experiment:
        """Change claim, budget, δ or ε, name, guidelines, tags, the limit of money or the leaderboard; of a
        draft any part.
        """
        return cast(types.Experiment, self._json("PATCH", f"/experiments/{experiment_id}", changes))

    def reopen(self, experiment_id: int, **changes: Unpack[types.Changes]) -> types.Experiment:
        """Reopen a concluded experiment, with new settings if it needs them."""
        path = f"/experiments/{experiment_id}/reopen"
        return cast(types.Experiment, self._json("POST", path, changes))

    def stop_on(self, experiment_id: int, claim: types.Claim) -> types.Experiment:
        """Stop on a claim that holds."""
        path = f"/experiments/{experiment_id}/stop-on"
        return cast(types.Experiment, self._json("POST", path, {"claim": claim}))

    def add_policies(
        self, experiment_id: int, levels: dict[str, dict[str, Any]], **more: Any
    ) -> types.Status:
        """Have policies with new levels join; a concluded experiment runs again.

        ``levels``: ``{factor: {name: value}}``. ``more``: chosen, parent, responses, losers_leave, as the
        API has them.
        """
        path = f"/experiments/{experiment_id}/policies"
        return cast(types.Status, self._json("POST", path, {"levels": levels, **more}))

    def retire_policy(self, experiment_id: int, number: int, reason: str) -> types.Status:
        """Have a policy leave for good; P3 is number 3."""
        path = f"/experiments/{experiment_id}/policies/{number}/retire"
        return cast(types.Status, self._json("POST", path, {"reason": reason}))

    def add_tasks(self, experiment_id: int, tasks: list[types.Task], *, anew: bool = False) -> types.Status:
        """Have tasks join an experiment that has started; ``anew`` counts comparisons from then on alone."""
        path = f"/experiments/{experiment_id}/tasks"
        return cast(types.Status, self._json("POST", path, {"tasks": tasks, "anew": anew}))

    def leave_out_task(
        self, experiment_id: int, number: int, reason: str, *, anew: bool = False
    ) -> types.Status:
        """Have a task be left out from now on; the first one is number 1."""
        path = f"/experiments/{experiment_id}/tasks/{number}/leave-out"
        return cast(types.Status, self._json("POST", path, {"reason": reason, "anew": anew}))

    def improve(self, experiment_id: int, **settings: Any) -> types.Improvement:
        """Begin to improve a policy by a writer's proposals.

        ``settings``: clicks, delta, factor, original, wish, needs_ok, writer, connection.
        """
        return cast(
            types.Improvement, self._json("POST", f"/experiments/{experiment_id}/improvement", settings)
        )

    def improvement(self, experiment_id: int) -> types.Improvement:
        """The newest improvement with its proposals."""
        return cast(types.Improvement, self._json("GET", f"/experiments/{experiment_id}/improvement"))

    def fix_champion(self, experiment_id: int) -> types.Improvement:
        """Look for better texts no longer: the champion meets the original."""
        path = f"/experiments/{experiment_id}/improvement/certify"
        return cast(types.Improvement, self._json("POST", path))

    def go_on_improving(self, experiment_id: int, clicks: int = 100) -> types.Improvement:
        """Look on from the champion of an improvement that has ended, with so many more clicks."""
        path = f"/experiments/{experiment_id}/improvement/go-on"
        return cast(types.Improvement, self._json("POST", path, {"clicks": clicks}))

    def stop_improving(self, experiment_id: int) -> types.Improvement:
        """End the improvement now."""
        path = f"/experiments/{experiment_id}/improvement/stop"
        return cast(types.Improvement, self._json("POST", path, {}))

    def accept_proposal(self, experiment_id: int, number: int, text: str | None = None) -> types.Improvement:
        """Let a proposal join the race, with another text where one is given."""
        path = f"/experiments/{experiment_id}/improvement/proposals/{number}/accept"
        return cast(types.Improvement, self._json("POST", path, {"text": text}))

    def refuse_proposal(self, experiment_id: int, number: int, reason: str) -> types.Improvement:
        """Refuse a proposal; the writer is told the reason."""
        path = f"/experiments/{experiment_id}/improvement/proposals/{number}/refuse"
        return cast(types.Improvement, self._json("POST", path, {"reason": reason}))

    def gate(
        self, experiment_id: int, texts: list[types.GateText], *, commit: str = "", merged: bool = False
    ) -> types.Gate:
        """Compare changed texts with those of main, or tell with ``merged`` that main has them now."""
        body = {"texts": texts, "commit": commit, "merged": merged}
        return cast(types.Gate, self._json("POST", f"/experiments/{experiment_id}/gate", body))

    def clone(self, experiment_id: int, name: str) -> types.Experiment:
        """Create a draft with the same description."""
        path = f"/experiments/{experiment_id}/clone"
        return cast(types.Experiment, self._json("POST", path, {"name": name}))

    def ranking(self, experiment_id: int) -> list[types.Ranked]:
        """The policies, the leader first."""
        return cast(list[types.Ranked], self._json("GET", f"/experiments/{experiment_id}/ranking"))

    def results_by_task(self, experiment_id: int, *, tag: str = "") -> list[types.TaskResult]:
        """Wins of each policy at each task; with ``tag`` at those that have it."""
        path = f"/experiments/{experiment_id}/results/task"
        return cast(list[types.TaskResult], self._json("GET", path, tag=tag))

    def results_by_tag(self, experiment_id: int) -> list[types.TagResult]:
        """Wins of each policy at the tasks of each tag."""
        path = f"/experiments/{experiment_id}/results/tag"
        return cast(list[types.TagResult], self._json("GET", path))

    def quality(self, experiment_id: int) -> types.Quality:
        """The agreement of the people, and the position bias of past votes."""
        return cast(types.Quality, self._json("GET", f"/experiments/{experiment_id}/quality"))

    def log(self, experiment_id: int, *, limit: int = 100) -> list[types.Entry]:
        """The newest entries of the log."""
        path = f"/experiments/{experiment_id}/log"
        return cast(list[types.Entry], self._json("GET", path, limit=limit))

    def responses(
        self, experiment_id: int, *, tag: str = "", page_size: int = 500
    ) -> Iterator[types.Response]:
        """The responses, ready-made or written there; with ``tag`` those to tasks that have it."""
        yield from self._pages(f"/experiments/{experiment_id}/responses", page_size, tag=tag)

    # ------------------------------------------------------------ downloads

    @contextmanager
    def stream(self, experiment_id: int, file: types.Download, **query: Query) -> Iterator[Iterable[bytes]]:
        """The pieces of a download, to be read inside of ``with``. ``query`` selects judgments."""
        path = f"/experiments/{experiment_id}/{file}"
        with self._sent("GET", path, params=_said(query)) as response, _reaching():
            yield response.iter_bytes()

    def download(
        self, experiment_id: int, file: types.Download, to: str | os.PathLike[str], **query: Query
    ) -> Path:
        """Write a download to a file as it comes, and return its path. A broken one leaves no file there."""
        target = Path(to)
        part = target.with_name(f"{target.name}.part")
        try:
            with part.open("wb") as opened, self.stream(experiment_id, file, **query) as pieces:
                opened.writelines(pieces)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return target

    # ------------------------------------------------------------ people

    def members(self, experiment_id: int) -> list[types.Member]:
        """The members; a person with two roles is there twice."""
        return cast(list[types.Member], self._json("GET", f"/experiments/{experiment_id}/members"))

    def add_member(self, experiment_id: int, username: str, role: types.Role) -> types.Member:
        """Give an account a role, for administrators."""
        body = {"username": username, "role": role}
        return cast(types.Member, self._json("POST", f"/experiments/{experiment_id}/members", body))

    def change_role(self, experiment_id: int, membership_id: int, role: types.Role) -> types.Member:
        """Give a member another role."""
        path = f"/experiments/{experiment_id}/members/{membership_id}"
        return cast(types.Member, self._json("PATCH", path, {"role": role}))

    def remove_member(self, experiment_id: int, membership_id: int) -> None:
        """Take a role away."""
        self._json("DELETE", f"/experiments/{experiment_id}/members/{membership_id}")

    def invitations(self, experiment_id: int) -> list[types.Invitation]:
        """The open invitations, newest first."""
        path = f"/experiments/{experiment_id}/invitations"
        return cast(list[types.Invitation], self._json("GET", path))

    def invite(
        self, experiment_id: int, role: types.Role, *, most_uses: int = 1, valid_days: int = 7, **guests: Any
    ) -> types.NewInvitation:
        """Make an invitation link, which is told only here.

        ``guests``: guests, most_answers, id_parameter, completion, screen_out, as the API has them.
        """
        body = {"role": role, "most_uses": most_uses, "valid_days": valid_days, **guests}
        return cast(
            types.NewInvitation, self._json("POST", f"/experiments/{experiment_id}/invitations", body)
        )

    def invite_by_mail(
        self, experiment_id: int, role: types.Role, addresses: Sequence[str], *, valid_days: int = 7
    ) -> list[types.Invitation]:
        """Send each address a link of its own, which works once."""
        body = {"role": role, "addresses": list(addresses), "valid_days": valid_days}
        path = f"/experiments/{experiment_id}/invitations/mailed"
        return cast(list[types.Invitation], self._json("POST", path, body))

    def resend_invitation(self, experiment_id: int, invitation_id: int) -> types.Invitation:
        """Send an invitation's link to its address again."""
        path = f"/experiments/{experiment_id}/invitations/{invitation_id}/resend"
        return cast(types.Invitation, self._json("POST", path))

    def end_invitation(self, experiment_id: int, invitation_id: int) -> None:
        """Let nobody in by this link any more."""
        self._json("DELETE", f"/experiments/{experiment_id}/invitations/{invitation_id}")

    # ------------------------------------------------------------ annotating

    def next_pair(self, experiment_id: int) -> types.Shown:
        """Your next pair. It stays the next one until you judge or skip it."""
        return cast(types.Shown, self._json("POST", f"/label/{experiment_id}/next"))

    def judge(
        self,
        experiment_id: int,
        token: str,
        choice: types.Choice,
        *,
        comment: str = "",
        further: Mapping[str, str | list[int]] | None = None,
    ) -> types.Judged:
        """Store the answer to a pair, exactly once. ``further``: answers to the further questions."""
        body = {"token": token, "choice": choice, "comment": comment, "further": further or {}}
        return cast(types.Judged, self._json("POST", f"/label/{experiment_id}/judgments", body))

    def skip(self, experiment_id: int, token: str, reason: types.Reason, *, comment: str = "") -> None:
        """End a pair without an answer. It counts against the result: nobody else judges it."""
        body = {"token": token, "reason": reason, "comment": comment}
        self._json("POST", f"/label/{experiment_id}/skip", body)

    def undo(self, experiment_id: int, token: str | None = None) -> types.Shown:
        """Take back your newest answer, or the one to the pair of this token.

        With the token it is safe to call again where the server's answer was lost.
        """
        query = {} if token is None else {"token": token}
        return cast(types.Shown, self._json("POST", f"/label/{experiment_id}/undo", **query))

    # ------------------------------------------------------------ requests

    def _pages(self, path: str, page_size: int, **query: Query) -> Iterator[Any]:
        offset = 0
        while True:
            items = self._json("GET", path, limit=page_size, offset=offset, **query)["items"]
            yield from items
            if len(items) < page_size:
                return
            offset += page_size

    def _import(
        self, paths: Iterable[str | os.PathLike[str]], columns: Mapping[str, str] | None, **fields: str
    ) -> types.Imported:
        """Upload files, and wait until a worker has imported them."""
        roles = [f"{column}={role}" for column, role in (columns or {}).items()]
        # Whole: a request that is sent again needs all of it again, and the server takes a limited size.
        files = [("file", (path.name, path.read_bytes())) for path in map(Path, paths)]
        made = self._answer("POST", "/imports", data={**fields, "columns": roles}, files=files)
        path = f"/imports/{made['id']}"
        while made["state"] in {"waiting", "reading"}:
            self._sleep(_BETWEEN_LOOKS)
            made = self._json("GET", path)
        if made["state"] == "asking":
            self._json("DELETE", path)
            raise InvalidError(422, "\n".join(filter(None, [made["summary"], *made["faults"]])))
        return cast(types.Imported, made)

    def _json(self, method: str, path: str, body: Any = None, **query: Query) -> Any:
        sent: dict[str, Any] = {} if body is None else {"json": body}
        return self._answer(method, path, params=_said(query), **sent)

    def _answer(self, method: str, path: str, **request: Any) -> Any:
        with self._sent(method, path, **request) as response:
            with _reaching():
                content = response.read()
            try:
                return json.loads(content) if content else None
            except ValueError as error:
                raise ApiError(
                    response.status_code, f"The answer is not JSON. Is this LLM-PO: {response.url}?"
                ) from error

    @contextmanager
    def _sent(self, method: str, path: str, **request: Any) -> Iterator[httpx2.Response]:
        """The answer to a request, sent until the server has time for it. Its body is still to be read."""
        reads = method == "GET"
        again = (*_BUSY, *_BROKEN) if reads else _BUSY
        for tries in range(self._retries + 1):
            last = tries == self._retries
            try:
                with _reaching():
                    response = self._http.send(self._http.build_request(method, path, **request), stream=True)
            except UnreachableError as error:
                # A write may have had its effect unless there was no connection at all.
                may_pass = isinstance(error.__cause__, _CUT if reads else httpx2.ConnectError)
                if last or not may_pass or _is_wrong_address(error):
                    raise
                self._sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
                continue
            with closing(response):
                if response.is_success:
                    yield response
                    return
                with _reaching():
                    refusal = error_of(
                        response.status_code, response.read(), response.headers.get("Location")
                    )
                wait = _wait(response, tries)
            if response.status_code not in again or last or wait > self._most_wait:
                raise refusal
            self._sleep(wait)


@contextmanager
def _reaching() -> Iterator[None]:
    try:
        yield
    except httpx2.TransportError as error:
        raise UnreachableError(f"There is no answer from the server: {error}") from error


def _is_wrong_address(error: BaseException | None) -> bool:
    """True if nobody knows the host, or it cannot prove that it is this one: no later try helps."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        if isinstance(error, socket.gaierror):
            # EAI_AGAIN instead is of a name server that does not answer.
            return error.errno == socket.EAI_NONAME
        error = error.__cause__ or error.__context__
    return False


def _wait(response: httpx2.Response, tries: int) -> float:
    """Seconds until the next try: those of Retry-After, or more each time."""
    asked = response.headers.get("Retry-After", "")
    return float(asked) if asked.isdigit() else _PAUSES[min(tries, len(_PAUSES) - 1)]


def _said(query: Mapping[str, Query]) -> dict[str, str]:
    return {name: str(int(each)) if isinstance(each, bool) else str(each) for name, each in query.items()}
