"""Types of requests to the API and of its answers. A newer server may answer with more names than these."""

from typing import Any, Literal, NotRequired, TypedDict

Role = Literal["annotator", "viewer", "editor", "owner"]
Action = Literal["start", "pause", "stop", "archive", "unarchive"]
Claim = Literal["good_enough", "best", "best_if_any"]
Choice = Literal["left", "right", "tie", "both_bad"]
Reason = Literal["cannot_tell", "broken", "task", "leak"]
Download = Literal[
    "judgments.csv",
    "judgments.jsonl",
    "judgments.parquet",
    "events.jsonl",
    "winner.yaml",
    "dpo.jsonl",
    "reward.jsonl",
    "kto.jsonl",
    "lmarena.jsonl",
    "argilla.json",
    "huggingface.zip",
]


class Message(TypedDict):
    role: Literal["system", "user", "assistant"]
    content: str


class Factor(TypedDict):
    name: str
    kind: str
    levels: dict[str, dict[str, Any]]


class Check(TypedDict):
    """What a correct response has to pass."""

    kind: Literal["equals", "contains", "icontains", "regex"]
    value: str


class Task(TypedDict):
    """``prompt`` or ``messages``, and what else is known of the task."""

    prompt: NotRequired[str]
    messages: NotRequired[list[Message]]
    reference: NotRequired[str]
    variables: NotRequired[dict[str, str]]
    tags: NotRequired[list[str]]
    checks: NotRequired[list[Check]]


class Gold(TypedDict):
    """A pair whose better response is known."""

    prompt: NotRequired[str]
    messages: NotRequired[list[Message]]
    better: str
    worse: str
    explanation: NotRequired[str]


class Changes(TypedDict, total=False):
    """Settings that can change while an experiment runs."""

    claim: Claim
    budget: int
    delta: float
    epsilon: float


class Patch(Changes, total=False):
    """The same; besides what the evidence does not depend on, and any part of a draft.

    Tags are separated by commas; a limit of money of ``None`` is none. Factors, tasks and gold items replace
    those that a draft has; settings change single ones.
    """

    name: str
    guidelines: str
    further_questions: str
    factors: list[Factor]
    tasks: list[Task]
    gold: list[Gold]
    settings: dict[str, Any]
    tags: str
    leaderboard: bool
    money_limit: float | None


class Experiment(TypedDict):
    """An experiment as lists show it; times are in ISO 8601."""

    id: int
    name: str
    question: str
    judge: str
    state: str
    conclusion: str
    certified_claim: str
    finding: str
    claim: Claim
    delta: float
    epsilon: float
    missing: Literal["against", "answers"]
    strict: bool
    budget: int
    archived: bool
    tags: list[str]
    badge: str
    sentence: str
    created_at: str
    started_at: str | None
    concluded_at: str | None


class ClaimState(TypedDict):
    claim: Claim
    holds: bool
    follows_from: Claim | None
    stops: bool
    policy: str | None
    text: str
    qualified: bool


class ByAnswers(TypedDict):
    policy: str
    gamma: float
    text: str


class Remaining(TypedDict):
    """Comparisons still needed; null ends lie beyond the budget."""

    low: float
    likely: float | None
    high: float | None


class Policy(TypedDict):
    label: str
    levels: list[str]
    evidence: float | None
    ruled_out: bool
    joined_at: str | None
    retired_at: str | None
    retired_because: str


class Pair(TypedDict):
    i: str
    j: str
    wins_i: float
    comparisons: int


class Conclusion(TypedDict):
    """A conclusion as it was drawn; ``created_at`` is in ISO 8601."""

    claim: Claim
    policy: str | None
    among: list[str]
    risk: float
    joint_risk: float
    comparisons: int
    text: str
    created_at: str


class Status(Experiment):
    """An experiment with the dashboard's figures; ``/api/docs`` explains them."""

    comparisons: int
    recomputing: bool
    claims: list[ClaimState]
    conclusions: list[Conclusion]
    by_answers: ByAnswers | None
    joint_risk: float | None
    threshold: float | None
    remaining: Remaining | None
    best: str | None
    winner: str | None
    caveats: list[str]
    spent: dict[str, float]
    money_limit: float | None
    llm_halted: str
    policies: list[Policy]
    pairs: list[Pair]
    queue: dict[str, int]


class ImprovementVerdict(TypedDict):
    kind: Literal["open", "nothing_better", "leads", "certified"]
    policy: str
    share: float | None
    n_told: int
    lower: float
    risk: float


class ImprovementTasks(TypedDict):
    judging: int
    open: int
    seen: int


class Writing(TypedDict):
    """A call of a writer."""

    parent: str
    opened_tasks: list[int]
    sent: str
    gave: str
    fault: str
    at: str


class Proposal(TypedDict):
    number: int
    policy: str | None
    parent: str
    text: str
    written_text: str
    screened: list[float] | None
    reason: str
    state: Literal["proposed", "refused", "joined", "dropped", "promoted", "left"]
    refused_because: str
    compared: int
    probability: float | None
    created_at: str
    settled_at: str | None


class Promotion(TypedDict):
    child: str
    over: str
    at: int
    probability: float


class Dropped(TypedDict):
    child: str
    parent: str
    after: int
    at: int
    probability: float


class Improvement(TypedDict):
    """A run in which a writer proposes texts and people choose; ``/api/docs`` explains it."""

    state: Literal["open", "ended", "stopped"]
    phase: Literal["explore", "certify", "ended"]
    sentence: str
    verdict: ImprovementVerdict
    original: str
    champion: str
    factor: str
    clicks: int
    used: int
    delta: float
    wish: str
    needs_ok: bool
    longest: int
    writer: str
    connection: str
    tasks: ImprovementTasks
    writings: list[Writing]
    proposals: list[Proposal]
    promotions: list[Promotion]
    dropped: list[Dropped]
    started_at: str
    ended_at: str | None


class Rate(TypedDict):
    estimate: float
    low: float
    high: float


class Ranked(TypedDict):
    """A policy in the ranking; intervals of ``field`` and ``leader`` hold at once, at any time.

    ``field``: its mean win rate against the other policies, which the CSV calls its strength. ``leader``:
    that against the policy that leads. ``log_odds``: its estimated strength; those of a ranking add up to 0.
    """

    label: str
    name: str
    log_odds: float
    field: Rate
    leader: Rate
    comparisons: int
    standing: Literal[
        "winner", "leads", "open", "not clearly better", "beaten", "ruled out", "perhaps as good", "retired"
    ]


class Won(TypedDict):
    policy: str
    wins: float
    comparisons: int
    share: float


class TaskResult(TypedDict):
    task: str
    tags: list[str]
    comparisons: int
    policies: list[Won]


class TagResult(TypedDict):
    tag: str
    tasks: int
    comparisons: int
    policies: list[Won]


class Agreement(TypedDict):
    """The agreement of people who judged the same two responses.

    ``alpha``: Krippendorff's α, with its 95% interval from ``low`` to ``high``; ``None`` where there is too
    little for it. ``pairs``: of responses that at least two people judged. ``judgments``: of these pairs, one
    of each person. ``same``: share of equal answers of two people, in [0, 1]. ``chance``: the share that
    chance would bring. Both are 1 where ``alpha`` is ``None``.
    """

    alpha: float | None
    low: float | None
    high: float | None
    pairs: int
    judgments: int
    same: float
    chance: float


class PastVotes(TypedDict):
    """The past votes that stand; ``left`` of ``sided`` is their position bias.

    ``with_texts``: votes whose file has both responses. ``repeated``: those of them about two responses that
    an earlier one was about. ``sided``: choices of a side, of votes whose file names the sides.
    """

    votes: int
    with_texts: int
    repeated: int
    left: int
    sided: int


class Quality(TypedDict):
    agreement: Agreement
    past_votes: PastVotes


class Imported(TypedDict):
    """A file that is imported; ``rows`` counts its responses or votes."""

    id: str
    state: Literal["waiting", "reading", "asking", "done"]
    experiment: Experiment
    rows: int
    warnings: list[str]
    summary: str
    faults: list[str]


class Response(TypedDict):
    id: int
    policy: str
    task: int
    text: str
    thinking: str
    refusal: str
    finish_reason: str
    model: str
    served_model: str
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    thinking_tokens: int | None
    cost: dict[str, float]


class Entry(TypedDict):
    at: str
    by: str | None
    action: str
    sentence: str


class ShownPair(TypedDict):
    token: str
    prompt: str
    messages: list[Message]
    left: str
    right: str
    left_thinking: str
    right_thinking: str
    practice: bool


class Shown(TypedDict):
    """``pair`` is ``None`` while none is ready."""

    question: str
    choices: list[Choice]
    pair: ShownPair | None


class Judged(TypedDict):
    created: bool
    feedback: str


class Member(TypedDict):
    id: int
    username: str
    role: Role
    active: bool
    origin: str
    joined_at: str
    annotates_and_sees_policies: bool


class Invitation(TypedDict):
    id: int
    role: Role
    email: str
    hint: str
    guests: bool
    uses: int
    most_uses: int
    created_at: str
    expires_at: str


class NewInvitation(Invitation):
    link: str


class GateText(TypedDict):
    """The text that a level has in a commit."""

    factor: str
    level: str
    text: str


class Gate(TypedDict):
    """Where changed texts stand against those of main."""

    state: Literal["same", "passed", "worse", "open", "stopped"]
    sentence: str
    challenge: int | None
    url: str
    comparisons: int
    epsilon: float
    delta: float
    reported: bool
