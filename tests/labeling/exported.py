"""Experiments that exports are made of, in tests."""

from pathlib import Path

from django.core.management import call_command

from engine.domain.specs import ExperimentSpec, FactorSpec
from engine.importing.items import read_responses
from engine.importing.votes import Vote, Winner
from engine.models import Experiment, Judgment, User
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.services.past_votes import start_from_votes
from engine.services.planning import advance
from tests.factories import SECRET, add_member, click, click_on, make_experiment, make_user


def export(experiment: Experiment, folder: Path, *options: str, kind: str = "jsonl") -> Path:
    file = folder / f"export.{kind}"
    call_command("export", str(experiment.pk), "--format", kind, "--out", str(file), *options, verbosity=0)
    return file


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
