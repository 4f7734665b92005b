"""Take the pictures in docs/images from a running demo.

Usage: python docs/take_screenshots.py [--url http://127.0.0.1:8000] [NAME …]    (all pictures without a NAME)

It logs in as the demo's annotator and admin. Before it takes pictures, it tries a draft of its own, and
answers pairs of the demo faster than anybody reads, so that Quality has marks to show.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

HERE = Path(__file__).resolve().parent
LOGINS = json.loads(Path(os.environ.get("VAR_DIR", HERE.parent / "var"), "demo-logins.json").read_text())
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
PAGES = {
    "annotator": {
        "home": "/",
        "welcome": "/label/1/welcome/",
        "pair": "/label/1/",
        "history": "/label/1/history/",
    },
    "admin": {
        "experiments": "/",
        "new": "/experiments/new/",
        "setup": "/experiments/new/prompts-strategies/",
        "dashboard": "/experiments/2/",
        "quality": "/experiments/2/quality/",
        "marks": "/experiments/1/quality/",
        "method": "/experiments/2/method/",
        "policy": "/experiments/2/policies/1/",
        "comparisons": "/experiments/2/comparisons/",
        "comparison": "/experiments/2/comparisons/?state=judged",
        "export": "/experiments/2/export/",
        "settings": "/experiments/1/settings/",
        "people": "/experiments/1/people/",
        "invite": "/experiments/1/invitations/",
        "person": "/experiments/1/people/",
        "remarks": "/experiments/1/remarks/",
        "account": "/accounts/",
        "log": "/experiments/2/log/",
        "tokens": "/tokens/",
        "api": "/api/docs",
    },
}
# Pages reached by a link of the named page.
LINKS = {"comparison": "tbody th a", "person": "a[href*='/annotators/']"}
WHOLE_PAGES = {
    "dashboard",
    "quality",
    "marks",
    "try",
    "method",
    "policy",
    "history",
    "comparison",
    "people",
    "person",
    "settings",
}


# As many hasty answers as earn an annotator a mark, and a few more.
HASTY_ANSWERS = 24
# A pair of SmolLM2 takes seconds on two cores.
WAIT_MS = 300_000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="pictures to take, such as try or marks; all without")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    options = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM") or shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        pages = {login: dict(named) for login, named in PAGES.items()}
        if not options.names or "try" in options.names:
            pages["admin"]["try"] = try_a_draft(browser, options.url)
        if not options.names or "marks" in options.names:
            answer_in_haste(browser, options.url)
        for size in SIZES:
            for theme in ("light", "dark"):
                for login, named in pages.items():
                    chosen = {name: path for name, path in named.items() if name in (options.names or named)}
                    if chosen:
                        picture_pages(
                            browser, url=options.url, size=size, theme=theme, login=login, pages=chosen
                        )


def log_in(page: Page, login: str) -> None:
    page.goto("/accounts/login/")
    page.get_by_label("Name").fill(login)
    page.get_by_label("Password").fill(LOGINS[login])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/")


def try_a_draft(browser: Browser, url: str) -> str:
    """The address of a trial all of whose responses are written."""
    page = browser.new_context(base_url=url).new_page()
    log_in(page, "admin")
    page.goto("/experiments/new/prompts-strategies/")
    page.get_by_label("Name", exact=True).fill("Answers to everyday questions")
    page.get_by_role("button", name="2. Tasks").click()
    page.locator("#tasks").fill("How do I make a good cup of tea?")
    page.get_by_role("button", name="Save and try").click()
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_role("heading", name="Written")).to_be_visible(timeout=WAIT_MS)
    page.context.close()
    return page.url


def answer_in_haste(browser: Browser, url: str) -> None:
    """Have the annotator answer pairs at once, always for the left response."""
    page = browser.new_context(base_url=url).new_page()
    log_in(page, "annotator")
    page.goto("/label/1/")
    for _ in range(HASTY_ANSWERS):
        left = page.locator("#choose-left")
        expect(left).to_be_visible(timeout=WAIT_MS)
        pair = page.locator("#stage").get_attribute("data-token")
        left.click()
        expect(page.locator("#stage")).not_to_have_attribute("data-token", pair or "")
    page.context.close()


def picture_pages(
    browser: Browser, *, url: str, size: str, theme: str, login: str, pages: dict[str, str]
) -> None:
    width, height = SIZES[size]
    context = browser.new_context(
        base_url=url, viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce"
    )
    page = context.new_page()
    if "home" in pages:
        page.goto("/accounts/login/")
        page.screenshot(path=HERE / "images" / f"login-{size}-{theme}.png")
    log_in(page, login)
    for name, path in pages.items():
        page.goto(path)
        if link := LINKS.get(name):
            page.locator(link).first.click()
        page.wait_for_timeout(800)
        page.screenshot(path=HERE / "images" / f"{name}-{size}-{theme}.png", full_page=name in WHOLE_PAGES)
        if name == "pair":
            page.keyboard.press("?")
            page.wait_for_timeout(200)
            page.screenshot(path=HERE / "images" / f"help-{size}-{theme}.png")
    context.close()


if __name__ == "__main__":
    main()
