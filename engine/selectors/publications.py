"""Destinations of winners, and what was sent there."""

from dataclasses import dataclass

from engine.models import Destination, Experiment, Publication


@dataclass(frozen=True)
class Reached:
    """A destination, the newest publication to it, and the last that arrived; ``None`` before the first.

    ``undoable``: the last, if the label marked another version before and nothing was taken back since.
    """

    destination: Destination
    newest: Publication | None
    last: Publication | None

    @property
    def undoable(self) -> Publication | None:
        """See the class."""
        return self.last if self.last and self.last.before and not self.last.goes_back else None


def reached(destination: Destination) -> Reached:
    """One destination with what was sent there."""
    sent = destination.publications.select_related("by")
    return Reached(destination, sent.last(), sent.filter(state=Publication.State.SENT).last())


def destinations(experiment: Experiment) -> list[Reached]:
    """The destinations of an experiment, the oldest first."""
    return [reached(each) for each in experiment.destinations.select_related("created_by")]


def has_waiting() -> bool:
    """True if some winner waits to be sent."""
    return Publication.objects.filter(state=Publication.State.WAITING).exists()


def sent_by_us(publication: Publication, content: str) -> bool:
    """True if this content was sent there for an experiment that whoever sends may run."""
    to = publication.destination
    return Publication.objects.filter(
        destination__kind=to.kind,
        destination__address=to.address,
        destination__name=to.name,
        destination__experiment__in=Experiment.objects.run_by(publication.by),
        state=Publication.State.SENT,
        version=content,
    ).exists()
