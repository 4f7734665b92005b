"""A real Chromium against the live server.
Any console error, failed request or CSP violation fails the test.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Dialog, Locator, Page, expect, sync_playwright

from engine.models import User
from tests.accounts import PASSWORD, logged_in

# The shell is the same engine without the browser's own windows, and takes half as much processor time.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if _CHROMIUM is None:
        pytest.fail("No Chromium found. Install it (make test does), or set CHROMIUM to its path.")
    # A limit is there to end, not to measure: a loaded machine takes longer than the library's five seconds.
    expect.set_options(timeout=120_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=_CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-quic"],
        )
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def noon(settings) -> None:
    """It is noon: a test that began before midnight found fewer answers of today after it."""
    settings.TIME_ZONE = f"Etc/GMT{timezone.now().hour - 12:+d}"


@pytest.fixture(autouse=True)
def server_at_rest(live_server) -> Iterator[None]:
    """Wait for the last requests of closed pages:
    emptying PostgreSQL's tables in their midst is a deadlock.
    """
    yield
    if connection.vendor != "postgresql":
        return
    looks_at_rest = 0
    while looks_at_rest < 3:  # the last request of a page may still be on its way
        time.sleep(0.1)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND state <> 'idle'"
            )
            looks_at_rest = looks_at_rest + 1 if cursor.fetchone()[0] == 0 else 0


@pytest.fixture
def problems() -> list[str]:
    """Complaints of the browser. A test that provokes a complaint checks it and clears the list."""
    return []


def _unexpected(dialog: Dialog, problems: list[str]) -> None:
    if dialog.type == "beforeunload":  # a test that leaves what it typed means to
        dialog.accept()
        return
    problems.append(dialog.message)
    dialog.dismiss()


@contextmanager
def watch(context: BrowserContext, live_server, problems: list[str]) -> Iterator[BrowserContext]:
    """Record the browser's complaints and every request to another host; close it in the end."""
    context.on("console", lambda m: problems.append(m.text) if m.type in {"error", "warning"} else None)
    context.on("weberror", lambda error: problems.append(str(error.error)))
    host = urlsplit(live_server.url).netloc
    context.on(
        "request",
        lambda r: problems.append(f"request to {r.url}") if urlsplit(r.url).netloc != host else None,
    )
    context.on("page", lambda page: page.on("dialog", lambda dialog: _unexpected(dialog, problems)))
    context.set_default_timeout(120_000)
    # When an annotator's page showed its pair last, by its own clock.
    context.add_init_script(
        "document.addEventListener('llmpo:shown', () => { window.shownAt = performance.now(); });"
    )
    try:
        yield context
    finally:
        context.close()


@pytest.fixture
def context(browser: Browser, live_server, problems: list[str]) -> Iterator[BrowserContext]:
    with watch(browser.new_context(base_url=live_server.url), live_server, problems) as context:
        yield context
    assert problems == []


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


def picture(shown: Page | Locator, name: str) -> None:
    """Take a picture of a page or a part of it if PICTURES names a folder, as `make pictures` does."""
    if folder := os.environ.get("PICTURES"):
        (shown.page if isinstance(shown, Locator) else shown).wait_for_timeout(800)
        file = Path(folder, f"{name}.png")
        shown.screenshot(path=file)
        Image.open(file).convert("RGB").quantize(128).save(file, optimize=True)


def log_in(page: Page, user: User) -> None:
    """Give the browser the session of somebody who has just logged in; no page is opened."""
    session = logged_in(user).cookies[settings.SESSION_COOKIE_NAME].value
    cookie = {"name": settings.SESSION_COOKIE_NAME, "value": session, "domain": "localhost", "path": "/"}
    page.context.add_cookies([cookie])


def log_in_by_form(page: Page, user: User) -> None:
    """Log in as people do, which also changes the token against forgery. It takes 20 times as long."""
    page.goto("/accounts/login/")
    page.get_by_label("Name").fill(user.username)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in", exact=True).click()
    page.wait_for_url("**/")


@pytest.fixture
def phone(browser: Browser, live_server, problems) -> Iterator[Page]:
    """A page on a phone, of which the browser may complain about nothing."""
    with watch(
        browser.new_context(
            base_url=live_server.url, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True
        ),
        live_server,
        problems,
    ) as context:
        yield context.new_page()
    assert problems == []
