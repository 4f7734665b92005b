"""Files whose rows are nested: each of their rows becomes rows of plain columns with our names.

Files of other tools that only call their columns otherwise are in the table of `mapping`.
"""

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from engine.domain import limits
from engine.domain.material_kinds import Material
from engine.importing import runs
from engine.importing.findings import Findings
from engine.importing.formula_cells import as_it_was
from engine.importing.mapping import TASK_NAMES, known_roles, unmarked
from engine.importing.rows import Fault, ImportingError, Row, in_json, is_empty

Fields = Mapping[str, Any]
# The rows that a row of a format becomes, none where nobody has answered it; `None` for another format.
Reader = Callable[[Row], "list[Row] | None"]
_KAGGLE = {"winner_model_a": "a", "winner_model_b": "b", "winner_tie": "tie"}


def unfolded(
    rows: Iterable[Row | Fault], material: Material, findings: Findings | None = None
) -> Generator[Row | Fault]:
    """The rows, those of a nested format as the rows that they hold.

    ``findings``: also runs of other tools are wanted, and these say what is left out of one.
    """
    if material == Material.RESPONSES and findings is not None:
        rows = runs.unfolded(rows, findings)
    for row in rows:
        if isinstance(row, Fault):
            yield row
            continue
        try:
            found = next((each for read in _READERS[material] if (each := read(row)) is not None), [row])
            yield from map(_whole, found)
        except ImportingError as error:
            yield from error.faults


# ---------------------------------------------------------------- tasks


def _whole(row: Row) -> Row:
    """Alpaca's instruction and its input as one task; lists of roles and of contents, which `datasets`
    makes of messages, as messages.
    """
    fields = {name: _in_turns(value) for name, value in row.fields.items()}
    given, more = fields.get("instruction"), fields.get("input")
    others = fields.keys() & {*TASK_NAMES, "query"} - {"instruction", "input"}
    if isinstance(given, str) and isinstance(more, str) and given and not others:
        rest = {name: value for name, value in fields.items() if name not in {"instruction", "input"}}
        return Row(row.place, {"task": f"{given}\n\n{more}" if more else given} | rest)
    return Row(row.place, fields)


def _in_turns(value: Any) -> Any:
    if not isinstance(value, dict) or not value.keys() >= {"role", "content"}:
        return value
    lists = [each for each in value.values() if isinstance(each, list)]
    if len(lists) < len(value) or len({len(each) for each in lists}) > 1:
        return value
    return [dict(zip(value, parts, strict=True)) for parts in zip(*lists, strict=True)]


def _big_bench(row: Row) -> list[Row] | None:
    """BIG-bench's examples: the choices belong to the question, and the best one is the answer."""
    fields = dict(row.fields)
    prefix, scores = fields.pop("task_prefix", ""), fields.pop("target_scores", None)
    if not (prefix or isinstance(scores, dict)) or not isinstance(fields.get("input"), str):
        return None
    if isinstance(scores, dict) and scores and all(isinstance(s, (int, float)) for s in scores.values()):
        fields.setdefault("target", max(scores, key=scores.__getitem__))
        fields["input"] += "".join(f"\nchoice: {choice}" for choice in scores)
    return [Row(row.place, fields | {"input": f"{prefix}{fields['input']}"})]


def _squad(row: Row) -> list[Row] | None:
    """SQuAD: articles hold paragraphs, and those hold the questions with their answers."""
    if not isinstance(paragraphs := row.fields.get("paragraphs"), list):
        return None
    rows = []
    for p, paragraph in enumerate(paragraphs, 1):
        for q, question in enumerate(paragraph.get("qas", ()) if isinstance(paragraph, dict) else (), 1):
            answers = [each.get("text") for each in question.get("answers", ()) if isinstance(each, dict)]
            fields = {"context": paragraph.get("context"), "title": row.fields.get("title")} | question
            rows.append(Row(f"{row.place}, paragraph {p}, question {q}", fields | {"answers": answers}))
    return rows


# ---------------------------------------------------------------- votes


_OURS = {"policy_i", "policy_j", "policy_i_name", "policy_j_name", "left_policy", "choice", "voided"}
_OF_PEOPLE = {"task", "policy_i_name", "policy_j_name", "response_i", "response_j", "annotator"}


def _ours(row: Row) -> list[Row] | None:
    """Our own export of judgments: a is the policy that was on the left. A voided judgment is no vote."""
    if not row.fields.keys() >= _OURS:
        return None
    # CSV has nothing but texts, and those that a spreadsheet would run are written with an apostrophe.
    is_csv = isinstance(row.fields.get("judgment_id"), str)
    fields = {n: as_it_was(v) if is_csv and isinstance(v, str) else v for n, v in row.fields.items()}
    # R writes NA in the place of an empty cell. People may have written it in their texts.
    fields |= {n: "" for n, v in fields.items() if v == "NA" and n not in _OF_PEOPLE}
    if _is_true(row.place, fields, "voided"):
        return []
    if fields.get("task_variables") not in (None, "", "{}", {}):
        raise ImportingError.at(
            row.place,
            "The task has variables, which past votes cannot keep. Export as LMArena, and import that.",
        )
    left = fields["left_policy"]
    if left not in (fields["policy_i"], fields["policy_j"]):
        raise ImportingError.at(row.place, f"left_policy is {limits.shown(left)}, and no policy of the row.")
    halves = "ij" if left == fields["policy_i"] else "ji"
    messages = in_json(fields.get("task_messages")) or None
    if messages is not None and not isinstance(messages, list):
        raise ImportingError.at(row.place, "task_messages is no list of messages. Export the file again.")
    ours = fields.get("plan_number") not in (None, "")
    known = _is_true(row.place, fields, "texts_known", missing=ours)
    given = {
        "task": messages or fields.get("task"),
        "annotator": fields.get("annotator"),
        "judgment_uuid": fields.get("judgment_uuid"),
        "judged_by": fields.get("judge"),
        "judged_at": fields.get("judged_at") if _is_true(row.place, fields, "time_known") else None,
        "winner": fields["choice"],
        "side_a": "left",
        "texts_known": known,
        "side_known": _is_true(row.place, fields, "side_known"),
    }
    for side, half in zip("ab", halves, strict=True):
        text = fields.get(f"response_{half}")
        given |= {f"policy_{side}": fields[f"policy_{half}_name"]}
        given |= {f"response_{side}": text if known or text else None}
    return [Row(row.place, given)]


def _is_true(place: str, fields: Fields, name: str, *, missing: bool = True) -> bool:
    """The truth in one of our columns. Spreadsheets write them in capital letters or as numbers."""
    said = str(fields.get(name, missing)).lower()
    if said not in {"true", "false", "1", "0"}:
        raise ImportingError.at(place, f"{name} is {limits.shown(fields[name])}. Write true or false.")
    return said in {"true", "1"}


def _label_studio(row: Row) -> list[Row] | None:
    """Label Studio's task with its annotations, or a row of JSON-MIN. a is on the left."""
    data, annotations = row.fields.get("data"), row.fields.get("annotations")
    if isinstance(data, Mapping) and isinstance(annotations, list):
        given = [each for each in annotations if isinstance(each, Mapping)]
        return [vote for each in given for vote in _annotated(row.place, data, each)]
    if "annotation_id" not in row.fields:
        return None
    known = known_roles(Material.VOTES, row.fields)
    asked = {name: value for name, value in row.fields.items() if known.get(name, "winner") == "winner"}
    if answer := _answer(row.place, [word for value in asked.values() for word in _words(in_json(value))]):
        return [Row(row.place, {**row.fields, "winner": answer, "side_a": "left"})]
    said = any(name in known and not is_empty(value) for name, value in asked.items())
    return [Row(row.place, {**row.fields, "side_a": "left"})] if said else []


_TIES = {
    **dict.fromkeys(("tie", "tied", "equallygood", "bothgood", "tieinconsistent"), "tie"),
    **dict.fromkeys(("bothbad", "tiebothbad", "bothbadtie"), "both_bad"),
}
# These may also be data of a task.
_NO_SIDE = _TIES | dict.fromkeys(("draw", "equal", "same"), "tie") | {"neither": "both_bad"}
_OF_SIDE = {"left": "a", "right": "b"}


def _annotated(place: str, data: Fields, annotation: Fields) -> Iterator[Row]:
    """The vote of an annotation; none if it was cancelled or has no result."""
    results = annotation.get("result")
    words = [w for each in results or () if isinstance(each, Mapping) for w in _words(each.get("value"))]
    if annotation.get("was_cancelled") or not words:
        return
    if not (answer := _answer(place, words)):
        raise ImportingError.at(
            place,
            f"The annotation says {', '.join(map(limits.shown, words))}. Write left, right, tie or both_bad.",
        )
    by = annotation.get("completed_by")
    by = (by.get("email") or by.get("id")) if isinstance(by, Mapping) else by
    own = {"winner": answer, "annotator": by, "judged_at": annotation.get("created_at"), "side_a": "left"}
    yield Row(place, {**data, **own})


def _words(value: Any) -> list[str]:
    """The words that a result holds: of a choice, of a side, or one that can only be an answer."""
    if isinstance(value, list):
        return [word for each in value for word in _words(each)]
    if isinstance(value, str):
        return [value] if unmarked(value) in _TIES.keys() | _OF_SIDE.keys() else []
    given = value.get("selected", value.get("choices")) if isinstance(value, Mapping) else None
    return [word for word in (given if isinstance(given, list) else [given]) if isinstance(word, str)]


def _answer(place: str, words: Sequence[str]) -> str:
    """The answer that words give, a tie before a side; empty if none does."""
    said = {_OF_SIDE.get(answer, answer) for word in words if (answer := said_in(word))}
    said = said & {"tie", "both_bad"} or said
    if len(said) > 1:
        raise ImportingError.at(
            place,
            f"An annotation has several answers: {', '.join(map(limits.shown, words))}. Remove all but one.",
        )
    return next(iter(said), "")


_THINGS = ("", "policy", "model", "response", "answer", "option", "output", "completion", "text", "assistant")
_WORDS = {
    f"{thing}{word}": side for thing in _THINGS for side in "ab" for word in (side, "ab".index(side) + 1)
}
_WORDS |= _NO_SIDE | {f"{thing}{side}": side for thing in _THINGS for side in _OF_SIDE}


def said_in(word: str) -> str:
    """The answer that a word gives: a, b, tie, both_bad, left or right; empty where it gives none."""
    # A sign or a doubt makes it another answer: -1, ≠A, "B?".
    if word.strip()[:1] in {*"-+−±.,<>=≠≤≥!¬~%/"} or word.strip().endswith("?"):
        return ""
    return _WORDS.get(unmarked(word), "")


def _argilla(row: Row) -> list[Row] | None:
    """Argilla's record: several people's answers to a question about two responses. a is on the left."""
    fields = row.fields
    record, questions = fields.get("fields"), fields.get("responses")
    if isinstance(record, Mapping) and isinstance(questions, Mapping):
        metadata = in_json(fields.get("metadata"))
        record = {**(metadata if isinstance(metadata, Mapping) else {}), **record}
    elif names := [name.removesuffix(".responses") for name in fields if name.endswith(".responses")]:
        # As `to_datasets` flattens it.
        record = {name: value for name, value in fields.items() if ".responses" not in name}
        questions = {
            name: [
                dict(zip(("value", "user_id", "status"), each, strict=True))
                for each in zip_longest(
                    *(fields.get(f"{name}.responses{part}") or () for part in ("", ".users", ".status"))
                )
            ]
            for name in names
        }
    else:
        return None
    # Our own export has names, times, UUIDs and kinds of judges beside the answers, in their order.
    beside = {"annotators": "annotator", "judged_at": "judged_at", "judgment_uuids": "judgment_uuid"}
    lists = {role: record.pop(name, None) for name, role in (beside | {"judged_by": "judged_by"}).items()}
    rows = []
    for number, answer in enumerate(_answers(row.place, questions)):
        own = {"winner": _best(answer.get("value")), "annotator": answer.get("user_id"), "side_a": "left"}
        own |= {
            role: each[number] for role, each in lists.items() if isinstance(each, list) and each[number:]
        }
        if _counts(answer):
            rows.append(Row(row.place, record | own))
    return rows


def _counts(answer: Mapping[str, Any]) -> bool:
    return answer.get("status") not in {"draft", "discarded"} and _best(answer.get("value")) is not None


def _answers(place: str, questions: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The answers to the question whose answers name a response, by the name of a winner where several do."""
    given = {
        name: [a for a in answers or () if isinstance(a, Mapping)] for name, answers in questions.items()
    }
    counted = {name: [a for a in answers if _counts(a)] for name, answers in given.items()}
    readable = [
        n for n, each in counted.items() if each and all(said_in(str(_best(a["value"]))) for a in each)
    ]
    if not readable and any(counted.values()):
        raise ImportingError.at(
            place, f"No answer to {', '.join(questions)} names a response. Write a, b, tie or both_bad."
        )
    if len(readable) > 1:
        found = [name for name in readable if known_roles(Material.VOTES, [name]).get(name) == "winner"]
        if len(found) != 1:
            raise ImportingError.at(
                place,
                f"The answers to {' and '.join(readable)} name a response. Call the one that counts "
                "preference.",
            )
        readable = found
    return given[readable[0]] if readable else []


def _best(value: Any) -> Any:
    """The best of a ranking, a tie where two share the first rank; the one label of a list of one."""
    if not isinstance(value, list) or not value:
        return value
    if all(isinstance(each, Mapping) and isinstance(each.get("rank"), int) for each in value):
        first = min(each["rank"] for each in value)
        value = [each.get("value") for each in value if each["rank"] == first]
        return value[0] if len(value) == 1 else "tie"
    return value[0] if len(value) == 1 else None


def _kaggle(row: Row) -> list[Row] | None:
    """LMArena's table for Kaggle: lists of turns, and a column for each answer."""
    if not row.fields.keys() >= _KAGGLE.keys():
        return None
    fields = {name: value for name, value in row.fields.items() if name not in _KAGGLE}
    marked = [winner for name, winner in _KAGGLE.items() if str(row.fields[name]) == "1"]
    if len(marked) != 1:
        raise ImportingError.at(row.place, f"One of {', '.join(_KAGGLE)} must be 1, and the others 0.")
    turns = [in_json(fields.pop(name, None)) for name in ("prompt", "response_a", "response_b")]
    if not all(isinstance(each, list) and len(each) == len(turns[0]) for each in turns):
        raise ImportingError.at(row.place, "prompt, response_a and response_b must have as many turns each.")
    for side, given in zip("ab", turns[1:], strict=True):
        fields[f"conversation_{side}"] = [
            {"role": role, "content": text or ""}
            for pair in zip(turns[0], given, strict=True)
            for role, text in zip(("user", "assistant"), pair, strict=True)
        ]
    return [Row(row.place, fields | {"winner": marked[0], "side_a": "left"})]


def _of_a_model(row: Row) -> list[Row] | None:
    """AlpacaEval's annotations, whose preference may lie between 1 and 2, and MT-Bench's judgments, whose
    judge is a model with its prompt: votes of a model.
    """
    fields = row.fields
    by_model = {"judged_by": "llm"} | dict(fields)
    if isinstance(in_json(fields.get("judge")), list):
        return [Row(row.place, by_model)]
    if not fields.keys() >= {"generator_1", "generator_2", "preference"}:
        return None
    with contextlib.suppress(TypeError, ValueError):
        preference = float(fields["preference"])
        by_model["preference"] = "1.5" if preference == 1.5 else "1" if preference < 1.5 else "2"
    return [Row(row.place, by_model)]


_READERS: Mapping[Material, Sequence[Reader]] = {
    Material.TASKS: (_big_bench, _squad),
    Material.RESPONSES: (),
    Material.VOTES: (_ours, _label_studio, _argilla, _kaggle, _of_a_model),
}
