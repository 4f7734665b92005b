"""Has the language model that judges compare proposals with their parents, before people are shown them.

What it says enters no evidence: it only spares people clicks on texts that it finds clearly worse.
"""

import secrets
from contextlib import closing

from engine.generation.base import Backend, BackendError, GenerationFailure, Outcome
from engine.generation.remote.backend import RemoteBackend
from engine.judges.llm_worker import both_orders, read_both
from engine.models import Charge, Judgment, Proposal
from engine.selectors.connection_pauses import asked_from_here, pause_seconds
from engine.selectors.spending import overspent_connections
from engine.selectors.writing import proposals_to_screen, screens
from engine.services.charges import Spent, book
from engine.services.improvements import claim_screening, store_screening


def screen_proposals(backend: Backend) -> None:
    """Screen the proposals that wait for this backend."""
    judges = {""}
    if isinstance(backend, RemoteBackend):
        overspent = overspent_connections()
        judges = {
            each.name for each in asked_from_here() if not pause_seconds(each) and each.pk not in overspent
        }
    for proposal in proposals_to_screen(judges):
        # Each one uses up some of the budget.
        if screens(proposal.improvement.experiment) and claim_screening(proposal):
            store_screening(proposal_id=proposal.pk, screened=_screened(proposal, backend))


def _screened(proposal: Proposal, backend: Backend) -> list[float]:
    """As :attr:`engine.models.Proposal.screened`."""
    experiment = proposal.improvement.experiment
    pairs = [(each["task"], each["text"], each["parent"]) for each in proposal.answers if "parent" in each]
    code, heard = secrets.token_hex(4), dict[int, Outcome]()
    requests = [
        request
        for key, (task, own, parent) in enumerate(pairs)
        for request in both_orders(experiment, task, (own, parent), key=key, code=code)
    ]
    is_remote = isinstance(backend, RemoteBackend)
    model = experiment.judge_model or backend.model
    try:
        with closing(backend.generate(requests)) as outcomes:
            for outcome in outcomes:
                purpose = Charge.Purpose.OPINION
                book([Spent(model, outcome.usage, purpose, experiment.pk, of_worker=not is_remote)])
                if not (isinstance(outcome, GenerationFailure) and outcome.is_asked_again):
                    heard[outcome.key] = outcome
    except BackendError:
        return []
    if len(heard) < len(requests):
        return []
    said = [read_both(key, heard[2 * key], heard[2 * key + 1]) for key in range(len(pairs))]
    if any(each.failure for each in said):
        return []
    points = {Judgment.Choice.LEFT: 1.0, Judgment.Choice.RIGHT: 0.0}
    return [
        points.get(Judgment.Choice(each.left_first), 0.5) if each.left_first == each.right_first else 0.5
        for each in said
    ]
