"""The verdict of an improvement in a sentence, the same on every page, in the report and in the API."""

import math

from engine.domain.wording import number


def verdict_sentence(
    kind: str,
    *,
    champion: str,
    used: int,
    unused: int,
    share: float | None,
    n_told: int,
    lower: float,
    delta: float,
    proven: bool = True,
) -> str:
    """The sentence for a verdict of :class:`engine.core.improvement.Verdict`.

    Parameters
    ----------
    champion
        Its name.
    used
        Clicks so far.
    unused
        Clicks that were left as the race ended by itself.
    proven
        Whether judgments are fresh draws, which the risk needs.
    """
    # The end of an interval is rounded to the side on which it still holds.
    least = math.floor(100 * lower + 1e-9)
    match kind:
        case "nothing_better":
            early = f", so the other {unused:,} were not needed" if unused and share is None else ""
            return f"Nothing better was found after {number(used, 'click')}{early}."
        case "leads":
            # One that follows others may need more than its own comparisons.
            known = "" if share is None else f" (at least {min(least, 49)}% of comparisons)"
            return (
                f"{champion} leads; at a risk of {100 * delta:.4g}% it is not established that it beats the "
                f"original{known}."
            )
        case "certified":
            preferred = round(100 * (lower if share is None else share))
            doubt = "" if proven else ", not proven, since the same texts came again"
            return (
                f"{champion} beats the original: preferred in {preferred}% of "
                f"{number(n_told, 'comparison')}, and in at least {least}% of all that could be made; risk "
                f"{100 * delta:.4g}%{doubt}."
            )
    return f"No verdict yet after {number(used, 'click')}."


def dropped_because(compared: int, probability: float) -> str:
    """Why a proposal left the race."""
    after = number(compared, "comparison")
    return f"Dropped after {after}: better than the champion with a probability of {percent(probability)}."


def percent(share: float) -> str:
    """A share from 0 to 1 in percent."""
    return f"{100 * share:.0f}%"
