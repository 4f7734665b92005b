"""What models were asked and answered elsewhere: tasks, each once, and the responses as they were."""

from __future__ import annotations

import contextlib
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.domain.conversations import text_and_messages
from engine.domain.limits import DEPTH, RESPONSES, TASKS
from engine.domain.policy_space import name_of
from engine.domain.replies import Finish
from engine.domain.specs import ExperimentSpec, ReadyMade, TaskSpec
from engine.domain.wording import number
from engine.importing.findings import Findings
from engine.importing.found_files import FoundFile
from engine.importing.items import factor_of
from engine.importing.mapping import ShortNames
from engine.importing.messages import Asked, LeftOutError, answers_in, asked_in
from engine.importing.promptfoo_templates import text_of
from engine.importing.rows import ImportingError, storable


@dataclass(frozen=True)
class Call:
    """One call of a model, or one item of a data set, as its file has it.

    Attributes
    ----------
    what
        The noun of such a thing in its tool.
    policy
        What names the policy that answered, such as its prompt and its model; `None` for an item.
    given, system, answers, reference
        In any shape that `messages` knows.
    finish
        The reason why the answer ended, where it is said apart.
    skipped
        The reason why it is no call, or has no answer.
    """

    what: str
    place: str
    given: Any = None
    system: Any = None
    policy: Sequence[str] | None = None
    answers: Any = None
    finish: str = ""
    reference: Any = None
    tags: Sequence[str] = ()
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """How many tasks to draw at random (0: all), and the seed by which they are drawn again."""

    size: int = 0
    seed: int = 0


WHOLE = Sample()
# Also names with many dots, and JSON in texts.
TOO_DEEP = ImportingError.at("", f"This is nested too deeply to be read. {DEPTH.advice}")


@dataclass
class Gathered:
    """The tally of one file, and what was taken of it."""

    findings: Findings = field(default_factory=Findings)
    tasks: dict[tuple[str, ...], TaskSpec] = field(default_factory=dict)
    made: list[ReadyMade] = field(default_factory=list)
    systems: dict[str, None] = field(default_factory=dict)
    noted: Counter[str] = field(default_factory=Counter)
    _names: ShortNames = field(default_factory=ShortNames)
    _positions: dict[str, int] = field(default_factory=dict)

    def add(self, call: Call) -> None:
        """Take a call, or note why it is left out."""
        if call.skipped and call.policy is None:
            self.findings.leave(call.what, call.skipped, call.place)
            return
        try:
            asked = _asked(call)
            text, messages = text_and_messages(asked.messages)
            task = TaskSpec(
                storable(text, call.place, "The task"),
                messages=messages,
                variables=dict(_flat(asked.variables)),
                tags=tuple(call.tags),
            )
        except LeftOutError as reason:
            if call.policy is None:
                self.findings.leave(call.what, str(reason), call.place)
            else:
                self.leave(_policy(call), str(reason), call.place)
            return
        if call.policy is None:
            self._item(call, task, asked.system)
            return
        policy = _policy(call)
        for answer in answers_in(call.answers, call.finish):
            if isinstance(answer, LeftOutError):
                self.leave(policy, str(answer), call.place)
                continue
            self.systems |= {asked.system: None} if asked.system else {}
            response = storable(answer.text, call.place, "The answer")
            name = self.name_of(policy)
            position = self.position_of(task)
            finish = Finish.LENGTH.value if answer.is_cut else ""
            self.made.append(ReadyMade(position, name, response, answer.thinking, finish))
            self.noted["after calls of tools, which new policies do not have"] += asked.after_tools
            self.noted["cut at a limit on the length"] += answer.is_cut
            self.noted["with thinking, which is kept apart"] += bool(answer.thinking)
            self.findings.take("response")

    def leave(self, policy: Sequence[str], reason: str, place: str) -> None:
        """Count an answer that is missing by its policy: failures of one alone bias a comparison."""
        self.findings.leave("response", f"of {self.name_of(policy)}: {reason}", place)

    def _item(self, call: Call, task: TaskSpec, system: str) -> None:
        [found] = answers_in(call.reference)[:1]
        reference = "" if isinstance(found, LeftOutError) else storable(found.text, call.place, "The answer")
        key = (task.prompt, *map(str, sorted(task.variables.items())))
        self.systems |= {system: None} if system else {}
        if key not in self.tasks:
            self.tasks[key] = replace(task, reference=reference)
            self.findings.take(call.what)
            return
        known = self.tasks[key]
        differs = bool(reference and known.reference and reference != known.reference)
        self.tasks[key] = replace(
            known,
            reference=known.reference or reference,
            tags=tuple(dict.fromkeys([*known.tags, *task.tags])),
        )
        reason = "a duplicate with another answer" if differs else "a duplicate"
        self.findings.leave(call.what, reason, call.place, task.prompt)

    def position_of(self, task: TaskSpec) -> int:
        """The place of a task, which is taken up where it is new. Responses tell tasks by their texts."""
        position = self._positions.setdefault(task.prompt, len(self._positions))
        self.tasks.setdefault((task.prompt,), replace(task, variables={}))
        return position

    def name_of(self, parts: Sequence[str]) -> str:
        """The name of a policy: its parts, shortened, and told apart from others that are shortened alike."""
        first, *others = parts
        return self._names[name_of([first.strip() or "a model without a name", *filter(str.strip, others)])]

    def told(self, name: str, sample: Sample, *, tasks_alone: bool = False) -> FoundFile:
        """What a page shows before anything is stored; responses only where a policy gave some, and none
        with ``tasks_alone``.

        Raises
        ------
        ImportingError
            There are too many tasks, policies or responses, or none at all.
        """
        self._draw(sample)
        had_responses = bool(self.made)
        if tasks_alone:
            n = self.findings.n_taken("response")
            self.findings.take("response", -n)
            for _ in range(n):
                self.findings.leave("response", "since new policies answer the tasks")
            self.made.clear()
            self.noted.clear()
        tasks, policies = [*self.tasks.values()], list(dict.fromkeys(each.policy for each in self.made))
        for message in (TASKS.refusal(len(tasks)), RESPONSES.refusal(len(self.made))):
            if message:
                raise ImportingError.at("", message)
        if not tasks:
            raise ImportingError.at("", " ".join(["There is no task here.", *self.findings.sentences()]))
        for what, n in (
            ("policy", len(policies)),
            ("reference answer", sum(bool(task.reference) for task in tasks)),
            ("system text", len(self.systems)),
        ):
            if n:
                self.findings.take(what, n)
        for which, n in self.noted.items():
            if n:
                self.findings.note(f"{number(n, 'response')} {which}.")
        if had_responses:
            self.findings.take("task", len(tasks))
        if self.made:
            self.findings.note_gaps(self.made)
        return FoundFile(
            ExperimentSpec(
                name=name[:200],
                factors=[factor_of(policies)] if self.made else [],
                tasks=tasks,
                settings={"responses": "imported"} if self.made else {},
                ready_made=self.made,
            ),
            self.findings,
            len(policies),
            systems=[*self.systems],
            samples=True,
        )

    def _draw(self, sample: Sample) -> None:
        """Keep a random sample of the tasks, with the responses to them."""
        if not 0 < sample.size < len(self.tasks):
            return
        # A seed draws the same tasks again.
        drawn = sorted(random.Random(sample.seed).sample(range(len(self.tasks)), sample.size))  # noqa: S311
        left = len(self.tasks) - sample.size
        self.findings.note(
            f"{number(sample.size, 'task')} of {len(self.tasks):,} drawn at random (seed {sample.seed}); "
            f"{left:,} left out."
        )
        places = {old: new for new, old in enumerate(drawn)}
        tasks = [*self.tasks.items()]
        self.tasks = dict(tasks[n] for n in drawn)
        self.made = [replace(e, task=places[e.task]) for e in self.made if e.task in places]


def gathered(calls: Iterable[Call]) -> Gathered:
    """The tally of these calls."""
    found = Gathered()
    try:
        for call in calls:
            found.add(call)
    except RecursionError as error:
        raise TOO_DEEP from error
    return found


def _policy(call: Call) -> list[str]:
    """What names the policy of a call, also of one that failed; its system text if need be."""
    policy = [*(call.policy or ())]
    with contextlib.suppress(LeftOutError):
        if len(policy) == 1 and (system := asked_in(call.given, call.system).system):
            policy.append(system)
    return policy


def _asked(call: Call) -> Asked:
    if call.skipped:
        raise LeftOutError(call.skipped)
    return asked_in(call.given, call.system)


def _flat(given: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Variables as texts; those in objects by their whole path, such as cart_items."""
    for name, value in given.items():
        whole = re.sub(r"\W", "_", f"{prefix}{name}", flags=re.ASCII)
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{whole}_")
        else:
            yield (f"_{whole}" if whole[:1].isdigit() else whole)[:90], text_of(value)
