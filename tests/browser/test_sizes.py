"""The annotator's page at every size: the responses have half of the height, and nothing is cut."""

import pytest
from playwright.sync_api import Browser

from engine.models import Response
from tests.browser.annotating import settled, write_everything
from tests.browser.conftest import log_in, watch
from tests.browser.test_accessibility import violations
from tests.factories import make_experiment, make_user

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

# Width, height, whether it is touched, and the size of letters that its user has set.
SIZES = {
    "desk": (1280, 800, False, 16),
    "laptop": (1366, 640, False, 16),
    "phone": (390, 844, True, 16),
    "phone on its side": (844, 390, True, 16),
    "zoomed to 200%": (640, 400, False, 16),
    "small phone": (320, 568, True, 16),
    "zoomed to 400%": (320, 256, False, 16),
    "large letters": (1280, 800, False, 26),
    "phone with large letters": (390, 844, True, 26),
}
TEXTS = {"en-US": "A paragraph of a response.\n\n" * 40, "de-DE": "Eine kurze Antwort."}

# The share of the height in which responses are seen: all of it where all of both is.
SHARE = """() => {
  const foot = document.querySelector("#stage .choices").getBoundingClientRect().top;
  const boxes = [...document.querySelectorAll("#stage .response")].map((box) => box.getBoundingClientRect());
  const seen = boxes.filter((box) => box.left >= 0 && box.right <= innerWidth);
  const top = Math.min(...seen.map((box) => box.top)), bottom = Math.max(...seen.map((box) => box.bottom));
  const fits = [...document.querySelectorAll("#stage .response, #stage .text")]
    .every((each) => each.scrollHeight <= each.clientHeight + 1);
  if (seen.length === 2 && fits && top >= 0 && bottom <= foot) return 1;
  return (Math.min(bottom, foot) - Math.max(0, top)) / innerHeight;
}"""
# What is cut at its own edge, or at that of the screen.
CUT = """() => [...document.querySelectorAll(".pairing :is(button, a, #said, #everybody, .question)")]
  .filter((each) => each.checkVisibility({visibilityProperty: true}) && each.textContent.trim())
  .filter((each) => !each.matches(".skip-link") && !each.closest(".languages, .unseen"))
  .filter((each) => {
    const box = each.getBoundingClientRect();
    if (box.bottom < 0 || box.top > innerHeight) return false; // a page that scrolls, as at 400%
    const over = each.scrollWidth > each.clientWidth + 1 && each.clientWidth;
    return over || box.left < 0 || box.right > innerWidth + 0.5;
  }).map((each) => each.outerHTML.slice(0, 100))"""


@pytest.mark.parametrize("locale", TEXTS)
def test_the_responses_have_half_of_the_height_and_nothing_is_cut(
    browser: Browser, live_server, problems, settings, locale
):
    settings.BUFFER_MIN = settings.BUFFER_MAX = 4
    experiment = make_experiment(
        n_policies=3,
        annotators=(make_user("ann"),),
        allow_tie=True,
        allow_both_bad=True,
        question="Which response would you rather send to a customer?",
    )
    write_everything(experiment)
    Response.objects.update(text=TEXTS[locale])
    experiment.tasks.update(prompt="My parcel has not come. Who pays? " * 9)
    shares, cut, keys, wide, found = {}, {}, {}, {}, {}
    for name, (width, height, touched, letters) in SIZES.items():
        with watch(
            browser.new_context(
                base_url=live_server.url,
                viewport={"width": width, "height": height},
                is_mobile=touched,
                has_touch=touched,
                locale=locale,
                reduced_motion="reduce",
            ),
            live_server,
            problems,
        ) as context:
            page = context.new_page()
            fonts = {"standard": letters, "fixed": letters}
            context.new_cdp_session(page).send("Page.setFontSizes", {"fontSizes": fonts})
            log_in(page, experiment.memberships.get().user)
            page.goto(f"/label/{experiment.pk}/")
            settled(page)
            assert page.evaluate("getComputedStyle(document.documentElement).fontSize") == f"{letters}px"
            shares[name] = page.evaluate(SHARE)
            cut[name] = page.evaluate(CUT)
            wide[name] = page.evaluate("document.documentElement.scrollWidth") > width
            if touched:
                keys[name] = page.locator("kbd:visible").count()
            found[name] = violations(page)
    assert {name: share for name, share in shares.items() if share < 0.5} == {}
    assert {name: each for name, each in cut.items() if each} == {}
    assert {name for name, each in wide.items() if each} == set()
    assert {name: each for name, each in keys.items() if each} == {}
    assert {name: each for name, each in found.items() if each} == {}
    assert problems == []
