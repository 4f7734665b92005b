"""Words for figures and names."""

import pytest

from labeling.formatting import browser

_MOZILLA = "Mozilla/5.0"


@pytest.mark.parametrize(
    ("user_agent", "expected"),
    [
        (f"{_MOZILLA} (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0 Safari/537.36", "Chrome, Linux"),
        (f"{_MOZILLA} (Windows NT 10.0; Win64) Chrome/140.0 Safari/537.36 Edg/140.0", "Edge, Windows"),
        (f"{_MOZILLA} (Linux; Android 15; Pixel 9) Chrome/140.0 Mobile Safari/537.36", "Chrome, Android"),
        (f"{_MOZILLA} (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18 Safari/604.1", "Safari, iOS"),
        (f"{_MOZILLA} (Macintosh; Intel Mac OS X 14.4; rv:140.0) Gecko Firefox/140.0", "Firefox, macOS"),
        ("curl/8.1", "curl/8.1"),
        ("x" * 200, "x" * 110),
        ("", ""),
    ],
)
def test_a_browser_is_named_as_people_name_it(user_agent, expected):
    assert browser(user_agent) == expected
