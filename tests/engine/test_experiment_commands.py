"""load_experiment and dump_experiment."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from django.core.management import CommandError
from openpyxl import Workbook

from engine.domain.errors import SpecError
from engine.importing.experiment_files import read_experiment, write_experiment
from engine.importing.items import read_tasks
from engine.management.lookups import find_experiment
from engine.models import Experiment, Response
from engine.selectors.specs import experiment_spec
from engine.services.drafts import create_experiment
from labeling.demo import human_spec
from tests.commands import run
from tests.engine.test_drawing import ANSWERS, imported_spec
from tests.factories import make_spec, make_user, sums_spec

pytestmark = pytest.mark.django_db

PROMPTFOO = Path(__file__).parents[1] / "fixtures" / "promptfoo"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "experiment.yaml"


@pytest.mark.parametrize("spec", [human_spec, sums_spec, imported_spec], ids=lambda spec: spec.__name__)
def test_what_is_dumped_is_loaded_as_the_same_experiment(spec, file):
    first = create_experiment(spec=spec())
    dumped = run("dump_experiment", str(first.pk))
    before = experiment_spec(first)
    first.name = "Renamed"
    first.save()
    file.write_text(dumped, encoding="utf-8")
    assert run("load_experiment", str(file)).endswith("is a draft.\n")
    second = Experiment.objects.get(name=before.name)
    assert experiment_spec(second) == before
    assert run("dump_experiment", before.name) == dumped


def test_it_can_be_started_and_owned_at_once(file):
    owner = make_user("olga")
    file.write_text(write_experiment(make_spec(name="N")), encoding="utf-8")
    assert "is started" in run("load_experiment", str(file), "--start", "--owner", "olga")
    experiment = Experiment.objects.get(name="N")
    assert experiment.state == "running"
    assert experiment.memberships.get(role="owner").user == owner


def test_responses_may_stand_in_a_file_beside(file):
    (file.parent / "answers.csv").write_text(ANSWERS, encoding="utf-8")
    file.write_text("name: N\nresponses_file: answers.csv\n")
    run("load_experiment", str(file))
    assert Experiment.objects.get().responses == "imported"
    assert Response.objects.filter(state="done").count() == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("name: N", "name:"), "line 1, name: This must be a text."),
        (
            ("delta: 0.1", "delta: 0.7"),
            "line 2, delta: Ensure this value is less than or equal to 0.49.",
        ),
        (
            ("text: a", "txt: a"),
            "line 6, factors → 1 → levels → A: Factor 'P', level 'A': A prompt level has no txt",
        ),
        (("kind: prompt", "kind: mood"), "line 4, factors → 1 → kind: Factor 'P': 'mood' is not a kind"),
        (("tasks: [One?]", "practice: 2\ntasks: [One?]"), "line 8, practice: Practice pairs are gold items"),
        (("delta: 0.1", "budget: many"), "line 2, budget: this must be a whole number, not 'many'."),
    ],
)
def test_a_fault_is_told_with_its_place_and_nothing_is_made(change, message, file):
    good = (
        "name: N\ndelta: 0.1\nfactors:\n  - {name: P, kind: prompt,\n     levels: {\n       A: {text: "
        "a},\n       B: {text: b}}}\ntasks: [One?]\n"
    )
    assert change[0] in good
    file.write_text(good.replace(*change))
    with pytest.raises(CommandError) as error:
        run("load_experiment", str(file))
    assert str(error.value).startswith(f"{file}, {message}")
    assert not Experiment.objects.exists()


def test_rows_of_a_named_file_that_cannot_be_read_are_left_out_on_request(file):
    (file.parent / "answers.csv").write_text("task,policy,response\nT,A,x\nT,B\nT,B,y\n")
    file.write_text("name: N\nresponses_file: answers.csv\n")
    said = refused("load_experiment", str(file))
    assert said.startswith(f"{file}, answers.csv, line 3: The number of cells is 2")
    assert "2 of 3 rows can be read." in said
    run("load_experiment", str(file), "--leave-out")
    assert Response.objects.count() == 2


def test_what_is_not_there_is_said_to_be(file):
    with pytest.raises(CommandError, match="cannot be read"):
        run("load_experiment", str(file))
    file.write_text(write_experiment(replace(make_spec(), name="N")))
    with pytest.raises(CommandError, match="no account 'nobody'"):
        run("load_experiment", str(file), "--owner", "nobody")
    with pytest.raises(CommandError, match=r"no experiment x\. There are: none"):
        run("dump_experiment", "x")


def test_a_description_without_tasks_is_a_draft_that_cannot_be_started(file):
    file.write_text(write_experiment(replace(make_spec(name="Bare"), tasks=[])))
    # Nothing is stored then, so there is no page on which to add tasks.
    assert refused("load_experiment", str(file), "--start") == (
        f"{file}: There are no tasks, so it cannot be started. Add some, or leave out --start: then it is a "
        "draft."
    )
    assert not Experiment.objects.exists()
    assert "is a draft. Add tasks before the start." in run("load_experiment", str(file))


def test_a_file_of_tasks_without_any_is_refused(file):
    """It became a draft without tasks, and nothing was said."""
    file.write_text(write_experiment(replace(make_spec(name="Bare"), tasks=[])) + "tasks_file: tasks.csv\n")
    (file.parent / "tasks.csv").write_text("task,reference\n")
    assert refused("load_experiment", str(file)) == f"{file}, tasks.csv: There are no tasks here."
    book = Workbook()
    book.active.append(["task"])
    book.create_sheet("Other").append(["task"])
    book.save(file.parent / "tasks.csv")
    assert refused("load_experiment", str(file)) == (
        f"{file}, tasks.csv: There are no tasks here. This is the sheet Sheet of Sheet, Other. Choose "
        "another."
    )


def test_a_table_is_told_how_to_name_it_in_a_description(file):
    file.write_text("task,policy,response\nOne?,A,1\n")
    assert "responses_file" in refused("load_experiment", str(file))


def test_a_refused_part_is_named_once(file):
    file.write_text(write_experiment(make_spec(name="")), encoding="utf-8")
    assert refused("load_experiment", str(file)) == f"{file}, line 1, name: This field cannot be blank."


def test_a_name_is_unique_among_one_makers_and_a_command_asks_which_is_meant():
    ann, bob = make_user("ann"), make_user("bob")
    first, second = (create_experiment(spec=make_spec(name="Same"), by=user) for user in (ann, bob))
    with pytest.raises(SpecError, match="name: You have an experiment of this name already"):
        create_experiment(spec=make_spec(name="Same"), by=ann)
    for said in ("Same", "cat/Same", "ann/Other"):
        with pytest.raises(CommandError) as error:
            run("dump_experiment", said)
        assert f"{first.pk} (ann/Same), {second.pk} (bob/Same)" in str(error.value)
    assert "Say which by owner/name or by number." in refused("dump_experiment", "Same")
    for said in ("bob/Same", str(second.pk)):
        assert find_experiment(said) == second
    # A slash may be part of a name, and a name may be a number.
    slashed = create_experiment(spec=make_spec(name="ann/Same"), by=bob)
    assert find_experiment("ann/Same") == slashed
    numbered = create_experiment(spec=make_spec(name=str(first.pk)), by=bob)
    assert find_experiment(str(first.pk)) == numbered


def refused(*arguments: str) -> str:
    with pytest.raises(CommandError) as error:
        run(*arguments)
    return str(error.value)


def test_a_file_that_asks_for_a_model_that_cannot_judge_is_refused(file, settings):
    settings.JUDGE_BACKEND = ""
    file.write_text(write_experiment(make_spec(llm_judge="shadow")), encoding="utf-8")
    with pytest.raises(CommandError, match="No language model that can judge is configured"):
        run("load_experiment", str(file))
    assert not Experiment.objects.exists()


DOCUMENT = (Path(__file__).parents[2] / "docs" / "experiment-files.md").read_text(encoding="utf-8")


def test_the_documents_experiments_load(tmp_path):
    beside = {"more.csv": "prompt,reference\nTwo and two?,4\n"}
    answers = {
        "Frage": "Frage,GPT 4,Claude\nTea?,Yes,No\n",
        "factor": "task,model,prompt,response\nTea?,A,Terse,1\nTea?,A,Warm,2\nTea?,B,Warm,3\n",
        "task": "task,policy,response\nTea?,A,Yes\nTea?,B,No\n",
    }
    examples = re.findall(r"```yaml\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    assert len(examples) == 4
    for number, example in enumerate(examples):
        columns = answers[next((name for name in answers if name in example), "task")]
        for name, text in (beside | {"answers.csv": columns, "experiment.yaml": example}).items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        assert "is a draft" in run("load_experiment", str(tmp_path / "experiment.yaml"))
        # Two examples have the same name, which one maker may give once.
        Experiment.objects.filter(pk=Experiment.objects.latest("pk").pk).update(name=f"Example {number}")


def test_the_documents_conversations_are_tasks():
    [example] = re.findall(r"```json\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    conversation, letter = read_tasks(example)
    assert ([each.role for each in conversation.messages], conversation.tags) == (
        ["user", "assistant", "user"],
        ("tea",),
    )
    assert (letter.variables, letter.tags) == ({"document": "Dear Ann, …"}, ("letters",))


@pytest.mark.parametrize(("name", "policies"), [("06-csv-tests.yaml", 2), ("07-own-prompts.yaml", 3)])
def test_a_configuration_of_promptfoo_is_loaded_with_its_files(name, policies):
    run("load_experiment", str(PROMPTFOO / name))
    assert Experiment.objects.get().policies.count() == policies


def test_one_policy_of_promptfoo_is_printed_to_be_completed():
    printed = run("load_experiment", str(PROMPTFOO / "09-env-and-targets.yaml"))
    assert [task.prompt for task in read_experiment(printed).spec.tasks][1] == "Where is Bergen?"
    assert not Experiment.objects.exists()
