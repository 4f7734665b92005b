"""The state of a connection in words."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils import timezone

from engine.core.wording import moment
from engine.models import Connection


@dataclass(frozen=True)
class Standing:
    """A badge with its CSS class, and a sentence that everybody may read."""

    kind: str
    badge: str
    sentence: str = ""


def standing_of(connection: Connection) -> Standing:
    """The state of a connection: retired, waiting, or what its last test found."""
    if connection.retired_at is not None:
        return Standing("draft", "Retired", f"Since {connection.retired_at:%Y-%m-%d}. Nothing uses it.")
    if connection.waits_until is not None:
        return Standing("unhealthy", f"Waits until {moment(connection.waits_until)}", connection.trouble)
    if connection.provider == "worker":
        return Standing("draft", "Own worker", "A worker of this site serves it.")
    if connection.test:
        works = connection.test["works"]
        kind, badge = ("certified", "Works") if works else ("unhealthy", "Test failed")
        return Standing(kind, badge, connection.test["sentence"])
    if is_being_tested(connection):
        return Standing("paused", "Being tested")
    return Standing("draft", "Not tested")


# A test asks up to a dozen times; what takes longer has died with its worker.
_LONGEST_TEST_SECONDS = 600


def is_being_tested(connection: Connection) -> bool:
    """True while a worker may still come with the result of a test."""
    asked = connection.test_asked_at
    return (
        not connection.test
        and asked is not None
        and (timezone.now() - asked).total_seconds() < _LONGEST_TEST_SECONDS
    )
