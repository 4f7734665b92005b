"""Agreement of people who judged the same two responses."""

from __future__ import annotations

import numpy as np
from django.db.models import Count

from engine.core.agreement import Alpha, alpha
from engine.models import Experiment, Judgment
from engine.selectors.counts import standing_judgments

# The columns of the table: policy i's response, policy j's, neither.
_ANSWERS = {1.0: 0, 0.0: 1, 0.5: 2}


def agreement_of_people(experiment: Experiment) -> Alpha:
    """Krippendorff's α over the pairs of responses that at least two people judged, past votes included.

    A person counts once for each pair, with the first answer. Ties and "both bad" are one answer.
    """
    by_people = standing_judgments(experiment.pk).filter(judge=Judgment.Judge.HUMAN, annotator__isnull=False)
    pair = ("comparison__response_i_id", "comparison__response_j_id")
    # The database finds them: in most experiments nearly every pair was judged once.
    several = by_people.values_list(*pair).annotate(people=Count("annotator_id", distinct=True))
    wanted = {(i, j) for i, j, _ in several.filter(people__gte=2).order_by()}
    if not wanted:
        return alpha(np.zeros((0, len(_ANSWERS))))
    places = {each: place for place, each in enumerate(sorted(wanted))}
    table = np.zeros((len(places), len(_ANSWERS)))
    heard: set[tuple[int, int, int]] = set()
    rows = by_people.order_by("pk").values_list(*pair, "annotator_id", "outcome")
    for i, j, annotator, outcome in rows.iterator():
        if (i, j) in places and (i, j, annotator) not in heard:
            heard.add((i, j, annotator))
            table[places[i, j], _ANSWERS[outcome]] += 1
    return alpha(table)
