"""Sends winners to their destinations, and brings the version before back."""

import hashlib
import json
import logging
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from engine.domain.errors import KeyUnreadableError, PublicationError
from engine.models import Destination, Experiment, Publication, User
from engine.publishing.base import MADE, Place, RegistryError, Request
from engine.publishing.registry import build_registry
from engine.publishing.winners import Winner
from engine.publishing.working_tree import WorkingTree
from engine.selectors.publications import reached, sent_by_us
from engine.services import publications
from engine.services.keys import key_of

logger = logging.getLogger(__name__)


def place_of(destination: Destination) -> Place:
    """The destination as its registry takes it."""
    return Place(destination.address, destination.name, destination.label)


def add_destination(*, experiment: Experiment, by: User, kind: str, to: Place, key: str) -> Destination:
    """Check and add a destination.

    Raises
    ------
    PublicationError
        It cannot be used.
    """
    try:
        to = build_registry(kind).check(to, has_key=bool(key))
    except (ValueError, RegistryError) as error:
        raise PublicationError(str(error)) from error
    return publications.add_destination(
        experiment=experiment,
        by=by,
        kind=kind,
        address=to.address,
        name=to.name,
        label=to.label,
        key=key,
    )


def planned(destination: Destination, winner: Winner | None, *, back: bool) -> list[dict[str, Any]]:
    """The requests that would be sent now, as they are stored and shown.

    Raises
    ------
    PublicationError
        There is nothing to send, or nothing to go back to.
    """
    try:
        registry, to = build_registry(destination.kind), place_of(destination)
    except RegistryError as error:
        raise PublicationError(str(error)) from error
    if back:
        last = reached(destination).undoable
        if last is None:
            raise PublicationError("There is nothing to go back to: nothing that we sent took its place.")
        return [*map(asdict, registry.back(last.before, to))]
    if winner is None:
        raise PublicationError("There is no winner, or its prompt is not known here.")
    return [*map(asdict, registry.requests(winner, to))]


def digest_of(requests: list[dict[str, Any]]) -> str:
    """What tells these requests from others."""
    return hashlib.sha256(json.dumps(requests).encode()).hexdigest()


def begin(destination: Destination, winner: Winner | None, *, back: bool, by: User, shown: str) -> None:
    """Ask a worker to send what was shown, by its digest.

    Raises
    ------
    PublicationError
        It would not be what was shown, or cannot be sent.
    """
    requests = planned(destination, winner, back=back)
    if digest_of(requests) != shown:
        raise PublicationError("It has changed since it was shown. Look at it again.")
    last = reached(destination).undoable if back else None
    policy = last.policy if last else f"{winner.name} ({winner.code})" if winner else ""
    publications.begin(
        destination=destination, by=by, policy=policy[:300], requests=requests, goes_back_to=last
    )


def publish_next() -> bool:
    """Send the next publication that waits; false if none does."""
    publication = publications.claim_next()
    if publication is None:
        return False
    try:
        before, version = _sent(publication)
    except (RegistryError, KeyUnreadableError) as error:
        logger.warning("Publication %s failed: %s", publication.pk, error)
        publications.mark_unpublished(publication=publication, error=str(error))
    except Exception as error:
        # Of another package's registry, or an answer of an unknown shape. Its words may hold the key.
        logger.exception("Publication %s failed", publication.pk)
        name = type(error).__name__
        publications.mark_unpublished(
            publication=publication, error=f"The answer could not be read ({name}). Look there what arrived."
        )
    else:
        publications.mark_published(publication=publication, before=before, version=version)
    return True


def _sent(publication: Publication) -> tuple[str, str]:
    """Send it; returns what the label marked before, and marks now."""
    destination = publication.destination
    registry, to = build_registry(destination.kind), place_of(destination)
    # The operator may have changed what is allowed since it was added.
    try:
        registry.check(to, has_key=bool(destination.sealed_key))
    except ValueError as error:
        raise RegistryError(str(error)) from error
    ask = partial(registry.send, to=to, key=key_of(destination))
    last = reached(destination).last
    before = registry.marked(to, ask)
    if before is None:
        before = last.version if last else ""
    elif publication.goes_back and before != publication.before:
        raise RegistryError("Somebody else has changed it since it was sent, so nothing was taken back.")
    elif before and isinstance(registry, WorkingTree) and not sent_by_us(publication, before):
        raise RegistryError("What is there was not sent from here, and would be lost. Choose another name.")
    version = ""
    for each in publication.requests:
        request = Request(**each)
        body = request.body.replace(json.dumps(MADE), json.dumps(version or None))
        answer = ask(replace(request, body=body))
        version = registry.version(replace(request, body=body), answer) or version
    if publication.goes_back and last:
        version = last.before
    return before, version
