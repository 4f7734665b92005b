"""Signs of life of workers; :mod:`engine.selectors.workers` decides from them which workers are alive."""

from collections.abc import Mapping
from typing import Any

from engine.domain.profiles import Provider
from engine.models import Connection, WorkerPulse, clock
from engine.selectors.offered_models import Offer


def note_pulse(queue: str, worker: str, details: Mapping[str, Any] | None = None) -> None:
    """Store that a worker of a queue is alive now.

    ``details``: its own report; ``None`` keeps the last one.
    """
    news = {"seen_at": clock.now()} | ({} if details is None else {"details": details})
    WorkerPulse.objects.update_or_create(queue=queue, worker=worker, defaults=news)


def offer_models(offer: Offer) -> None:
    """Make a connection for each model that a worker serves, so that forms offer its name.

    A connection that has the name already stays as it is.
    """
    if offer.is_remote:
        return
    for name in filter(None, (offer.model, *offer.others)):
        Connection.objects.get_or_create(
            name=name[:100], defaults={"provider": Provider.WORKER, "model_id": name[:200], "everybody": True}
        )
