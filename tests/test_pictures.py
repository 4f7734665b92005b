"""Pictures: each of the list is there, and none that is not in it."""

from __future__ import annotations

import re

import pytest

from tools.pictures.demos import IMAGES, SIZES, THEMES
from tools.pictures.pages import PICTURES


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
