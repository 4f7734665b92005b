"""The second language is complete, and what was compiled is what was written."""

import gettext
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GERMAN = ROOT / "labeling" / "locale" / "de" / "LC_MESSAGES"
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def entries() -> list[tuple[str, str]]:
    """(English, German) of every singular entry of the catalogue."""
    found = []
    for block in (GERMAN / "django.po").read_text(encoding="utf-8").split("\n\n")[1:]:
        parts = re.split(r"^(msgid_plural|msgid|msgstr\[\d\]|msgstr) ", block, flags=re.MULTILINE)
        texts = {parts[i]: "".join(STRING.findall(parts[i + 1])) for i in range(1, len(parts), 2)}
        found.append((texts["msgid"], texts.get("msgstr", texts.get("msgstr[0]", ""))))
    return found


def test_every_string_has_its_german():
    assert len(entries()) > 70
    assert [english for english, german in entries() if not german] == []


def test_every_string_of_the_source_is_in_the_catalogue():
    catalogue = {english for english, _ in entries()}
    pattern = re.compile(r"""translate\s+(?:"([^"]+)"|'([^']+)')|\b_\(\s*"([^"]+)"\s*\)""")
    used = set()
    for folder, ending in (("templates", "*.html"), ("engine", "*.py"), ("labeling", "*.py")):
        for file in (ROOT / folder).rglob(ending):
            used |= {next(filter(None, match)) for match in pattern.findall(file.read_text(encoding="utf-8"))}
    assert len(used) > 70
    assert used - catalogue == set()


def test_no_entry_awaits_review():
    assert "fuzzy" not in (GERMAN / "django.po").read_text(encoding="utf-8")


def test_the_compiled_catalogue_is_up_to_date():
    with (GERMAN / "django.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    for english, german in entries():
        if "%(n)s" not in english and english != "The first pair is for practice and not counted.":
            # Before Python 3.11.3, `gettext` knows no entry that has a plural.
            assert german in {compiled.gettext(english), compiled.ngettext(english, english, 1)}


def test_placeholders_survive_translation():
    for english, german in entries():
        assert sorted(re.findall(r"%\(\w+\)s", english)) == sorted(re.findall(r"%\(\w+\)s", german))
