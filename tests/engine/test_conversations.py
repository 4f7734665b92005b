"""Tasks that are conversations, and their variables and tags: reading, checking, composing, sending."""

import json
from dataclasses import replace

import pytest

from engine.domain.conversations import Message, chat, read_messages, text_and_messages, turns_of
from engine.domain.errors import SpecError
from engine.domain.levels import Guardrail, Prompt, Strategy, compose
from engine.domain.limits import TEXT_CHARACTERS
from engine.domain.specs import FactorSpec, GoldSpec, TaskSpec
from engine.domain.variables import Space, VariableError, fill
from engine.importing.experiment_files import read_experiment, write_experiment
from engine.importing.items import read_gold, read_responses, read_tasks, write_tasks
from engine.importing.rows import ImportingError
from engine.models import Response
from engine.selectors.specs import experiment_spec
from engine.services.descriptions import check_description
from engine.services.drafts import create_experiment
from engine.services.experiments import start as start_experiment
from engine.services.planning import advance
from tests.backends import ScriptedBackend
from tests.factories import make_spec, write_responses

TURNS = (
    Message("system", "You sell tea."),
    Message("user", "Hello!"),
    Message("assistant", "Hi. *Green* or black?"),
    Message("user", "Which is milder?"),
)
JSON_TURNS = [{"role": each.role, "content": each.content} for each in TURNS]
TALK = TaskSpec(*text_and_messages(TURNS)[:1], "green", TURNS, {"customer": "Ann"}, ("tea", "short"))


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "list of objects"),
        ("Hi", "list of objects"),
        (["Hi"], "Message 1 is not an object"),
        ([{"role": "user"}], "Message 1 needs a role and a content"),
        ([*JSON_TURNS, {"role": "user", "content": 5}], "Message 5 needs"),
        ([{"role": "tool", "content": "x"}], "the role 'tool'. Use system, user, assistant"),
        ([{"role": "user", "content": " \n"}], "Message 1 is empty"),
        (JSON_TURNS[:3], "The last message is by the assistant"),
        (JSON_TURNS[:1], "The last message is by the system"),
        ([JSON_TURNS[1], *JSON_TURNS], "Message 2 is a system message"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}], "more than text"),
        ([{"role": "assistant", "content": "So.", "tool_calls": [{}]}, *JSON_TURNS], "more than text"),
    ],
)
def test_messages_that_no_response_can_continue_are_refused_with_the_reason(messages, words):
    with pytest.raises(ValueError, match=words):
        read_messages(messages)


def test_one_message_of_the_user_is_a_text_and_nothing_else():
    parts = [{"type": "text", "text": "What is"}, {"text": "tea"}, {"type": "input_text", "text": None}]
    assert text_and_messages(read_messages([{"role": "user", "content": parts}])) == ("What is\ntea\n", ())
    assert turns_of("What is tea?", []) == chat("What is tea?")
    text, messages = text_and_messages(read_messages(JSON_TURNS))
    assert text.startswith("System: You sell tea.\n\nUser: Hello!\n\nAssistant: Hi.")
    assert turns_of(text, JSON_TURNS) == messages == TURNS


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(
            {"messages": JSON_TURNS, "reference": "green", "customer": "Ann", "tags": ["tea", "short"]}
        ),
        json.dumps([{"input": JSON_TURNS, "output": "green", "Customer": "Ann", "tags": "tea; short,tea"}]),
        json.dumps(
            {"prompt": JSON_TURNS, "target": "green", "variables": {"customer": "Ann"}, "category": "tea",
             "tags": ["short"]}
        ),
        json.dumps([{"conversation": JSON_TURNS, "answer": "green", "customer": "Ann", "tags": "tea;short"}]),
    ],
    ids=["messages", "OpenAI's input", "prompt", "conversation"],
)  # fmt: skip
def test_conversations_in_files_of_tasks(text):
    [task] = read_tasks(text)
    assert replace(task, tags=tuple(sorted(task.tags, reverse=True))) == TALK
    assert read_tasks(write_tasks([TALK, TaskSpec("Plain")])) == [TALK, TaskSpec("Plain")]


def test_conversations_in_other_files():
    gold = {"messages": JSON_TURNS, "better": "Green.", "worse": "Blue."}
    assert read_gold(json.dumps(gold)) == [GoldSpec(TALK.prompt, "Green.", "Blue.", "", TURNS)]
    rows = [
        {"messages": JSON_TURNS, "policy": name, "response": name, "tags": ["tea"]} for name in ("one", "two")
    ]
    answers = read_responses("\n".join(map(json.dumps, rows)))
    assert answers.tasks == [TaskSpec(TALK.prompt, "", TURNS, {}, ("tea",))]
    spec = replace(make_spec(), tasks=[TALK, TaskSpec("Plain")], gold=read_gold(json.dumps(gold)))
    assert read_experiment(write_experiment(spec)).spec == spec


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (json.dumps({"messages": JSON_TURNS[:3]}), "line 1: The task: The last message is by the assistant"),
        (json.dumps({"prompt": "Hi", "variables": [1]}), "variables must be an object"),
        (json.dumps({"prompt": "Hi", "variables": {"a": [1]}}), "The variable a is a list"),
        (json.dumps({"prompt": "Hi", "tags": [{"a": 1}]}), "tags must be a text, or a list"),
    ],
)
def test_faults_in_files_of_tasks_name_their_place(text, words):
    with pytest.raises(ImportingError, match=words):
        read_tasks(text)


def test_a_policy_and_a_conversation_become_one_list_of_messages():
    policy = compose([Prompt("Be kind."), Strategy("Think."), Guardrail(instruction="Never swear.")])
    assert policy.messages(TURNS) == (
        Message("system", "Be kind.\nNever swear.\n\nYou sell tea."),
        *TURNS[1:3],
        Message("user", "Which is milder?\n\nThink."),
    )
    assert compose([Prompt("")]).messages(TURNS) == TURNS
    blocking = compose([Guardrail(input_block=("^hello",), refusal="No.")])
    assert blocking.refusal_for_input(*(each.content for each in TURNS)) == "No."


class TestTemplates:
    @pytest.mark.parametrize(
        ("text", "filled"),
        [
            ("Dear {{ name }}{{name|upper}}: {{ text|truncate(10)|trim }}", "Dear AnnANN: <a> {{b}}"),
            ("{% if x %} {# no #} {name} }} \\frac{1}{2}\n", "{% if x %} {# no #} {name} }} \\frac{1}{2}\n"),
            ('{{ "{{" }} name }} {{ name }}{% set x = 1 %}\n', "{{ name }} Ann{% set x = 1 %}\n"),
        ],
    )
    def test_names_are_filled_and_all_else_stays(self, text, filled):
        assert fill(text, {"name": "Ann", "text": "<a> {{b}}"}) == filled

    @pytest.mark.parametrize(
        "text",
        [
            "{{ }}", "{{ name", "{{ name.__class__ }}", "{{ name['x'] }}", "{{ name() }}", "{{ name * 9 }}",
            "{{ name ~ name }}", "{{ 'x' * 999999999 }}", "{{ self }}", "{{ none }}", '{{"a": 1}}',
            "{{ name|replace('a', 'bb') }}", "{{ name|truncate }}", "{{ name|truncate(1) }}",
            "{{ name|truncate(name) }}", "{{ name|center(999999999) }}", "{{ name|default('x') }}",
            "{{ name|attr('x') }}", "{{" + " (" * 5000 + "name" + ")" * 5000 + "}}",
            "{{ name" + "|upper" * 6 + " }}", "{{ name }}" * 201, "{{ [name for name in name] }}",
        ],
    )  # fmt: skip
    def test_nothing_but_names_and_harmless_filters(self, text):
        with pytest.raises(VariableError):
            fill(text, {"name": "Ann"})

    def test_unknown_names_of_jinja_are_unknown_here(self):
        for name in ("range", "lipsum", "cycler", "__class__", "loop"):
            with pytest.raises(VariableError, match=f"no variable '{name}'"):
                fill(f"{{{{ {name} }}}}", {"name": "Ann"})

    def test_the_filled_text_is_no_longer_than_a_text_may_be(self):
        with pytest.raises(VariableError, match="longer than"):
            fill("{{ a }}" * 5, {"a": "x" * (TEXT_CHARACTERS.most // 4)})

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("{{ nam }}", "No task has a variable 'nam'. There are: document, name."),
            ("{{ document }}", "Task 2 has no variable 'document', but others have"),
            ("{{ name }}" * 3, "With its variables filled: "),
        ],
    )
    def test_a_text_that_not_every_task_can_fill_is_refused(self, text, words):
        name = "n" * (TEXT_CHARACTERS.most // 3)
        space = Space.of([{"name": "Ann", "document": ""}, {"name": name}])
        space.check("Plain {{ name }}")
        with pytest.raises(VariableError) as error:
            space.check(text)
        assert str(error.value).startswith(words)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (replace(TALK, messages=TURNS[:3]), "Task 2: The last message is by the assistant"),
        (replace(TALK, prompt="Other"), "Task 2: The text is not the transcript"),
        (TaskSpec(*text_and_messages(chat("Hi"))[:1], messages=chat("Hi")), "Task 2: The text is not"),
        (TaskSpec("Hi", variables={"a b": "x"}), "Task 2: 'a b' cannot be the name of a variable"),
        (TaskSpec("Hi", variables={f"v{n}": "" for n in range(101)}), "Task 2: 101 variables of one task"),
        (TaskSpec("Hi", tags=("a", " a")), "Task 2: A tag is empty"),
        (TaskSpec("Hi", tags=("a,b",)), "Task 2: The tag 'a,b' has a comma"),
        (TaskSpec("Hi", tags=("a" * 101,)), "Task 2: The tag"),
        (replace(TALK, messages=TURNS[1:3] * 100 + TURNS[-1:]), "Task 2: 201 messages"),
    ],
)  # fmt: skip
@pytest.mark.django_db
def test_a_description_with_an_unusable_task_is_refused(task, words):
    with pytest.raises(SpecError, match=words):
        check_description(replace(make_spec(n_tasks=1), tasks=[TaskSpec("One"), task]))


@pytest.mark.parametrize(
    ("kind", "value", "setting"),
    [
        ("prompt", {"text": "Serve {{ custmer }}."}, "text"),
        ("strategy", {"instruction": "Serve {{ custmer }}."}, "instruction"),
        ("guardrail", {"instruction": "Serve {{ custmer }}."}, "instruction"),
        ("guardrail", {"guard_instruction": "Serve {{ custmer }}."}, "guard_instruction"),
        ("guardrail", {"refusal": "Serve {{ custmer }}."}, "refusal"),
    ],
)
@pytest.mark.django_db
def test_an_unknown_variable_is_refused_wherever_it_stands(kind, value, setting):
    spec = replace(make_spec(), tasks=[TALK], factors=[FactorSpec("F", kind, {"Bad": value, "Good": {}})])
    if kind == "prompt":
        spec = replace(spec, factors=[FactorSpec("F", kind, {"Bad": value, "Good": {"text": "Hi"}})])
    with pytest.raises(SpecError) as error:
        check_description(spec)
    assert str(error.value).startswith(
        f"Factor 'F', level 'Bad', {setting}: No task has a variable 'custmer'"
    )
    assert error.value.path == ("factors", 0, "levels", "Bad")


@pytest.mark.django_db
def test_a_worker_sends_the_conversation_with_its_variables_filled():
    factor = FactorSpec(
        "Prompt",
        "prompt",
        {
            "Named": {"text": "Serve {{ customer|upper }} as well as you can, always."},
            "Bare": {"text": "Hi."},
        },
    )
    rail = FactorSpec("Rail", "guardrail", {"On": {"guard_instruction": "Protect {{ customer }}."}})
    spec = replace(make_spec(), factors=[factor, rail], tasks=[TALK])
    experiment = create_experiment(spec=spec)
    assert experiment_spec(experiment).tasks == spec.tasks
    start_experiment(experiment_id=experiment.pk)
    advance(experiment_id=experiment.pk)

    backend = ScriptedBackend(lambda request: "You sell tea, ANN. Serve ANN as well as you can, always.")
    write_responses(backend)

    asked = {request.messages for request in backend.requests}
    system = "Serve ANN as well as you can, always.\n\nYou sell tea."
    assert (Message("system", system), *TURNS[1:]) in asked
    guarded = f"Request:\n{TALK.prompt}\n\nResponse:\n{backend.reply(backend.requests[0])}"
    assert chat(guarded, "Protect Ann.") in asked
    # The response quotes the variable, not the text around it, which has the name of the variable in it.
    assert set(Response.objects.filter(state="done").values_list("leak", flat=True)) == {""}
