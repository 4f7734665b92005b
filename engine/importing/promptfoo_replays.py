"""Answers that are ready in the variables of tests, and that promptfoo only replays through `echo`."""

import re
from collections.abc import Mapping, Sequence

from engine.domain.specs import ExperimentSpec, ReadyMade, TaskSpec
from engine.domain.texts import is_blank
from engine.importing.findings import Findings
from engine.importing.items import factor_of
from engine.importing.promptfoo_tasks import Prompt, turns_of
from engine.importing.promptfoo_templates import Filling, Place, UnfillableError, places_in
from engine.importing.promptfoo_tests import Test

# Names of variables that hold an answer, and not what was asked.
_ANSWER = re.compile(r"answer|output|response|reply|completion|generated|prediction", re.IGNORECASE)


def replayed(
    prompts: Sequence[Prompt], tests: Sequence[Test], env: Mapping[str, str], findings: Findings
) -> ExperimentSpec | None:
    """The answers as ready-made responses, a policy for each prompt; `None` if the prompts ask something.

    A task is made of the variables that hold no answer.
    """
    places = [place for prompt in prompts for place in places_in(*turns_of(prompt.chat))]
    answers = {name for place in places for name in place.variables}
    if not answers or not all(map(_ANSWER.search, answers)):
        return None
    tasks: dict[str, TaskSpec] = {}
    made: list[ReadyMade] = []
    policies: dict[str, None] = {}
    for test in tests:
        filling = Filling(test.variables, env)
        try:
            asked = {
                name: filling.text((Place((name,)),)) for name in test.variables if not _ANSWER.search(name)
            }
        except UnfillableError as error:
            findings.leave("test", str(error), test.place)
            continue
        text = "\n".join(f"{name}: {each}" for name, each in asked.items())
        text = next(iter(asked.values())) if len(asked) == 1 else text
        if is_blank(text):
            findings.leave("test", "without a variable that asks", test.place)
            continue
        position = list(tasks).index(text) if text in tasks else len(tasks)
        tasks.setdefault(text, TaskSpec(text, tags=test.tags))
        findings.take("test")
        for prompt in prompts:
            name = _named(prompt)
            try:
                answer = filling.text(turns_of(prompt.chat)[-1])
            except UnfillableError as error:
                findings.leave("response", f"of {name}: {error}", test.place)
                continue
            policies.setdefault(name)
            made.append(ReadyMade(position, name, answer))
            findings.take("response")
    if not made:
        return None
    return ExperimentSpec(
        name="",
        factors=[factor_of(policies)],
        tasks=[*tasks.values()],
        settings={"responses": "imported"},
        ready_made=made,
    )


def _named(prompt: Prompt) -> str:
    """The prompt's own name, or that of its variable where it has none."""
    [*places] = places_in(*turns_of(prompt.chat))
    return places[0].name if len(places) == 1 and "{{" in prompt.name else prompt.name
