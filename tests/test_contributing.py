"""The documents lead a new reader to the file in which a change starts."""

from __future__ import annotations

import ast
import configparser
import re
from pathlib import Path

import pytest

from engine.core import StopReason
from engine.models import Experiment
from tools import mutation

ROOT = Path(__file__).resolve().parents[1]
ROW = re.compile(r"^\| ([^|]+) \| `([^`|]+)` \| `([^`|]+)` \|$", flags=re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))


def test_the_table_has_twenty_changes_and_each_once():
    changes = [change for change, _, _ in ROWS]
    assert len(changes) >= 20
    assert len(set(changes)) == len(changes)


@pytest.mark.parametrize(("change", "file", "text"), ROWS)
def test_a_change_starts_in_a_file_that_holds_its_text(change: str, file: str, text: str):
    assert text in (ROOT / file).read_text(encoding="utf-8"), f"{change}: {file} does not contain {text}"


def test_every_decision_has_a_status_and_is_in_the_index_by_the_name_of_its_file():
    folder = ROOT / "docs" / "decisions"
    decisions = sorted({*folder.glob("*.md")} - {folder / "README.md"})
    index = (folder / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| .*\]\(([^)]+)\) \|", index, re.MULTILINE) == [file.name for file in decisions]
    for file in decisions:
        lines = file.read_text(encoding="utf-8").splitlines()
        assert lines[2].startswith("Status: "), f"{file.name} needs its status in line 3."


def test_every_document_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {file.name for file in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page}" not in index} == set()


def _anchors(file: Path) -> set[str]:
    """The anchors that the headings of a document make."""
    headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_links_between_documents_lead_somewhere():
    broken = []
    for file in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        links = re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", file.read_text(encoding="utf-8"))
        for target, anchor in (link for link in links if "://" not in link[0]):
            found = file.parent / target if target else file
            if not found.exists() or (anchor and anchor not in _anchors(found)):
                broken.append(f"{file.relative_to(ROOT)}: {target}#{anchor}")
    assert broken == []


def _first_cells(document: str, heading: str) -> list[str]:
    """The first cells of the rows of the first table below a heading, without the table's own."""
    section = document.partition(f"# {heading}\n")[2].partition("\n#")[0]
    return re.findall(r"^\| ([^|]+) \|", section, flags=re.MULTILINE)[1:]


def test_branches_are_checked_of_the_targets_of_mutation():
    settings = configparser.ConfigParser()
    settings.read(ROOT / ".ci" / "branches.ini")
    files = settings["run"]["include"].split()
    assert set(files) == {*mutation.TARGETS, "engine/models/claims.py"}
    assert all((ROOT / file).is_file() for file in files)


def test_a_document_explains_each_headline_of_the_dashboard():
    document = (ROOT / "docs" / "dashboard.md").read_text(encoding="utf-8")
    source = (ROOT / "labeling" / "dashboard" / "verdict.py").read_text(encoding="utf-8")
    texts = {
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    headlines = {text for text in texts if re.fullmatch(r"[A-Z][a-z]*( [a-z]+)+", text)}
    headlines.add(Experiment(conclusion=StopReason.NO_SINGLE_BEST).get_conclusion_display())
    # These end with a name.
    named = ("Use ", "Already ")
    assert set(named) <= texts
    explained = _first_cells(document, "Result")
    assert {cell for cell in explained if not cell.startswith(named)} == headlines
    assert len([cell for cell in explained if cell.startswith(named)]) == len(named)
