"""One annotator's session with an experiment, and all that they could write down about each pair."""

import random
import re
from dataclasses import dataclass, field
from typing import Any

from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings
from django.urls import reverse

from engine.domain import secret_draws
from engine.models import Assignment, Comparison, Experiment, User
from engine.services.drafts import clone
from engine.services.experiments import start, stop
from engine.services.planning import advance
from tests import prompt
from tests.factories import make_experiment, make_user, write_responses
from tests.markup import stage

HTMX = {"HX-Request": "true"}
GOLD_RATE = 0.5
# Enough of each that an attacker who is right seven times in ten is told from one who guesses.
PAIRS = 200
# Headers that differ in every reply.
_CHANGING = {"Content-Length", "Date"}


@dataclass(frozen=True)
class Reply:
    """The measurable properties of a reply, apart from the texts of the pair."""

    status: int
    headers: tuple[tuple[str, str], ...]
    size: int
    queries: int
    body: bytes = b""


@dataclass
class Pair:
    """One pair: what is known of it to the annotator, and, for the test alone, what it was."""

    number: int
    token: str
    shown: Reply
    is_check: bool
    comparison: int | None = None
    """Its number, where it is a comparison. Attackers are given it, as they might count right."""
    lower_on_left: bool | None = None
    answered: Reply | None = None
    beat: Reply | None = None
    reloaded: Reply | None = None
    returned: Reply | None = None
    same_after_return: bool | None = None
    ahead: str | None = None
    """The pair that the server has for after it, asked for before the answer."""
    following: str | None = None
    """The pair in the reply to the answer."""


@dataclass
class Session:
    """A session's pairs in order, and what else its annotator knows:
    the source, their page, other exports.
    """

    experiment_id: int
    user_id: int
    username: str
    seed: int
    n_tasks: int
    pairs: list[Pair] = field(default_factory=list)
    clone_secret: str = ""
    clone_sides: dict[int, bool] = field(default_factory=dict)

    @property
    def comparisons(self) -> list[Pair]:
        return [pair for pair in self.pairs if not pair.is_check]


def play(n_policies: int) -> Session:
    """Judge pairs until there are enough of them, and of comparisons among them. Secrets are real ones."""
    user = make_user()
    n_tasks = 40
    with override_settings(BUFFER_MIN=60, BUFFER_MAX=60), prompt.late():
        experiment = make_experiment(
            n_policies=n_policies,
            n_tasks=n_tasks,
            n_gold=PAIRS,
            gold_rate=GOLD_RATE,
            delta=1e-9,
            annotators=(user,),
            seed=random.getrandbits(31),
            secret=secret_draws.new_secret(),
            ready=True,
        )
        session = Session(experiment.pk, user.pk, user.username, experiment.seed, n_tasks)
        _Player(session, experiment, user).play()
        _publish_a_clone(session, experiment)
    return session


class _Player:
    def __init__(self, session: Session, experiment: Experiment, user: User) -> None:
        self.session = session
        self.experiment = experiment
        self.user = user
        self.client = Client()
        self.client.force_login(user)

    def play(self) -> None:
        _, reply, token = self.show()
        while len(self.session.pairs) < PAIRS or len(self.session.comparisons) < PAIRS:
            pair = self.look_up(token, reply)
            self.session.pairs.append(pair)
            if len(self.session.pairs) <= PAIRS:
                self.probe(pair)
            if len(self.session.pairs) == PAIRS:
                # Enough for the checks; the comparisons that are still needed come faster without any.
                Experiment.objects.filter(pk=self.experiment.pk).update(gold_rate=0)
            choice = random.choice(["left", "right"])
            form = {"token": pair.token, "choice": choice}
            response, pair.answered = self.measured("post", "judge", form)
            token = pair.following = stage(response).get("token")
            reply = pair.answered
            if token is None:
                advance(experiment_id=self.experiment.pk)
                write_responses()
                _, reply, token = self.show()

    def probe(self, pair: Pair) -> None:
        """Everything an annotator may do to a pair before they answer it."""
        _, pair.beat = self.measured("post", "beat", {"token": pair.token})
        _, pair.returned = self.measured("post", "leave", {"token": pair.token})
        _, pair.reloaded, token = self.show()
        pair.same_after_return = token == pair.token
        ahead, _ = self.measured("get", "pair", {"after": pair.token})
        pair.ahead = stage(ahead).get("token")

    def show(self) -> tuple[HttpResponse, Reply, str | None]:
        response, reply = self.measured("get", "pair", {})
        return response, reply, stage(response).get("token")

    def measured(self, method: str, name: str, form: dict[str, Any]) -> tuple[HttpResponse, Reply]:
        with CaptureQueriesContext(connection) as queries:
            address = reverse(name, args=[self.experiment.pk])
            response = getattr(self.client, method)(address, form, headers=HTMX)
        return response, measure(response, len(queries))

    def look_up(self, token: str, reply: Reply) -> Pair:
        comparison = Assignment.objects.get(token=token).comparison
        return Pair(
            number=len(self.session.pairs),
            token=token,
            shown=reply,
            is_check=comparison is None,
            comparison=comparison and comparison.plan["number"],
            lower_on_left=comparison and comparison.i_on_left,
        )


def measure(response: HttpResponse, queries: int) -> Reply:
    """A reply without the texts of its pair and its token, which are the annotator's to see."""
    html = response.content.decode()
    html = re.sub(r'<p class="task-text".*?</p>|<div class="text".*?</div>', "", html, flags=re.DOTALL)
    headers = sorted((name, value) for name, value in response.headers.items() if name not in _CHANGING)
    return Reply(response.status_code, tuple(headers), len(html), queries, response.content)


def _publish_a_clone(session: Session, experiment: Experiment) -> None:
    """A clone that has concluded, whose exports the attacker may read."""
    owner = make_user()
    other = clone(experiment=experiment, by=owner, name=f"Clone of {experiment.name}")
    start(experiment_id=other.pk)
    for _ in range(PAIRS // 60 + 1):
        advance(experiment_id=other.pk)
        Comparison.objects.filter(experiment=other).exclude(state="discarded").update(state="discarded")
    stop(experiment_id=other.pk)
    other.refresh_from_db()
    session.clone_secret = other.secret
    session.clone_sides = {c.plan["number"]: c.i_on_left for c in other.comparisons.all()}
