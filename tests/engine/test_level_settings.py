"""The settings of levels: what models take, what is refused, and how they go through files."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from engine.domain.conversations import Message, chat
from engine.domain.errors import SpecError, WrongStateError
from engine.domain.levels import Examples, Prompt, SamplingParams, compose, parse_level
from engine.domain.list_prices import propose
from engine.domain.profiles import Provider
from engine.domain.specs import ExperimentSpec, FactorSpec
from engine.importing.experiment_files import read_experiment, write_experiment
from engine.models import Connection, Experiment, Loan
from engine.selectors import specs
from engine.services import experiments
from engine.services.drafts import create_experiment
from tests.factories import make_spec, make_user


def connection(name: str = "GPT", **fields: Any) -> Connection:
    usual = {"provider": Provider.OPENAI, "model_id": "gpt-5", "everybody": True}
    return Connection.objects.create(name=name, **usual | fields)


def spec_of(*factors: FactorSpec, **settings: Any) -> ExperimentSpec:
    spec = make_spec(**settings)
    return replace(spec, factors=[*spec.factors, *factors])


def drawn(**levels: dict[str, Any]) -> FactorSpec:
    return FactorSpec("Drawing", "sampling", levels)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"reasoning": 3}, "reasoning of a sampling level must be of type str"),
        ({"reasoning_tokens": 0}, "reasoning_tokens must be at least 1"),
        ({"reasoning": "low", "reasoning_tokens": 9}, "set one of them"),
        ({"response_format": {"title": "x"}}, "must be a JSON schema"),
        ({"response_format": "json"}, "response_format of a sampling level must be of type Mapping"),
        ({"extra_body": {"model": "x"}}, "extra_body: The field model belongs to the request itself"),
        ({"seed": 1}, "seed of a sampling level must be of type bool"),
    ],
)
def test_an_unusable_setting_is_refused(value, message):
    with pytest.raises(ValueError, match=message):
        parse_level("sampling", value)


def test_none_of_a_setting_is_as_if_it_were_left_out():
    assert parse_level("sampling", {"temperature": None, "max_tokens": None}) == SamplingParams()


class TestExamples:
    given = ({"user": "1 + 1?", "assistant": "2"}, {"user": "2 + 2?", "assistant": "4"})

    def test_they_go_between_the_system_message_and_the_task(self):
        composition = compose([Prompt("Count."), Examples(self.given)])
        assert composition.messages(chat("3 + 3?")) == (
            *chat("1 + 1?", "Count."),
            Message("assistant", "2"),
            *chat("2 + 2?"),
            Message("assistant", "4"),
            *chat("3 + 3?"),
        )

    @pytest.mark.parametrize(
        "value", [[{"user": "a"}], [{"user": "", "assistant": "b"}], [{"user": "a", "assistant": 1}], ["a"]]
    )
    def test_half_of_one_is_refused(self, value):
        with pytest.raises(ValueError, match="examples"):
            parse_level("examples", {"examples": value})


def test_all_settings_go_through_a_file():
    sampling = {
        "reasoning": "high",
        "response_format": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "extra_body": {"top_a": 0.5, "list": [1, {"a": None}]},
        "stop": ["\n", "END"],
        "seed": True,
    }
    shots = FactorSpec("Shots", "examples", {"None": {}, "Some": {"examples": list(TestExamples.given)}})
    for limit in (None, 12.5):
        spec = spec_of(
            drawn(Plain={}, Set=sampling), shots, money_limit=limit, no_answer="loses", judge_model="007"
        )
        assert read_experiment(write_experiment(spec)).spec == spec


@pytest.mark.django_db
class TestWhatIsNotSent:
    def test_a_setting_that_the_model_refuses_is_refused_with_its_sentence(self):
        connection()
        spec = spec_of(drawn(Cold={"temperature": 0.0}, Usual={}), model="GPT")
        with pytest.raises(
            SpecError, match=r"Policy “Prompt 0 · Cold”, GPT: temperature is not sent: this m"
        ):
            create_experiment(spec=spec)

    def test_the_models_of_levels_count_and_combinations_left_out_do_not(self):
        connection()
        connection("Other", provider=Provider.COMPATIBLE, model_id="x")
        model = FactorSpec("Model", "model", {"GPT": {"name": "GPT"}, "Other": {"name": "Other"}})
        spec = spec_of(drawn(Cold={"temperature": 0.0}, Usual={}), model)
        with pytest.raises(SpecError, match="Cold · GPT”, GPT: temperature is not sent"):
            create_experiment(spec=spec)
        left_out = [{"Drawing": "Cold", "Model": "GPT"}]
        created = create_experiment(spec=replace(spec, settings=spec.settings | {"excluded": left_out}))
        assert created.policies.count() == 9

    def test_what_a_connection_says_itself_goes_before_its_profile(self):
        connection(takes={"temperature": "temperature"})
        create_experiment(spec=spec_of(drawn(Cold={"temperature": 0.0}, Usual={}), model="GPT"))

    def test_a_workers_own_model_takes_no_reasoning(self):
        spec = spec_of(drawn(Deep={"reasoning": "high"}, Usual={}))
        with pytest.raises(SpecError, match=r"a worker's own model: reasoning is not sent"):
            create_experiment(spec=spec)

    def test_policies_that_differ_only_in_what_is_not_sent_are_refused(self):
        spec = spec_of(drawn(One={"temperature": 1.0, "seed": True}, Usual={}))
        with pytest.raises(SpecError, match=r"“Prompt 0 · One” and “Prompt 0 · Usual” send the same request"):
            create_experiment(spec=spec)

    def test_the_same_level_twice_is_a_comparison_with_itself(self):
        twice = {"temperature": 0.5}
        create_experiment(spec=spec_of(drawn(One=twice, Other=twice)))

    def test_of_a_model_that_no_connection_has_nothing_is_known(self):
        create_experiment(spec=spec_of(drawn(Deep={"reasoning": "high"}, Usual={}), model="theirs"))


@pytest.mark.django_db
class TestLoans:
    def test_an_experiment_that_names_a_connection_of_nobodys_loan_does_not_start(self):
        owner = make_user()
        theirs = connection(owner=owner, everybody=False)
        draft = create_experiment(spec=make_spec(model="GPT"))
        with pytest.raises(WrongStateError, match="may not use the connection GPT"):
            experiments.start(experiment_id=draft.pk)
        Loan.objects.create(connection=theirs, experiment=draft, by=owner)
        assert experiments.start(experiment_id=draft.pk).state == Experiment.State.RUNNING

    def test_a_limit_of_money_needs_one_currency(self):
        connection()
        connection("Mistral", provider=Provider.MISTRAL, model_id="m", currency="EUR")
        spec = spec_of(FactorSpec("Model", "model", {n: {"name": n} for n in ("GPT", "Mistral")}))
        create_experiment(spec=spec)
        limited = replace(spec, name="Limited", settings=spec.settings | {"money_limit": 5.0})
        with pytest.raises(SpecError, match="money_limit: the connections have prices in EUR and USD"):
            create_experiment(spec=limited)

    @pytest.mark.parametrize("writer", ["GPT", "Llama", ""])
    def test_a_model_and_its_guard_are_both_connections_or_both_of_a_worker(self, writer):
        connection()
        connection("Llama", provider=Provider.WORKER, address="")
        guards = {"Off": {}, "On": {"guard_model": "Llama" if writer == "GPT" else "GPT"}}
        backend = "" if writer else "vllm"
        spec = spec_of(FactorSpec("Guard", "guardrail", guards), model=writer, backend=backend)
        with pytest.raises(SpecError, match=r"GPT is a connection and .* a worker's own model"):
            create_experiment(spec=spec)

    def test_settings_of_money_and_answers_are_read_back(self):
        draft = create_experiment(spec=make_spec(money_limit=3.0, no_answer="loses", shown_thinking="both"))
        settings = specs.experiment_spec(draft).settings
        assert (settings["money_limit"], settings["no_answer"]) == (3.0, "loses")


class TestPrices:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def test_known_models_have_list_prices(self):
        found = propose(Provider.OPENAI, "gpt-4o-mini", "", now=self.now)
        assert found is not None
        assert (found.prompt, found.cached, found.completion) == (0.15, 0.075, 0.6)
        tiered = propose(Provider.ANTHROPIC, "claude-sonnet-4-5", "", now=self.now)
        assert tiered is not None
        assert tiered.prompt == 3.0

    @pytest.mark.parametrize(
        ("provider", "model"), [("openai", "nonsense"), ("worker", "gpt-4o"), ("compatible", "gpt-4o")]
    )
    def test_others_have_none(self, provider, model):
        assert propose(Provider(provider), model, "http://10.0.0.1/v1", now=self.now) is None
