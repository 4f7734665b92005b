"""A part of a page that is the same for many people, rendered once in each process."""

from __future__ import annotations

from collections.abc import Sequence

from django import template
from django.template.base import FilterExpression, Node, NodeList, Parser, Token
from django.utils.translation import get_language

register = template.Library()

# Far more than there are experiments that people judge at one time.
_MOST = 1000


class _Live(Node):
    """A place in a kept part that is rendered each time."""

    def __init__(self, nodelist: NodeList) -> None:
        self.nodelist = nodelist

    def render(self, context: template.Context) -> str:
        return self.nodelist.render(context)


class _Kept(Node):
    """The rest of the part, rendered once for each language and each of the values that it depends on."""

    def __init__(self, depends_on: Sequence[FilterExpression], nodelist: NodeList) -> None:
        self.nodelist = nodelist
        self._depends_on = depends_on
        self._kept: dict[tuple[str, ...], list[str | _Live]] = {}

    def render(self, context: template.Context) -> str:
        key = (str(get_language()), *(str(each.resolve(context)) for each in self._depends_on))
        if (parts := self._kept.get(key)) is None:
            if len(self._kept) >= _MOST:
                self._kept.clear()
            parts = self._kept[key] = self._parts(context)
        return "".join(part if isinstance(part, str) else _rendered(part, context) for part in parts)

    def _parts(self, context: template.Context) -> list[str | _Live]:
        return [node if isinstance(node, _Live) else _rendered(node, context) for node in self.nodelist]


def _rendered(node: Node, context: template.Context) -> str:
    # As a list of nodes does it, so that an error names its place in the template.
    return str(node.render_annotated(context))


@register.tag
def kept(parser: Parser, token: Token) -> _Kept:
    """``{% kept a b %}…{% endkept %}``: rendered once for each language and each pair of values of a and b,
    but for what stands between ``{% live %}`` and ``{% endlive %}``. All else in it must follow from these.
    """
    depends_on = [parser.compile_filter(name) for name in token.split_contents()[1:]]
    return _Kept(depends_on, _body(parser, "endkept"))


@register.tag
def live(parser: Parser, token: Token) -> _Live:
    """A part that is rendered each time, directly within ``{% kept %}``.

    Raises
    ------
    TemplateSyntaxError
        It stands elsewhere, as within an ``{% if %}`` that would be kept.
    """
    around = [name for name, _ in parser.command_stack[:-1]]
    if around[-1:] != ["kept"]:
        raise template.TemplateSyntaxError("{% live %} stands directly within {% kept %}, and nowhere else.")
    return _Live(_body(parser, "endlive"))


def _body(parser: Parser, end: str) -> NodeList:
    nodes = parser.parse((end,))
    parser.delete_first_token()
    return nodes
