"""Reading pages as a browser's parser would, so that tests assert on elements and not on substrings."""

import re
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser

from django.http import HttpResponse

# Elements that have no end tag.
_VOID = {"br", "hr", "img", "input", "link", "meta", "source", "track", "wbr", "area", "base", "col", "embed"}


@dataclass
class Element:
    """One start tag with its attributes; ``inside`` names the elements around it, outermost first."""

    tag: str
    attributes: dict[str, str]
    inside: tuple[str, ...] = ()


@dataclass
class Markup(HTMLParser):
    """The elements of some HTML in order, its text,
    and whether every element was closed where it should be.
    """

    source: str
    elements: list[Element] = field(default_factory=list)
    text: str = field(init=False)
    other: list[str] = field(default_factory=list)
    unbalanced: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        HTMLParser.__init__(self, convert_charrefs=True)
        self._open: list[str] = []
        self._said: list[str] = []
        self.feed(self.source)
        self.close()
        self.text = "".join(self._said)
        self.unbalanced += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}, tuple(self._open)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()
        else:
            self.unbalanced.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self._said.append(data)

    def handle_comment(self, data: str) -> None:
        self.other.append(data)

    def handle_decl(self, decl: str) -> None:
        self.other.append(decl)

    def handle_pi(self, data: str) -> None:
        self.other.append(data)

    def unknown_decl(self, data: str) -> None:
        self.other.append(data)

    def by_id(self, identifier: str) -> Element:
        """The one element with this id; there must be one."""
        (found,) = [element for element in self.elements if element.attributes.get("id") == identifier]
        return found


def stage(response: HttpResponse) -> dict[str, str]:
    """The data that the changing part of the annotator's page gives its script: token, words and progress."""
    attributes = Markup(response.content.decode()).by_id("stage").attributes
    return {name.removeprefix("data-"): value for name, value in attributes.items()}


def text_of(html: str) -> str:
    """The text of some HTML as it reads: a blank for each tag, and none before a full stop."""
    return re.sub(r"\s+([.,;:])", r"\1", " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split()))


def words(response: HttpResponse) -> str:
    """A page's text with its blanks collapsed: what a reader would read."""
    return " ".join(Markup(response.content.decode()).text.split())
