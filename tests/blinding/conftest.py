"""Helpers and fixtures that these tests share."""

from collections.abc import Iterator

import pytest

from engine.selectors import admission


@pytest.fixture(autouse=True, scope="module")
def no_admission() -> Iterator[None]:
    """Admission items come before all that is hidden here; whoever guesses would not get beyond them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(admission, "ADMISSION_ITEMS", 0)
        yield
