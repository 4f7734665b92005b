"""Hostile responses in a real browser: the page stays whole, silent and usable."""

import pytest
from playwright.sync_api import Page, expect

from engine.domain.texts import storable
from engine.models import Comparison, Judgment, Response
from tests.browser.annotating import SETTLE_MS, open_pair, press, saved, write_everything
from tests.factories import make_experiment, make_user
from tests.labeling.hostile import PAYLOADS

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def test_every_payload_is_shown_and_judged_and_nothing_else_happens(page: Page, settings):
    """Two payloads to a pair; the problems fixture sees errors, dialogs and requests to other hosts."""
    texts = [storable(payload) for payload in PAYLOADS.values()]
    texts += [""] * (len(texts) % 2)
    n_pairs = len(texts) // 2
    settings.BUFFER_MIN = settings.BUFFER_MAX = n_pairs + 5
    annotator = make_user("ann")
    experiment = make_experiment(n_policies=4, n_tasks=20, annotators=(annotator,))
    write_everything(experiment)
    ready = list(Comparison.objects.filter(state="ready").order_by("pk")[:n_pairs])
    assert len({r for c in ready for r in (c.response_i_id, c.response_j_id)}) == 2 * n_pairs
    for number, comparison in enumerate(ready):
        Response.objects.filter(pk=comparison.response_i_id).update(text=texts[2 * number])
        Response.objects.filter(pk=comparison.response_j_id).update(text=texts[2 * number + 1])

    open_pair(page, experiment, annotator)
    whole = page.evaluate(_SHAPE)
    for number in range(n_pairs):
        names = list(PAYLOADS)[2 * number : 2 * number + 2]
        assert page.evaluate(_SHAPE) == whole, names
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), names
        for button in ("choose-left", "choose-right", "skip"):
            assert page.evaluate(_ON_TOP, button), (names, button)
        press(page, "1")
        saved(page, number + 1)
    assert Judgment.objects.count() == n_pairs
    assert page.context.pages == [page]
    page.wait_for_timeout(SETTLE_MS)
    expect(page.get_by_role("heading", name="Response A")).to_be_visible()


# The structure of the page without its texts, without a token that only the first pair needs, and without the
# line that says for a moment that an answer is saved.
_SHAPE = """() => [...document.querySelectorAll("body *:not([name=csrfmiddlewaretoken])")]
    .filter((e) => !e.closest(".text > *, .all, .guidelines, .task-text > *, [hidden], .switch, #said"))
    .map((e) => `${e.tagName}#${e.id}.${e.className}[${e.name ?? ""}]`).join("\\n")"""

# True if a click on the middle of a button would hit it.
_ON_TOP = """(id) => {
    const button = document.getElementById(id);
    button.scrollIntoView({ block: "nearest" });
    const box = button.getBoundingClientRect();
    const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    return button.contains(hit);
}"""
