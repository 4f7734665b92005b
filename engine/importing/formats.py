"""Files whose rows are nested: each of their rows becomes rows of plain columns with our names.

Files of other tools that only call their columns otherwise are in the table of `mapping`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from engine.domain import limits
from engine.domain.material import Material
from engine.importing.defusing import as_it_was
from engine.importing.mapping import TASK_NAMES, known_roles, unmarked
from engine.importing.rows import Fault, ImportingError, Row, in_json, is_empty

Fields = Mapping[str, Any]
# The rows that a row of a format becomes, none where nobody has answered it; `None` for another format.
Reader = Callable[[Row], "list[Row] | None"]
_KAGGLE = {"winner_model_a": "a", "winner_model_b": "b", "winner_tie": "tie"}


def unfolded(rows: Iterable[Row | Fault], material: Material) -> Iterator[Row | Fault]:
    """The rows, those of a nested format as the rows that they hold."""
    for row in rows:
        if isinstance(row, Fault):
            yield row
            continue
        try:
            yield from unfold(row, material)
        except ImportingError as error:
            yield from error.faults


def unfold(row: Row, material: Material) -> list[Row]:
    """The rows that a row holds; itself if it is of no nested format."""
    found = next((each for read in _READERS[material] if (each := read(row)) is not None), [row])
    return [_whole(each) for each in found]


def is_nested(row: Row, material: Material) -> bool:
    """True for a row of a nested format."""
    try:
        return any(read(row) is not None for read in _READERS[material])
    except ImportingError:
        return True


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
    """Label Studio's task with its annotations, or a row of its short export. a is on the left."""
    data, annotations = row.fields.get("data"), row.fields.get("annotations")
    if isinstance(data, Mapping) and isinstance(annotations, list):
        return [
            each for a in annotations if isinstance(a, Mapping) for each in _annotated(row.place, data, a)
        ]
    if "annotation_id" not in row.fields:
        return None
    known = known_roles(Material.VOTES, row.fields)
    words: dict[str, list[str]] = {}
    for name, value in row.fields.items():
        given = in_json(value)
        if isinstance(value, str) and given is value and known.get(name, "winner") == "winner":
            words[name] = [value] * (unmarked(value) in _NO_SIDE or unmarked(value) in {"left", "right"})
        else:
            words[name] = [
                w for each in (given if isinstance(given, list) else [given]) for w in _words(each)
            ]
    said = [word for each in words.values() for word in each]
    answer = _answer(row.place, said)
    # A column that holds such a word may be data, as the category “draw”.
    name = next((n for n, each in words.items() if n not in known and {*each} & _ALSO_DATA), "")
    if name and not {"left", "right"}.isdisjoint(map(unmarked, said)):
        raise ImportingError.at(
            row.place, f"{name} is {limits.shown(row.fields[name])}, and a side is chosen too. Remove one."
        )
    own = {"winner": answer} if answer else {}
    if not own and all(known.get(n) != "winner" or is_empty(v) for n, v in row.fields.items()):
        return []
    return [Row(row.place, {**row.fields, **own, "side_a": "left"})]


_NO_SIDE = {
    **dict.fromkeys(
        ("tie", "tied", "draw", "equal", "equallygood", "bothgood", "same", "tieinconsistent"), "tie"
    ),
    **dict.fromkeys(("bothbad", "tiebothbad", "bothbadtie", "neither"), "both_bad"),
}
_ALSO_DATA = {"draw", "same", "equal", "neither"}
_OF_SIDE = {"left": "a", "right": "b"}


def _annotated(place: str, data: Fields, annotation: Fields) -> Iterator[Row]:
    """The vote of an annotation; none if it was cancelled or has no result."""
    results = annotation.get("result")
    values = [each.get("value") for each in results or () if isinstance(each, Mapping)]
    words = [word for value in values for word in _words(value)]
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
    """The words that a result of a choice or of a side holds."""
    if not isinstance(value, Mapping):
        return []
    choices = value.get("choices")
    words = [value["selected"]] if "selected" in value else choices if isinstance(choices, list) else []
    return [word for word in words if isinstance(word, str)]


def _answer(place: str, words: Sequence[str]) -> str:
    """The answer that words give, a tie before a side; empty if none does."""
    said = {word: said_in(word) for word in words}
    answers = {word: _OF_SIDE.get(answer, answer) for word, answer in said.items() if answer}
    counted = {word: answer for word, answer in answers.items() if answer in {"tie", "both_bad"}} or answers
    if len({*counted.values()}) > 1:
        raise ImportingError.at(
            place,
            f"An annotation has several answers: {', '.join(map(limits.shown, counted))}. Remove "
            "all but one.",
        )
    return next(iter(counted.values()), "")


_THINGS = ("", "policy", "model", "response", "answer", "option", "output", "completion", "text", "assistant")
NAMED = {
    f"{thing}{word}": side
    for thing in _THINGS
    for side, words in (("a", "a1"), ("b", "b2"))
    for word in words
}
ON_SIDE = {f"{thing}{side}": side for thing in _THINGS for side in ("left", "right")}


def said_in(word: str) -> str:
    """The answer that a word gives: a, b, tie, both_bad, left or right; empty where it gives none."""
    # A sign or a doubt makes it another answer: -1, ≠A, "B?".
    if word.strip()[:1] in {*"-+−±.,<>=≠≤≥!¬~%/"} or word.strip().endswith("?"):
        return ""
    key = unmarked(word)
    return NAMED.get(key) or _NO_SIDE.get(key) or ON_SIDE.get(key, "")


def _argilla(row: Row) -> list[Row] | None:
    """Argilla's record: several people's answers to a question about two responses. a is on the left."""
    fields = row.fields
    metadata = in_json(fields.get("metadata"))
    record: dict[str, Any] = dict(metadata) if isinstance(metadata, Mapping) else {}
    if isinstance(fields.get("fields"), Mapping) and isinstance(fields.get("responses"), Mapping):
        record |= fields["fields"]
        questions = dict(fields["responses"])
    elif names := [name for name in fields if name.endswith(".responses")]:
        record |= {name: value for name, value in fields.items() if ".responses" not in name}
        questions = {name.removesuffix(".responses"): _flattened(fields, name) for name in names}
    else:
        # The first releases write the record flat.
        questions = {
            name: each for name, value in fields.items() if (each := _first_releases(value)) is not None
        }
        if not questions:
            return [] if fields.keys() >= {"external_id", "metadata"} else None
        record |= {name: value for name, value in fields.items() if name not in {*questions, "metadata"}}
    answers = _answers(row.place, questions)
    # Our own export has names, times, UUIDs and kinds of judges beside the answers, in their order.
    beside = {"annotators": "annotator", "judged_at": "judged_at", "judgment_uuids": "judgment_uuid"}
    lists = {role: record.pop(name, None) for name, role in (beside | {"judged_by": "judged_by"}).items()}
    rows = []
    for number, answer in enumerate(answers):
        own = {"winner": answer["value"], "annotator": answer.get("user_id"), "side_a": "left"}
        for role, values in lists.items():
            if isinstance(values, list) and number < len(values):
                own[role] = values[number]
        if answer.get("status") not in {"draft", "discarded"}:
            rows.append(Row(row.place, record | own))
    return rows


def _answers(place: str, questions: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The answers to the question whose answers name a response, by the name of a winner where several do."""
    readable: dict[str, list[dict[str, Any]]] = {}
    given = False
    for name, answers in questions.items():
        each = [{**a, "value": _best(a.get("value"))} for a in answers or () if isinstance(a, Mapping)]
        counted = [
            a for a in each if a.get("status") not in {"draft", "discarded"} and a["value"] is not None
        ]
        given = given or bool(counted)
        if counted and all(isinstance(a["value"], str) and said_in(a["value"]) for a in counted):
            readable[name] = each
    if not readable and given:
        raise ImportingError.at(
            place, f"No answer to {', '.join(questions)} names a response. Write a, b, tie or both_bad."
        )
    by_name = [n for n in readable if known_roles(Material.VOTES, [n]).get(n) == "winner"]
    if len(readable) > 1 and len(by_name) != 1:
        raise ImportingError.at(
            place,
            f"The answers to {' and '.join(readable)} name a response. Call the one that counts preference.",
        )
    return readable[by_name[0] if by_name else next(iter(readable))] if readable else []


def _best(value: Any) -> Any:
    """The best of a ranking, a tie where two share the first rank; any other value as it is."""
    if not isinstance(value, list) or not value:
        return value
    if all(isinstance(each, Mapping) and isinstance(each.get("rank"), (int, float)) for each in value):
        first = min(each["rank"] for each in value)
        best = [each.get("value") for each in value if each["rank"] == first]
        return best[0] if len(best) == 1 else "tie"
    return value[0] if len(value) == 1 else None


def _flattened(fields: Fields, name: str) -> list[dict[str, Any]]:
    values, users, statuses = (
        each if isinstance(each, list) else [] if each is None else [each]
        for each in (fields[name], fields.get(f"{name}.users"), fields.get(f"{name}.status"))
    )
    return [
        {
            "value": value,
            "user_id": users[n] if n < len(users) else None,
            "status": statuses[n] if n < len(statuses) else None,
        }
        for n, value in enumerate(values)
    ]


def _first_releases(value: Any) -> list[Any] | None:
    """The answers that a column of an older record holds: objects, or one object of lists."""
    wanted = {"value", "user_id"}
    if isinstance(value, Mapping) and value.keys() >= wanted:
        lists = [each if isinstance(each, list) else [] for each in value.values()]
        return [dict(zip(value, parts, strict=False)) for parts in zip(*lists, strict=False)]
    if (
        isinstance(value, list)
        and value
        and all(isinstance(v, Mapping) and v.keys() >= wanted for v in value)
    ):
        return value
    return None


def _kaggle(row: Row) -> list[Row] | None:
    """LMArena's table for Kaggle: lists of turns, and a column for each answer."""
    if not row.fields.keys() >= _KAGGLE.keys():
        return None
    marked = [
        winner for name, winner in _KAGGLE.items() if str(row.fields[name]).lower() in {"1", "1.0", "true"}
    ]
    if len(marked) != 1:
        raise ImportingError.at(row.place, f"One of {', '.join(_KAGGLE)} must be 1, and the others 0.")
    fields = {name: value for name, value in row.fields.items() if name not in _KAGGLE}
    turns = [in_json(fields.get(name)) for name in ("prompt", "response_a", "response_b")]
    if any(isinstance(each, list) for each in turns):
        if not all(isinstance(each, list) and len(each) == len(turns[0]) for each in turns) or not turns[0]:
            raise ImportingError.at(
                row.place, "prompt, response_a and response_b must have as many turns each."
            )
        users, *answers = turns
        for side, given in zip("ab", answers, strict=True):
            pairs = zip(users, given, strict=True)
            fields[f"conversation_{side}"] = [
                {"role": role, "content": text or ""}
                for pair in pairs
                for role, text in zip(("user", "assistant"), pair, strict=True)
            ]
        fields = {n: v for n, v in fields.items() if n not in {"prompt", "response_a", "response_b"}}
    return [Row(row.place, fields | {"winner": marked[0], "side_a": "left"})]


_READERS: Mapping[Material, Sequence[Reader]] = {
    Material.TASKS: (_big_bench, _squad),
    Material.RESPONSES: (),
    Material.VOTES: (_ours, _label_studio, _argilla, _kaggle),
}
