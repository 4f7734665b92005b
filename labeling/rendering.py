"""Model text made safe to show.

Markdown is rendered with raw HTML switched off, and code is highlighted and maths turned into MathML on the
server. The result is sanitised again: a model's text is as hostile as a stranger's.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import groupby
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import nh3
from django.utils.safestring import SafeString, mark_safe
from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

# A text beyond any of these is shown as it is: rendering it could keep an annotator waiting.
_MOST_CHARACTERS = 12_000
_MOST_LINES = 400
_LONGEST_LINE = 4_000
_MOST_BRACKETS = 500  # the parser looks for the end of a link at each of them
_MOST_CELLS = 3_000  # the parser fills short rows of a table up to the width of its header
_LONGEST_MATHS = 500
# Longer code has no colours. Patterns for Java try each word as the beginning of a method that never comes,
# and take the square of its length.
_LONGEST_CODE = 4_000
# The languages that models write. Some of the hundreds of others take seconds for a page of blanks.
_LANGUAGES = {
    "bash", "c", "c#", "c++", "clojure", "console", "cpp", "csharp", "css", "dart", "diff",
    "docker", "dockerfile", "elixir", "fortran", "go", "golang", "graphql", "haskell", "hs", "html",
    "http", "ini", "java", "javascript", "js", "json", "jsx", "julia", "kotlin", "latex", "lua",
    "make", "makefile", "markdown", "matlab", "md", "nginx", "objc", "objective-c", "perl", "php",
    "powershell", "protobuf", "ps1", "py", "pycon", "python", "python3", "r", "rb", "rs", "ruby",
    "rust", "scala", "sh", "shell", "sql", "swift", "tex", "toml", "ts", "tsx", "typescript",
    "vb.net", "xml", "yaml", "yml", "zsh",
}  # fmt: skip
_DEEPEST = 20

# A text of one line that begins with a number, "39. Because …", is an answer and no list of one item.
_LONE_NUMBER = re.compile(r"\A( {0,3}\d{1,9})([.)][ \t][^\r\n]*[\r\n]*)\Z")

_TAGS = {
    "p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "span", "div",
    "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "a",
}  # fmt: skip
_MATHS_TAGS = {
    "math", "mrow", "mi", "mo", "mn", "mtext", "mspace", "mfrac", "msqrt", "mroot", "msup", "msub", "msubsup",
    "munder", "mover", "munderover", "mtable", "mtr", "mtd", "mpadded", "mphantom",
}  # fmt: skip


def capped(text: str) -> str:
    """The part of a response that is shown at first; all of it, unless it is very long."""
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"


def render_markdown(text: str, heading_level: int = 4) -> SafeString:
    """HTML of a model's text: no images, no raw HTML, links only to http(s) and without a referrer.

    Its headings are all of ``heading_level``, so that they fit in below the page's own.
    """
    if not _is_reasonable(text):
        return _plain(text)
    markdown = _markdown()
    try:
        tokens = markdown.parse(_LONE_NUMBER.sub(r"\1\\\2", text))
        if any(token.level >= _DEEPEST - 1 for token in tokens):
            return _plain(text)  # the parser drops what lies deeper
        for token in tokens:
            if token.type in {"heading_open", "heading_close"}:
                token.tag = f"h{heading_level}"
            elif token.type in {"th_open", "td_open"} and token.attrs:
                # The parser writes a style, which the content security policy forbids.
                token.attrs = {"class": str(token.attrs["style"]).replace("text-align:", "to-")}
        rendered = markdown.renderer.render(tokens, markdown.options, {})
    except (RecursionError, ValueError):
        return _plain(text)
    cleaned = _cleaner()(rendered)
    return mark_safe(cleaned)  # noqa: S308 - sanitised by nh3 in the line above


def excerpt(text: str, most: int = 300) -> str:
    """The first words of a model's text on one line, without the marks of Markdown. Not safe as HTML."""
    # Some of these characters are marks; the parser's time is for what will be shown.
    start = text[: 3 * most]
    words: list[str] = []
    if _is_reasonable(start):
        for token in _markdown().parse(_LONE_NUMBER.sub(r"\1\\\2", start)):
            if token.type == "list_item_open" and token.info:
                words.append(f"{token.info}{token.markup}")
            words.append("".join(_text(each) for each in token.children or [token]))
    plain = " ".join((" ".join(words).strip() or start).split())
    whole = len(plain) <= most and len(start) == len(text)
    return plain if whole else f"{plain[: most - 1].rstrip()}…"


def _text(token: Token) -> str:
    return " " if token.type in {"softbreak", "hardbreak"} else token.content


def _is_reasonable(text: str) -> bool:
    if len(text) > _MOST_CHARACTERS + 1 or text.count("[") > _MOST_BRACKETS:
        return False
    lines = text.splitlines()
    if len(lines) > _MOST_LINES or max(map(len, lines), default=0) > _LONGEST_LINE:
        return False
    return _most_cells(lines) <= _MOST_CELLS


def _most_cells(lines: list[str]) -> int:
    """An upper bound on the cells of all tables. It is, for each run of lines that are not blank, the widest
    line times the number of lines.
    """
    runs = groupby(lines, key=lambda line: bool(line.strip()))
    pipes = [[line.count("|") for line in run] for has_text, run in runs if has_text]
    return sum(max(widths) * len(widths) for widths in pipes)


def _plain(text: str) -> SafeString:
    return mark_safe(f"<pre>{html.escape(text)}</pre>")  # noqa: S308 - escaped in this very line


@cache
def _markdown() -> MarkdownIt:
    options = {"html": False, "breaks": True, "maxNesting": _DEEPEST, "highlight": _highlight}
    markdown = MarkdownIt("commonmark", options).enable(["table", "strikethrough"]).disable("image")
    # A price is not a formula: no blank just inside the dollars, no digit just after them.
    markdown.use(
        dollarmath_plugin, allow_space=False, allow_digits=False, double_inline=True, renderer=_mathml
    )
    plain = RendererHTML().rules
    # Code and tables scroll in a box of their own; the annotator's page adds buttons to code.
    for rule, before, after in (
        ("fence", '<div class="code">', "</div>\n"),
        ("code_block", '<div class="code">', "</div>\n"),
        ("table_open", '<div class="table">', ""),
        ("table_close", "", "</div>\n"),
    ):
        markdown.add_render_rule(rule, _between(before, plain.get(rule), after))
    return markdown


def _between(before: str, rule: Callable[..., str] | None, after: str) -> Callable[..., str]:
    """A rule that writes ``before`` and ``after`` around the output of another rule."""

    def render(renderer: RendererHTML, tokens: list[Token], index: int, *rest: Any) -> str:
        return f"{before}{(rule or renderer.renderToken)(tokens, index, *rest)}{after}"

    return render


@cache
def _cleaner() -> Callable[[str], str]:
    cleaner = nh3.Cleaner(
        tags=_TAGS | _MATHS_TAGS,
        attributes={
            "a": {"href"},
            "ol": {"start"},
            "span": {"class"},
            "div": {"class"},
            "th": {"class"},
            "td": {"class"},
            "math": {"display"},
            "mo": {"stretchy", "fence"},
        },
        url_schemes={"http", "https"},
        url_relative="deny",
        link_rel="noopener noreferrer nofollow",
    )
    return cleaner.clean


def _highlight(code: str, language: str, _: str) -> str:
    if len(code) > _LONGEST_CODE or language.lower() not in _LANGUAGES:
        return ""
    return highlight(code, get_lexer_by_name(language), HtmlFormatter(nowrap=True, classprefix="hl-"))


def _mathml(source: str, options: dict[str, Any]) -> str:
    display = "block" if options["display_mode"] else "inline"
    if len(source) <= _LONGEST_MATHS:
        try:
            maths = convert(source, display=display)
            if _MATHS_TAGS.issuperset(element.tag for element in _elements(maths)):
                return maths
        except Exception:  # noqa: S110 - if the converter fails on hostile TeX, the source is shown
            pass
    return f"<code>{html.escape(source)}</code>"


def _elements(maths: str) -> Iterator[Element]:
    """The elements of well-formed MathML: the converter does not escape what stands in a \\text."""
    namespace = ' xmlns="http://www.w3.org/1998/Math/MathML"'
    return fromstring(maths.replace(namespace, "", 1)).iter()  # noqa: S314 - no DTD within an element
