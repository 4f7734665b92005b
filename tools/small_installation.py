"""Backups of a small installation of this version, for the tests of later ones:
``python -m tools.small_installation``.

One is of SQLite and one of PostgreSQL, whose programs have to be on this machine.
tests/processes/test_backup.py restores them. Nothing in them is secret: people, texts and keys are made up.
"""

from __future__ import annotations

import argparse
import gzip
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import django

import engine
from engine.domain.specs import ExperimentSpec, FactorSpec, GoldSpec, TaskSpec
from tools.up_local import postgres

if TYPE_CHECKING:
    from engine.models import Experiment, User

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests" / "kept_backups"
PEOPLE, RULE, DRAFT = "Judged by people", "Judged by rule", "A draft"
_KEY = "only-for-kept-backups-only-for-kept-backups"
_ANSWERS, _BUDGET = 24, 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the backups of this version, over older ones. Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fill", action="store_true", help="only fill the database in DATABASE_URL")
    if parser.parse_args(arguments).fill:
        django.setup()
        fill()
        return 0
    kept = KEPT / engine.__version__
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        # PostgreSQL runs as a user of its own where this is root.
        folder.chmod(0o755)
        _back_up(f"sqlite:///{folder}/small.sqlite3", folder / "sqlite.backup")
        with postgres(folder) as url:
            _back_up(url, folder / "postgresql.backup")
        for file in folder.glob("*.backup"):
            (kept / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
            note = file.with_name(f"{file.name}.json")
            (kept / note.name).write_text(note.read_text())
    for file in sorted(kept.iterdir()):
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")
    return 0


def lacking(version: str) -> str:
    """The reason against a release of ``version``; empty if its backups have all migrations of this tree."""
    file = KEPT / version / "sqlite.backup.gz"
    if not file.exists():
        return f"{KEPT.relative_to(ROOT)} has no backup of version {version}. Run `make backups`, and commit."
    with tempfile.NamedTemporaryFile() as unpacked:
        unpacked.write(gzip.decompress(file.read_bytes()))
        unpacked.flush()
        with closing(sqlite3.connect(unpacked.name)) as database:
            rows = database.execute("SELECT name FROM django_migrations WHERE app = 'engine'")
            applied = {name for (name,) in rows}
    ours = {path.stem for path in (ROOT / "engine" / "migrations").glob("[0-9]*.py")}
    if missing := ours - applied:
        names = ", ".join(sorted(missing))
        return f"The backup of version {version} lacks {names}. Run `make backups`, and commit."
    return ""


def _back_up(url: str, file: Path) -> None:
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "llmpo_site.settings",
        "DATABASE_URL": url,
        "CELERY_BROKER_URL": "filesystem://localhost",
        "VAR_DIR": str(file.parent / "var"),
        "GENERATION_BACKEND": "embedded",
        "SECRET_KEY": _KEY,
        "LOG_LEVEL": "ERROR",
    }
    for command in (
        ["manage.py", "migrate", "--verbosity", "0"],
        ["-m", "tools.small_installation", "--fill"],
        ["manage.py", "verify"],
        ["manage.py", "backup", str(file)],
    ):
        _run(command, environment)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, check=True)  # noqa: S603


def fill() -> None:
    """Make rows of nearly every kind, through the services. They are of an experiment that people are in the
    middle of, one that a rule has decided, and a draft.
    """
    # Models can be imported once Django is set up.
    from engine.generation import registry  # noqa: PLC0415
    from engine.generation.worker import write_batch  # noqa: PLC0415
    from engine.judges.rule_worker import judge_comparisons  # noqa: PLC0415
    from engine.models import Experiment, Membership, Token, User  # noqa: PLC0415
    from engine.services import drafts, experiments, invitations, notifications, people, planning, tokens  # noqa: PLC0415

    admin = User.objects.create_user("admin", email="admin@example.org", is_superuser=True, is_staff=True)
    annotators = [User.objects.create_user(name) for name in ("ann", "bob")]

    def plan_and_write(experiment: Experiment) -> None:
        planning.advance(experiment_id=experiment.pk)
        while write_batch(worker="small", backend=registry.backend())[0]:
            pass

    drafts.create_experiment(spec=_described(DRAFT), by=admin)
    by_rule = drafts.create_experiment(spec=_described(RULE, judge="rule", budget=_BUDGET), by=admin)
    experiments.start(experiment_id=by_rule.pk, by=admin)
    while Experiment.objects.get(pk=by_rule.pk).state == Experiment.State.RUNNING:
        plan_and_write(by_rule)
        judge_comparisons(by_rule.pk)
    by_people = drafts.create_experiment(
        spec=_described(PEOPLE, overlap=2, gold_rate=0.2, repeat_rate=0.1, allow_tie=True), by=admin
    )
    for user in annotators:
        people.add_member(experiment=by_people, user=user, role=Membership.Role.ANNOTATOR, by=admin)
    invitations.create_invitation(
        experiment=by_people, by=admin, role=Membership.Role.ANNOTATOR, most_uses=5, valid_days=7
    )
    notifications.subscribe(
        experiment=by_people, by=admin, kind="email", target="team@example.org", events=["concluded"]
    )
    tokens.make_token(user=admin, name="Nightly export", valid_days=7, scopes=[Token.Scope.READ])
    experiments.start(experiment_id=by_people.pk, by=admin)
    by_people.refresh_from_db()
    for _ in range(_ANSWERS // 4):
        plan_and_write(by_people)
        for user in annotators:
            _answer(by_people, user, 2)
    plan_and_write(by_people)
    _change_their_minds(by_people, annotators[0], annotators[1], admin)


def _described(name: str, **settings: object) -> ExperimentSpec:
    """Two prompts × two strategies on sums."""
    return ExperimentSpec(
        name=name,
        factors=[
            FactorSpec("Prompt", "prompt", {"Tutor": {"text": "Check."}, "Hurry": {"text": "Be quick."}}),
            FactorSpec(
                "Strategy",
                "strategy",
                {"Direct": {"instruction": "Answer directly."}, "Steps": {"instruction": "Think first."}},
            ),
        ],
        tasks=[TaskSpec(f"What is {n} + {n + 3}?", str(2 * n + 3), tags=("sums",)) for n in range(1, 13)],
        gold=[GoldSpec("What is 1 + 1?", "2", "3", "One and one are two.")],
        settings={"seed": 1, **settings},
    )


def _answer(experiment: Experiment, user: User, n: int) -> None:
    from engine.models import Check  # noqa: PLC0415
    from engine.services import serving  # noqa: PLC0415
    from engine.services.checks import expected_choice  # noqa: PLC0415

    for number in range(n):
        shown = serving.show_next(experiment=experiment, annotator=user)
        if shown is None:
            return
        # Who fails the gold item gets no pair that counts.
        check = Check.objects.filter(token=shown.token).first()
        choice = "left" if number else "right"
        serving.answer(
            experiment_id=experiment.pk,
            token=shown.token,
            annotator=user,
            choice=expected_choice(check) if check else choice,
            comment="" if number else "Shorter.",
        )


def _change_their_minds(experiment: Experiment, ann: User, bob: User, admin: User) -> None:
    """An answer taken back, one voided, a pair skipped, and one that stays on a screen."""
    from engine.models import Judgment  # noqa: PLC0415
    from engine.selectors.answers import newest_answer  # noqa: PLC0415
    from engine.services import review, serving  # noqa: PLC0415

    newest = newest_answer(experiment, ann)
    if newest is not None:
        serving.take_back(experiment=experiment, answer=newest, annotator=ann)
    standing = Judgment.objects.filter(comparison__experiment=experiment, standing=True, annotator=bob)
    review.void_one(judgment_id=standing.earliest("pk").pk, by=admin, reason="A slip.")
    if shown := serving.show_next(experiment=experiment, annotator=bob):
        serving.skip(experiment=experiment, token=shown.token, annotator=bob, reason="task", comment="?")
    serving.show_next(experiment=experiment, annotator=bob)


if __name__ == "__main__":
    sys.exit(main())
