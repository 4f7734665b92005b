"""Numbers for people."""

from __future__ import annotations

import math

from engine.core.agreement import Rate


def percent(value: float | None, digits: int = 0) -> str:
    """0.956 → "95%": never rounded up to a certainty that is not there."""
    if value is None:
        return "–"
    scale = 10**digits
    truncated = int(value * 100 * scale + 1e-9) / scale
    if value < 1:
        truncated = min(truncated, 100 - 1 / scale)
    return f"{truncated:.{digits}f}%"


def share(rate: Rate) -> str:
    """ "82% of 30 (66% to 93%)": a share with its interval, the interval rounded outwards."""
    if rate.share is None:
        return "–"
    low, high = math.floor(100 * rate.low + 1e-9), math.ceil(100 * rate.high - 1e-9)
    return f"{round(100 * rate.share)}% of {rate.n:,} ({low}% to {high}%)"


def _two_digits(expected: float) -> int:
    """An estimated number, rounded so that it does not look like a count: 1234.5 → 1200."""
    return int(round(expected, -max(0, len(str(int(expected))) - 2)))


def about(expected: float) -> str:
    """An estimated number of comparisons, in English."""
    rounded = _two_digits(expected)
    return f"{rounded:,} comparison{'' if rounded == 1 else 's'}"


def spread(between: tuple[float, float | None]) -> str:
    """An interval of comparisons, to two digits; without an upper end, "more than" the lower one."""
    low = about(between[0]).split()[0]
    return f"more than {low}" if between[1] is None else f"{low} to {about(between[1]).split()[0]}"


def working_time(hours: tuple[float, float, float | None]) -> str:
    """Hours of work, expected and from to, in the unit that suits them: "2.1 h (0.9 to 4.0)", "8 min (4 to
    17)".
    """
    in_minutes = hours[0] < 1
    unit = "min" if in_minutes else "h"
    expected, low, high = (
        None if value is None else f"{60 * value:.0f}" if in_minutes else f"{value:.1f}" for value in hours
    )
    return f"more than {low} {unit}" if high is None else f"{expected} {unit} ({low} to {high})"
