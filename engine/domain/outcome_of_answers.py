"""Combines several judgments of one comparison into its one outcome D."""

from collections.abc import Sequence

MEAN = "mean"
MAJORITY = "majority"


def outcome_of(choice: str, *, i_on_left: bool) -> float:
    """D of one answer: 1 where policy i's response was chosen, 0 where policy j's, ½ where neither was."""
    if choice not in {"left", "right"}:
        return 0.5
    return float((choice == "left") == i_on_left)


def joint_outcome(outcomes: Sequence[float], rule: str) -> float:
    """D of a comparison that several annotators judged.

    Judgments of the same two responses are not independent draws of the policies' preference, so they make
    one outcome and not several. The certified stop rests on a martingale property. It holds for D given the
    past, even if the annotators are alike.

    Parameters
    ----------
    outcomes
        One value in {0, ½, 1} per annotator.
    rule
        ``"mean"``: each judgment counts its share. ``"majority"``: the side that more chose; ½ where even.
    """
    mean = sum(outcomes) / len(outcomes)
    if rule == MEAN:
        return mean
    return 0.5 if mean == 0.5 else float(mean > 0.5)
