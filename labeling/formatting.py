"""Numbers for people."""

import math
from typing import Any

from engine.core import Remaining, ranking
from engine.core.agreement import FEWEST_UNITS, Alpha, Proportion
from engine.domain.wording import number, two_digits

# Halves and tenths of so many hours would be too exact for an estimate.
_ROUGH_HOURS = 10


def risk(value: float) -> str:
    """0.05 → "5%": a risk as it was chosen, without rounding."""
    return f"{100 * value:.4g}%"


def points(margin: float) -> str:
    """0.05 → "5 points": a margin of win rates."""
    return f"{100 * margin:.4g} point{'' if margin == 0.01 else 's'}"


def over_half(margin: float) -> str:
    """0.05 → "55%": the win rate that is so much above one half."""
    return risk(0.5 + margin)


def percent(value: float) -> str:
    """0.5 → "50%": a share, rounded."""
    return f"{round(100 * value)}%"


def percent_range(ends: tuple[int, int]) -> str:
    """(84, 100) → "84–100%"; "84%" where both ends are the same."""
    low, high = ends
    return f"{low}%" if low == high else f"{low}–{high}%"


def share(found: Proportion) -> str:
    """ "82% of 30 (66% to 93%)": a share with its interval, the interval rounded outwards."""
    if found.share is None:
        return "–"
    low, high = math.floor(100 * found.low + 1e-9), math.ceil(100 * found.high - 1e-9)
    return f"{round(100 * found.share)}% of {found.n:,} ({low}% to {high}%)"


def agreement_figures(alpha: Alpha) -> dict[str, Any]:
    """Krippendorff's α of the people, by the names that manifests and the API give its figures."""
    low, high = alpha.interval or (None, None)
    return {
        "alpha": alpha.value,
        "low": low,
        "high": high,
        "pairs": alpha.units,
        "judgments": alpha.answers,
        "same": alpha.same,
        "chance": alpha.chance,
    }


def agreement(alpha: Alpha) -> str:
    """Krippendorff's α of the people, in a sentence or two."""
    if not alpha.units:
        return "Agreement: unknown. No two people are known to have judged the same two responses."
    judged = f"{number(alpha.units, 'pair')} of responses"
    if alpha.value is None:
        return (
            f"Agreement: unknown. All {alpha.answers:,} judgments of the {judged} that several people judged "
            "are the same, so chance alone may explain it."
        )
    if alpha.interval is None:
        return (
            f"Agreement: too few to say. At least two people judged {judged}; {FEWEST_UNITS} are needed. "
            f"Krippendorff's α is {alpha.value:.2f} so far."
        )
    low, high = alpha.interval
    return (
        f"Agreement: two people gave the same answer in {alpha.same:.0%} of cases, where chance would bring "
        f"{alpha.chance:.0%}. Krippendorff's α is {alpha.value:.2f} ({low:.2f} to {high:.2f}), from "
        f"{alpha.answers:,} judgments of {judged} that several people judged."
    )


def percents(rate: ranking.Rate) -> tuple[int, int, int]:
    """A win rate and the ends of its interval, in percent."""
    return round(100 * rate.estimate), round(100 * rate.low), round(100 * rate.high)


def rough(expected: float) -> str:
    """1234.5 → "1,200": an estimated number, rounded so that it does not look like a count."""
    return f"{two_digits(expected):,}"


def spread(remaining: Remaining) -> str:
    """A range of comparisons, to two digits; without an upper end, "over" the lower one."""
    low, high = remaining.low, remaining.high
    return f"over {rough(low)}" if high is None else f"{rough(low)} to {rough(high)}"


def rough_hours(expected: float) -> str:
    """2.84 → "2.8", 153.4 → "150", and 0.04 → "0.1": an estimated number of hours, which is never none."""
    return f"{max(expected, 0.1):.1f}" if expected < _ROUGH_HOURS else rough(expected)


def working_time(hours: Remaining) -> str:
    """Hours of work, likely and from to, in the unit that suits them: "2.1 h (0.9 to 4.0)", "8 min (4 to
    17)".
    """
    in_minutes = (hours.likely or hours.low) < 1
    unit = "min" if in_minutes else "h"
    low, likely, high = (
        None if value is None else f"{60 * value:.0f}" if in_minutes else rough_hours(value)
        for value in (hours.low, hours.likely, hours.high)
    )
    if likely is None:
        return f"over {low} {unit}"
    return f"{likely} {unit} ({f'over {low}' if high is None else f'{low} to {high}'})"


_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def judging_time(hours: float, n_people: int) -> str:
    """Hours that people share: "1½ hours of judging by two people", "25 minutes of judging by one person".

    Parameters
    ----------
    hours
        Of all of them together.
    n_people
        At least one.
    """
    each = hours / n_people
    said = _NUMBERS[n_people] if n_people < len(_NUMBERS) else f"{n_people:,}"
    judging = f"of judging by {said} {'person' if n_people == 1 else 'people'}"
    if each < 0.75:
        return f"{max(5, 5 * round(12 * each))} minutes {judging}"
    whole, half = divmod(round(2 * each), 2)
    if whole >= _ROUGH_HOURS:
        whole, half = round(each), 0
    amount = f"{whole or ''}{'½' if half else ''}"
    return f"{amount} hour{'' if (whole, half) == (1, 0) else 's'} {judging}"


# The first that fits: a browser names those that it wants to be taken for, too.
_BROWSERS = {"Edg": "Edge", "OPR": "Opera", "Firefox": "Firefox", "Chrome": "Chrome", "Safari": "Safari"}
_SYSTEMS = {
    "Windows": "Windows",
    "Android": "Android",
    "iPhone": "iOS",
    "iPad": "iOS",
    "Mac OS": "macOS",
    "CrOS": "ChromeOS",
    "Linux": "Linux",
}


def browser(user_agent: str) -> str:
    """“Chrome, Linux” from a user agent; the user agent itself, cut, if it is unknown."""
    found = [
        next((name for mark, name in names.items() if mark in user_agent), "")
        for names in (_BROWSERS, _SYSTEMS)
    ]
    return ", ".join(found) if all(found) else user_agent[:110]
