"""Ready-made responses with a column for each factor: the full design, and every setting."""

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from engine.importing.experiment_files import read_experiment, write_experiment
from engine.importing.items import read_responses
from engine.importing.mapping import check_columns, parse_columns
from engine.importing.rows import ImportingError
from engine.models import Experiment, Response
from engine.selectors.specs import experiment_spec

COLUMNS = parse_columns(["model=factor", "prompt=factor"])
HEAD = "task,model,prompt,response\n"
CROSSED = HEAD + "".join(f"T{t},{m},{p},{m}{p}{t}\n" for t in "12" for m in "ab" for p in ("Terse", "Warm"))


def test_a_column_for_each_factor_gives_the_combinations_that_are_there():
    found = read_responses(HEAD + "T,a,Terse,1\nT,b,Terse,2\nT,b,Warm,3\n", COLUMNS)
    spec = found.spec("Mine")
    assert [(factor.name, [*factor.levels]) for factor in spec.factors] == [
        ("model", ["a", "b"]),
        ("prompt", ["Terse", "Warm"]),
    ]
    assert spec.settings["excluded"] == [{"model": "a", "prompt": "Warm"}]
    assert [each.policy for each in spec.ready_made] == ["a · Terse", "b · Terse", "b · Warm"]


def test_a_long_text_has_a_short_name_of_its_own():
    long = [f"{'x' * 150}{n}" for n in range(2)]
    found = read_responses(HEAD + "".join(f"T,a,{text},1\n" for text in long), COLUMNS)
    levels = found.factors[1].levels
    assert [value["text"] for value in levels.values()] == long
    assert all(len(name) <= 100 for name in levels)


def test_rows_without_a_level_are_refused():
    with pytest.raises(ImportingError, match="prompt is empty"):
        read_responses(HEAD + "T,a,,1\n", COLUMNS)
    with pytest.raises(ImportingError, match="nowhere"):
        read_responses(HEAD + "T,a,Terse,1\n", {**COLUMNS, "nowhere": "factor"})
    with pytest.raises(ImportingError, match="wide"):
        check_columns({"x": "response", "y": "response", "model": "factor"})


@pytest.mark.django_db
def test_a_file_has_the_full_design_and_every_setting(tmp_path: Path):
    (tmp_path / "answers.csv").write_text(CROSSED)
    description = tmp_path / "mine.yaml"
    description.write_text(
        "name: Mine\nresponses_file: answers.csv\nspace: factorial\nclaim: good_enough\nbudget: 77\n"
        "columns: {model: factor, prompt: factor}\n"
    )
    call_command("load_experiment", description, start=True)
    experiment = Experiment.objects.get()
    assert (experiment.space, experiment.budget, experiment.policies.count()) == ("factorial", 77, 4)
    for response in Response.objects.select_related("policy", "task"):
        names = "".join(level.name for level in response.policy.levels.order_by("factor__position"))
        assert response.text == f"{names}{response.task.position + 1}"
    spec = experiment_spec(experiment)
    assert read_experiment(write_experiment(spec)).spec == spec


@pytest.mark.django_db
def test_thinking_and_cuts_are_kept(tmp_path: Path):
    (tmp_path / "answers.csv").write_text(
        "task,policy,response,thinking,finish_reason\nT,a,1,Hm,length\nT,b,2,,\n"
    )
    description = tmp_path / "mine.yaml"
    description.write_text("name: Mine\nresponses_file: answers.csv\n")
    call_command("load_experiment", description)
    assert [*Response.objects.order_by("pk").values_list("thinking", "finish_reason")] == [
        ("Hm", "length"),
        ("", ""),
    ]
    spec = experiment_spec(Experiment.objects.get())
    assert read_experiment(write_experiment(spec)).spec == spec


@pytest.mark.django_db
def test_a_command_takes_the_files_of_a_run(tmp_path: Path, capsys):
    rows = '{"custom_id": "1", "body": {"model": "%s", "messages": [{"role": "user", "content": "Tea?"}]}}\n'
    answers = '{"custom_id": "1", "response": {"body": {"model": "%s", "choices": [{"text": "Yes"}]}}}\n'
    for name in "ab":
        (tmp_path / f"in_{name}.jsonl").write_text(rows % name)
        (tmp_path / f"out_{name}.jsonl").write_text(answers % name)
    paths = sorted(tmp_path.iterdir())
    call_command("load_experiment", *paths)
    assert Experiment.objects.get().policies.count() == 2
    call_command("load_experiment", paths[0], paths[2])
    assert "One policy" in capsys.readouterr().out
    with pytest.raises(CommandError, match="add"):
        call_command("load_experiment", paths[0])
