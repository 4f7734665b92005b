"""From the rows of files to tasks, responses and votes: roles, formats of other tools, faults, warnings."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from engine.domain.conversations import Message
from engine.domain.specs import TaskSpec
from engine.importing.items import (
    Wishes,
    read_gold,
    read_responses,
    read_tasks,
    tasks_and_warnings,
    write_gold,
    write_tasks,
)
from engine.importing.mapping import check_columns, parse_columns, variable_names
from engine.importing.reading_process import Source
from engine.importing.rows import FaultyRowsError, ImportingError
from engine.importing.votes import Judge, Vote, Winner, read_votes, time_of
from tests.tables import MOST, source


def lines(*rows: dict[str, Any]) -> str:
    return "\n".join(map(json.dumps, rows))


def turns(*texts: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


# ---------------------------------------------------------------- tasks


def test_lines_are_tasks_unless_the_first_names_a_column_of_tasks():
    assert read_tasks("One?\n\nTwo, or three?\t4\n") == [TaskSpec("One?"), TaskSpec("Two, or three?", "4")]
    assert read_tasks("Prompt,Target\nOne?,1\n") == [TaskSpec("One?", "1")]
    assert read_tasks("topic,words\nfrogs,5\n") == [TaskSpec("topic,words"), TaskSpec("frogs,5")]


def test_a_column_of_no_role_is_a_variable_and_one_may_be_the_task_too():
    """The shape of promptfoo's, Langfuse's and Opik's data sets: all columns are variables
    (langfuse#8910).
    """
    table = source("topic,Tone\nfrogs,warm\n")
    with pytest.raises(ImportingError, match=r"No column is the task\. Found: 'topic', 'Tone'\."):
        read_tasks(table)
    columns = parse_columns(["topic=task", "topic=variable", "Tone=variable"])
    assert read_tasks(table, columns) == [TaskSpec("frogs", variables={"topic": "frogs", "tone": "warm"})]
    [task] = read_tasks("prompt,tone,Not a name\nHi,warm,x\n")
    assert task.variables == {"tone": "warm", "not_a_name": "x"}
    [task] = read_tasks(lines({"q": "Hi", "choices": ["a", "b"], "id": 7, "none": None}), {"q": "task"})
    assert task.variables == {"choices": '["a", "b"]', "id": "7"}


def test_values_inside_of_objects_are_reached_by_a_path_or_taken_as_their_json_text():
    """langfuse#12404."""
    given = lines({"input": {"order": {"id": 3, "of": ["a"]}, "ask": "Where is it?"}})
    with pytest.raises(ImportingError, match="task is an object"):
        read_tasks(given)
    columns = {"input.ask": "task", "input.order.id": "variable", "input.order.of.0": "variable"}
    assert read_tasks(given, columns) == [TaskSpec("Where is it?", variables={"id": "3", "_0": "a"})]
    wishes = Wishes({"input.ask": "task", "input.order": "variable"}, json_texts=True)
    [task], _ = tasks_and_warnings(given, wishes)
    assert task.variables == {"order": '{"id": 3, "of": ["a"]}'}
    tasks, _ = tasks_and_warnings(lines({"prompt": {"order": 1}}), Wishes(json_texts=True))
    assert tasks == [TaskSpec('{"order": 1}')]


def test_a_faulty_row_hides_behind_no_other_message():
    """axolotl#3136."""
    picture = {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}
    tool = {"messages": [{"role": "user", "content": "Hi", "tool_calls": [{}]}]}
    given = lines(*({"prompt": f"Task {n}"} for n in range(113)), *[picture] * 4, *[tool] * 3)
    with pytest.raises(FaultyRowsError) as caught:
        read_tasks(given)
    assert caught.value.summary.startswith(
        "113 of 120 rows can be read. 7 rows: The task holds more than text"
    )
    assert [fault.place for fault in caught.value.all_faults] == [f"line {n}" for n in range(114, 121)]
    tasks, warnings = tasks_and_warnings(given, Wishes(leave_out=True))
    assert (len(tasks), warnings[0].startswith("113 of 120 rows can be read.")) == (113, True)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (lines({"instruction": "Translate.", "input": "Tea"}), TaskSpec("Translate.\n\nTea")),
        (lines({"input": turns("Hi"), "ideal": ["Hello", "Hey"]}), TaskSpec("Hi", "Hello")),
        (
            lines({"question": "Q", "context": "C", "answers": {"text": ["A"], "answer_start": [0]}}),
            TaskSpec("Q", "A", variables={"context": "C"}),
        ),
        (
            json.dumps({"data": [{"title": "T", "paragraphs": [
                {"context": "C", "qas": [{"question": "Q", "answers": [{"text": "A"}]}]}]}]}),
            TaskSpec("Q", "A", variables={"context": "C", "title": "T"}),
        ),
        (
            json.dumps({"task_prefix": "Add: ", "examples": [
                {"input": "1+1", "target_scores": {"2": 1, "3": 0}}]}),
            TaskSpec("Add: 1+1\nchoice: 2\nchoice: 3", "2"),
        ),
        (json.dumps({"examples": {"1": {"input": "up", "output": "down"}}}), TaskSpec("up", "down")),
        ('prompt,tags,category\nHi,"a, b",c\n', TaskSpec("Hi", tags=("a", "b", "c"))),
        (
            lines({"messages": {"role": ["user", "assistant", "user"], "content": ["a", "b", "c"]}}),
            TaskSpec("User: a\n\nAssistant: b\n\nUser: c", messages=(
                Message("user", "a"), Message("assistant", "b"), Message("user", "c"))),
        ),
    ],
)  # fmt: skip
def test_well_known_shapes_of_tasks(given, wanted):
    assert read_tasks(given) == [wanted]


def test_what_is_written_is_read_back():
    tasks = [TaskSpec("One?", "1"), TaskSpec("[x", variables={"a": "b"}, tags=("t",)), TaskSpec(" two ")]
    assert read_tasks(write_tasks(tasks)) == tasks
    assert write_tasks([TaskSpec("One?", "1"), TaskSpec("Two?")]) == "One?\t1\nTwo?"
    gold = read_gold("prompt,better,worse,explanation\nP,b,w,\n")
    assert read_gold(write_gold(gold)) == gold
    with pytest.raises(ImportingError, match="worse is empty"):
        read_gold("prompt,better,worse\nP,b,\n")


def test_a_mapping_names_roles_that_there_are_and_columns_that_there_are():
    assert parse_columns(["a=b=task"]) == {"a=b": "task"}
    assert [*variable_names("data.Customer Name", "customer_name", "Größe", "1").values()] == [
        "customer_name", "customer_name_2", "gr_e", "_1",
    ]  # fmt: skip
    for columns, words in (
        ({"a": "tasks"}, "there is no role 'tasks'"),
        ({"a": "task", "b": "task"}, "are both task"),
    ):
        with pytest.raises(ImportingError, match=words):
            check_columns(columns)
    with pytest.raises(ImportingError, match="no mapping"):
        parse_columns(["task"])
    with pytest.raises(ImportingError, match=r"There is no column 'y'\. Found: x, z"):
        read_tasks(source("x,z\n1,2\n"), {"x": "task", "y": "reference"})


# ---------------------------------------------------------------- responses


def test_responses_long_and_wide():
    long = read_responses("task,policy,response,reference\nT,A,x,r\nT,B,,\nU,A,y,\n")
    assert (long.policies, [task.prompt for task in long.tasks]) == (["A", "B"], ["T", "U"])
    assert [(r.task, r.policy, r.response) for r in long.responses] == [
        (0, "A", "x"),
        (0, "B", ""),
        (1, "A", "y"),
    ]
    assert long.tasks[0].reference == "r"
    wide = read_responses(
        "Frage,GPT 4,Claude\nT,x,y\n", {"Frage": "task", "GPT 4": "response", "Claude": "response"}
    )
    assert [(r.policy, r.response) for r in wide.responses] == [("GPT 4", "x"), ("Claude", "y")]
    for text, words in (
        ("task,policy,response\nT,,x\n", "policy is empty"),
        ("task,policy\nT,A\n", "No column is the response"),
        ("task,policy,response\n", "There are no responses here"),
        ("task,policy,response,reference\nT,A,x,1\nT,B,x,2\n", "another reference in an earlier row"),
    ):
        with pytest.raises(ImportingError, match=words):
            read_responses(text)


def test_the_outputs_of_two_models_in_two_files_are_one_table():
    """AlpacaEval."""
    rows = [[{"instruction": "T", "output": model, "generator": model}] for model in ("m1", "m2")]
    files = [(f"{n}.json", json.dumps(each).encode()) for n, each in enumerate(rows)]
    found = read_responses(Source(files, MOST))
    assert [(r.policy, r.response) for r in found.responses] == [("m1", "m1"), ("m2", "m2")]


def test_a_response_that_is_an_object_is_taken_as_its_json_text_on_request():
    given = lines({"task": "T", "policy": "A", "response": {"answer": "Tea é"}})
    with pytest.raises(ImportingError, match=r"response is an object.*response\.answer"):
        read_responses(given)
    found = read_responses(given, wishes=Wishes(json_texts=True))
    assert found.responses[0].response == '{"answer": "Tea é"}'


# ---------------------------------------------------------------- votes

TABLE = "task,policy_a,policy_b,winner\n"
PLAIN = Vote("", "T", "P", "Q", Winner.A)


def votes(given: Any, **columns: str) -> list[Vote]:
    text = given if isinstance(given, str) else lines(*(given if isinstance(given, list) else [given]))
    return list(read_votes(text, {name.replace("__", "."): role for name, role in columns.items()}).votes)


def content(vote: Vote) -> tuple[Any, ...]:
    texts = vote.response_a, vote.response_b
    return (vote.task, vote.policy_a, vote.policy_b, vote.winner, *texts, vote.annotator)


@pytest.mark.parametrize(
    ("said", "winner"),
    [("a", "a"), ("model_b", "b"), ("response-1", "a"), ("2", "b"), ("1.0", "a"), ("1.5", "tie"), ("P", "a"),
     ("tie (bothbad)", "both_bad"), ("neither", "both_bad"), ("equally good", "tie"), ("Assistant B", "b")],
)  # fmt: skip
def test_an_answer_is_read_as_tools_spell_it(said, winner):
    assert votes(f"{TABLE}T,P,Q,{said}\n")[0].winner == winner


@pytest.mark.parametrize("said", ["", "-1", "a?", "≠A", "maybe", "3", "left"])
def test_an_answer_that_is_none_is_refused(said):
    with pytest.raises(ImportingError, match="line 2"):
        votes(f"{TABLE}T,P,Q,{said}\n")


def test_a_side_is_an_answer_where_the_side_of_a_is_known():
    given = "task,policy_a,policy_b,winner,side_a\nT,P,Q,left,right\nT,P,Q,left,left\nT,a,b,a,NA\n"
    assert [(vote.winner, vote.a_on_left) for vote in votes(given)] == [
        ("b", False),
        ("a", True),
        ("a", None),
    ]
    with pytest.raises(ImportingError, match="none that also says the other one"):
        votes(f"{TABLE}T,b,a,a\n")


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("2026-03-01T10:30:00+02:00", datetime(2026, 3, 1, 8, 30, tzinfo=UTC)),
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01 10:30:00 UTC", datetime(2026, 3, 1, 10, 30, tzinfo=UTC)),
        (1_772_361_000, datetime(2026, 3, 1, 10, 30, tzinfo=UTC)),
        (1_772_361_000_500, datetime(2026, 3, 1, 10, 30, 0, 500_000, tzinfo=UTC)),
        ("NULL", None),
        (None, None),
    ],
)
def test_times(said, wanted):
    assert time_of("", said) == wanted


@pytest.mark.parametrize(
    "said", ["46082.4", 0, True, "yesterday", "9" * 20, "2026-13-01", "20260301", 20260301103000]
)
def test_a_time_that_is_none_is_refused(said):
    with pytest.raises(ImportingError, match="judged_at"):
        time_of("line 2", said)


STUDIO = {
    "data": {"prompt": "T", "model_a": "P", "model_b": "Q", "response_a": "p", "response_b": "q"},
    "annotations": [
        {"result": [{"value": {"selected": "right"}}], "completed_by": {"email": "ann@x"}},
        {
            "result": [{"value": {"selected": "left"}}, {"value": {"choices": ["both bad"]}}],
            "completed_by": 3,
        },
        {"result": [{"value": {"selected": "left"}}], "was_cancelled": True},
        {"result": []},
    ],
}
ARGILLA = {
    "fields": {"prompt": "T", "response_a": "p", "response_b": "q"},
    "metadata": {"model_a": "P", "model_b": "Q"},
    "responses": {
        "preference": [
            {"value": "response_b", "user_id": "ann@x", "status": "submitted"},
            {"value": "both_bad", "user_id": "3"},
            {"value": "response_a", "user_id": "4", "status": "draft"},
        ],
        "why": [{"value": "Because.", "user_id": "ann@x"}],
    },
}
FLAT = {
    "prompt": "T", "response_a": "p", "response_b": "q", "model_a": "P", "model_b": "Q",
    "preference.responses": ["response_b", "both_bad"], "preference.responses.users": ["ann@x", "3"],
}  # fmt: skip
SHORT = [
    {**STUDIO["data"], "annotation_id": 1, "annotator": "ann@x", "side": {"selected": "right"}},
    {**STUDIO["data"], "annotation_id": 2, "annotator": 3, "side": {"selected": "left"}, "also": "both bad"},
    {**STUDIO["data"], "annotation_id": 3, "annotator": 3},
]


@pytest.mark.parametrize("given", [STUDIO, ARGILLA, FLAT, SHORT], ids=["studio", "argilla", "flat", "short"])
def test_the_answers_of_annotation_tools(given):
    assert [content(vote) for vote in votes(given)] == [
        ("T", "P", "Q", "b", "p", "q", "ann@x"),
        ("T", "P", "Q", "both_bad", "p", "q", "3"),
    ]
    assert all(vote.a_on_left for vote in votes(given))


def test_any_name_and_path_of_label_studios_tasks_can_be_mapped():
    """label-studio#6492."""
    data = {"my prompt": "T", "llm": {"outputs": {"a": "p"}}, "llm.outputs.b": "q", "x": "P", "y": "Q"}
    given = lines({**STUDIO, "data": data})
    columns = {
        "my prompt": "task", "llm.outputs.a": "response_a", "llm.outputs.b": "response_b", "x": "policy_a",
        "y": "policy_b",
    }  # fmt: skip
    assert content(read_votes(given, columns).votes[0]) == ("T", "P", "Q", "b", "p", "q", "ann@x")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"annotations": [{"result": [{"value": {"choices": ["A is better"]}}]}]}, "says 'A is better'"),
        ({"annotations": [{"result": [{"value": {"choices": ["left", "right"]}}]}]}, "several answers"),
    ],
)
def test_an_annotation_without_one_answer_is_refused(changed, words):
    with pytest.raises(ImportingError, match=words):
        votes(STUDIO | changed)
    assert votes([SHORT[0] | {"category": "draw"}])[0].winner == "b", "a word of the task's data"
    with pytest.raises(ImportingError, match="names a response"):
        votes(ARGILLA | {"responses": {"q": [{"value": "good", "user_id": "1"}]}})


def test_a_ranking_is_an_answer():
    ranks = [{"value": "response_b", "rank": 1}, {"value": "response_a", "rank": 2}]
    both = [{"value": "response_b", "rank": 1}, {"value": "response_a", "rank": 1}]
    given = ARGILLA | {"responses": {"rank": [{"value": each, "user_id": "1"} for each in (ranks, both)]}}
    assert [vote.winner for vote in votes(given)] == ["b", "tie"]


ARENA = {"model_a": "P", "model_b": "Q", "winner": "model_b"}


@pytest.mark.parametrize(
    ("a", "b", "turn", "task", "responses"),
    [
        (("T", "p"), ("T", "q"), None, "T", ("p", "q")),
        (("T", "p", "U", "p2"), ("T", "q", "U", "q2"), None, "T",
         ("p\n\nUser: U\n\nAssistant: p2", "q\n\nUser: U\n\nAssistant: q2")),
        (("T", "p", "U", "p2"), ("T", "q", "U", "q2"), 1, "T", ("p", "q")),
        (("T", "same", "U", "p"), ("T", "same", "U", "q"), 2, "User: T\n\nAssistant: same\n\nUser: U",
         ("p", "q")),
        (("T",), ("T",), None, "T", (None, None)),
    ],
    ids=["one turn", "two turns", "until the first", "our own export", "without a text"],
)  # fmt: skip
def test_conversations_of_an_arena(a, b, turn, task, responses):
    [vote] = votes(
        ARENA | {"conversation_a": turns(*a), "conversation_b": json.dumps(turns(*b)), "turn": turn}
    )
    assert (vote.task, (vote.response_a, vote.response_b), vote.winner, vote.a_on_left) == (
        task,
        responses,
        "b",
        True,
    )


def test_conversations_that_do_not_belong_together_or_hold_more_than_text_are_refused():
    for b, words in (
        (turns("U", "q"), "must begin with the same messages"),
        ([{"role": "user", "content": [{"type": "image"}]}], "holds more than text"),
        ("T", "must be a list of messages"),
    ):
        with pytest.raises(ImportingError, match=words):
            votes(ARENA | {"conversation_a": turns("T", "p"), "conversation_b": b})


def test_kaggles_table_of_lmarena():
    row = {"model_a": "P", "model_b": "Q", "prompt": '["T"]', "response_a": '["p"]', "response_b": '["q"]'}
    won = {"winner_model_a": 0, "winner_model_b": 1, "winner_tie": 0}
    assert content(votes(row | won)[0]) == ("T", "P", "Q", "b", "p", "q", "")
    for change, words in (({"winner_tie": 1}, "must be 1"), ({"prompt": '["T", "U"]'}, "as many turns")):
        with pytest.raises(ImportingError, match=words):
            votes(row | won | change)


def test_a_language_model_gave_these_votes_where_a_column_or_somebody_says_so():
    """AlpacaEval's annotations: a model became a person."""
    row = {
        "instruction": "T", "output_1": "p", "output_2": "q", "generator_1": "P", "generator_2": "Q",
        "preference": 2.0, "annotator": "gpt4_turbo",
    }  # fmt: skip
    found = read_votes(lines(row), wishes=Wishes(judged_by="llm"))
    assert content(found.votes[0]) == ("T", "P", "Q", "b", "p", "q", "gpt4_turbo")
    assert found.votes[0].judge == Judge.LLM
    assert found.warnings[0].startswith("1 vote of a language model")
    by_column = read_votes(lines(row | {"who": "llm"}), {"who": "judged_by"})
    assert by_column.votes[0].judge == Judge.LLM
    assert votes(row)[0].judge == Judge.LLM
    assert [votes(row | {"preference": p})[0].winner for p in (1.2, 1.5, 1.51)] == ["a", "tie", "b"]
    said = {"task": "T", "model_a": "P", "model_b": "Q", "winner": "model_a", "judge": ["gpt-4", "pair-v2"]}
    assert votes(said)[0].judge == Judge.LLM
    assert votes(said | {"judge": "expert_1"})[0].judge == Judge.HUMAN


def test_votes_are_put_into_the_order_of_their_times():
    head = "task,policy_a,policy_b,winner,judged_at\n"
    assert [v.task for v in votes(f"{head}T2,P,Q,a,2026-03-02\nT1,P,Q,a,2026-03-01\n")] == ["T1", "T2"]
    assert [v.task for v in votes(f"{head}T2,P,Q,a,2026-03-02\nT1,P,Q,a,\n")] == ["T2", "T1"]


# ---------------------------------------------------------------- warnings


def test_each_of_the_six_warnings_comes_and_goes():
    clean = "task,policy,response\nT,A,Tea.\nU,A,Milk.\n"
    assert read_responses(clean).warnings == []
    for row, words in (
        ("V,A,NaN\n", "1 response empty"),
        ("U,A,Milk.\n", "1 response equal to an earlier one"),
        ("V,a,x\n", "1 policy nearly equal to another"),
        (f"V,A,{'x' * 32_767}\n", "after which Excel cuts a cell off"),
        ("V,A,grÃ¼n und schÃ¶n\n", "in a wrong encoding"),
        ("V,A,gr\ufffdn\n", "in a wrong encoding"),
    ):
        [warning] = read_responses(clean + row).warnings
        assert words in warning
    [warning] = read_responses("task,policy,response,Nr\nT,A,Tea.,1\n").warnings
    assert warning == "1 column not read: 'Nr'."
    for text in ("Ça va? Où est l'hôtel “Zum Löwen”?", "价格是¥5", "Ünïcödé naïve"):
        assert read_responses(clean + f"V,A,{text}\n").warnings == []


def test_equal_responses_to_different_tasks_and_texts_that_name_a_model_are_said_by_policy():
    """FastChat#2867."""
    broken = "NETWORK ERROR DUE TO HIGH TRAFFIC. PLEASE REGENERATE."
    rows = [f"T{n},palm-2,{broken if n < 3 else f'Tea {n}.'}\n" for n in range(20)]
    rows += [f"T{n},tulu-30b,{'I am Tülu.' if n < 6 else f'Milk {n}.'}\n" for n in range(20)]
    found = read_responses("task,policy,response\n" + "".join(rows)).warnings
    assert found == [
        f"'palm-2': 3 of 20 responses equal to one to another task, such as {broken!r}.",
        "'tulu-30b': 6 responses naming a model, which annotators read.",
    ]
