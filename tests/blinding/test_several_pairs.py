"""Of several pairs that an annotator holds, hands back or took an answer back to, none shows its
kind.

The same script is played twice: all pairs are comparisons, or one of them is a check. What the annotator
hears is the same, the number of database queries included. Some scripts once told the two apart; the others
are drawn at random.
"""

import random
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext, override_settings
from django.utils import timezone

from engine.domain import secret_draws
from engine.domain.errors import EngineError
from engine.models import Comparison, Judgment
from engine.models import clock as engine_clock
from engine.selectors.answers import judged_today, newest_answer, own_answer, own_answers
from engine.services import assignments, serving
from engine.services.experiments import discard_leftovers, pause, start, stop
from engine.services.judging import record_judgment
from engine.services.undos_and_skips import MOST_HELD
from tests.factories import make_experiment, make_user, plan_and_write

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("late_planner")]

# What is done, and to which pairs: by the order in which the annotator came to know them.
Step = tuple[Any, ...]

_N_RANDOM = 24
# No name of a choice or a colleague here: those have scripts of their own, as a check takes no comparison
# from anybody.
_RANDOM_STEPS = (
    "look", "look", "look", "judge", "judge", "skip", "leave", "leave", "log_out", "beat", "undo", "reopen",
    "list_answers", "be_away", "be_away_before_a_sweep", "half_an_assignment", "an_hour",
)  # fmt: skip
_OF_ONE_PAIR = {"judge", "skip", "reopen"}


class Clock(datetime):
    """The time, which a test moves on."""

    ahead = timedelta(0)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return datetime.now(tz) + cls.ahead


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(timezone, "datetime", Clock)
    # PostgreSQL's clock cannot be moved; the engine looks at it each time, and sees this one.
    monkeypatch.setattr(engine_clock, "_look", lambda: (Clock.now(UTC), time.monotonic()))
    monkeypatch.setattr(engine_clock, "_LOOK_AGAIN_SECONDS", -1.0)
    monkeypatch.setattr(engine_clock, "_seen", None)
    yield
    Clock.ahead = timedelta(0)


class World:
    """An annotator, a colleague, and whatever the annotator heard."""

    def __init__(self, overlap: int = 1) -> None:
        self.ann, self.colleague = make_user(), make_user()
        # A check uses up no ready comparison: there must be enough for either world.
        with override_settings(BUFFER_MIN=12, BUFFER_MAX=12):
            self.experiment = make_experiment(
                ready=True,
                n_tasks=40,
                n_gold=40,
                gold_rate=0.5,
                overlap=overlap,
                annotators=(self.ann, self.colleague),
            )
        self.checks: set[int] = set()
        self.known: list[uuid.UUID] = []
        self.colleagues: list[uuid.UUID] = []
        self.heard: list[object] = []

    def draw(self, secret: str, annotator: int, number: int) -> float:
        return 0.0 if annotator == self.ann.pk and number in self.checks else 0.99

    def play(self, script: Sequence[Step], checks: set[int], monkeypatch: pytest.MonkeyPatch) -> list[object]:
        """The answers to the annotator if their pairs of these numbers are checks. Leaves nothing behind."""
        self.checks, self.known, self.colleagues, self.heard = checks, [], [], []
        Clock.ahead = timedelta(0)
        monkeypatch.setattr(secret_draws, "check_draw", self.draw)
        with transaction.atomic():
            for step in script:
                self.take(*step)
            transaction.set_rollback(True)
        return self.heard

    def take(self, name: str, *of: int) -> None:
        self.experiment.refresh_from_db()
        with CaptureQueriesContext(connection) as queries:
            try:
                said = getattr(self, name)(*of)
            except EngineError as refused:
                said = str(refused)
        if name in _RANDOM_STEPS and name not in {"be_away", "an_hour"}:
            self.heard.append((name, of, said, len(queries)))

    def token(self, number: int) -> uuid.UUID:
        return self.known[number % len(self.known)]

    def number(self, shown: serving.ShownPair | None) -> int | None:
        if shown is None:
            return None
        if shown.token not in self.known:
            self.known.append(shown.token)
        return self.known.index(shown.token)

    # ------------------------------------------------------------ what the annotator does

    def look(self, n_wanted: int = 1) -> list[int | None]:
        pairs = serving.desk(experiment=self.experiment, annotator=self.ann, n_wanted=n_wanted).pairs
        return [self.number(shown) for shown in serving.shown(self.experiment, pairs[:n_wanted])]

    def judge(self, number: int) -> bool:
        return serving.answer(
            experiment_id=self.experiment.pk, token=self.token(number), annotator=self.ann, choice="left"
        ).created

    def skip(self, number: int) -> None:
        serving.skip(
            experiment=self.experiment, token=self.token(number), annotator=self.ann, reason="cannot_tell"
        )

    def leave(self) -> None:
        assignments.leave(annotator=self.ann, experiment_id=self.experiment.pk)

    def log_out(self) -> None:
        assignments.leave(annotator=self.ann)

    def beat(self) -> None:
        assignments.stay(experiment_id=self.experiment.pk, annotator=self.ann)

    def undo(self) -> int | str | None:
        return self._take_back(newest_answer(self.experiment, self.ann))

    def reopen(self, number: int) -> int | str | None:
        return self._take_back(own_answer(self.experiment, self.ann, self.token(number)))

    def _take_back(self, answer: Judgment | None) -> int | str | None:
        if answer is None:
            return "nothing"
        return self.number(serving.take_back(experiment=self.experiment, answer=answer, annotator=self.ann))

    def list_answers(self) -> tuple[list[int], int]:
        answers = own_answers(self.experiment, self.ann)
        today = judged_today(self.experiment.pk, self.ann)
        return [self.known.index(answer.token) for answer in answers], today

    # ------------------------------------------------------------ what happens meanwhile

    def half_an_assignment(self) -> None:
        Clock.ahead += timedelta(seconds=150)

    def be_away_before_a_sweep(self) -> None:
        Clock.ahead += timedelta(seconds=301)

    def be_away(self) -> None:
        self.be_away_before_a_sweep()
        discard_leftovers()

    def an_hour(self) -> None:
        Clock.ahead += timedelta(seconds=3601)
        discard_leftovers()

    def pause_and_resume(self) -> None:
        pause(experiment_id=self.experiment.pk)
        start(experiment_id=self.experiment.pk)

    def the_end(self) -> None:
        stop(experiment_id=self.experiment.pk)

    def colleague_looks(self) -> None:
        n_wanted = len(self.colleagues) + 1
        pairs = serving.desk(experiment=self.experiment, annotator=self.colleague, n_wanted=n_wanted).pairs
        self.colleagues.append(pairs[-1].token)

    def colleague_judges(self) -> None:
        serving.answer(
            experiment_id=self.experiment.pk,
            token=self.colleagues.pop(),
            annotator=self.colleague,
            choice="left",
        )

    def model_votes(self) -> None:
        for comparison in Comparison.objects.filter(experiment=self.experiment, state="ready"):
            record_judgment(
                comparison=comparison, choice="left", judge="llm", via="model", token=uuid.uuid4()
            )


TWO: tuple[Step, ...] = (("look", 2),)
FULL: tuple[Step, ...] = (("look", MOST_HELD),)

# Script, how many people judge each comparison, and the number of the pair that is a check or not.
SCRIPTS: dict[str, tuple[tuple[Step, ...], int, int]] = {
    "leave both and look which comes first": ((*TWO, ("log_out",), ("look",), ("look", 2)), 1, 1),
    "ask for one pair more after being away": ((*FULL, ("be_away",), ("look", MOST_HELD + 1)), 1, 1),
    "skip after being away": ((*TWO, ("be_away",), ("skip", 0), ("look",)), 1, 0),
    "take an answer back while all places are taken, and ask which pair went": (
        (("look",), ("judge", 0), *FULL, ("undo",), ("look", MOST_HELD), ("judge", 1), ("look", MOST_HELD)),
        1, MOST_HELD,
    ),
    "log out with all places taken": ((*FULL, ("log_out",), ("look", MOST_HELD)), 1, MOST_HELD - 1),
    "answer what was left when the experiment ends": ((*TWO, ("leave",), ("the_end",), ("judge", 0)), 1, 0),
    "leave it after the end, and answer": ((*TWO, ("the_end",), ("leave",), ("judge", 0)), 1, 0),
    "answer what was left, and a colleague looks": (
        (*TWO, ("leave",), ("colleague_looks",), ("judge", 0)), 1, 0
    ),
    "answer what was left and a colleague has judged, where two judge each": (
        (*TWO, ("leave",), ("colleague_looks",), ("judge", 0), ("colleague_judges",), ("judge", 0)), 2, 0
    ),
    "look for what was left and a colleague has judged, where two judge each": (
        (*TWO, ("leave",), ("colleague_looks",), ("look", 2), ("colleague_judges",), ("look", 2)), 2, 0
    ),
    "take back what a colleague looks at, where two judge each": (
        (("look",), ("judge", 0), ("colleague_looks",), ("undo",), ("colleague_judges",), ("look",)), 2, 0
    ),
    "take back what a colleague has judged, where two judge each": (
        (("look",), ("judge", 0), ("colleague_looks",), ("colleague_judges",), ("undo",), ("look",)), 2, 0
    ),
    "answer, where two judge each": ((("look",), ("judge", 0), ("look",), ("judge", 1)), 2, 0),
    "skip, where two judge each": ((*TWO, ("skip", 0), ("look", 2), ("skip", 1)), 2, 0),
    "answer what was left and a language model voted": (
        (*TWO, ("leave",), ("model_votes",), ("judge", 0)), 1, 0
    ),
    "skip until no more come": (
        tuple(step for number in range(6) for step in (("look",), ("skip", number))), 1, 3
    ),
    "a pause": ((*TWO, ("log_out",), ("pause_and_resume",), ("look",), ("look", 2)), 1, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_check_among_several_pairs_is_not_told(name: str, monkeypatch: pytest.MonkeyPatch):
    script, overlap, number = SCRIPTS[name]
    world = World(overlap)
    assert world.play(script, {number}, monkeypatch) == world.play(script, set(), monkeypatch)


def drawn(dice: random.Random) -> list[Step]:
    script: list[Step] = list(dice.choice([TWO, FULL]))
    for name in dice.choices(_RANDOM_STEPS, k=dice.randint(2, 8)):
        if name == "look":
            script.append((name, dice.randint(1, MOST_HELD)))
        else:
            script.append((name, dice.randrange(MOST_HELD + 1)) if name in _OF_ONE_PAIR else (name,))
    return script


def test_whatever_is_done_no_check_is_told(monkeypatch: pytest.MonkeyPatch):
    world = World()
    dice = random.Random(11)
    for _ in range(_N_RANDOM):
        script = drawn(dice)
        expected = world.play(script, set(), monkeypatch)
        for number in (0, 1):
            assert world.play(script, {number}, monkeypatch) == expected, (script, number)


@pytest.mark.parametrize("n_ready", [1, 2])
@pytest.mark.parametrize("overlap", [1, 2])
@pytest.mark.parametrize("responses", ["fresh", "reuse"])
def test_a_second_pair_that_is_asked_for_at_once_tells_nothing(
    responses: str, overlap: int, n_ready: int, monkeypatch: pytest.MonkeyPatch
):
    """A check left the only ready pair to be found behind it, before it was answered."""

    def pairs_found(first_draw: float) -> list[int]:
        """How many pairs there are at each look, with rounds of planning between the last ones."""
        annotator = make_user()
        with override_settings(BUFFER_MIN=n_ready, BUFFER_MAX=n_ready):
            experiment = make_experiment(
                ready=True, n_tasks=40, n_gold=1, gold_rate=0.5, overlap=overlap, responses=responses,
                annotators=(annotator, make_user()),
            )  # fmt: skip
            monkeypatch.setattr(secret_draws, "check_draw", lambda *at: 0.99 if at[-1] else first_draw)
            found = []
            for n_wanted in (1, MOST_HELD, MOST_HELD, MOST_HELD):
                desk = serving.desk(experiment=experiment, annotator=annotator, n_wanted=n_wanted)
                found.append(len(desk.pairs))
                if len(found) > 1:
                    plan_and_write(experiment)
                    experiment.refresh_from_db()
            assert bool(desk.pairs[0].comparison_id) is (first_draw > 0.5)
        return found

    as_comparison = pairs_found(0.99)
    assert as_comparison[0] == 1
    assert pairs_found(0.0) == as_comparison
