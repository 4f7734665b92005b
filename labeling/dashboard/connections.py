"""The state of a connection in words."""

from django.utils import timezone

from engine.domain.profiles import Provider
from engine.domain.wording import moment
from engine.models import Connection


def standing_of(connection: Connection) -> tuple[str, str]:
    """The look and the words of a connection's badge: retired, waiting, or what its last test found."""
    if connection.retired_at is not None:
        return "draft", "Retired"
    if connection.waits_until is not None:
        return "unhealthy", f"Waits until {moment(connection.waits_until)}"
    if connection.provider == Provider.WORKER:
        return "draft", "Own worker"
    if connection.test:
        return ("certified", "Works") if connection.test["works"] else ("unhealthy", "Test failed")
    return ("paused", "Being tested") if is_being_tested(connection) else ("draft", "Not tested")


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
