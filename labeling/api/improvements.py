"""Improvements: start, watch, accept and refuse proposals, stop."""

from datetime import datetime
from typing import Annotated, Any

from django.http import Http404
from ninja import Field, Path, Router, Schema

from engine.domain.claim_settings import LARGEST_RISK, SMALLEST_RISK
from engine.models import Experiment, Improvement, Proposal
from engine.selectors import improvements as selectors
from engine.services import improvements
from engine.tasks import wake_planner
from labeling import access
from labeling.api.auth import MANAGE, READ
from labeling.api.experiments import PROBLEMS, WRITE_PROBLEMS, Id
from labeling.api.schemas import Exact
from labeling.requests import AuthenticatedRequest

router = Router()

Number = Annotated[int, Path(ge=1, le=2**31)]


class ImprovementIn(Exact):
    """An improvement to start."""

    clicks: int = Field(
        300, ge=20, le=10_000, description="How many comparisons to spend; the last quarter is for the claim."
    )
    delta: float = Field(
        0.05,
        ge=SMALLEST_RISK,
        le=LARGEST_RISK,
        description="Risk of the claim that the champion beats the original.",
    )
    factor: str = Field("", description="The factor whose text is written anew; by default the first.")
    original: Annotated[int, Field(ge=1)] | None = Field(
        None, description="The number of the policy to improve; by default the winner or leader."
    )
    wish: str = Field("", description="What you would like, in words.")
    needs_ok: bool = Field(True, description="Each proposal waits for somebody's OK.")
    writer: str = Field("reflective", description="The name of the writer: `reflective`, `prepared`.")
    connection: str = Field("", description="The connection that the writer asks, by its name.")


class GoOnIn(Exact):
    clicks: int = Field(100, ge=20, le=10_000, description="How many more comparisons to spend.")


class AcceptIn(Exact):
    text: str | None = Field(None, description="Another text in its place.")


class RefuseIn(Exact):
    reason: Annotated[str, Field(min_length=1, max_length=500)]


class VerdictOut(Schema):
    kind: str = Field(description="`open`, `nothing_better`, `leads` or `certified`.")
    policy: str = Field(description="The policy that is recommended now.")
    share: float | None = Field(description="The champion's share of the comparisons that count.")
    n_told: int = Field(description="How many comparisons these are.")
    lower: float = Field(description="What its win rate against the original is at least, at risk δ.")
    risk: float = Field(description="The risk at which the claim would just hold.")


class TasksOut(Schema):
    judging: int
    open: int = Field(description="Open to writers, and not seen by one yet.")
    seen: int


class WritingOut(Schema):
    parent: str
    opened_tasks: list[int] = Field(description="Numbers of the tasks of which the writer saw votes.")
    sent: str
    gave: str
    fault: str
    at: datetime


class ProposalOut(Schema):
    number: int
    policy: str | None
    parent: str
    text: str
    written_text: str = Field(description="As the writer gave it, where somebody edited it.")
    reason: str
    state: str = Field(description=", ".join(f"`{each}`" for each in Proposal.State.values))
    refused_because: str
    screened: list[float] | None = Field(
        description="By the language model that judges: 1 where it preferred this one to its parent, 0 where "
        "not, 0.5 for neither, for each task."
    )
    compared: int
    probability: float | None = Field(
        description="That it was better than the champion, when it was dropped or promoted."
    )
    created_at: datetime
    settled_at: datetime | None


class PromotionOut(Schema):
    child: str
    over: str
    at: int
    probability: float


class DroppedOut(Schema):
    child: str
    parent: str
    after: int
    at: int
    probability: float


class ImprovementOut(Schema):
    state: str = Field(description="`open`, `ended` or `stopped`.")
    phase: str = Field(description="`explore`, `certify` or `ended`.")
    sentence: str
    verdict: VerdictOut
    original: str
    champion: str
    factor: str
    clicks: int
    used: int
    delta: float
    wish: str
    needs_ok: bool
    longest: int
    writer: str
    connection: str
    tasks: TasksOut
    writings: list[WritingOut]
    proposals: list[ProposalOut]
    promotions: list[PromotionOut]
    dropped: list[DroppedOut]
    started_at: datetime
    ended_at: datetime | None


_ANSWERS = {200: ImprovementOut} | WRITE_PROBLEMS


@router.post("/{experiment_id}/improvement", auth=MANAGE, response=_ANSWERS)
def start_improvement(
    request: AuthenticatedRequest, experiment_id: Id, payload: ImprovementIn
) -> dict[str, Any]:
    """Begin to improve a policy: a writer proposes texts, people choose, the best meets the original."""
    experiment = access.to_run(request, experiment_id)
    given = payload.model_dump(exclude={"original"})
    original = None if payload.original is None else payload.original - 1
    started = improvements.start_improvement(
        experiment_id=experiment.pk, original=original, by=request.user, **given
    )
    return _changed(started)


@router.get("/{experiment_id}/improvement", auth=READ, response={200: ImprovementOut} | PROBLEMS)
def improvement(request: AuthenticatedRequest, experiment_id: Id) -> dict[str, Any]:
    """Show the newest improvement, with everything that was written, dropped and promoted in it."""
    return selectors.record_of(_newest(access.to_watch(request, experiment_id)))


@router.post("/{experiment_id}/improvement/stop", auth=MANAGE, response=_ANSWERS)
def stop_improvement(request: AuthenticatedRequest, experiment_id: Id) -> dict[str, Any]:
    """End the improvement now, with what is established by now."""
    newest = _newest(access.to_run(request, experiment_id))
    return _changed(improvements.stop_improvement(improvement_id=newest.pk, by=request.user))


@router.post("/{experiment_id}/improvement/go-on", auth=MANAGE, response=_ANSWERS)
def go_on_improving(request: AuthenticatedRequest, experiment_id: Id, payload: GoOnIn) -> dict[str, Any]:
    """Look for something better still than the champion of an improvement that has ended.

    The claim stays about the original, and its risk that of the whole improvement.
    """
    newest = _newest(access.to_run(request, experiment_id))
    return _changed(
        improvements.go_on_improving(improvement_id=newest.pk, clicks=payload.clicks, by=request.user)
    )


@router.post("/{experiment_id}/improvement/certify", auth=MANAGE, response=_ANSWERS)
def fix_champion(request: AuthenticatedRequest, experiment_id: Id) -> dict[str, Any]:
    """Look for better texts no longer: from here on the champion meets the original."""
    newest = _newest(access.to_run(request, experiment_id))
    return _changed(improvements.fix_champion(improvement_id=newest.pk, by=request.user))


@router.post("/{experiment_id}/improvement/proposals/{number}/accept", auth=MANAGE, response=_ANSWERS)
def accept_proposal(
    request: AuthenticatedRequest, experiment_id: Id, number: Number, payload: AcceptIn
) -> dict[str, Any]:
    """Let a proposal that waits join the race."""
    proposal = _proposal(access.to_run(request, experiment_id), number)
    improvements.accept_proposal(proposal_id=proposal.pk, text=payload.text, by=request.user)
    return _changed(proposal.improvement)


@router.post("/{experiment_id}/improvement/proposals/{number}/refuse", auth=MANAGE, response=_ANSWERS)
def refuse_proposal(
    request: AuthenticatedRequest, experiment_id: Id, number: Number, payload: RefuseIn
) -> dict[str, Any]:
    """Refuse a proposal that waits; the writer is told the reason."""
    proposal = _proposal(access.to_run(request, experiment_id), number)
    improvements.refuse_proposal(proposal_id=proposal.pk, reason=payload.reason, by=request.user)
    return _changed(proposal.improvement)


def _newest(experiment: Experiment) -> Improvement:
    newest = selectors.newest_improvement(experiment)
    if newest is None:
        raise Http404("This experiment has no improvement.")
    return newest


def _proposal(experiment: Experiment, number: int) -> Proposal:
    proposal = selectors.proposal_of(_newest(experiment), number)
    if proposal is None:
        raise Http404(f"The improvement has no proposal {number}.")
    return proposal


def _changed(improvement: Improvement) -> dict[str, Any]:
    wake_planner(improvement.experiment_id)
    improvement.refresh_from_db()
    return selectors.record_of(improvement)
