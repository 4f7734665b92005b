"""Facts about past votes: agreement of people, the sides that they chose, texts that came again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from django.db.models import Count, Q

from engine.core.agreement import Agreement, agreement
from engine.models import Experiment, Judgment
from engine.selectors.counts import standing_judgments

# The order of the rows and columns of a table of agreement: policy i's response, policy j's, neither.
_ANSWERS = {1.0: 0, 0.0: 1, 0.5: 2}


@dataclass(frozen=True)
class PastVotes:
    """The past votes of an experiment that stand.

    Attributes
    ----------
    votes
        Their number.
    repeated
        Votes about two responses that an earlier one was about too.
    agreement
        Of the first two people who judged the same two responses, over all such responses; ``None`` where
        there are none, or the file names nobody.
    left, sided
        Choices of the left side, of all choices of a side that the file places; 0 of 0 where it places none.
    """

    votes: int
    repeated: int
    agreement: Agreement | None
    left: int
    sided: int


def past_votes(experiment: Experiment) -> PastVotes:
    """Read from the votes, in their order."""
    votes = standing_judgments(experiment.pk).filter(comparison__plan__past=True)
    chose_left, chose_right = Q(choice=Judgment.Choice.LEFT), Q(choice=Judgment.Choice.RIGHT)
    sides = votes.filter(comparison__plan__side_known=True).aggregate(
        left=Count("pk", filter=chose_left), sided=Count("pk", filter=chose_left | chose_right)
    )
    rows = votes.order_by("pk").values_list(
        "comparison__response_i_id", "comparison__response_j_id", "annotator_id", "outcome"
    )
    n_votes = repeated = 0
    # By the two responses: the first judge and their answer, then the second's answer.
    first: dict[tuple[int, int], tuple[int | None, float]] = {}
    compared: set[tuple[int, int]] = set()
    table = np.zeros((3, 3))
    for response_i, response_j, annotator, outcome in rows.iterator():
        n_votes += 1
        pair = (response_i, response_j)
        if pair not in first:
            first[pair] = (annotator, outcome)
            continue
        repeated += 1
        judge, answer = first[pair]
        if pair not in compared and None not in {judge, annotator} and judge != annotator:
            compared.add(pair)
            table[_ANSWERS[answer], _ANSWERS[outcome]] += 1
    return PastVotes(
        votes=n_votes,
        repeated=repeated,
        agreement=agreement(table) if compared else None,
        left=sides["left"],
        sided=sides["sided"],
    )
