"""The rights at every address of the URLconf, one row each; test_matrix.py tries every cell.

A new address needs a row in ``TABLE`` under its route, as ``urls.py`` has it but without converters. A row
names, for each method that the address takes, the status that each role gets in its own experiment from a
request with the row's body, or with none. An empty POST that a role may make is answered with 400, or, where
it makes sense empty or leads back to a page that says what is wrong, with 302. Statuses that a row does not
name follow from ``expected``. A new parameter in a route needs a value in ``World.arguments``, and a new role
an entry in ``ROLES`` and in ``World``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Nobody is logged in, or the account was deactivated afterwards.
OUTSIDERS = ("anonymous", "deactivated")
# ``stranger`` belongs to no experiment; ``removed`` was owner and annotator of this one.
# Roles that may see the experiment: a right that one of them lacks there is answered with 403.
SEEING = ("annotator", "viewer", "editor", "owner", "superuser")
ROLES = (*OUTSIDERS, "stranger", "removed", *SEEING)


@dataclass(frozen=True)
class TokenKind:
    """A token of the API, of somebody who is superuser and annotator: it can do less than its holder.

    ``bound``: the only experiment that it reaches, the "own" one or one "elsewhere", or none.
    """

    scopes: tuple[str, ...]
    bound: str = ""

    def acts_as(self, scope: str) -> str:
        """The role whose statuses an operation with this scope has."""
        return "annotator" if scope == "annotate" else "superuser"

    @property
    def reads_as(self) -> tuple[str, ...]:
        return () if self.bound == "elsewhere" else tuple(map(self.acts_as, self.scopes))


# Callers of the API besides the people in ROLES, whose tokens have every scope and reach everything.
_EVERY_SCOPE = ("read", "annotate", "manage")
TOKENS = {f"{scope} token": TokenKind((scope,)) for scope in _EVERY_SCOPE} | {
    "bound token": TokenKind(_EVERY_SCOPE, "own"),
    "token bound elsewhere": TokenKind(_EVERY_SCOPE, "elsewhere"),
}
METHODS = ("get", "head", "post", "put", "patch", "delete", "options")
# In the role's experiment; in another one; in the role's own, with the ids of things in another one.
PLACES = ("own", "other", "mixed")

Statuses = Mapping[str, int]
Expectation = frozenset[int]


@dataclass(frozen=True)
class Row:
    """The expected status of each method, by role.

    ``elsewhere``: the same where the experiment, or the thing itself, is somebody else's; by default nobody
    but a superuser finds it. ``back_to_pair``: after logging in, an annotator whose click came too late is
    back at the pair, not at the click. ``recent``: the methods that need a recent login. ``scopes``: what a
    token needs for each method of the API. ``makes``: an experiment, which a token that is bound to one may
    not. ``unbound``: such a token may do nothing there. ``tells``: what the secret in the address lets
    anybody read who has it.
    """

    methods: Mapping[str, Statuses]
    bodies: Mapping[str, Any] = field(default_factory=dict)
    elsewhere: Mapping[str, Statuses] | None = None
    back_to_pair: bool = False
    recent: tuple[str, ...] = ()
    scopes: Mapping[str, str] = field(default_factory=dict)
    makes: bool = False
    unbound: bool = False
    tells: tuple[str, ...] = ()


def page(
    *,
    get: Statuses | None = None,
    post: Statuses | None = None,
    elsewhere: Mapping[str, Statuses] | None = None,
    recent: tuple[str, ...] = (),
) -> Row:
    methods = {"get": get, "head": get, "post": post}
    named = {name: statuses for name, statuses in methods.items() if statuses}
    return Row(named, elsewhere=elsewhere, recent=recent)


def click(status: int) -> Row:
    """An action of the annotator's page."""
    return Row({"post": judges(status)}, back_to_pair=True)


def operation(
    *,
    get: Statuses | None = None,
    post: Statuses | None = None,
    patch: Statuses | None = None,
    delete: Statuses | None = None,
    body: Any = None,
    changes: str = "manage",
    makes: bool = False,
    unbound: bool = False,
) -> Row:
    """An operation of the API. ``body`` goes with POST and PATCH, which need the scope ``changes``."""
    methods = {"get": get, "post": post, "patch": patch, "delete": delete}
    return Row(
        {name: statuses for name, statuses in methods.items() if statuses},
        {"post": body, "patch": body},
        scopes={"get": "read"} | dict.fromkeys(("post", "patch", "delete"), changes),
        makes=makes,
        unbound=unbound,
    )


def annotating(status: int, body: Any = None) -> Row:
    """An operation of the API for annotators."""
    return operation(post=judges(status), body=body, changes="annotate")


def everybody(status: int) -> Statuses:
    """All who are logged in."""
    return {role: status for role in ROLES if role not in OUTSIDERS}


def the_world(status: int) -> Statuses:
    return dict.fromkeys(ROLES, status)


def watchers(status: int) -> Statuses:
    return dict.fromkeys(("viewer", "editor", "owner", "superuser"), status)


def runners(status: int) -> Statuses:
    return dict.fromkeys(("editor", "owner", "superuser"), status)


def judges(status: int) -> Statuses:
    """Those who judge: annotators, and owners, who become annotators when they begin."""
    return dict.fromkeys(("annotator", "owner"), status)


def owners(status: int) -> Statuses:
    return dict.fromkeys(("owner", "superuser"), status)


def all_methods(status: int) -> Row:
    return Row(dict.fromkeys(METHODS, the_world(status)))


def form_page(get: int, post: int, **more: Any) -> Row:
    """A page of allauth's for all who are logged in: PUT does there what POST does."""
    methods = {"get": get, "head": get, "post": post, "put": post, "options": 200}
    return Row({method: everybody(status) for method, status in methods.items()}, **more)


def methods_for_the_world(**statuses: int) -> Row:
    return Row({method: the_world(status) for method, status in statuses.items()})


_EXPERIMENT = "experiments/<experiment_id>"
_LABEL = "label/<experiment_id>"
_MODEL = "models/<connection_id>"
_API = "api/experiments/<experiment_id>"
_API_LABEL = "api/label/<experiment_id>"
# A file with its name: the body is a form then.
_VOTES = {"material": "votes", "name": "x", "file": ("votes.csv", b"nothing")}
_NO_PAIR = {"token": "00000000-0000-4000-8000-000000000000"}

TABLE: dict[str, Row] = {
    # Accounts and everybody's pages
    "accounts/login/": Row(
        dict.fromkeys(("get", "head"), everybody(302) | {"anonymous": 200, "deactivated": 200})
        | dict.fromkeys(("post", "put"), everybody(302) | {"anonymous": 200, "deactivated": 200})
        | {"options": everybody(302) | {"anonymous": 200, "deactivated": 200}}
        | dict.fromkeys(("patch", "delete"), everybody(302) | {"anonymous": 405, "deactivated": 405})
    ),
    "accounts/logout/": methods_for_the_world(post=302, options=200),
    "accounts/": page(get=everybody(200)),
    "accounts/signup/": all_methods(404),
    # There are accounts.
    "accounts/first/<token>/": page(get=the_world(302), post=the_world(302)),
    "accounts/inactive/": methods_for_the_world(get=200, head=200, options=200),
    "accounts/everywhere/": page(post=everybody(302)),
    "accounts/keys/": page(get=everybody(200), post=everybody(400)),
    "accounts/guidelines/": page(post=everybody(204)),
    "accounts/email/": form_page(
        200, 302, recent=("post",), bodies={"post": {"email": "new@example.org", "action_add": ""}}
    ),
    "accounts/email/confirm/<key>/": methods_for_the_world(get=200, head=200, post=404, options=200),
    "accounts/password/change/": form_page(200, 200),
    # Who has a password is sent to the page that changes it.
    "accounts/password/set/": Row(dict.fromkeys(METHODS, everybody(302)), recent=("post",)),
    "accounts/password/reset/": page(get=the_world(200), post=the_world(200)),
    "accounts/password/reset/sent/": methods_for_the_world(get=200, head=200, options=200),
    "accounts/password/reset/<uidb36>-<key>/": all_methods(200),
    "accounts/confirm/": form_page(200, 200),
    # Without a second step there is no code to give, and nothing to turn off.
    "accounts/confirm/code/": Row(dict.fromkeys(METHODS, everybody(302))),
    "accounts/confirm/sso/": page(get=everybody(404)),
    "accounts/two-step/code/": all_methods(302),
    "accounts/two-step/on/": form_page(200, 200, recent=("get", "post")),
    "accounts/two-step/off/": Row(dict.fromkeys(METHODS, everybody(404))),
    "accounts/two-step/recovery/": Row(
        {"get": everybody(404), "head": everybody(404), "options": everybody(200)}
    ),
    "accounts/two-step/recovery/new/": form_page(200, 200, recent=("get", "post")),
    "accounts/linked/": form_page(200, 200),
    "accounts/linked/cancelled/": page(get=the_world(302)),
    # No provider is set up.
    "accounts/oidc/<provider_id>/login/": page(get=the_world(404), post=the_world(404)),
    "accounts/oidc/<provider_id>/login/callback/": page(get=the_world(404)),
    "language/": all_methods(302),
    "": page(get=everybody(200)),
    # A link leads to a page whose address is no secret; in a session without a link that page refuses.
    "join/<token>/": page(get=the_world(302), elsewhere={"get": the_world(302), "head": the_world(302)}),
    # Its annotators are told nothing by the report while the experiment runs.
    "report/<token>/": Row(
        dict.fromkeys(("get", "head"), the_world(200) | {"annotator": 403}),
        elsewhere=dict.fromkeys(("get", "head"), the_world(200)),
        tells=("the names of the policies",),
    ),
    "join/": page(get=the_world(410), post=the_world(410)),
    "tokens/": page(get=everybody(200), post=everybody(400), recent=("post",)),
    "tokens/<token_id>/revoke/": page(post=everybody(302), elsewhere={}, recent=("post",)),
    # The world has one of the site's, lent to one's own experiment, and one of somebody else.
    "models/": page(get=runners(200)),
    "models/new/": page(get={"superuser": 200}, post={"superuser": 400}, recent=("get",)),
    f"{_MODEL}/": page(get=runners(200)),
    f"{_MODEL}/change/": page(get={"superuser": 200}, post={"superuser": 400}, elsewhere={}, recent=("get",)),
    f"{_MODEL}/test/": page(post={"superuser": 302}, elsewhere={}),
    f"{_MODEL}/tested/": page(get={"superuser": 200}, elsewhere={}),
    f"{_MODEL}/rules/": page(post={"superuser": 302}, elsewhere={}),
    f"{_MODEL}/key/remove/": page(post={"superuser": 302}, elsewhere={}),
    # Superusers also retire what is somebody else's.
    f"{_MODEL}/retire/": page(post={"superuser": 302}),
    f"{_MODEL}/lend/": page(post={"superuser": 400}, elsewhere={}, recent=("post",)),
    f"{_MODEL}/loans/<loan_id>/end/": page(post={"superuser": 302}, elsewhere={}),
    "help/": page(get=the_world(200), elsewhere={"get": the_world(200), "head": the_world(200)}),
    "help/pictures/<name>": page(
        get=the_world(404), elsewhere={"get": the_world(404), "head": the_world(404)}
    ),
    "help/<name>/": page(get=the_world(200), elsewhere={"get": the_world(200), "head": the_world(200)}),
    "my-data.json": page(post=everybody(200)),
    # Pages of administrators
    "persons/": page(get={"superuser": 200}),
    "persons/<user_id>/": page(get={"superuser": 200}, post={"superuser": 400}, recent=("post",)),
    "persons/<user_id>/data.json": page(post={"superuser": 200}, recent=("post",)),
    # Annotating
    f"{_LABEL}/": page(get=judges(200)),
    f"{_LABEL}/begin/": click(302),
    f"{_LABEL}/judge/": click(400),
    f"{_LABEL}/skip/": click(400),
    f"{_LABEL}/undo/": click(302),
    f"{_LABEL}/beat/": click(204),
    f"{_LABEL}/leave/": click(204),
    f"{_LABEL}/history/": page(get=judges(200)),
    f"{_LABEL}/history/<token>/reopen/": Row({"post": judges(404) | {"annotator": 302}}, back_to_pair=True),
    f"{_LABEL}/welcome/": page(get=judges(200)),
    # Making experiments
    "experiments/new/": page(get={"superuser": 200}, post={"superuser": 400}),
    "experiments/new/votes/": page(get={"superuser": 200}, post={"superuser": 400}),
    # An upload is its uploader's alone.
    "experiments/new/columns/<upload_id>/": page(get={"superuser": 200}, post={"superuser": 200}),
    "experiments/new/<start>/": page(get={"superuser": 200}, post={"superuser": 400}),
    # The setup of a running experiment is fixed: everybody who watches may read it, and nobody changes it.
    f"{_EXPERIMENT}/setup/": page(get=watchers(200), post=runners(302)),
    # Only a draft can be tried: the page leads back to the setup.
    f"{_EXPERIMENT}/try/": page(get=runners(302), post=runners(302)),
    f"{_EXPERIMENT}/rehearsal/": page(get=runners(302), post=runners(302)),
    f"{_EXPERIMENT}/setup.yaml": page(get=watchers(200)),
    f"{_EXPERIMENT}/delete/": page(get=owners(302), post=owners(302), recent=("post",)),
    # Watching
    f"{_EXPERIMENT}/": page(get=watchers(200)),
    f"{_EXPERIMENT}/ranking.csv": page(get=watchers(200)),
    f"{_EXPERIMENT}/results.csv": page(get=watchers(200)),
    f"{_EXPERIMENT}/live/": page(get=watchers(200)),
    f"{_EXPERIMENT}/quality/": page(get=watchers(200)),
    f"{_EXPERIMENT}/quality/charts/": page(get=watchers(200)),
    f"{_EXPERIMENT}/method/": page(get=watchers(200)),
    f"{_EXPERIMENT}/method/live/": page(get=watchers(200)),
    f"{_EXPERIMENT}/method/charts/": page(get=watchers(200)),
    f"{_EXPERIMENT}/policies/<number>/": page(get=watchers(200)),
    f"{_EXPERIMENT}/policies/<number>/request.json": page(get=watchers(200)),
    f"{_EXPERIMENT}/policies/add/responses.csv": page(get=runners(200)),
    f"{_EXPERIMENT}/policies/add/": page(get=runners(200), post=runners(400)),
    f"{_EXPERIMENT}/policies/<number>/retire/": page(get=runners(200), post=runners(400)),
    f"{_EXPERIMENT}/improve/": page(get=runners(200), post=runners(400)),
    f"{_EXPERIMENT}/improve/live/": page(get=watchers(200)),
    f"{_EXPERIMENT}/improve/stop/": page(post=runners(302)),
    f"{_EXPERIMENT}/improve/proposals/<number>/": page(post=runners(400)),
    f"{_EXPERIMENT}/tasks/add/": page(get=runners(200), post=runners(400)),
    f"{_EXPERIMENT}/tasks/<number>/leave-out/": page(get=runners(200), post=runners(400)),
    f"{_EXPERIMENT}/without/": page(get=watchers(200), post=watchers(302)),
    f"{_EXPERIMENT}/log/": page(get=watchers(200)),
    f"{_EXPERIMENT}/comparisons/": page(get=watchers(200)),
    f"{_EXPERIMENT}/comparisons/<comparison_id>/": page(get=watchers(200)),
    f"{_EXPERIMENT}/export/": page(get=watchers(200)),
    f"{_EXPERIMENT}/remarks/": page(get=runners(200)),
    f"{_EXPERIMENT}/comparisons/<comparison_id>/remarks/done/": page(post=runners(400)),
    f"{_EXPERIMENT}/report/": page(get=watchers(200)),
    f"{_EXPERIMENT}/report/share/": page(post=runners(400)),
    f"{_EXPERIMENT}/report/<link_id>/end/": page(post=runners(302)),
    f"{_EXPERIMENT}/winner.yaml": page(get=watchers(404)),
    f"{_EXPERIMENT}/winner/": page(get=runners(200), post=runners(400), recent=("post",)),
    # Nothing has won.
    f"{_EXPERIMENT}/winner/<destination_id>/": page(get=runners(302), post=runners(302)),
    f"{_EXPERIMENT}/winner/<destination_id>/remove/": page(post=runners(302)),
    f"{_EXPERIMENT}/judgments.csv": page(post=watchers(200)),
    f"{_EXPERIMENT}/judgments.jsonl": page(post=watchers(200)),
    f"{_EXPERIMENT}/judgments.parquet": page(post=watchers(200)),
    f"{_EXPERIMENT}/dpo.jsonl": page(post=watchers(200)),
    f"{_EXPERIMENT}/reward.jsonl": page(post=watchers(200)),
    f"{_EXPERIMENT}/kto.jsonl": page(post=watchers(200)),
    f"{_EXPERIMENT}/lmarena.jsonl": page(post=watchers(200)),
    f"{_EXPERIMENT}/argilla.json": page(post=watchers(200)),
    f"{_EXPERIMENT}/huggingface.zip": page(post=watchers(200)),
    # Pairs of people are open: the log names their policies.
    f"{_EXPERIMENT}/events.jsonl": page(post=watchers(403)),
    # Running
    f"{_EXPERIMENT}/state/": page(post=runners(400)),
    f"{_EXPERIMENT}/stop-here/": page(post=runners(400)),
    f"{_EXPERIMENT}/settings/": page(get=runners(200)),
    f"{_EXPERIMENT}/settings/change/": page(post=runners(400)),
    f"{_EXPERIMENT}/settings/display/": page(post=runners(400)),
    f"{_EXPERIMENT}/settings/tell/": page(post=runners(302)),
    f"{_EXPERIMENT}/clone/": page(post={"editor": 403, "owner": 403, "superuser": 400}),
    f"{_EXPERIMENT}/llm-judge/": page(post=runners(400)),
    f"{_EXPERIMENT}/judgments/<judgment_id>/void/": page(get=runners(200), post=runners(400)),
    f"{_EXPERIMENT}/judgments/<judgment_id>/restore/": page(post=runners(302)),
    f"{_EXPERIMENT}/notifications/": page(post=runners(400)),
    f"{_EXPERIMENT}/notifications/<subscription_id>/remove/": page(post=runners(302)),
    f"{_EXPERIMENT}/notifications/<subscription_id>/test/": page(post=runners(302)),
    # People
    f"{_EXPERIMENT}/people/": page(get=runners(200)),
    f"{_EXPERIMENT}/guests.csv": page(get=runners(200)),
    f"{_EXPERIMENT}/people/groups/": page(post=owners(400), recent=("post",)),
    f"{_EXPERIMENT}/people/groups/<number>/remove/": page(post=owners(404), recent=("post",)),
    f"{_EXPERIMENT}/people/<membership_id>/role/": page(post=owners(400), recent=("post",)),
    f"{_EXPERIMENT}/people/<membership_id>/remove/": page(post=owners(302), recent=("post",)),
    f"{_EXPERIMENT}/annotators/<user_id>/": page(get=runners(200)),
    f"{_EXPERIMENT}/annotators/<user_id>/void/": page(get=runners(200), post=runners(400)),
    f"{_EXPERIMENT}/invitations/": page(get=runners(200), post=runners(400)),
    f"{_EXPERIMENT}/invitations/<invitation_id>/resend/": page(post=runners(302)),
    f"{_EXPERIMENT}/invitations/<invitation_id>/end/": page(post=runners(302)),
    # The API
    "api/": all_methods(404),
    "api/docs": all_methods(200),
    "api/openapi.json": all_methods(200),
    "api/experiments": operation(
        get=everybody(200),
        post=everybody(403) | {"superuser": 422},
        body={"name": "x", "factors": [], "tasks": []},
        makes=True,
    ),
    _API: operation(get=watchers(200), patch=runners(200), body={"budget": 3000}),
    f"{_API}/reopen": operation(post=runners(409), body={}),
    f"{_API}/actions/<action>": operation(post=runners(200)),
    f"{_API}/stop-on": operation(post=runners(409), body={"claim": "best"}),
    f"{_API}/policies": operation(post=runners(422), body={"levels": {}}),
    f"{_API}/policies/<number>/retire": operation(post=runners(200), body={"reason": "x"}),
    f"{_API}/tasks": operation(post=runners(200), body={"tasks": [{"prompt": "x", "reference": "y"}]}),
    f"{_API}/tasks/<number>/leave-out": operation(post=runners(200), body={"reason": "x"}),
    f"{_API}/gate": operation(
        post=runners(422), body={"texts": [{"factor": "none", "level": "x", "text": "y"}]}
    ),
    f"{_API}/improvement": operation(get=watchers(404), post=runners(422), body={"factor": "none"}),
    f"{_API}/improvement/stop": operation(post=runners(404)),
    f"{_API}/improvement/go-on": operation(post=runners(404), body={}),
    f"{_API}/improvement/certify": operation(post=runners(404)),
    f"{_API}/improvement/proposals/<number>/accept": operation(post=runners(404), body={}),
    f"{_API}/improvement/proposals/<number>/refuse": operation(post=runners(404), body={"reason": "x"}),
    f"{_API}/clone": operation(
        post={"editor": 403, "owner": 403, "superuser": 201}, body={"name": "A copy"}, makes=True
    ),
    f"{_API}/log": operation(get=watchers(200)),
    f"{_API}/ranking": operation(get=watchers(200)),
    f"{_API}/results/task": operation(get=watchers(200)),
    f"{_API}/results/tag": operation(get=watchers(200)),
    f"{_API}/quality": operation(get=watchers(200)),
    f"{_API}/winner.yaml": operation(get=watchers(404)),
    **{
        f"{_API}/{file}": operation(get=watchers(200))
        for file in (
            "judgments.csv",
            "judgments.jsonl",
            "judgments.parquet",
            "dpo.jsonl",
            "reward.jsonl",
            "kto.jsonl",
            "lmarena.jsonl",
            "argilla.json",
            "huggingface.zip",
        )
    },
    f"{_API}/events.jsonl": operation(get=watchers(403)),
    "api/sources/<name>": operation(post=everybody(403) | {"superuser": 422}, body={"name": ""}, makes=True),
    "api/imports": operation(post=everybody(403) | {"superuser": 202}, body=_VOTES, makes=True),
    "api/imports/<upload_id>": Row(
        {"get": {"superuser": 200}, "delete": {"superuser": 204}},
        elsewhere={},
        scopes={"get": "read", "delete": "manage"},
        unbound=True,
    ),
    f"{_API}/responses": operation(get=watchers(200)),
    f"{_API}/members": operation(
        get=runners(200), post={"owner": 403, "superuser": 422}, body={"username": "x", "role": "viewer"}
    ),
    f"{_API}/members/<membership_id>": operation(
        patch=owners(200), delete=owners(204), body={"role": "viewer"}
    ),
    f"{_API}/invitations": operation(get=runners(200), post=runners(201), body={"role": "annotator"}),
    f"{_API}/invitations/mailed": operation(
        post=runners(201), body={"role": "annotator", "addresses": ["name@example.org"]}
    ),
    # The one that the world has is a link without an address.
    f"{_API}/invitations/<invitation_id>/resend": operation(post=runners(409)),
    f"{_API}/invitations/<invitation_id>": operation(delete=runners(204)),
    "api/connections": operation(
        get=everybody(200),
        post=everybody(403) | {"superuser": 201},
        body={"name": "new", "provider": "openai", "model_id": "gpt-5"},
        unbound=True,
    ),
    "api/connections/<connection_id>": Row(
        {"get": runners(200), "patch": {"superuser": 200}, "delete": {"superuser": 204}},
        {"patch": {"at_once": 2}},
        elsewhere={"get": {"superuser": 200}},
        scopes={"get": "read", "patch": "manage", "delete": "manage"},
        unbound=True,
    ),
    "api/connections/<connection_id>/test": Row(
        {"post": {"superuser": 202}}, elsewhere={}, scopes={"post": "manage"}, unbound=True
    ),
    f"{_API_LABEL}/next": annotating(200, {}),
    f"{_API_LABEL}/judgments": annotating(404, _NO_PAIR | {"choice": "left"}),
    f"{_API_LABEL}/skip": annotating(404, _NO_PAIR | {"reason": "broken"}),
    f"{_API_LABEL}/undo": operation(post=judges(409) | {"annotator": 200}, changes="annotate"),
}

# Django's own pages, which tests/labeling/test_admin_site.py looks at: here, that nobody else gets in.
ADMIN_SITE = "admin/"
ADMIN_LOGIN = "admin/login/"


def is_api(route: str) -> bool:
    return route.startswith("api/")


def is_listed(route: str) -> bool:
    return route in TABLE or route.startswith(ADMIN_SITE)


def expected(route: str, role: str, method: str, place: str) -> Expectation:
    """The statuses with which this request may be answered."""
    if route.startswith(ADMIN_SITE):
        return frozenset({403} if route == ADMIN_LOGIN and role not in OUTSIDERS else {302})
    row = TABLE[route]
    if method not in row.methods:
        # A visitor who is not logged in may be told so first.
        return frozenset({405, 302} if role in OUTSIDERS and not is_api(route) else {405})
    if role in TOKENS and method in row.scopes:
        return frozenset({_of_token(route, row, TOKENS[role], method, place)})
    statuses = row.methods[method]
    if role in TOKENS:
        return frozenset({statuses["anonymous"]})
    not_there = 404 if role not in OUTSIDERS else 401 if is_api(route) else 302
    if "<experiment_id>" in route and role in SEEING and role not in statuses:
        seen = place != "other" or role == "superuser"
        return frozenset({403 if seen else not_there})
    return frozenset({_there(row, method, place, role).get(role, not_there)})


def _there(row: Row, method: str, place: str, role: str) -> Statuses:
    """The expected status of each role in this place; an absent role gets 404."""
    statuses = row.methods[method]
    if place != "own" and row.elsewhere is not None:
        return row.elsewhere.get(method, {})
    if place == "mixed" or (place == "other" and role != "superuser"):
        return {outsider: statuses[outsider] for outsider in OUTSIDERS if outsider in statuses}
    return statuses


def _of_token(route: str, row: Row, token: TokenKind, method: str, place: str) -> int:
    """The token's holder is superuser, and annotator in both experiments: what is refused is refused to the
    token.
    """
    scope = row.scopes[method]
    if scope not in token.scopes:
        return 403
    if "<experiment_id>" in route and token.bound not in {"", place}:
        return 404
    if row.unbound and token.bound:
        return 403
    if place == "mixed":
        return 404
    if row.makes and method == "post" and token.bound:
        return 403
    statuses = row.methods[method]
    if place != "own" and row.elsewhere is not None:
        statuses = row.elsewhere.get(method, {})
    return statuses.get(token.acts_as(scope), 404)
