"""Pictures: the list of pages is whole, and each of its files is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings

from tools.pictures.demos import IMAGES, SIZES, THEMES
from tools.pictures.pages import PICTURES

TEMPLATES = Path(settings.BASE_DIR, "templates")
# The frames of other pages.
FRAMES = {"base.html", "account/_page.html"}


def test_each_page_is_pictured():
    """A page is a template that fills a frame, or that Django shows for an error."""
    pages = {
        str(path.relative_to(TEMPLATES))
        for path in TEMPLATES.rglob("*.html")
        if re.search(r"{% extends ", path.read_text()) or re.fullmatch(r"\d{3}\.html", path.name)
    }
    assert pages - FRAMES == {picture.template for picture in PICTURES.values()}


@pytest.mark.parametrize("name", PICTURES)
def test_each_picture_is_there_at_both_sizes_and_in_both_themes(name):
    lacking = [
        f"{size}-{theme}"
        for size in SIZES
        for theme in THEMES
        if not (IMAGES / f"{name}-{size}-{theme}.png").is_file()
    ]
    assert lacking == []


def test_each_picture_is_of_a_page_of_the_list():
    sizes, themes = "|".join(SIZES), "|".join(THEMES)
    of_pages = {
        match.group(1)
        for path in IMAGES.glob("*.png")
        if (match := re.fullmatch(rf"(.+)-(?:{sizes})-(?:{themes})\.png", path.name))
    }
    assert of_pages <= set(PICTURES)
