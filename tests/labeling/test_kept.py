"""Parts of pages that are rendered once for many people: what may differ is rendered anew."""

from __future__ import annotations

import pytest
from django.template import Context, Template, TemplateSyntaxError
from django.utils import translation

from labeling.templatetags import kept


class Counted:
    """A value that counts how often it was asked for."""

    def __init__(self) -> None:
        self.n = 0

    def __str__(self) -> str:
        self.n += 1
        return f"<{self.n}>"


def test_only_what_is_live_is_rendered_again():
    part = Template(
        "{% load kept %}{% kept key %}a{{ once }}b{% live %}{{ each }}c{% endlive %}d{{ once }}{% endkept %}e"
    )
    once, each = Counted(), Counted()
    context = Context({"key": 1, "once": once, "each": each})
    assert [part.render(context) for _ in range(3)] == [
        f"a&lt;1&gt;b&lt;{n}&gt;cd&lt;2&gt;e" for n in (1, 2, 3)
    ]
    # Another value, and another language, have their own.
    assert part.render(Context({"key": 2, "once": once, "each": each})) == "a&lt;3&gt;b&lt;4&gt;cd&lt;4&gt;e"
    with translation.override("de"):
        assert part.render(context) == "a&lt;5&gt;b&lt;5&gt;cd&lt;6&gt;e"
    assert part.render(context) == "a&lt;1&gt;b&lt;6&gt;cd&lt;2&gt;e"


def test_values_are_not_run_together():
    part = Template("{% load kept %}{% kept first second %}{{ first }}, {{ second }}{% endkept %}")
    assert part.render(Context({"first": "ab", "second": "c"})) == "ab, c"
    assert part.render(Context({"first": "a", "second": "bc"})) == "a, bc"
    assert part.render(Context({"first": "ab"})) == "ab, "


def test_no_more_is_kept_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(kept, "_MOST", 3)
    part = Template("{% load kept %}{% kept key %}{{ once }}{% endkept %}")
    once = Counted()
    for key in [1, 2, 3, 1, 2, 3]:
        part.render(Context({"key": key, "once": once}))
    assert once.n == 3
    for key in [4, 1, 4]:
        part.render(Context({"key": key, "once": once}))
    assert once.n == 5


@pytest.mark.parametrize(
    "source",
    [
        "{% load kept %}{% live %}a{% endlive %}",
        "{% load kept %}{% kept key %}{% if key %}{% live %}a{% endlive %}{% endif %}{% endkept %}",
        "{% load kept %}{% kept key %}{% live %}{% live %}a{% endlive %}{% endlive %}{% endkept %}",
    ],
)
def test_live_stands_directly_within_kept(source):
    """Within something that is kept it would never be rendered again."""
    with pytest.raises(TemplateSyntaxError, match="directly within"):
        Template(source)
