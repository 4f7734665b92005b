"""Links and places that the documents name are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROW = re.compile(r"^\| ([^|]+) \| `([^`|]+)` \| `([^`|]+)` \|$", flags=re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("change", "file", "text"), ROWS)
def test_a_change_starts_in_a_file_that_holds_its_text(change: str, file: str, text: str):
    assert text in (ROOT / file).read_text(encoding="utf-8"), f"{change}: {file} does not contain {text}"


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
