"""Lets a proposal that waits for an OK answer a few tasks, so that its owner sees what it does.

These answers are no responses: no pair, pool or count can ever hold one.
"""

import secrets
from collections.abc import Sequence
from contextlib import closing

from engine.domain.levels import compose, parse_level
from engine.generation.base import Backend, GenerationFailure, GenerationRequest
from engine.generation.responses import ResponseInProgress
from engine.models import Charge, Experiment, Proposal, Response, Task
from engine.selectors.connection_pauses import by_name
from engine.selectors.improvements import TEXTS, text_of
from engine.selectors.offered_models import Offer, needs
from engine.selectors.writing import levels_of, proposals_to_answer, screens, tasks_to_answer
from engine.services.charges import Spent, book
from engine.services.generation import Written
from engine.services.improvements import claim_answers, store_answers


def answer_proposals(backend: Backend, offer: Offer) -> int:
    """Write the answers of the proposals that wait for them and that this worker's model serves; how many."""
    done = 0
    for proposal in proposals_to_answer():
        served = offer.serves(needs([proposal.parent_id])[proposal.parent_id])
        if served and claim_answers(proposal):
            texts = {"text": proposal.text}
            if screens(proposal.improvement.experiment):
                texts["parent"] = text_of(proposal.parent, proposal.improvement.factor)
            tasks = tasks_to_answer(proposal)
            wanted = [(text, task) for task in tasks for text in texts.values()]
            said = iter(_answers(proposal, wanted, backend))
            answers = [{"task": task.prompt} | {name: next(said) for name in texts} for task in tasks]
            store_answers(proposal_id=proposal.pk, answers=answers)
            done += 1
    return done


def _answers(proposal: Proposal, wanted: Sequence[tuple[str, Task]], backend: Backend) -> list[str]:
    """The answers by these texts to these tasks, all written at once."""
    in_progress = [_begun(proposal, *each, key=key) for key, each in enumerate(wanted)]
    steps = [each.begin() for each in in_progress]
    while requests := [step for step in steps if isinstance(step, GenerationRequest)]:
        with closing(backend.generate(requests)) as outcomes:
            for outcome in outcomes:
                answer = in_progress[outcome.key]
                model = answer.asked_model(backend.model)
                book([Spent(model, outcome.usage, Charge.Purpose.TRIAL, proposal.improvement.experiment_id)])
                if not (isinstance(outcome, GenerationFailure) and outcome.is_asked_again):
                    steps[outcome.key] = answer.proceed(outcome, backend.model)
    return [
        step.text if isinstance(step, Written) else f"(not written: {step.reason})"
        for step in steps
        if not isinstance(step, GenerationRequest)
    ]


def _begun(proposal: Proposal, text: str, task: Task, *, key: int) -> ResponseInProgress:
    factor, experiment = proposal.improvement.factor, proposal.improvement.experiment
    values = [
        parse_level(
            level.factor.kind,
            level.value | ({TEXTS[factor.kind]: text} if level.factor_id == factor.pk else {}),
        )
        for level in levels_of(proposal)
    ]
    return ResponseInProgress(
        Response(pk=key, policy=proposal.parent, task=task, seed=secrets.randbelow(2**31)),
        compose(values, model=experiment.model),
        by_name(),
        thinking_is_shown=experiment.shown_thinking == Experiment.ShownThinking.BOTH,
    )
