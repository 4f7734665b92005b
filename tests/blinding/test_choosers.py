"""Somebody who would rather judge other pairs gets none instead of those that are open for them.

They leave, look anew, open a second tab, use the API, skip, wait and take back, over HTTP.
"""

import random
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from engine.models import Assignment
from engine.selectors.answers import newest_answer
from engine.services import serving
from engine.services.planning import advance
from engine.services.tokens import make_token
from engine.services.undos_and_skips import MOST_HELD, hold
from tests.factories import make_experiment, make_user, write_responses
from tests.markup import Markup, stage

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}
N_STEPS = 150


class Chooser:
    """An annotator with two tabs and a program."""

    def __init__(self, **settings: Any) -> None:
        self.user = make_user()
        self.experiment = make_experiment(
            ready=True, n_tasks=60, delta=1e-9, annotators=(self.user, make_user()), **settings
        )
        self.tabs = [Client(), Client()]
        for tab in self.tabs:
            tab.force_login(self.user)
        secret = make_token(user=self.user, name="t", valid_days=1, scopes=["annotate"])[1]
        self.program = Client(headers={"Authorization": f"Bearer {secret}"})

    def call(self, name: str, **form: Any) -> Any:
        tab = random.choice(self.tabs)
        act = tab.get if name == "pair" else tab.post
        return act(reverse(name, args=[self.experiment.pk]), form, headers=HTMX)

    def ask_program(self, name: str, **fields: Any) -> Any:
        address = f"/api/label/{self.experiment.pk}/{name}"
        return self.program.post(address, fields, content_type="application/json")

    def open_pairs(self) -> list[str]:
        """Their open pairs, in the order in which they were given."""
        pairs = Assignment.objects.filter(annotator=self.user, state="open").order_by("created_at")
        return [str(pair.token) for pair in pairs]


def tokens_in(reply: Any) -> list[str]:
    elements = Markup(reply.content.decode()).elements
    return [e.attributes["data-token"] for e in elements if "data-token" in e.attributes]


@pytest.mark.parametrize("settings", [{}, {"gold_rate": 0.3, "n_gold": 80}], ids=["plain", "gold"])
def test_whatever_a_chooser_does_what_is_open_comes_first(settings):
    chooser = Chooser(**settings)
    dice = random.Random(7)
    for _ in range(N_STEPS):
        act = dice.choice(["leave", "look", "ahead", "program", "skip", "judge", "undo", "beat", "wait"])
        before = chooser.open_pairs()
        if act == "look":
            assert [stage(chooser.call("pair")).get("token")] == (chooser.open_pairs()[:1] or [None])
        elif act == "ahead":
            place = dice.randrange(len(before)) if before else 0
            known = {"after": before[place]} if before else {}
            said = tokens_in(chooser.call("pair", ahead=MOST_HELD, **known))
            assert said == chooser.open_pairs()[place + 1 if before else 0 :][:MOST_HELD]
        elif act == "program":
            pair = chooser.ask_program("next").json()["pair"]
            assert [pair and pair["token"]] == (chooser.open_pairs()[:1] or [None])
        elif act in {"judge", "skip"} and before:
            # Any of those that they know: the others stay, in their order, before all that is new.
            chosen = dice.choice(before)
            form = {"token": chosen, "choice": "left", "reason": "task"}
            if act == "skip" and dice.random() < 0.8:
                continue
            chooser.call(act, **form) if dice.random() < 0.5 else chooser.ask_program(
                "judgments" if act == "judge" else "skip",
                **{key: form[key] for key in ("token", "choice" if act == "judge" else "reason")},
            )
            before.remove(chosen)
        elif act == "undo":
            newest = newest_answer(chooser.experiment, chooser.user)
            if newest is not None:
                chooser.call("undo", answer=newest.token)
        elif act in {"leave", "beat"}:
            chooser.call(act)
        elif act == "wait":
            for pair in Assignment.objects.filter(state="open"):
                pair.created_at -= hold()
                pair.expires_at -= 2 * hold()
                pair.save()
        after = chooser.open_pairs()
        kept = [token for token in after if token in before]
        assert kept == before, act
        if act != "undo":
            assert after[: len(before)] == before, act
        advance(experiment_id=chooser.experiment.pk)
        write_responses()


def test_nobody_else_is_given_what_a_chooser_left():
    chooser = Chooser()
    chooser.call("pair", ahead=MOST_HELD)
    chooser.call("leave")
    theirs = {each.comparison_id for each in Assignment.objects.filter(annotator=chooser.user)}
    other = chooser.experiment.memberships.exclude(user=chooser.user).get().user
    for assignment in serving.desk(experiment=chooser.experiment, annotator=other, n_wanted=MOST_HELD).pairs:
        assert assignment.comparison_id not in theirs


@pytest.mark.parametrize("by", ["page", "API"])
@pytest.mark.parametrize("act", ["judge", "skip"])
def test_nothing_in_the_reply_to_an_answer_was_chosen_after_it(by, act, monkeypatch):
    """The pair that came after an answer told somebody who was alone what the answered one was: a comparison
    that was judged made room in the buffer, and others came.
    """
    chooser = Chooser(gold_rate=0.3, n_gold=80)
    record = serving.answer if act == "judge" else serving.skip
    known: list[set[str]] = []

    def noted(**given: Any) -> Any:
        known.append(set(chooser.open_pairs()))
        return record(**given)

    monkeypatch.setattr(serving, record.__name__, noted)
    for number in range(12 if act == "judge" else 4):
        token = stage(chooser.call("pair"))["token"]
        if by == "page":
            ahead = number % 3 + 1
            reply = chooser.call(act, token=token, choice="left", reason="task", ahead=ahead)
            shown = tokens_in(reply)
        elif act == "judge":
            chooser.ask_program("judgments", token=token, choice="left")
            shown = [chooser.ask_program("next").json()["pair"]["token"]]
        else:
            chooser.ask_program("skip", token=token, reason="task")
            shown = [chooser.ask_program("next").json()["pair"]["token"]]
        assert shown
        assert set(shown) <= known[-1]
        advance(experiment_id=chooser.experiment.pk)
        write_responses()
