"""What people answered to the further questions, by policy. It is no evidence."""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from engine.core.agreement import Alpha
from engine.domain.further_questions import FurtherQuestion, Kind, read_questions
from engine.models import Experiment, Judgment
from engine.selectors.agreement import Answer, agreement_in
from engine.selectors.counts import standing_judgments

# Neither side is half a point for both, as with the question that decides.
_POINTS = {"left": (1.0, 0.0), "tie": (0.5, 0.5), "right": (0.0, 1.0)}


@dataclass
class FurtherResult:
    """A further question with its answers.

    Attributes
    ----------
    points
        By the index of a policy: the sum of its points, and the number of answers. A point is a choice of its
        response, or a mark from 1 to 5.
    texts
        The number of answers in words.
    agreement
        Of people who answered about the same two responses, on which is better.
    """

    question: FurtherQuestion
    points: dict[int, tuple[float, int]]
    texts: int
    agreement: Alpha

    @property
    def by_policy(self) -> list[tuple[int, float, int]]:
        """Policy, share or mean mark, and number of answers, the highest first."""
        rows = [(policy, total / n, n) for policy, (total, n) in self.points.items()]
        return sorted(rows, key=lambda row: (-row[1], row[0]))


@dataclass
class _Heard:
    points: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    texts: int = 0
    shared: dict[Any, dict[str, Answer]] = field(default_factory=lambda: defaultdict(dict))


def further_results(experiment: Experiment) -> list[FurtherResult]:
    """The answers of people that stand, for each further question that the experiment has now."""
    questions = {question.text: question for question in read_questions(experiment.further_questions)}
    heard = {text: _Heard() for text in questions}
    rows = (
        standing_judgments(experiment.pk)
        .filter(judge=Judgment.Judge.HUMAN)
        .exclude(further="")
        .order_by("pk")
        .values_list(
            "further", "comparison__i_on_left", "comparison__policy_i__index", "comparison__policy_j__index",
            "comparison__response_i_id", "comparison__response_j_id", "annotator__username", "created_at",
        )
    )  # fmt: skip
    for further, i_on_left, i, j, text_i, text_j, name, at in rows.iterator():
        for text, answer in json.loads(further).items():
            # The question may have been changed since.
            if (question := questions.get(text)) is None or not question.reads(answer):
                continue
            found = heard[text]
            if question.kind == Kind.TEXT:
                found.texts += 1
                continue
            left, right = _POINTS[answer] if question.kind == Kind.SIDE else map(float, answer)
            for_i, for_j = (left, right) if i_on_left else (right, left)
            found.points[i].append(for_i)
            found.points[j].append(for_j)
            outcome = (1.0 + (for_i > for_j) - (for_i < for_j)) / 2.0
            found.shared[text_i, text_j].setdefault(name, Answer(outcome, at))
    return [
        FurtherResult(
            question,
            {policy: (sum(each), len(each)) for policy, each in found.points.items()},
            found.texts,
            agreement_in([answers for answers in found.shared.values() if len(answers) > 1]),
        )
        for question, found in zip(questions.values(), heard.values(), strict=True)
    ]
