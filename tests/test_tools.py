"""The tools of developers: releases and the diagram of the tables."""

from __future__ import annotations

import re
from datetime import date
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db.models import BigAutoField

import engine
from engine.models import (
    Check,
    Experiment,
    Flag,
    Invitation,
    JudgmentVoid,
    Lease,
    Subscription,
    Token,
    User,
)
from engine.selectors.compiled import Compiled, Given
from tools import mutation, release, small_installation

ROOT = Path(settings.BASE_DIR)
CHANGELOG = "# Changelog\n\n## 1.2.0 (2026-01-31)\n\n* New.\n\n## 1.1.0 (2025-12-01)\n"
TREE = {"changelog": CHANGELOG, "changes": "", "tags": "", "lacking": "", "today": date(2026, 1, 31)}


def test_a_clean_tree_with_a_dated_section_can_be_released():
    tree = TREE | {"tags": "v1.1.0\n"}
    assert release.faults("1.2.0", **tree) == []


@pytest.mark.parametrize(
    ("version", "given", "reason"),
    [
        ("1.2.0", {"changes": " M README.md\n"}, "not committed"),
        ("1.2.0", {"tags": "v1.1.0\nv1.2.0\n"}, "released already"),
        ("1.2.0", {"lacking": "no backup of version 1.2.0"}, "no backup of version 1.2.0"),
        ("1.3.0", {}, "must begin with a section `## 1.3.0"),
        ("1.1.0", {}, "must begin with a section `## 1.1.0"),
        ("1.2.0", {"today": date(2026, 2, 1)}, "a section `## 1.2.0 (2026-02-01)`"),
        ("1.2.0", {"changelog": "# Changelog\n\n## Unreleased\n"}, "must begin with a section"),
        ("1.2.0", {"changelog": "# Changelog\n\n## 1.2.0\n"}, "must begin with a section"),
    ],
)
def test_each_reason_against_a_release_is_named(version, given, reason):
    [fault] = release.faults(version, **TREE | given)
    assert reason in fault


def test_the_changelog_has_a_dated_section_for_this_version():
    text = (ROOT / "CHANGELOG.md").read_text()
    [dated, *_] = re.findall(r"^## .* \((.*)\)$", text, re.MULTILINE)
    released = {"changelog": text, "today": date.fromisoformat(dated)}
    assert release.faults(engine.__version__, **TREE | released) == []


def test_a_release_without_a_backup_or_with_an_older_one_is_named(monkeypatch, tmp_path):
    assert "no backup of version 9.9.9" in small_installation.lacking("9.9.9")
    kept = sorted(each.name for each in small_installation.KEPT.iterdir())[-1]
    migrations = tmp_path / "engine" / "migrations"
    migrations.mkdir(parents=True)
    monkeypatch.setattr(small_installation, "ROOT", tmp_path)
    (migrations / "0001_initial.py").touch()
    assert small_installation.lacking(kept) == ""
    (migrations / "9999_later.py").touch()
    assert f"The backup of version {kept} lacks 9999_later." in small_installation.lacking(kept)


@pytest.mark.slow
@pytest.mark.django_db
def test_the_small_installation_has_rows_of_all_kinds_and_is_in_order():
    small_installation.fill()
    states = dict(Experiment.objects.values_list("name", "state"))
    assert states == {
        small_installation.PEOPLE: "running",
        small_installation.RULE: "concluded",
        small_installation.DRAFT: "draft",
    }
    for model in (Check, Flag, JudgmentVoid, Lease, Token, Invitation, Subscription):
        assert model.objects.exists(), model
    call_command("verify", stdout=StringIO())


def test_a_mutant_that_no_test_reaches_survives():
    mutant = next(mutation.mutants("def least(x):\n    return x < 1\n"))
    assert mutation.survives(mutation, mutant, [])


@pytest.mark.django_db
def test_a_mutant_is_tried_with_reads_that_are_built_by_its_code():
    built = []

    def build():
        built.append("once more")
        return User.objects.filter(pk=Given("user", BigAutoField()))

    module = ModuleType("module_with_a_read")
    module.READ = Compiled(build)
    module.READ(user=1)
    module.READ(user=2)
    assert len(built) == 1
    mutation.forget_statements(module)
    module.READ(user=1)
    assert len(built) == 2


@pytest.mark.parametrize("target", mutation.EQUIVALENT)
def test_every_mutant_that_is_said_to_change_nothing_is_one(target):
    assert mutation.gone(target) == []


def test_a_mutant_that_the_code_does_not_have_any_more_ends_the_trial_at_once(monkeypatch, capsys):
    target = "engine/services/claims.py"
    monkeypatch.setitem(mutation.EQUIVALENT, target, {"expired: 1 -> 2": "Once."})
    assert mutation.main([target]) == 2
    assert f"{target}: expired: 1 -> 2" in capsys.readouterr().out


def test_row_locks_are_no_mutants():
    """SQLite has none, so no test could notice."""
    locked = "def first(rows):\n    return rows.{}(no_key=True).get(pk=1)\n"
    changed = {
        call: [mutant.change for mutant in mutation.mutants(locked.format(call))]
        for call in ("select_for_update", "get_or_create")
    }
    assert "first: True -> False" not in changed["select_for_update"]
    assert "first: True -> False" in changed["get_or_create"]


def test_the_container_of_developers_installs_what_ci_installs():
    def packages(text: str) -> set[str]:
        [listed] = re.findall(r"--no-install-recommends \\\n((?:.*\\\n)*.*)", text)
        return set(re.findall(r"[a-z][a-z0-9-]+", listed.split("\n  &&")[0].split(">")[0]))

    container = packages((ROOT / ".devcontainer" / "Dockerfile").read_text())
    assert packages((ROOT / ".ci" / "run").read_text()) - {"python3-venv"} <= container
