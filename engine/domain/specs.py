"""Descriptions of experiments, independent of database rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.domain.conversations import Message
from engine.domain.text_checks import TextCheck

# The settings of a description; all other fields of an experiment change as it runs.
SETTINGS = (
    "question", "guidelines", "further_questions", "judge", "rule_preference", "claim", "delta", "epsilon",
    "missing", "strict", "budget", "space", "excluded",
    "sampler", "stopping", "seed", "allow_tie",
    "allow_both_bad", "tell_outcome", "overlap", "overlap_rule",
    "repeat_rate", "gold_rate",
    "practice", "responses", "backend", "model", "llm_judge", "judge_model", "rubric", "llm_budget", "tags",
    "no_answer", "shown_thinking", "money_limit",
    "leaderboard", "equally_seen_only",
)  # fmt: skip


@dataclass(frozen=True)
class FactorSpec:
    """A factor and its named levels, in order."""

    name: str
    kind: str
    levels: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class TaskSpec:
    """A query, and its reference answer where there is one.

    Attributes
    ----------
    prompt
        The text; of a conversation, its transcript.
    messages
        The conversation; empty if the task is one message of the user.
        ``engine.domain.conversations.text_and_messages`` makes the two.
    variables
        Texts by name, which fill ``{{ name }}`` in the policies' prompts.
    tags
        Categories for results.
    checks
        What the rule judge reads in the place of the reference: a correct response passes all of them.
    """

    prompt: str
    reference: str = ""
    messages: tuple[Message, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    checks: tuple[TextCheck, ...] = ()


@dataclass(frozen=True)
class GoldSpec:
    """Two responses, one of them clearly better; ``messages`` as in a task."""

    prompt: str
    better: str
    worse: str
    explanation: str = ""
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True)
class ReadyMade:
    """A response that was written elsewhere, for the task at this position.

    Attributes
    ----------
    policy
        The names of its levels, one per factor, joined as :func:`engine.domain.policy_space.name_of` does.
    finish_reason
        One of `engine.domain.replies.Finish`, or empty.
    """

    task: int
    policy: str
    response: str
    thinking: str = ""
    finish_reason: str = ""


@dataclass(frozen=True)
class ExperimentSpec:
    """Everything an experiment is made of.

    The policies are the product of the factors' levels, less the combinations that the setting ``excluded``
    names. ``ready_made``: for an experiment whose responses are imported; its factors are of the kind
    "imported".
    """

    name: str
    factors: Sequence[FactorSpec]
    tasks: Sequence[TaskSpec]
    settings: Mapping[str, Any] = field(default_factory=dict)
    gold: Sequence[GoldSpec] = ()
    ready_made: Sequence[ReadyMade] = ()
