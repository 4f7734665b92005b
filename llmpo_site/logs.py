"""Filters secrets out of our own logs."""

from __future__ import annotations

import logging
import re

# An address may be quoted in another one.
_SLASH = "(?:/|%2[fF])"
# Secrets that let their holder in, in the addresses of: an invitation; the confirmation of an e-mail address;
# a new password, after the account's number.
_SECRET = re.compile(
    rf"(join{_SLASH}|email{_SLASH}confirm{_SLASH}|password{_SLASH}reset{_SLASH}[0-9A-Za-z]+-)"
    r"(?:[^/\s\"'&?%]|%(?!2[fF]))+"
)


class WithoutSecretLinks(logging.Filter):
    """Cuts the secrets out of links: Django logs the address of every request that it refuses, and gunicorn
    of all.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            said = record.getMessage()
        except (TypeError, ValueError, KeyError):
            return True  # The handler reports a message that does not fit its arguments.
        cut = _SECRET.sub(r"\1…", said)
        if cut != said:
            record.msg, record.args = cut, ()
        return True
