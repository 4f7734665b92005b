"""The formats of our logs, and the secrets that are kept out of them."""

import logging
import re
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from engine.domain import log_context


def _written(text: str) -> str:
    """A pattern for the text, and for its percent-encoded form."""
    return "".join(f"(?:{re.escape(each)}|(?i:%{ord(each):02x}))" for each in text)


# A letter of an address, plain or percent-encoded.
_LETTER = "(?:[0-9A-Za-z]|%[0-9A-Fa-f]{2})"
_NO_SLASH = r"(?:[^/\s\"'&?%]|%(?!2[fF]))"
# Secrets that let their holder in stand in the addresses of an invitation, a confirmation of an e-mail
# address and a report. In that of a new password they follow the account's number. `report/share` and the
# like are none. What follows in the address may say who comes, as links for guests do.
_SECRET = re.compile(
    rf"({_written('join/')}|{_written('email/confirm/')}|{_written('password/reset/')}{_LETTER}+?{_written('-')}|"
    rf"{_written('report/')}(?=(?:[\w-]|%(?!2[fF])[0-9A-Fa-f]{{2}}){{20}}))"
    rf"{_NO_SLASH}+(/|%2[fF])?(?:(?:\?|%3[fF])[^\s\"']*)?"
)


# Keys of vendors by their beginnings, and whatever a header or an address gives away as a secret.
_KEY = re.compile(
    r"((?:\b|_)(?:sk|pk|rk|xai|gsk|hf|AIza|ABSK|llmpo)[-_]?)[\w.-]{12,}"
    r"|(\b(?:Bearer|Basic)\s+)[^\s\"',;]{8,}"
    r"|((?i:(?:x-)?api[-_]?key|access[-_]token|[?&]key)[\"']?\s*[:=]\s*[\"']?)[^\s\"',;&]+"
    r"|(://)[^/\s@\"']+:[^/\s@\"']+(?=@)"
)


def without_secrets(text: str) -> str:
    """The text with "…" for each secret of a link in it, and for each key of a vendor."""
    return _KEY.sub(lambda found: next(filter(None, found.groups()), "") + "…", _SECRET.sub(r"\1…\2", text))


class WithoutSecretLinks(logging.Filter):
    """Cuts the secrets out of links: Django logs the address of every request that it refuses, and gunicorn
    of all.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            said = record.getMessage()
        except (TypeError, ValueError, KeyError):
            return True  # The handler reports a message that does not fit its arguments.
        cut = without_secrets(said)
        if cut != said:
            record.msg, record.args = cut, ()
        return True


class Lines(logging.Formatter):
    """Lines for people. What the work is about comes last."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        said = super().formatMessage(record)
        names = " ".join(f"{kind}={name}" for kind, name in log_context.names().items())
        return f"{said} [{names}]" if names else said


class Objects(JsonFormatter):
    """A JSON object per line for programs, with a field for each kind of thing that the work is about."""

    def __init__(self) -> None:
        super().__init__(
            "%(asctime)s %(levelname)s %(name)s %(message)s",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        )

    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        super().add_fields(log_data, record, message_dict)
        log_data |= log_context.names()
