"""Take the pictures in docs/images from a demo with data of its own.

Usage: python -m tools.pictures [NAME …]    (all pictures without a NAME)

It logs in as the demo's annotator and admin. Before it takes pictures, it waits until the rule has decided
one experiment, tries a draft of its own, uploads a file, makes links, and answers pairs faster than anybody
reads, so that Quality has marks to show. At last it judges the other experiment of a second demo to its end,
reading each pair.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
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
        "votes": "/experiments/new/votes/",
        "setup": "/experiments/new/prompts-strategies/",
        "setup-tasks": "/experiments/new/prompts-strategies/",
        "setup-judges": "/experiments/new/prompts-strategies/",
        "setup-stop": "/experiments/new/prompts-strategies/",
        "begin": "/label/1/",
        "dashboard": "/experiments/2/",
        "report": "/experiments/2/report/",
        "quality": "/experiments/2/quality/",
        "marks": "/experiments/1/quality/",
        "method": "/experiments/2/method/",
        "described": "/experiments/2/setup/",
        "policy": "/experiments/2/policies/1/",
        "comparisons": "/experiments/2/comparisons/",
        "comparison": "/experiments/2/comparisons/?state=judged",
        "export": "/experiments/2/export/",
        "settings": "/experiments/1/settings/",
        "people": "/experiments/1/people/",
        "invite": "/experiments/1/invitations/",
        "person": "/experiments/1/people/",
        "voiding": "/experiments/1/comparisons/?annotator=annotator",
        "remarks": "/experiments/1/remarks/",
        "account": "/accounts/",
        "keys": "/accounts/keys/",
        "password": "/accounts/password/change/",
        "forgotten": "/accounts/password/reset/",
        "two-step": "/accounts/two-step/on/",
        "persons": "/persons/",
        "log": "/experiments/2/log/",
        "tokens": "/tokens/",
        "api": "/api/docs",
        "documents": "/help/",
        "document": "/help/dashboard/",
    },
}
# Pages reached by a link or a button of the named page.
LINKS = {
    "comparison": "tbody th a",
    "person": "a[href*='/annotators/']",
    "setup-tasks": "button:has-text('2. Tasks')",
    "setup-judges": "button:has-text('3. Judges')",
    "setup-stop": "button:has-text('4. Stop and start')",
    "voiding": "a[href*='/void']",
}
WHOLE_PAGES = {
    "dashboard",
    "report",
    "shared",
    "columns",
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


# Empty, or of practice, before somebody has answered.
OF_ANSWERS = {"pair", "marks", "history", "person", "voiding"}
# For scripts and pictures of a page.
SETTLE_MS = 800
# A page refuses a click just as a pair appears, and soon after another one as the half of a double click.
BETWEEN_ANSWERS_MS = 600
# As many hasty answers as earn an annotator a mark, and a few more.
HASTY_ANSWERS = 24
# A pair of SmolLM2 takes seconds on two cores.
WAIT_MS = 300_000


# The pair of a reader who clicks at once may be minutes behind.
MOST_CLICKS = 150
DECIDED = re.compile("^Use ")
_DECIDED_BY_CLICKS = "demo-result"
# The outcome may still take the place of a pair that was shown for less than this.
_STAYS_AFTER_MS = 2000
# Somebody who reads faster than 100 characters a second is in doubt.
_CHARACTERS_PER_MS = 0.09


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="pictures to take, such as try or marks; all without")
    wanted = parser.parse_args().names

    def is_wanted(name: str) -> bool:
        return not wanted or name in wanted

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM") or shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        if not wanted or set(wanted) - {_DECIDED_BY_CLICKS}:
            with visit_of_a_demo(browser) as visit:
                take(visit, is_wanted)
        if is_wanted(_DECIDED_BY_CLICKS):
            # A demo of its own: hasty answers would be in doubt on its result.
            with visit_of_a_demo(browser) as visit:
                visit.judge_to_the_end()


def take(visit: Visit, is_wanted: Callable[[str], bool]) -> None:
    """Take the wanted pictures of pages, at both sizes and in both themes."""
    pages = {login: dict(named) for login, named in PAGES.items()}
    visit.wait_for_the_rule()
    for login, name, address in (
        ("admin", "try", visit.try_a_draft),
        ("admin", "columns", visit.upload_votes),
        ("annotator", "join", visit.invite),
        ("annotator", "shared", visit.share),
    ):
        if is_wanted(name):
            pages[login][name] = address()
    if any(map(is_wanted, OF_ANSWERS)):
        visit.answer_in_haste()
    for size in SIZES:
        for theme in THEMES:
            for login, named in pages.items():
                chosen = {name: path for name, path in named.items() if is_wanted(name)}
                if chosen:
                    visit.picture(chosen, size=size, theme=theme, login=login)


@contextmanager
def visit_of_a_demo(browser: Browser) -> Iterator[Visit]:
    """A visit of a demo of its own, which ends with it."""
    with tempfile.TemporaryDirectory() as folder, demo(Path(folder)) as url:
        passwords = json.loads(Path(folder, "demo-logins.json").read_text())
        yield Visit(browser, url, passwords)


@contextmanager
def demo(folder: Path) -> Iterator[str]:
    """The address of a demo with its data in this folder, as soon as it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # A database or a broker that somebody develops with stays as it is.
    environment = {k: v for k, v in os.environ.items() if k not in {"DATABASE_URL", "CELERY_BROKER_URL"}}
    output = folder / "output.txt"
    with output.open("wb") as written:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "manage.py", "demo", "--port", str(port)],
            cwd=ROOT,
            env=environment | {"VAR_DIR": str(folder)},
            stdout=written,
            stderr=written,
        )
    try:
        while "Ctrl-C stops" not in output.read_text():
            if process.poll() is not None:
                raise RuntimeError(f"The demo ended: {output.read_text()}")
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=120)


class Visit:
    """A browser at a demo, and the actions of its users."""

    def __init__(self, browser: Browser, url: str, passwords: dict[str, str]) -> None:
        self.browser, self.url, self.passwords = browser, url, passwords

    @contextmanager
    def page_of(
        self, login: str, size: str = "desktop", theme: Literal["light", "dark"] = "light"
    ) -> Iterator[Page]:
        """A page of this user, logged in, in its own window; takes a picture of the login page on the way."""
        width, height = SIZES[size]
        context = self.browser.new_context(
            base_url=self.url,
            viewport={"width": width, "height": height},
            color_scheme=theme,
            reduced_motion="reduce",
        )
        page = context.new_page()
        page.goto("/accounts/login/")
        if login == "annotator":
            page.screenshot(path=IMAGES / f"login-{size}-{theme}.png")
        page.get_by_label("Name").fill(login)
        page.get_by_label("Password").fill(self.passwords[login])
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/")
        yield page
        context.close()

    def wait_for_the_rule(self) -> None:
        with self.page_of("admin") as page:
            page.goto("/experiments/2/")
            expect(page.locator(".headline")).to_have_text(DECIDED, timeout=WAIT_MS)

    def try_a_draft(self) -> str:
        """The address of a trial all of whose responses are written."""
        with self.page_of("admin") as page:
            page.goto("/experiments/new/prompts-strategies/")
            page.get_by_label("Name", exact=True).fill("Answers to everyday questions")
            page.get_by_role("button", name="2. Tasks").click()
            page.locator("#tasks").fill("How do I make a good cup of tea?")
            page.get_by_role("button", name="Save and try").click()
            expect(page.get_by_role("heading", name="Written")).to_be_visible(timeout=WAIT_MS)
            return page.url

    def upload_votes(self) -> str:
        """The address at which the columns of a file of votes are chosen."""
        votes = (
            b"question,model 1,model 2,better\n"
            b"How do I make tea?,terse,warm,1\n"
            b"What is a tide?,warm,terse,2\n"
        )
        with self.page_of("admin") as page:
            page.goto("/experiments/new/votes/")
            page.get_by_label("Name of the experiment").fill("Last year's votes")
            page.locator("input[type=file]").set_input_files(
                {"name": "votes.csv", "mimeType": "text/csv", "buffer": votes}
            )
            page.get_by_label("Show me the columns first").check()
            page.get_by_role("button", name="Import the votes").click()
            page.wait_for_url("**/columns/**")
            return page.url

    def invite(self) -> str:
        """A link that invites a viewer."""
        with self.page_of("admin") as page:
            page.goto("/experiments/1/invitations/")
            page.get_by_label("Viewer").check()
            page.get_by_role("button", name="Make a link").click()
            return page.locator("#link").input_value()

    def share(self) -> str:
        """A link to the report of the experiment that the rule decided."""
        with self.page_of("admin") as page:
            page.goto("/experiments/2/report/")
            page.get_by_role("button", name="Make a link").click()
            return page.locator("#link").input_value()

    def answer_in_haste(self) -> None:
        """Have the annotator answer pairs at once, always for the left response."""
        with self.page_of("annotator") as page:
            page.goto("/label/1/")
            for _ in range(HASTY_ANSWERS):
                self.answer(page, "left")
        with self.page_of("admin") as page:
            # Until the model has caught up with somebody so fast.
            page.goto("/experiments/1/")
            expect(page.locator("#badge")).to_have_text("Running", timeout=WAIT_MS)

    def answer(self, page: Page, side: str) -> None:
        choice = page.locator(f"#choose-{side}")
        expect(choice).to_be_visible(timeout=WAIT_MS)
        pair = page.locator("#stage").get_attribute("data-token")
        page.wait_for_timeout(BETWEEN_ANSWERS_MS)
        choice.click()
        expect(page.locator("#stage")).not_to_have_attribute("data-token", pair or "")

    def picture(
        self, pages: dict[str, str], *, size: str, theme: Literal["light", "dark"], login: str
    ) -> None:
        """Take the pictures of these pages, as seen by one user."""
        with self.page_of(login, size, theme) as page:
            for name, path in pages.items():
                page.goto(path)
                if link := LINKS.get(name):
                    page.locator(link).first.click()
                page.wait_for_timeout(SETTLE_MS)
                page.screenshot(path=IMAGES / f"{name}-{size}-{theme}.png", full_page=name in WHOLE_PAGES)
                if name == "pair":
                    page.keyboard.press("?")
                    page.wait_for_timeout(SETTLE_MS)
                    page.screenshot(path=IMAGES / f"help-{size}-{theme}.png")

    def judge_to_the_end(self) -> None:
        """Prefer numbered lists, then short texts, until the experiment is decided; picture its result."""
        with self.page_of("annotator") as page:
            page.goto("/label/1/")
            for _ in range(MOST_CLICKS):
                expect(page.locator("#choose-left, .quiet-stage a").first).to_be_visible(timeout=WAIT_MS)
                page.wait_for_timeout(_STAYS_AFTER_MS)
                if not page.locator("#choose-left").count():
                    break
                left, right = page.locator(".response .text").all()
                lengths = [len(side.inner_text()) for side in (left, right)]
                page.wait_for_timeout(sum(lengths) / _CHARACTERS_PER_MS)
                lists = [side.locator("ol").count() for side in (left, right)]
                is_shorter = lengths[0] < lengths[1]
                prefers_left = lists[0] > lists[1] or (lists[0] == lists[1] and is_shorter)
                self.answer(page, "left" if prefers_left else "right")
        with self.page_of("admin") as page:
            page.goto("/experiments/1/")
            expect(page.locator(".headline")).to_have_text(DECIDED)
            page.screenshot(path=IMAGES / "demo-result.png")


if __name__ == "__main__":
    main()
