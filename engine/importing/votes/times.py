"""The time of a vote."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from engine.domain import limits
from engine.importing.rows import ImportingError
from engine.importing.slips import is_nothing

# Seconds from 1970 to the year 10000, the last that a time may have. As milliseconds this is 1978.
_MILLISECONDS_FROM = 253_402_300_800
# Spreadsheets store a time as days since 1900, and this is the year 10000. As seconds it is February 1970.
_DAYS_BEFORE = 2_958_466
_COMPACT = {8: "%Y%m%d", 14: "%Y%m%d%H%M%S"}
# R's readr writes these for Excel.
_SLASHED = re.compile(r"^(\d{4})/(\d\d)/(\d\d)(?!\d)")


def _uncompacted(value: Any) -> Any:
    """The time that eight or fourteen digits are, as 20260301 or 20260301103000; any other value as it is.

    As seconds they would be days of 1970, as milliseconds the year 2600.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return value
    digits = str(value).strip()
    form = _COMPACT.get(len(digits))
    if form is None or not (digits.isascii() and digits.isdigit()):
        return value
    try:
        return datetime.strptime(digits, form).replace(tzinfo=UTC)
    except ValueError:
        return value


def time_of(place: str, value: Any) -> datetime | None:
    """A time in ISO 8601 or in seconds or milliseconds since 1970; without a zone it is UTC.

    ``None`` where there is none, or a word that programs write for none.
    """
    if isinstance(value, str):
        # BigQuery and PostgreSQL name the zone.
        value = _SLASHED.sub(r"\1-\2-\3", value.strip().removesuffix(" UTC"))
    if value in (None, "") or (isinstance(value, str) and is_nothing(value)):
        return None
    value = _uncompacted(value)
    if isinstance(value, str) and re.fullmatch(r"\d+([.,]\d+)?", value):
        value = float(value.replace(",", "."))
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and 0 <= value < _DAYS_BEFORE:
        raise ImportingError.at(
            place,
            f"judged_at is {limits.shown(value)}, as spreadsheets count days. Format the column as a date, "
            "such as 2026-03-01 10:00, and save the file again. If it is a duration, rename the column.",
        )
    try:
        if is_number:
            time = datetime.fromtimestamp(value / 1000 if value > _MILLISECONDS_FROM else value, UTC)
        else:
            time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        # In the first and the last hours that there are, databases cannot turn every zone into theirs.
        time.astimezone(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise ImportingError.at(
            place, f"judged_at is {limits.shown(value)}. Write a time in ISO 8601, or leave it empty."
        ) from error
    return time
