"""What goes in and out. Names and meanings are those of the pages and of ``engine.domain.specs``."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Annotated, Any, Literal

from ninja import Field, Schema
from ninja.orm import create_schema
from pydantic import ConfigDict

from engine.core import StopReason
from engine.domain.specs import SETTINGS, ExperimentSpec, FactorSpec, GoldSpec, TaskSpec
from engine.models import Experiment, Factor, Flag, Judgment
from engine.services.allowances import MOST_HELD


class Problem(Schema):
    detail: str


class Payload(Schema):
    """What a caller sends: a name that is not known is a mistake, and is told."""

    model_config = ConfigDict(extra="forbid")


# ---------------------------------------------------------------- experiments


class FactorIn(Payload):
    name: str
    kind: Factor.Kind
    levels: dict[str, dict[str, Any]]


class TaskIn(Payload):
    prompt: str
    reference: str = ""


class GoldIn(Payload):
    prompt: str
    better: str
    worse: str
    explanation: str = ""


# From the model, so that a new setting is at once one of the API's.
_SettingsOfTheModel: Any = create_schema(
    Experiment,
    name="SettingsOfTheModel",
    fields=list(SETTINGS),
    optional_fields=list(SETTINGS),
    base_class=Payload,
)


class SettingsIn(_SettingsOfTheModel):  # type: ignore[misc]  # made while the program runs
    excluded: list[dict[str, str]] | None = None


class ExperimentIn(Payload):
    name: str
    factors: list[FactorIn]
    tasks: list[TaskIn]
    settings: SettingsIn = Field(default_factory=SettingsIn)
    gold: list[GoldIn] = Field(default_factory=list)

    def spec(self) -> ExperimentSpec:
        return ExperimentSpec(
            name=self.name,
            factors=[FactorSpec(each.name, str(each.kind), each.levels) for each in self.factors],
            tasks=[TaskSpec(each.prompt, each.reference) for each in self.tasks],
            settings=self.settings.model_dump(exclude_none=True),
            gold=[GoldSpec(each.prompt, each.better, each.worse, each.explanation) for each in self.gold],
        )


class ExperimentOut(Schema):
    id: int
    name: str
    question: str
    judge: str
    state: str
    conclusion: StopReason | Literal[""]
    delta: float
    epsilon: float
    budget: int
    archived: bool
    badge: str
    sentence: str
    created_at: datetime
    started_at: datetime | None
    concluded_at: datetime | None


class ExperimentsOut(Schema):
    count: int
    items: list[ExperimentOut]


class PolicyOut(Schema):
    label: str
    levels: list[str]
    evidence: float | None = Field(description="log E of not being the best; ruled out from `threshold` on.")
    ruled_out: bool


class PairOut(Schema):
    i: str
    j: str
    wins_i: float
    comparisons: int


class StatusOut(ExperimentOut):
    """An experiment with the dashboard's figures."""

    comparisons: int
    recomputing: bool = Field(
        description="Judgments were taken back or rules changed: the figures below are older, and computed anew now."
    )
    confidence: float | None
    threshold: float | None
    expected_left: float | None = Field(
        description="Comparisons to go, the mean of simulated continuations; null where unknown or over the budget."
    )
    best: str | None = Field(description="Who leads.")
    winner: str | None = Field(description="Who has won.")
    caveats: list[str]
    llm_halted: str = Field(
        description="Why the language model that judges was halted; empty where it was not. It is resumed on the dashboard."
    )
    policies: list[PolicyOut]
    pairs: list[PairOut]
    queue: dict[str, int] = Field(description="Comparisons by state.")


class ChangesIn(Payload):
    """What is left out stays as it is."""

    budget: Annotated[int, Field(ge=1, le=2_000_000_000)] | None = None
    delta: Annotated[float, Field(ge=1e-9, le=0.5)] | None = None
    epsilon: Annotated[float, Field(ge=0, le=0.4)] | None = None


class CloneIn(Payload):
    name: str = Field(min_length=1, max_length=200)


class EntryOut(Schema):
    at: datetime
    by: str | None
    action: str
    sentence: str


Action = Literal["start", "pause", "stop", "archive", "unarchive"]


# ---------------------------------------------------------------- annotating


class NextIn(Payload):
    besides: list[uuid.UUID] = Field(
        [], max_length=MOST_HELD, description="Tokens of pairs that are held already."
    )


class ShownOut(Schema):
    token: uuid.UUID
    prompt: str
    left: str
    right: str
    practice: bool


class NextOut(Schema):
    question: str
    choices: list[str]
    pair: ShownOut | None = Field(
        description=f"Nothing where none is ready (ask again in a few seconds), or where {MOST_HELD} are held already."
    )


class JudgmentIn(Payload):
    token: uuid.UUID
    choice: Judgment.Choice
    comment: str = Field("", max_length=1000)


class JudgedOut(Schema):
    created: bool = Field(description="False where this answer had been stored before.")
    feedback: str


class TokenIn(Payload):
    token: uuid.UUID


class FlagIn(TokenIn):
    reason: Flag.Reason
    comment: str = Field("", max_length=1000)
