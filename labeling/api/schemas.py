"""Input and output schemas. Names and meanings follow the pages and ``engine.domain.specs``."""

import uuid
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from ninja import Field, Schema
from ninja.orm import create_schema
from pydantic import ConfigDict, Json, field_validator, model_validator

from engine.core import Claim, StopReason
from engine.domain.claim_settings import (
    LARGEST_BUDGET,
    LARGEST_MARGIN,
    LARGEST_RISK,
    SMALLEST_RISK,
    USUAL_MARGIN,
)
from engine.domain.conversations import Message, text_and_messages
from engine.domain.limits import MAILED
from engine.domain.replies import Finish
from engine.domain.specs import SETTINGS, ExperimentSpec, FactorSpec, GoldSpec, TaskSpec
from engine.domain.text_checks import read_checks
from engine.importing.votes import Judge
from engine.models import Connection, Experiment, Factor, Flag, Judgment, Membership
from engine.selectors.rankings import Word
from engine.services.connections import EDITABLE
from engine.services.invitations import USUAL_DAYS


class Problem(Schema):
    detail: str


class Payload(Schema):
    """Input of a caller. An unknown name is refused."""

    model_config = ConfigDict(extra="forbid")


class Exact(Payload):
    """Nothing becomes a value of another type: `true` is no number, and "5" is none either."""

    model_config = ConfigDict(strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _one_kind_of_number(cls, value: Any) -> Any:
        """JSON does not tell 6.0 from 6."""
        return int(value) if isinstance(value, float) and value.is_integer() else value


# ---------------------------------------------------------------- experiments


class FactorIn(Payload):
    name: str
    kind: Factor.Kind
    levels: dict[str, dict[str, Any]]

    def factor(self) -> FactorSpec:
        return FactorSpec(self.name, str(self.kind), self.levels)


class MessageOut(Schema):
    role: Literal["system", "user", "assistant"]
    content: str


class MessageIn(Payload):
    role: Literal["system", "user", "assistant"]
    content: str


class Asked(Payload):
    """The input that a response answers: a text, or a conversation that ends with the user's message."""

    prompt: str = Field("", description="The task as one text; instead of `messages`.")
    messages: list[MessageIn] = Field(
        default_factory=list, description="The task as a conversation; instead of `prompt`."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if bool(self.prompt) == bool(self.messages):
            raise ValueError("Give either prompt, a text, or messages, a conversation.")
        return self

    def asked(self) -> tuple[str, tuple[Message, ...]]:
        if not self.messages:
            return self.prompt, ()
        return text_and_messages(Message(each.role, each.content) for each in self.messages)


class CheckIn(Payload):
    kind: Literal["equals", "contains", "icontains", "regex"]
    value: str


class TaskIn(Asked):
    reference: str = ""
    variables: dict[str, str] = Field(
        default_factory=dict, description="Texts by name; they fill `{{ name }}` in the policies' prompts."
    )
    tags: list[str] = Field(default_factory=list, description="Categories of the task.")
    checks: list[CheckIn] = Field(
        default_factory=list,
        description="What the rule judge reads in the place of `reference`: a correct response passes all.",
    )

    @field_validator("checks")
    @classmethod
    def _can_be_read(cls, given: list[CheckIn]) -> list[CheckIn]:
        read_checks([each.model_dump() for each in given])
        return given

    def task(self) -> TaskSpec:
        prompt, messages = self.asked()
        checks = read_checks([each.model_dump() for each in self.checks])
        return TaskSpec(prompt, self.reference, messages, self.variables, tuple(self.tags), checks)


class GoldIn(Asked):
    better: str
    worse: str
    explanation: str = ""

    def item(self) -> GoldSpec:
        prompt, messages = self.asked()
        return GoldSpec(prompt, self.better, self.worse, self.explanation, messages)


# From the model: a new setting is part of the API at once.
_SettingsOfTheModel: Any = create_schema(
    Experiment,
    name="SettingsOfTheModel",
    fields=list(SETTINGS),
    optional_fields=list(SETTINGS),
    base_class=Exact,
)


class SettingsIn(_SettingsOfTheModel):  # type: ignore[misc]  # made while the program runs
    excluded: list[dict[str, str]] | None = None
    # Its usual value depends on the claim, so the model's default would be wrong here.
    epsilon: float | None = Field(
        None,
        description=(
            f"{Experiment._meta.get_field('epsilon').help_text} Left out: {USUAL_MARGIN} for "
            f"`{Claim.GOOD_ENOUGH}`, 0 for the others."
        ),
    )


class ExperimentIn(Payload):
    name: str
    factors: list[FactorIn]
    tasks: list[TaskIn] = Field(default_factory=list, description="Needed before the start.")
    settings: SettingsIn = Field(default_factory=SettingsIn)
    gold: list[GoldIn] = Field(default_factory=list)

    def spec(self) -> ExperimentSpec:
        return ExperimentSpec(
            name=self.name,
            factors=[each.factor() for each in self.factors],
            tasks=[each.task() for each in self.tasks],
            settings=self.settings.model_dump(exclude_unset=True, exclude_none=True),
            gold=[each.item() for each in self.gold],
        )


class ExperimentOut(Schema):
    id: int
    name: str
    question: str
    judge: str
    state: str
    conclusion: StopReason | Literal[""]
    certified_claim: Claim | Literal[""] = Field(
        description="The claim that the conclusion rests on; empty without a certified winner."
    )
    finding: str = Field(description="What the conclusion claims and what that assumes, in words.")
    claim: Claim = Field(description="The claim that the experiment stops on.")
    delta: float
    epsilon: float
    missing: Literal["against", "answers"]
    strict: bool
    budget: int
    archived: bool
    tags: list[str]
    badge: str
    sentence: str = Field(
        description="How it stands: the words of its page, report and messages by the same evidence."
    )
    created_at: datetime
    started_at: datetime | None
    concluded_at: datetime | None


class ExperimentsOut(Schema):
    count: int
    items: list[ExperimentOut]


class PolicyOut(Schema):
    label: str
    levels: list[str]
    evidence: float | None = Field(
        description="Evidence against the policy, a natural logarithm; `threshold` rules the policy out."
    )
    ruled_out: bool
    joined_at: datetime | None = Field(description="Null: there from the start.")
    retired_at: datetime | None
    retired_because: str


class ResponseIn(Payload):
    task: Annotated[int, Field(ge=1)] = Field(description="The number of the task, from 1.")
    policy: str = Field(description="The name of the new level.")
    response: str


class PoliciesIn(Exact):
    """Policies that join an experiment that has started."""

    levels: dict[str, dict[str, dict[str, Any]]] = Field(
        description="The new levels by factor: `{factor: {name: value}}`, as in a description."
    )
    chosen: list[dict[str, str]] = Field(
        [],
        description="The policies to make of them: `{factor: level}` each, where it differs from the "
        "parent. By default each new level takes its place in the parent.",
    )
    parent: Annotated[int, Field(ge=1)] | None = Field(
        None, description="The number of the policy that they are made from; by default the winner or leader."
    )
    responses: list[ResponseIn] = Field([], description="Where responses are ready-made: theirs.")
    losers_leave: bool = Field(
        True, description="After a conclusion, those whom it has ruled out retire first: they cost clicks."
    )
    parent_leaves: bool = Field(
        False, description="The parent retires, and the new ones take its place: for a slip in its text."
    )


class RetireIn(Exact):
    reason: Annotated[str, Field(min_length=1, max_length=500)]


class TasksIn(Exact):
    tasks: Annotated[list[TaskIn], Field(min_length=1)]
    anew: bool = False


class LeaveOutIn(RetireIn):
    anew: bool = False


class PairOut(Schema):
    i: str
    j: str
    wins_i: float
    comparisons: int


class ClaimOut(Schema):
    claim: Claim
    holds: bool = Field(description="True if its own evidence establishes it at the accepted risk δ.")
    follows_from: Claim | None = Field(
        description="The claim that holds and implies it, where its own evidence does not suffice; null "
        "elsewhere. It adds no risk of its own, and the experiment stops on the other one only."
    )
    stops: bool = Field(description="True for the claim that the experiment stops on.")
    policy: str | None = Field(description="The policy that it names, or comes closest to naming.")
    text: str = Field(
        description="What is claimed, what that assumes, and whether it rests on one person alone; or what "
        "is missing."
    )
    qualified: bool = Field(
        description=(
            "True if it holds only if the levels' effects add up, and no test with the power to find a large "
            "departure from that has passed."
        )
    )


class ByAnswersOut(Schema):
    policy: str
    gamma: float = Field(
        description="The claim holds if outcomes are missing at most so many times as often where they speak "
        "against it as where they speak for it."
    )
    text: str


class RemainingOut(Schema):
    low: float = Field(description="Four in five experiments need between `low` and `high`.")
    likely: float | None = Field(description="Half of all need fewer; null if the budget leaves less.")
    high: float | None = Field(description="Null if the budget leaves less.")


class ConclusionOut(Schema):
    """A conclusion as it was drawn."""

    claim: Claim
    policy: str | None = Field(description="The policy named; null for “no single best”.")
    among: list[str] = Field(description="The policies that it is about.")
    risk: float = Field(description="The probability, at most, that it is wrong.")
    joint_risk: float = Field(description="The same of this one or any before it.")
    comparisons: int
    text: str
    created_at: datetime


class StatusOut(ExperimentOut):
    """An experiment with the dashboard's figures."""

    comparisons: int
    recomputing: bool = Field(
        description=(
            "True after a judgment was taken back or a rule changed: the figures below are older and are "
            "being recomputed."
        )
    )
    claims: list[ClaimOut] = Field(
        description="The claims from the weakest to the strongest; none where the stopping rule makes "
        "no claims, and while `recomputing`. They rest on the same evidence as `sentence` and `policies`: a "
        "click is in it once a worker has planned after it."
    )
    conclusions: list[ConclusionOut] = Field(
        description="Everything that was concluded so far, the oldest first. It stays when the claim or its "
        "risk change."
    )
    by_answers: ByAnswersOut | None = Field(
        description="What the answers alone say where pairs without an outcome keep the claim from holding; "
        "null elsewhere."
    )
    joint_risk: float | None = Field(
        description="The risk of picking one of the claims after looking at all. Each alone has the risk δ. "
        "Null where the same texts come again and people judge: `caveats` says what is proven there."
    )
    threshold: float | None
    remaining: RemainingOut | None = Field(
        description="Comparisons that it still needs; null before enough is known, and after the end."
    )
    best: str | None = Field(description="The leader.")
    winner: str | None = Field(description="The certified winner.")
    caveats: list[str] = Field(
        description="Reasons to read the result with care, as sentences: outcomes that machines gave, what "
        "changes the risk, and what the judgments themselves give reason to doubt."
    )
    spent: dict[str, float] = Field(description="The money spent on models, by currency.")
    money_limit: float | None
    llm_halted: str = Field(
        description=(
            "Reason why the language model that judges was halted; empty if it was not. Resume it on the "
            "dashboard."
        )
    )
    policies: list[PolicyOut]
    pairs: list[PairOut]
    queue: dict[str, int] = Field(description="Comparisons by state.")


class RateOut(Schema):
    """A win rate with an interval that holds at any time, at once with all others of the ranking."""

    estimate: float
    low: float
    high: float


class RankedOut(Schema):
    label: str
    name: str = Field(description="The names of its levels of the factors that vary.")
    log_odds: float = Field(description="Its estimated strength; those of a ranking add up to 0.")
    field: RateOut = Field(
        description="Its mean win rate against the other policies; `strength`, `low` and `high` of the CSV."
    )
    leader: RateOut = Field(
        description="Its win rate against the policy that leads; of that policy against the second."
    )
    comparisons: int
    standing: Word


class WonOut(Schema):
    policy: str
    wins: float = Field(description="A tie is half a win.")
    comparisons: int
    share: float


class TaskResultOut(Schema):
    task: str
    tags: list[str]
    comparisons: int
    policies: list[WonOut]


class TagResultOut(Schema):
    tag: str
    tasks: int
    comparisons: int
    policies: list[WonOut]


class AgreementOut(Schema):
    alpha: float | None = Field(
        description="Krippendorff's α of the people; null where no two judged the same two responses, or all "
        "answers are the same."
    )
    low: float | None = Field(description="Of its 95% interval; null where there are too few pairs for one.")
    high: float | None
    pairs: int = Field(description="Pairs of responses that at least two people judged.")
    judgments: int = Field(description="Judgments of these pairs, one of each person.")
    same: float = Field(description="Share of equal answers of two people, in [0, 1]; 1 where alpha is null.")
    chance: float = Field(description="The share that chance would bring; 1 where alpha is null.")


class PastVotesOut(Schema):
    """The past votes that stand. `left` of `sided` is their position bias."""

    votes: int
    with_texts: int = Field(description="Votes whose file has both responses.")
    repeated: int = Field(description="Those of them about two responses that an earlier one was about.")
    left: int = Field(description="Choices of the left side.")
    sided: int = Field(description="Choices of a side, of votes whose file names the sides.")


class QualityOut(Schema):
    agreement: AgreementOut
    past_votes: PastVotesOut


class ChangesIn(Exact):
    """Settings to change. Absent ones stay as they are."""

    claim: Literal["good_enough", "best", "best_if_any"] | None = None
    budget: Annotated[int, Field(ge=1, le=LARGEST_BUDGET)] | None = None
    delta: Annotated[float, Field(ge=SMALLEST_RISK, le=LARGEST_RISK)] | None = None
    epsilon: Annotated[float, Field(ge=0, le=LARGEST_MARGIN)] | None = None


class PatchIn(ChangesIn):
    name: str | None = None
    guidelines: str | None = None
    further_questions: str | None = Field(None, description="One on each line, as in the settings.")
    tags: str | None = Field(None, description="Separated by commas.")
    leaderboard: bool | None = None
    money_limit: Annotated[float, Field(ge=0)] | None = Field(
        None, description="Money after which no more responses are asked for; null: no limit."
    )
    factors: list[FactorIn] | None = Field(None, description="Of a draft: all of them, in place of its own.")
    tasks: list[TaskIn] | None = Field(None, description="Of a draft: all of them, in place of its own.")
    gold: list[GoldIn] | None = Field(None, description="Of a draft: all of them, in place of its own.")
    settings: SettingsIn | None = Field(None, description="Of a draft: those to change.")

    def redraft(self, spec: ExperimentSpec) -> ExperimentSpec | None:
        """The description of a draft with the parts that are given here; ``None`` where none is."""
        parts: dict[str, Any] = {}
        if self.factors is not None:
            parts["factors"] = [each.factor() for each in self.factors]
        if self.tasks is not None:
            parts["tasks"] = [each.task() for each in self.tasks]
        if self.gold is not None:
            parts["gold"] = [each.item() for each in self.gold]
        if self.settings is not None:
            given = self.settings.model_dump(exclude_unset=True, exclude_none=True)
            parts["settings"] = {**spec.settings, **given}
        return replace(spec, **parts) if parts else None


class ClaimIn(Payload):
    claim: Literal["good_enough", "best", "best_if_any"]


class CloneIn(Payload):
    name: str = Field(min_length=1, max_length=200)


class ImportIn(Schema):
    """How a file is to be imported; the page of a file asks the same."""

    material: Literal["responses", "votes", "experiment"] = Field(
        description="`experiment`: a description, or a configuration of promptfoo with the files that it "
        "names. Its results are `responses`, as are runs of other tools."
    )
    name: str = Field("", max_length=200, description="Name of the new experiment.")
    experiment: int | None = Field(
        None, ge=1, le=2**63 - 1, description="Votes: the experiment to add them to."
    )
    columns: list[str] = Field(
        [], description="COLUMN=ROLE for a column that has another name, as --map of the commands."
    )
    settings: Json[dict[str, Any]] = Field(
        {}, description="Responses: settings of the experiment, an object in JSON, as in a description."
    )
    sheet: str = Field("", description="XLSX: the sheet to read; the first one unless given.")
    json_texts: bool = Field(
        default=False, description="Take an object or a list as its JSON text where a text is wanted."
    )
    leave_out: bool = Field(default=False, description="Leave out the rows that cannot be read.")
    sample: int = Field(0, ge=0, le=20_000, description="Traces: draw so many tasks at random; 0 for all.")
    seed: int = Field(1, ge=0, le=999_999_999, description="Traces: the seed by which they are drawn.")
    judged_by: Judge | Literal[""] = Field(
        "", description="Who gave the votes, where the file does not say it."
    )
    counted: Literal["", "only_new", "again"] = Field(
        "",
        description="Votes that count in the experiment already: import nothing if there are any, leave "
        "them out, or count every vote of the file.",
    )

    @model_validator(mode="after")
    def _has_a_target(self) -> Self:
        if self.experiment is None and not self.name.strip() and self.material != "experiment":
            raise ValueError("Give the name of the new experiment, or the experiment to add votes to.")
        if self.settings and self.material != "responses":
            raise ValueError("Settings go with responses; a description has its own.")
        if self.experiment is not None and self.material != "votes":
            raise ValueError("Only votes are added to an experiment. Give a name in its place.")
        return self


class ImportedOut(Schema):
    """An import: `asking` says in `faults` what to change. Then send the file again, or open its page."""

    id: uuid.UUID
    state: Literal["waiting", "reading", "asking", "done"]
    experiment: ExperimentOut | None = Field(description="The one that the file is imported into.")
    rows: int = Field(description="Rows that were read; once it is done, responses or votes imported.")
    warnings: list[str] = Field(description="Possible slips in the file, with counts, and what was left out.")
    summary: str = Field(
        description="“113 of 120 rows can be read. …”; `leave_out` imports these. Empty if none can."
    )
    faults: list[str] = Field(description="What is wrong with the file, or with each row.")


class SourceIn(Schema):
    """What to draw of a source."""

    name: str = Field(max_length=200, description="The data set, such as owner/name.")
    configuration: str = Field("", max_length=200)
    split: str = Field("", max_length=200)
    revision: str = Field("", max_length=100, description="Refuse any other revision; of the hub.")
    number: int = Field(200, ge=1, le=20_000, description="Rows to draw at random.")
    seed: int = Field(1, ge=0, le=999_999_999)
    address: str = Field("", max_length=500, description="The server, if it is your own.")
    token: str = Field("", max_length=500, description="Used once and not kept; public:secret for Langfuse.")
    columns: list[str] = Field([], description="COLUMN=ROLE, as for a file.")


class SourceOut(Schema):
    tasks: list[dict[str, Any]] = Field(description="For `tasks` of a new experiment.")
    prompts: list[str] = Field(description="System texts of then, for levels of a prompt.")
    found: list[str] = Field(description="What came, and what was left out.")
    label: str = Field(description="Where it came from, with the revision.")


class ResponseOut(Schema):
    id: int
    policy: str
    task: int = Field(description="Number of the task, from 1.")
    text: str = Field(description="What people see; empty is no answer.")
    thinking: str = Field(description="What the model thought, apart from the text.")
    refusal: str = Field(description="The model's own words where it refused in a field made for that.")
    finish_reason: Finish | Literal[""]
    model: str = Field(description="The connection or the worker's model.")
    served_model: str = Field(description="The model's name as the server gave it.")
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    thinking_tokens: int | None = Field(description="Those of `completion_tokens` that were thinking.")
    cost: dict[str, float] = Field(description="By currency, with its guards; empty if unknown.")


class ResponsesOut(Schema):
    count: int
    items: list[ResponseOut]


# ---------------------------------------------------------------- people


class RoleIn(Payload):
    role: Membership.Role = Field(description="Anything but owner, which needs the page.")


class MemberIn(RoleIn):
    username: str = Field(min_length=1, max_length=150)


class MemberOut(Schema):
    id: int
    username: str
    role: Membership.Role
    active: bool = Field(description="False after the account was deactivated.")
    origin: Membership.Origin
    joined_at: datetime
    annotates_and_sees_policies: bool


class InvitationIn(RoleIn):
    most_uses: Annotated[int, Field(ge=1, le=1000)] = 1
    valid_days: Annotated[int, Field(ge=1, le=365)] = USUAL_DAYS
    guests: bool = Field(False, description="Annotators without an account, each in one browser.")
    most_answers: Annotated[int, Field(ge=1)] | None = Field(None, description="Pairs for each guest.")
    id_parameter: str = Field("", description="The link's parameter with a guest's identifier elsewhere.")
    completion: str = Field("", description="Link or code after a guest's last pair.")
    screen_out: str = Field("", description="Link or code for a guest who fails the gold items.")


class MailedIn(RoleIn):
    addresses: Annotated[list[str], Field(min_length=1, max_length=MAILED.default)]
    valid_days: Annotated[int, Field(ge=1, le=365)] = USUAL_DAYS


class InvitationOut(Schema):
    id: int
    role: Membership.Role
    email: str = Field(description="The address that the link is sent to; empty for a link without one.")
    hint: str = Field(description="The first characters of the link's secret.")
    guests: bool
    uses: int
    most_uses: int
    created_at: datetime
    expires_at: datetime


class NewInvitationOut(InvitationOut):
    link: str = Field(description="Anybody who has it can join.")


# ---------------------------------------------------------------- connections

# From the model: a new field is part of the API at once.
_Connection: Any = create_schema(
    Connection, name="FieldsOfAConnection", fields=list(EDITABLE), optional_fields=list(EDITABLE),
    base_class=Exact,
)  # fmt: skip


class ConnectionChangesIn(_Connection):  # type: ignore[misc]  # made while the program runs
    """Fields to change. Absent ones stay as they are."""


class ConnectionIn(_Connection):  # type: ignore[misc]  # made while the program runs
    name: str = Field(min_length=1, max_length=100)
    provider: Literal[
        "openai", "anthropic", "google", "mistral", "bedrock", "azure", "openrouter", "ollama", "compatible"
    ]
    model_id: str = Field(min_length=1, max_length=200)
    site: bool = Field(False, description="The site's and not yours; for staff.")


class ConnectionOut(_Connection):  # type: ignore[misc]  # made while the program runs
    id: int
    yours: bool
    state: str = Field(description="As on the page “Models”.")
    trouble: str
    waits_until: datetime | None
    testing: bool
    test: dict[str, Any] = Field(description="The last test; empty unless you may change the connection.")
    key_set_at: datetime | None
    retired_at: datetime | None


# ---------------------------------------------------------------- the log


class EntryOut(Schema):
    at: datetime
    by: str | None
    action: str
    sentence: str


Action = Literal["start", "pause", "stop", "archive", "unarchive", "try_again"]


# ---------------------------------------------------------------- annotating


class ShownOut(Schema):
    token: uuid.UUID
    prompt: str = Field(description="The task as one text; of a conversation, its transcript.")
    messages: list[MessageOut] = Field(description="The task as messages, in their order.")
    left: str
    right: str
    left_thinking: str = Field(
        description="What the model thought before `left`; empty unless the experiment shows it."
    )
    right_thinking: str
    practice: bool


class NextOut(Schema):
    question: str
    choices: list[str]
    pair: ShownOut | None = Field(
        description="Null if no pair is ready (ask again in seconds), or if you have left too many pairs."
    )


class JudgmentIn(Payload):
    token: uuid.UUID
    choice: Judgment.Choice
    comment: str = Field("", max_length=1000)
    further: dict[str, Literal["left", "tie", "right"] | tuple[int, int] | str] = Field(
        default_factory=dict,
        description=(
            "Answers to the experiment's further questions, by question: a side, the two marks of left and "
            "right, or a text. Those left out have none."
        ),
    )


class JudgedOut(Schema):
    created: bool = Field(description="False if this answer was already stored.")
    feedback: str


class SkipIn(Payload):
    token: uuid.UUID
    reason: Flag.Reason
    comment: str = Field("", max_length=1000)
