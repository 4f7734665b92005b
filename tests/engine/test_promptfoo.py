"""Configurations and results of promptfoo as experiments; tests/fixtures/promptfoo holds invented files."""

import io
import json
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from engine.domain.conversations import chat
from engine.domain.levels import compose, parse_level
from engine.domain.limits import FILE_BYTES
from engine.domain.text_checks import TextCheck
from engine.importing.companion_files import finder_below
from engine.importing.found_files import FoundFile
from engine.importing.other_tools import found_in
from engine.importing.promptfoo import configuration_in, read_configuration
from engine.importing.promptfoo_templates import Filling, UnfillableError, read_chat, read_template
from engine.importing.reading_process import source_of
from engine.importing.rows import ImportingError

FIXTURES = Path(__file__).parents[1] / "fixtures" / "promptfoo"


def read(*names: str, leave_out: bool = False) -> FoundFile:
    """The files of these names, as somebody uploads them."""
    return brought({name: (FIXTURES / name).read_bytes() for name in names}, leave_out=leave_out)


def brought(files: dict[str, bytes], *, leave_out: bool = False) -> FoundFile:
    source = source_of([(name, io.BytesIO(data)) for name, data in files.items()], FILE_BYTES)
    told = found_in(source, leave_out=leave_out)
    assert told is not None
    return told


def configured(text: str, *, leave_out: bool = False) -> FoundFile:
    return brought({"promptfooconfig.yaml": text.encode()}, leave_out=leave_out)


def counts(told: FoundFile) -> dict[str, tuple[int, int]]:
    """What was taken and left out; what was found is the sum."""
    found = told.findings.counts()
    assert all(each["found"] == each["taken"] + each["left_out"] for each in found)
    return {each["what"]: (each["taken"], each["left_out"]) for each in found}


def levels(told: FoundFile) -> dict[str, list[str]]:
    return {factor.name: [*factor.levels] for factor in told.spec.factors}


def sent(told: FoundFile, task: int) -> list[list[tuple[str, str]]]:
    """The messages that each level of the prompt sends for a task."""
    [spec] = [factor for factor in told.spec.factors if factor.name == "Prompt"]
    found = told.spec.tasks[task]
    compositions = [compose([parse_level("prompt", value)]) for value in spec.levels.values()]
    turns = found.messages or chat(found.prompt)
    return [
        [(each.role, each.content) for each in composition.filled(found.variables).messages(turns)]
        for composition in compositions
    ]


class TestFiles:
    def test_two_prompts_and_two_models(self):
        told = read("01-two-by-two.yaml")
        assert (told.n_policies, len(told.spec.tasks), told.spec.name) == (4, 3, "Letters of a tea shop")
        assert levels(told)["Model"] == ["openai:gpt-4.1-mini", "Haiku"]
        assert told.spec.factors[1].levels["Haiku"] == {
            "name": "anthropic:messages:claude-haiku-4-5",
            "temperature": 0.2,
            "max_tokens": 300,
        }
        assert counts(told)["check"] == (2, 2)
        assert sent(told, 0) == [
            [("user", "Answer the customer in one sentence: When do you open on Monday?")],
            [("user", "You sell tea. Be kind and short.\nQuestion: When do you open on Monday?\n")],
        ]
        assert told.spec.tasks[1].checks == (TextCheck("equals", "80 °C"),)

    def test_code_alone_leaves_tasks_and_the_way_to_results(self):
        told = read("02-code-provider.yaml")
        assert (told.n_policies, [task.variables for task in told.spec.tasks]) == (
            0,
            [{"guest": "Ida"}, {"guest": "Per"}],
        )
        assert (counts(told)["provider"], counts(told)["check"]) == ((0, 3), (0, 2))
        assert any("promptfoo eval -o results.json" in note for note in told.findings.notes)

    def test_one_model_with_three_settings_is_three_levels_and_one_connection(self):
        told = read("03-same-id-anchor.yaml")
        values = list(told.spec.factors[0].levels.values())
        assert [value["temperature"] for value in values] == [0.1, 0.1, 1]
        assert [value["reasoning"] for value in values] == ["low", "high", "low"]
        assert [task.tags for task in told.spec.tasks] == [("geography",), ("history",)]
        [wanted] = told.connections
        assert (wanted.key_variable, wanted.address) == ("ACME_KEY", "https://llm.example.com/v1")
        assert counts(told)["check"] == (0, 2)
        assert any(
            "top_secret_flag" in each for left in told.findings.left_out() for each in left["examples"]
        )

    def test_a_conversation_with_filters(self):
        told = read("04-chat-dump.yaml")
        assert (told.n_policies, levels(told)["Model"]) == (
            2,
            ["openrouter:acme/small", "openrouter:acme/large"],
        )
        assert told.spec.tasks[0].prompt == 'May I renew "The Wall" twice?\nIt is due today.'
        system = "You are the help desk of a library. Language: {}."
        for n, locale in enumerate(["en", "sv", "en"]):
            [[first, _]] = sent(told, n)
            assert first == ("system", system.format(locale))
        assert not any("library" in text for task in told.spec.tasks for text in task.variables.values())

    def test_lists_multiply_and_scenarios_are_tasks(self):
        told = read("05-matrix-scenarios.yaml")
        assert (told.n_policies, counts(told)["test"]) == (2, (11, 1))
        assert [task.prompt for task in told.spec.tasks].count("Translate into Welsh: one,two") == 1
        assert [check for task in told.spec.tasks for check in task.checks] == [
            TextCheck("contains", "Kaixo"),
            TextCheck("contains", "Ahoj"),
        ]
        assert any(each["reason"].startswith("repeat ") for each in told.findings.left_out())

    def test_tests_in_a_table(self):
        told = read("06-csv-tests.yaml", "06-tests.csv")
        tasks = told.spec.tasks
        assert (told.n_policies, counts(told)["test"], counts(told)["check"]) == (2, (6, 1), (4, 3))
        assert {*tasks[0].variables} == {"shop"}
        assert tasks[0].reference == "42"
        assert tasks[1].prompt.startswith("Be short. ")
        assert tasks[1].checks == (TextCheck("contains", "Lune"), TextCheck("icontains", "river"))
        assert any("criterion" in note and "line 6" in note for note in told.findings.notes)

    def test_models_with_prompts_of_their_own(self):
        told = read("07-own-prompts.yaml")
        assert (told.n_policies, len(told.spec.settings["excluded"])) == (3, 3)
        assert levels(told)["Prompt"] == ["short", "long", "long:polite"]
        assert counts(told)["test"] == (2, 1)

    def test_slips_are_all_told_at_once_and_refuse_the_file(self):
        with pytest.raises(ImportingError) as refused:
            read("08-misplaced.yaml")
        faults = refused.value.faults
        assert len(faults) == 6
        assert all(fault.place.startswith("line ") for fault in faults)
        told = read("08-misplaced.yaml", leave_out=True)
        assert (told.n_policies, len(told.spec.tasks)) == (1, 1)

    def test_no_environment_is_read(self, monkeypatch):
        monkeypatch.setenv("MODEL", "openai:another")
        told = read("09-env-and-targets.yaml")
        assert (told.n_policies, levels(told)) == (1, {"Model": ["openai:gpt-4.1-mini"]})
        assert [task.prompt for task in told.spec.tasks][1] == "Where is Bergen?"
        assert (counts(told)["test"], counts(told)["provider"]) == ((2, 1), (1, 1))
        assert "sk-demo" not in repr(told)
        assert any("key was in the file" in note for note in told.findings.notes)

    def test_results_are_ready_made_responses(self):
        told = read("10-results.json")
        assert (told.n_policies, len(told.spec.tasks), counts(told)["response"]) == (2, 2, (5, 1))
        texts = [each.response for each in told.spec.ready_made]
        assert "" in texts
        assert json.loads(texts[2]) == {"minutes": 4, "note": "taste it"}
        assert len(told.findings.notes) == 3
        document = json.loads((FIXTURES / "10-results.json").read_text())
        # Equal texts are aliases, as promptfoo writes them.
        rows = document["results"]["results"]
        rows[1]["vars"] = rows[0]["vars"]
        aliased, plain = (
            brought({name: data.encode()}).spec.ready_made
            for name, data in (
                ("out.yaml", yaml.safe_dump(document, sort_keys=False)),
                ("out.json", json.dumps(document)),
            )
        )
        assert aliased == plain


MINIMAL = """
prompts: ['A: {{q}}', 'B: {{q}}']
providers: [openai:gpt-4.1-mini]
tests: [{vars: {q: Hi}}]
"""


class TestKinds:
    @pytest.mark.parametrize(
        ("written", "shown"),
        [("no", "no"), ("007", "007"), ("1.10", "1.10"), ("2024-03-01", "2024-03-01"), ("true", "true"),
         ("null", ""), ("{a: 1}", '{"a": 1}')],
    )  # fmt: skip
    def test_values_keep_their_letters(self, written, shown):
        told = configured(MINIMAL.replace("{q: Hi}", f"{{q: Hi, other: {written}}}"))
        assert told.spec.tasks[0].variables["other"] == shown

    def test_aliases_are_read_up_to_a_limit(self):
        lines = [f"{b}: &{b} [*{a}, *{a}, *{a}]" for a, b in pairwise("abcdefghijklm")]
        bomb = "\n".join(["a: &a [x, x]", *lines])
        with pytest.raises(ImportingError):
            configured(f"{MINIMAL}{bomb}")

    def test_missing_files_are_all_named_at_once(self):
        text = "prompts: [file://a.txt, prompts/b.md]\nproviders: [openai:x]\ntests: file://t.csv"
        with pytest.raises(ImportingError) as refused:
            configured(text)
        assert len(refused.value.faults) == 3

    def test_files_of_a_zip_and_the_lines_that_divide_them(self):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr(
                "eval/promptfooconfig.yaml",
                "prompts: [../shared/a.txt, file://b.md]\nproviders: [openai:x]\ntests: file://t.yaml",
            )
            archive.writestr("shared/a.txt", "One {{q}}\n---\nTwo {{q}}")
            archive.writestr("eval/b.md", "# Three\n---\n{{q}}")
            archive.writestr("eval/t.yaml", "- vars: {q: Hi}\n- vars: {q: 'file://long.txt'}")
            archive.writestr("eval/long.txt", "A long one")
        told = brought({"folder.zip": packed.getvalue()})
        assert (told.n_policies, [task.prompt for task in told.spec.tasks]) == (3, ["Hi", "A long one"])

    def test_no_file_outside_of_the_repository_is_opened(self, tmp_path):
        (tmp_path / "secret.txt").write_text("{{q}} secret")
        (tmp_path / "work" / ".git").mkdir(parents=True)
        (tmp_path / "work" / "inside.txt").write_text("{{q}} inside")
        (tmp_path / "work" / "link.txt").symlink_to(tmp_path / "secret.txt")
        folder = tmp_path / "work" / "eval"
        folder.mkdir()
        find = finder_below(folder)
        assert [data for _, data in find("../inside.txt")] == [b"{{q}} inside"]
        assert not any([*find("../../secret.txt"), *find("../link.txt"), *find(f"{tmp_path}/secret.txt")])

    @pytest.mark.parametrize(
        "part", ["{% for x in y %}", "{{ f(x) }}", "{{ q | random }}", "{{ q.__class__() }}"]
    )
    def test_what_cannot_be_filled_is_left_out_by_name(self, part):
        told = configured(MINIMAL.replace("'B: {{q}}'", f"'{part} {{{{q}}}}', 'C {{{{q}}}}'"))
        assert counts(told)["prompt"] == (2, 1)
        assert "{%" not in repr(told.spec)

    def test_of_a_negated_check_and_a_usable_one_only_the_usable_one_is_taken(self):
        usable = "{type: regex, value: 'n[ei]ne'}, {type: contains, value: '{{q}}'}"
        checks = f"assert: [{{type: not-contains, value: x}}, {usable}]"
        told = configured(MINIMAL.replace("{vars: {q: Hi}}", f"{{vars: {{q: Hi}}, {checks}}}"))
        assert told.spec.tasks[0].checks == (TextCheck("regex", "n[ei]ne"), TextCheck("contains", "Hi"))

    def test_checks_of_a_transformed_output_are_left_out(self):
        text = (
            MINIMAL + "defaultTest: {options: {transform: output.text}, assert: [{type: contains, value: x}]}"
        )
        told = configured(text)
        assert (told.spec.tasks[0].checks, counts(told)["check"]) == ((), (0, 1))

    @pytest.mark.parametrize(
        "slip",
        ["assert: []", "asert: []", "max_tokens: 3", "test: []"],
    )
    def test_an_unknown_name_at_the_root_is_a_slip_with_its_line(self, slip):
        with pytest.raises(ImportingError) as refused:
            configured(f"{MINIMAL}{slip}\n")
        assert [fault.place[:6] for fault in refused.value.faults] == ["line 5"]

    def test_names_of_peoples_own_are_left_out_with_their_line(self):
        told = configured(MINIMAL.replace("{vars: {q: Hi}}", "{vars: {q: Hi}, notes: mine}") + "team: us\n")
        assert counts(told)["field"] == (0, 2)

    def test_a_conversation_in_a_variable_is_a_task_with_its_history(self):
        turns = json.dumps([{"role": role, "content": role} for role in ("user", "assistant", "user")])
        told = configured(
            f"prompts: ['{{{{q}}}}']\nproviders: [openai:x]\ntests: [{{vars: {{q: '{turns}'}}}}]"
        )
        assert [message.role for message in told.spec.tasks[0].messages] == ["user", "assistant", "user"]

    @pytest.mark.parametrize(
        ("provider", "called"),
        [("openai:responses:gpt-5", True), ("google:gemini-2.5-flash", True), ("vertex:gemini-2.5-pro", True),
         ("huggingface:text-generation:a/b", True), ("github:openai/gpt-5", True), ("ollama:chat:tiny", True),
         ("openai:assistant:asst_1", False), ("https://example.com/x", False), ("exec:./run.sh", False),
         ("python:p.py", False), ("echo", False), ("file://p.py:f", False), ("./p.js", False)],
    )  # fmt: skip
    def test_which_providers_a_connection_can_ask(self, provider, called):
        told = configured(MINIMAL.replace("openai:gpt-4.1-mini", f"'{provider}'"))
        assert counts(told)["provider"] == ((1, 0) if called else (0, 1))

    def test_providers_of_one_name_are_told_apart_by_their_settings(self):
        two = "{id: 'openai:x', config: {temperature: 0}}, {id: 'openai:x', config: {temperature: 1}}"
        told = configured(MINIMAL.replace("openai:gpt-4.1-mini", two))
        assert levels(told)["Model"] == ["openai:x temperature 0", "openai:x temperature 1"]

    def test_variables_that_name_each_other_are_left_out(self):
        told = configured(MINIMAL.replace("{q: Hi}", "{q: '{{r}}', r: '{{q}}'}"))
        assert counts(told)["test"] == (0, 1)

    def test_our_own_descriptions_and_tables_are_no_configurations(self):
        for text in ("name: X\nfactors: []\ntasks: [a]", "tests", "a,b\n1,2", "[1, 2]", "prompts are nice"):
            assert configuration_in(text) is None

    @given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40))
    def test_a_text_without_braces_is_sent_as_it_is(self, text):
        if "{" not in text:
            assert Filling({}, {}).text(read_template(text)) == text

    @given(st.text(max_size=30))
    def test_a_value_in_a_conversation_stays_what_it_is(self, value):
        chat = read_chat('[{"role": "user", "content": {{ v | dump }}}]')
        if "{{" not in value and "{%" not in value and value:
            assert Filling({"v": value}, {}).text(chat.turns[0][1], in_chat=True) == value

    @given(st.text(max_size=60))
    def test_no_template_raises_anything_else(self, text):
        try:
            read_template(text)
            read_chat(text)
        except UnfillableError:
            pass


def test_answers_that_are_replayed_through_echo_are_ready_made():
    told = configured(
        "prompts: ['{{answer_old}}', {label: New, raw: '{{answer_new}}'}]\nproviders: [echo]\n"
        "tests: [{vars: {q: Hi, answer_old: a, answer_new: b}}, {vars: {q: Ho, answer_new: c}},"
        " {vars: {q: '{% x %}', answer_new: d}}]"
    )
    assert [(each.task, each.policy, each.response) for each in told.spec.ready_made] == [
        (0, "answer_old", "a"),
        (0, "New", "b"),
        (1, "New", "c"),
    ]
    assert [task.prompt for task in told.spec.tasks] == ["Hi", "Ho"]
    assert (counts(told)["response"], counts(told)["test"]) == ((3, 1), (2, 1))


ROW = {"promptIdx": 0, "testIdx": 0, "provider": {"id": "p"}, "prompt": {"raw": "x", "label": "x"}}
BESIDE = "Status,Score,Named Scores,Grader Reason,Comment"
NEWER = (
    f"q,[One] x,{BESIDE},[Two] x,{BESIDE}\n"
    "A?,'=1+1,PASS,1,{},,,B,FAIL,0,{},no,\nC?,boom,ERROR,0,,,,D,PASS,1,,,\n"
)
OLDER = 'q,[One] x,[Two] x\nA?,[PASS] =1+1,"[FAIL] Expected b\n---\nB"\nC?,[ERROR] boom,[PASS] D\n'
HEAD = {"prompts": [{"provider": "One", "raw": "x"}, {"provider": "Two", "raw": "x"}], "vars": ["q"]}
FIRST = [{"text": "=1+1", "pass": True}, {"text": "no\n---\nB", "pass": False}]
SECOND = [{"text": "boom", "pass": False, "failureReason": 2}, {"text": "D"}]
BODY = [{"vars": ["A?"], "outputs": FIRST}, {"vars": ["C?"], "outputs": SECOND}]
TABLE = {"results": {"table": {"head": HEAD, "body": BODY}}}


class TestResults:
    @pytest.mark.parametrize("text", [NEWER, OLDER, json.dumps(TABLE)])
    def test_the_shapes_of_tables(self, text):
        told = brought({"results.csv": text.encode()})
        assert [(each.task, each.policy, each.response) for each in told.spec.ready_made] == [
            (0, "One", "=1+1"),
            (0, "Two", "B"),
            (1, "Two", "D"),
        ]
        assert counts(told)["response"] == (3, 1)

    def test_lines(self):
        rows = [
            ROW | {"vars": {"q": "A?"}, "response": {"output": "a"}, "error": "a check", "failureReason": 1},
            ROW | {"vars": {"q": "A?"}, "response": {"output": ["b"]}, "provider": {"id": "r", "label": "R"}},
            ROW | {"vars": {"q": "A?"}, "response": {}, "failureReason": 0},
        ]
        told = brought({"results.jsonl": "\n".join(map(json.dumps, rows)).encode()})
        assert [(each.policy, each.response) for each in told.spec.ready_made] == [("p", "a"), ("R", '["b"]')]

    def test_other_tables_are_no_results(self):
        for text in (
            "task,policy,response\nHi,A,[PASS] x\n",
            '{"task": "a", "policy": "b", "response": "c"}',
        ):
            source = source_of([("a.csv", io.BytesIO(text.encode()))], FILE_BYTES)
            assert found_in(source) is None


def test_a_command_reads_files_beside_the_configuration():
    root = configuration_in((FIXTURES / "06-csv-tests.yaml").read_text())
    assert root is not None
    assert len(read_configuration(root, find=finder_below(FIXTURES)).spec.tasks) == 6
