"""Judging pairs by a program, under the same leases and rules as on the page."""

from __future__ import annotations

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
from labeling.annotation.misses import note_miss
from labeling.api.auth import ANNOTATE
from labeling.api.experiments import WRITE_PROBLEMS, Id
from labeling.api.schemas import FlagIn, JudgedOut, JudgmentIn, NextIn, NextOut, TokenIn
from labeling.requests import AuthenticatedRequest

router = Router()
_TAKEN_BACK = "You have no answer to this pair. It may have been taken back already."


@router.post("/{experiment_id}/next", auth=ANNOTATE, response={200: NextOut} | WRITE_PROBLEMS)
def next_pair(request: AuthenticatedRequest, experiment_id: Id, payload: NextIn) -> dict[str, Any]:
    """Reserve the next pair for a while. You may hold at most six. The policies stay hidden."""
    experiment = access.to_label(request, experiment_id)
    shown = serving.show_next(experiment=experiment, annotator=request.user, besides=payload.besides)
    if shown is None and not payload.besides:
        note_miss(experiment, request.user)
    return _shown(experiment, shown)


@router.post("/{experiment_id}/judgments", auth=ANNOTATE, response={200: JudgedOut} | WRITE_PROBLEMS)
def judge(request: AuthenticatedRequest, experiment_id: Id, payload: JudgmentIn) -> dict[str, Any]:
    """Store the answer to a pair exactly once. Repeating the request changes nothing."""
    experiment = access.to_label(request, experiment_id)
    answered = serving.answer(
        experiment_id=experiment.pk,
        token=payload.token,
        annotator=request.user,
        choice=str(payload.choice),
        comment=payload.comment,
        via=Judgment.Via.API,
    )
    if answered.created:
        wake_planner(experiment.pk)
    return {"created": answered.created, "feedback": answered.feedback}


@router.post("/{experiment_id}/skip", auth=ANNOTATE, response={204: None} | WRITE_PROBLEMS)
def skip(request: AuthenticatedRequest, experiment_id: Id, payload: TokenIn) -> Status[None]:
    """Return a pair for another annotator. A later answer to it is refused."""
    experiment = access.to_label(request, experiment_id)
    serving.skip(experiment=experiment, token=payload.token, annotator=request.user)
    wake_planner(experiment.pk)
    return Status(204, None)


@router.post("/{experiment_id}/flag", auth=ANNOTATE, response={204: None} | WRITE_PROBLEMS)
def flag(request: AuthenticatedRequest, experiment_id: Id, payload: FlagIn) -> Status[None]:
    """Return a pair and report a problem with it."""
    experiment = access.to_label(request, experiment_id)
    serving.flag(
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
    """Take back your newest answer, or the one to the pair of a token. Repeating the request with a token
    takes back nothing more.

    The reply holds its pair again, unless it is another annotator's now. It is if you also have or had a role
    that shows which policy wrote what.

    You may do so ten times in a row, and once more for every five answers.
    If you hold six pairs, one is returned.
    """
    experiment = access.to_label(request, experiment_id)
    if token is None:
        answer = answers.newest_answer(experiment, request.user)
    else:
        answer = answers.own_answer(experiment, request.user, token)
    if answer is None:
        raise HttpError(409, "You have no answer to take back." if token is None else _TAKEN_BACK)
    shown = serving.take_back(experiment=experiment, answer=answer, annotator=request.user)
    wake_planner(experiment.pk)
    return _shown(experiment, shown)


def _shown(experiment: Experiment, shown: ShownPair | None) -> dict[str, Any]:
    return {"question": experiment.question, "choices": counts.choices(experiment), "pair": shown}
