"""Demos with data of their own, and a browser in which their users act."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, expect

from tests.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider, a_provider

ROOT = Path(__file__).resolve().parent.parent.parent
IMAGES = ROOT / "docs" / "images"
Theme = Literal["light", "dark"]
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
THEMES: tuple[Theme, ...] = ("light", "dark")
# For scripts and pictures of a page.
SETTLE_MS = 800
# A pair of SmolLM2 takes seconds on two cores.
WAIT_MS = 300_000
DECIDED = re.compile("^Use ")

# A page refuses a click just as a pair appears, and soon after another one as the half of a double click.
_BETWEEN_ANSWERS_MS = 600
# The pair of a reader who clicks at once may be minutes behind.
_MOST_CLICKS = 150
# The outcome may still take the place of a pair that was shown for less than this.
_STAYS_AFTER_MS = 2000
# Somebody who reads faster than 100 characters a second is in doubt.
_CHARACTERS_PER_MS = 0.09


class Visit:
    """A browser at a demo, and the actions of its users.

    ``passwords`` by login; ``recovery_codes`` of those who use two-step login. ``mail`` is the folder of
    the messages that were sent, and ``provider`` signs people in.
    """

    def __init__(
        self, browser: Browser, url: str, passwords: dict[str, str], mail: Path, provider: Provider
    ) -> None:
        self.browser, self.url, self.passwords = browser, url, passwords
        self.mail, self.provider = mail, provider
        self.recovery_codes: dict[str, list[str]] = {}

    @contextmanager
    def page_of(self, login: str, size: str = "desktop", theme: Theme = "light") -> Iterator[Page]:
        """A page of this user in a window of its own; ``login`` is empty for somebody unknown."""
        width, height = SIZES[size]
        context = self.browser.new_context(
            base_url=self.url,
            viewport={"width": width, "height": height},
            color_scheme=theme,
            reduced_motion="reduce",
        )
        try:
            page = context.new_page()
            if login:
                self.log_in(page, login)
            yield page
        finally:
            context.close()

    def log_in(self, page: Page, login: str) -> None:
        """Log in with the password, or at the other site where this account has none."""
        page.goto("/accounts/login/")
        if login not in self.passwords:
            page.get_by_role("button", name="Log in with").click()
            page.wait_for_url(f"{self.url}/")
            return
        page.get_by_label("Name").fill(login)
        page.get_by_label("Password").fill(self.passwords[login])
        page.get_by_role("button", name="Log in", exact=True).click()
        if codes := self.recovery_codes.get(login):
            page.get_by_role("textbox", name="Code").fill(codes.pop())
            page.get_by_role("button", name="Log in", exact=True).click()
        page.wait_for_url(f"{self.url}/")

    def join(self, login: str, role: str, experiment: int = 1) -> None:
        """Make this account by an invitation."""
        invitation = self.invitation(role, experiment)
        self.passwords[login] = "a long password of " + login
        with self.page_of("") as page:
            page.goto(invitation)
            page.get_by_label("Name", exact=True).fill(login)
            page.get_by_label("Password", exact=True).fill(self.passwords[login])
            page.get_by_label("Password again").fill(self.passwords[login])
            page.get_by_role("button", name="Join", exact=True).click()
            expect(page.get_by_role("link", name=login)).to_be_visible()

    def invitation(self, role: str, experiment: int = 1) -> str:
        """A link that invites somebody to this role."""
        with self.page_of("admin") as page:
            page.goto(f"/experiments/{experiment}/invitations/")
            page.get_by_role("radio", name=role).check()
            # It may also send the link, where there is mail.
            page.get_by_role("button", name=re.compile("^(Make a link|Invite)$")).click()
            return page.locator("#link").input_value()

    def shared_report(self, experiment: int) -> str:
        """A link to the report of this experiment."""
        with self.page_of("admin") as page:
            page.goto(f"/experiments/{experiment}/report/")
            page.get_by_role("button", name="Make a link").click()
            return page.locator("#link").input_value()

    def latest_link_by_mail(self) -> str:
        """The address in the message that was sent last."""
        message = max(self.mail.iterdir(), key=lambda path: path.stat().st_mtime_ns).read_text()
        return re.findall(rf"{re.escape(self.url)}\S+", message)[-1]

    def answer(self, page: Page, side: str) -> None:
        choice = page.locator(f"#choose-{side}")
        expect(choice).to_be_visible(timeout=WAIT_MS)
        pair = page.locator("#stage").get_attribute("data-token")
        page.wait_for_timeout(_BETWEEN_ANSWERS_MS)
        choice.click()
        expect(page.locator("#stage")).not_to_have_attribute("data-token", pair or "")

    def judge_to_the_end(self, *, picture: str) -> None:
        """Prefer numbered lists, then short texts, until the experiment is decided; picture its result."""
        with self.page_of("annotator") as page:
            page.goto("/label/1/")
            for _ in range(_MOST_CLICKS):
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
            page.screenshot(path=IMAGES / f"{picture}.png")


@contextmanager
def visit_of_a_demo(browser: Browser, *, connected: bool = False) -> Iterator[Visit]:
    """A visit of a demo of its own, which ends with it.

    ``connected``: the demo writes its e-mail to files, and offers the login of another site.
    """
    with tempfile.TemporaryDirectory() as folder, a_provider() as provider:
        mail = Path(folder, "mail")
        mail.mkdir()
        connections = {
            "EMAIL_URL": f"file:///{mail}",  # the first slash of the path is cut off
            "OIDC_ISSUER": provider.url,
            "OIDC_CLIENT_ID": CLIENT_ID,
            "OIDC_CLIENT_SECRET": CLIENT_SECRET,
            "OIDC_NAME": "Example SSO",
        }
        with _demo(Path(folder), connections if connected else {}) as url:
            passwords = json.loads(Path(folder, "demo-logins.json").read_text())
            yield Visit(browser, url, passwords, mail, provider)


@contextmanager
def _demo(folder: Path, connections: dict[str, str]) -> Iterator[str]:
    """The address of a demo with its data in this folder, as soon as it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    # A database or a broker that somebody develops with stays as it is.
    environment = {k: v for k, v in os.environ.items() if k not in {"DATABASE_URL", "CELERY_BROKER_URL"}}
    output = folder / "output.txt"
    with output.open("wb") as written:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "manage.py", "demo", "--port", str(port)],
            cwd=ROOT,
            env=environment | {"VAR_DIR": str(folder), "SITE_URL": url} | connections,
            stdout=written,
            stderr=written,
        )
    try:
        while "Ctrl-C stops" not in output.read_text():
            if process.poll() is not None:
                raise RuntimeError(f"The demo ended: {output.read_text()}")
            time.sleep(0.5)
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=120)
