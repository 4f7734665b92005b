"""The models that policies need, and the models that live workers offer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from django.db.models import Q

from engine.domain.profiles import Provider
from engine.models import Connection, Experiment, Factor, Level, Policy
from engine.selectors import workers
from engine.selectors.connection_pauses import usable_names
from engine.selectors.workers import Worker


@dataclass(frozen=True)
class Need:
    """The needs of a policy.

    Attributes
    ----------
    backend
        Empty: any.
    models
        The names of connections or of workers' models; none: a worker's own model.
    remote
        Those of ``models`` that are connections which its experiment may use.
    writer
        That of ``models`` which writes; the others are guards.
    """

    backend: str
    models: frozenset[str]
    remote: frozenset[str] = frozenset()
    writer: str = ""

    @property
    def unserved(self) -> str:
        """The sentence where no live worker serves it, with the remedy."""
        if self.writer and self.models <= self.remote:
            return (
                f"No worker asks {' and '.join(map(repr, sorted(self.models)))}. Start the one that asks "
                "connections (GENERATION_BACKEND=remote)."
            )
        return (
            f"No worker serves {self}. Start one that does (GENERATION_BACKEND, GENERATION_MODEL), have the "
            "connection lent on the page Models, or change the experiment."
        )

    def __str__(self) -> str:
        models = " and ".join(map(repr, sorted(self.models)))
        backend = f"the {self.backend} backend" if self.backend else ""
        return " on ".join(filter(None, [models, backend])) or "any model"


@dataclass(frozen=True)
class Offer:
    """The offer of a generation worker: one backend, its default model, and others by name."""

    backend: str
    model: str
    others: tuple[str, ...] = ()

    def serves(self, need: Need) -> bool:
        """True if this worker can write a response with these needs."""
        if need.backend not in {"", self.backend}:
            return False
        if self.is_remote:
            return need.models <= need.remote and bool(need.writer or self.model)
        return need.models <= {self.model, *self.others}

    @property
    def is_remote(self) -> bool:
        """True of the worker that asks connections."""
        return self.backend == Experiment.Backend.REMOTE

    def details(self) -> dict[str, Any]:
        """For a pulse."""
        return asdict(self)

    @classmethod
    def from_details(cls, details: Mapping[str, Any]) -> Offer | None:
        """The offer in a pulse; ``None`` if the pulse has none."""
        if "backend" not in details:
            return None
        return cls(
            backend=details["backend"],
            model=details.get("model", ""),
            others=tuple(details.get("others", ())),
        )


Usable: TypeAlias = Mapping[int, Mapping[str, Connection]]


def needs(policy_ids: Collection[int]) -> dict[int, Need]:
    """The needs of each of these policies, by its id."""
    return {pk: need for pk, _, need in _needs(Q(pk__in=policy_ids), None)}


def models_of_workers() -> set[str]:
    """The models that live workers write with."""
    offers = [offer for offer in live_offers().values() if offer]
    return {name for offer in offers for name in (offer.model, *offer.others)} - {""}


def models_named(experiment: Experiment) -> set[str]:
    """The names of all models that an experiment's policies ask which are present, guards included."""
    policies = list(experiment.policies.present().values_list("pk", flat=True))
    return {name for need in needs(policies).values() for name in need.models}


def needs_of(experiments: Collection[Experiment], usable: Usable) -> dict[int, set[Need]]:
    """The needs of each experiment's policies that are present, by its id, in as many queries for one as for
    many.

    ``usable``: the connections that these experiments may use.
    """
    found: dict[int, set[Need]] = {experiment.pk: set() for experiment in experiments}
    for _, experiment_id, need in _needs(Q(experiment__in=found, retired_at=None), usable):
        found[experiment_id].add(need)
    return found


def _needs(wanted: Q, usable: Usable | None) -> Iterator[tuple[int, int, Need]]:
    """The id, experiment and needs of each of these policies."""
    policies = Policy.objects.filter(wanted)
    own: dict[int, str] = {}
    guards: dict[int, set[str]] = defaultdict(set)
    telling = Level.objects.filter(
        policies__in=policies.values("pk"), factor__kind__in=[Factor.Kind.MODEL, Factor.Kind.GUARDRAIL]
    )
    for policy_id, kind, value in telling.values_list("policies", "factor__kind", "value"):
        if kind == Factor.Kind.MODEL:
            own[policy_id] = value.get("name", "")
        else:
            guards[policy_id].add(value.get("guard_model", ""))
    fields = ("pk", "experiment_id", "experiment__backend", "experiment__model")
    rows = list(policies.values_list(*fields))
    if usable is None:
        usable = usable_names({experiment_id for _, experiment_id, _, _ in rows})
    for pk, experiment_id, backend, usual in rows:
        writer = own.get(pk) or usual
        models = frozenset({writer, *guards[pk]} - {""})
        remote = {
            name
            for name in models
            if (known := usable[experiment_id].get(name)) and known.provider != Provider.WORKER
        }
        yield pk, experiment_id, Need(backend, models, frozenset(remote), writer)


def live_offers(writers: Iterable[Worker] | None = None) -> dict[str, Offer | None]:
    """The offers of the live generation workers, by name; ``None`` for one that has not told it yet.

    ``writers``: the generation workers, where the caller has them already.
    """
    writers = workers.seen("generation") if writers is None else writers
    return {worker.name: Offer.from_details(worker.details) for worker in writers if worker.alive}


def writers_of(needed: Collection[Need]) -> tuple[list[str], list[str]]:
    """The models with which the live workers would write for these needs. Then those of them that are the
    small model of this program, to try it.

    A need that no live worker serves adds none. For a need without a model, each worker that serves it would
    use its own.
    """
    offers = [offer for offer in live_offers().values() if offer]
    return _writers(needed, offers), _writers(
        needed, [offer for offer in offers if offer.backend == Experiment.Backend.SMOLLM2]
    )


def _writers(needed: Iterable[Need], offers: Collection[Offer]) -> list[str]:
    return sorted(
        {
            model
            for need in needed
            for offer in offers
            if offer.serves(need)
            for model in need.models or {offer.model or offer.backend}
        }
    )


def unserved_needs(needed: Collection[Need], writers: Iterable[Worker] | None = None) -> list[str]:
    """A sentence for each of these needs that no live worker serves.

    Empty while some worker has not told its offer, and where no worker is alive: that is another problem.
    """
    offers = live_offers(writers).values()
    if not offers or None in offers:
        return []
    return sorted(
        {need.unserved for need in needed if not any(offer and offer.serves(need) for offer in offers)}
    )
