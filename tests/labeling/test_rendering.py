"""A model's text made safe to show, and shown in full."""

import html
import re

import pytest
from django.utils import translation
from hypothesis import given
from hypothesis import strategies as st

from labeling import rendering
from labeling.formatting import risk
from labeling.rendering import difference, excerpt, render_markdown


def visible(rendered: str) -> str:
    """The visible text of some HTML."""
    return html.unescape(re.sub(r"<[^>]*>", "", rendered))


def tags(rendered: str) -> set[str]:
    return set(re.findall(r"<\s*([a-zA-Z0-9]+)", rendered))


def without_direction(rendered: str) -> str:
    return rendered.replace(' dir="auto"', "")


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("plain", "<p>plain</p>\n"),
        (
            "**bold** *it* ~~gone~~ `code`",
            "<p><strong>bold</strong> <em>it</em> <s>gone</s> <code>code</code></p>\n",
        ),
        ("one\ntwo", "<p>one<br>\ntwo</p>\n"),
        ("5. five\n6. six", '<ol start="5">\n<li>five</li>\n<li>six</li>\n</ol>\n'),
        ("39. Because *x*", "<p>39. Because <em>x</em></p>\n"),
        ("39) Because\n", "<p>39) Because</p>\n"),
        ("> quoted", "<blockquote>\n<p>quoted</p>\n</blockquote>\n"),
        ("a < b && c > d", "<p>a &lt; b &amp;&amp; c &gt; d</p>\n"),
        ("", ""),
    ],
)
def test_markdown_is_rendered(text, rendered):
    assert without_direction(render_markdown(text)) == rendered


def test_a_table_is_aligned_in_a_box_of_its_own():
    """The alignment was a style, which was taken out."""
    rendered = without_direction(render_markdown("|a|b|c|\n|:-|:-:|-:|\n|1|2|3|\n\nend"))
    assert {"table", "thead", "tbody", "tr", "th", "td"} <= tags(rendered)
    assert rendered.startswith('<div class="table"><table>')
    assert rendered.endswith("</table>\n</div>\n<p>end</p>\n")
    assert re.findall(r'<t[hd] class="([^"]*)">', rendered) == ["to-left", "to-center", "to-right"] * 2


@pytest.mark.parametrize("code", ["```\nx = 1\n```", "    x = 1"])
def test_code_stands_in_a_box_of_its_own(code):
    box = '<div class="code"><pre><code>x = 1\n</code></pre>\n</div>\n'
    rendered = without_direction(render_markdown(f"one\n\n{code}\n\nend"))
    assert rendered == f"<p>one</p>\n{box}<p>end</p>\n"


def test_code_is_highlighted_by_classes_alone():
    rendered = render_markdown("```python\nprint('<b>')\n```")
    assert 'class="hl-nb"' in rendered
    assert visible(rendered).strip() == "print('<b>')"
    assert "style=" not in rendered


@pytest.mark.parametrize("language", sorted(rendering._LANGUAGES))
def test_each_language_is_known_in_capitals_too(language):
    assert "hl-" in render_markdown(f'```{language.upper()}\n{{ "a": <b c="1">2</b> }} // d\n- 1\n```')


@pytest.mark.parametrize("language", ['"onload=x', "aspectj", "autoit"])
def test_code_in_a_language_of_few_is_shown_as_it_is(language):
    """A page of blanks kept the reader of AutoIt for seconds."""
    rendered = render_markdown(f"```{language}\nfoo\n```")
    assert visible(rendered).strip() == "foo"
    assert "<span" not in rendered


def test_long_code_is_shown_as_it_is():
    """Words without an end took Java's reader three seconds."""
    code = "foo " * 990
    assert "hl-" in render_markdown(f"```java\n{code}\n```")
    assert "hl-" not in render_markdown(f"```java\n{code}\n{code}\n```")


def test_maths_becomes_mathml():
    rendered = render_markdown(r"$x^2$ and $$\frac{1}{2}$$")
    assert {"math", "msup", "mfrac"} <= tags(rendered)


ALIKE = [
    "$x^2$",
    r"\(x^2\)",
    "$$x^2$$",
    r"\[x^2\]",
    "$$\nx^2\n$$",
    "\\[\nx^2\n\\]",
    "So $$x^2$$.",
    r"So \[x^2\].",
]
ALIGNED = "\\begin{%s}\na &= b \\\\\nc &= d\n\\end{%s}"


@pytest.mark.parametrize("text", ALIKE)
def test_maths_looks_alike_however_it_is_marked(text):
    rendered = render_markdown(text)
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in rendered
    assert visible(rendered).strip() in {"x2", "So x2."}


@pytest.mark.parametrize(
    ("name", "around"),
    [
        *((name, "%s") for name in ("align", "align*")),
        *((name, "$$\n%s\n$$") for name in ("align", "aligned", "split")),
        *((name, "\\[\n%s\n\\]") for name in ("align", "aligned", "split")),
    ],
)
def test_aligned_equations_are_a_table_however_they_are_marked(name, around):
    rendered = render_markdown(around % ALIGNED.replace("%s", name))
    assert rendered.count("<mtr>") == 2
    assert "&amp;" not in rendered


@pytest.mark.parametrize("text", [r"`\(x\)`", "```\n\\[x\\]\n```", "    $x$"])
def test_code_is_no_maths(text):
    assert "<math" not in render_markdown(text)


def test_two_responses_are_formatted_both_or_neither():
    formatted, long = "A **word**", "x" * 12_002
    assert tags(render_markdown(formatted, beside="Another")) == {"p", "strong"}
    assert tags(render_markdown(formatted, beside=long)) == {"pre"}
    many_lines, long_line = "a line\n" * 1_000, "word " * 2_000
    assert "strong" in tags(render_markdown(formatted, beside=many_lines))
    assert "strong" in tags(render_markdown(formatted, beside=long_line))


def test_a_definition_of_a_link_is_not_hidden():
    assert "[a]: b" in visible(render_markdown("One\n\n[a]: b"))


@pytest.mark.parametrize("text", ["It costs $5 and $10.", "$ x $", "$5"])
def test_prices_are_no_maths(text):
    assert "<math" not in render_markdown(text)
    assert visible(render_markdown(text)).strip() == text


@pytest.mark.parametrize(
    ("address", "leads_to"),
    [
        ("https://example.org/a.png?b=1&c=2", "https://example.org/a.png?b=1&c=2"),
        ("data:image/png;base64,AAAA", None),
        ("a.png", None),
    ],
)
def test_a_picture_is_a_box_of_its_words_with_a_link_where_one_can_be_followed(address, leads_to):
    rendered = render_markdown(f"before ![A *red* <fox>]({address}) after")
    assert "img" not in tags(rendered)
    (box,) = re.findall(r'<span class="picture">(.*?)</span>', rendered)
    assert visible(box).startswith("Picture, not loaded: A red <fox>")
    links = re.findall(r'<a href="([^"]*)"', box)
    assert [html.unescape(link) for link in links] == ([leads_to] if leads_to else [])


def test_the_words_about_a_picture_are_in_the_language_of_each_reader():
    text = "![fox](https://example.org/fox.png)"
    assert "Picture, not loaded: fox" in render_markdown(text)
    with translation.override("de"):
        assert "Bild, nicht geladen: fox" in render_markdown(text)


def test_a_link_goes_to_http_and_tells_the_other_side_nothing():
    rendered = render_markdown("[a](https://example.org/?q=1)")
    assert 'href="https://example.org/?q=1"' in rendered
    assert 'rel="noopener noreferrer nofollow"' in rendered


@given(st.text(alphabet="ab12<>/&*_#-| \n\"'=~+.", max_size=120))
def test_no_word_of_a_response_is_hidden(text):
    """The page must show every letter and number, for any markup."""

    def said(shown: str) -> str:
        return re.sub(r"[^ab12]", "", shown)

    rendered = visible(render_markdown(text))
    # The numbers of a list are its markers, and drawn by the browser.
    assert re.sub("[12]", "", said(rendered)) == re.sub("[12]", "", said(text))


@pytest.mark.parametrize(
    "text",
    [
        "> " * 100 + "deep",
        "\n".join("  " * k + "- x" for k in range(60)),
        "x" * 12_002,
        "[" * 501,
        r"\(" * 501,
    ],
    ids=["quotes", "lists", "long", "brackets", "formulas"],
)
def test_what_would_be_cut_or_take_long_is_shown_as_it_is(text):
    rendered = render_markdown(text)
    assert tags(rendered) == {"pre"}
    assert visible(rendered) == text


@pytest.mark.parametrize(("value", "shown"), [(0.05, "5%"), (0.15, "15%"), (0.07, "7%"), (0.001, "0.1%")])
def test_a_risk_is_shown_as_it_was_chosen(value, shown):
    assert risk(value) == shown


@pytest.mark.parametrize("level", [2, 3, 4])
def test_headings_fit_in_below_those_of_the_page(level):
    rendered = render_markdown("# One\n\n> ### Two\n\nThree\n-----\n\n###### Four", level)
    assert re.findall(r"<(h\d)[ >]", rendered) == [f"h{level}"] * 4
    assert re.findall(r"</(h\d)>", rendered) == [f"h{level}"] * 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("**Short:** press `Save`.\nThen [wait](http://x.example).", "Short: press Save. Then wait."),
        ("## Steps\n\n1. One\n2. *Two*\n\n- three", "Steps 1. One 2. Two three"),
        ("39. Because", "39. Because"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "a b 1 2"),
        ("```py\nx = 1\n```", "x = 1"),
        ("costs $x^2$ & <b>", "costs x^2 & <b>"),
        ("---", "---"),
        ("#", "#"),
        ("", ""),
    ],
)
def test_an_excerpt_is_one_line_without_marks(text, said):
    assert excerpt(text) == said


def test_an_excerpt_ends_where_it_is_told_to():
    assert excerpt("word " * 100, 20) == "word word word word…"
    assert excerpt("exactly", 7) == "exactly"
    assert excerpt("[](http://x.example/" + "y" * 2000 + ") and more", 20).endswith("…")


@given(st.text())
def test_an_excerpt_of_any_text_is_short_and_on_one_line(text):
    assert len(excerpt(text, 40)) <= 40
    assert len(excerpt(text, 40).splitlines()) <= 1


def test_changes_of_a_text_are_marked_word_by_word_and_escaped():
    marked = difference("Answer in one <b>short</b> sentence.", "Answer in two <b>short</b> warm sentences.")
    kept = re.sub(r"<del>.*?</del>|</?ins>", "", marked)
    assert kept == html.escape("Answer in two <b>short</b> warm sentences.")
    assert re.findall(r"<del>(.*?)</del>", marked) == ["one ", "sentence"]
    assert re.findall(r"<ins>(.*?)</ins>", marked) == ["two ", "warm sentences"]
    assert difference("Same.", "Same.") == "Same."
