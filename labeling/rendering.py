"""Model text made safe to show.

Markdown is rendered with raw HTML switched off, and what comes out is sanitised again: a model's text is
as hostile as a stranger's.
"""

from __future__ import annotations

import nh3
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

# Longer texts are shown as they are: rendering them could keep an annotator waiting.
_MOST_MARKDOWN = 20_000

_markdown = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": 20}).enable(
    ["table", "strikethrough"]
)
_TAGS = {
    "p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li",
    "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "a",
}  # fmt: skip


def render_markdown(text: str) -> SafeString:
    """HTML of a model's text: no images, no raw HTML, links only to http(s) and without a referrer."""
    if len(text) > _MOST_MARKDOWN:
        return mark_safe(f"<pre>{escape(text)}</pre>")  # noqa: S308 - escaped in this very line
    cleaned = nh3.clean(
        _markdown.render(text),
        tags=_TAGS,
        attributes={"a": {"href"}, "ol": {"start"}},
        url_schemes={"http", "https"},
        link_rel="noopener noreferrer nofollow",
    )
    return mark_safe(cleaned)  # noqa: S308 - sanitised by nh3 in the line above
