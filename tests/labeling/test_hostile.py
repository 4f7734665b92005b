"""Hostile responses are inert: what a browser would make of them holds nothing but harmless elements."""

from urllib.parse import urlsplit

import hypothesis
import pytest
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from engine.domain.texts import storable
from engine.models import Assignment, Experiment, Response
from labeling import rendering
from labeling.rendering import render_markdown
from tests.factories import make_experiment
from tests.labeling.hostile import PAYLOADS
from tests.markup import Markup

pytestmark = pytest.mark.slow

SHORT = [storable(text) for text in PAYLOADS.values() if len(text) < 200]
each_payload = pytest.mark.parametrize("name", PAYLOADS)

# Nothing here loads, runs, submits, names itself or covers anything.
HARMLESS = {
    "p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "span", "div",
    "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "a",
    "math", "mrow", "mi", "mo", "mn", "mtext", "mspace", "mfrac", "msqrt", "mroot", "msup", "msub", "msubsup",
    "munder", "mover", "munderover", "mtable", "mtr", "mtd", "mpadded", "mphantom",
}  # fmt: skip
_CLASSES = {"math", "inline", "block", "table", "code", "picture"}
ATTRIBUTES = {
    "a": {"href", "rel", "title", "target"},
    "ol": {"start"},
    "span": {"class"},
    "div": {"class"},
    "math": {"display"},
    "mo": {"stretchy", "fence"},
}


def assert_inert(rendered: str) -> None:
    markup = Markup(rendered)
    for element in markup.elements:
        assert element.tag in HARMLESS, element
        assert set(element.attributes) <= ATTRIBUTES.get(element.tag, set()) | {"dir"}, element
        assert element.attributes.get("dir", "auto") == "auto", element
        for name in element.attributes.get("class", "").split():
            assert name.startswith("hl-") or name in _CLASSES, element
        if "href" in element.attributes:
            address = urlsplit(element.attributes["href"])
            assert address.scheme in {"http", "https"}, element
            assert address.netloc, element
            assert set(element.attributes["rel"].split()) >= {"noopener", "noreferrer", "nofollow"}, element
    assert markup.other == []
    assert markup.unbalanced == []


@each_payload
def test_a_payload_is_inert_wherever_it_stands_and_swallows_nothing_that_follows(name):
    payload = storable(PAYLOADS[name])
    frames = ("{}", "> - {}", "**{}**", "|a|\n|-|\n|{}|", "Before.\n\n{}\n\nAfter.")
    for frame in frames if len(payload) < 2_000 else frames[:1]:
        assert_inert(render_markdown(frame.replace("{}", payload)))
    shown = Markup(render_markdown(f"Before.\n\n{payload}\n\n```\n\nAfter.")).text
    assert "Before." in shown
    assert "After." in shown


@hypothesis.settings(max_examples=50)
@given(st.text(max_size=200) | st.lists(st.sampled_from(SHORT), max_size=4).map("\n".join))
def test_no_text_at_all_gets_harm_through(text):
    assert_inert(render_markdown(storable(text)))


@each_payload
def test_what_could_keep_an_annotator_waiting_is_not_parsed_at_all(name, monkeypatch):
    """The bound on the work: nothing beyond these limits reaches the parser."""
    parsed = []
    markdown = rendering._markdown()

    class Watched:
        def __getattr__(self, attribute):
            return getattr(markdown, attribute)

        def render(self, text, *arguments):
            parsed.append(text)
            return markdown.render(text, *arguments)

        def parse(self, text, *arguments):
            parsed.append(text)
            return markdown.parse(text, *arguments)

    rendering._formatted.cache_clear()
    monkeypatch.setattr(rendering, "_markdown", Watched)
    rendered = render_markdown(storable(PAYLOADS[name]))
    for text in parsed:
        assert len(text) <= 12_001
        assert text.count("[") <= 500
    # Not even a table with short rows, which the parser fills up, comes out much larger than it went in.
    assert len(rendered) <= 40 * len(PAYLOADS[name]) + 60_000
    if not parsed:
        assert {element.tag for element in Markup(rendered).elements} == {"pre"}


@pytest.mark.django_db
def test_no_payload_changes_the_page_around_it(annotator, client_for):
    experiment = make_experiment(
        n_policies=2, n_tasks=1, ready=True, annotators=(annotator,), guidelines="Plain."
    )
    client, url = client_for(annotator), reverse("pair", args=[experiment.pk])
    plain = skeleton(client.get(url).content.decode())
    assert len(plain) > 30
    comparison = Assignment.objects.get().comparison
    shown = (comparison.response_i_id, comparison.response_j_id)
    left, right = Response.objects.filter(pk__in=shown)
    # tests/browser shows those that are long.
    texts = [text for text in map(storable, PAYLOADS.values()) if len(text) < 2_000]
    for n in range(0, len(texts), 3):
        left.text, right.text, text = (texts + texts[:2])[n : n + 3]
        Response.objects.bulk_update([left, right], ["text"])
        experiment.tasks.update(prompt=text)
        # Empty guidelines leave no place for guidelines.
        Experiment.objects.update(guidelines=text or "Plain.", question=text[:300])
        page = client.get(url)
        assert page.status_code == 200, n
        assert skeleton(page.content.decode()) == plain, n


def skeleton(page: str) -> list[tuple[str, str, str]]:
    """The elements of a page that have a role in it, in order."""
    return [
        (element.tag, element.attributes.get("id", ""), element.attributes.get("name", ""))
        for element in Markup(page).elements
        if element.tag not in HARMLESS | {"details", "summary"} or "id" in element.attributes
    ]
