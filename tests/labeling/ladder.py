"""Who may do what at every address: the table from which the ladder of tests is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from engine.models import Experiment, Invitation, Judgment, Membership, Subscription, User
from engine.services.notifications import subscribe
from engine.services.people import create_invitation
from engine.services.tokens import make_token
from tests.factories import add_member, click, make_user

ROLES = ("stranger", "annotator", "viewer", "editor", "owner", "admin")
GET = frozenset({"get", "head"})
POST = frozenset({"post"})


def _of_experiment(experiment: Experiment) -> list[Any]:
    return [experiment.pk]


def _of_judgment(experiment: Experiment) -> list[Any]:
    return [experiment.pk, judged(experiment).pk]


def _of_answer(experiment: Experiment) -> list[Any]:
    return [experiment.pk, judged(experiment).token]


def _of_comparison(experiment: Experiment) -> list[Any]:
    return [experiment.pk, judged(experiment).comparison_id]


def _of_invitation(experiment: Experiment) -> list[Any]:
    return [invited(experiment).token]


def _of_membership(experiment: Experiment) -> list[Any]:
    return [experiment.pk, add_member(experiment, make_user(), "viewer").pk]


def _of_own_invitation(experiment: Experiment) -> list[Any]:
    return [experiment.pk, invited(experiment).pk]


def _of_subscription(experiment: Experiment) -> list[Any]:
    return [experiment.pk, subscribed(experiment).pk]


def _of_admins_token(experiment: Experiment) -> list[Any]:
    user = User.objects.filter(username="admin").first() or make_user("admin")
    return [make_token(user=user, name="a token", valid_days=1)[0].pk]


def _of_a_person(experiment: Experiment) -> list[Any]:
    return [make_user().pk]


def _of_a_start(experiment: Experiment) -> list[Any]:
    return ["blank"]


@dataclass(frozen=True)
class Endpoint:
    """An address, the methods it takes, and the status that each role gets from a request without a body."""

    name: str
    methods: frozenset[str]
    statuses: dict[str, int]
    arguments: Callable[[Experiment], list[Any]] | None = _of_experiment
    public: bool = False

    @property
    def method(self) -> str:
        return "get" if "get" in self.methods else "post"

    @property
    def of_experiment(self) -> bool:
        return self.arguments in {
            _of_answer,
            _of_comparison,
            _of_experiment,
            _of_judgment,
            _of_membership,
            _of_own_invitation,
            _of_subscription,
        }

    @property
    def allowed_roles(self) -> list[str]:
        return [role for role in ROLES if self.statuses.get(role, 404) != 404]


def address(endpoint: Endpoint, experiment: Experiment) -> str:
    """Where this endpoint is for this experiment; what it needs to exist is made."""
    return reverse(endpoint.name, args=endpoint.arguments(experiment) if endpoint.arguments else [])


def judged(experiment: Experiment) -> Judgment:
    """A judgment by the experiment's first annotator, who is invented where there is none."""
    member = experiment.memberships.filter(role=Membership.Role.ANNOTATOR).order_by("pk").first()
    return click(experiment, (member or add_member(experiment, make_user())).user)


def invited(experiment: Experiment, role: str = "annotator", most_uses: int = 1, **fields: Any) -> Invitation:
    """An invitation that nobody has used, by somebody who may do everything; ``token`` is its link's secret."""
    by = User.objects.filter(username="inviter").first() or make_user("inviter", is_superuser=True)
    invitation, secret = create_invitation(
        experiment=experiment, by=by, role=role, most_uses=most_uses, valid_days=1
    )
    if fields:
        Invitation.objects.filter(pk=invitation.pk).update(**fields)
        invitation.refresh_from_db()
    invitation.token = secret
    return invitation


def subscribed(
    experiment: Experiment,
    kind: str = "email",
    target: str = "ann@example.org",
    events: tuple[str, ...] = ("concluded", "stalled", "unhealthy"),
) -> Subscription:
    """Somebody who is told of the experiment's news."""
    by = User.objects.filter(username="subscriber").first() or make_user("subscriber")
    return subscribe(experiment=experiment, by=by, kind=kind, target=target, events=events)


def _everybody(status: int) -> dict[str, int]:
    return dict.fromkeys(ROLES, status)


_RUNNERS = ("editor", "owner", "admin")
_WATCHERS = {"viewer": 200, "editor": 200, "owner": 200, "admin": 200}

# Without a body, a POST that its role may make is answered with 400, or, where an empty one makes sense or
# the page that it leads back to says what is wrong, with 302.
LADDER = (
    Endpoint("home", GET, _everybody(200), arguments=None),
    Endpoint("pair", GET, {"annotator": 200}),
    Endpoint("judge", POST, {"annotator": 400}),
    Endpoint("skip", POST, {"annotator": 400}),
    Endpoint("flag", POST, {"annotator": 400}),
    Endpoint("undo", POST, {"annotator": 302}),
    Endpoint("beat", POST, {"annotator": 400}),
    Endpoint("leave", POST, {"annotator": 400}),
    Endpoint("history", GET, {"annotator": 200}),
    Endpoint("reopen", POST, {"annotator": 302}, arguments=_of_answer),
    Endpoint("welcome", GET, {"annotator": 200}),
    Endpoint("join", GET, _everybody(302), arguments=_of_invitation, public=True),
    # In a session that followed no link there is nothing to accept.
    Endpoint("accept_invitation", GET | POST, _everybody(410), arguments=None, public=True),
    Endpoint("invite", POST, {"editor": 400, "owner": 400, "admin": 400}),
    Endpoint("new_experiment", GET | POST, {"admin": 200}, arguments=None),
    Endpoint("new_from", GET | POST, {"admin": 200}, arguments=_of_a_start),
    # Of one that runs the setup is fixed: the dashboard says so.
    Endpoint("setup", GET | POST, {"editor": 302, "owner": 302, "admin": 302}),
    Endpoint("setup_file", GET, _WATCHERS),
    Endpoint("delete_draft", GET | POST, {"owner": 302, "admin": 302}),
    Endpoint("dashboard", GET, _WATCHERS),
    Endpoint("dashboard_live", GET, _WATCHERS),
    Endpoint("dashboard_charts", GET, _WATCHERS),
    Endpoint("without", GET | POST, _WATCHERS),
    Endpoint("change_state", POST, {"editor": 400, "owner": 400, "admin": 400}),
    Endpoint("experiment_settings", GET, dict.fromkeys(_RUNNERS, 200)),
    Endpoint("change_settings", POST, dict.fromkeys(_RUNNERS, 400)),
    Endpoint("clone", POST, {"editor": 403, "owner": 403, "admin": 400}),
    Endpoint("log", GET, _WATCHERS),
    Endpoint("people", GET, dict.fromkeys(_RUNNERS, 200)),
    Endpoint("change_role", POST, {"owner": 400, "admin": 400}, arguments=_of_membership),
    Endpoint("remove_member", POST, {"owner": 302, "admin": 302}, arguments=_of_membership),
    Endpoint("end_invitation", POST, dict.fromkeys(_RUNNERS, 302), arguments=_of_own_invitation),
    Endpoint("subscribe", POST, dict.fromkeys(_RUNNERS, 400)),
    Endpoint("unsubscribe", POST, dict.fromkeys(_RUNNERS, 302), arguments=_of_subscription),
    Endpoint("send_test", POST, dict.fromkeys(_RUNNERS, 302), arguments=_of_subscription),
    Endpoint("tokens", GET | POST, _everybody(200), arguments=None),
    Endpoint("revoke_token", POST, {"admin": 302}, arguments=_of_admins_token),
    Endpoint("change_llm_judge", POST, {"editor": 400, "owner": 400, "admin": 400}),
    Endpoint("judgments_csv", GET, _WATCHERS),
    Endpoint("judgments_jsonl", GET, _WATCHERS),
    Endpoint("judgments_parquet", GET, _WATCHERS),
    Endpoint("dpo_jsonl", GET, _WATCHERS),
    Endpoint("export", GET, _WATCHERS),
    Endpoint("comparisons", GET, _WATCHERS),
    Endpoint("comparison", GET, _WATCHERS, arguments=_of_comparison),
    Endpoint("void", POST, {"editor": 302, "owner": 302, "admin": 302}, arguments=_of_judgment),
    Endpoint("restore", POST, {"editor": 302, "owner": 302, "admin": 302}, arguments=_of_judgment),
    Endpoint("persons", GET, {"admin": 200}, arguments=None),
    Endpoint("person", GET | POST, {"admin": 200}, arguments=_of_a_person),
    Endpoint("data_of_person", GET, {"admin": 200}, arguments=_of_a_person),
    Endpoint("own_data", GET, _everybody(200), arguments=None),
    Endpoint("void_annotator", POST, {"editor": 302, "owner": 302, "admin": 302}),
)
