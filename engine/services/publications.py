"""Destinations of winners, and the publications that a worker sends there."""

from collections.abc import Sequence
from typing import Any

from django.db import transaction

from engine.domain.errors import PublicationError
from engine.domain.limits import DESTINATIONS
from engine.models import AuditEntry, Destination, Experiment, Publication, User, clock
from engine.models.worker_holds import overdue
from engine.services import keys, worker_holds
from engine.services.audit import record
from engine.services.locks import locked_experiment

# Longer than all requests of one publication may take.
_CLAIM_SECONDS = 120.0
_LONGEST_ERROR = 500


@transaction.atomic
def add_destination(
    *, experiment: Experiment, by: User, kind: str, address: str, name: str, label: str, key: str
) -> Destination:
    """Add a destination, whose values its registry has checked. The log has no key, and only the host.

    Raises
    ------
    PublicationError
        There is such a one, or there are too many.
    """
    locked_experiment(experiment.pk)
    wanted = {"kind": kind, "address": address, "name": name, "label": label}
    if experiment.destinations.filter(**wanted).exists():
        raise PublicationError("This destination is there already. Remove it first.")
    if refusal := DESTINATIONS.refusal(experiment.destinations.count() + 1):
        raise PublicationError(refusal)
    destination = Destination.objects.create(experiment=experiment, created_by=by, **wanted)
    if key:
        destination.sealed_key = keys.sealed_key(destination, key)
        destination.save(update_fields=["sealed_key"])
    _note(destination, by, "Added")
    return destination


@transaction.atomic
def remove_destination(*, destination: Destination, by: User) -> None:
    """Remove a destination with its key. What is there already stays there."""
    _note(destination, by, "Removed")
    destination.delete()


@transaction.atomic
def begin(
    *,
    destination: Destination,
    by: User,
    policy: str,
    requests: Sequence[dict[str, Any]],
    goes_back_to: Publication | None = None,
) -> Publication:
    """Ask a worker to send these requests. ``goes_back_to``: the publication that they undo.

    Raises
    ------
    PublicationError
        Another one is under way, or whoever gave the key may not run the experiment any more.
    """
    locked_experiment(destination.experiment_id)
    allowed = Experiment.objects.run_by(destination.created_by).filter(pk=destination.experiment_id)
    if destination.sealed_key and not allowed.exists():
        raise PublicationError(
            f"{destination.created_by} gave the key, and may not run this experiment any more. Remove the "
            "destination, and add it with a key of your own."
        )
    if destination.publications.filter(state=Publication.State.WAITING).exists():
        raise PublicationError("Another publication to this destination is under way. Reload this page.")
    return Publication.objects.create(
        destination=destination,
        by=by,
        policy=policy,
        requests=list(requests),
        goes_back=goes_back_to is not None,
        before="" if goes_back_to is None else goes_back_to.version,
    )


def claim_next() -> Publication | None:
    """A publication to send, reserved for this caller; one whose worker has died is not tried again."""
    lost = "The worker stopped. Look there whether it arrived."
    waiting = Publication.objects.filter(state=Publication.State.WAITING)
    waiting.filter(overdue()).update(state=Publication.State.FAILED, error=lost)
    found = waiting.filter(claim=None).first()
    if found is None:
        return None
    row = Publication.objects.filter(pk=found.pk)
    claim = worker_holds.take(row.filter(state=Publication.State.WAITING, claim=None), seconds=_CLAIM_SECONDS)
    return worker_holds.held(row, claim).select_related("destination__experiment", "by").first()


@transaction.atomic
def mark_published(*, publication: Publication, before: str, version: str) -> None:
    """End a claimed publication: it has arrived. The log says who sent it."""
    sent = {"state": Publication.State.SENT, "sent_at": clock.now(), "before": before, "version": version}
    if worker_holds.release(_claimed(publication), **sent):
        destination = publication.destination
        record(
            experiment=destination.experiment,
            by=publication.by,
            action=AuditEntry.Action.PUBLISHED,
            details={
                "what": "Took back" if publication.goes_back else "Sent the winner",
                "policy": publication.policy,
                "destination": str(destination),
                "version": version[:100],
            },
        )


def mark_unpublished(*, publication: Publication, error: str) -> None:
    """End a claimed publication that did not arrive."""
    failed = {"state": Publication.State.FAILED, "error": error[:_LONGEST_ERROR]}
    worker_holds.release(_claimed(publication), **failed)


def _claimed(publication: Publication) -> Any:
    return worker_holds.held(Publication.objects.filter(pk=publication.pk), publication.claim)


def _note(destination: Destination, by: User, what: str) -> None:
    record(
        experiment=destination.experiment,
        by=by,
        action=AuditEntry.Action.DESTINATION,
        details={"what": what, "destination": str(destination)},
    )
