"""Runs of other tools as rows of ready-made responses: what a model was asked, and what it answered.

A run may be spread over rows and files, such as the questions and the answers of a batch.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

from engine.domain.conversations import Message, as_json, chat, transcript
from engine.domain.limits import COMBINATIONS, EXCLUSIONS, RESPONSES, TEXT_CHARACTERS
from engine.domain.policy_space import name_of
from engine.domain.replies import Finish
from engine.importing.findings import Findings
from engine.importing.mapping import ShortNames
from engine.importing.messages import Answer, Asked, LeftOutError, answers_in, asked_in, fields_in
from engine.importing.rows import Fault, ImportingError, Row, in_json, is_empty

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """A response of a model, or the reason why there is none.

    Attributes
    ----------
    asked
        Its conversation with the system text apart; the reason where nothing can be asked.
    settings
        Those of the request. They tell policies apart that answered the same task.
    """

    row: Row
    model: str
    asked: Asked | LeftOutError
    answer: Answer | LeftOutError
    settings: Fields = field(default_factory=dict)
    reference: Any = None
    tags: Any = None
    example: str = ""

    @property
    def reason(self) -> str:
        """The reason why it is left out; empty if it is taken."""
        return next((str(each) for each in (self.answer, self.asked) if isinstance(each, LeftOutError)), "")


# What a format makes of its rows. What it leaves out beside responses it tells the findings.
Reader = Callable[[Iterable[Row], Findings], Iterator[Run]]


def unfolded(rows: Iterable[Row | Fault], findings: Findings) -> Iterator[Row | Fault]:
    """The rows; those of a run of another tool, known by the first of them, as rows of responses."""
    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        return
    found = tool_of(first)
    if found is None:
        yield first
        yield from rows
        return
    findings.tool, reader = found
    faults: list[Fault] = []
    runs: list[Run] = []
    for run in reader(_without(faults, chain([first], rows)), findings):
        runs.append(run)
        if message := RESPONSES.refusal(len(runs)):
            raise ImportingError.at("", message)
    yield from faults
    yield from _as_rows(runs, findings)


def tool_of(row: Row | Fault) -> tuple[str, Reader] | None:
    """The tool whose run has this row, with its reader; `None` of any other row."""
    if isinstance(row, Fault):
        return None
    return next(((tool, read) for tool, knows, read in _TOOLS if knows(row.fields)), None)


def _objects_in(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _without(faults: list[Fault], rows: Iterable[Row | Fault]) -> Iterator[Row]:
    for row in rows:
        if isinstance(row, Fault):
            faults.append(row)
        else:
            yield row


# ---------------------------------------------------------------- policies


def _as_rows(runs: Sequence[Run], findings: Findings) -> Iterator[Row]:
    """The responses with the names of their policies. Those without an answer are counted by policy."""
    taken = [run for run in runs if not run.reason]
    parts = _told_apart(taken)
    varying = [name for name in _PARTS if len({each[name] for each in parts}) > 1]
    used = list(dict.fromkeys([_PARTS[0], *varying]))
    whole = [name_of([each[name] for name in used if each[name]]) for each in parts]
    names = ShortNames()
    by_model: defaultdict[str, set[str]] = defaultdict(set)
    for run, name in zip(taken, whole, strict=True):
        by_model[run.model].add(names[name])
    for run in runs:
        if run.reason:
            known = by_model[run.model] if len(by_model[run.model]) == 1 else {run.model or _NONE["Model"]}
            findings.leave("response", f"of {min(known)}: {run.reason}", run.row.place, run.example)
    are_factors = _are_factors([{name: each[name] for name in varying} for each in parts])
    after_tools: Counter[str] = Counter()
    for run, each, name in zip(taken, parts, whole, strict=True):
        assert isinstance(run.asked, Asked) and isinstance(run.answer, Answer)  # noqa: S101, PT018 - for mypy
        after_tools[names[name]] += run.asked.after_tools
        fields = {
            "messages": as_json(run.asked.messages),
            "factors": {factor: _level(factor, each[factor]) for factor in varying}
            if are_factors
            else {"Policy": {"name": names[name], "text": run.asked.system}},
            "response": run.answer.text,
            "thinking": run.answer.thinking,
            "finish_reason": Finish.LENGTH if run.answer.is_cut else "",
            "reference": run.reference,
            "tags": run.tags,
        }
        yield Row(run.row.place, fields)
    for policy, n in after_tools.items():
        if n:
            findings.note(f"{policy}: {n:,} after calls of tools, which new policies do not have.")


# What tells policies apart, and the level of those that lack it.
_NONE = {
    "Model": "Unnamed model",
    "System text": "No system text",
    "Settings": "Other settings",
    "File": "Any file",
}
_PARTS = [*_NONE]


def _level(factor: str, value: str) -> dict[str, str]:
    return {"name": value or _NONE[factor], "text": value if factor == "System text" else ""}


def _are_factors(parts: Sequence[Mapping[str, str]]) -> bool:
    """True if the policies are more than half of all combinations, so that levels stand in several."""
    levels = [set(column) for column in zip(*(each.values() for each in parts), strict=True)]
    n = math.prod(map(len, levels))
    left_out = n - len({tuple(each.values()) for each in parts})
    many = COMBINATIONS.refusal(n) or EXCLUSIONS.refusal(left_out)
    return len(levels) > 1 and 2 * left_out < n and not many


def _told_apart(runs: Sequence[Run]) -> list[dict[str, str]]:
    """The parts of each run's policy: its model and its system text, and its settings and its file where
    one task was answered under several of them. Otherwise these are parts of one run.
    """
    parts = [
        {
            "Model": run.model or _NONE["Model"],
            "System text": run.asked.system if isinstance(run.asked, Asked) else "",
        }
        | {"Settings": "", "File": ""}
        for run in runs
    ]
    for name, told in (("Settings", _settings), ("File", _files)):
        groups: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for position, each in enumerate(parts):
            groups[tuple(each.values())].append(position)
        for positions in groups.values():
            values = told([runs[position] for position in positions])
            by_task: defaultdict[str, set[str]] = defaultdict(set)
            for position, value in zip(positions, values, strict=True):
                asked = runs[position].asked
                by_task[transcript(asked.messages) if isinstance(asked, Asked) else ""].add(value)
            if any(len(each) > 1 for each in by_task.values()):
                for position, value in zip(positions, values, strict=True):
                    parts[position][name] = value
    return parts


def _settings(runs: Sequence[Run]) -> list[str]:
    """The settings of each run that are not those of all. In one pass: a file may name any number."""
    values: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        for name, value in run.settings.items():
            if value is not None:
                values[name][repr(value)] += 1
    differ = [name for name, found in values.items() if max(found.values()) < len(runs)]
    places = {name: place for place, name in enumerate(differ)}
    theirs = (sorted(places.keys() & run.settings, key=places.__getitem__) for run in runs)
    return [
        ", ".join(f"{name} {run.settings[name]}" for name in names)
        for run, names in zip(runs, theirs, strict=True)
    ]


def _files(runs: Sequence[Run]) -> list[str]:
    return [_log_of(run.row.file) for run in runs]


# ---------------------------------------------------------------- batches

_NO_SETTINGS = {
    "model", "messages", "input", "instructions", "system", "prompt", "n", "seed", "stream", "user",
    "metadata", "store", "stream_options", "safety_identifier", "prompt_cache_key",
    "contents", "systemInstruction", "system_instruction",
}  # fmt: skip
# The names of what a line of questions holds, and a line of answers.
_BEGINS = ("body", "params", "request")
_ENDS = ("response", "result", "error")


def _is_batch(fields: Fields) -> bool:
    if "custom_id" in fields:
        return not fields.keys().isdisjoint({*_BEGINS, *_ENDS})
    # Google's.
    failed = "key" in fields and isinstance(fields.get("error"), dict)
    return failed or "contents" in _request(fields) or "candidates" in _body(fields)


def _request(fields: Fields) -> Fields:
    return next((fields[name] for name in _BEGINS if isinstance(fields.get(name), dict)), {})


def _id(row: Row) -> str:
    """What joins a question and its answer; Vertex has both in one line."""
    return str(next((row.fields[name] for name in ("custom_id", "key") if name in row.fields), row.place))


def _batch(rows: Iterable[Row], findings: Findings) -> Iterator[Run]:
    """The questions and the answers of a batch, joined by their ids."""
    questions: dict[str, dict[str, Row]] = {}
    answers: dict[str, list[Row]] = {}
    # Places of questions whose id another one has too.
    twice: set[str] = set()
    for row in rows:
        if "embeddings" in str(row.fields.get("url")) or _objects(row.fields) == {"embedding"}:
            raise ImportingError.at(row.place, "Embeddings hold no texts that could be compared.")
        if _request(row.fields):
            known = questions.setdefault(row.file, {}).setdefault(_id(row), row)
            twice |= {known.place} - {row.place}
        if not row.fields.keys().isdisjoint(_ENDS):
            answers.setdefault(row.file, []).append(row)
        elif not _request(row.fields):
            findings.leave("line", "without a question or an answer", row.place)
    if not answers:
        raise ImportingError.at("", "These lines hold questions; add the file of answers that came back.")
    if not questions:
        raise ImportingError.at("", "These lines hold answers; add the file that you sent.")
    joined = set()
    for number, lines in enumerate(answers.values()):
        files = _likeliest(questions, lines, number)
        for line in lines:
            name = _id(line)
            question = next((questions[file][name] for file in files if name in questions[file]), None)
            joined.add(question and question.place)
            yield from _replies(line, question, twice)
    for each in questions.values():
        for question in each.values():
            if question.place not in joined:
                yield _without_answer(question, question, LeftOutError("without a line of answer"))


def _likeliest(questions: Mapping[str, Mapping[str, Row]], lines: Sequence[Row], number: int) -> list[str]:
    """The files of questions for a file of answers, the likeliest first: models may have had equal ids."""

    def fit(file: str) -> int:
        own = questions[file]
        asked = [(line, own.get(_id(line))) for line in lines]
        return sum(
            str(_body(line.fields).get("model") or "").startswith(str(_request(question.fields).get("model")))
            for line, question in asked
            if question is not None
        )

    places = {file: place for place, file in enumerate(questions)}
    return sorted(questions, key=lambda file: (-fit(file), places[file] != number, places[file]))


def _body(fields: Fields) -> dict[str, Any]:
    """What the server answered: the body of a response, Anthropic's message, or Google's response itself."""
    if isinstance(own := fields.get("response"), dict) and "candidates" in own:
        return own
    places = (("response", "body"), ("result", "message"))
    found = (fields_in(fields_in(fields.get(outer)).get(inner)) for outer, inner in places)
    return dict(next(filter(None, found), {}))


def _objects(fields: Fields) -> set[str]:
    return {str(each.get("object")) for each in _objects_in(_body(fields).get("data"))}


def _without_answer(line: Row, question: Row | None, reason: LeftOutError, example: str = "") -> Run:
    return Run(line, _model(line, question), reason, reason, example=example)


def _model(line: Row, question: Row | None) -> str:
    """The model of the request; Mistral and Google name it for the whole batch, and the answer repeats it."""
    body = _body(line.fields)
    asked = _request(question.fields).get("model") if question else None
    return str(asked or body.get("model") or body.get("modelVersion") or "")


def _replies(line: Row, question: Row | None, twice: set[str]) -> Iterator[Run]:
    body = _body(line.fields)
    if failed := _failure(line.fields, body):
        yield _without_answer(line, question, LeftOutError(failed[0]), failed[1])
        return
    if question is None or question.place in twice:
        reason = "whose id stands in two lines of questions" if question else "without its question"
        yield _without_answer(line, question, LeftOutError(reason))
        return
    request = _request(question.fields)
    asked = _asked(request)
    said = request.get("messages")
    if isinstance(said, list) and said and isinstance(said[-1], dict) and said[-1].get("role") == "assistant":
        asked = LeftOutError("which the request itself began")
    items = [each for name in ("output", "content") for each in _objects_in(body.get(name))]
    if isinstance(asked, Asked) and any(str(each.get("type")).endswith(_OF_TOOLS) for each in items):
        asked = replace(asked, after_tools=True)
    settings = {name: value for name, value in request.items() if name not in _NO_SETTINGS}
    for answer in answers_in(body):
        yield Run(line, _model(line, question), asked, answer, settings)


_OF_TOOLS = ("_call", "tool_use", "tool_result")


def _asked(given: Any, system: Any = None) -> Asked | LeftOutError:
    try:
        return asked_in(given, system)
    except LeftOutError as error:
        return error


def _failure(fields: Fields, body: Fields) -> tuple[str, str] | None:
    """The kind and the words of a failure. A refused request has its error in the body alone."""
    response, result = fields.get("response"), fields.get("result")
    status = response.get("status_code") if isinstance(response, dict) else None
    kind = str(result.get("type", "succeeded")) if isinstance(result, dict) else "succeeded"
    error = fields.get("error") or body.get("error") or (isinstance(result, dict) and result.get("error"))
    error = error or (not body and fields.get("status"))
    if not (error or kind != "succeeded" or not body or (isinstance(status, int) and status >= 400)):
        return None
    while isinstance(error, dict) and isinstance(error.get("error"), dict):
        error = error["error"]
    said = error if isinstance(error, dict) else {"message": error or ""}
    named = status if isinstance(status, int) and status >= 400 else said.get("code") or said.get("type")
    named = kind if kind not in {"succeeded", "errored"} else named
    return f"an error ({named})" if named else "an error", str(said.get("message") or "")


# ---------------------------------------------------------------- Inspect

_IN_A_LOG = re.compile(r"/(?:header\.json|_journal/.*|samples/.*)$")
_ATTACHMENT = re.compile(r"attachment://([0-9A-Za-z]+)")
_ENDED = {"error": "stopped by an error", "cancelled": "cancelled", "started": "not finished"}


def _log_of(file: str) -> str:
    return _IN_A_LOG.sub("", file)


def _is_inspect(fields: Fields) -> bool:
    return isinstance(fields.get("eval"), dict) and "model" in fields["eval"]


def _inspect(rows: Iterable[Row], findings: Findings) -> Iterator[Run]:
    """Inspect's logs: a header, which an unfinished log lacks, and samples."""
    headers: dict[str, dict[str, Any]] = {}
    for row in rows:
        log = _log_of(row.file)
        if _is_inspect(row.fields):
            headers[log] = headers.get(log, {}) | dict(row.fields)
        elif log in headers:
            yield from _sample(row, headers[log], findings)
    for log, header in headers.items():
        if ended := _ENDED.get(str(header.get("status") or "started")):
            said = header.get("error")
            why = f": {said.get('message')}" if isinstance(said, dict) and said.get("message") else ""
            findings.note(f"{log or 'The log'}: {ended}{why}.")


def _sample(row: Row, header: Fields, findings: Findings) -> Iterator[Run]:
    fields, plan = row.fields, fields_in(header.get("plan"))
    settings = fields_in(header["eval"].get("model_generate_config") or plan.get("config"))
    target = fields.get("target")
    whole: dict[str, Any] = {
        "model": str(header["eval"].get("model") or ""),
        "settings": {name: value for name, value in settings.items() if not is_empty(value)},
        "reference": None if isinstance(target, dict) else target,
    }
    if isinstance(error := fields.get("error"), dict) and error:
        failed = LeftOutError("failed")
        yield Run(row, asked=failed, answer=failed, example=str(error.get("message") or ""), **whole)
        return
    try:
        given, output, messages = (
            _attached(fields.get(name), fields_in(fields.get("attachments")))
            for name in ("input", "output", "messages")
        )
    except LeftOutError as lost:
        yield Run(row, asked=lost, answer=lost, **whole)
        return
    system = [
        each["params"]["template"]
        for each in _objects_in(plan.get("steps"))
        if str(each.get("solver")).endswith("system_message")
        and isinstance(each.get("params"), dict)
        and isinstance(each["params"].get("template"), str)
    ]
    asked = _asked(given, "\n".join(system))
    if isinstance(asked, Asked):
        if any(each.get("role") == "tool" for each in _objects_in(messages)):
            asked = replace(asked, after_tools=True)
        sent = _asked(messages)
        if isinstance(sent, Asked):
            # What the model got: templates are filled there.
            asked = replace(asked, system=sent.system or asked.system)
            if sent.messages != asked.messages:
                findings.note(f"{whole['model']}: a solver changed the prompt; new policies get the input.")
        asked = _with_choices(asked, fields.get("choices"))
    first, *others = answers_in(output)
    for _ in others:
        findings.leave("further choice", "of one answer: the first is the answer", row.place)
    yield Run(row, asked=asked, answer=first, **whole)


def _with_choices(asked: Asked, choices: Any) -> Asked:
    """The task with the answers to choose from, as Inspect shows them."""
    if not isinstance(choices, list) or not choices:
        return asked
    *before, last = asked.messages
    listed = "".join(f"\n{chr(ord('A') + n)}) {choice}" for n, choice in enumerate(choices))
    return replace(asked, messages=(*before, Message(last.role, last.content + listed)))


def _attached(value: Any, attachments: Fields) -> Any:
    """The value with the long texts that stand apart."""
    if isinstance(value, dict):
        return {name: _attached(each, attachments) for name, each in value.items()}
    if isinstance(value, list):
        return [_attached(each, attachments) for each in value]
    if not isinstance(value, str):
        return value
    names = _ATTACHMENT.findall(value)
    if any(name not in attachments for name in names):
        raise LeftOutError("with a missing attachment")
    # A text may name one of them any number of times.
    if TEXT_CHARACTERS.refusal(sum(len(str(attachments[name])) for name in names)):
        raise LeftOutError("with attachments that are too long")
    return _ATTACHMENT.sub(lambda found: str(attachments[found[1]]), value)


# ---------------------------------------------------------------- lm-evaluation-harness


def _lm_eval(rows: Iterable[Row], findings: Findings) -> Iterator[Run]:
    """Samples of lm-evaluation-harness: a row for each document and filter. The folder names the model."""
    seen: set[tuple[str, str, str]] = set()
    texts = 0
    for row in rows:
        if not _is_lm_eval(row.fields):
            findings.leave("row", "without a document and responses", row.place)
            continue
        given = row.fields["resps"]
        key = (row.file, str(row.fields["doc_id"]), repr(given))
        if key in seen:
            name = str(row.fields.get("filter") or "")
            findings.leave("row", "with the answers of another row, filtered otherwise", row.place, name)
            continue
        seen.add(key)
        findings.take("row")
        context, settings = _arguments(row.fields.get("arguments"))
        answers: list[Answer | LeftOutError] = [Answer(each) for each in _strings(in_json(given))]
        if settings is None or not answers:
            answers = [LeftOutError("likelihoods, no texts")]
        texts += settings is not None
        target = row.fields.get("target")
        for answer in answers:
            yield Run(
                row,
                _folder(row.file),
                _context(context),
                answer,
                settings or {},
                None if isinstance(target, dict) else target,
            )
    if not texts:
        raise ImportingError.at(
            "", "This file holds likelihoods, no texts. Bring a task that generates them."
        )


def _is_lm_eval(fields: Fields) -> bool:
    return fields.keys() >= {"doc_id", "resps"}


def _folder(file: str) -> str:
    path = PurePosixPath(file)
    return (path.parent.name.removesuffix(".zip") or path.stem).replace("__", "/")


def _arguments(given: Any) -> tuple[Any, Fields | None]:
    """The context of the first request with the settings of its generation; `None` for a likelihood."""
    given = in_json(given)
    if isinstance(given, dict):
        given = next((each for each in given.values() if isinstance(each, (dict, list))), [])
        given = [*given.values()] if isinstance(given, dict) else given
    while (
        isinstance(given, list) and given and isinstance(given[0], list) and not isinstance(given[-1], dict)
    ):
        given = given[0]
    if not isinstance(given, list) or not given:
        return "", None
    settings = next((each for each in map(in_json, given[1:]) if isinstance(each, dict)), None)
    return given[0], settings


def _context(given: Any) -> Asked | LeftOutError:
    if isinstance(given, list) and len(given) == 1:
        given = given[0]
    found = in_json(given)
    if isinstance(found, list) and all(isinstance(each, dict) and "role" in each for each in found):
        return _asked(found)
    return Asked(chat(str(given))) if str(given).strip() else LeftOutError("to a task without a text")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


# ---------------------------------------------------------------- AlpacaEval


_OUTPUTS = {
    "instruction", "input", "output", "dataset", "datasplit", "raw_completion", "time_per_example",
    "price_per_example",
}  # fmt: skip


def _is_alpaca(fields: Fields) -> bool:
    if "instruction" not in fields:
        return False
    # Without a generator, a column of a name that is not theirs may say whose output it is.
    return "output_1" in fields or (
        "output" in fields and ("generator" in fields or fields.keys() <= _OUTPUTS)
    )


def _alpaca(rows: Iterable[Row], findings: Findings) -> Iterator[Run]:
    """AlpacaEval's outputs, or the two of each annotation. The vote there is a model's."""
    annotated: set[tuple[str, str, str]] = set()
    for row in rows:
        fields = row.fields
        told = "\n\n".join(str(fields[name]) for name in ("instruction", "input") if fields.get(name))
        asked = Asked(chat(told)) if told.strip() else LeftOutError("to a task without a text")
        of_file = PurePosixPath(row.file).stem
        sides = [("generator", "output")]
        if "output_1" in fields:
            findings.leave("vote", "of a language model, which becomes no person's", row.place)
            sides = [("generator_1", "output_1"), ("generator_2", "output_2")]
        for generator, output in sides:
            text, model = fields.get(output), str(fields.get(generator) or of_file)
            # One of the two is the same in many rows.
            if "output_1" in fields:
                if (model, told, str(text)) in annotated:
                    continue
                annotated.add((model, told, str(text)))
            answer = Answer(text) if isinstance(text, str) else LeftOutError("no answer")
            yield Run(row, model, asked, answer, tags=fields.get("dataset"))


# ---------------------------------------------------------------- MT-Bench

# Of its two programs, that of servers and that of local models.
_FAILED = {"$ERROR$", "ERROR"}


def _is_mt_bench(fields: Fields) -> bool:
    return "question_id" in fields and not fields.keys().isdisjoint({"turns", "choices"})


def _mt_bench(rows: Iterable[Row], findings: Findings) -> Iterator[Run]:
    """MT-Bench's questions with the first turns of the answers. Later turns go on with each model's own."""
    questions: dict[str, Fields] = {}
    references: dict[str, Any] = {}
    answers: dict[tuple[str, str, str], Row] = {}
    replaced = LeftOutError("replaced by a later answer")
    for row in rows:
        fields, name = row.fields, str(row.fields.get("question_id"))
        key = row.file, str(fields.get("model_id") or ""), name
        if isinstance(fields.get("turns"), list):
            questions.setdefault(name, fields)
        elif not isinstance(fields.get("choices"), list):
            findings.leave("vote", "of a language model, which becomes no person's", row.place)
        elif "reference_answer" in row.file:
            references[name] = next(iter(_turns(fields)), [None])[0]
        elif (earlier := answers.get(key)) is None:
            answers[key] = row
        else:
            older, answers[key] = sorted((earlier, row), key=_time)
            yield Run(older, key[1], replaced, replaced)
    if not questions:
        raise ImportingError.at("", "These lines hold answers of MT-Bench; add question.jsonl.")
    for (_, model, name), row in answers.items():
        question = questions.get(name, {})
        turns = [each for each in map(_said, question.get("turns") or ()) if each.strip()]
        asked = Asked(chat(turns[0])) if turns else LeftOutError("without its question")
        reference = next(iter(question.get("reference") or ()), None) or references.get(name)
        for said in _turns(row.fields) or [[]]:
            failed = not said or said[0].strip() in _FAILED
            answer = LeftOutError("an error" if said else "no answer") if failed else Answer(said[0])
            yield Run(row, model, asked, answer, reference=reference, tags=question.get("category"))
            for _ in filter(str.strip, said[1:] if not failed else ()):
                why = "as each goes on with the model's own first answer, which is no common task"
                findings.leave("later turn", why, row.place)


def _time(row: Row) -> float:
    try:
        return float(row.fields.get("tstamp") or 0)
    except (TypeError, ValueError):
        return 0


def _turns(fields: Fields) -> list[list[str]]:
    """The texts of each of the answers, turn by turn."""
    return [[_said(turn) for turn in each.get("turns") or ()] for each in _objects_in(fields["choices"])]


def _said(turn: Any) -> str:
    return str(turn.get("content") or "") if isinstance(turn, dict) else str(turn or "")


_TOOLS: Sequence[tuple[str, Callable[[Fields], bool], Reader]] = (
    ("a batch", _is_batch, _batch),
    ("Inspect", _is_inspect, _inspect),
    ("lm-evaluation-harness", _is_lm_eval, _lm_eval),
    ("MT-Bench", _is_mt_bench, _mt_bench),
    ("AlpacaEval", _is_alpaca, _alpaca),
)
