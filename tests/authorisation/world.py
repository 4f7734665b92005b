"""Everybody and everything that the matrix needs, made once, and canaries: texts that only some roles may
ever read.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookies import SimpleCookie
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from engine.domain.material_kinds import Material
from engine.domain.specs import ExperimentSpec, FactorSpec, GoldSpec, TaskSpec
from engine.models import Connection, Experiment, Invitation, Membership, Subscription, Token, User
from engine.services.connection_loans import lend
from engine.services.connections import make as make_connection
from engine.services.drafts import create_experiment
from engine.services.experiments import pause, start, stop
from engine.services.invitation_mails import invite_by_mail
from engine.services.invitations import create_invitation
from engine.services.judging import record_answer
from engine.services.notifications import subscribe
from engine.services.people import remove_member
from engine.services.planning import advance
from engine.services.publications import add_destination
from engine.services.reports import share_report
from engine.services.tokens import make_token
from engine.services.uploads import keep_upload
from tests.accounts import log_in_recently
from tests.authorisation.table import OUTSIDERS, ROLES, TOKENS, is_api
from tests.backends import ScriptedBackend
from tests.factories import add_member, assign, write_responses

_SUPERUSER = frozenset({"superuser"})
_OWNERS = frozenset({"owner", "superuser"})
_RUNNERS = _OWNERS | {"editor"}
_WATCHERS = _RUNNERS | {"viewer"}
_NOBODY: frozenset[str] = frozenset()

_JSON = "application/json"
# No shorter one is told from chance.
_SHORTEST_CANARY = 8

# Rights to read in one's own running experiment; in another one only a superuser may read anything. A token
# reads what the role does in whose place it acts.
MAY_READ = {
    "the names of the policies": _WATCHERS,
    "a prompt": _WATCHERS,
    "a reference answer": _WATCHERS,
    "the rubric": _WATCHERS,
    # docs/blinding.md: it seeds the choice of pairs only, and says nothing of sides and checks.
    "the seed": _WATCHERS,
    "the secret behind sides and checks": _NOBODY,
    # docs/privacy.md: pages name people; exports do where an owner asks.
    "another annotator's name": _WATCHERS,
    "another annotator's comment": _WATCHERS,
    "another annotator's e-mail address": _SUPERUSER,
    # The URL of many a webhook is a password: its path is told to nobody, and its host is in the log.
    "a webhook's path": _NOBODY,
    "a webhook's host": _WATCHERS,
    "a webhook's secret": _NOBODY,
    "a subscriber's e-mail address": _RUNNERS,
    "an invited person's e-mail address": _RUNNERS,
    "the link that invites an annotator": _NOBODY,
    "the link that invites an owner": _NOBODY,
    # By its hint a link is recognised, and its row leads to the button that ends it.
    "the hint of an annotator's invitation": _RUNNERS,
    "the hint of an owner's invitation": _OWNERS,
    "an API token's secret": _NOBODY,
    "the link to the report": _NOBODY,
    "a vendor's key": _NOBODY,
    "the sealed key": _NOBODY,
    "a header of a connection": _SUPERUSER,
    "a destination's path": _NOBODY,
    "a destination's host": _WATCHERS,
    "a destination's key": _NOBODY,
    "the sealed key of a destination": _NOBODY,
    "a response": _WATCHERS | {"annotator"},
    "the guidelines": _WATCHERS | {"annotator"},
}


def routes(patterns: list[URLPattern | URLResolver] | None = None, before: str = "") -> Iterator[str]:
    """Every route of the URLconf, without converters, and without what is special to regular expressions."""
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        part = re.sub(r"\(\?P(<\w+>)[^)]*\)", r"\1", str(pattern.pattern)).removeprefix("^").removesuffix("$")
        route = before + re.sub(r"<\w+:(\w+)>", r"<\1>", part)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, route)
        else:
            yield route


@dataclass(frozen=True)
class Place:
    """One experiment, its things by the parameter that names them, and its canaries."""

    experiment: Experiment
    things: dict[str, Any]
    canaries: dict[str, str]


class World:
    """An experiment with one person per role, another one without them, and callers for all."""

    def __init__(self) -> None:
        names = [*(role for role in ROLES if role != "anonymous"), "both", "token holder"]
        self.users = {name: User.objects.create(username=f"the-{name.replace(' ', '-')}") for name in names}
        User.objects.filter(username__in=("the-superuser", "the-token-holder")).update(
            is_staff=True, is_superuser=True
        )
        for user in self.users.values():
            user.refresh_from_db()
        self.own = self._place("own")
        self.other = self._place("foreign")
        self.by_state = {"running": self.own.experiment} | {
            state: self._bare(state) for state in ("draft", "paused", "concluded")
        }
        self.by_state["by rule"] = self._bare("by rule", judge="rule")
        for role in ("annotator", "viewer"):
            add_member(self.own.experiment, self.users["both"], role)
        for role in ("annotator", "owner"):
            add_member(self.own.experiment, self.users["deactivated"], role)
            member = add_member(self.own.experiment, self.users["removed"], role)
            remove_member(membership_id=member.pk, by=self.users["owner"])
        self._make_tokens()
        self.uploads = {
            name: keep_upload(
                user=self.users[name],
                material=Material.VOTES,
                name="",
                file_name="a.csv",
                data=b"item,left one\nT,P\n",
            )
            for name in ("superuser", "token holder", "stranger")
        }
        # One for all: each new one loads all middleware anew, which takes longer than most requests.
        self._client = Client(raise_request_exception=False)
        self._cookies, self._stale_cookies = {}, {}
        for cookies, seconds_ago in ((self._cookies, 0), (self._stale_cookies, 10**6)):
            for role, user in self.users.items():
                client = Client()
                client.force_login(user)
                log_in_recently(client, user, seconds_ago)
                cookies[role] = client.cookies[settings.SESSION_COOKIE_NAME].value
        User.objects.filter(pk=self.users["deactivated"].pk).update(is_active=False)

    def _make_tokens(self) -> None:
        """One with every scope for each person, and those of ``TOKENS``,
        which can do less than their owner.
        """
        bound = {"": None, "own": self.own.experiment, "elsewhere": self.by_state["paused"]}
        holder = self.users["token holder"]
        self.tokens, secrets = {}, {}
        for role, user in self.users.items():
            self.tokens[role], secrets[role] = make_token(
                user=user, name=f"of {role}", valid_days=1, scopes=Token.Scope.values
            )
        for role, kind in TOKENS.items():
            self.tokens[role], secrets[role] = make_token(
                user=holder, name=role, valid_days=1, scopes=kind.scopes, experiment=bound[kind.bound]
            )
        self.own.canaries["an API token's secret"] = secrets["owner"]
        self.other.canaries["an API token's secret"] = secrets["stranger"]
        self._headers = {role: {"Authorization": f"Bearer {secret}"} for role, secret in secrets.items()}

    def session_of(self, role: str, *, recent: bool = True) -> SimpleCookie[str]:
        """The cookies of somebody who logged in a moment ago, or some days ago."""
        keys = self._cookies if recent else self._stale_cookies
        return SimpleCookie({settings.SESSION_COOKIE_NAME: keys[role]})

    # ------------------------------------------------------------ requests

    def arguments(self, route: str, role: str, place: str) -> dict[str, Any]:
        """A value for every parameter of a route."""
        somewhere = self.own if place == "own" else self.other
        values = somewhere.things | {
            "experiment_id": (self.other if place == "other" else self.own).experiment.pk,
            "token_id": self.tokens[role if place == "own" and role in self.tokens else "deactivated"].pk,
            "start": "blank",
            "name": "dashboard",
            "upload_id": self.uploads[
                "stranger" if place != "own" else "token holder" if role in TOKENS else "superuser"
            ].pk,
            "action": "pause",
            # Secrets of accounts that nobody was sent
            "uidb36": "1",
            "key": "no-key",
            "provider_id": "sso",
            # Secrets of Django's admin site
            "object_id": 1,
            "content_type_id": 1,
            "id": 1,
            "app_label": "engine",
            "url": "nothing",
        }
        if place == "own" and role != "annotator":
            values["judgment_id"] = somewhere.things["judgment_of_another"]
        if route.startswith("join/"):
            values["token"] = somewhere.things["link"]
        if route.startswith("report/"):
            values["token"] = somewhere.things["report"]
        return values

    def path(self, route: str, role: str, place: str) -> str:
        arguments = self.arguments(route, role, place)
        return "/" + re.sub(r"<(\w+)>", lambda parameter: str(arguments[parameter[1]]), route)

    def call(
        self,
        role: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        client: Client | None = None,
        recent: bool = True,
    ) -> HttpResponse:
        """One request, after which everything is as it was before. The answer is read to its end.

        ``recent``: of a browser in which the person logged in a moment ago.
        """
        client = client or self._client
        options: dict[str, Any] = {"headers": dict(headers or {})}
        if is_api(path[1:]):
            options["headers"] |= self._headers.get(role, {})
            if body is not None and method in {"post", "patch"}:
                files = {
                    name: SimpleUploadedFile(*each) for name, each in body.items() if type(each) is tuple
                }
                options |= {"data": body | files} if files else {"data": body, "content_type": _JSON}
        elif body is not None:
            options["data"] = body
        client.cookies = (
            self.session_of(role, recent=recent)
            if role in self._cookies and not is_api(path[1:])
            else SimpleCookie()
        )
        with transaction.atomic():
            response = getattr(client, method)(path, **options)
            response.said = [path, *(str(value) for values in _fields(body).values() for value in values)]
            response.text_read = b"".join(response) if response.streaming else response.content
            transaction.set_rollback(True)
        return response

    @contextmanager
    def visit(self, role: str) -> Iterator[Client]:
        """A browser for several requests, after which everything is as it was before."""
        client = Client(raise_request_exception=False)
        if role in self._cookies:
            client.cookies = self.session_of(role)
        with transaction.atomic():
            yield client
            transaction.set_rollback(True)

    def may_read(self, role: str, name: str) -> bool:
        """True if this canary of their own experiment is for people in this role."""
        if role in TOKENS:
            return bool(set(TOKENS[role].reads_as) & MAY_READ[name])
        return role in MAY_READ[name]

    def may_read_of_others(self, role: str, name: str) -> bool:
        """True if this canary of an experiment is for people in this role of another one."""
        everywhere = role == "superuser" or (role in TOKENS and not TOKENS[role].bound)
        return everywhere and self.may_read(role, name)

    def leaks(self, role: str, response: HttpResponse, told: Sequence[str] = ()) -> list[str]:
        """The canaries in an answer that this role may not read, except those ``told`` on purpose."""
        content = response.text_read + str(dict(response.headers)).encode()
        # A link to join is no secret for the request that opens it.
        for said in response.said:
            content = content.replace(said.encode(), b"") if len(said) >= _SHORTEST_CANARY else content
        found = [
            name
            for name, canary in self.own.canaries.items()
            if name not in told and not self.may_read(role, name) and canary.encode() in content
        ]
        return found + [
            f"{name}, of another experiment"
            for name, canary in self.other.canaries.items()
            if name not in told and not self.may_read_of_others(role, name) and canary.encode() in content
        ]

    # ------------------------------------------------------------ things

    def _add_people(self, experiment: Experiment) -> None:
        for role in Membership.Role.values:
            add_member(experiment, self.users[role], role)

    def _bare(self, state: str, **settings: Any) -> Experiment:
        experiment = create_experiment(spec=_spec(state, seed=1, **settings))
        self._add_people(experiment)
        if state != "draft":
            start(experiment_id=experiment.pk)
            advance(experiment_id=experiment.pk)
        if state in {"paused", "concluded"}:
            {"paused": pause, "concluded": stop}[state](experiment_id=experiment.pk)
        return experiment

    def _place(self, mark: str) -> Place:
        seed = {"own": 7_316_542_398_116_423, "foreign": 7_316_542_398_116_427}[mark]
        experiment = create_experiment(spec=_spec(mark, seed))
        zoe = User.objects.create(username=f"{mark}-zoe", email=f"{mark}-zoe@home.example")
        member = add_member(experiment, zoe)
        if mark == "own":
            self._add_people(experiment)
        start(experiment_id=experiment.pk)
        advance(experiment_id=experiment.pk)
        write_responses(ScriptedBackend(lambda request: f"{mark}-response {request.seed}"))
        holder = self.users["token holder"]
        add_member(experiment, holder)
        annotators = [zoe, holder, self.users["annotator"]] if mark == "own" else [holder, zoe]
        judgments = [
            _judge(experiment, annotator, f"{mark}-comment number {annotator.pk}") for annotator in annotators
        ]
        # The pages show what the planner has seen.
        advance(experiment_id=experiment.pk)
        write_responses(ScriptedBackend(lambda request: f"{mark}-response {request.seed}"))
        by = self.users["owner"] if mark == "own" else User.objects.create(username="foreign-owner")
        if mark != "own":
            add_member(experiment, by, Membership.Role.OWNER)
        hook, _ = (
            subscribe(experiment=experiment, by=by, kind=kind, target=target, events=list(Subscription.Event))
            for kind, target in (
                ("webhook", f"https://{mark}-hooks.example.org/{mark}-path"),
                ("email", f"{mark}-news@example.org"),
            )
        )
        invitations, links = {}, {}
        for role in (Membership.Role.ANNOTATOR, Membership.Role.OWNER):
            invitations[role], links[role] = create_invitation(
                experiment=experiment, by=by, role=role, most_uses=1, valid_days=1
            )
            # A hint of its own: the first characters of the link would be found by chance now and then.
            Invitation.objects.filter(pk=invitations[role].pk).update(hint=f"{mark[:4]}~{role[:6]}")
        invite_by_mail(
            experiment=experiment, by=by, role="viewer", addresses=[f"{mark}-guest@example.org"], valid_days=1
        )
        connection = make_connection(
            by=by,
            owner=None if mark == "own" else by,
            name=f"{mark}-model",
            provider="openai",
            model_id=f"{mark}-model-id",
            key=f"sk-{mark}-key-of-a-vendor-{mark[:4]}",
            headers={"X-Team": f"{mark}-team"},
        )
        lender = self.users["superuser"] if mark == "own" else by
        loan = lend(connection_id=connection.pk, experiment=experiment, by=lender)
        destination = add_destination(
            experiment=experiment,
            by=by,
            kind="webhook",
            address=f"https://{mark}-destination.example.org/{mark}-destination-path",
            name="",
            label="",
            key=f"{mark}-destination-key",
        )
        report, report_secret = share_report(experiment=experiment, by=by, valid_days=1)
        things = {
            "judgment_id": judgments[-1].pk,
            "judgment_of_another": judgments[0].pk,
            "token": judgments[-1].token,
            "token_of_another": judgments[0].token,
            "token_on_show_of_another": assign(experiment, zoe).token,
            "comparison_id": judgments[-1].comparison_id,
            "membership_id": member.pk,
            "user_id": zoe.pk,
            "subscription_id": hook.pk,
            "invitation_id": invitations["annotator"].pk,
            "link": links["annotator"],
            "link_id": report.pk,
            "connection_id": connection.pk,
            "loan_id": loan.pk,
            "destination_id": destination.pk,
            "report": report_secret,
            "number": experiment.policies.count(),
        }
        canaries = {
            "the names of the policies": f"{mark}-terse",
            "a prompt": f"{mark}-prompt",
            "a reference answer": f"{mark}-reference",
            "the rubric": f"{mark}-rubric",
            "the seed": str(seed),
            "the secret behind sides and checks": experiment.secret,
            "another annotator's name": zoe.username,
            "another annotator's comment": f"{mark}-comment number {zoe.pk}",
            "another annotator's e-mail address": zoe.email,
            "a webhook's path": f"{mark}-path",
            "a webhook's host": f"{mark}-hooks.example.org",
            "a subscriber's e-mail address": f"{mark}-news@example.org",
            "a webhook's secret": hook.secret,
            "an invited person's e-mail address": f"{mark}-guest@example.org",
            "the link that invites an annotator": links["annotator"],
            "the link that invites an owner": links["owner"],
            "the hint of an annotator's invitation": f"{mark[:4]}~annota",
            "the hint of an owner's invitation": f"{mark[:4]}~owner",
            "the link to the report": report_secret,
            "a vendor's key": f"sk-{mark}-key-of-a-vendor-{mark[:4]}",
            "the sealed key": Connection.objects.get(pk=connection.pk).sealed_key,
            "a header of a connection": f"{mark}-team",
            "a destination's path": f"{mark}-destination-path",
            "a destination's host": f"{mark}-destination.example.org",
            "a destination's key": f"{mark}-destination-key",
            "the sealed key of a destination": destination.sealed_key,
            "a response": f"{mark}-response",
            "the guidelines": f"{mark}-guidelines",
        }
        return Place(experiment, things, canaries)


def may_be_kept(response: HttpResponse) -> bool:
    """True if a browser or a proxy may keep an answer."""
    words = {word.strip() for word in response.get("Cache-Control", "").split(",")}
    return not {"private", "no-store"} <= words or "public" in words


def _fields(body: Any) -> dict[str, list[Any]]:
    """The values of a form; a body of the API's JSON has no fields."""
    if not isinstance(body, dict):
        return {}
    return {name: values if isinstance(values, list) else [values] for name, values in body.items()}


def people_inside() -> list[str]:
    """The roles that are logged in."""
    return [role for role in ROLES if role not in OUTSIDERS]


def _spec(mark: str, seed: int, **settings: Any) -> ExperimentSpec:
    # The other experiment has a policy more: its number leads nowhere in one's own.
    names = ("terse", "warm", "plain", *(["long"] if mark == "foreign" else []))
    levels = {f"{mark}-{name}": {"text": f"{mark}-prompt: be {name}"} for name in names}
    return ExperimentSpec(
        name=f"The {mark} experiment",
        factors=[FactorSpec("Prompt", "prompt", levels)],
        tasks=[TaskSpec(f"{mark}-task {number}", f"{mark}-reference {number}") for number in range(4)],
        settings={
            "seed": seed,
            "guidelines": f"{mark}-guidelines",
            "rubric": f"{mark}-rubric",
            "allow_tie": True,
        }
        | settings,
        gold=[GoldSpec(f"{mark}-gold", "right", "wrong", "Reason.")],
    )


def _judge(experiment: Experiment, annotator: User, comment: str) -> Any:
    token = assign(experiment, annotator).token
    return record_answer(
        experiment_id=experiment.pk, token=token, annotator=annotator, choice="left", comment=comment
    ).judgment
