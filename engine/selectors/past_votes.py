"""Facts about past votes: the sides that people chose, and repeated pairs of responses."""

from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet

from engine.models import Experiment, Judgment
from engine.selectors.counts import standing_judgments, with_both_texts


@dataclass(frozen=True)
class PastVotes:
    """The past votes of an experiment that stand.

    Attributes
    ----------
    votes
        Their number.
    with_texts
        Those of them with both responses: of the others nobody knows what they were about.
    repeated
        Votes with both responses that are about the same two as an earlier one.
    left, sided
        Choices of the left side, of all choices of a side that the file places; 0 of 0 where it places none.
    vary
        Some two policies were shown in both orders. Where none were, a choice of a side may be one of a
        policy.
    """

    votes: int
    with_texts: int
    repeated: int
    left: int
    sided: int
    vary: bool


def past_vote_count(experiment: Experiment) -> int:
    """Number of past votes that stand, in one look."""
    return _standing(experiment).count()


def past_votes(experiment: Experiment) -> PastVotes:
    """The facts about the past votes of an experiment."""
    votes = _standing(experiment)
    chose_left, chose_right = Q(choice=Judgment.Choice.LEFT), Q(choice=Judgment.Choice.RIGHT)
    sides = votes.filter(comparison__plan__side_known=True).aggregate(
        left=Count("pk", filter=chose_left), sided=Count("pk", filter=chose_left | chose_right)
    )
    known = votes.filter(with_both_texts("comparison__"))
    different = known.values("comparison__response_i_id", "comparison__response_j_id").distinct().count()
    with_texts = known.count()
    return PastVotes(
        votes=votes.count(),
        with_texts=with_texts,
        repeated=with_texts - different,
        left=sides["left"],
        sided=sides["sided"],
        vary=sides_vary(experiment),
    )


def sides_vary(experiment: Experiment) -> bool:
    """True if the past votes with a side are about some two policies in both orders."""
    sided = _standing(experiment).filter(comparison__plan__side_known=True)
    orders = sided.values("comparison__policy_i_id", "comparison__policy_j_id").annotate(
        orders=Count("comparison__i_on_left", distinct=True)
    )
    return orders.filter(orders=2).exists()


def _standing(experiment: Experiment) -> QuerySet[Judgment]:
    return standing_judgments(experiment.pk).filter(comparison__plan__past=True)
