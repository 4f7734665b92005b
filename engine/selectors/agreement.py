"""Agreement of people who judged the same two responses."""

from dataclasses import dataclass
from datetime import datetime

import numpy as np
from django.db.models import Count

from engine.core.agreement import Alpha, alpha
from engine.models import Experiment, Judgment
from engine.selectors.counts import standing_judgments, with_both_texts

# The columns of the table: policy i's response, policy j's, neither.
_ANSWERS = {1.0: 0, 0.0: 1, 0.5: 2}


@dataclass(frozen=True)
class Answer:
    """The outcome that one person gave a pair of responses, and the time."""

    outcome: float
    at: datetime


def shared_answers(experiment: Experiment) -> list[dict[str, Answer]]:
    """Each person's first answer, by user name, to every pair of responses that several people judged.

    Past votes count if both of their responses are known.
    """
    by_people = standing_judgments(experiment.pk).filter(
        with_both_texts("comparison__"), judge=Judgment.Judge.HUMAN, annotator__isnull=False
    )
    pair = ("comparison__response_i_id", "comparison__response_j_id")
    # The database finds these pairs: in most experiments nearly every pair was judged once.
    several = by_people.values_list(*pair).annotate(people=Count("annotator_id", distinct=True))
    shared: dict[tuple[int, int], dict[str, Answer]] = {
        (i, j): {} for i, j, _ in several.filter(people__gte=2).order_by()
    }
    if shared:
        rows = by_people.order_by("pk").values_list(*pair, "annotator__username", "outcome", "created_at")
        for i, j, name, outcome, at in rows.iterator():
            if (i, j) in shared:
                shared[i, j].setdefault(name, Answer(outcome, at))
    return [shared[each] for each in sorted(shared)]


def agreement_of_people(experiment: Experiment) -> Alpha:
    """Krippendorff's α over the pairs of responses that at least two people judged, past votes included.

    A person counts once for each pair, with the first answer. Ties and "both bad" are one answer.
    """
    return agreement_in(shared_answers(experiment))


def agreement_in(shared: list[dict[str, Answer]]) -> Alpha:
    """Krippendorff's α of answers that :func:`shared_answers` has read."""
    table = np.zeros((len(shared), len(_ANSWERS)))
    for place, heard in enumerate(shared):
        for answer in heard.values():
            table[place, _ANSWERS[answer.outcome]] += 1
    return alpha(table)
