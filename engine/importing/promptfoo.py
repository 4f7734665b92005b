"""A configuration of promptfoo as an experiment: prompts × providers are policies, tests are tasks."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from engine.domain.specs import ExperimentSpec, FactorSpec
from engine.importing.companion_files import Find, no_files
from engine.importing.findings import Findings
from engine.importing.found_files import FoundFile
from engine.importing.mapping import ShortNames
from engine.importing.promptfoo_models import (
    ModelRead,
    model_read,
    told_apart,
    why_not_called,
)
from engine.importing.promptfoo_replays import replayed
from engine.importing.promptfoo_tasks import Prompt, Tasks, turns_of
from engine.importing.promptfoo_templates import (
    Chat,
    Filling,
    LackingError,
    Template,
    UnfillableError,
    places_in,
    read_chat,
    read_template,
)
from engine.importing.promptfoo_tests import (
    MOST_NODES,
    SETTINGS,
    UNREAD,
    Test,
    TestReader,
    is_slip,
    unknown_in,
)
from engine.importing.rows import Fault, ImportingError
from engine.importing.table_files import text_of as text_in_bytes
from engine.importing.yaml_document import Entry, parse

_TELLING = {"prompts", "providers", "targets", "tests", "scenarios", "defaultTest"}
_OURS = {"factors", "tasks", "tasks_file", "ready_made", "responses_file"}
_TAKEN = {*_TELLING, "description", "env", "assertionTemplates"}
_WITHOUT_MEANING = {
    "outputPath", "sharing", "evaluateOptions", "commandLineOptions", "redteam", "extensions",
    "nunjucksFilters", "derivedMetrics", "metadata", "tags", "writeLatestResults", "$schema", "tracing",
}  # fmt: skip
_OF_A_PROMPT = {"id", "label", "raw", "config", "display", "function"}
_OF_A_PROVIDER = {"id", "label", "config", "prompts", "transform", "delay", "env", "inputs", "maxConcurrency"}
# What a file that cannot be parsed is meant to be.
_NAMES_A_PART = re.compile(r"^(?:prompts|providers|targets|defaultTest)\s*:", re.MULTILINE)
_NAMES_OURS = re.compile(rf"^(?:name|{'|'.join(sorted(_OURS))})\s*:", re.MULTILINE)
_PATH = re.compile(r"file://\S.*|\S+\.(?:txt|md|json|jsonl|ya?ml|j2|csv|[cm]?[jt]s|py)(?::\w+)?")
_IS_CODE = re.compile(r"(?:exec|python|executable):.*|.*\.(?:[cm]?[jt]s|py|rb|sh|exe)(?::\w+)?")
_ELSEWHERE = re.compile(r"[a-z]+://")
_SINGLE = re.compile(r"(?<!\{)\{\s*([A-Za-z_]\w*)\s*\}(?!\})")
_RESULTS = (
    "No provider here can be asked by a connection. {tasks}To compare what the providers answer, run "
    "`promptfoo eval -o results.json` and bring the results as ready-made responses."
)


def configuration_in(text: str) -> Entry | None:
    """The document of a text that is a configuration of promptfoo, known by its parts; `None` of others.

    Raises
    ------
    ImportingError
        It names such parts, and cannot be read.
    """
    try:
        root = parse(text, most_nodes=MOST_NODES)
    except ImportingError:
        if _NAMES_A_PART.search(text) and not _NAMES_OURS.search(text):
            raise
        return None
    names = root.value.keys() if isinstance(root.value, Mapping) else set()
    # One name alone may be a column of somebody's table.
    known = (names & _TELLING) and (len(names) > 1 or "prompts" in names)
    return root if known and not names & _OURS else None


def read_configuration(
    root: Entry, *, find: Find = no_files, name: str = "", leave_out: bool = False
) -> FoundFile:
    """Read a configuration.

    Parameters
    ----------
    name
        The experiment's name where the file says none.
    leave_out
        Go on without the parts that are wrong, which otherwise refuse the file.

    Raises
    ------
    ImportingError
        Every slip at once, or every file that is named and missing.
    """
    return _Configuration(root, find).read(name, leave_out=leave_out)


@dataclass
class _Configuration:
    root: Entry
    find: Find
    findings: Findings = field(default_factory=Findings)
    missing: dict[str, str] = field(default_factory=dict)

    def read(self, name: str, *, leave_out: bool) -> FoundFile:
        parts = self.root.mapping()
        self.env = self._env(parts)
        self._tell_root(parts)
        tests = TestReader(parts, self.env, self.findings, self.opened)
        found = tests.read()
        self.variables = {name for test in found for name in test.variables}
        prompts = self._prompts(parts)
        models, choices = self._models(parts)
        description = parts.get("description")
        said = description.text() if description and isinstance(description.value, str) else ""
        name = (name or said or "From promptfoo").strip()[:200]
        if self.only_replays and (ready := replayed(prompts, found, self.env, self.findings)) is not None:
            self._settle([], leave_out=leave_out)
            n_policies = len(ready.factors[0].levels)
            return FoundFile(replace(ready, name=name), self.findings, n_policies)
        if not self._tests_said(parts) and any(not list(places_in(*turns_of(p.chat))) for p in prompts):
            found = [Test({}, "")]
        maker = Tasks(prompts, found, self.env, self.findings)
        tasks = maker.made()
        self._settle(maker.lacking, leave_out=leave_out)
        factors, settings, n_policies = self._policies(maker.levels(), prompts, models, choices)
        self._note_policies(n_policies, models)
        connections = {model.wanted.name: model.wanted for model in models}
        return FoundFile(
            ExperimentSpec(
                name=name,
                factors=factors,
                tasks=tasks,
                settings=settings,
            ),
            self.findings,
            n_policies,
            [*connections.values()],
        )

    # ------------------------------------------------------------ the file itself

    def _env(self, parts: Mapping[str, Entry]) -> dict[str, str]:
        given = parts["env"].value if "env" in parts else None
        if not isinstance(given, Mapping):
            return {}
        return {
            name: each.written
            for name, each in given.items()
            if not isinstance(each.value, (Mapping, list)) and each.value is not None
        }

    def _tell_root(self, parts: Mapping[str, Entry]) -> None:
        for name, entry in parts.items():
            if name in _TAKEN:
                continue
            # Names that hold nothing but an anchor for other places.
            if name.startswith(("x-", ".", "_")):
                continue
            if is_slip(name, _TAKEN | _WITHOUT_MEANING):
                self.findings.slip(entry.place, f"promptfoo reads no {name} here. {_where(name)}")
            elif name not in _WITHOUT_MEANING:
                self.findings.leave("field", UNREAD, entry.place, name)
            elif isinstance(entry.value, Mapping) and name == "evaluateOptions":
                for inner, each in entry.value.items():
                    self.findings.leave("field", f"{inner} is not used here", each.place)
            else:
                self.findings.leave("field", f"{name} is not used here", entry.place)

    def _tests_said(self, parts: Mapping[str, Entry]) -> bool:
        return "tests" in parts or "scenarios" in parts

    def opened(self, path: str, place: str) -> list[tuple[str, bytes]]:
        """The files of a path; a missing one is noted."""
        path = path.removeprefix("file://")
        found = list(self.find(path))
        if not found:
            self.missing.setdefault(path, place)
        return found

    def _refuse(self, lacking: Sequence[Fault]) -> None:
        advice = "Add it: choose all files together, or a ZIP of their folder."
        faults = [
            Fault(place, f"The file {path} is missing. {advice}") for path, place in self.missing.items()
        ]
        if self.findings.slips:
            faults += [*self.findings.slips, *lacking]
        if faults:
            error = ImportingError(faults)
            error.all_faults = faults
            parts = "part" if len(faults) == 1 else "parts"
            error.summary = f"{len(faults)} {parts} of the file cannot be meant as written: " + " ".join(
                map(str, faults)
            )
            raise error

    def _settle(self, lacking: Sequence[Fault], *, leave_out: bool) -> None:
        """Refuse the file for its wrong parts, or count these among what was left out."""
        if not leave_out:
            self._refuse(lacking)
        for path, place in self.missing.items():
            self.findings.leave("file", "missing", place, path)
        for slip in self.findings.slips:
            self.findings.leave("part", slip.message.rstrip("."), slip.place)

    # ------------------------------------------------------------ prompts

    def _prompts(self, parts: Mapping[str, Entry]) -> list[Prompt]:
        entry = parts.get("prompts")
        if entry is None:
            return self._named([("", "", "{{prompt}}", "")], count=False)
        given = list(self._given(entry))
        found = self._named(given)
        return found

    def _given(self, entry: Entry) -> Iterator[tuple[str, str, str, str]]:
        """Label, name, text and place of each prompt."""
        if isinstance(entry.value, list):
            for each in entry.items():
                yield from self._given_one(each)
        elif isinstance(entry.value, Mapping) and not entry.value.keys() & _OF_A_PROMPT:
            # An older form: labels by paths.
            for path, label in entry.mapping().items():
                yield from self._texts(path, label.written, label.place)
        else:
            yield from self._given_one(entry)

    def _given_one(self, entry: Entry) -> Iterator[tuple[str, str, str, str]]:
        if not isinstance(entry.value, Mapping):
            yield from self._texts(entry.text(), "", entry.place)
            return
        fields = entry.mapping()
        unknown = [name for name in fields if name not in _OF_A_PROMPT]
        if len(fields) == 1 and unknown and isinstance(fields[unknown[0]].value, str):
            yield from self._texts(fields[unknown[0]].text(), unknown[0], entry.place)
            return
        for name in unknown:
            if "raw" in fields or ("id" in fields and "://" in fields["id"].written):
                self.findings.leave("field", UNREAD, fields[name].place, name)
            else:
                self.findings.slip(
                    fields[name].place, f"A prompt has no field {name}: its text stands in raw."
                )
        if "function" in fields or ("raw" not in fields and (unknown or "id" not in fields)):
            self.findings.leave("prompt", "without a text", entry.place)
            return
        label = next((fields[each].text() for each in ("label", "display", "id") if each in fields), "")
        if "config" in fields:
            self.findings.leave("field", "config of a prompt is not used here", fields["config"].place)
        yield from self._texts(fields["raw" if "raw" in fields else "id"].text(), label, entry.place)

    def _texts(self, text: str, label: str, place: str) -> Iterator[tuple[str, str, str, str]]:
        """The texts that a prompt is: its own, or those of the files that it names."""
        line = text.strip()
        is_line = "\n" not in line and "{{" not in line
        if is_line and _IS_CODE.fullmatch(line) and (":" in line or _PATH.fullmatch(line)):
            self.findings.leave("prompt", "code", place, line)
        elif is_line and _ELSEWHERE.match(line) and not line.startswith("file://") and " " not in line:
            self.findings.leave("prompt", "at another service", place, line)
        elif is_line and _PATH.fullmatch(line):
            for name, data in self.opened(line, place):
                yield from self._in_file(name, data, label, place)
        else:
            yield label or line, label, text, place

    def _in_file(self, path: str, data: bytes, label: str, place: str) -> Iterator[tuple[str, str, str, str]]:
        if _IS_CODE.fullmatch(path) or path.endswith((".csv", ".jsonl")):
            reason = "code" if _IS_CODE.fullmatch(path) else "a table of prompts"
            self.findings.leave("prompt", reason, place, path)
            return
        text = text_in_bytes(data)
        name = label or posixpath.basename(path)
        texts = [text]
        if path.endswith(".txt"):
            parts = re.split(r"^---[ \t]*$", text, flags=re.MULTILINE)
            texts = [part.strip() for part in parts if part.strip()]
        for number, each in enumerate(texts, 1):
            yield name if len(texts) == 1 else f"{name} {number}", label or path, each, place

    def _named(self, given: Sequence[tuple[str, str, str, str]], *, count: bool = True) -> list[Prompt]:
        prompts: list[Prompt] = []
        names = ShortNames()
        for name, label, text, place in given:
            single = [each for each in _SINGLE.findall(text) if each in self.variables]
            if single and "{{" not in text:
                message = f"{{{single[0]}}} in single braces is no variable. Write {{{{{single[0]}}}}}."
                self.findings.slip(place, message)
                self.findings.leave("prompt", "with a variable in single braces", place, text)
                continue
            try:
                chat = self._settled(read_chat(text))
            except UnfillableError as error:
                self.findings.leave("prompt", str(error), place, text)
                continue
            if any(each.chat == chat for each in prompts):
                self.findings.leave("prompt", "equal to an earlier one", place, text)
                continue
            shown = (name or text).strip() or "Prompt"
            prompts.append(Prompt(names.new(shown), label or text, chat))
            if count:
                self.findings.take("prompt")
        return prompts

    def _settled(self, chat: Chat) -> Chat:
        """The chat with what the file itself says filled in: its `env`, and literals."""

        def settled(template: Template) -> Template:
            return tuple(
                piece
                if isinstance(piece, str) or piece.variables
                else Filling({}, self.env).text((piece,), in_chat=True)
                for piece in template
            )

        try:
            return Chat(settled(chat.system), tuple((role, settled(turn)) for role, turn in chat.turns))
        except LackingError as error:
            raise UnfillableError(_asks_for(error)) from error

    # ------------------------------------------------------------ providers

    def _models(self, parts: Mapping[str, Entry]) -> tuple[list[ModelRead], dict[int, list[str]]]:
        """The models, and for those that say it the labels of their prompts."""
        entry = parts.get("providers") or parts.get("targets")
        models: list[ModelRead] = []
        ids: list[str] = []
        choices: dict[int, list[str]] = {}
        for written, fields, place in self._providers(entry) if entry else ():
            provider_id = self._filled(written, "provider", place)
            if not provider_id:
                continue
            ids.append(provider_id)
            label = fields["label"].written if "label" in fields else ""
            label = label if "{{" not in label else ""
            for name in unknown_in(fields, _OF_A_PROVIDER):
                if is_slip(name, _OF_A_PROVIDER):
                    message = f"promptfoo reads no {name} of a provider. {_where(name)}"
                    self.findings.slip(fields[name].place, message)
                else:
                    self.findings.leave("field", UNREAD, fields[name].place, name)
            if reason := why_not_called(provider_id):
                self.findings.leave("provider", reason, place, label or provider_id)
                continue
            for name in fields.keys() & {"transform", "delay", "env", "inputs", "maxConcurrency"}:
                self.findings.leave("field", f"{name} of a provider is not used here", fields[name].place)
            if "prompts" in fields and isinstance(fields["prompts"].value, list):
                choices[len(models)] = [each.written for each in fields["prompts"].items()]
            models.append(self._model(provider_id, label, fields.get("config"), place))
            self.findings.take("provider")
        told_apart(models)
        for one, other in combinations(models, 2):
            if (one.wanted, one.settings) == (other.wanted, other.settings):
                self.findings.note(f"{one.name} and {other.name} are the same without what was left out.")
        self.only_replays = bool(ids) and {*ids} == {"echo"}
        return models, choices

    def _filled(self, text: str, what: str, place: str) -> str:
        """The text with what the file itself says; nothing where it asks for the environment."""
        try:
            return Filling({}, self.env).text(read_template(text))
        except UnfillableError as error:
            reason = _asks_for(error)
            self.findings.leave(what, reason, place, text)
            return ""

    def _providers(self, entry: Entry) -> Iterator[tuple[str, Mapping[str, Entry], str]]:
        """Id, fields and place of each provider."""
        if isinstance(entry.value, list):
            for each in entry.items():
                yield from self._providers(each)
        elif isinstance(entry.value, Mapping):
            fields = entry.mapping()
            if "id" in fields:
                yield fields["id"].text(), fields, entry.place
            else:
                for name, each in fields.items():
                    yield name, each.mapping() if isinstance(each.value, Mapping) else {}, each.place
        elif entry.value is not None:
            text = entry.text()
            if not re.fullmatch(r"file://\S+\.(?:ya?ml|json)", text):
                yield text, {}, entry.place
                return
            for _, data in self.opened(text, entry.place):
                yield from self._providers(parse(text_in_bytes(data), most_nodes=MOST_NODES))

    def _model(self, provider_id: str, label: str, config: Entry | None, place: str) -> ModelRead:
        given = config.plain() if config is not None and isinstance(config.value, Mapping) else {}
        given = {name: self._in_file_of(value, place) for name, value in given.items()}
        filled = {
            name: self._filled(value, "setting", place) if isinstance(value, str) and "{{" in value else value
            for name, value in given.items()
            # A key is never looked at.
            if not (isinstance(value, str) and "{{" in value and "key" in name.lower())
        }
        model = model_read(provider_id, label, filled)
        self.findings.take("setting", len(model.settings))
        for name in model.left:
            self.findings.leave("setting", "which a level does not have", place, name)
        if model.had_key or any("key" in name.lower() for name in given.keys() - filled.keys()):
            self.findings.note("A key was in the file and was not taken.")
        return model

    def _in_file_of(self, value: Any, place: str) -> Any:
        """The value of a setting that names a file of JSON or YAML, such as a schema."""
        if not isinstance(value, str) or not re.fullmatch(r"file://\S+\.(?:ya?ml|json)", value):
            return value
        found = self.opened(value, place)
        return parse(text_in_bytes(found[0][1]), most_nodes=MOST_NODES).plain() if found else value

    # ------------------------------------------------------------ policies

    def _policies(
        self,
        levels: Sequence[Mapping[str, str]],
        prompts: Sequence[Prompt],
        models: Sequence[ModelRead],
        choices: Mapping[int, Sequence[str]],
    ) -> tuple[list[FactorSpec], dict[str, Any], int]:
        """The factors, the settings, and the number of policies."""

        def allows(number: int, prompt: Prompt) -> bool:
            means = _named_by(prompt)
            return number not in choices or any(map(means, choices[number]))

        allowed = [[allows(number, prompt) for number in range(len(models))] for prompt in prompts]
        # A model without any of the prompts, or a prompt of no model, is no level.
        kept_models = [n for n in range(len(models)) if not prompts or any(row[n] for row in allowed)]
        kept_prompts = [n for n, row in enumerate(allowed) if not models or any(row)]
        factors = []
        told = {n: prompts[n].name for n in kept_prompts}
        has_prompts = len(told) > 1 or any(levels[n] for n in kept_prompts)
        if has_prompts:
            by_name = {told[n]: {"text": ""} | dict(levels[n]) for n in kept_prompts}
            factors.append(FactorSpec("Prompt", "prompt", by_name))
        if kept_models:
            values = {
                models[n].name: {"name": models[n].wanted.name} | models[n].settings for n in kept_models
            }
            factors.append(FactorSpec("Model", "model", values))
        excluded = [
            {"Prompt": told[p], "Model": models[m].name}
            for p in kept_prompts
            for m in kept_models
            if has_prompts and not allowed[p][m]
        ]
        n_policies = len(kept_prompts) * len(kept_models) - len(excluded)
        return factors, {"excluded": excluded} if excluded else {}, n_policies

    def _note_policies(self, n_policies: int, models: Sequence[ModelRead]) -> None:
        if not models and self.findings.n_left("provider"):
            taken = self.findings.n_taken("test")
            self.findings.note(_RESULTS.format(tasks="The tasks are taken. " if taken else ""))
        elif n_policies < 2:
            how_many = "One policy" if n_policies else "No policy"
            self.findings.note(f"{how_many}: add a second prompt or model.")


def _named_by(prompt: Prompt) -> Callable[[str], bool]:
    """Whether a provider's choice means this prompt: itself, its group, or a pattern."""
    names = {prompt.label, prompt.name}

    def means(choice: str) -> bool:
        if choice.endswith("*"):
            return any(each.startswith(choice[:-1]) for each in names)
        return choice in names or any(each.startswith(f"{choice}:") for each in names)

    return means


def _asks_for(error: UnfillableError) -> str:
    if isinstance(error, LackingError):
        return f"it asks for {error.name}, and no environment is read"
    return str(error)


def _where(name: str) -> str:
    if name == "assert":
        return "Checks stand in a test or in defaultTest."
    if name in SETTINGS:
        return "Settings stand in the config of a provider."
    return "Correct the name, or remove it."
