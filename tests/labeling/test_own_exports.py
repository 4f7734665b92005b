"""Our own exports, imported again as past votes: an experiment never counts one of its judgments twice."""

import csv
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from django.core.management import call_command

from engine.domain.errors import ImportedBeforeError
from engine.domain.judgment_uuids import exchanged, mark
from engine.importing.reading_process import source_at
from engine.importing.rows import ImportingError
from engine.importing.votes import Judge, Vote, Winner, read_votes
from engine.models import Comparison, Experiment, Judgment, User
from engine.selectors import counts
from engine.selectors.policies import policy_names
from engine.services.judging import void_judgment
from engine.services.past_votes import add_votes, start_from_votes
from engine.services.planning import advance
from engine.services.voids import restore_judgment
from tests.factories import add_member, click_on, make_experiment, make_user
from tests.labeling.exported import from_a_pool, reused, voted
from tests.tables import MOST, source

pytestmark = pytest.mark.django_db

ROWS = [("csv",), ("csv", "--raw"), ("jsonl",), ("parquet",), ("huggingface",)]
FORMATS = [*ROWS, ("lmarena",), ("argilla",)]


def export(experiment: Experiment, file: Path, kind: str, *options: str) -> Path:
    call_command("export", str(experiment.pk), "--format", kind, "--out", str(file), *options, verbosity=0)
    return file


def import_votes(file: Path, experiment: str, *options: str) -> Experiment:
    call_command("import_votes", str(file), "--experiment", experiment, *options, verbosity=0)
    return Experiment.objects.get(name=experiment)


def n_standing(experiment: Experiment) -> int:
    return Judgment.objects.filter(comparison__experiment=experiment, standing=True).count()


def assert_all_count(experiment: Experiment, file: Path) -> None:
    """Every vote of the file counts in the experiment already."""
    votes = read_votes(source_at(file, MOST)).votes
    for counted in ("", "only_new"):
        with pytest.raises(ImportedBeforeError, match=rf"All {len(votes)} votes count"):
            add_votes(experiment_id=experiment.pk, votes=votes, counted=counted)


def fresh(annotator: User) -> Experiment:
    experiment = make_experiment(
        name="Fresh", ready=True, annotators=(annotator,), n_policies=3, allow_tie=True, allow_both_bad=True
    )
    for choice in ("left", "right", "tie", "both_bad"):
        click_on(experiment, annotator, 1, choice)
    return experiment


def few(annotator: User) -> Experiment:
    """Three votes of which two are alike, without a person, a time or a text."""
    votes = [
        Vote(f"row {n}", "T", "P", "Q", winner) for n, winner in enumerate([Winner.A, Winner.A, Winner.TIE])
    ]
    return start_from_votes(name="Few", votes=votes)


def mixed(annotator: User, *, seed: int) -> Experiment:
    """Past votes of which each has or lacks a person, a time and texts, some of them voided and restored."""
    rng = random.Random(seed)
    began = datetime(2026, 3, 1, 10, tzinfo=UTC)
    with_texts = seed % 2 == 0
    votes = []
    for n in range(30):
        a, b = rng.sample("PQRS", 2)
        task = f"T{rng.randrange(3)}"
        votes.append(
            Vote(
                f"row {n}", task, a, b, rng.choice(list(Winner)),
                response_a=f"{a} on {task}" if with_texts else None,
                response_b=f"{b} on {task}" if with_texts else None,
                annotator=rng.choice(["", "ann", "ben"]),
                judged_at=rng.choice([None, began, began + timedelta(seconds=n, microseconds=7)]),
                a_on_left=rng.choice([None, True, False]),
            )
        )  # fmt: skip
    experiment = start_from_votes(name=f"Mixed {seed}", votes=votes)
    by = make_user("admin", is_superuser=True)
    judgments = list(Judgment.objects.filter(comparison__experiment=experiment).order_by("pk"))
    for judgment in judgments[:4]:
        void_judgment(judgment_id=judgment.pk, by=by, reason="A slip.")
    for judgment in judgments[:2] if with_texts else ():
        restore_judgment(judgment_id=judgment.pk)
    return experiment


def grown(annotator: User) -> Experiment:
    """Past votes without a time, and judgments that people here gave after them."""
    experiment = voted(annotator, texts=True)
    add_member(experiment, annotator)
    Experiment.objects.filter(pk=experiment.pk).update(state="running")
    advance(experiment_id=experiment.pk)
    click_on(experiment, annotator, 3)
    return experiment


KINDS: list[Callable[[User], Experiment]] = [
    fresh,
    reused,
    partial(from_a_pool, overlap=1),
    few,
    grown,
    partial(voted, texts=False),
    partial(mixed, seed=0),
    partial(mixed, seed=1),
]


@pytest.mark.parametrize("make", KINDS)
def test_an_export_adds_nothing_to_its_own_experiment(make, annotator, tmp_path):
    """Votes without a time, or with whole seconds, counted twice where people had pseudonyms."""
    experiment = make(annotator)
    Experiment.objects.filter(pk=experiment.pk).update(state="paused")
    before = counts.pair_counts(experiment)
    assert n_standing(experiment) > 0
    for kind, *options in (*FORMATS, ("csv", "--usernames")):
        assert_all_count(experiment, export(experiment, tmp_path / "out", kind, *options))
    assert counts.pair_counts(experiment) == before


def by_names(experiment: Experiment) -> dict[frozenset[tuple[str, float]], int]:
    names = [each.name for each in policy_names(experiment)]
    return {
        frozenset({(names[i], wins), (names[j], n - wins)}): n
        for (i, j), (wins, n) in counts.pair_counts(experiment).items()
        if n
    }


@pytest.mark.parametrize(("kind", "options"), [(kind, options) for kind, *options in FORMATS])
@pytest.mark.parametrize("make", [partial(mixed, seed=0), grown])
def test_of_two_experiments_of_the_same_votes_neither_takes_the_others_export(
    make, kind, options, annotator, tmp_path
):
    """Votes keep their UUIDs from export to import to export."""
    first = make(annotator)
    Experiment.objects.filter(pk=first.pk).update(state="paused")
    second = import_votes(export(first, tmp_path / "first", kind, *options), "Second")
    assert by_names(second) == by_names(first)
    third = import_votes(export(second, tmp_path / "second", kind, *options), "Third")
    for experiment, file in ((first, "second"), (second, "first"), (third, "first")):
        assert_all_count(experiment, tmp_path / file)


def test_the_same_votes_may_be_counted_a_second_time_and_are_told_apart_then(annotator, tmp_path):
    experiment = few(annotator)
    once = export(experiment, tmp_path / "once.jsonl", "jsonl")
    import_votes(once, "Few", "--again")
    assert n_standing(experiment) == 6
    twice = export(experiment, tmp_path / "twice.jsonl", "jsonl")
    assert len({json.loads(line)["judgment_uuid"] for line in twice.read_text().splitlines()}) == 6
    assert_all_count(experiment, once)
    assert_all_count(experiment, twice)


def test_new_votes_beside_those_of_an_export_are_counted_though_they_look_alike(annotator, tmp_path):
    experiment = few(annotator)
    file = export(experiment, tmp_path / "out.csv", "csv", "--raw")
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, rows[0])
        writer.writeheader()
        writer.writerows([*rows, rows[0] | {"judgment_uuid": ""}])
    import_votes(file, "Few", "--only-new")
    assert n_standing(experiment) == 4


def test_two_exports_in_one_file_are_one(annotator, tmp_path):
    experiment = few(annotator)
    first = export(experiment, tmp_path / "a.jsonl", "jsonl").read_text()
    second = export(experiment, tmp_path / "b.jsonl", "jsonl", "--usernames").read_text()
    both = tmp_path / "both.jsonl"
    both.write_text(first + second)
    found = read_votes(source_at(both, MOST))
    assert len(found.votes) == 3
    assert found.warnings[0] == "3 votes left out that came before in the file, by judgment_uuid."
    changed = json.loads(first.splitlines()[0]) | {"choice": "both_bad"}
    both.write_text(first + json.dumps(changed))
    with pytest.raises(ImportingError, match="line 4: judgment_uuid is that of line 1, which says something"):
        read_votes(source_at(both, MOST))


@pytest.mark.parametrize("value", ["7", "not-one"])
def test_what_is_no_uuid_is_refused(value):
    text = f"task,policy_a,policy_b,winner,judgment_uuid\nT,P,Q,a,{value}\n"
    with pytest.raises(ImportingError, match=f"line 2: judgment_uuid is '{value}', which is no UUID"):
        read_votes(source(text.encode()))


def test_a_uuid_whose_token_belongs_to_another_experiment_is_not_taken_for_its_judgment(annotator, tmp_path):
    """Made up by somebody: the vote gets a UUID of its own, and nothing of the other experiment changes."""
    other = fresh(annotator)
    experiment = few(annotator)
    theirs = Judgment.objects.filter(comparison__experiment=other).earliest("pk")
    forged = str(exchanged(theirs.token, mark(experiment.pk)))
    file = tmp_path / "forged.jsonl"
    row = {"task": "T", "policy_a": "P", "policy_b": "Q", "winner": "b", "judgment_uuid": forged}
    file.write_text(json.dumps(row))
    import_votes(file, "Few")
    assert n_standing(experiment) == 4
    theirs.refresh_from_db()
    assert Comparison.objects.get(pk=theirs.comparison_id).experiment_id == other.pk


@pytest.mark.parametrize("form", FORMATS, ids=" ".join)
def test_votes_of_a_model_and_of_a_rule_stay_theirs(form, tmp_path, capsys):
    votes = [
        Vote(f"row {n}", "T", "P", "Q", Winner.A, "p", "q", annotator=by, uuid=UUID(int=n + 1), judge=judge)
        for n, (judge, by) in enumerate([(Judge.HUMAN, "ann"), (Judge.RULE, ""), (Judge.LLM, "")])
    ]
    kind, *options = form
    first = start_from_votes(name="First", votes=votes)
    again = import_votes(export(first, tmp_path / f"votes.{kind}", kind, *options), "Again")
    assert "1 vote of a language model" in capsys.readouterr().err
    judged = Judgment.objects.filter(comparison__experiment=again).order_by("pk")
    # Argilla's record has a list for each time that somebody judged it.
    assert sorted((each.judge, each.annotator is None) for each in judged) == [
        ("human", False), ("llm", True), ("rule", True),
    ]  # fmt: skip
    assert_all_count(again, tmp_path / f"votes.{kind}")


def test_an_unknown_judge_is_refused_in_an_export_and_is_any_name_elsewhere():
    row = {"task": "T", "model_a": "P", "model_b": "Q", "winner": "a", "judged_by": "ann"}
    [vote] = read_votes(source(json.dumps(row).encode())).votes
    assert vote.judge == Judge.HUMAN
    with pytest.raises(ImportingError, match=r"judged_by is 'ann'\. Write human, rule, llm"):
        read_votes(source(json.dumps(row | {"judgment_uuid": str(UUID(int=1))}).encode()))
