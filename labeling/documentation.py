"""The documentation of this version, as pages: an installation may have no internet."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path, PurePosixPath
from posixpath import normpath

from django.conf import settings
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.anchors import anchors_plugin

INDEX = "README"
_FOLDER: Path = settings.DOCUMENTS


@dataclass(frozen=True)
class Document:
    """One file of the documentation, as HTML. ``title``: its first heading."""

    title: str
    html: SafeString


@cache
def names() -> frozenset[str]:
    """The names of all documents: their paths below `docs`, without the ending."""
    return frozenset(file.relative_to(_FOLDER).with_suffix("").as_posix() for file in _FOLDER.rglob("*.md"))


def document(name: str) -> Document | None:
    """The document of this name; ``None`` where there is none."""
    return _rendered(name) if name in names() else None


@cache
def pictures() -> Mapping[str, Path]:
    """The pictures of where people click, by name."""
    return {file.name: file for file in (_FOLDER / "images" / "doors").glob("*.png")}


def address(name: str) -> str:
    """The address of a document's page."""
    return reverse("help") if name == INDEX else reverse("help_page", args=[name])


@cache
def _rendered(name: str) -> Document:
    tokens = _markdown().parse((_FOLDER / f"{name}.md").read_text(encoding="utf-8"))
    title = next(token.content for before, token in pairwise(tokens) if before.type == "heading_open")
    for token in tokens:
        if token.children:
            token.children = list(_linked(token.children, PurePosixPath(name).parent))
    html = _markdown().renderer.render(tokens, _markdown().options, {})
    # The files are our own, and raw HTML in them is escaped.
    return Document(title, mark_safe(html))  # noqa: S308


@cache
def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("table_open", lambda *_: '<div class="table" tabindex="0"><table>')
    markdown.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return markdown.use(anchors_plugin, max_level=4)


def _linked(tokens: Iterable[Token], folder: PurePosixPath) -> Iterable[Token]:
    """The tokens with addresses of this site. Other pictures, and links to other files, become plain text."""
    dropped = False
    for token in tokens:
        if token.type == "image":
            name = PurePosixPath(str(token.attrs["src"])).name
            token.attrs["src"] = reverse("help_picture", args=[name])
            yield token if name in pictures() else Token("text", "", 0, content=token.content)
        elif token.type == "link_open":
            target = _target(str(token.attrs["href"]), folder)
            dropped = target is None
            if target is not None:
                token.attrs["href"] = target
                yield token
        elif token.type != "link_close" or not dropped:
            yield token


def _target(href: str, folder: PurePosixPath) -> str | None:
    """The address to link to; ``None`` for a file that is not served."""
    path, mark, anchor = href.partition("#")
    if not path or "://" in path:
        return href
    name = normpath(folder / path).removesuffix(".md")
    return f"{address(name)}{mark}{anchor}" if path.endswith(".md") and name in names() else None
