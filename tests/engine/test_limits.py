"""Each limit is one constant, and what exceeds it is refused before any work."""

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings

from engine.domain import levels, limits
from engine.domain.errors import SpecError
from engine.domain.levels import parse_level
from engine.domain.specs import FactorSpec, GoldSpec, ReadyMade, TaskSpec
from engine.importing.experiment_files import read_experiment
from engine.importing.items import read_responses, read_tasks
from engine.importing.rows import ImportingError
from engine.importing.strict_json import JSONLimitError, loads
from engine.models import Experiment
from engine.services import trials
from engine.services.descriptions import check_description
from engine.services.drafts import create_experiment
from tests.factories import make_experiment, make_spec

DOCUMENT = (Path(settings.BASE_DIR) / "docs" / "limits.md").read_text()


def factors(*sizes: int) -> list[FactorSpec]:
    return [
        FactorSpec(f"F{f}", "prompt", {f"L{n}": {"text": f"{n}"} for n in range(size)})
        for f, size in enumerate(sizes)
    ]


@pytest.fixture
def no_enumeration(monkeypatch) -> None:
    """Enumerating policies fails the test: arithmetic has to be enough."""

    def refuse(*_given: object) -> None:
        raise AssertionError("The policies were enumerated.")

    monkeypatch.setattr("engine.services.descriptions.combinations", refuse)


def test_the_document_lists_every_limit_with_its_number():
    rows = {
        cells[0]: cells[1]
        for line in DOCUMENT.splitlines()
        if line.startswith("| ") and len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 3
    }
    del rows["limit on"]
    assert rows == {
        each.thing: f"{each.default:,}" + (f" (`{each.setting}`)" if each.setting else "")
        for each in limits.LIMITS.values()
    }


def test_guides_and_pages_say_the_same_numbers():
    def text(name: str) -> str:
        return " ".join((Path(settings.BASE_DIR) / name).read_text().split())

    def megabytes(limit: limits.Limit) -> str:
        return f"{limit.default // 10**6} MB"

    guide = text("docs/setting-up.md")
    assert trials.MOST_TASKS == 3
    assert "Each policy answers up to three tasks once" in guide
    assert f"With more than {trials.MOST_POLICIES} policies, {trials.MOST_POLICIES} are tried" in guide
    for name in ("operations", "scaling"):
        assert f"requests of {megabytes(limits.UPLOAD_BYTES)}" in text(f"docs/{name}.md")
    assert f"up to {megabytes(limits.DESCRIPTION_BYTES)})" in text("templates/setup/_items.html")
    assert f"File (up to {megabytes(limits.DESCRIPTION_BYTES)})" in text("templates/setup/new.html")
    assert f"up to {megabytes(limits.RESPONSES_BYTES)} together" in text("templates/setup/new.html")
    assert f"up to {megabytes(limits.VOTES_BYTES)} together" in text("templates/setup/votes.html")
    numbers = f"temperature is at most {levels._HOTTEST}, `max_tokens` at most {levels._MOST_TOKENS:,}"
    assert numbers in text("docs/limits.md")


def test_every_limit_says_what_to_do():
    for each in limits.LIMITS.values():
        message = each.refusal(each.default + 1)
        assert f"{each.default + 1:,} {each.thing}; the limit is {each.default:,}. " in message
        assert message.endswith(".")
        assert each.advice
        assert not each.refusal(each.default)


def test_an_installation_may_choose_another_limit(settings):
    settings.MOST_POLICIES = 5
    limits.POLICIES.check(5)
    with pytest.raises(SpecError, match="6 policies; the limit is 5"):
        limits.POLICIES.check(6)


@pytest.mark.usefixtures("no_enumeration")
@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([20] * 6, "64,000,000 policies; the limit is 300. Give fewer levels or factors"),
        ([300] * 20, "about 10^49 policies"),
        ([3000], "3,000 levels of one factor; the limit is 300"),
        ([2] * 21, "21 factors; the limit is 20"),
        ([301], "301 levels of one factor"),
    ],
)
def test_too_many_policies_are_refused_by_arithmetic(sizes, words):
    """Six factors of 20 levels asked for 29 PiB and computed for 192 s."""
    with pytest.raises(SpecError) as refused:
        check_description(replace(make_spec(), factors=factors(*sizes)))
    assert words in str(refused.value)


def test_exclusions_cannot_hide_a_product_that_is_too_large():
    with pytest.raises(SpecError, match="64,000,000 combinations of levels before exclusions"):
        check_description(
            replace(make_spec(), factors=factors(*[20] * 6), settings={"excluded": [{"F0": "L0"}]})
        )


@pytest.mark.django_db
def test_exclusions_may_bring_the_policies_down_to_the_limit():
    excluded = [{"F0": f"L{n}"} for n in range(1, 19)]
    spec = replace(make_spec(), factors=factors(20, 20), settings={"excluded": excluded})
    assert len(check_description(spec).policies) == 40
    with pytest.raises(SpecError, match="380 policies; the limit is 300"):
        check_description(replace(spec, settings={"excluded": excluded[:1]}))


@pytest.mark.django_db
def test_a_factorial_model_has_fewer_levels():
    spec = replace(make_spec(), factors=factors(62), settings={"space": "factorial"})
    with pytest.raises(SpecError, match="61 free parameters of the factorial model; the limit is 60"):
        check_description(spec)
    check_description(replace(spec, settings={}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tasks": [TaskSpec("x")] * 20_001}, "20,001 tasks; the limit is 20,000"),
        ({"gold": [GoldSpec("x", "y", "z")] * 2_001}, "2,001 gold items; the limit is 2,000"),
        ({"ready_made": [ReadyMade(0, "P", "x")] * 100_001}, "100,001 ready-made responses"),
        ({"tasks": [TaskSpec("x" * 200_001)]}, "Task 1: 200,001 characters in one text"),
        ({"tasks": [TaskSpec("a"), TaskSpec("b", "x\0")]}, "Task 2: a character cannot be stored"),
        ({"gold": [GoldSpec("x", "y", "\ud800")]}, "Gold item 1: a character cannot be stored"),
        ({"name": "a\0b"}, "name: a character cannot be stored"),
        ({"settings": {"question": "\udfff"}}, "question: a character cannot be stored"),
        ({"settings": {"budget": math.inf}}, "budget: inf is not a finite number"),
        ({"settings": {"delta": math.nan}}, "delta: nan is not a finite number"),
        ({"settings": {"seed": 10**5000}}, "seed: about 10^5000 is too large"),
        ({"settings": {"llm_budget": 2**63}}, "llm_budget: about 10^18 is too large"),
        (
            {"settings": {"excluded": [{"System prompt": "Prompt 0"}] * 101}},
            "101 exclusions; the limit is 100",
        ),
        ({"settings": {"excluded": 5}}, "excluded: this must be a list"),
        (
            {"factors": [FactorSpec("S", "sampling", {"a": {}, "b": {"stop": ["x"] * 101}})]},
            "101 entries in one list of a level; the limit is 100",
        ),
    ],
)
def test_what_cannot_be_stored_is_refused_before_the_database_is_asked(change, words):
    """No fixture gives this test a database: a query would fail it."""
    with pytest.raises(SpecError) as refused:
        check_description(replace(make_spec(), **change))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"temperature": 10**400}, "temperature must be at least 0 and at most 100, not about 10^400"),
        ({"temperature": 10**5000}, "temperature must be at least 0"),
        ({"top_k": 2**31}, "top_k must be 0 (off) or at most 2,147,483,647"),
        ({"max_tokens": 10**30}, "max_tokens must be at least 1 and at most 1,000,000"),
        ({"top_p": 10**400}, "top_p must lie in (0, 1]"),
    ],
)
def test_a_number_that_no_engine_takes_never_reaches_a_worker(value, words):
    """10**400 as a temperature failed a batch of everybody's responses."""
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_level("sampling", value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("9" * 5000, "5,000 digits in one number; the limit is 300"),
        ('{"a": [-' + "9" * 5000 + "]}", "5,000 digits"),
        ("1e999", "too large for a number"),
        ("Infinity", "Infinity is not JSON"),
        ("[NaN]", "NaN is not JSON"),
        ("[" * 51 + "]" * 51, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 60 + "1" + "}" * 60, "nested too deeply"),
        ('[{"a": 1, "b": 2, "a": 1}]', "'a' appears twice in one object"),
        ('{"a": {"\\ud800": 1}}', r"The name '\\ud800': a character cannot be stored"),
        ('{"a\\u0000": 1}', "a character cannot be stored"),
    ],
)
def test_json_is_read_within_the_limits(text, words):
    with pytest.raises(JSONLimitError, match=words):
        loads(text)


def test_json_within_the_limits_is_what_it_was():
    text = '{"a": [1, -2.5e3, "9", null, true, {"b": {}}]}'
    assert loads(text) == {"a": [1, -2500.0, "9", None, True, {"b": {}}]}
    assert loads("[" * 50 + "]" * 50)


@pytest.mark.parametrize("read", [read_tasks, read_responses])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"task": "a", "policy": "p", "response": ' + "9" * 5000 + "}]", "5,000 digits in one number"),
        ('{"task": "a"}\n{"task": ' + "9" * 5000 + "}\n", "line 2: 5,000 digits in one number"),
        ('{"task": "a", "policy": "p", "response": Infinity}', "Infinity is not JSON"),
        (
            '[{"task": "' + "x" * 200_001 + '", "policy": "p", "response": "r"}]',
            "200,001 characters in one text",
        ),
    ],
)
def test_an_import_names_what_is_too_large(read, text, words):
    """A 5,000-digit integer in an import was an error 500."""
    with pytest.raises(ImportingError) as refused:
        read(text)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"name": "a", "budget": Infinity}', "Infinity is not JSON"),
        ('{"name": "a", "budget": 1e999}', "too large for a number"),
        ('{"name": "a", "seed": ' + "9" * 5000 + "}", "5,000 digits"),
        ("a: &a [x, x]\nb: [*a, *a]", "Aliases"),
        ("a: " + "[" * 60 + "]" * 60, "nested too deeply"),
    ],
)
def test_an_experiment_file_names_what_is_too_large(text, words):
    with pytest.raises(ImportingError, match=words):
        read_experiment(text)


@pytest.mark.django_db
@pytest.mark.parametrize("budget", [".inf", "1e999", "9" * 400, ".nan"])
def test_a_yaml_budget_that_is_no_number_is_a_clear_error(budget):
    """`int(inf)` was an error 500."""
    text = (
        f"name: A\nbudget: {budget}\ntasks: [x]\n"
        "factors: [{name: P, kind: prompt, levels: {a: {text: x}, b: {text: y}}}]"
    )
    with pytest.raises(SpecError, match="budget"):
        create_experiment(spec=read_experiment(text).spec)
    assert not Experiment.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("setting", "given", "words"),
    [
        ("budget", 2.7, "budget: this must be a whole number, not 2.7."),
        ("budget", True, "budget: this must be a whole number, not True."),
        ("seed", "1_000", "seed: this must be a whole number, not '1_000'."),
        ("gold_rate", "NaN", "gold_rate: this must be a number, not 'NaN'."),
        ("repeat_rate", float("nan"), "repeat_rate: nan is not a finite number"),
        ("delta", True, "delta: this must be a number, not True."),
        ("allow_tie", "1", "allow_tie: this must be true or false, not '1'."),
        ("rubric", 7, "rubric: this must be a text, not 7."),
        ("backend", None, "backend: this must be a text, not None."),
        ("excluded", None, "excluded: this must be a list"),
    ],
)
def test_a_setting_of_another_type_is_refused_and_not_turned_into_one(setting, given, words):
    """A budget of 2.7 became 2, one of true became 1,
    and a share that is no number failed in the database.
    """
    with pytest.raises(SpecError, match=re.escape(words)) as refused:
        create_experiment(spec=make_spec(**{setting: given}))
    assert refused.value.path == (setting,)
    assert not Experiment.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tasks": [TaskSpec("x"), TaskSpec(" \n")]}, "Task 2 is empty."),
        ({"gold": [GoldSpec("x", "better", " ")]}, "Gold item 1 has no worse."),
        ({"name": "  "}, "name: Give it a name."),
        (
            {"factors": [FactorSpec(" ", "prompt", {"a": {"text": "a"}, "b": {"text": "b"}})]},
            "Factor ' ': name:",
        ),
        (
            {"factors": [FactorSpec("F", "prompt", {" ": {"text": "a"}, "b": {"text": "b"}})]},
            "level ' ': name:",
        ),
    ],
)
def test_what_is_blank_is_refused_whichever_way_it_comes(change, words):
    """Lists of tasks refused empty ones; descriptions and the API stored them."""
    with pytest.raises(SpecError, match=re.escape(words)):
        create_experiment(spec=replace(make_spec(), **change))


@pytest.mark.django_db
def test_the_largest_experiment_that_is_allowed_has_a_row_for_each_pair(settings):
    settings.MOST_POLICIES = 12
    experiment = make_experiment(n_policies=12, running=False)
    assert experiment.pair_counts.count() == len(list(itertools.combinations(range(12), 2)))
