"""Every page for everybody: axe-core finds nothing, in light and in dark; zoomed in, nothing runs off the
side.
"""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.db import transaction
from django.utils import timezone
from playwright.sync_api import Browser, BrowserContext, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from engine.core import StopReason
from engine.models import Examination, Experiment, Flag, PairCount, Response, WorkerPulse
from engine.services.experiments import conclude, pause, stop
from engine.services.tokens import make_token
from tests.browser.annotating import write_everything
from tests.browser.conftest import log_in, watch
from tests.factories import click_on, invited, make_experiment, make_user, subscribed
from tests.opinions import opine, shadow

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

RICH = (
    """# A heading

A paragraph with **strong**, *emphasis*, `code`, [a link](https://example.org/) and $x^2 + \\frac{1}{2}$.

| a | b |
|---|---|
| 1 | 2 |

```python
def f(x: int) -> str:
    return f"{x}"  # a comment
```

> quoted

1. one
2. two

"""
    + "Another paragraph, so that there is something to scroll.\n\n" * 30
)


@pytest.fixture
def world(transactional_db) -> dict[str, object]:
    """People and experiments such that every page has something on it."""
    annotator, admin = make_user("ann"), make_user("admin", is_superuser=True)
    options = {"annotators": (annotator,), "allow_tie": True, "allow_both_bad": True, "guidelines": RICH}
    busy = make_experiment(n_policies=4, ready=True, **options)
    click_on(busy, annotator, 12)
    shadow(busy)
    opine(busy)
    write_everything(busy)
    Response.objects.filter(comparisons_as_i__state="ready").update(text=RICH)
    idle = make_experiment(n_policies=4, **options)
    practice = make_experiment(ready=True, practice=2, n_gold=2, **options)
    paused, finished = make_experiment(ready=True, **options), make_experiment(ready=True, **options)
    pause(experiment_id=paused.pk)
    stop(experiment_id=finished.pk)
    won = make_experiment(ready=True, **options)
    click_on(won, annotator, 8)
    with transaction.atomic():
        conclude(
            experiment=won,
            conclusion=StopReason.CERTIFIED,
            winner=won.policies.get(index=0),
            claim="best_if_any",
            finding="It is the best, if there is a best.",
            by=None,
        )
    draft = make_experiment(running=False)
    many = make_experiment(n_policies=15, ready=True, **options)
    click_on(many, annotator, 4)
    fill_the_dashboard(many)
    Flag.objects.create(
        comparison=busy.comparisons.filter(state="judged").first(),
        annotator=annotator,
        reason="broken",
        comment="The second one ends in the middle of a sentence.",
    )
    subscribed(busy)
    subscribed(busy, kind="webhook", target="https://example.org/" + "a-long-path/" * 20)
    make_token(user=admin, name="nightly export", valid_days=9)
    return {
        "annotator": annotator,
        "admin": admin,
        "token": invited(busy, most_uses=9).token,
        "judged": busy.comparisons.filter(state="judged").first().pk,
        **{name: e.pk for name, e in {"busy": busy, "idle": idle, "practice": practice, "paused": paused,
                                       "finished": finished, "won": won, "draft": draft,
                                       "many": many}.items()},
    }  # fmt: skip


def fill_the_dashboard(experiment: Experiment) -> None:
    """Every shade of the heat map, a cycle to warn of, a worker in trouble, and what was found without
    somebody.
    """
    for n, pair in enumerate(PairCount.objects.filter(experiment=experiment)):
        PairCount.objects.filter(pk=pair.pk).update(comparisons=20, wins_i=n % 21)
    WorkerPulse.objects.create(
        queue="generation", worker="w", details={"trouble": "no model", "gpu_memory": [1, 2]}
    )
    row = {
        "annotator": "ann",
        "judgments": 4,
        "comparisons": 0,
        "best": None,
        "reason": "",
        "text": "",
    }
    as_asked = {"comparisons": 2, "judged": 3, "best": 0, "reason": "", "text": ""}
    Examination.objects.create(
        experiment=experiment,
        replays_wanted_at=timezone.now(),
        findings={"n_judgments": 3, "at": timezone.now().isoformat(), "rows": [row], "as_asked": as_asked},
    )


def pages(world: dict[str, object]) -> dict[str | None, list[str]]:
    """The pages to check, by user."""
    return {
        None: [
            "/accounts/login/",
            "/help/",
            "/help/dashboard/",
            f"/join/{world['token']}/",
            "/join/no-such-invitation/",
        ],
        "annotator": [
            "/",
            f"/label/{world['busy']}/",
            f"/label/{world['idle']}/",
            f"/label/{world['practice']}/",
            f"/label/{world['paused']}/",
            f"/label/{world['finished']}/",
            f"/label/{world['busy']}/history/",
            f"/label/{world['idle']}/history/",
            f"/label/{world['busy']}/welcome/",
            f"/label/{world['practice']}/welcome/",
        ],
        "admin": [
            "/",
            f"/experiments/{world['busy']}/",
            f"/experiments/{world['draft']}/",
            f"/experiments/{world['many']}/",
            f"/experiments/{world['won']}/",
            *(f"/experiments/{world['many']}/{tab}/" for tab in ("quality", "method", "setup", "policies/1")),
            f"/experiments/{world['busy']}/quality/",
            f"/experiments/{world['busy']}/comparisons/",
            f"/experiments/{world['busy']}/comparisons/?annotator=ann",
            f"/experiments/{world['draft']}/comparisons/",
            f"/experiments/{world['busy']}/comparisons/{world['judged']}/",
            f"/experiments/{world['busy']}/remarks/",
            f"/experiments/{world['busy']}/export/",
            f"/experiments/{world['many']}/report/",
            f"/experiments/{world['busy']}/settings/",
            f"/experiments/{world['finished']}/settings/",
            f"/experiments/{world['finished']}/winner/",
            f"/experiments/{world['busy']}/people/",
            f"/experiments/{world['busy']}/log/",
            "/accounts/",
            "/accounts/keys/",
            "/tokens/",
            "/api/docs",
            f"/join/{world['token']}/",
            "/experiments/new/",
            "/experiments/new/prompts-strategies/",
            f"/experiments/{world['draft']}/setup/",
            f"/experiments/{world['draft']}/delete/",
        ],
    }


def each_page(page: Page, world: dict[str, object]) -> Iterator[str]:
    for who, addresses in pages(world).items():
        page.context.clear_cookies()
        if who is not None:
            log_in(page, world[who])
        for address in addresses:
            page.goto(address)
            if address.startswith("/experiments/"):
                page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
            yield f"{who or 'nobody'} at {address}"


# What a colour can break. Nothing else of a page differs between light and dark.
_RULES_OF_COLOUR = {
    "resultTypes": ["violations"],
    "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]},
}


def violations(page: Page) -> list[str]:
    """Findings of axe-core on the page in light, and on its colours in dark."""
    light = Axe().run(page).response
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("() => getComputedStyle(document.documentElement).colorScheme === 'dark'")
    dark = page.evaluate("(options) => axe.run(document, options)", _RULES_OF_COLOUR)
    page.emulate_media(color_scheme="light")
    return [
        f"{scheme}: {each['id']}: {node['html'][:150]}"
        for scheme, found in {"light": light, "dark": dark}.items()
        for each in found["violations"]
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)], ids=["desk", "phone"])
def test_axe_finds_nothing_on_any_page(browser: Browser, live_server, problems, world, size):
    with watch(
        browser.new_context(
            base_url=live_server.url,
            color_scheme="light",
            viewport={"width": size[0], "height": size[1]},
            reduced_motion="reduce",
        ),
        live_server,
        problems,
    ) as context:
        page = context.new_page()
        found = {where: violations(page) for where in each_page(page, world)}
        page.context.clear_cookies()
        log_in(page, world["annotator"])
        found |= opened(page, world)
    # A page that refuses an invitation, and is logged by the browser as the 410 that it is.
    gone = [problem for problem in problems if "410" in problem]
    assert [problem for problem in problems if problem not in gone] == []
    assert len(found) >= 20
    listed = sorted({f"{where}: {each}" for where, what in found.items() for each in what})
    assert not listed, "\n".join(listed)


def opened(page: Page, world: dict[str, object]) -> dict[str, list[str]]:
    """The states of the pair page that come with a key."""
    found = {}
    page.goto(f"/label/{world['busy']}/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    found["help"] = violations(page)
    page.keyboard.press("?")
    page.keyboard.press("s")
    expect(page.locator("#reason")).to_be_focused()
    found["comment and skip"] = violations(page)
    return found


# A page 1280 wide at 400% and at 200%: in its own pixels it has a quarter of the room, or half.
_ZOOMED = ({"width": 320, "height": 640}, {"width": 640, "height": 400})


def test_zoomed_in_nothing_runs_off_the_side(browser: Browser, live_server, problems, world):
    wide = {}
    with watch(
        browser.new_context(base_url=live_server.url, viewport=_ZOOMED[-1]), live_server, problems
    ) as context:
        page = context.new_page()
        for where in each_page(page, world):
            for size in _ZOOMED:
                page.set_viewport_size(size)
                try:
                    # Charts take the new width a moment after the page does.
                    page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
                except PlaywrightTimeoutError:
                    wide[where, size["width"]] = page.evaluate("document.documentElement.scrollWidth")
    assert wide == {}


def test_zoomed_in_a_pair_can_be_read_and_judged(context: BrowserContext, world):
    # The pair that comes first depends on the experiment's secret; every response needs to be a long one.
    Response.objects.filter(policy__experiment=world["busy"]).update(text="A long response. " * 400)
    page = context.new_page()
    page.set_viewport_size({"width": 640, "height": 400})
    log_in(page, world["annotator"])
    page.goto(f"/label/{world['busy']}/")
    for identifier in (
        "others",
        "choose-left",
        "choose-right",
        "choose-tie",
        "choose-both-bad",
        "skip",
        "undo",
    ):
        if identifier in {"choose-both-bad", "undo"}:
            page.locator("#others").click()  # opens what it hides, and folds it again
        button = page.locator(f"#{identifier}")
        button.scroll_into_view_if_needed()
        box = button.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 640
        button.click(trial=True)  # visible, enabled, and under nothing else
    text = page.locator(".response .text").first
    text.scroll_into_view_if_needed()
    assert text.evaluate("text => text.scrollHeight > text.clientHeight")
    text.focus()
    page.keyboard.press("PageDown")
    page.wait_for_function("() => document.querySelector('.response .text').scrollTop > 0")
    assert Experiment.objects.get(pk=world["busy"]).comparisons.filter(state="assigned").exists()
