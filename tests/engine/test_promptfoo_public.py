"""Configurations of promptfoo as authors write them in public: invented, with the traits of several."""

import io
import zipfile

import pytest

from engine.domain.conversations import Message
from engine.domain.text_checks import TextCheck
from engine.importing.found_files import FoundFile
from engine.importing.rows import ImportingError
from tests.engine.test_promptfoo import brought, configured, counts, levels, sent


def zipped(**files: str) -> FoundFile:
    """A folder with these files; ``config`` is the configuration, and __ stands for a slash."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            path, _, end = name.replace("__", "/").rpartition("_")
            archive.writestr(f"{path}.{end}" if path else "promptfooconfig.yaml", text)
    return brought({"folder.zip": packed.getvalue()})


def reasons(told: FoundFile) -> dict[str, list[str]]:
    """The places and texts of what was left out, by reason."""
    return {each["reason"]: each["examples"] for each in told.findings.left_out()}


def test_chats_in_files_with_tests_found_by_a_pattern():
    told = zipped(
        config="""
# yaml-language-server: $schema=https://promptfoo.dev/config-schema.json
prompts:
  - file://prompts/formal.json
  - {id: file://prompts/warm.yaml, label: Warm}
providers:
  - id: anthropic:messages:claude-sonnet-4-5
    config: {max_tokens: 1024, thinking: {type: enabled, budget_tokens: 2048}}
tests: file://tests/*.yaml
""",
        prompts__formal_json="""[
  {"role": "system", "content": "You are formal. Today is {{date}}."},
  {"role": "user", "content": "{{message}}"}
]""",
        prompts__warm_yaml="""- role: system
  content: |
    You are warm.
    Use emojis.
- role: user
  content: '{{message}}'
""",
        tests__a_yaml="- vars: {message: Where is it?, date: 2024-03-01}",
        tests__b_yaml='- vars: {message: "Broken: \\"again\\"\\nplease", date: 2024-03-02}',
    )
    assert levels(told)["Prompt"] == ["formal.json", "Warm"]
    assert told.spec.factors[1].levels["anthropic:messages:claude-sonnet-4-5"]["reasoning_tokens"] == 2048
    assert sent(told, 1) == [
        [("system", "You are formal. Today is 2024-03-02."), ("user", 'Broken: "again"\nplease')],
        [("system", "You are warm.\nUse emojis.\n"), ("user", 'Broken: "again"\nplease')],
    ]


def test_providers_as_maps_at_other_addresses_and_with_keys():
    told = configured("""
prompts: ['{{input}}', 'Think first. {{input}}']
providers:
  - openai:gpt-4o: {label: four, config: {temperature: 0, apiKey: '{{env.OPENAI_API_KEY}}'}}
  - id: azure:chat:my-deployment
    config: {apiHost: acme.openai.azure.com, apiVersion: 2024-06-01, max_tokens: 200}
  - id: openai:chat:llama-3.3-70b
    label: llama
    config:
      apiBaseUrl: https://llm.example.com/v1
      apiKeyEnvar: ACME_KEY
      response_format: {type: json_object}
      frequency_penalty: 0.2
  - id: google:gemini-2.5-flash
    config: {generationConfig: {temperature: 0.4, maxOutputTokens: 512}, safetySettings: [{category: X}]}
env: {OPENAI_API_KEY: sk-made-up}
tests: [{vars: {input: 12}}, {vars: {input: true}}, {vars: {input: 3.50}}]
""")
    models = told.spec.factors[1].levels
    assert [*models] == ["four", "azure:chat:my-deployment", "llama", "google:gemini-2.5-flash"]
    assert models["llama"]["extra_body"] == {
        "response_format": {"type": "json_object"},
        "frequency_penalty": 0.2,
    }
    assert (models["google:gemini-2.5-flash"]["temperature"], models["four"]["temperature"]) == (0.4, 0)
    assert [each.address for each in told.connections][1:3] == [
        "https://acme.openai.azure.com",
        "https://llm.example.com/v1",
    ]
    assert "sk-made-up" not in repr(told)
    assert [task.prompt for task in told.spec.tasks] == ["12", "true", "3.50"]
    assert counts(told)["setting"] == (5, 2)


def test_tests_of_many_kinds_below_a_default_in_a_file():
    told = zipped(
        config="""
prompts: [prompts/main.txt]
providers: [openai:gpt-4o-mini, openai:gpt-4o]
defaultTest: file://shared/default.yaml
tests:
  - file://cases.jsonl
  - file://cases.json
  - file://generate.py:create
  - https://docs.google.com/spreadsheets/d/abc/edit
  - huggingface://datasets/acme/set?split=test
  - vars: {question: inline}
""",
        prompts__main_txt="Answer shortly.\n\n{{question}}\n",
        shared__default_yaml="""
vars: {tone: dry}
options: {provider: openai:gpt-4o}
assert: [{type: llm-rubric, value: Is polite}, {type: latency, threshold: 3000}]
""",
        cases_jsonl='{"vars": {"question": "one"}, "assert": [{"type": "icontains", "value": "uno"}]}\n'
        '{"vars": {"question": "two"}}\n',
        cases_json='[{"vars": {"question": "three"}, "metadata": {"level": "hard", "tags": ["a", "b"]}}]',
    )
    assert [task.prompt[17:] for task in told.spec.tasks] == ["one", "two", "three", "inline"]
    assert told.spec.tasks[2].tags == ("hard", "a", "b")
    assert (counts(told)["file of tests"], counts(told)["check"]) == ((0, 3), (1, 2))
    assert levels(told) == {"Model": ["openai:gpt-4o-mini", "openai:gpt-4o"]}
    assert told.spec.tasks[0].variables == {"tone": "dry"}


def test_objects_as_variables_and_templates_that_cannot_be_filled():
    told = zipped(
        config="""
prompts:
  - '{{ user.name }} asks: {{ question | trim }} {{ context }}'
  - '{% for item in items %}- {{ item }}{% endfor %}{{ question }}'
  - "{% include 'x.txt' %} {{question}}"
  - '{% for c in _conversation %}{{ c.input }}{% endfor %}{{ question }}'
providers: [openrouter:acme/small]
tests:
  - vars: {user: {name: Ada}, question: '  Can I?  ', context: file://ctx.md}
  - vars: {user: {name: Bo, plan: free}, question: Why?, context: '{{ user.plan }} plan'}
""",
        ctx_md="# Plans",
    )
    assert [task.prompt for task in told.spec.tasks] == [
        "Ada asks: Can I? # Plans",
        "Bo asks: Why? free plan",
    ]
    assert (told.n_policies, counts(told)["prompt"]) == (1, (1, 3))
    assert "{%" not in repr(told.spec)


def test_checks_that_refer_to_templates_of_the_file():
    told = configured("""
prompts: ['Give JSON. {{q}}', 'Only JSON. {{q}}']
providers: [ollama:chat:llama3.2]
assertionTemplates:
  short: {type: javascript, value: output.length < 100}
  river: {type: icontains, value: rhine}
tests:
  - description: all kinds
    vars: {q: Name a river}
    threshold: 0.5
    assert:
      - $ref: '#/assertionTemplates/short'
      - $ref: '#/assertionTemplates/river'
      - $ref: '#/assertionTemplates/none'
      - {type: is-json, value: {type: object}}
      - {type: contains-any, value: [Rhine, Lune]}
      - {type: assert-set, assert: [{type: contains, value: x}]}
      - {type: contains, value: 42, weight: 2, metric: exact}
""")
    assert told.spec.tasks[0].checks == (TextCheck("icontains", "rhine"), TextCheck("contains", "42"))
    assert counts(told)["check"] == (2, 5)
    assert "code (javascript)" in reasons(told)
    assert not any("assertionTemplates" in each for each in reasons(told).get("of a name", []))
    assert counts(told)["field"] == (0, 2)


def test_json_with_the_marks_of_windows():
    text = '\ufeff{\r\n "prompts": ["Say {{w}}", "Shout {{w}}"],\r\n "providers": "mistral:small",\r\n' + (
        ' "tests": [{"vars": {"w": "h\\u00e9"}}, {"vars": {"w": "007"}}]\r\n}\r\n'
    )
    told = brought({"promptfooconfig.json": text.encode()})
    assert [task.prompt for task in told.spec.tasks] == ["hé", "007"]
    assert told.n_policies == 2


@pytest.mark.parametrize("tests", ["", "tests: [{description: as it is}, {vars: {unused: x}}]"])
def test_prompts_without_variables_are_compared_on_one_task(tests):
    told = configured(f"""
prompts: ['Write a haiku about tea.', 'Write a limerick about tea.']
providers: [openai:gpt-4o, anthropic:messages:claude-haiku-4-5]
{tests}
""")
    assert (told.n_policies, len(told.spec.tasks)) == (4, 1)
    assert sent(told, 0) == [
        [("user", "Write a haiku about tea.")],
        [("user", "Write a limerick about tea.")],
    ]


def test_a_red_team_has_a_policy_and_no_task():
    told = configured("""
targets: [{id: openai:gpt-4o, label: bot}]
redteam: {purpose: Help customers, plugins: [harmful], strategies: [jailbreak]}
""")
    assert (told.n_policies, levels(told), told.spec.tasks) == (1, {"Model": ["bot"]}, [])
    assert counts(told)["field"] == (0, 1)


def test_equal_labels_of_other_vendors_and_vendors_own_settings():
    told = configured("""
prompts: [{id: p1, label: Base, raw: 'Sum up: {{doc}}'}, {label: 2.0, raw: 'In five words: {{doc}}'}]
providers:
  - id: openai:responses:gpt-5
    label: gpt
    config: {max_output_tokens: 800, reasoning: {effort: low}, text: {verbosity: low}, tools: [{type: x}]}
  - id: vertex:gemini-2.5-pro
    label: gpt
    config: {projectId: acme, region: europe-west4, temperature: '0.2'}
  - {id: 'ollama:llama3.2:3b', config: {num_predict: 256, num_ctx: 4096, top_k: 40}}
tests: [{vars: {doc: A text}}]
""")
    assert levels(told)["Prompt"] == ["Base", "2.0"]
    first, second, third = told.spec.factors[1].levels.items()
    assert first[0] != second[0]
    assert first[1] == {"name": "openai:responses:gpt-5", "max_tokens": 800, "reasoning": "low"}
    assert second[1] == {"name": "vertex:gemini-2.5-pro", "temperature": 0.2}
    assert third[1] == {"name": "ollama:llama3.2:3b", "max_tokens": 256, "top_k": 40}
    assert counts(told)["setting"] == (5, 5)


def test_texts_around_the_prompt_and_scenarios_in_a_file():
    told = zipped(
        config="""
x-common: &common {temperature: 0.5}
prompts: ['{{q}}']
providers: [{id: openai:gpt-4o, config: {<<: *common}}, {id: openai:gpt-4o, config: {temperature: 1}}]
defaultTest: {options: {prefix: 'In English: ', suffix: ' Thanks.'}}
scenarios: [file://s.yaml]
""",
        s_yaml="config:\n  - vars: {q: Hello}\n  - vars: {q: Bye}\n",
    )
    assert [task.prompt for task in told.spec.tasks] == [
        "In English: Hello Thanks.",
        "In English: Bye Thanks.",
    ]
    assert told.n_policies == 2
    assert counts(told).get("field", (0, 0)) == (0, 0)


def test_turns_before_the_last_are_the_tasks_and_system_texts_the_levels():
    turns = '{"role": "user", "content": "great"}, {"role": "assistant", "content": "positive"},'
    last = '{"role": "user", "content": "{{text}}"}'
    told = configured(f"""
prompts:
  - '[{{"role": "system", "content": "Classify."}}, {turns} {last}]'
  - '[{{"role": "developer", "content": "Be strict."}}, {turns} {last}]'
providers: [openai:gpt-4o]
tests: [{{vars: {{text: "awful\\n\\"quoted\\""}}}}]
""")
    assert [level["text"] for level in told.spec.factors[0].levels.values()] == ["Classify.", "Be strict."]
    assert told.spec.tasks[0].messages == (
        Message("user", "great"),
        Message("assistant", "positive"),
        Message("user", 'awful\n"quoted"'),
    )


def asked(told: FoundFile) -> list[str]:
    return [task.prompt for task in told.spec.tasks]


TEA = """
providers: ['openai:a', 'openai:b']
tests:
  - vars: {shop: Lune, city: Bergen}
  - vars: {shop: Rive, city: Oslo}
"""


@pytest.mark.parametrize("prompt", ["file://ask.py", "'{% if shop %}Hello{% endif %} {{shop}}'"])
def test_tasks_are_taken_where_no_prompt_can_be(prompt):
    told = configured(f"prompts: [{prompt}]{TEA}")
    assert counts(told)["prompt"] == (0, 1)
    assert (told.n_policies, asked(told)[0]) == (0, "shop: Lune\ncity: Bergen")
    assert counts(told)["test"] == (2, 0)


def test_an_unused_variable_that_cannot_be_filled_costs_no_task():
    told = configured(f"""
prompts: ['Praise {{{{shop}}}}']
defaultTest: {{vars: {{rules: '{{% raw %}}Be brief.{{% endraw %}}'}}}}{TEA}""")
    assert asked(told) == ["Praise Lune", "Praise Rive"]
    assert [*told.spec.tasks[0].variables] == ["city"]
    assert counts(told)["variable"] == (0, 2)
    assert not any("rules" in note for note in told.findings.notes)


def test_a_missing_file_of_a_variable_is_said_once_and_when_people_go_on():
    text = """
prompts: ['Sum up {{doc}}']
providers: ['openai:a', 'openai:b']
tests:
  - vars: {doc: file://docs/1.txt, assert: [{type: contains, value: x}]}
  - vars: {doc: Two}
"""
    with pytest.raises(ImportingError) as refused:
        configured(text)
    assert [fault.place for fault in refused.value.all_faults] == [
        "line 5, tests → 1 → vars → doc",
        "line 5, tests → 1 → vars → assert",
    ]
    told = configured(text, leave_out=True)
    assert counts(told)["file"] == counts(told)["part"] == (0, 1)
    assert reasons(told)["missing"] == ["line 5, tests → 1 → vars → doc: docs/1.txt"]


def test_a_slip_in_a_file_of_tests_names_the_file():
    with pytest.raises(ImportingError) as refused:
        zipped(
            config="prompts: ['Sum up {{doc}}']\nproviders: ['openai:a']\ntests: file://more/cases.yaml",
            more__cases_yaml="- vars: {doc: One}\n  asert: []\n",
        )
    assert refused.value.all_faults[0].place == "more/cases.yaml, line 2, 1 → asert"


def test_settings_in_files_levels_of_thinking_and_equal_labels():
    told = zipped(
        config="""
prompts: ['Sum up {{doc}}']
providers:
  - {id: 'openai:a', label: A, config: {response_format: file://forms/short.json, num_ctx: 1}}
  - {id: 'google:b', label: B, config: {generationConfig: {thinkingConfig: {thinkingLevel: HIGH}}}}
  - {id: 'ollama:chat:c', label: same}
  - {id: 'ollama:chat:d', label: same}
  - {id: 'openai:e', label: E}
  - {id: 'openai:e', label: E with more, config: {tools: []}}
tests: [{vars: {doc: One}}]
""",
        forms__short_json='{"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}',
    )
    models = told.spec.factors[0].levels
    assert models["A"]["response_format"] == {"type": "object"}
    assert models["B"]["reasoning"] == "high"
    assert [*models][2:4] == ["same c", "same d"]
    [note] = [note for note in told.findings.notes if "same without" in note]
    assert "E with more" in note


def test_metadata_in_prose_is_no_tag():
    told = configured(f"""
prompts: ['Sum up {{{{doc}}}}']
providers: ['openai:a', 'openai:b']
tests:
  - vars: {{doc: One}}
    metadata: {{kind: 'short, easy', about: '{"One of a long story, " * 9}', from: {{a: 1, b: 2}}}}
  - vars: {{doc: Two}}
    metadata: {{about: '{"Another long story " * 9}, and easy'}}
""")
    assert [task.tags for task in told.spec.tasks] == [("short", "easy", "One of a long story"), ()]


@pytest.mark.parametrize(("tests", "said"), [("[{vars: {doc: One}}]", True), ("file://make.py:tests", False)])
def test_tasks_that_code_makes_are_not_said_to_be_taken(tests, said):
    told = configured(f"prompts: ['{{{{doc}}}}']\nproviders: [file://own.py]\ntests: {tests}")
    assert any("tasks are taken" in note for note in told.findings.notes) is said


def test_of_several_configurations_the_usual_one_is_read_and_the_others_named():
    other = "prompts: ['{{doc}}']\nproviders: ['openai:b', 'openai:c']"
    told = zipped(
        config="prompts: ['Sum up {{doc}}']\nproviders: ['openai:a']\ntests: [{vars: {doc: One}}]",
        notes_yaml="name: no configuration",
        **{"promptfooconfig.models_yaml": other, "more__cases_yaml": other},
    )
    assert asked(told) == ["Sum up One"]
    [note] = [note for note in told.findings.notes if "promptfooconfig.yaml" in note]
    assert "promptfooconfig.models.yaml, more/cases.yaml" in note
    assert "notes" not in note


def test_a_chat_in_yaml_may_begin_with_remarks():
    told = zipped(
        config="prompts: [file://ask.yaml]\nproviders: ['openai:a']\ntests: [{vars: {doc: One}}]",
        ask_yaml="""
# For the other tool alone.
# Kept by hand.

- role: system
  content: Be kind.
- role: user
  content: "{{doc}}"
""",
    )
    assert sent(told, 0)[0] == [("system", "Be kind."), ("user", "One")]
