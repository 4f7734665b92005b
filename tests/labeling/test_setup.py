"""Setting up experiments in the browser: what is stored, what is refused, and that nothing typed is lost."""

import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any, ClassVar

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import QueryDict
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from engine import tasks
from engine.core import Plan, Unstructured, forecast, random_strengths
from engine.core.ledger import STOPPING_RULES
from engine.core.samplers import ENTRY_POINTS, SAMPLERS
from engine.domain.errors import WrongStateError
from engine.domain.specs import SETTINGS, FactorSpec, TaskSpec
from engine.importing.experiment_files import write_experiment
from engine.models import AuditEntry, Connection, Experiment, Judgment, User, WorkerPulse
from engine.selectors import specs
from engine.services import experiments
from engine.services.drafts import clone, create_experiment
from labeling.demo import human_spec, rule_spec
from labeling.exports.files import EVENTS, FORMATS
from labeling.formatting import rough, rough_hours
from labeling.forms import settings as settings_form
from labeling.forms.draft import data_of
from labeling.forms.settings import STEPS
from labeling.setup.templates import STARTS, comparing_models, start_named
from tests.accounts import PASSWORD, let_create
from tests.engine.test_drawing import ANSWERS, imported_spec
from tests.factories import add_member, click_on, make_experiment, make_spec, make_user
from tests.markup import Markup, text_of
from tests.tables import run_imports, workbook

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}
NEW = "/experiments/new/prompts-strategies/"


@pytest.fixture
def maker() -> User:
    """A user who may create experiments and has no other right."""
    user = make_user("maker")
    let_create(user)
    return user


@pytest.fixture
def page(maker, client_for) -> Client:
    return client_for(maker)


@pytest.fixture
def draft(maker) -> Experiment:
    return create_experiment(spec=human_spec(), by=maker)


@pytest.fixture(autouse=True)
def woken(monkeypatch) -> list[str]:
    """The messages to workers, by name of the task."""
    sent: list[str] = []
    monkeypatch.setattr(tasks.advance, "apply_async", lambda args=(), **options: sent.append("advance"))
    monkeypatch.setattr(tasks.import_upload, "apply_async", lambda args=(), **options: sent.append("import"))
    return sent


def filled(**changes: str) -> QueryDict:
    """The form of 2 prompts × 3 strategies after a name and tasks were typed in."""
    data = data_of(start_named("prompts-strategies").spec)
    for name, value in (
        {"name": "Counting", "tasks": "I have two cars.\t2\nI have a cow.\t1"} | changes
    ).items():
        data[name] = value
    return data


def sent(data: QueryDict, **extra: Any) -> dict[str, Any]:
    return dict(data.lists()) | extra


def summary(page: Client, **changes: str) -> str:
    """The summary beside the steps, for the form with these changes."""
    return summary_of(page, filled(**changes))


def summary_of(page: Client, data: QueryDict, **counts: str) -> str:
    return page.post(NEW, sent(data, part="size", **counts), headers=HTMX).content.decode()


def setup_url(experiment: Experiment) -> str:
    return reverse("setup", args=[experiment.pk])


@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.slug)
def test_every_start_opens_with_its_own_factors(start, page):
    html = page.get(reverse("new_from", args=[start.slug])).content.decode()
    assert html.count('name="factor"') == len(start.spec.factors)


def test_a_start_compares_all_models_with_one_prompt(page, maker):
    url = reverse("new_from", args=["models"])
    Connection.objects.create(name="GPT", provider="openai", model_id="gpt-5", everybody=True)
    assert page.get(url).url == reverse("connections"), "one model is nothing to compare"
    Connection.objects.create(name="Claude", provider="anthropic", model_id="claude", owner=maker)
    Connection.objects.create(name="Hers", provider="openai", model_id="gpt-5", owner=make_user())
    html = page.get(url).content.decode()
    assert re.findall(r'name="f\d-l\d-name" value="([^"]+)"', html) == ["Claude", "GPT", "Plain"]
    data = data_of(comparing_models(["Claude", "GPT"]))
    data["name"], data["tasks"] = "Which", "Why?"
    page.post(url, sent(data, action="save"))
    assert Experiment.objects.get().policies.count() == 2


def test_every_setting_and_each_choice_of_one_has_its_place_and_its_name_on_the_page(page):
    html = page.get(NEW).content.decode()
    fields = set(re.findall(r'name="(\w+)"', html))
    # Combinations are left out by their names, which only a file has from the start.
    assert set(SETTINGS) - {"excluded"} <= fields
    for choice in (*SAMPLERS, *STOPPING_RULES):
        [shown] = re.findall(rf'<option value="{choice}"[^>]*>([^<]+)</option>', html)
        assert shown != choice


@pytest.fixture
def looked_up(monkeypatch) -> Iterator[list[str]]:
    """Another package has registered the sampler "first", in a new process; a line for each look."""
    point = EntryPoint("first", "tests.core.test_notebook:FirstPair", ENTRY_POINTS)
    looks: list[str] = []

    def registered(group: str) -> EntryPoints:
        looks.append(group)
        return EntryPoints([point])

    monkeypatch.setattr("engine.core.samplers.entry_points", registered)
    settings_form._samplers.cache_clear()
    yield looks
    settings_form._samplers.cache_clear()


def test_a_sampler_that_another_package_registered_is_offered_and_kept(page, looked_up):
    """A file and the API take it, but the page refused a draft that has it."""
    assert '<option value="first">first, of another package</option>' in page.get(NEW).content.decode()
    page.post(NEW, sent(filled(sampler="first")))
    assert Experiment.objects.get().sampler == "first"


class TestSave:
    def test_what_was_typed_becomes_a_draft_of_its_author(self, page, maker):
        response = page.post(NEW, sent(filled()))
        experiment = Experiment.objects.get()
        assert response["Location"] == f"{setup_url(experiment)}?step=policies"
        assert experiment.state == "draft"
        assert experiment.memberships.get(role="owner").user == maker
        spec = specs.experiment_spec(experiment)
        assert spec.factors == start_named("prompts-strategies").spec.factors
        assert [(task.prompt, task.reference) for task in spec.tasks] == [
            ("I have two cars.", "2"),
            ("I have a cow.", "1"),
        ]
        assert experiment.policies.count() == 6

    def test_saved_and_started_at_once(self, page, woken, django_capture_on_commit_callbacks):
        with django_capture_on_commit_callbacks(execute=True):
            response = page.post(NEW, sent(filled(judge="rule", action="start")))
        experiment = Experiment.objects.get()
        assert experiment.state == "running"
        assert response["Location"] == reverse("dashboard", args=[experiment.pk])
        assert woken == ["advance"]

    @pytest.mark.parametrize("spec", [human_spec, rule_spec], ids=["people", "rule"])
    def test_opening_a_draft_and_saving_it_changes_nothing(self, spec, page, maker):
        experiment = create_experiment(spec=spec(), by=maker)
        before = specs.experiment_spec(experiment)
        assert page.post(setup_url(experiment), sent(data_of(before))).status_code == 302
        experiment.refresh_from_db()
        assert specs.experiment_spec(experiment) == before

    def test_all_kinds_of_levels_and_exclusions_survive_the_page(self, page, maker):
        guard = {
            "instruction": " Be nice.\nAlways.",
            "input_block": ["b.d", "x\\b"],
            "refusal": "No.",
            "output_block": ["y"],
        }
        cold, warm = (
            {"temperature": 0.0, "stop": ["\n\n", "END"]},
            {
                "top_p": 0.5,
                "max_tokens": 9,
                "response_format": {"type": "object", "properties": {"a": {"type": "string"}}},
                "seed": True,
            },
        )
        shots = [{"user": "1 + 1?\nQuick.", "assistant": "2"}, {"user": "Hi", "assistant": "Hello"}]
        awkward = [{"user": "User: who?", "assistant": " me "}]
        spec = make_spec(excluded=[{"System prompt": "Prompt 1", "Guard": "On"}], allow_tie=True, epsilon=0.1)
        more = [
            FactorSpec("Guard", "guardrail", {"On": guard, "Off": {}}),
            FactorSpec("Draw", "sampling", {"Cold": cold, "Warm": warm}),
            FactorSpec("Who", "model", {"Small": {"name": "tiny"}, "Usual": {}}),
            FactorSpec("Shots", "examples", {"Two": {"examples": shots}, "Odd": {"examples": awkward}}),
            FactorSpec("How", "strategy", {"Steps": {"instruction": "Think."}, "Plain": {}}),
        ]
        spec = replace(spec, factors=[*spec.factors, *more])
        experiment = create_experiment(spec=spec, by=maker)
        before = specs.experiment_spec(experiment)
        response = page.post(setup_url(experiment), sent(data_of(before), question="Changed?"))
        assert response.status_code == 302
        after = specs.experiment_spec(Experiment.objects.get())
        assert after == replace(before, settings=before.settings | {"question": "Changed?"})

    def test_line_breaks_of_browsers_become_plain_ones(self, page):
        page.post(NEW, sent(filled(**{"f1-l1-text": "One.\r\nTwo.", "tasks": "A?\r\nB?\r\n"})))
        spec = specs.experiment_spec(Experiment.objects.get())
        assert spec.factors[0].levels["Plain"] == {"text": "One.\nTwo."}
        assert [task.prompt for task in spec.tasks] == ["A?", "B?"]


REFUSED = [
    ({"name": ""}, "Give the experiment a name."),
    ({"question": ""}, "Write the question to answer about each pair."),
    ({"budget": ""}, "Write a number that is at least 1."),
    ({"claim": ""}, "Choose one."),
    ({"tasks": '{"prompt": "A"}\n{"prompt": 1, }'}, "line 2: This is not JSON"),
    ({"gold": "prompt,better\na,b"}, "No column is the worse response."),
    ({"delta": "0.7"}, "Write a number above 0 and at most 0.49."),
    ({"gold_rate": "10"}, "Write a number from 0 to 0.5."),
    ({"budget": "0"}, "Write a number that is at least 1."),
    ({"delta": "many"}, "Enter a number."),
    ({"judge": "dice"}, "Select a valid choice."),
    ({"overlap": "3", "overlap_rule": "mean"}, "With shares, each comparison needs 1, 2, 4 or 8 judgments"),
    (
        {"judge": "rule", "tasks": "No answer"},
        "The rule judge needs a reference answer or checks for every task",
    ),
    ({"practice": "2"}, "Practice pairs are gold items"),
    ({"f1-name": ""}, "Give it a name."),
    ({"f1-l1-name": ""}, "Give it a name."),
    ({"f2-name": "System prompt"}, "Two factors are named"),
    ({"f1-l2-name": "Plain"}, "Two levels of System prompt are named Plain"),
    ({"f1-kind": "sampling", "f1-l1-temperature": "-1"}, "temperature must be at least 0"),
    ({"f1-kind": "guardrail", "f1-l1-input_block": "("}, "is not a regular expression"),
    ({"f1-kind": "mood"}, "Select a valid choice."),
    ({"f1-l1-extra": "["}, "This must be an object."),
    ({"f1-level": "l1", "f2-level": "l3"}, "There is only one policy."),
]


class TestWithoutTasks:
    """A draft is saved with a name and policies. What it lacks is said, and refused at the start."""

    @pytest.fixture
    def bare(self, page, woken) -> Experiment:
        """It was refused: somebody who stopped half-way lost the prompts."""
        url = page.post(NEW, sent(filled(tasks="", **{"f1-l1-text": "Hello {{ name }}."})))["Location"]
        experiment = Experiment.objects.get()
        assert url == f"{setup_url(experiment)}?step=policies"
        html = page.get(url).content.decode()
        assert "Saved as a draft. Add tasks before the start." in html
        assert "Hello {{ name }}." in html
        assert woken == []
        return experiment

    @pytest.mark.parametrize("action", ["start", "try"])
    def test_the_page_asks_for_tasks_before_a_start_and_a_trial(self, action, page, bare):
        data = data_of(specs.experiment_spec(bare))
        response = page.post(setup_url(bare), sent(data, action=action))
        assert response.status_code == 400
        assert "Tasks: give at least one." in response.content.decode()
        response = page.post(setup_url(bare), sent(data, tasks="One?"))
        assert response.status_code == 400
        assert "name" in response.content.decode().partition('id="errors"')[2].partition("</ul>")[0]
        tasks = '{"prompt": "One?", "variables": {"name": "Ann"}}'
        assert page.post(setup_url(bare), sent(data, tasks=tasks, action="start")).status_code == 302
        assert Experiment.objects.get().state == "running"

    def test_no_other_way_starts_it(self, page, bare):
        response = page.post(reverse("change_state", args=[bare.pk]), {"action": "start"}, follow=True)
        assert "This draft has no tasks yet. Add tasks on its page Setup" in response.content.decode()
        with pytest.raises(WrongStateError, match="no tasks yet"):
            experiments.start(experiment_id=bare.pk)
        response = page.get(reverse("try", args=[bare.pk]), follow=True)
        assert response.redirect_chain[-1][0] == f"{setup_url(bare)}?step=tasks"
        assert "Add tasks before you try it." in response.content.decode()
        assert Experiment.objects.get().state == "draft"

    def test_its_pages_open_and_it_is_copied_and_goes_through_a_file(self, page, bare, maker):
        for name in (
            "home", "dashboard", "quality", "method", "setup", "comparisons", "export", "people", "log",
            "experiment_settings", "rehearse", "policy",
        ):  # fmt: skip
            args = [] if name == "home" else [bare.pk, 1] if name == "policy" else [bare.pk]
            response = page.get(reverse(name, args=args), follow=True)
            assert response.status_code == 200, name
        # The log of showings comes after the end.
        for each in (FORMATS[name] for name in FORMATS if name != EVENTS):
            response = page.post(reverse(each.route, args=[bare.pk]))
            assert response.status_code == 200, each
            assert response.getvalue() is not None
        text = page.get(reverse("setup_file", args=[bare.pk])).content.decode().replace(bare.name, "Other")
        file = SimpleUploadedFile("f.yaml", text.encode())
        assert page.post(reverse("new_experiment"), {"description": file}).status_code == 302
        clone(experiment=bare, by=maker, name="Third")
        assert [each.tasks.count() for each in Experiment.objects.all()] == [0, 0, 0]


class TestRefused:
    @pytest.mark.parametrize(
        ("changes", "message"), REFUSED, ids=[str(list(c.items())[:1]) for c, _ in REFUSED]
    )
    def test_it_says_what_is_wrong_and_keeps_what_was_typed(self, changes, message, page):
        kept = {"guidelines": "Kept <guidelines>.", "f2-l3-text": "Kept instruction."}
        data = filled(**kept | changes)
        response = page.post(NEW, sent(data))
        html = response.content.decode()
        assert response.status_code == 400
        assert message in html.replace("&#x27;", "'")
        assert "Kept &lt;guidelines&gt;." in html
        assert "Kept instruction." in html
        assert not Experiment.objects.exists()
        listed = html.partition('id="errors"')[2].partition("</ul>")[0]
        for place in re.findall('href="#([^"]+)"', listed):
            assert f'id="{place}"' in html
        assert "Ready to start." not in summary_of(page, data)

    def test_a_refused_change_leaves_the_draft_as_it_was(self, page, draft):
        before = specs.experiment_spec(draft)
        assert page.post(setup_url(draft), sent(data_of(before), question="")).status_code == 400
        assert specs.experiment_spec(Experiment.objects.get()) == before

    def test_the_csv_of_excel_on_windows_is_told_how_to_save_it(self, page):
        text = "task\nWie groß ist Köln?\n"

        def shown(name: str, encoding: str) -> str:
            file = SimpleUploadedFile(name, text.encode(encoding))
            sent_as = sent(filled(), part="tasks-file", tasks_file=file)
            return page.post(NEW, sent_as, headers=HTMX).content.decode()

        html = shown("t.csv", "cp1252")
        assert "t.csv: line 2: This is not UTF-8 text." in html
        assert "choose “CSV UTF-8”" in html
        # “Unicode text”, with tabs.
        for encoding in ("utf-16", "utf-8-sig"):
            assert "Wie groß ist Köln?" in shown("t.txt", encoding)

    def test_what_runs_is_not_changed(self, page, maker):
        running = make_experiment(ready=True)
        add_member(running, maker, "owner")
        before = specs.experiment_spec(running)
        assert "<form" not in page.get(setup_url(running)).content.decode().split("<h2")[1]
        response = page.post(setup_url(running), sent(filled()))
        assert response["Location"] == reverse("dashboard", args=[running.pk])
        running.refresh_from_db()
        assert specs.experiment_spec(running) == before


@pytest.fixture
def written(db) -> WorkerPulse:
    """A worker that writes with any model, without which nothing is ready to start."""
    details = {"backend": "vllm", "model": "Qwen", "others": [], "any_model": True}
    return WorkerPulse.objects.create(queue="generation", worker="w", details=details)


class TestModels:
    def test_levels_settings_and_guards_choose_from_the_same_models(self, page, maker, written):
        for name, fields in {
            "Ours": {"everybody": True},
            "Mine": {"owner": maker},
            "Theirs": {"owner": make_user()},
            "Old": {"everybody": True, "retired_at": timezone.now()},
        }.items():
            Connection.objects.create(name=name, provider="compatible", model_id="m", **fields)
        levels = {"f1-kind": "model", "f1-l1-text": "Gone", "f1-l2-text": "Mine"}
        html = page.post(NEW, sent(filled(**levels), go="policies")).content.decode()
        for field, absent in (("f1-l1-text", True), ("f1-l2-text", False), ("model", False)):
            options = html.partition(f'<select name="{field}"')[2].partition("</select>")[0]
            offered = re.findall(r'<option value="([^"]+)"', options)
            assert offered == ["Mine", "Ours", "Qwen", *(["Gone"] if absent else [])]
            assert ("Gone (not available)" in options) == absent

    def test_a_connection_of_ones_own_is_lent_by_choosing_it(self, page, maker, written):
        mine = Connection.objects.create(name="Mine", provider="compatible", model_id="m", owner=maker)
        levels = {"f1-kind": "model", "f1-l1-text": "Mine", "f1-l2-text": ""}
        assert page.post(NEW, sent(filled(**levels), action="save")).status_code == 302
        assert list(mine.loans.values_list("experiment", "by")) == [(Experiment.objects.get().pk, maker.pk)]

    def test_a_setting_that_the_model_refuses_is_told_in_place(self, page):
        Connection.objects.create(name="GPT", provider="openai", model_id="gpt-5", everybody=True)
        changes = {"f1-kind": "sampling", "f1-l1-temperature": "0", "f1-l2-max_tokens": "9", "model": "GPT"}
        response = page.post(NEW, sent(filled(**changes), action="save"))
        assert response.status_code == 400
        assert "temperature is not sent: this model refuses it." in response.content.decode()


class TestSteps:
    """One draft on four steps: one is shown, and all are sent."""

    def shown(self, html: str) -> list[str]:
        return re.findall(r'<section data-step="(\w+)">', html)

    @pytest.mark.parametrize(
        ("query", "step"), [("", "policies"), ("?step=stop", "stop"), ("?step=x", "policies")]
    )
    def test_each_step_has_an_address(self, query, step, page, draft):
        html = page.get(setup_url(draft) + query).content.decode()
        assert self.shown(html) == [step]
        assert html.count("data-step") == 4

    def test_another_step_is_shown_with_all_that_was_typed_and_nothing_is_stored(self, page):
        html = page.post(NEW, sent(filled(guidelines="Kept."), go="judges")).content.decode()
        assert self.shown(html) == ["judges"]
        assert "Kept." in html
        assert 'value="Counting"' in html
        assert not Experiment.objects.exists()

    def test_a_step_is_saved_and_shown_again(self, page, draft):
        data = data_of(specs.experiment_spec(draft))
        response = page.post(setup_url(draft), sent(data, step="judges", question="Changed?"))
        assert response["Location"] == f"{setup_url(draft)}?step=judges"
        assert Experiment.objects.get().question == "Changed?"

    @pytest.mark.parametrize(
        ("changes", "step"),
        [
            ({"name": ""}, "policies"),
            ({"f1-name": ""}, "policies"),
            ({"tasks": "", "action": "start"}, "tasks"),
            ({"gold": "prompt,better\na,b"}, "judges"),
            ({"overlap": "0"}, "judges"),
            ({"delta": "0.7"}, "stop"),
        ],
    )
    def test_a_fault_leads_to_its_step(self, changes, step, page):
        html = page.post(NEW, sent(filled(**changes), step="x")).content.decode()
        assert self.shown(html) == [step]
        assert html.count("to correct</span>") == 1

    def test_the_summary_says_what_is_missing(self, page, written):
        assert "Ready to start." in summary(page)
        html = summary(page, name=" ", tasks="", delta="2")
        assert re.findall(r'<a href="#(\w+)">(?:Give|Add|Accepted)', html) == ["id_name", "tasks", "id_delta"]
        assert "Ready" not in html
        data = filled()
        del data["tasks"]
        assert '<dd id="size-tasks">1,234</dd>' in summary_of(page, data, n_tasks="1234")

    @pytest.mark.parametrize(
        ("changes", "place"),
        [
            ({"f2-name": "System prompt"}, "id_f2-name"),
            ({"f1-l2-name": "Plain"}, "id_f1-l2-name"),
            ({"f1-l2-text": "You are {{ who }}."}, "id_f1-name"),
            ({"f1-name": ""}, "id_f1-name"),
            ({"judge": "rule", "tasks": "No answer"}, "tasks"),
            ({"practice": "2"}, "gold"),
            ({"claim": ""}, "id_claim_0"),
        ],
    )
    def test_each_thing_that_is_missing_leads_to_its_field(self, changes, place, page):
        html = page.post(NEW, sent(filled(**changes), part="size"), headers=HTMX).content.decode()
        assert re.findall(r'<li><a href="#([\w-]+)">', html) == [place]
        whole = page.post(NEW, sent(filled(**changes), go="policies")).content.decode()
        assert f'id="{place}"' in whole

    def test_a_name_that_the_owner_has_given_already_is_missing_and_refused(self, page, draft, written):
        taken = "You have an experiment of this name already."
        changes = {"name": f" {draft.name} "}
        for url, is_free in ((NEW, False), (setup_url(draft), True)):
            html = page.post(url, sent(filled(**changes), part="size"), headers=HTMX).content.decode()
            assert ("Ready to start." in html) == is_free
            assert (taken in html) != is_free
        refused = page.post(NEW, sent(filled(**changes)))
        assert (refused.status_code, taken in refused.content.decode()) == (400, True)

    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            ({}, ""),
            ({"n_references": "1"}, "The rule judge needs a reference answer or checks for every task."),
            ({"tasks_faults": "1"}, "Correct the tasks."),
            ({"n_gold": "0"}, "Give at least as many gold items as practice pairs."),
            ({"gold_faults": "2"}, "Correct the gold items."),
            ({"gold_rate": "0.1"}, "more gold items than practice takes"),
            ({"gold_rate": "0.1", "n_gold": "2"}, ""),
        ],
    )
    def test_the_summary_knows_tasks_and_gold_items_that_do_not_come_with_its_request(
        self, changes, text, page, written
    ):
        data = filled(practice="1", judge="rule")
        del data["tasks"], data["gold"]
        counted = {
            "n_tasks": "2",
            "n_references": "2",
            "tasks_faults": "0",
            "n_gold": "1",
            "gold_faults": "0",
        }
        html = summary_of(page, data, **counted | changes)
        assert text in html
        assert ("Ready to start." in html) == (text == "")

    def test_the_summary_names_the_models_that_would_write(self, page):
        assert "Ready to start." not in summary(page)
        for worker, backend, model in (("a", "vllm", "Qwen"), ("b", "smollm2", "SmolLM2")):
            details = {"backend": backend, "model": model, "others": ["adapter"] if worker == "a" else []}
            WorkerPulse.objects.create(queue="generation", worker=worker, details=details)
        levels = {"f1-kind": "model", "f1-l1-text": "adapter", "f1-l2-text": ""}
        for changes, names in (
            ({}, "Qwen, SmolLM2"),
            ({"backend": "vllm"}, "Qwen"),
            ({"model": "adapter"}, "adapter"),
            (levels, "Qwen, SmolLM2, adapter"),
        ):
            assert f"Written by: {names}." in summary(page, **changes)
        assert "data-unserved" in summary(page, backend="smollm2", model="adapter")

    def test_it_is_ready_only_while_something_can_write_and_the_line_renews_itself(self, page, maker):
        def line(html: str) -> tuple[bool, bool]:
            return "data-ready" in html, "Not ready" in html

        def again(html: str, **changes: str) -> tuple[int, str]:
            [said] = re.findall(r'name="said" value="(\d+)"', html)
            answer = page.post(NEW, sent(filled(**changes), part="ready", said=said), headers=HTMX)
            return answer.status_code, answer.content.decode()

        html = summary(page)
        assert line(html) == (False, True)
        assert again(html) == (204, "")
        pulse = WorkerPulse.objects.create(queue="generation", worker="r", details={"backend": "remote"})
        model = Connection.objects.create(name="GPT", provider="openai", model_id="gpt-5", owner=maker)
        status, html = again(html, model="GPT")
        assert (status, line(html)) == (200, (True, False))
        assert again(html, model="GPT") == (204, "")
        model.test = {"works": False}
        model.save()
        assert line(again(html, model="GPT")[1]) == (False, True)
        model.test = {}
        model.save()
        pulse.delete()
        assert line(again(html, model="GPT")[1]) == (False, True)

    def test_the_only_connection_is_chosen_in_a_new_experiment(self, page, maker):
        def chosen() -> list[str]:
            select = re.search(r'<select name="model".*?</select>', page.get(NEW).content.decode(), re.DOTALL)
            return re.findall(r'value="(\w+)" selected', select[0])

        Connection.objects.create(name="GPT", provider="openai", model_id="gpt-5", owner=maker)
        assert chosen() == ["GPT"]
        Connection.objects.create(name="Claude", provider="anthropic", model_id="claude", owner=maker)
        assert chosen() == []

    @pytest.mark.parametrize("step", STEPS)
    def test_an_experiment_is_started_on_the_last_step_alone(self, step, page):
        html = page.get(f"{NEW}?step={step}").content.decode()
        [attributes] = re.findall(r'<button[^>]*value="start"([^>]*)>', html)
        assert ("hidden" not in attributes) == (step == "stop")

    def test_ties_are_on_in_a_new_experiment_but_where_texts_come_again(self, page):
        page.post(NEW, sent(filled()))
        assert Experiment.objects.get().allow_tie
        made = create_experiment(spec=replace(make_spec(), settings={}))
        assert made.allow_tie
        assert not create_experiment(spec=imported_spec(ANSWERS)).allow_tie

    @pytest.mark.parametrize("with_tasks", [True, False], ids=["with the tasks", "without them"])
    def test_a_variable_that_no_task_has_is_missing(self, with_tasks, page, written):
        """The start refuses it, so the summary must not call it ready."""
        data = filled(**{"f1-l2-text": "You answer for {{ shop }}.", "tasks": "prompt,shop\nA?,Ours"})
        assert "Ready to start." in summary_of(page, data)
        if with_tasks:
            data["tasks"] = "prompt,city\nA?,Ours"
        else:
            del data["tasks"]
            data["n_tasks"], data["task_variables"] = "1", "city"
        html = summary_of(page, data)
        assert "No task has a variable &#x27;shop&#x27;. There are: city." in html
        assert "Ready to start." not in html
        # The page itself hands the names on.
        data["tasks"] = "prompt,city,name\nA?,Ours,Ann"
        preview = page.post(NEW, sent(data, part="tasks"), headers=HTMX).content.decode()
        assert 'name="task_variables" value="city,name"' in preview


class TestInPlace:
    """Adding, removing and moving rows: the same with htmx and without JavaScript."""

    def changed(self, page, change: str, data: QueryDict | None = None, **headers: str) -> str:
        response = page.post(NEW, sent(data or filled(), change=change), headers=headers)
        assert response.status_code == 200
        assert not Experiment.objects.exists()
        return response.content.decode()

    def test_without_javascript_the_whole_page_comes_back_with_all_that_was_typed(self, page):
        html = self.changed(page, "add-level:f1", filled(guidelines="Kept."))
        assert "<html" in html
        assert "Kept." in html
        assert 'name="f1-l3-name"' in html

    def test_with_htmx_only_the_factors_come_back(self, page):
        response = page.post(NEW, sent(filled(), change="add-factor"), headers=HTMX)
        html = response.content.decode()
        assert "<html" not in html
        assert 'name="f3-l2-name"' in html
        assert 'data-focus="id_f3-name"' in html
        assert response["HX-Trigger"] == "factors-changed" or "factors-changed" in response["HX-Trigger"]

    def test_rows_are_removed_and_moved_with_what_they_hold(self, page):
        html = self.changed(page, "remove:f2-l1", **HTMX)
        assert "Answer directly." not in html
        assert "Think step by step" in html
        html = self.changed(page, "down:f2-l1", **HTMX)
        assert html.index("Think step by step") < html.index("Answer directly.")
        html = self.changed(page, "up:f2", **HTMX)
        assert html.index("Answer directly.") < html.index("helpful assistant")
        assert "helpful assistant" not in self.changed(page, "remove:f1", **HTMX)

    def test_another_kind_has_other_fields_and_loses_nothing(self, page):
        data = filled(**{"f1-kind": "sampling"})
        html = self.changed(page, "kind:f1", data, **HTMX)
        assert 'name="f1-l1-temperature"' in html
        assert '<input type="hidden" name="f1-l1-text" value="You are a helpful assistant.">' in html

    def test_a_combination_is_left_out(self, page):
        html = self.changed(page, "add-exclusion", **HTMX)
        assert 'name="x1-f1"' in html
        page.post(NEW, sent(filled(**{"exclusion": "x1", "x1-f1": "l2", "x1-f2": "l1"})))
        experiment = Experiment.objects.get()
        assert experiment.excluded == [{"System prompt": "Careful", "Strategy": "Direct"}]
        assert experiment.policies.count() == 5

    def test_an_exclusion_forgets_a_level_that_is_gone(self, page):
        data = filled(**{"exclusion": "x1", "x1-f1": "l2"})
        html = self.changed(page, "remove:f1-l2", data, **HTMX)
        assert '<option value="l2" selected>' not in html.partition("x1-f1")[2].partition("</select>")[0]

    @pytest.mark.parametrize(
        "change",
        [
            "",
            "explode",
            "add-level:f9",
            "add-level:",
            "remove:",
            "up:f1",
            "down:f2",
            "up:f9-l1",
            "remove:x7",
            "kind:zz",
        ],
    )
    def test_a_change_that_makes_no_sense_changes_nothing(self, change, page):
        response = page.post(NEW, sent(filled(), change=change or "x"), headers=HTMX)
        assert response.status_code == 200
        assert response.content.decode().count('name="factor"') == 2

    def test_ids_that_no_page_of_ours_sends_are_ignored(self, page):
        data = filled()
        data.setlist("factor", ["f1", "<b>", "f2", "f1", "f" + "9" * 30])
        page.post(NEW, sent(data))
        assert Experiment.objects.get().factors.count() == 2


class TestItems:
    def test_tasks_are_previewed_as_they_are_typed(self, page):
        data = {"part": "tasks", "tasks": "\n".join(f"Task {n}\t{n}" for n in range(1, 8))}
        html = page.post(NEW, data, headers=HTMX).content.decode()
        assert "7 tasks, 7 with a reference answer." in html
        assert "The first five:" in html
        assert "Task 5" in html
        assert "Task 6" not in html

    def test_the_preview_shows_the_tasks_of_a_tag(self, page):
        tasks = "prompt,tags\n" + "".join(f"Task {n},{'odd' if n % 2 else 'even'}\n" for n in range(1, 15))
        data = {"part": "tasks", "tasks": tasks, "tasks_tag": "even"}
        html = page.post(NEW, data, headers=HTMX).content.decode()
        assert re.findall(r'class="sample">Task (\d+)<', html) == ["2", "4", "6", "8", "10"]
        gone = page.post(NEW, data | {"tasks": "A task\n"}, headers=HTMX).content.decode()
        assert "A task" in gone, "no task has the tag any more"

    def test_a_file_fills_the_field(self, page):
        file = SimpleUploadedFile("t.json", b'{"examples": [{"input": "A?", "target": "1"}]}')
        html = page.post(NEW, {"part": "tasks-file", "tasks_file": file}, headers=HTMX).content.decode()
        assert "&quot;input&quot;: &quot;A?&quot;" in html
        assert "1 task, 1 with a reference answer." in html

    @pytest.mark.parametrize("content", [b"", b" \n\n"])
    def test_an_empty_file_replaces_nothing(self, content, page):
        data = {"part": "tasks-file", "tasks": "A?", "tasks_file": SimpleUploadedFile("t.txt", content)}
        html = page.post(NEW, data, headers=HTMX).content.decode()
        assert "<li>t.txt: " in html
        assert re.search(r"<textarea[^>]*>\s*A\?</textarea>", html)

    def test_a_file_works_without_javascript_too(self, page):
        page.post(NEW, sent(filled(tasks=""), tasks_file=SimpleUploadedFile("t.txt", b"One?\r\nTwo?\r\n")))
        assert [task.prompt for task in Experiment.objects.get().tasks.all()] == ["One?", "Two?"]

    def test_more_tasks_than_a_field_holds_are_kept(self, page, maker):
        spec = make_spec(n_tasks=4)
        long = replace(spec, tasks=[TaskSpec(f"{n}" + "x" * 190_000, f"{n}") for n in range(4)])
        experiment = create_experiment(spec=long, by=maker)
        html = page.get(setup_url(experiment)).content.decode()
        assert "4 tasks, 4 with a reference answer, loaded from a file" in html
        assert "x" * 1000 not in html
        response = page.post(setup_url(experiment), sent(data_of(long), question="Changed?"))
        assert response.status_code == 302
        experiment.refresh_from_db()
        assert experiment.question == "Changed?"
        assert specs.experiment_spec(experiment).tasks == long.tasks


def shown(html: str, place: str) -> str:
    """The text of the figure with this id."""
    return text_of(re.search(rf'<dd id="{place}">(.*?)</dd>', html, re.DOTALL).group(1))


class TestSize:
    RULES: ClassVar = {"claim": "good_enough", "epsilon": 0.05, "delta": 0.05, "capital_moves": True}

    def test_policies_and_pairs_are_counted(self, page):
        html = summary(page)
        assert (shown(html, "size-policies"), shown(html, "size-pairs")) == ("6", "15")
        assert "size-dimensions" not in html
        assert shown(summary(page, space="factorial"), "size-dimensions") == "3"

    def test_the_comparisons_are_a_range_and_a_likely_number(self, page):
        plan = Plan(Unstructured(6), **self.RULES, budget=9000)
        remaining = forecast(plan, random_strengths(6))
        ends = [rough(end) for end in (remaining.low, remaining.high, remaining.likely)]
        html = summary(page, budget="9000")
        assert shown(html, "size-comparisons") == "{} – {} likely {}".format(*ends)
        assert "would spend their budget" not in html

    def test_a_budget_that_will_not_do_is_told(self, page):
        html = summary(page, budget="100")
        assert shown(html, "size-comparisons").endswith("– over 100 likely over 100")
        assert "would spend their budget without a decision" in html
        assert "over 20" in shown(summary(page, budget="20"), "size-comparisons")

    def test_hours_are_told_in_all_and_for_each_person(self, page):
        likely = forecast(Plan(Unstructured(6), **self.RULES, budget=9000), random_strengths(6)).likely
        changes = {"budget": "9000", "overlap": "2", "seconds": "36", "n_people": "5"}
        words = shown(summary(page, **changes), "size-hours")
        assert f"likely {rough_hours(likely * 0.02)}: {rough_hours(likely * 0.004)} for each of 5" in words

    def test_it_says_what_it_depends_on_and_what_would_save_comparisons(self, page):
        html = summary(page, budget="9000")
        [spreads, claims, levers] = (
            re.findall(r"<strong>([\d,]+) – ", re.search(rf'<ul id="{place}">.*?</ul>', html)[0])
            for place in ("size-spreads", "size-claims", "size-levers")
        )
        numbers = [int(low.replace(",", "")) for low in spreads]
        assert numbers == sorted(numbers, reverse=True), "the more they differ, the fewer"
        assert len(numbers) == 5
        assert len(claims) == 3
        low = int(shown(html, "size-comparisons").split()[0].replace(",", ""))
        assert len(levers) >= 3
        assert all(int(each.replace(",", "")) <= low for each in levers)

    def test_a_copy_begins_with_what_was_measured(self, page, maker):
        experiment = make_experiment(ready=True, annotators=(maker,), n_policies=3)
        add_member(experiment, maker, role="owner")
        click_on(experiment, maker, 12)
        copy = clone(experiment=experiment, by=maker, name="Copy")
        data = sent(data_of(specs.experiment_spec(copy)), part="size", budget="9000")
        html = page.post(setup_url(copy), data, headers=HTMX).content.decode()
        assert f"“{experiment.name}” has measured" in html
        assert "size-spreads" not in html
        without = page.post(NEW, data, headers=HTMX).content.decode()
        assert shown(without, "size-comparisons") != shown(html, "size-comparisons")


class TestFiles:
    def upload(self, page, field: str, content: bytes | str, **fields: str):
        data = content.encode() if isinstance(content, str) else content
        answer = page.post(reverse("new_experiment"), {field: SimpleUploadedFile("f", data)} | fields)
        run_imports()
        return answer

    def test_an_experiment_goes_out_as_a_file_and_comes_in_again(self, page, draft):
        response = page.get(reverse("setup_file", args=[draft.pk]))
        assert response["Content-Disposition"].startswith('attachment; filename="which-way')
        text = response.content.decode().replace(draft.name, "Another")
        assert self.upload(page, "description", text).status_code == 302
        again = Experiment.objects.get(name="Another")
        assert specs.experiment_spec(again).factors == specs.experiment_spec(draft).factors

    @pytest.mark.parametrize("packed", [False, True])
    def test_a_file_that_a_description_names_comes_with_it(self, packed, page):
        text = (
            write_experiment(replace(make_spec(name="Both"), tasks=[])) + "tasks_file: data/questions.csv\n"
        )
        files = {"mine/both.yaml": text.encode(), "mine/data/questions.csv": b"task\nWho?\nWhere?\n"}
        sent_files = [SimpleUploadedFile(name, content) for name, content in files.items()]
        if packed:
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w") as archive:
                for name, content in files.items():
                    archive.writestr(name, content)
            sent_files = [SimpleUploadedFile("mine.zip", buffer.getvalue())]
        answer = page.post(reverse("new_experiment"), {"description": sent_files}, follow=True)
        run_imports()
        experiment = Experiment.objects.get()
        assert experiment.name == "Both"
        assert [*experiment.tasks.order_by("position").values_list("prompt", flat=True)] == ["Who?", "Where?"]
        assert page.get(answer.request["PATH_INFO"], follow=True).request["PATH_INFO"] == setup_url(
            experiment
        )

    def test_a_named_file_that_did_not_come_is_asked_for(self, page):
        sent_files = [
            SimpleUploadedFile("a.yaml", b"name: A\ntasks_file: q.csv\n"),
            SimpleUploadedFile("b.csv", b"x"),
        ]
        answer = page.post(reverse("new_experiment"), {"description": sent_files}, follow=True)
        run_imports()
        assert "q.csv" in text_of(page.get(answer.request["PATH_INFO"]).content.decode())
        assert not Experiment.objects.exists()

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("name: A\nnonsense: 1\n", "line 2, nonsense: Unknown field"),
            (
                "name: A\ntasks_file: /etc/passwd\n",
                "line 2, tasks_file: The file that is named here was not sent",
            ),
            ("", "The file is empty."),
            (b"\xfc", "line 1: This is not UTF-8 text."),
            (b"a" * 1_000_001, "larger than 1 MB"),
            (workbook([["Frage"], ["Wer?"]]), "This is a packed file or a workbook"),
            (b"Wer?\nWo?\n", "This is a table or a text"),
            (b'[{"prompt": "Wer?"}]', "This is a list"),
        ],
    )
    def test_a_file_that_cannot_be_read_is_told_with_its_line(self, content, message, page):
        response = self.upload(page, "description", content)
        assert response.status_code == 400
        assert message in response.content.decode().replace("&#x27;", "'")
        assert not Experiment.objects.exists()

    def test_ready_made_responses_become_a_draft_which_can_be_set_up_and_started(self, page):
        assert self.upload(page, "responses", ANSWERS, name="Ours").status_code == 302
        experiment = Experiment.objects.get()
        html = page.get(setup_url(experiment)).content.decode()
        assert "6 responses to 3 tasks came with the file." in html
        assert 'name="factor"' not in html
        before = specs.experiment_spec(experiment)
        page.post(setup_url(experiment), sent(data_of(before), judge="human", action="start"))
        experiment.refresh_from_db()
        assert experiment.state == "running"
        assert specs.experiment_spec(experiment) == before

    def test_one_person_s_share_of_the_answers_is_told(self, page, maker):
        """Two people are asked for what one alone could never finish."""
        experiment = create_experiment(spec=imported_spec(judge="human"), by=maker)
        data = sent(data_of(specs.experiment_spec(experiment)), part="size")
        html = page.post(setup_url(experiment), data, headers=HTMX).content.decode()
        # "One?" has two texts of one policy beside one of the other, and "Two?" one of each.
        assert "one person can give at most 3 answers here" in html
        by_rule = page.post(setup_url(experiment), data | {"judge": "rule"}, headers=HTMX).content.decode()
        assert "one person can give" not in by_rule

    def test_it_is_told_where_people_have_too_few_new_tasks(self, page, maker):
        text = ANSWERS + "One?,C,uno,\nTwo?,C,dos,\nThree?,A,3,\nThree?,C,tres,\n"
        experiment = create_experiment(spec=imported_spec(text, judge="human"), by=maker)
        data = sent(data_of(specs.experiment_spec(experiment)), part="size")
        html = page.post(setup_url(experiment), data, headers=HTMX).content.decode()
        [n_people] = re.findall(r'data-people="(\d+)"', html)
        assert int(n_people) > 1
        of_two = create_experiment(spec=replace(imported_spec(judge="human"), name="Two"), by=maker)
        data = sent(data_of(specs.experiment_spec(of_two)), part="size")
        assert "data-people" not in page.post(setup_url(of_two), data, headers=HTMX).content.decode()

    def test_responses_that_cannot_be_compared_are_refused_and_the_name_is_kept(self, page):
        response = self.upload(page, "responses", "task,policy,response\na,A,1\nb,B,2\n", name="Ours")
        html = page.get(response.url).content.decode()
        assert "have no task in common" in html
        assert 'value="Ours"' in html

    def test_no_file_at_all_is_asked_for(self, page):
        form = Markup(page.get(reverse("new_experiment")).content.decode())
        files = [each.attributes for each in form.elements if each.attributes.get("type") == "file"]
        assert [("required" in each) for each in files] == [True] * 2
        assert page.post(reverse("new_experiment")).status_code == 400


class TestDelete:
    def test_it_asks_first_and_then_it_is_gone(self, page, draft):
        url = reverse("delete_experiment", args=[draft.pk])
        assert "It is a draft: nothing has been judged." in page.get(url).content.decode()
        assert Experiment.objects.exists()
        assert page.post(url)["Location"] == "/"
        assert not Experiment.objects.exists()

    def test_what_has_been_started_stays(self, page, maker):
        running = make_experiment()
        add_member(running, maker, "owner")
        url = reverse("delete_experiment", args=[running.pk])
        for response in (page.get(url), page.post(url)):
            assert response["Location"] == reverse("dashboard", args=[running.pk])
        assert Experiment.objects.filter(pk=running.pk).exists()


class TestDeleteFinished:
    @pytest.fixture
    def finished(self, maker) -> Experiment:
        ann = make_user("ann")
        experiment = make_experiment(ready=True, annotators=(ann,))
        add_member(experiment, maker, "owner")
        click_on(experiment, ann, 4)
        experiments.stop(experiment_id=experiment.pk)
        return experiment

    @pytest.fixture
    def url(self, finished) -> str:
        return reverse("delete_experiment", args=[finished.pk])

    def test_it_says_what_goes(self, page, url, finished):
        html = page.get(url).content.decode()
        gone = dict(re.findall(r'data-gone="([^"]+)">(\d+)<', html))
        assert gone["judgments"] == str(Judgment.objects.count())
        assert (gone["people who judged"], gone["members"]) == ("1", "2")
        assert Experiment.objects.filter(pk=finished.pk).exists()

    @pytest.mark.parametrize("password", ["", "wrong"])
    def test_a_missing_or_wrong_password_deletes_nothing(self, password, page, url, finished):
        """Even right after the login, as the judgments of others are gone for good."""
        assert page.post(url, {"password": password}).status_code == 400
        assert Experiment.objects.filter(pk=finished.pk).exists()
        assert Judgment.objects.exists()

    def test_passwords_are_not_guessed_there(self, page, url, settings):
        settings.LOGIN_FAILURE_LIMIT = 10
        answers = [page.post(url, {"password": f"guess {n}"}).status_code for n in range(11)]
        assert answers == [400] * 10 + [429]

    def test_with_the_password_it_is_gone_and_the_log_says_so(self, page, url, finished, maker):
        assert page.post(url, {"password": PASSWORD})["Location"] == reverse("home")
        assert not Experiment.objects.exists()
        entry = AuditEntry.objects.get(action=AuditEntry.Action.DELETE)
        assert (entry.by, finished.name in entry.sentence) == (maker, True)


def test_a_model_that_cannot_judge_is_not_offered_and_not_accepted(page, settings):
    settings.JUDGE_BACKEND = ""
    html = page.get(NEW).content.decode()
    assert 'value="shadow"' not in html
    assert "No language model that can judge is configured." in html
    refused = page.post(NEW, sent(filled(llm_judge="shadow")))
    assert "No language model that can judge is configured." in refused.content.decode()
    assert not Experiment.objects.exists()


class TestTwoTabs:
    """The same draft is open twice, or two editors have it open."""

    def typed(self, page: Client, experiment: Experiment, **changes: str) -> dict[str, Any]:
        """The form as the page sends it, after something was typed."""
        html = page.get(setup_url(experiment)).content.decode()
        version = re.search(r'name="version" value="(\d+)"', html)[1]
        return sent(data_of(specs.experiment_spec(experiment)), version=version) | changes

    def test_what_was_saved_in_the_other_one_is_replaced_by_a_second_press_alone(self, page):
        page.post(NEW, sent(filled()))
        experiment = Experiment.objects.get()
        first = self.typed(page, experiment, question="Of the first tab?")
        second = self.typed(page, experiment, question="Of the second tab?")
        assert page.post(setup_url(experiment), first).status_code == 302
        refused = page.post(setup_url(experiment), second)
        html = refused.content.decode()
        assert refused.status_code == 400
        assert "saved in another tab" in html
        assert "Of the second tab?" in html, "the input is kept"
        experiment.refresh_from_db()
        assert experiment.question == "Of the first tab?"
        again = second | {"version": re.search(r'name="version" value="(\d+)"', html)[1]}
        assert page.post(setup_url(experiment), again).status_code == 302
        experiment.refresh_from_db()
        assert experiment.question == "Of the second tab?"

    @pytest.mark.parametrize("version", ["", "x", "9" * 5000, "-1"])
    def test_a_version_that_is_none_is_not_looked_at(self, version, page):
        page.post(NEW, sent(filled()))
        experiment = Experiment.objects.get()
        changed = self.typed(page, experiment) | {"version": version}
        assert page.post(setup_url(experiment), changed).status_code == 302
