"""Asks the writer of an improvement for the texts that it wants, and stores what came."""

import json
import logging
from collections.abc import Collection

from engine.domain.errors import WrongStateError
from engine.domain.texts import storable
from engine.models import Improvement, Policy
from engine.selectors.improvements import open_votes
from engine.selectors.writing import brief_of, parents_of, with_all
from engine.services.improvements import add_proposals, claim_writing, note_writer_failure
from engine.writing.asking import Conversation
from engine.writing.base import ExhaustedError, WriterError
from engine.writing.registry import build_writer

logger = logging.getLogger(__name__)


def write_proposals(improvement_id: int) -> int:
    """Ask for the texts that an improvement wants, unless somebody does; returns how many came."""
    wanted = claim_writing(improvement_id=improvement_id)
    if not wanted:
        return 0
    improvement = with_all(improvement_id)
    parents = parents_of(improvement, list(wanted))
    try:
        return sum(_write(improvement, parents[index], n) for index, n in wanted.items())
    except WrongStateError:
        # It ended meanwhile.
        return 0


def _write(improvement: Improvement, parent: Policy, n: int) -> int:
    votes = open_votes(improvement, parent)
    conversation = Conversation(improvement.experiment, improvement.connection)
    written, fault, exhausted = [], "", False
    try:
        writer = build_writer(improvement.writer, conversation)
        written = writer.write(brief_of(improvement, parent, votes), n)[:n]
        fault = "" if written else "The writer gave no text."
    except WriterError as error:
        fault, exhausted = storable(str(error)), isinstance(error, ExhaustedError)
    except Exception as error:
        # A writer of another package may raise anything.
        logger.exception("The writer %s broke", improvement.writer)
        fault = f"The writer broke ({type(error).__name__})."
    sent, gave = (_record(conversation, side) for side in ("sent", "gave"))
    # What was not sent was not seen.
    opened: Collection[int] = [each.task_id for each in votes] if conversation.record else []
    about = {"improvement_id": improvement.pk, "parent": parent.index}
    if fault:
        note_writer_failure(**about, reason=fault, sent=sent, gave=gave, opened=opened, exhausted=exhausted)
        return 0
    texts = [(each.text, each.reason) for each in written]
    return len(add_proposals(**about, written=texts, sent=sent, gave=gave, opened=opened))


def _record(conversation: Conversation, side: str) -> str:
    """One side of the exchanges with the model as text: messages with their roles, answers as they came."""
    said = [each[side] for each in conversation.record]
    texts = [
        each if isinstance(each, str) else json.dumps(each, ensure_ascii=False, indent=1) for each in said
    ]
    return "\n\n".join(texts)
