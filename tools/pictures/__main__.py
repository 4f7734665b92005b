"""Take the pictures in docs/images.

Usage: python -m tools.pictures [NAME …]    (all pictures without a NAME)

Two demos are visited: one as `make demo` starts it, and one that sends e-mail and offers single sign-on. At
last the other experiment of a third demo is judged to its end, reading each pair.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable

import django
from playwright.sync_api import sync_playwright

from tools.pictures.demos import IMAGES, SETTLE_MS, SIZES, THEMES, Visit, visit_of_a_demo
from tools.pictures.pages import NOBODY, PICTURES, Picture

_DECIDED_BY_CLICKS = "demo-result"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [*PICTURES, _DECIDED_BY_CLICKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help="pictures to take, such as try or marks")
    wanted = parser.parse_args().names or known
    if unknown := set(wanted).difference(known):
        parser.error(f"There is no picture {', '.join(sorted(unknown))}; there are {', '.join(known)}.")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmpo_site.settings")
    django.setup()  # for the templates of errors, and codes of two-step login

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM") or shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        for connected in (False, True):
            chosen = {name: PICTURES[name] for name in wanted if _is_of(PICTURES.get(name), connected)}
            if chosen:
                with visit_of_a_demo(browser, connected=connected) as visit:
                    _take(visit, chosen)
        if _DECIDED_BY_CLICKS in wanted:
            # A demo of its own: hasty answers would be in doubt on its result.
            with visit_of_a_demo(browser) as visit:
                visit.judge_to_the_end(picture=_DECIDED_BY_CLICKS)


def _is_of(picture: Picture | None, connected: bool) -> bool:
    return picture is not None and picture.connected is connected


def _take(visit: Visit, pictures: dict[str, Picture]) -> None:
    """Take these pictures at both sizes and in both themes, after all that they need is there."""
    needs: dict[Callable[[Visit], str] | None, str] = {}
    for picture in pictures.values():
        if picture.needs and picture.needs not in needs:
            needs[picture.needs] = picture.needs(visit)
    for size in SIZES:
        for theme in THEMES:
            for login, shown in _windows(pictures):
                with visit.page_of(login, size, theme) as page:
                    for name, picture in shown.items():
                        page.goto(picture.address or needs[picture.needs])
                        if picture.act:
                            picture.act(visit, page)
                        page.wait_for_timeout(SETTLE_MS)
                        path = IMAGES / f"{name}-{size}-{theme}.png"
                        page.screenshot(path=path, full_page=picture.whole)


def _windows(pictures: dict[str, Picture]) -> list[tuple[str, dict[str, Picture]]]:
    """The pictures of each window, and who has it: each user one, and somebody unknown always a new one.

    A login that is begun changes the pages after it.
    """
    logins = {picture.login: None for picture in pictures.values() if picture.login}
    return [
        *((NOBODY, {name: picture}) for name, picture in pictures.items() if picture.login == NOBODY),
        *((login, {n: each for n, each in pictures.items() if each.login == login}) for login in logins),
    ]


if __name__ == "__main__":
    main()
