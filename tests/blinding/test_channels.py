"""A check answers as a comparison does, to everything an annotator does to it.

The same script is played against a comparison and against a gold pair, on the page and through the API. Their
transcripts are equal but for the texts of the pairs and their tokens.
"""

from __future__ import annotations

import copy
import itertools
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings
from django.urls import reverse
from django.utils import timezone

from engine.domain import secret_draws
from engine.models import Assignment, User
from engine.services import assignments, serving
from engine.services.experiments import discard_leftovers, pause, stop
from engine.services.planning import advance
from engine.services.setting_changes import reopen
from engine.services.tokens import make_token
from engine.services.undos_and_skips import MOST_HELD, hold
from engine.services.voids import void_annotator
from tests.factories import make_experiment, make_user, newest, write_responses

# Tables are made where a test asks for them; the worlds, which are made before, do not.
pytestmark = [
    pytest.mark.django_db,
    pytest.mark.postgres,
    pytest.mark.usefixtures("late_planner"),
]

_EXPERIMENT = re.compile(r"/label/\d+/")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SHOWN = re.compile(rf'data-token="({_UUID.pattern})"|"token": "({_UUID.pattern})"')
_TEXTS = re.compile(
    r'<p class="task-text".*?</p>|<div class="text".*?</div>|<dd dir="auto">.*?</dd>'
    r'|<p class="clamp-2" dir="auto">.*?</p>'
    r'|"(prompt|left|right|content)": "[^"]*"|<time.*?</time>|<h2 id="answer.*?</h2>'
    r'|csrfmiddlewaretoken" value="\w+"|X-CSRFToken": "\w+"'
    # The key of a browser's storage: by person and experiment.
    r'|data-store="[^"]*"'
    # Progress of the experiment; it depends on the sides of earlier pairs.
    r'|data-confidence="\d+"|data-left="[^"]*"|<progress .*?</progress>|<span id="left">.*?</span>',
    flags=re.DOTALL,
)

Step = Callable[["World"], Any]
Transcript = Callable[..., list[object]]


def secret_for(checks: dict[int, list[bool]]) -> str:
    """A secret under which the first pairs of these annotators are checks or comparisons as listed."""
    secrets = (secret_draws.new_secret() for _ in itertools.count())
    return next(
        secret
        for secret in secrets
        if all(
            (secret_draws.check_draw(secret, annotator, n) < 0.5) is is_check
            for annotator, listed in checks.items()
            for n, is_check in enumerate(listed)
        )
    )


class World:
    """An annotator, a colleague, and a pair on the annotator's screen of which the attacker wants to know the
    kind.

    ``first``: its token at first; ``token``: the one that it has now; ``shown``: those in the last reply.
    """

    def __init__(self, kind: str, api: bool) -> None:
        self.ann, self.colleague = make_user(), make_user()
        self.experiment = make_experiment(
            ready=True,
            n_tasks=40,
            n_gold=40,
            gold_rate=0.5,
            annotators=(self.ann, self.colleague),
            secret=secret_for(
                {
                    self.ann.pk: [False, True, True, False, kind == "check", *[False] * 5],
                    self.colleague.pk: [False],
                }
            ),
        )
        self.api = api
        self.client = Client()
        if api:
            secret = make_token(user=self.ann, name="t", valid_days=1, scopes=["annotate"])[1]
            self.headers = {"Authorization": f"Bearer {secret}"}
        else:
            self.client.force_login(self.ann)
            self.headers = {"HX-Request": "true"}
        self.heard: list[object] = []
        self.first = self.token = self._pair_of(kind)

    @contextmanager
    def anew(self) -> Iterator[World]:
        """This world as it was made: what is done to it is rolled back in the end."""
        cookies, self.heard, self.token = copy.deepcopy(self.client.cookies), [], self.first
        with transaction.atomic():
            yield self
            transaction.set_rollback(True)
        self.client.cookies = cookies

    def _pair_of(self, kind: str) -> str:
        """The annotator's fifth pair, which is of this kind, after two of either kind."""
        for is_check in (False, True, True, False):
            token = self._shown(is_check=is_check)
            serving.answer(experiment_id=self.experiment.pk, token=token, annotator=self.ann, choice="left")
        return str(self._shown(is_check=kind == "check"))

    def _shown(self, *, is_check: bool) -> uuid.UUID:
        shown = serving.show_next(experiment=self.experiment, annotator=self.ann)
        assert Assignment.objects.checks().filter(token=shown.token).exists() is is_check
        return shown.token

    def call(self, name: str, *parts: str, **fields: Any) -> HttpResponse:
        with CaptureQueriesContext(connection) as queries:
            if self.api:
                address = {"judge": "judgments", "pair": "next"}.get(name, name)
                response = self.client.post(
                    f"/api/label/{self.experiment.pk}/{address}",
                    data=fields,
                    content_type="application/json",
                    headers=self.headers,
                )
            else:
                method = self.client.get if name in {"pair", "history"} else self.client.post
                address = reverse(name, args=[self.experiment.pk, *parts])
                response = method(address, data=fields, headers=self.headers)
        text = response.content.decode()
        self.shown = [page or api for page, api in _SHOWN.findall(text)]
        assert response.status_code not in {401, 403, 404, 405, 429}, text
        for name_of_ours in (self.ann.username, self.experiment.name):
            text = text.replace(name_of_ours, "NAME")
        words = _EXPERIMENT.sub("/label/N/", _UUID.sub("T", _TEXTS.sub("", text)))
        self.heard.append((name, response.status_code, words, self.token in text))
        self.heard.append(len(queries))
        return response

    def colleague_works(self) -> None:
        serving.show_next(experiment=self.experiment, annotator=self.colleague)

    def passes(self, span: timedelta) -> None:
        """Of what the annotator holds or held; sweeps run."""
        for pair in Assignment.objects.filter(annotator=self.ann):
            pair.granted_at, pair.created_at = pair.granted_at - span, pair.created_at - span
            pair.expires_at -= span
            pair.save()
        discard_leftovers()

    def time_passes(self) -> None:
        past = timezone.now() - timedelta(seconds=1)
        Assignment.objects.filter(state="open", annotator=self.ann).update(expires_at=past)
        discard_leftovers()


def judge(world: World) -> None:
    world.call("judge", token=world.token, choice="right", comment="Because.")


def skip(world: World) -> None:
    world.call("skip", token=world.token, reason="task", comment="Odd.")


def look(world: World) -> None:
    world.call("pair")


def undo(world: World) -> None:
    world.call("undo", **newest(world.experiment, world.ann))


def history(world: World) -> None:
    world.call("history")


def open_from_history(world: World) -> None:
    world.call("reopen", world.first)


def own_data(world: World) -> None:
    """The file of one's own data, as far as it is about an experiment that goes on."""
    mine = world.client.post(reverse("own_data")).json()
    assert (mine["judgments"], mine["checks"], mine["pairs_shown"]) == ([], [], [])
    world.heard.append([each["answers"] for each in mine["answers_until_the_experiment_concludes"]])
    world.heard.append([each["sentence"].replace(world.ann.username, "NAME") for each in mine["log"]])


def void_all(world: World) -> None:
    """An editor voids all judgments of the annotator."""
    void_annotator(
        experiment_id=world.experiment.pk, annotator=world.ann, by=world.colleague, reason="In haste."
    )


def beat(world: World) -> None:
    world.call("beat")


def leave(world: World) -> None:
    world.call("leave")


def wait(world: World) -> None:
    world.time_passes()


def colleague(world: World) -> None:
    world.colleague_works()


def ahead(world: World) -> None:
    world.call("pair", after=world.token)


def several_ahead(world: World) -> None:
    world.call("pair", after=world.token, ahead=MOST_HELD)


def judge_and_take_several(world: World) -> None:
    world.call("judge", token=world.token, choice="right", ahead=3)


def grab(world: World) -> None:
    """Ask for more and more pairs, until none comes."""
    last = world.token
    for _ in range(MOST_HELD + 1):
        world.call("pair", after=last)
        last = world.shown[-1] if world.shown else last


def an_hour(world: World) -> None:
    """As long as one person may hold a pair, and a second."""
    world.passes(hold() + timedelta(seconds=1))


def half_an_hour(world: World) -> None:
    world.passes(hold() / 2 + timedelta(seconds=1))


def follow(world: World) -> None:
    """Go on with the pair of the last answer, which may have another token."""
    world.token = world.shown[0]


def wrong(world: World) -> None:
    world.call("judge", token=world.token, choice="tie")


def again(world: World) -> None:
    reopen(experiment_id=world.experiment.pk, by=None)
    # Both worlds have as much to show: what was ready for a comparison or a check is discarded.
    advance(experiment_id=world.experiment.pk)
    write_responses()


def the_end(world: World) -> None:
    stop(experiment_id=world.experiment.pk)


def a_pause(world: World) -> None:
    pause(experiment_id=world.experiment.pk)


SCRIPTS: dict[str, tuple[Step, ...]] = {
    "look at it again": (look, look),
    "answer": (judge,),
    "answer twice": (judge, judge),
    "skip twice": (skip, skip),
    "answer, and take several": (judge_and_take_several, look),
    "answer what is fetched ahead, and leave": (judge, leave, look, follow, judge, leave, look),
    "skip, and count the answers in the file of one's data": (skip, own_data),
    "answer, and count them": (judge, own_data),
    "take it back, and count them": (judge, undo, own_data),
    "an editor voids it, and count them": (judge, void_all, own_data, history),
    "skip and answer": (skip, judge),
    "ask for more": (grab, look),
    "leave, and ask for more": (leave, grab),
    "ask for several at once": (several_ahead, look),
    "leave, and ask for several at once": (leave, several_ahead, look),
    "leave, and look ahead": (leave, ahead, look),
    "hold it for too long": (beat, an_hour, look, judge),
    "hold it for too long, and beat": (an_hour, beat, look),
    "hold it for too long, and a colleague takes the next pair": (an_hour, colleague, judge),
    "leave it again and again": (leave, look, an_hour, leave, look),
    "hold it for too long, twice": (an_hour, look, an_hour, look),
    "a choice that is not offered": (wrong, look),
    "beat": (beat, beat, look),
    "leave and come back": (leave, look, judge),
    "leave, skip and come back": (leave, skip, look),
    "leave, and a colleague takes the next pair": (leave, colleague, judge),
    "stay away": (wait, look, judge),
    "stay away, and beat": (wait, beat, look),
    "stay away, and a colleague takes the next pair": (wait, colleague, judge, beat),
    "look it up": (judge, history),
    "take it back": (judge, undo),
    "take it back, and answer the old page": (judge, undo, judge),
    "take it back and look it up": (judge, undo, history),
    "take it back, and look ahead": (judge, undo, follow, ahead),
    "open it again from the list of answers, twice": (judge, open_from_history, open_from_history),
    "take it back twice, and hold it for long": (
        *(judge, undo, follow, half_an_hour, look),
        *(judge, undo, follow, half_an_hour, look),
    ),
    "the end": (the_end, look, judge, undo, history),
    "the end, and stay away": (the_end, wait, look),
    "the end, and again": (the_end, again, look, judge),
    "the end, and again, after leaving it": (leave, the_end, again, look, judge),
    "a pause": (a_pause, look, judge, undo),
    "a pause, and leave": (a_pause, leave, look),
}
# Actions that the API does not offer.
_PAGE_ONLY = {
    *(history, open_from_history, own_data, beat, leave),
    *(ahead, several_ahead, grab, judge_and_take_several),
}


@pytest.fixture(scope="module")
def worlds(django_db_setup: None, django_db_blocker: Any) -> Iterator[dict[tuple[str, bool], World]]:
    """A world of each kind, on the page and through the API: to make one takes longer than most scripts."""
    with django_db_blocker.unblock(), transaction.atomic():
        # A comparison uses up a ready pair and a check does not: there must be enough for either.
        with override_settings(BUFFER_MIN=12, BUFFER_MAX=12):
            made = {
                (kind, api): World(kind, api) for kind in ("check", "comparison") for api in (False, True)
            }
        yield made
        transaction.set_rollback(True)


@pytest.fixture
def transcript(worlds: dict[tuple[str, bool], World]) -> Transcript:
    def play(kind: str, script: tuple[Step, ...], *, api: bool) -> list[object]:
        with worlds[kind, api].anew() as world:
            for step in script:
                step(world)
        return world.heard

    return play


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_page_answers_the_same_for_a_check_and_a_comparison(name: str, transcript: Transcript):
    script = SCRIPTS[name]
    assert transcript("check", script, api=False) == transcript("comparison", script, api=False)


@pytest.mark.parametrize("name", [name for name, steps in SCRIPTS.items() if not _PAGE_ONLY & set(steps)])
def test_the_api_answers_the_same_for_a_check_and_a_comparison(name: str, transcript: Transcript):
    script = SCRIPTS[name]
    assert transcript("check", script, api=True) == transcript("comparison", script, api=True)


def test_a_pair_that_was_left_comes_before_a_new_one():
    """Else a reload would tell: a check is shown again, and a comparison might be passed over for a check."""
    ann = make_user()
    experiment = make_experiment(
        ready=True, n_tasks=40, n_gold=40, gold_rate=0.5, secret=secret_draws.new_secret(), annotators=(ann,)
    )
    for _ in range(12):
        shown = serving.show_next(experiment=experiment, annotator=ann)
        assert serving.show_next(experiment=experiment, annotator=ann) == shown
        assignments.leave(annotator=ann)
        assert serving.show_next(experiment=experiment, annotator=ann) == shown
        serving.answer(experiment_id=experiment.pk, token=shown.token, annotator=ann, choice="left")
        advance(experiment_id=experiment.pk)
        write_responses()


def test_a_check_waits_where_no_comparison_is_ready():
    """Otherwise a wait before a pair would show that the pair is not a check."""
    ann = make_user()
    experiment = make_experiment(planned=False, n_gold=40, gold_rate=0.5, repeat_rate=0.5, annotators=(ann,))
    assert serving.show_next(experiment=experiment, annotator=ann) is None
    assert not Assignment.objects.checks().filter(annotator=ann).exists()


def test_answers_on_the_first_page_count_checks_too():
    world = World("check", api=False)
    page = world.client.get(reverse("home")).content.decode()
    assert "4 judged by you" in page


def test_the_list_of_answers_holds_none_that_is_shown_again(annotator: User):
    """A repeat is of a judgment before the newest ten; the page must not help to recognise it."""
    experiment = make_experiment(
        ready=True, n_tasks=40, n_policies=2, repeat_rate=0.5, annotators=(annotator,)
    )
    client = Client()
    client.force_login(annotator)
    repeats = 0
    for _ in range(60):
        shown = serving.show_next(experiment=experiment, annotator=annotator)
        check = Assignment.objects.checks().filter(token=shown.token).first()
        if check is not None:
            repeats += 1
            page = client.get(reverse("history", args=[experiment.pk])).content.decode()
            assert str(check.repeated.token) not in page
            assert page.count("/reopen/") == 10
        serving.answer(experiment_id=experiment.pk, token=shown.token, annotator=annotator, choice="left")
        advance(experiment_id=experiment.pk)
        write_responses()
    assert repeats > 5


def test_numbers_of_rows_and_accounts_are_in_no_address_and_no_attribute():
    ann = make_user(id=77_777)
    experiment = make_experiment(
        ready=True, n_tasks=40, n_gold=9, gold_rate=0.5, annotators=(ann,), seed=987_654_321
    )
    client = Client()
    client.force_login(ann)
    for _ in range(4):
        shown = serving.show_next(experiment=experiment, annotator=ann)
        for name in ("pair", "history"):
            page = client.get(reverse(name, args=[experiment.pk])).content.decode()
            assert "77777" not in page
            assert "987654321" not in page
            # The experiment's own number is in its addresses; no other one is.
            numbers = set(re.findall(r"/(\d+)/", page))
            assert numbers == {str(experiment.pk)}
        serving.answer(experiment_id=experiment.pk, token=shown.token, annotator=ann, choice="left")
