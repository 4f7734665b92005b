"""The documentation within the application."""

import re

import pytest
from django.test import Client

from labeling import documentation
from labeling.dashboard.terms import HEADINGS, TERMS


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The HTML of each document, by the address of its page."""
    return {documentation.address(name): _rendered(name) for name in documentation.names()}


def _rendered(name: str) -> str:
    found = documentation.document(name)
    assert found is not None
    return found.html


def test_every_page_is_reached_from_the_first(pages):
    reached, waiting = set(), [documentation.address(documentation.INDEX)]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += [link for link in re.findall(r'href="([^"#]+)', pages[page]) if "://" not in link]
    assert set(pages) - reached == set()


def test_every_term_has_a_heading_that_says_more(pages):
    assert HEADINGS.keys() == TERMS.keys()
    page = pages[documentation.address("dashboard")]
    assert [heading for heading in HEADINGS.values() if f'id="{heading}"' not in page] == []


def test_what_is_not_served_is_words():
    """Source files and other pictures are not in the image."""
    assert "<img" not in _rendered("reproduction")
    assert '.py"' not in _rendered("algorithm")


@pytest.mark.django_db
def test_every_picture_of_a_click_is_shown_and_served(pages):
    shown = {link for page in pages.values() for link in re.findall(r'<img src="([^"]+)', page)}
    assert {link.rpartition("/")[2] for link in shown} == set(documentation.pictures())
    for link in shown:
        answer = Client().get(link)
        assert (answer.status_code, answer["Content-Type"]) == (200, "image/png")


@pytest.mark.django_db
def test_anybody_reads_it_in_english():
    client = Client(headers={"Accept-Language": "de"})
    index = client.get("/help/")
    assert index.status_code == 200
    assert '<html lang="en">' in index.text
    assert 'href="/help/setting-up/"' in index.text
    assert "<h1" in client.get("/help/decisions/claims/").text


@pytest.mark.parametrize("name", ["nothing", "../README", "images/home-desktop-light.png", "README.md"])
@pytest.mark.django_db
def test_only_documents_are_served(name):
    assert Client().get(f"/help/{name}/").status_code == 404
