"""Who may do what at every address: the table from which the ladder of tests is made."""

from __future__ import annotations

from dataclasses import dataclass

ROLES = ("stranger", "annotator", "viewer", "editor", "owner", "admin")


@dataclass(frozen=True)
class Endpoint:
    """An address, the method it takes, and the status that each role gets from a request without a body."""

    name: str
    method: str
    statuses: dict[str, int]
    of_experiment: bool = True

    @property
    def allowed_roles(self) -> list[str]:
        return [role for role in ROLES if self.statuses.get(role, 404) != 404]


def _everybody(status: int) -> dict[str, int]:
    return dict.fromkeys(ROLES, status)


_WATCHERS = {"viewer": 200, "editor": 200, "owner": 200, "admin": 200}

# Without a body, a POST that its role may make is answered with 400.
LADDER = (
    Endpoint("home", "get", _everybody(200), of_experiment=False),
    Endpoint("pair", "get", {"annotator": 200}),
    Endpoint("judge", "post", {"annotator": 400}),
    Endpoint("skip", "post", {"annotator": 400}),
    Endpoint("dashboard", "get", _WATCHERS),
    Endpoint("dashboard_live", "get", _WATCHERS),
    Endpoint("change_state", "post", {"editor": 400, "owner": 400, "admin": 400}),
    Endpoint("judgments_csv", "get", _WATCHERS),
)
