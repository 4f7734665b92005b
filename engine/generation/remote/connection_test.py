"""Tests a connection: one small task, asked again without each setting that the server refuses."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from engine.domain.connection_targets import Target
from engine.domain.conversations import chat
from engine.domain.errors import KeyUnreadableError
from engine.domain.levels import SamplingParams
from engine.domain.profiles import Takes
from engine.generation.base import (
    Fault,
    Finish,
    GenerationFailure,
    GenerationRequest,
    GenerationResult,
    Outcome,
    Usage,
)
from engine.generation.remote.client import Client
from engine.generation.remote.replies import remarks_of
from engine.generation.remote.requests import prepare
from engine.models import Connection, clock
from engine.selectors.connections import numbered
from engine.services.connection_pauses import note_test
from engine.services.keys import target_of

logger = logging.getLogger(__name__)

# Somebody waits for it.
_LONGEST_SECONDS = 120.0
_SHOWN_CHARACTERS = 4_000
# Enough for a model that thinks.
_TASK = GenerationRequest(
    key=0,
    messages=chat("Say in one short sentence what a connection test is.", "Answer in plain English."),
    sampling=SamplingParams(
        temperature=0.7, top_p=0.9, top_k=40, max_tokens=2_000, stop=("\n\n###",), seed=True
    ),
    seed=1,
)
_OTHER_LIMIT = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


def try_connection(connection_id: int) -> None:
    """Ask the model, and store what happened. Whatever goes wrong is a result."""
    connection = numbered(connection_id)
    usages: list[Usage] = []
    try:
        found = _tested(connection, usages)
    except KeyUnreadableError as unreadable:
        found = {"works": False, "sentence": str(unreadable)}
    except Exception as error:
        # Show only its kind: its message may hold parts of the request.
        logger.error("The test of connection %s broke: %s", connection_id, type(error).__name__)  # noqa: TRY400
        found = {"works": False, "sentence": f"The test itself broke ({type(error).__name__})."}
    note_test(connection_id=connection_id, test=found | {"at": clock.now().isoformat()}, usages=usages)


def _tested(connection: Connection, usages: list[Usage]) -> dict[str, Any]:
    """The test's result. The tokens of each reply are appended to ``usages``, whatever happens then."""
    target = target_of(connection)
    target = replace(target, answer_seconds=min(target.answer_seconds, _LONGEST_SECONDS))
    outcome, asked = asyncio.run(_ask(target, usages))
    prepared = prepare(asked, _TASK)
    found: dict[str, Any] = {
        "request": {"url": prepared.url, "headers": dict(prepared.headers)},
        "body": json.dumps(prepared.body, indent=2, ensure_ascii=False),
        "left_out": list(prepared.left_out),
        "proposed": _differences(target.takes, asked.takes) if isinstance(outcome, GenerationResult) else {},
        "said": outcome.said,
    }
    if isinstance(outcome, GenerationFailure):
        return found | {"works": False, "sentence": outcome.reason}
    return found | {
        "works": outcome.finish_reason != Finish.ERROR,
        "sentence": _sentence(outcome),
        "remarks": remarks_of(outcome, _TASK),
        "reply": {
            "text": outcome.text[:_SHOWN_CHARACTERS],
            "thinking": outcome.thinking[:_SHOWN_CHARACTERS],
            "refusal": outcome.refusal[:_SHOWN_CHARACTERS],
            "finish": outcome.finish_reason,
            "marks": list(outcome.marks),
            "served_model": outcome.served_model,
            "prompt_tokens": outcome.prompt_tokens,
            "completion_tokens": outcome.completion_tokens,
            "thinking_tokens": outcome.thinking_tokens,
            "seconds": outcome.latency_seconds,
        },
    }


def _sentence(result: GenerationResult) -> str:
    match result.finish_reason:
        case Finish.ERROR:
            return result.reason
        case Finish.FILTERED:
            return "The server answers, but its filter took this answer away."
        case Finish.REFUSED:
            return "The model answers, but it refused this task."
    if not result.text:
        return "The model answers, but with no text: it may need a larger maximum of tokens."
    return "It works."


async def _ask(target: Target, usages: list[Usage]) -> tuple[Outcome, Target]:
    """The reply, and the target with the rules under which it came; the first failure if none comes."""
    async with Client() as client:

        async def ask(asked: Target) -> Outcome:
            outcome = await client.ask(asked, _TASK)
            usages.append(outcome.usage)
            return outcome

        first = await ask(target)
        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                return await _ask_with_less(ask, target, first)
        except TimeoutError:
            return first, target


async def _ask_with_less(
    ask: Callable[[Target], Awaitable[Outcome]], target: Target, first: Outcome
) -> tuple[Outcome, Target]:
    """The same where the first request was refused: what the server does not take is left out."""
    outcome = first
    asked, dropped = target, set[str]()
    # Drop the settings that the server names, request by request.
    while (named := _named(outcome, asked.takes, dropped)) is not None:
        dropped |= named.keys()
        asked = replace(asked, takes=replace(asked.takes, **named))
        outcome = await ask(asked)
    if not _may_be_a_setting(outcome):
        return outcome, asked
    # It names none: each is dropped alone, then all.
    changes = list(_changes(target.takes))
    everything = dict(change for each in changes for change in each.items())
    for change in (*changes, everything):
        asked = replace(target, takes=replace(target.takes, **change))
        outcome = await ask(asked)
        if isinstance(outcome, GenerationResult):
            return outcome, asked
        if not _may_be_a_setting(outcome):
            break
    return first, target


def _may_be_a_setting(outcome: Outcome) -> bool:
    """True of a refused request; also of a server that breaks, as some do when a system message comes."""
    if not isinstance(outcome, GenerationFailure):
        return False
    return outcome.fault == Fault.SETTINGS or (outcome.fault == Fault.SERVER and "500" in outcome.reason)


def _changes(takes: Takes) -> Iterator[Mapping[str, Any]]:
    """The changes of a request to try, each alone; the least loss first."""
    if takes.seed:
        yield {"seed": ""}
    if takes.top_k:
        yield {"top_k": ""}
    if takes.max_tokens in _OTHER_LIMIT:
        yield {"max_tokens": _OTHER_LIMIT[takes.max_tokens]}
    if takes.temperature and takes.top_p and takes.temperature_with_top_p:
        yield {"temperature_with_top_p": False}
    if takes.system:
        yield {"system": False}
    if takes.stop:
        yield {"stop": ""}
    if takes.top_p:
        yield {"top_p": ""}
    if takes.temperature:
        yield {"temperature": ""}


def _named(outcome: Outcome, takes: Takes, dropped: set[str]) -> dict[str, Any] | None:
    """The change that the server's words ask for; ``None`` where they name nothing that is still sent."""
    if not isinstance(outcome, GenerationFailure) or outcome.fault != Fault.SETTINGS:
        return None
    said = outcome.said.lower()
    limit = takes.max_tokens
    if "max_tokens" not in dropped and limit and limit in said:
        return {"max_tokens": _OTHER_LIMIT.get(limit, "")}
    both = "temperature" in said and "top_p" in said and "both" in said
    if both and takes.temperature_with_top_p:
        return {"temperature_with_top_p": False}
    for name in ("temperature", "top_p", "top_k", "seed", "stop"):
        field = getattr(takes, name)
        if field and field.rpartition(".")[2].lower() in said and name not in dropped:
            return {name: ""}
    if takes.system and "system" in said:
        return {"system": False}
    return None


def _differences(before: Takes, after: Takes) -> dict[str, Any]:
    return {
        field.name: getattr(after, field.name)
        for field in fields(Takes)
        if getattr(after, field.name) != getattr(before, field.name)
    }
