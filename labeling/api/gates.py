"""The gate for pull requests."""

from typing import Annotated, Any, Literal

from django.conf import settings
from django.urls import reverse
from ninja import Field, Router, Schema

from engine.selectors import counts
from engine.selectors import gates as selectors
from engine.selectors.consequences import caveats
from engine.services import gates
from engine.tasks import deliver, wake, wake_planner
from labeling import access
from labeling.api.auth import MANAGE
from labeling.api.experiments import WRITE_PROBLEMS, Id
from labeling.api.schemas import Exact
from labeling.requests import AuthenticatedRequest

router = Router()


class GateTextIn(Exact):
    factor: str
    level: str = Field(description="The level that main's policy has of this factor.")
    text: str = Field(description="The text that it has in the commit.")


class GateIn(Exact):
    """The texts of a commit that levels of one policy have."""

    texts: Annotated[list[GateTextIn], Field(min_length=1, max_length=50)]
    commit: Annotated[str, Field(pattern="^([0-9a-f]{7,64})?$")] = Field(
        "", description="Its hash: it hears of the end where the experiment has a repository."
    )
    merged: bool = Field(False, description="These are main's texts from now on; nothing is compared.")


class GateOut(Schema):
    state: Literal["same", "passed", "worse", "open", "stopped"] = Field(
        description="`same`: nothing to compare. `passed`: not worse by more than the margin."
    )
    sentence: str
    challenge: int | None = Field(description="The experiment in which the two are compared.")
    url: str
    comparisons: int
    epsilon: float
    delta: float
    reported: bool = Field(description="The server posts the state to the commit.")


@router.post("/{experiment_id}/gate", auth=MANAGE, response={200: GateOut} | WRITE_PROBLEMS)
def gate(request: AuthenticatedRequest, experiment_id: Id, payload: GateIn) -> dict[str, Any]:
    """Compare changed texts with those of main: begin a challenge of the two, or find the one that runs.

    The same texts against the same texts of main are one challenge, however often somebody asks.
    """
    experiment = access.to_run(request, experiment_id)
    texts = [gates.Text(each.factor, each.level, each.text) for each in payload.texts]
    found = None
    if payload.merged:
        gates.set_main_texts(experiment_id=experiment.pk, texts=texts, by=request.user)
        state, sentence = selectors.SAME, "These are main’s texts from now on."
    else:
        found = gates.check_texts(
            experiment_id=experiment.pk, texts=texts, commit=payload.commit, by=request.user
        )
        state = selectors.state_of(found) if found else selectors.SAME
        sentence = selectors.in_few_words(state, found.challenge if found else experiment)
        wake(deliver)
    compared = found.challenge if found else experiment
    if found:
        wake_planner(compared.pk)
        # While people judge, it names no leader: CI writes it where they may read it.
        if state != selectors.OPEN and compared.finding:
            sentence = " ".join([compared.finding, *caveats(compared)])
    return {
        "state": state,
        "sentence": sentence,
        "challenge": compared.pk if found else None,
        "url": settings.SITE_URL + reverse("dashboard", args=[compared.pk]),
        "comparisons": counts.comparison_count(compared.pk) if found else 0,
        "epsilon": compared.epsilon,
        "delta": compared.delta,
        "reported": bool(payload.commit) and selectors.has_forge(experiment),
    }
