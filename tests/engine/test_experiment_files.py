"""Experiments as files: round trips, and errors that name the place."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.domain.conversations import Message, text_and_messages
from engine.domain.specs import ExperimentSpec, FactorSpec, GoldSpec, ReadyMade, TaskSpec
from engine.importing.experiment_files import read_experiment, write_experiment
from engine.importing.rows import ImportingError

SMALL = """\
name: Adding
delta: 1e-2
factors:
  - name: Strategy
    kind: strategy
    levels:
      No: {instruction: Answer directly.}
      1.0:
        instruction: |
          Think.
          Then answer.
      Nothing:
tasks:
  - What is 1 + 1?
  - {prompt: Agent?, reference: 007}
excluded:
  - {Strategy: No}
"""

storable = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
texts = st.text(storable, min_size=1, max_size=30)
json_values = st.one_of(
    texts,
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(texts, max_size=3),
)
factors = st.builds(
    FactorSpec,
    name=texts,
    kind=st.sampled_from(["prompt", "strategy", "sampling", "model", "guardrail"]),
    levels=st.dictionaries(texts, st.dictionaries(texts, json_values, max_size=3), min_size=1, max_size=3),
)
talks = st.lists(
    st.builds(Message, st.sampled_from(["user", "assistant"]), texts.filter(str.strip)),
    min_size=1,
    max_size=3,
).map(lambda turns: text_and_messages([*turns, Message("user", "And?")]))
tasks = st.builds(
    lambda asked, *rest: TaskSpec(*asked[:1], rest[0], asked[1], *rest[1:]),
    st.one_of(texts.map(lambda text: (text, ())), talks),
    st.text(storable, max_size=20),
    st.dictionaries(texts, st.text(storable, max_size=9), max_size=2),
    st.lists(texts, max_size=2).map(tuple),
)
settings_ = st.fixed_dictionaries(
    {},
    optional={
        "question": texts,
        "guidelines": texts,
        "delta": st.floats(1e-9, 0.49),
        "budget": st.integers(1, 10**6),
        "seed": st.integers(0, 2**63),
        "allow_tie": st.booleans(),
        "sampler": texts,
        "excluded": st.lists(st.dictionaries(texts, texts, min_size=1, max_size=2), max_size=2),
    },
)
specs = st.builds(
    ExperimentSpec,
    name=texts,
    factors=st.lists(factors, min_size=1, max_size=3),
    tasks=st.lists(tasks, min_size=1, max_size=4),
    settings=settings_,
    gold=st.lists(
        st.builds(
            GoldSpec, prompt=texts, better=texts, worse=texts, explanation=st.text(storable, max_size=9)
        ),
        max_size=2,
    ),
)


def read(text: str, **options: Any) -> ExperimentSpec:
    return read_experiment(text, **options).spec


def faults_of(text: str, **options: Any) -> list[str]:
    with pytest.raises(ImportingError) as error:
        read_experiment(text, **options)
    return [str(fault) for fault in error.value.faults]


@given(specs)
def test_what_is_written_is_read_back(spec):
    assert read(write_experiment(spec)) == spec


@given(specs, st.booleans())
def test_json_is_read_as_well(spec, ascii_only):
    document = {"name": spec.name, **spec.settings}
    document |= {"factors": [asdict(f) for f in spec.factors], "tasks": [asdict(t) for t in spec.tasks]}
    document["gold"] = [asdict(gold) for gold in spec.gold]
    assert read(json.dumps(document, ensure_ascii=ascii_only)) == spec


@given(spec=specs, prompts=st.lists(texts, min_size=1, max_size=4, unique=True), data=st.data())
def test_ready_made_responses_come_back_too(spec, prompts, data):
    responses = st.builds(
        ReadyMade,
        task=st.integers(0, len(prompts) - 1),
        policy=st.sampled_from(["A", "B"]),
        response=st.text(storable, max_size=30),
    )
    imported = replace(
        spec,
        factors=[FactorSpec("Policy", "imported", {"A": {}, "B": {}})],
        tasks=[TaskSpec(prompt) for prompt in prompts],
        settings=spec.settings | {"responses": "imported"},
        ready_made=data.draw(st.lists(responses, min_size=1, max_size=5)),
    )
    assert read(write_experiment(imported)) == imported


def test_names_and_answers_stay_as_written_even_if_they_look_like_numbers():
    spec = read(SMALL)
    assert list(spec.factors[0].levels) == ["No", "1.0", "Nothing"]
    assert spec.factors[0].levels["1.0"] == {"instruction": "Think.\nThen answer.\n"}
    assert spec.factors[0].levels["Nothing"] == {}
    assert spec.tasks == [TaskSpec("What is 1 + 1?"), TaskSpec("Agent?", "007")]
    assert spec.settings == {"delta": 0.01, "excluded": [{"Strategy": "No"}]}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("delta: 1e-2", "dleta: 1e-2", "line 2, dleta: Unknown field 'dleta'. Allowed: name,"),
        ("    kind: strategy\n", "", "line 4, factors → 1: Give kind."),
        ("What is 1 + 1?", "[1]", "line 14, tasks → 1: This must be a text."),
        ("{Strategy: No}", "Strategy", "line 17, excluded → 1: This must be an object of named values."),
        ("reference: 007", "refrence: 7",
         "line 15, tasks → 2 → refrence: Unknown field 'refrence'. Allowed here:"),
        ("name: Adding\n", "", "line 1: Give the experiment a name."),
        ("delta: 1e-2", "name: Again", "line 2: 'name' appears twice in one object. Remove one of them."),
        ("delta: 1e-2", "delta: [1]", "line 2, delta: This must be a single value."),
        ("delta: 1e-2", "delta: *risk", "line 2, delta: Aliases"),
        ("delta: 1e-2", "delta: &a 1\nepsilon: *a", "line 2, delta: Aliases"),
        ("delta: 1e-2", "delta: !!python/name:os.system ''", "line 2, delta: The tag"),
        ("delta: 1e-2", "\tdelta: 1", "line 2: This is not YAML"),
        ("name: Adding", 'name: "a\\0b"', "line 1, name: This holds a character that cannot be stored"),
    ],
)  # fmt: skip
def test_an_error_names_its_place(old, new, expected):
    assert old in SMALL
    assert [fault for fault in faults_of(SMALL.replace(old, new, 1)) if fault.startswith(expected)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment",
        "just text",
        "- a list",
        "[" * 100_000,
        "{" * 100_000,
        '{"name":' * 5000,
        "a: " * 5000,
    ],
)
def test_what_is_no_experiment_is_refused(text):
    assert faults_of(text)


def test_a_fault_of_json_is_found_too():
    assert faults_of('{"name": "A",\n "name": "B"}') == [
        "'name' appears twice in one object. Remove one of them."
    ]
    assert faults_of('{"name": "A",\n "tasks": [}')[0].startswith("line 2: This is not YAML")


def test_tasks_and_responses_may_stand_in_files_beside():
    files = {
        "t.csv": "prompt,reference\nOne?,1\n",
        "r.jsonl": '{"task": "One?", "policy": "A", "response": "1"}',
    }
    spec = read("name: N\ntasks_file: t.csv\nresponses_file: r.jsonl", read_file=files.__getitem__)
    assert spec.tasks == [TaskSpec("One?", "1")]
    assert spec.factors == [FactorSpec("Policy", "imported", {"A": {}})]
    assert spec.ready_made == [ReadyMade(0, "A", "1")]
    assert spec.settings == {"responses": "imported"}


def test_a_file_beside_is_named_in_its_errors_and_needs_a_reader():
    text = "name: N\ntasks_file: t.csv"
    [fault] = faults_of(text, read_file=lambda name: "prompt,reference\nx")
    assert fault.startswith("t.csv, line 2: The number of cells is 1, but the first line names 2 columns.")
    assert faults_of(text)[0].startswith("line 2, tasks_file: The file that is named here was not sent")

    def missing(name: str) -> str:
        raise FileNotFoundError(2, "No such file or directory")

    assert faults_of(text, read_file=missing) == [
        "line 2, tasks_file: t.csv cannot be read: No such file or directory."
    ]


def test_a_response_to_a_task_that_is_not_there_is_refused():
    text = "name: N\ntasks: [A?]\nready_made:\n  - {task: B?, policy: P, response: r}\n"
    assert faults_of(text) == [
        (
            "line 4, ready_made: A response belongs to the task 'B?', which is not in the list of tasks. "
            "Add the task or remove the response."
        )
    ]
