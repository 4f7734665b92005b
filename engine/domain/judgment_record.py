"""The record of an experiment's judgments: a line for each, and a chain over the lines.

A line holds what an export says of a judgment, without a text and without a name. So it stays the same when
a person is forgotten, and everybody can make it from the row of an export.
"""

import hashlib
import json
from collections.abc import Iterable

# The columns of an export that make a line, in their order.
COLUMNS = (
    "judgment_uuid", "comparison_number", "policy_i", "policy_j", "left_policy", "choice", "outcome", "judge",
    "via", "judged_at", "restores", "void_kind", "voided_at",
)  # fmt: skip


def line_digest(*values: str) -> str:
    """SHA-256 of a judgment's line, in hexadecimal digits.

    ``values``: those of `COLUMNS`, as CSV writes them; an empty text for nothing. The line is their JSON.
    """
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def chained(digests: Iterable[str]) -> str:
    """The end of the chain over these lines: each link is the SHA-256 of the link before it and a line."""
    link = ""
    for digest in digests:
        link = hashlib.sha256((link + digest).encode()).hexdigest()
    return link
