"""The winner as a configuration of promptfoo, read back by our own reader."""

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import yaml

from engine.domain.connection_targets import Target
from engine.domain.conversations import Message, chat
from engine.domain.levels import Composition, compose, parse_level
from engine.domain.profiles import Provider, takes_of
from engine.domain.specs import FactorSpec, TaskSpec
from engine.domain.text_checks import TextCheck
from engine.generation.remote.requests import ANTHROPIC_TOKENS
from engine.importing.found_files import FoundFile
from engine.publishing.promptfoo import promptfoo_of, provider_config
from engine.publishing.winners import Winner
from tests.engine.test_promptfoo import configured, read

EVIDENCE = {"experiment": "Tea: which\nletter?", "claim": "P1 beats every other policy.", "risk": None}


def policies_of(told: FoundFile) -> Iterator[tuple[str, Composition]]:
    """Each policy that a configuration makes."""
    factors: list[FactorSpec] = list(told.spec.factors)
    for names in product(*(factor.levels for factor in factors)):
        if dict(zip((factor.name for factor in factors), names, strict=True)) in told.spec.settings.get(
            "excluded", []
        ):
            continue
        values = [
            parse_level(factor.kind, factor.levels[name]) for factor, name in zip(factors, names, strict=True)
        ]
        yield " · ".join(names), compose(values)


def target_of(told: FoundFile, name: str) -> Target:
    [wanted] = [each for each in told.connections if each.name == name]
    takes = takes_of(wanted.provider, wanted.model_id)
    return Target(1, name, wanted.provider, wanted.model_id, wanted.address, takes)


def sent(composition: Composition, tasks: Any) -> list[tuple[Message, ...]]:
    return [composition.filled(task.variables).messages(task.messages or chat(task.prompt)) for task in tasks]


def back(winner: Winner) -> tuple[FoundFile, Composition]:
    """What our reader makes of the file: one policy, with nothing left out."""
    told = configured(promptfoo_of(winner))
    assert told.n_policies == 1
    assert told.findings.left_out() == []
    [(_, composition)] = policies_of(told)
    return told, composition


@pytest.mark.parametrize(
    "names",
    [
        ("01-two-by-two.yaml",),
        ("03-same-id-anchor.yaml",),
        ("04-chat-dump.yaml",),
        ("05-matrix-scenarios.yaml",),
        ("06-csv-tests.yaml", "06-tests.csv"),
        ("07-own-prompts.yaml",),
    ],
)
def test_a_policy_of_promptfoo_comes_back_as_it_was(names):
    told = read(*names)
    policies = list(policies_of(told))
    assert len(policies) == told.n_policies >= 2
    for name, composition in policies:
        target = target_of(told, composition.model)
        winner = Winner("P1", name, composition, target, told.spec.tasks, EVIDENCE)
        again, new = back(winner)
        assert sent(new, again.spec.tasks) == sent(composition, told.spec.tasks)
        assert new.sampling == composition.sampling
        assert [task.checks for task in again.spec.tasks] == [task.checks for task in told.spec.tasks]
        [wanted] = again.connections
        assert (wanted.provider, wanted.model_id, wanted.address) == (
            target.provider,
            target.model_id,
            target.address,
        )


def winner(
    *levels: tuple[str, dict[str, Any]], tasks: list[TaskSpec], provider: Provider = Provider.OPENAI
) -> Winner:
    composition = compose([parse_level(kind, value) for kind, value in levels], model="mine")
    target = Target(1, "mine", provider, "acme", "", takes_of(provider, "acme"))
    return Winner("P1", "Terse", composition, target, tasks, EVIDENCE)


ODD = (
    'Say "yes"\\no: \\ {% raw %} {# note #} {{ braces }} {{% {{{',
    "file://etc/passwd",
    "no",
    "0o17",
    "  spaces \n\n trailing \n",
    "[1, 2]",
    "{'role': 'user'}",
    "- role: user\n  content: hi",
    "\u2028 line \x85 separators \u00a0",
)


@pytest.mark.parametrize("odd", ODD)
def test_texts_mean_their_own_letters(odd):
    tasks = [
        TaskSpec(odd, variables={"shop": odd, "task": "a name"}, checks=(TextCheck("contains", odd),)),
        TaskSpec("Plain", variables={"shop": "Lune", "task": "another"}),
    ]
    made = winner(
        ("prompt", {"text": 'In {{ shop }} {{ "{{" }} {%x%}, {{ task|upper }}.'}),
        ("examples", {"examples": [{"user": odd, "assistant": "{{ shop }}"}]}),
        ("strategy", {"instruction": "Then {{ shop }}."}),
        tasks=tasks,
    )
    again, new = back(made)
    assert sent(new, again.spec.tasks) == sent(made.composition, tasks)
    assert again.spec.tasks[0].checks == tasks[0].checks


def test_a_task_with_a_history_is_a_whole_conversation():
    history = (Message("system", "Kind."), Message("user", "Hi"), Message("assistant", "{{Yes}}"))
    tasks = [
        TaskSpec("…", messages=(*history, Message("user", "And now?"))),
        TaskSpec("Alone", variables={"conversation": "x"}),
    ]
    made = winner(("prompt", {"text": "Be brief."}), tasks=tasks)
    again, new = back(made)
    assert sent(new, again.spec.tasks) == sent(made.composition, tasks)


SETTINGS = {
    "temperature": 0.3,
    "top_p": 0.9,
    "top_k": 7,
    "max_tokens": 99,
    "stop": ["END"],
    "response_format": {"type": "object", "properties": {"a": {"type": "string"}}},
    "extra_body": {"logit_bias": {"1": 2}, "custom": True},
}


@pytest.mark.parametrize("thinking", [{"reasoning": "low"}, {"reasoning_tokens": 2048}])
@pytest.mark.parametrize("provider", sorted(set(Provider) - {Provider.WORKER}))
def test_settings_have_the_names_of_each_provider(provider, thinking):
    level = {"name": "mine"} | SETTINGS | thinking
    made = winner(("model", level), tasks=[TaskSpec("Hi")], provider=provider)
    again, new = back(made)
    assert new.sampling == made.composition.sampling
    assert again.connections[0].provider == provider or provider is Provider.COMPATIBLE


def test_variables_of_a_chat_stand_as_they_are_and_braces_of_prompts_are_quoted():
    """As promptfoo 0.123 was seen to read them: it fills a chat's JSON with values that it leaves alone."""
    made = winner(("prompt", {"text": "Not {# this #}"}), tasks=[TaskSpec("Keep {# that #}")])
    document = yaml.safe_load(promptfoo_of(made))
    assert document["tests"][0]["vars"] == {"task": "Keep {# that #}"}
    assert not re.search(r"\{#|#\}", document["prompts"][0]["raw"])


@pytest.mark.parametrize("odd", ["file://a", "{{ shop }}", "{% raw %}", "at the end\n"])
def test_texts_that_a_variable_would_change_stand_in_whole_conversations(odd):
    [test] = yaml.safe_load(promptfoo_of(winner(("prompt", {"text": "x"}), tasks=[TaskSpec(odd)])))["tests"]
    assert test["vars"]["task"].startswith("[")


def test_promptfoo_adds_no_settings_of_its_own():
    of_openai, of_anthropic = (
        provider_config(winner(("prompt", {"text": "x"}), tasks=[], provider=provider))
        for provider in (Provider.OPENAI, Provider.ANTHROPIC)
    )
    assert of_openai["omitDefaults"]
    assert of_anthropic["temperature"] == 1
    assert of_anthropic["max_tokens"] == ANTHROPIC_TOKENS


def test_the_heading_says_what_is_claimed_and_no_more_lines_than_that():
    text = promptfoo_of(winner(("prompt", {"text": "x"}), tasks=[TaskSpec("Hi")]))
    heading = [line for line in text.splitlines() if line.startswith("#")]
    assert heading == ["# experiment: Tea: which letter?", "# claim: P1 beats every other policy."]
