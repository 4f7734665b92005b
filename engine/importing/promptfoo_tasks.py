"""Tasks that the tests of promptfoo make with its prompts."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.domain.conversations import USER, Message, read_messages, text_and_messages
from engine.domain.limits import TASKS
from engine.domain.specs import TaskSpec
from engine.domain.texts import is_blank
from engine.importing import promptfoo_checks as checks
from engine.importing.findings import Findings
from engine.importing.promptfoo_templates import (
    Chat,
    Filling,
    LackingError,
    Place,
    Template,
    UnfillableError,
    as_messages,
    our_template,
    places_in,
    read_template,
)
from engine.importing.promptfoo_tests import Test
from engine.importing.rows import Fault, ImportingError, in_json

# The task of prompts without any variable, which each of them replaces.
_ITSELF = "The prompt itself"


@dataclass
class Prompt:
    """A prompt of the file. ``label`` is the file's own, by which providers choose it."""

    name: str
    label: str
    chat: Chat


def turns_of(chat: Chat) -> list[Template]:
    """The texts of the turns."""
    return [turn for _, turn in chat.turns]


@dataclass
class Tasks:
    """The tasks that tests make with these prompts.

    Where all prompts have the same turns, the task is what these say, filled; the prompts differ in their
    system texts. Otherwise the task is the variable, and each prompt a template around it.
    """

    prompts: Sequence[Prompt]
    tests: Sequence[Test]
    env: Mapping[str, str]
    findings: Findings
    lacking: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        chats = [prompt.chat for prompt in self.prompts]
        self.same_turns = len({chat.turns for chat in chats}) <= 1
        self.turns = chats[0].turns if chats else ((USER, self._variables_alone()),)
        self.systems = [self._inlined(chat.system) for chat in chats]
        self.affixed = any(test.prefix or test.suffix for test in self.tests)
        self.lasts = [chat.turns[-1][1] for chat in chats]
        if not self.same_turns and any(chat.turns[:-1] != self.turns[:-1] for chat in chats):
            raise ImportingError.at(
                "",
                "The prompts have different earlier turns, and only the last message can differ between "
                "policies. Leave out all but one of them.",
            )
        self.asked = [*dict.fromkeys(places_in(*self.lasts))]
        self.used = self._used()

    def levels(self) -> list[dict[str, str]]:
        """For each prompt what its level holds; nothing if it is only the task's text."""
        found = []
        for system, last in zip(self.systems, self.lasts, strict=True):
            level: dict[str, str] = {}
            if system:
                level["text"] = our_template(system)
            if not self.same_turns and not (self.asked == [*last] and not self.affixed):
                around = f"{{{{ _prefix }}}}{our_template(last)}{{{{ _suffix }}}}"
                level["template"] = around if self.affixed else our_template(last)
            found.append(level)
        return found

    def _variables_alone(self) -> Template:
        """What tests ask where no prompt of the file could be taken: their variables."""
        names = [*dict.fromkeys(name for test in self.tests for name in test.variables)]
        if "prompt" in names or len(names) < 2:
            return (Place(("prompt" if "prompt" in names or not names else names[0],)),)
        lines: list[Template] = [(f"{name}: ", Place((name, "'")), "\n") for name in names]
        return tuple(itertools.chain.from_iterable(lines))[:-1]

    def _inlined(self, template: Template, depth: int = 0) -> Template:
        """The system text with variables that are the same in all tests: they belong to the policy."""
        pieces: list[str | Place] = []
        for piece in template:
            value = self._same(piece) if isinstance(piece, Place) and depth < 10 else None
            if value is None:
                pieces.append(piece)
                continue
            try:
                pieces += self._inlined(read_template(value), depth + 1)
            except UnfillableError:
                pieces.append(piece)
        return tuple(pieces)

    def _same(self, place: Place) -> str | None:
        if len(place.alternatives) > 1 or not set(place.filters) <= {"dump", "safe", "string"}:
            return None
        values = [test.variables.get(place.alternatives[0]) for test in self.tests]
        one = len(values) > 1 and all(value == values[0] for value in values)
        return values[0] if one and isinstance(values[0], str) else None

    def made(self) -> list[TaskSpec]:
        """The tasks, each once; tests that make none are left out."""
        tasks: dict[Hashable, TaskSpec] = {}
        tally = _CheckTally()
        for test in self.tests:
            filling = Filling(test.variables, self.env)
            tally.meet(test.checks)
            try:
                task = self._task(test, filling)
            except UnfillableError as error:
                self.findings.leave("test", str(error), test.place)
                # One whose file is missing, or that is code, has been said already.
                if isinstance(error, LackingError) and error.name.partition(".")[0] not in test.variables:
                    self.lacking.append(Fault(test.place, f"The test has no variable {error.name}."))
                continue
            filled = sorted((place.name, task.variables[place.name]) for place in self._needed())
            key = (task.prompt, task.messages, *filled)
            made = self._checked(task, test, filling, tally)
            if key in tasks:
                other = made.checks != tasks[key].checks
                reason = f"equal to an earlier one{', with other checks' * other}"
                self.findings.leave("test", reason, test.place, task.prompt)
                continue
            if len(tasks) >= TASKS.most:
                raise ImportingError.at("", TASKS.refusal(len(tasks) + 1))
            tasks[key] = made
            self.findings.take("test")
        tally.tell(self.findings)
        stay = {name for task in tasks.values() for name in task.variables}
        unused = {name for test in self.tests for name in test.variables if Place((name,)).name in stay}
        if unused := unused - self.used:
            names = ", ".join(sorted(unused)[:10])
            self.findings.note(f"Variables that no prompt uses, and that stay with the tasks: {names}.")
        return [*tasks.values()]

    def _needed(self) -> list[Place]:
        """The places of the levels' texts."""
        return [*places_in(*self.systems), *([] if self.same_turns else self.asked)]

    def _used(self) -> set[str]:
        chats = [template for p in self.prompts for template in (p.chat.system, *turns_of(p.chat))]
        chats += [turn for _, turn in self.turns]
        names = {name for place in places_in(*chats) for name in place.variables}
        # Variables inside of variables.
        for _ in range(3):
            for test in self.tests:
                for name in names & test.variables.keys():
                    value = test.variables[name]
                    if isinstance(value, str) and "{{" in value:
                        names = names | _names_in(value)
        return names

    def _task(self, test: Test, filling: Filling) -> TaskSpec:
        variables = {place.name: filling.text((place,), in_chat=True) for place in self._needed()}
        if not self.same_turns and self.affixed:
            variables |= {"_prefix": test.prefix, "_suffix": test.suffix}
        # One message is no conversation, in which JSON would quote a dumped text.
        in_chat = len(self.turns) > 1 or any(prompt.chat.system for prompt in self.prompts)
        *earlier, (role, last) = self.turns
        turns = [(each, filling.text(turn, in_chat=in_chat)) for each, turn in earlier]
        if self.same_turns:
            text = f"{test.prefix}{filling.text(last, in_chat=in_chat)}{test.suffix}"
        else:
            texts = {place: filling.text((place,), in_chat=True) for place in self.asked}
            text = next(iter(texts.values()), _ITSELF)
            if len(texts) > 1:
                text = "\n".join(f"{place.name}: {each}" for place, each in texts.items())
        asked = [name for place in places_in(last) for name in place.variables]
        if is_blank(text) or (asked and not any(test.variables.get(name) for name in asked)):
            raise LackingError(asked[0] if asked else "a text")
        prompt, messages = text_and_messages(self._conversation(as_messages([*turns, (role, text)])))
        for name in test.variables.keys() - self.used:
            place = Place((name,))
            try:
                variables.setdefault(place.name, filling.text((place,)))
            except UnfillableError as error:
                self.findings.leave("variable", f"that no prompt uses: {error}", test.place, name)
        return TaskSpec(prompt, "", messages, variables, test.tags)

    def _conversation(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """The messages that a variable holds as JSON, where it is the whole prompt."""
        found = in_json(messages[0].content) if len(messages) == 1 else None
        if isinstance(found, list) and found and all(isinstance(each, Mapping) for each in found):
            try:
                return read_messages(found)
            except ValueError:
                return messages
        return messages

    def _checked(self, task: TaskSpec, test: Test, filling: Filling, tally: _CheckTally) -> TaskSpec:
        usable = []
        for each in test.checks:
            reason = each.reason or ("they read a transformed output" if test.transformed else "")
            if reason:
                tally.left[each.place] = (reason, each)
                continue
            try:
                usable.append(checks.filled(each, filling))
                tally.taken.add(each.place)
            except UnfillableError as error:
                tally.left[each.place] = (str(error), each)
        reference = next((each.value for each in usable if each.kind == "equals"), "")
        if checks.is_criterion(reference):
            self.findings.note(f"{test.place}: “{reference[:80]}” reads as a criterion, not as an answer.")
        return TaskSpec(task.prompt, reference, task.messages, task.variables, task.tags, tuple(usable))


@dataclass
class _CheckTally:
    """Each check of the file once, however many tests it belongs to."""

    met: dict[str, checks.Written] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    left: dict[str, tuple[str, checks.Written]] = field(default_factory=dict)

    def meet(self, found: Sequence[checks.Written]) -> None:
        self.met |= {each.place: each for each in found}

    def tell(self, findings: Findings) -> None:
        findings.take("check", len(self.taken))
        for place, each in self.met.items():
            if place not in self.taken:
                reason = self.left.get(place, (each.reason or "of a test that was left out", each))[0]
                findings.leave("check", reason, place, str(each.value or ""))


def _names_in(text: str) -> set[str]:
    try:
        return {name for place in places_in(read_template(text)) for name in place.variables}
    except UnfillableError:
        return set()
