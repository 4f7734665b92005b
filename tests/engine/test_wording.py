"""Numbers in sentences."""

import pytest

from engine.domain.wording import duration


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0 seconds"),
        (1.9, "1 second"),
        (59.9, "59 seconds"),
        (60, "1 minute"),
        (3_599, "59 minutes"),
        (11_330, "3 hours"),
        (86_400, "1 day"),
        (1e8, "1,157 days"),
    ],
)
def test_a_duration_is_said_in_its_largest_unit(seconds, said):
    assert duration(seconds) == said
