"""Take the pictures in docs/images from a running demo.

Usage: python docs/take_screenshots.py [URL]    (default http://127.0.0.1:8000, the demo's own logins)
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

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
    "method",
    "policy",
    "history",
    "comparison",
    "people",
    "person",
    "settings",
}


def main(url: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM") or shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        for size in SIZES:
            for theme in ("light", "dark"):
                for login, pages in PAGES.items():
                    picture_pages(browser, url=url, size=size, theme=theme, login=login, pages=pages)


def picture_pages(
    browser: Browser, *, url: str, size: str, theme: str, login: str, pages: dict[str, str]
) -> None:
    width, height = SIZES[size]
    context = browser.new_context(
        base_url=url, viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto("/accounts/login/")
    if login == "annotator":
        page.screenshot(path=HERE / "images" / f"login-{size}-{theme}.png")
    page.get_by_label("Name").fill(login)
    page.get_by_label("Password").fill(LOGINS[login])
    page.get_by_role("button", name="Log in").click()
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
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000")
