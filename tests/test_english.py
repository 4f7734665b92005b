"""The text of this project is plain English: phrases that we have replaced do not come back.

CONTRIBUTING.md ("How we write") has the rules, docs/glossary.md the words.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Openings and fillers that hide the subject of a sentence.
HABITS = (
    r"of late",
    r"in the very moment",
    r"put right",
    r"that which",
    r"is no reason to",
    r"least refuted",
    r"best guess",
    r"sign(?:s|ed|ing)? in",
    r"sign-in",
)
# Sentences that two new readers did not understand, and their relatives.
PASSAGES = (
    r"What is tried",
    r"What writes them",
    r"Whatever worker is there",
    r"What takes long is made",
    r"Nobody is told of anything",
    r"Naming their prompt or model",
    r"Every two of them need tasks",
    r"intervals that leave out that",
    r"who runs different models has to name",
    r"Why nothing is written of what waits",
    r"No person has judged anything",
    r"another policy would be ahead",
    r"A guardrail acted on the",
    r"Comparisons to ask about, at most",
    r"There is no policy here",
    r"That alone: every click asks",
)
# A docstring names its subject first.
OPENING = re.compile(
    r'^\s*r?"""(What|Whatever|Who|Whoever|Which|How|Where|Whether|Why)\b', flags=re.MULTILINE
)

# A comment too, as far as these words show it.
COMMENT = re.compile(r"^ *# (What|Whatever|Of)\b(?! course)", flags=re.MULTILINE)

# History is not rewritten; other people's texts are not ours; this file and the glossary quote the phrases.
EXEMPT = re.compile(
    r"^(CHANGELOG\.md|LICENSE|THIRD_PARTY_LICENSES\.txt|requirements.*\.txt|static/vendor/.*"
    r"|engine/generation/tinylm/(.*\.txt|model/.*)|tests/test_english\.py|docs/glossary\.md|CONTRIBUTING\.md)$"
)
# The glossary's word for code outside of the mathematics is "ruled out".
MATHEMATICS = ("engine/core/", "benchmarks/", "tests/core/")


def _texts() -> dict[str, str]:
    """The tracked text files that this test covers, by name."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\0")
    found = {}
    for name in filter(None, listed):
        if EXEMPT.match(name) or not (ROOT / name).is_file():
            continue
        try:
            found[name] = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return found


TEXTS = _texts()
pytestmark = pytest.mark.skipif(not TEXTS, reason="needs a git checkout")


def _hits(pattern: re.Pattern[str], names: list[str]) -> list[str]:
    return [
        f"{name}:{TEXTS[name].count(chr(10), 0, match.start()) + 1}: {match.group(0).strip()}"
        for name in names
        for match in pattern.finditer(TEXTS[name])
    ]


def test_most_of_the_tree_is_covered():
    assert len(TEXTS) > 400
    assert {"README.md", "labeling/dashboard/status.py", "templates/setup/edit.html"} <= set(TEXTS)


@pytest.mark.parametrize("phrase", HABITS)
def test_a_habit_is_gone(phrase: str):
    # In the name of a test too, where an underscore is no end of a word for `\b`.
    words = phrase.replace(" ", r"[\s_]+")
    pattern = re.compile(rf"(?<![a-z]){words}(?![a-z])", flags=re.IGNORECASE)
    assert _hits(pattern, list(TEXTS)) == []


@pytest.mark.parametrize("phrase", PASSAGES)
def test_a_passage_is_gone(phrase: str):
    assert _hits(re.compile(phrase.replace(" ", r"\s+"), flags=re.IGNORECASE), list(TEXTS)) == []


def test_docstrings_open_with_their_subject():
    assert _hits(OPENING, [name for name in TEXTS if name.endswith(".py")]) == []


def test_comments_open_with_their_subject():
    assert (
        _hits(COMMENT, [name for name in TEXTS if name.endswith(".py") and not name.startswith("tests/")])
        == []
    )


def test_headings_name_their_subject():
    opening = re.compile(r"^#+ What\b|<h[1-6][^>]*>What\b", flags=re.MULTILINE)
    assert _hits(opening, [name for name in TEXTS if name.endswith((".md", ".html"))]) == []


def test_policies_are_ruled_out_and_not_refuted():
    names = [
        name for name in TEXTS if name.endswith((".py", ".md", ".html")) and not name.startswith(MATHEMATICS)
    ]
    assert _hits(re.compile(r"\brefute[ds]?\b"), names) == []


def test_documents_have_at_most_110_columns():
    wide = []
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", *(each for each in TEXTS if each.endswith(".md"))):
        inside_code = False
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), start=1):
            if line.lstrip().startswith("```"):
                inside_code = not inside_code
            # A table's row and a command cannot be broken.
            row_or_command = re.fullmatch(r"\s*(\|.*|`[^`]*`\W*)", line)
            unbreakable = inside_code or row_or_command is not None
            if len(line) > 110 and not unbreakable:
                wide.append(f"{name}:{number}: {len(line)} columns")
    assert wide == []


def test_scripts_styles_and_settings_have_at_most_110_columns():
    """Ruff measures Python."""
    kinds = (".js", ".css", ".yaml", ".toml", ".conf", ".example", "Makefile", "Dockerfile")
    measured = [name for name in TEXTS if name.endswith(kinds) or name.startswith(".ci/")]
    assert len(measured) > 30
    wide = [
        f"{name}:{number}: {len(line)} columns"
        for name in measured
        for number, line in enumerate(TEXTS[name].splitlines(), start=1)
        if len(line) > 110
    ]
    assert wide == []
