"""An export, imported again: the same counts, evidence and decision."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import Q

from engine.core import stakes
from engine.domain.conversations import Message, transcript
from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
from engine.importing.files import write_experiment
from engine.importing.items import read_responses
from engine.importing.votes.vote import Vote, Winner
from engine.judges.rule_worker import judge_comparisons
from engine.models import Experiment, Judgment, Response, User
from engine.selectors import browsing, counts, designs
from engine.selectors.counts import comparison_count
from engine.selectors.specs import experiment_spec
from engine.services.drafts import create_experiment, replace_draft
from engine.services.experiments import start
from engine.services.judging import rebuild_counts, void_judgment
from engine.services.leases import lease_next
from engine.services.past_votes import start_from_votes
from engine.services.planning import advance
from engine.services.review import restore_judgment
from labeling.exports.columns import COLUMNS, read_rows
from labeling.exports.files import JSONL, Export, Tally, manifest_bytes, manifest_name
from labeling.exports.people import pseudonym
from labeling.exports.reading import read_file, spec_of
from tests.factories import (
    SECRET,
    add_member,
    click,
    click_for,
    click_on,
    make_experiment,
    make_spec,
    make_user,
    write_responses,
)

pytestmark = pytest.mark.django_db


def export(experiment: Experiment, folder: Path, *options: str, kind: str = "jsonl") -> Path:
    file = folder / f"export.{kind}"
    call_command("export", str(experiment.pk), "--format", kind, "--out", str(file), *options, verbosity=0)
    return file


def import_again(file: Path, name: str = "Again", people: Sequence[str] = ()) -> Experiment:
    persons = [f"--person={each}" for each in people]
    call_command("import_judgments", str(file), "--experiment", name, *persons, verbosity=0)
    return Experiment.objects.get(name=name)


def assert_same(first: Experiment, second: Experiment) -> None:
    assert counts.pair_counts(first) == counts.pair_counts(second)
    one, two = designs.latest_snapshot(first), designs.latest_snapshot(second)
    assert one.comparisons == two.comparisons
    assert one.evidence == two.evidence
    assert one.progress == two.progress
    assert np.array_equal(designs.design(first).evidence, designs.design(second).evidence)
    assert np.array_equal(designs.replayed(first).design.evidence, designs.replayed(second).design.evidence)
    assert rebuild_counts(experiment_id=second.pk) == {}


@pytest.fixture(scope="class")
def judged_once(shared_rows: None) -> int:
    """An experiment with all that an export may hold. It takes a second, and tests only read it."""
    annotator, other = make_user("ann"), make_user("ben")
    admin = make_user("admin", is_staff=True, is_superuser=True)
    experiment = make_experiment(
        name="First",
        ready=True,
        annotators=(annotator, other),
        allow_tie=True,
        epsilon=0.02,
        delta=0.1,
        seed=7,
    )
    for number in range(12):
        click_on(experiment, (annotator, other)[number % 2], 1, ("left", "right", "left", "tie")[number % 4])
    judgments = list(Judgment.objects.order_by("pk"))
    for judgment in judgments[2:5]:
        void_judgment(judgment_id=judgment.pk, by=admin, reason="A slip.")
    restore_judgment(judgment_id=judgments[3].pk)
    advance(experiment_id=experiment.pk)  # A worker replays after a void.
    return experiment.pk


@pytest.fixture
def judged(judged_once: int) -> Experiment:
    return Experiment.objects.get(pk=judged_once)


class TestWhole:
    def test_it_has_an_owner_who_is_named(self, judged, tmp_path):
        file, dora = str(export(judged, tmp_path)), make_user("dora")
        call_command("import_judgments", file, "--experiment=Ours", "--owner=dora", verbosity=0)
        assert Experiment.objects.get(name="Ours").memberships.get(role="owner").user == dora
        with pytest.raises(CommandError, match="You have an experiment of this name"):
            call_command("import_judgments", file, "--experiment=Ours", "--owner=dora", verbosity=0)
        with pytest.raises(CommandError, match="There is no account 'nobody'"):
            call_command("import_judgments", file, "--experiment=Theirs", "--owner=nobody", verbosity=0)
        assert not Experiment.objects.filter(name="Theirs").exists()

    @pytest.mark.parametrize(
        ("kind", "options"),
        [("jsonl", ()), ("csv", ("--raw",)), ("csv", ()), ("parquet", ()), ("huggingface", ())],
    )
    def test_counts_and_evidence_are_the_same_to_the_bit(self, kind, options, judged, tmp_path):
        again = import_again(export(judged, tmp_path, "--all", *options, kind=kind))
        assert_same(judged, again)
        assert again.state == "paused"
        assert (again.delta, again.epsilon, again.seed) == (0.1, 0.02, 7)
        judged.refresh_from_db()
        assert again.planned_count == judged.planned_count

    @pytest.mark.parametrize("kind", ["jsonl", "parquet", "huggingface"])
    def test_every_row_comes_back_as_it_went(self, kind, judged, tmp_path):
        again = import_again(export(judged, tmp_path, "--all", kind=kind))
        new = {
            "judgment_id",
            "comparison_id",
            "response_i_id",
            "response_j_id",
            "restores",
            "annotator",
            "voided_by",
            "via",  # now it came by the import
        }

        def rows(experiment: Experiment) -> list[dict[str, object]]:
            listed = [
                dict(zip(COLUMNS, row, strict=True)) for row in read_rows(experiment, browsing.Selection())
            ]
            return [{name: value for name, value in row.items() if name not in new} for row in listed]

        assert rows(again) == rows(judged)
        assert set(Judgment.objects.filter(comparison__experiment=again).values_list("via", flat=True)) == {
            "import"
        }

    def test_voided_ones_stay_void_and_restored_ones_name_theirs(self, judged, tmp_path):
        again = import_again(export(judged, tmp_path, "--all"))
        judgments = Judgment.objects.filter(comparison__experiment=again).order_by("pk")
        assert [hasattr(judgment, "void") for judgment in judgments] == [k in {2, 3, 4} for k in range(13)]
        assert judgments.last().restores == judgments[3]
        assert {j.void.reason for j in judgments if hasattr(j, "void")} == {"A slip."}

    def test_its_people_are_new_and_cannot_log_in(self, judged, tmp_path):
        again = import_again(export(judged, tmp_path, "--all", "--usernames"))
        names = {f"{name}@import-{again.pk}" for name in ("ann", "ben", "admin")}
        people = User.objects.filter(username__in=names)
        assert people.count() == 3
        assert not any(user.is_active or user.has_usable_password() for user in people)
        judgments = Judgment.objects.filter(comparison__experiment=again)
        assert set(judgments.values_list("annotator__username", flat=True)) < names

    def test_people_stay_apart_under_their_pseudonyms(self, judged, tmp_path):
        """User names no longer travel unless they are asked for: the import has one account per pseudonym."""
        again = import_again(export(judged, tmp_path, "--all"))
        judgments = Judgment.objects.filter(comparison__experiment=again)
        names = {
            f"{pseudonym(judged, user.pk)}@import-{again.pk}"
            for user in User.objects.filter(username__in=("ann", "ben"))
        }
        assert set(judgments.values_list("annotator__username", flat=True)) == names

    def test_judgments_are_given_to_the_accounts_that_the_command_names(self, judged, tmp_path):
        annotator = User.objects.get(username="ann")
        name = pseudonym(judged, annotator.pk)
        again = import_again(export(judged, tmp_path, "--all"), people=[f"{name}=ann"])
        theirs = Judgment.objects.filter(comparison__experiment=again, annotator=annotator)
        originals = Judgment.objects.filter(comparison__experiment=judged, annotator=annotator)
        assert theirs.count() == originals.count() > 0
        assert not User.objects.filter(username__startswith=name).exists()
        with pytest.raises(CommandError, match="there is no account 'nobody'"):
            import_again(export(judged, tmp_path, "--all"), name="Thrice", people=[f"{name}=nobody"])

    def test_it_may_go_on_from_there(self, judged, tmp_path):
        annotator = User.objects.get(username="ann")
        again = import_again(export(judged, tmp_path))
        before = counts.comparison_count(again.pk)
        add_member(again, annotator)
        start(experiment_id=again.pk)
        advance(experiment_id=again.pk)
        write_responses()
        click_on(again, annotator, 3)
        assert counts.comparison_count(again.pk) == before + 3
        numbers = [c.plan["number"] for c in again.comparisons.all()]
        assert len(numbers) == len(set(numbers))

    @pytest.mark.parametrize("stage", ["shadow", "votes"])
    def test_its_language_model_is_off_whether_there_is_one_here_or_not(self, stage, judged, tmp_path):
        """The whole import was refused if none could judge;
        if one could, it would have been asked, and paid for.
        """
        Experiment.objects.filter(pk=judged.pk).update(llm_judge=stage)
        assert import_again(export(judged, tmp_path, "--all")).llm_judge == "off"

    @pytest.mark.parametrize(
        ("setting", "then"),
        [("claim", "best_if_any"), ("streams", False), ("exact_ties", False), ("exclusive_proofs", False)],
    )
    def test_an_export_that_does_not_name_a_rule_is_older_than_it(self, setting, then, judged):
        spec = asdict(experiment_spec(judged))
        assert spec["settings"].pop(setting) != then or setting == "claim"
        read = spec_of({"experiment": {"spec": spec}}, name="Old")
        assert read.settings[setting] == then


def reused(annotator: User) -> Experiment:
    experiment = make_experiment(responses="reuse", ready=True, annotators=(annotator,), n_tasks=6)
    click_on(experiment, annotator, 5)
    return experiment


def from_a_pool(annotator: User, overlap: int = 2) -> Experiment:
    """Ready-made responses, two of a policy to one task, and two equal ones, which are a tie."""
    rows = "".join(f"task {n},{policy},{policy}{n}\n" for n in range(3) for policy in "ABC")
    answers = read_responses(f"task,policy,response\n{rows}task 0,A,A0 again\ntask 3,A,same\ntask 3,B,same\n")
    experiment = create_experiment(
        spec=ExperimentSpec(
            name="Elsewhere",
            factors=[FactorSpec("Policy", "imported", {name: {} for name in answers.policies})],
            tasks=answers.tasks,
            settings={"responses": "imported", "seed": 1, "overlap": overlap},
            ready_made=answers.responses,
        )
    )
    # By its draws the equal ones are compared.
    Experiment.objects.filter(pk=experiment.pk).update(secret=SECRET)
    other = make_user("ben")
    for user in (annotator, other):
        add_member(experiment, user)
    start(experiment_id=experiment.pk)
    advance(experiment_id=experiment.pk)
    for user in (annotator, other):
        for choice in ("left", "right", "left", "left", "right") * 2:
            click(experiment, user, choice)
            # A round plans for the one who has least: the first for one of the two, the second for the other.
            advance(experiment_id=experiment.pk)
            advance(experiment_id=experiment.pk)
    assert Judgment.objects.filter(via="identical").exists()
    return experiment


def voted(annotator: User, *, texts: bool) -> Experiment:
    """Past votes, with the texts or without, and new judgments after them where there are texts."""
    votes = [
        Vote(
            f"row {n}", f"T{n % 4}", "PQR"[n % 3], "S", Winner.A if n % 2 else Winner.TIE,
            response_a=f"{'PQR'[n % 3]}{n % 4}" if texts else None,
            response_b=f"S{n % 4}" if texts else None,
            a_on_left=None if n < 6 else True,
        )
        for n in range(24)
    ]  # fmt: skip
    experiment = start_from_votes(name="Voted", votes=votes)
    advance(experiment_id=experiment.pk)
    return experiment


def with_material(annotator: User) -> Experiment:
    """Conversations, variables in prompts, tags and gold items, each pair for two people."""
    turns = [
        (Message("system", 'Be "brief";\n=1+1'), Message("user", f"\ufeffWhat is {n},\t or\r\n ∑?\n"))
        for n in range(6)
    ]
    tasks = [
        TaskSpec(
            transcript(turns[n][n % 2 :]),
            messages=turns[n] * (1 - n % 2),
            reference=("007", "5%", "", "NA")[n % 4],
            variables={"name": f" Änn {n}.0 ", "empty": "", "json": '["a"]'},
            tags=("sums", "[odd]")[: n % 3],
        )
        for n in range(6)
    ]
    levels = {
        f"Prompt {k}": {"text": f"quality {k} for {{{{ name | upper }}}}{{{{ json }}}}"} for k in range(3)
    }
    spec = make_spec(name="Rich", n_gold=2, overlap=2, allow_tie=True)
    factors = [FactorSpec("System prompt", "prompt", levels)]
    experiment = create_experiment(spec=replace(spec, factors=factors, tasks=tasks))
    other = make_user("ben")
    for judge in (annotator, other):
        add_member(experiment, judge)
    start(experiment_id=experiment.pk)
    advance(experiment_id=experiment.pk)
    write_responses()
    for judge in (annotator, other):
        for choice in ("left", "right", "tie", "left"):
            click(experiment, judge, choice)
            advance(experiment_id=experiment.pk)
    return experiment


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "huggingface"])
def test_conversations_variables_tags_and_gold_come_back_to_the_letter(kind, annotator, tmp_path):
    first = with_material(annotator)
    again = import_again(export(first, tmp_path, "--all", kind=kind))
    assert_same(first, again)
    assert replace(experiment_spec(again), name="") == replace(experiment_spec(first), name="")


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "huggingface"])
@pytest.mark.parametrize(
    "make", [reused, from_a_pool, partial(voted, texts=True), partial(voted, texts=False)]
)
def test_every_kind_of_responses_comes_back_once_each_with_the_same_decision(make, kind, annotator, tmp_path):
    first = make(annotator)
    again = import_again(export(first, tmp_path, "--all", kind=kind))
    assert_same(first, again)
    first.refresh_from_db()
    assert (again.state == "concluded", again.conclusion, again.past_votes) == (
        first.state == "concluded",
        first.conclusion,
        first.past_votes,
    )

    def what_counts(experiment: Experiment) -> list[tuple[Any, ...]]:
        judged = experiment.comparisons.filter(judgments__isnull=False).distinct().order_by("pk")
        known = [
            (
                *(c.plan, c.state, c.outcome, c.i_on_left, c.response_i.text, c.response_j.state),
                # The key of its task is another one.
                c.texts.removeprefix(f"{c.task_id}:"),
            )
            for c in judged.select_related("response_i", "response_j")
        ]
        # Stored again in the order of their judgments.
        return sorted(known, key=lambda each: each[0].get("number", 0))

    assert what_counts(again) == what_counts(first)
    used = Response.objects.filter(policy__experiment=first)
    if first.responses != "imported":
        used = used.filter(Q(comparisons_as_i__judgments__gt=0) | Q(comparisons_as_j__judgments__gt=0))
    assert Response.objects.filter(policy__experiment=again).count() == used.distinct().count()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (partial(voted, texts=False), "A past vote without texts"),
        (from_a_pool, "Both responses are the same text"),
    ],
)
def test_what_nobody_can_judge_anew_is_shown_to_nobody_after_an_import_either(
    make, reason, annotator, admin, tmp_path
):
    first = make(annotator)
    judged = Judgment.objects.filter(comparison__experiment=first).order_by("pk")
    of_all = judged if first.past_votes else judged.filter(via="identical")
    last = of_all.latest("pk")
    void_judgment(judgment_id=last.pk, by=admin, reason="Wrong.")
    advance(experiment_id=first.pk)
    again = import_again(export(first, tmp_path, "--all"))
    assert_same(first, again)
    for experiment in (first, again):
        comparison = experiment.comparisons.get(judgments__void__reason="Wrong.")
        assert comparison.state == "discarded"
        assert comparison.discard_reason.startswith(reason)


@pytest.mark.parametrize("options", [(), ("--raw",)])
def test_texts_survive_a_csv_exactly(options, annotator, tmp_path):
    """Defused cells kept their apostrophes and backslashes when they were imported again."""
    texts = [
        "=1+1",
        "'=1",
        "''＝x",
        " a|b\\|c",
        "\ttab",
        "\r\nline",
        "one\rtwo",
        "-5",
        "'-5",
        "'tis",
        "＠ann",
    ]
    experiment = make_experiment(ready=True, annotators=(annotator,), n_tasks=1)
    comparison = click(experiment, annotator).comparison
    Judgment.objects.bulk_create(
        Judgment(
            comparison=comparison,
            judge="rule",
            via=Judgment.Via.RULE,
            choice="left",
            outcome=1.0,
            comment=text,
            reason=text,
        )
        for text in texts
    )
    again = import_again(export(experiment, tmp_path, *options, kind="csv"))
    judgments = Judgment.objects.filter(comparison__experiment=again).order_by("pk")
    assert [(judgment.comment, judgment.reason) for judgment in judgments][1:] == [(t, t) for t in texts]


@pytest.mark.parametrize("responses", ["fresh", "reuse"])
def test_a_certified_winner_is_certified_again_in_the_same_words(responses, annotator, tmp_path):
    experiment = make_experiment(
        name="First",
        ready=True,
        annotators=(annotator,),
        delta=0.3,
        budget=500,
        responses=responses,
        n_tasks=40,
    )
    while experiment.state == "running":
        click_for(experiment, annotator, lambda i, j: i < j)
        advance(experiment_id=experiment.pk)
        write_responses()
        experiment.refresh_from_db()
    assert experiment.conclusion == "certified"
    assert ("It holds on one response of each policy to each of 40 tasks." in experiment.finding) == (
        responses == "reuse"
    )
    again = import_again(export(experiment, tmp_path))
    assert_same(experiment, again)
    assert (again.state, again.conclusion, again.winner.label, again.finding) == (
        "concluded",
        "certified",
        experiment.winner.label,
        experiment.finding,
    )


@pytest.mark.parametrize("n_policies", [3, 6])
def test_capital_moves_again_as_it_did(n_policies, annotator, tmp_path, monkeypatch):
    monkeypatch.setattr(stakes, "_MOMENTS", np.array([4, 7, 9]) / n_policies)
    experiment = make_experiment(
        name="First",
        n_policies=n_policies,
        ready=True,
        annotators=(annotator,),
        allow_tie=True,
        claim="good_enough",
        epsilon=0.05,
    )
    for choice in ("left", "tie", "right", "left", "left", "tie", "left", "right", "left", "left"):
        click_on(experiment, annotator, 1, choice)
    moved = designs.latest_snapshot(experiment).progress["streams"]["stakes"]
    assert np.max(moved["log_share"]) > 0.1 - np.log(n_policies)
    assert_same(experiment, import_again(export(experiment, tmp_path)))


@pytest.mark.parametrize("rule", ["majority", "mean"])
def test_with_several_judges_half_judged_pairs_wait_for_the_others(rule, annotator, tmp_path):
    other = make_user("ben")
    experiment = make_experiment(ready=True, annotators=(annotator, other), overlap=2, overlap_rule=rule)
    for choice in ("left", "right", "left"):
        click(experiment, annotator, choice)
        click(experiment, other, "left")
    half = click(experiment, annotator)
    assert half.comparison.judgments.count() == 1
    advance(experiment_id=experiment.pk)
    again = import_again(export(experiment, tmp_path))
    assert_same(experiment, again)
    assert sorted(again.comparisons.values_list("state", flat=True)) == ["judged"] * 3 + ["ready"]


def test_nobody_is_shown_again_what_they_had_judged_before_the_import(annotator, tmp_path):
    """There is no lease that says so; a second judgment of theirs was refused by the database alone."""
    other = make_user("ben")
    experiment = make_experiment(ready=True, overlap=2, annotators=(annotator, other))
    click_on(experiment, annotator, 2)
    again = import_again(export(experiment, tmp_path, "--usernames"), people=["ann=ann"])
    add_member(again, annotator)
    add_member(again, other)
    start(experiment_id=again.pk)
    assert set(again.comparisons.values_list("state", flat=True)) == {"ready"}
    assert lease_next(experiment_id=again.pk, annotator=annotator) is None
    click(again, other)
    assert comparison_count(again.pk) == 1


def test_a_rule_judged_experiment_comes_back_too(tmp_path):
    experiment = make_experiment(ready=True, judge="rule")
    assert judge_comparisons(experiment.pk) > 0
    advance(experiment_id=experiment.pk)
    assert_same(experiment, import_again(export(experiment, tmp_path)))


def answered_elsewhere(annotator: User) -> Experiment:
    """Three judged comparisons of responses that were brought along."""
    rows = "".join(f"task {n},{policy},{policy}{n}\n" for n in range(4) for policy in "AB")
    answers = read_responses(f"task,policy,response\n{rows}")
    experiment = create_experiment(
        spec=ExperimentSpec(
            name="Elsewhere",
            factors=[FactorSpec("Policy", "imported", {name: {} for name in answers.policies})],
            tasks=answers.tasks,
            settings={"responses": "imported", "seed": 1},
            ready_made=answers.responses,
        )
    )
    add_member(experiment, annotator)
    start(experiment_id=experiment.pk)
    advance(experiment_id=experiment.pk)
    for _ in range(3):
        click(experiment, annotator)
    advance(experiment_id=experiment.pk)
    return experiment


class TestResponsesWrittenElsewhere:
    def test_they_come_back_once_each_and_it_goes_on(self, annotator, tmp_path):
        """An experiment on responses of one's own could be exported and not be imported."""
        first = answered_elsewhere(annotator)
        again = import_again(export(first, tmp_path))
        assert_same(first, again)
        assert experiment_spec(again).ready_made == experiment_spec(first).ready_made
        assert Response.objects.filter(policy__experiment=again).count() == 8
        used = [
            set(each.comparisons.filter(state="judged").values_list("response_i__text", "response_j__text"))
            for each in (first, again)
        ]
        assert used[0] == used[1]
        add_member(again, annotator)
        start(experiment_id=again.pk)
        advance(experiment_id=again.pk)
        click(again, annotator)
        assert Response.objects.filter(policy__experiment=again).count() == 8

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (
                lambda spec: spec["ready_made"].reverse(),
                "is not the ready-made response number",
            ),
            (
                lambda spec: spec["ready_made"][0].update(task=9),
                "A response is to task 10, which is not there",
            ),
            (lambda spec: spec["ready_made"][0].update(task="0"), "task must be a whole number"),
            (lambda spec: spec["ready_made"].clear(), "have no task in common"),
        ],
    )
    def test_a_manifest_of_other_responses_is_refused(self, change, words, annotator, tmp_path):
        file = export(answered_elsewhere(annotator), tmp_path)
        beside = file.with_name("export.jsonl.manifest.json")
        manifest = json.loads(beside.read_text())
        change(manifest["experiment"]["spec"])
        beside.write_text(json.dumps(manifest))
        with pytest.raises(CommandError, match=words):
            import_again(file)
        assert Experiment.objects.count() == 1

    def test_one_that_was_made_for_a_judge_of_them_says_why_they_are_not_there(self, annotator, tmp_path):
        experiment = answered_elsewhere(annotator)
        made = Export(experiment, JSONL, browsing.Selection(finished=True), {})
        tally = Tally()
        file = tmp_path / made.filename
        file.write_bytes(b"".join(made.pieces(tally)))
        file.with_name(manifest_name(file.name)).write_bytes(manifest_bytes(made.manifest(tally)))
        with pytest.raises(CommandError, match="lacks the ready-made responses, as it was made for somebody"):
            import_again(file)


class TestRefused:
    def refused(self, file: Path, why: str) -> None:
        with pytest.raises(CommandError, match=why):
            import_again(file)
        assert not Experiment.objects.filter(name="Again").exists()
        assert not User.objects.filter(username__contains="@import-").exists()

    def test_a_changed_file_is_refused(self, judged, tmp_path):
        file = export(judged, tmp_path)
        file.write_text(file.read_text().replace('"choice": "left"', '"choice": "right"', 1))
        self.refused(file, "was changed")

    def test_a_file_without_its_manifest_is_refused(self, judged, tmp_path):
        file = export(judged, tmp_path)
        file.with_name("export.jsonl.manifest.json").unlink()
        self.refused(file, "manifest cannot be read")

    def test_a_zip_of_a_file_and_its_manifest_says_to_unpack_it(self, judged, tmp_path):
        """As the page and the API give it."""
        file = tmp_path / "export.zip"
        file.write_bytes(b"".join(Export(judged, JSONL, browsing.Selection(), {}).zipped()))
        self.refused(file, r"export\.zip holds an export and its manifest\. Unpack it")

    def test_a_name_that_is_taken_is_refused(self, judged, tmp_path):
        file = export(judged, tmp_path)
        with pytest.raises(CommandError, match="of this name already"):
            import_again(file, name="First")

    def test_a_file_that_only_its_manifest_calls_parquet_is_refused(self, judged, tmp_path):
        file = export(judged, tmp_path, kind="parquet")
        manifest = file.with_name(f"{file.name}.manifest.json")
        file.write_bytes(file.read_bytes()[:-20] + b"PAR1")
        said = json.loads(manifest.read_text())
        said["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
        manifest.write_text(json.dumps(said))
        self.refused(file, "export.parquet: The Parquet file cannot be read")

    def test_dpo_pairs_are_refused(self, judged, tmp_path):
        self.refused(export(judged, tmp_path, kind="dpo"), "Export as JSON lines")

    def test_another_experiments_manifest_is_refused(self, judged, tmp_path):
        file = export(judged, tmp_path)
        beside = file.with_name("export.jsonl.manifest.json")
        manifest = json.loads(beside.read_text())
        manifest["experiment"]["spec"]["tasks"] = manifest["experiment"]["spec"]["tasks"][:1]
        beside.write_text(json.dumps(manifest))
        self.refused(file, "do not fit")

    def test_a_draft_without_tasks_is_refused(self, tmp_path):
        """It became a paused experiment, which nobody could start, and whose setup nobody could change."""
        file = export(make_experiment(running=False, n_tasks=0), tmp_path)
        self.refused(file, "a draft that has no tasks yet. Bring its setup as an experiment file instead")

    def test_a_manifest_that_is_none_is_refused(self, judged, tmp_path):
        file = export(judged, tmp_path)
        file.with_name("export.jsonl.manifest.json").write_text('{"a": 1}')
        self.refused(file, "not a manifest")


class TestHostileRows:
    """An export that somebody wrote by hand. Each row is checked before anything is stored."""

    @pytest.mark.parametrize(
        ("column", "value", "words"),
        [
            ("task_number", 10**18, "task_number is about 10\\^18"),
            ("task_number", 0, "task_number is 0"),
            ("task_number", "1", "task_number must be a whole number"),
            ("policy_i", "P9", "policy_i is 'P9'"),
            ("policy_i", None, "policy_i must be a text"),
            ("policy_j", "P1", "policy_i must come before policy_j"),
            ("response_i", "a\0b", "response_i: a character cannot be stored"),
            ("response_i", "x" * 200_001, "200,001 characters"),
            ("comment", "x" * 1001, "comment has 1,001 characters; the limit is 1,000"),
            ("outcome", 0.3, "outcome is 0.3; it must be 0, 0.5 or 1"),
            ("outcome", None, "outcome must be a number"),
            ("choice", "up", "judge or choice"),
            ("judged_at", "yesterday", "judged_at must be a time"),
            ("judged_at", "2026-01-01T00:00:00", "judged_at must be a time with its zone"),
            ("skips", 70_000, "skips is 70,000"),
            ("seed_i", 2**63, "seed_i is about 10\\^18"),
            ("sampling_seed", "1 x", "sampling_seed must be a whole number"),
            ("voided", "no", "voided must be true or false"),
            ("annotator_could_see_policies", "no", "annotator_could_see_policies must be true or false"),
            ("via", None, "via must be a text"),
            ("judgment_id", -1, "judgment_id is -1"),
            # No database can turn these into its own zone.
            ("judged_at", "9999-12-31T23:59:59-05:00", "judged_at must be a time"),
            ("shown_at", "0001-01-01T00:00:00+05:00", "shown_at must be a time"),
            # Edited, and not what the choice says any more.
            ("choice", "tie", "outcome is [01].0, but choice and left_policy make it 0.5"),
        ],
    )
    def test_a_value_that_does_not_fit(self, column, value, words, judged, tmp_path):
        self.refused(judged, tmp_path, lambda rows: rows[1].update({column: value}), f"Row 2: .*{words}")

    @pytest.mark.parametrize("of", ["a judgment that stands", "another comparison"])
    def test_what_cannot_have_been_restored(self, of, judged, tmp_path):
        def change(rows):
            restoring = next(row for row in rows if row["restores"])
            others = [row for row in rows if row["judgment_id"] < restoring["judgment_id"]]
            voided = of == "another comparison"
            other = next(
                row
                for row in others
                if row["voided"] == voided and row["comparison_id"] != restoring["comparison_id"]
            )
            restoring["restores"] = other["judgment_id"]

        self.refused(judged, tmp_path, change, "restores names a judgment of another comparison, or one that")

    @pytest.mark.parametrize(
        ("path", "value", "words"),
        [
            (["raw"], None, "raw must be true or false"),
            (["experiment", "evidence"], 5, "evidence a list or null"),
            (["experiment", "spec", "factors", 0, "name"], [], "name must be a text"),
            (["experiment", "spec", "factors", 0, "levels"], "x", "levels must be an object"),
            (["experiment", "spec", "tasks", 0, "prompt"], 5, "prompt must be a text"),
            (["experiment", "spec", "settings", "budget"], 1.5, "budget: this must be a whole number"),
            (["experiment", "spec", "settings", "excluded"], None, "excluded: this must be a list"),
        ],
    )
    def test_a_manifest_of_other_types_is_refused(self, path, value, words, judged, tmp_path):
        """Each was a traceback, and the second came when the experiment was stored already."""
        file = export(judged, tmp_path)
        beside = file.with_name("export.jsonl.manifest.json")
        manifest = json.loads(beside.read_text())
        part = manifest
        for step in path[:-1]:
            part = part[step]
        part[path[-1]] = value
        beside.write_text(json.dumps(manifest))
        with pytest.raises(CommandError, match=words):
            import_again(file)
        assert Experiment.objects.count() == 1

    @pytest.mark.parametrize(("written", "voided"), [("TRUE", 3), ("yes", None), ("", None)])
    def test_a_truth_that_a_spreadsheet_wrote_is_read_or_refused(self, written, voided, judged, tmp_path):
        """A voided judgment that said TRUE came back as one that stands."""
        file = export(judged, tmp_path, "--all", kind="csv")
        file.write_bytes(file.read_bytes().replace(b",True,", f",{written},".encode()))
        beside = file.with_name("export.csv.manifest.json")
        manifest = json.loads(beside.read_text())
        beside.write_text(json.dumps(manifest | {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}))
        if voided is None:
            with pytest.raises(
                CommandError, match=f"Row 1 of export.csv .*'{written}' is neither True nor False"
            ):
                import_again(file)
        else:
            assert (
                Judgment.objects.filter(comparison__experiment=import_again(file), standing=False).count()
                == voided
            )

    def test_a_column_that_is_missing(self, judged, tmp_path):
        self.refused(judged, tmp_path, lambda rows: rows[2].pop("choice"), "Row 3 has no column 'choice'")

    def test_a_judgment_that_comes_twice(self, judged, tmp_path):
        self.refused(
            judged, tmp_path, lambda rows: rows.append(rows[0]), "judgment_id is that of an earlier row"
        )

    def test_a_number_of_5000_digits(self, judged, tmp_path):
        def change(rows):
            rows[0]["seed_i"] = "HUGE"

        self.refused(judged, tmp_path, change, "Row 1 .*5,000 digits", replace=('"HUGE"', "9" * 5000))

    def test_more_rows_than_allowed(self, judged, tmp_path, settings):
        settings.MOST_JUDGMENTS = 3
        self.refused(judged, tmp_path, lambda rows: None, "rows of judgments; the limit is 3")

    def test_more_rows_than_the_manifest_declares(self, judged, tmp_path, settings):
        settings.MOST_JUDGMENTS = 3
        self.refused(judged, tmp_path, lambda rows: None, "4 rows of judgments; the limit is 3", declared=1)

    def refused(self, judged, tmp_path, change, words, *, replace=("", ""), declared=None):
        file = export(judged, tmp_path, "--all")
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        change(rows)
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        file.write_text(text.replace(*replace) if replace[0] else text)
        beside = file.with_name("export.jsonl.manifest.json")
        manifest = json.loads(beside.read_text())
        manifest["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
        manifest["rows"] = manifest["rows"] if declared is None else declared
        beside.write_text(json.dumps(manifest))
        with pytest.raises(CommandError, match=words):
            import_again(file)
        assert Experiment.objects.count() == 1


def imported_as(judged, tmp_path, *names: str) -> set[str]:
    file = export(judged, tmp_path, "--all")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    known = sorted({row["annotator"] for row in rows})
    for row in rows:
        row["annotator"] = names[known.index(row["annotator"])]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    beside = file.with_name("export.jsonl.manifest.json")
    manifest = json.loads(beside.read_text())
    beside.write_text(json.dumps(manifest | {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}))
    again = import_again(file)
    assert_same(judged, again)
    people = User.objects.filter(judgments__comparison__experiment=again).distinct()
    assert not any(person.is_active or person.has_usable_password() for person in people)
    return {person.username.removesuffix(f"@import-{again.pk}") for person in people}


class TestNamesOfPeople:
    @pytest.mark.parametrize(
        ("names", "accounts"),
        [
            (("a" * 120 + "1", "a" * 120 + "2"), {"a" * 110, "a" * 110 + "-2"}),
            (("\ufb01ona", "fiona"), {"fiona", "fiona-2"}),
            (("\U0001f600" * 150, "\U0001f600" * 151), {"\U0001f600" * 110, "\U0001f600" * 110 + "-2"}),
        ],
        ids=["cut", "one form of the same letters", "more than a column holds"],
    )
    def test_names_that_would_become_one_stay_apart(self, names, accounts, judged, tmp_path):
        """The second of them broke the import."""
        assert imported_as(judged, tmp_path, *names) == accounts


def test_an_account_of_that_name_is_somebody_else(judged, tmp_path):
    there = [make_user(f"cleo@import-{judged.pk + n}").username for n in (1, 2)]
    assert imported_as(judged, tmp_path, "cleo", "dora") == {f"cleo@import-{judged.pk + 1}-2", "dora"}
    assert not Judgment.objects.filter(annotator__username__in=there).exists()


class TestAnswersMeanwhile:
    """One import held SQLite's lock for two minutes, and clients got errors."""

    @pytest.fixture
    def open_transactions(self, monkeypatch) -> list[str]:
        """Statements executed while a writing transaction was open."""
        seen: list[str] = []

        def watch(target: str) -> None:
            module, name = target.rsplit(".", 1)
            function = getattr(import_module(module), name)

            def watched(*args, **kwargs):
                if connection.in_atomic_block:
                    seen.append(name)
                return function(*args, **kwargs)

            monkeypatch.setattr(target, watched)

        watch("engine.services.reimporting.check_rows")
        watch("engine.services.reimporting.check_description")
        watch("engine.services.reimporting.prepared")
        watch("engine.management.commands.load_experiment.check_description")
        watch("engine.management.commands.load_experiment.read_experiment")
        watch("engine.services.drafts.check_description")
        watch("engine.services.descriptions.check_description")
        watch("engine.services.descriptions.check_ready_made")
        watch("engine.services.descriptions.combinations")
        watch("engine.selectors.designs.told_design")
        return seen

    @pytest.mark.django_db(transaction=True)
    def test_reading_checking_and_replaying_come_before_the_transaction(self, open_transactions, tmp_path):
        ann = make_user("ann")
        experiment = make_experiment(name="First", ready=True, annotators=(ann,))
        for _ in range(3):
            click(experiment, ann)
        import_again(export(experiment, tmp_path))
        file = tmp_path / "experiment.yaml"
        file.write_text(write_experiment(make_spec(name="From a file")))
        call_command("load_experiment", str(file), verbosity=0)
        made = Experiment.objects.get(name="From a file")
        replace_draft(experiment_id=made.pk, spec=make_spec(name="Changed"))
        assert open_transactions == []

    @pytest.mark.django_db(transaction=True)
    def test_another_connection_writes_while_rows_are_read(self, tmp_path, monkeypatch):
        ann = make_user("ann")
        experiment = make_experiment(name="First", ready=True, annotators=(ann,))
        click(experiment, ann)
        file = export(experiment, tmp_path)
        written: list[str] = []

        def write() -> None:
            try:
                written.append(make_user(f"other{len(written)}").username)
            finally:
                connection.close()

        def slow_rows(*args, **kwargs):
            for row in read_file(*args, **kwargs):
                thread = Thread(target=write)
                thread.start()
                # A lock ends SQLite's own patience, and the thread without having written anything.
                thread.join()
                yield row

        monkeypatch.setattr("labeling.management.commands.import_judgments.read_file", slow_rows)
        import_again(file)
        assert written == ["other0"]

    @pytest.mark.django_db(transaction=True)
    def test_nothing_half_imported_is_left_by_a_failure_while_storing(self, tmp_path, monkeypatch):
        ann = make_user("ann")
        experiment = make_experiment(name="First", ready=True, annotators=(ann,))
        click(experiment, ann)
        file = export(experiment, tmp_path)

        def fail(**_given):
            raise RuntimeError("The disk is full.")

        monkeypatch.setattr("engine.services.reimporting.write_snapshot", fail)
        with pytest.raises(RuntimeError):
            import_again(file)
        assert list(Experiment.objects.values_list("name", flat=True)) == ["First"]
        assert not User.objects.filter(username__contains="@import-").exists()


class TestExportCommand:
    def test_by_name_with_a_filter_and_a_manifest_beside(self, judged, tmp_path, capsys):
        file = tmp_path / "out.csv"
        call_command(
            "export", "First", "--out", str(file), "--filter", "annotator=ann", "--filter", "choice=left"
        )
        manifest = json.loads((tmp_path / "out.csv.manifest.json").read_text())
        assert manifest["file"] == "out.csv"
        assert manifest["filter"] == {
            "judgments": "standing",
            "annotator": pseudonym(judged, User.objects.get(username="ann").pk),
            "choice": "left",
        }
        assert manifest["rows"] == len(file.read_text().splitlines()) - 1 > 0
        assert manifest["sha256"] in capsys.readouterr().out
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "out.csv.manifest.json"]

    def test_what_goes_wrong_half_way_leaves_the_old_file_and_nothing_else(
        self, judged, tmp_path, monkeypatch
    ):
        file = tmp_path / "out.csv"
        file.write_text("old")

        def broken(*args, **options):
            yield b"half"
            raise RuntimeError("Halfway.")

        monkeypatch.setattr("labeling.exports.files.Export.pieces", broken)
        with pytest.raises(RuntimeError):
            call_command("export", "First", "--out", str(file), verbosity=0)
        assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out.csv", "old")]

    @pytest.mark.parametrize(
        ("arguments", "why"),
        [
            (("Nobody",), "There is no experiment Nobody. There are: .*First"),
            (("First", "--filter", "colour=red"), "no filter"),
            (("First", "--filter", "policy"), "no filter"),
            (("First", "--filter", "policy=P9"), "cannot be used"),
            (("First", "--out", "/nowhere/at/all.csv"), "Cannot write"),
        ],
    )
    def test_mistakes_are_explained(self, arguments, why, judged):
        with pytest.raises(CommandError, match=why):
            call_command("export", *arguments, verbosity=0)


def test_a_name_that_a_claim_has_given_and_what_came_too_late_are_the_same_again(annotator, tmp_path):
    """Three clicks between two looks of the planner:
    it concludes with the one that decides, as the import does.
    """
    experiment = make_experiment(
        n_policies=2, ready=True, annotators=(annotator,), claim="good_enough", epsilon=0.2, delta=0.2
    )
    while not experiment.conclusion:
        for _ in range(3):
            click_for(experiment, annotator, lambda i, j: i < j)
        advance(experiment_id=experiment.pk)
        write_responses()
        experiment.refresh_from_db()
    again = import_again(export(experiment, tmp_path))
    assert_same(experiment, again)
    assert designs.latest_snapshot(again).named == {"good_enough": 0}
    assert (again.claim, again.certified_claim, again.winner.index) == ("good_enough", "good_enough", 0)
    # The account is another one, but it is one person again.
    assert again.finding == experiment.finding


@pytest.mark.skipif("connection.vendor != 'sqlite'")
def test_ready_made_responses_are_handed_over_before_sqlite_is_locked(tmp_path):
    """100,000 of them took 15 s of the transaction, for which every click waits."""
    table = "task,policy,response\n" + "\n".join(f"T{n},{p},{p} on {n}" for n in range(60) for p in "PQ")
    answers = read_responses(table)
    spec = ExperimentSpec(
        name="First",
        factors=[FactorSpec("Policy", "imported", {name: {} for name in answers.policies})],
        tasks=answers.tasks,
        settings={"responses": "imported"},
        ready_made=answers.responses,
    )
    said: list[str] = []

    def watch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        said.append(sql)
        return execute(sql, params, many, context)

    def assert_handed_over() -> None:
        [stored] = [sql for sql in said if sql.startswith('INSERT INTO "engine_response"')]
        table = stored.partition(" FROM ")[2].split()[0]
        [made] = [n for n, sql in enumerate(said) if sql.startswith(f"CREATE TEMPORARY TABLE {table} ")]
        first = next(n for n, sql in enumerate(said) if sql.startswith('INSERT INTO "engine_experiment"'))
        assert made < first
        said.clear()

    with connection.execute_wrapper(watch):
        first = create_experiment(spec=spec)
        assert_handed_over()
    (tmp_path / "responses.csv").write_text(table)
    described = tmp_path / "experiment.yaml"
    described.write_text("name: Loaded\nresponses_file: responses.csv\n")
    with connection.execute_wrapper(watch):
        call_command("load_experiment", str(described), verbosity=0)
        assert_handed_over()
    ann = make_user("ann")
    add_member(first, ann, "annotator")
    start(experiment_id=first.pk)
    advance(experiment_id=first.pk)
    click_on(first, ann, 2)
    file = export(first, tmp_path)
    said.clear()
    with connection.execute_wrapper(watch):
        again = import_again(file)
        assert_handed_over()
    assert_same(first, again)
    texts = [
        list(Response.objects.filter(policy__experiment=each).order_by("seed").values_list("text", flat=True))
        for each in (first, again)
    ]
    assert texts[0] == texts[1] == [each.response for each in answers.responses]
