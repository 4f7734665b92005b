"""Model text made safe to show.

Markdown is rendered with raw HTML switched off, and code is highlighted and maths turned into MathML on the
server. The result is sanitised again: a model's text is as hostile as a stranger's.
"""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache, lru_cache
from itertools import groupby
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import nh3
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.texmath import texmath_plugin
from mdit_py_plugins.texmath.index import make_inline_func
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

# A text beyond any of these is shown as it is: rendering it could keep an annotator waiting.
_MOST_CHARACTERS = 12_000
_MOST_BRACKETS = 500  # the parser looks for the end of a link or a formula at each of them
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

# `\[ … \]` within a line of text: the plugin knows it as a block alone.
_IN_A_LINE: Any = {
    "name": "math_inline_double",
    "rex": re.compile(r"^\\\[(.+?)\\\]", re.DOTALL),
    "tmpl": "",
    "tag": "\\[",
}

# Environments of several lines that the converter does not know by these names.
_ALIGNED = re.compile(
    r"\\(begin|end)\{(?:align|aligned|alignat|split|gather|gathered|multline|equation)\*?\}"
)

# A text of one line that begins with a number, "39. Because …", is an answer and no list of one item.
_LONE_NUMBER = re.compile(r"\A( {0,3}\d{1,9})([.)][ \t][^\r\n]*[\r\n]*)\Z")

# A word with the space after it, or a mark, or space.
_PIECE = re.compile(r"\w+\s?|[^\w\s]\s?|\s")

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


def render_markdown(text: str, heading_level: int = 4, beside: str = "") -> SafeString:
    """HTML of a model's text: no raw HTML, no pictures but their words, links only to http(s) and without a
    referrer.

    Its headings are all of ``heading_level``, so that they fit in below the page's own. A text that cannot be
    formatted is shown as it is; so is one ``beside`` which another cannot be, as looks would decide.
    """
    language = get_language()  # in which the words about a picture are
    formatted = _formatted(text, heading_level, language)
    if formatted is None or _formatted(beside, heading_level, language) is None:
        return mark_safe(f'<pre dir="auto">{html.escape(text)}</pre>')  # noqa: S308 - escaped in this line
    return formatted


@lru_cache(maxsize=64)
def _formatted(text: str, heading_level: int, language: str | None) -> SafeString | None:
    if not _is_reasonable(text):
        return None
    markdown = _markdown()
    try:
        tokens = markdown.parse(_LONE_NUMBER.sub(r"\1\\\2", text))
        if any(token.level >= _DEEPEST - 1 for token in tokens):
            return None  # the parser drops what lies deeper
        for token in tokens:
            if token.type in {"heading_open", "heading_close"}:
                token.tag = f"h{heading_level}"
            elif token.type in {"th_open", "td_open"} and token.attrs:
                # The parser writes a style, which the content security policy forbids.
                token.attrs = {"class": str(token.attrs["style"]).replace("text-align:", "to-")}
            if token.level == 0 and token.nesting == 1:
                token.attrSet("dir", "auto")
        rendered = markdown.renderer.render(tokens, markdown.options, {})
    except (RecursionError, ValueError):
        return None
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


def difference(old: str, new: str) -> SafeString:
    """The new text as HTML, with the words that it leaves out of the old one and adds to it marked."""
    before, after = (_PIECE.findall(text) for text in (old, new))
    changes = SequenceMatcher(None, before, after).get_opcodes()
    marked = "".join(_changed(tag, before[i1:i2], after[j1:j2]) for tag, i1, i2, j1, j2 in changes)
    return mark_safe(marked)  # noqa: S308 - each piece is escaped


def _changed(tag: str, before: Sequence[str], after: Sequence[str]) -> str:
    old, new = (html.escape("".join(pieces)) for pieces in (before, after))
    if tag == "equal":
        return new
    return f"<del>{old}</del>" * bool(old) + f"<ins>{new}</ins>" * bool(new)


def _text(token: Token) -> str:
    return " " if token.type in {"softbreak", "hardbreak"} else token.content


def _is_reasonable(text: str) -> bool:
    n_brackets = text.count("[") + text.count("\\(")
    if len(text) > _MOST_CHARACTERS + 1 or n_brackets > _MOST_BRACKETS:
        return False
    # No table has more cells than its widest line times its lines.
    runs = groupby(text.splitlines(), key=lambda line: bool(line.strip()))
    pipes = [[line.count("|") for line in run] for has_text, run in runs if has_text]
    return sum(max(widths) * len(widths) for widths in pipes) <= _MOST_CELLS


@cache
def _markdown() -> MarkdownIt:
    # A definition of a link is a line that nobody would see.
    options = {"html": False, "breaks": True, "maxNesting": _DEEPEST, "highlight": _highlight}
    markdown = MarkdownIt("commonmark", options).enable(["table", "strikethrough"]).disable("reference")
    # Models write maths in all of these ways, and both responses of a pair are to look alike. The rules of
    # the first plugin make the tokens that the second one renders.
    markdown.use(texmath_plugin, delimiters="brackets")
    markdown.inline.ruler.before("escape", _IN_A_LINE["name"], make_inline_func(_IN_A_LINE))
    # A price is not a formula: no blank just inside the dollars, no digit just after them.
    markdown.use(
        dollarmath_plugin, allow_space=False, allow_digits=False, double_inline=True, renderer=_mathml
    )
    markdown.use(amsmath_plugin, renderer=lambda source: _mathml(source, {"display_mode": True}))
    markdown.add_render_rule("math_block_eqno", _numbered)
    markdown.add_render_rule("image", _picture)
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


def _picture(renderer: RendererHTML, tokens: list[Token], index: int, options: Any, env: Any) -> str:
    """A box in place of a picture: loading it would tell its server who judges, and when."""
    image = tokens[index]
    words, address = renderer.renderInlineAsText(image.children, options, env), str(image.attrs["src"])
    said = _("Picture, not loaded: %(words)s") % {"words": words} if words else _("Picture, not loaded")
    leads = address.startswith(("http://", "https://"))
    link = f' <a href="{html.escape(address)}">{html.escape(_("open"))}</a>' if leads else ""
    return f'<span class="picture">{html.escape(said)}{link}</span>'


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
            **{tag: {"dir"} for tag in ("p", "ul", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6")},
            "ol": {"start", "dir"},
            "table": {"dir"},
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
        set_tag_attribute_values={"a": {"target": "_blank"}},  # the pair stays where it is
    )
    return cleaner.clean


def _highlight(code: str, language: str, _: str) -> str:
    if len(code) > _LONGEST_CODE or language.lower() not in _LANGUAGES:
        return ""
    return highlight(code, get_lexer_by_name(language), HtmlFormatter(nowrap=True, classprefix="hl-"))


def _mathml(source: str, options: dict[str, Any]) -> str:
    source = _ALIGNED.sub(r"\\\1{align*}", source)
    display = "block" if options["display_mode"] else "inline"
    if len(source) <= _LONGEST_MATHS:
        try:
            maths = convert(source, display=display)
            if _MATHS_TAGS.issuperset(element.tag for element in _elements(maths)):
                return maths
        except Exception:  # noqa: S110 - if the converter fails on hostile TeX, the source is shown
            pass
    return f"<code>{html.escape(source)}</code>"


def _numbered(renderer: RendererHTML, tokens: list[Token], index: int, *_: Any) -> str:
    maths = _mathml(tokens[index].content, {"display_mode": True})
    return f'<div class="math block">{maths} ({html.escape(tokens[index].info)})</div>'


def _elements(maths: str) -> Iterator[Element]:
    """The elements of well-formed MathML: the converter does not escape what stands in a \\text."""
    namespace = ' xmlns="http://www.w3.org/1998/Math/MathML"'
    return fromstring(maths.replace(namespace, "", 1)).iter()  # noqa: S314 - no DTD within an element
