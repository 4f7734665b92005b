"""Filters secrets out of our own logs."""

from __future__ import annotations

import logging
import re

# The last part of an invitation's address, also where it is quoted in another address.
_INVITATION = re.compile(r"(join(?:/|%2[fF]))[^/\s\"'&?%]+")


class WithoutInvitations(logging.Filter):
    """Cuts the secret out of invitation links: Django logs the address of every request that it refuses."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            said = record.getMessage()
        except (TypeError, ValueError, KeyError):
            return True  # The handler reports a message that does not fit its arguments.
        cut = _INVITATION.sub(r"\1…", said)
        if cut != said:
            record.msg, record.args = cut, ()
        return True
