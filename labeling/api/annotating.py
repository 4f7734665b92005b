"""Judging pairs by a program, under the same assignments and rules as on the page."""

import uuid
from typing import Any

from ninja import Router, Status
from ninja.errors import HttpError

from engine.models import Experiment, Judgment
from engine.selectors import answers, counts
from engine.services import serving
from engine.services.serving import ShownPair
from engine.tasks import wake_planner
from labeling import access
from labeling.annotation.waiting_annotators import note_miss
from labeling.api.auth import ANNOTATE
from labeling.api.experiments import WRITE_PROBLEMS, Id
from labeling.api.schemas import JudgedOut, JudgmentIn, NextOut, SkipIn
from labeling.requests import AuthenticatedRequest

router = Router()
_TAKEN_BACK = "You have no answer to this pair. It may have been taken back already."


@router.post("/{experiment_id}/next", auth=ANNOTATE, response={200: NextOut} | WRITE_PROBLEMS)
def next_pair(request: AuthenticatedRequest, experiment_id: Id) -> dict[str, Any]:
    """Your next pair. It stays the next one, on the page too, until you judge or skip it. Nobody else gets
    it. The policies stay hidden.
    """
    experiment = access.to_label(request, experiment_id)
    shown = serving.show_next(experiment=experiment, annotator=request.user)
    if shown is None:
        note_miss(experiment, request.user)
    return _shown(experiment, shown)


@router.post("/{experiment_id}/judgments", auth=ANNOTATE, response={200: JudgedOut} | WRITE_PROBLEMS)
def judge(request: AuthenticatedRequest, experiment_id: Id, payload: JudgmentIn) -> dict[str, Any]:
    """Store the answer to a pair exactly once. Repeating the request changes nothing."""
    experiment = access.to_label(request, experiment_id)
    _settle_next(request, experiment)
    answered = serving.answer(
        experiment_id=experiment.pk,
        token=payload.token,
        annotator=request.user,
        choice=str(payload.choice),
        comment=payload.comment,
        further=payload.model_dump(mode="json")["further"],
        via=Judgment.Via.API,
    )
    if answered.created:
        wake_planner(experiment.pk)
    return {"created": answered.created, "feedback": answered.feedback}


@router.post("/{experiment_id}/skip", auth=ANNOTATE, response={204: None} | WRITE_PROBLEMS)
def skip(request: AuthenticatedRequest, experiment_id: Id, payload: SkipIn) -> Status[None]:
    """End a pair without an answer. Nobody else judges it in your place, so it counts against the result.

    Who skips or leaves more than a tenth of their pairs, and at least five, gets no more.
    """
    experiment = access.to_label(request, experiment_id)
    _settle_next(request, experiment)
    serving.skip(
        experiment=experiment,
        token=payload.token,
        annotator=request.user,
        reason=str(payload.reason),
        comment=payload.comment,
    )
    wake_planner(experiment.pk)
    return Status(204, None)


@router.post("/{experiment_id}/undo", auth=ANNOTATE, response={200: NextOut} | WRITE_PROBLEMS)
def undo(request: AuthenticatedRequest, experiment_id: Id, token: uuid.UUID | None = None) -> dict[str, Any]:
    """Take back your newest answer, or the answer to the pair of a token, or its skip. Repeating the request
    with a token takes back nothing more.

    The reply holds its pair again, unless you also have or had a role that shows which policy wrote what:
    then the pair has ended without an answer.

    You may do so ten times in a row, and once more for every five answers.
    """
    experiment = access.to_label(request, experiment_id)
    answer = (
        answers.newest_answer(experiment, request.user)
        if token is None
        else answers.own_answer(experiment, request.user, token)
    )
    if answer is None:
        raise HttpError(409, "You have no answer to take back." if token is None else _TAKEN_BACK)
    shown = serving.take_back(experiment=experiment, answer=answer, annotator=request.user)
    wake_planner(experiment.pk)
    return _shown(experiment, shown)


def _settle_next(request: AuthenticatedRequest, experiment: Experiment) -> None:
    """Settle the pair after the one that is answered, so that it cannot tell what that one was."""
    serving.desk(experiment=experiment, annotator=request.user, n_wanted=2)


def _shown(experiment: Experiment, shown: ShownPair | None) -> dict[str, Any]:
    return {"question": experiment.question, "choices": counts.choices(experiment), "pair": shown}
