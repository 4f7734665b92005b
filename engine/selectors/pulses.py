"""Whether the workers that an experiment needs are at work, and the reason if they are not."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, Min, Q

from engine.domain.wording import duration, number
from engine.models import Connection, Experiment, Response, clock
from engine.models.worker_holds import in_time
from engine.selectors import workers
from engine.selectors.connection_pauses import is_troubled, usable_names, waiting_for
from engine.selectors.offered_models import needs_of, unserved_needs
from engine.selectors.policies import names_in
from engine.selectors.refused_policies import Refused, refused
from engine.selectors.spending import money_trouble, overspent_connections, overspent_experiments
from engine.selectors.workers import Worker
from engine.selectors.writing import proposals_being_answered

# A response that waits longer is said to wait. While no worker writes anything, something is wrong then.
_NOTED_WAIT_SECONDS = 60.0
# A response that waits longer says that the workers are too slow. Many quick clicks plan minutes ahead, and a
# large model loads for minutes.
_LONGEST_WAIT_SECONDS = 600.0
_TOO_SLOW = (
    "Responses have waited for more than ten minutes: the generation worker is too slow. Start another one."
)
_LOADING = "The generation worker is loading its model; a large model takes minutes."
_BY_THEMSELVES = "You need do nothing: the pairs come by themselves."
_NOBODY_WRITES = (
    "Responses have waited for more than a minute, and no worker writes. Read the log of the generation "
    "worker, and start it again."
)


@dataclass(frozen=True)
class Pulse:
    """State of the workers, as far as it concerns one experiment.

    Attributes
    ----------
    seen : list of Worker
        The workers that were ever seen, of all experiments, by name.
    waiting : int
        Number of responses that no worker has taken yet.
    unserved : list of str
        A sentence for each need of the experiment that no live worker serves.
    waits : list of Connection
        Those of the experiment that pause, or are tried again.
    refused : list of str
        A sentence for each policy of which the server refuses requests; ``halted``: those of halted policies.
    spent : str
        A sentence where a limit of money is reached.
    needs_workers : bool
        True if responses are still to be written: not where all were imported ready-made.
    writing : bool
        True if some response waits, and a worker writes one of any experiment, or did in the last minute, or
        writes first answers of proposals.
    """

    seen: list[Worker]
    waiting: int
    oldest_waiting_seconds: float
    unserved: list[str]
    needs_workers: bool
    writing: bool
    waits: list[Connection]
    refused: list[str]
    halted: str
    spent: str

    @property
    def control_alive(self) -> bool:
        """True if a worker that plans is alive."""
        return bool(self._alive("control"))

    @property
    def analysis_alive(self) -> bool:
        """True if a worker for long computations is alive."""
        return bool(self._alive("analysis"))

    @property
    def generation_alive(self) -> bool:
        """True if a worker that writes responses is alive."""
        return bool(self._alive("generation"))

    @property
    def loading(self) -> bool:
        """True if no worker can write yet, since those that are alive are still loading their models."""
        alive = self._alive("generation")
        return bool(alive) and all(worker.loading for worker in alive)

    @property
    def trouble(self) -> str:
        """The backend's error, if every live worker reports one and responses wait; else empty."""
        troubles = [worker.trouble for worker in self._alive("generation")]
        return troubles[0] if self.waiting and troubles and all(troubles) else ""

    @property
    def ailment(self) -> str:
        """The reason why the experiment is not healthy, and the remedy; empty if it is healthy."""
        if self.healthy:
            return ""
        reasons = ["" if self.control_alive else self._away("control"), self.halted, self.spent]
        if self.generation_alive:
            reasons += [*self.unserved, " ".join(map(waiting_for, self.waits))]
            if self.trouble:
                reasons.append(f"The generation worker's backend reports an error: {self.trouble}")
        reasons += [_LOADING if self.loading else "", self._away("generation")]
        reasons.append(_TOO_SLOW if self.slow else _NOBODY_WRITES)
        return next(filter(None, reasons))

    @property
    def catching_up(self) -> str:
        """Sentences where responses wait for longer than usual and all is well; else empty."""
        if not (self.healthy and self.needs_workers):
            return ""
        if self.refused or self.waits:
            return " ".join([*self.refused, *map(waiting_for, self.waits)])
        if self.waiting and self.loading:
            return f"{_LOADING} {_BY_THEMSELVES}"
        if self.oldest_waiting_seconds < _NOTED_WAIT_SECONDS:
            return ""
        wait = "waits" if self.waiting == 1 else "wait"
        minutes = number(round(self.oldest_waiting_seconds / 60), "minute")
        written = f"Responses are being written: {self.waiting:,} {wait}, the oldest for {minutes}."
        return f"{written} {_BY_THEMSELVES}"

    @property
    def slow(self) -> bool:
        """True if responses wait for long although workers write, and nothing else keeps them back."""
        kept = self.loading or self.unserved or self.trouble or self.waits or self.halted or self.spent
        alive = self.control_alive and self.generation_alive
        return alive and self.writing and not kept and not self.healthy

    @property
    def healthy(self) -> bool:
        """True if the workers that the experiment needs are alive and no response waits for too long."""
        longest = _LONGEST_WAIT_SECONDS if self.writing or self.loading else _NOTED_WAIT_SECONDS
        served = (
            self.generation_alive
            and not self.unserved
            and not self.trouble
            and not (self.halted or self.spent or any(map(is_troubled, self.waits)))
            and self.oldest_waiting_seconds < longest
        )
        return self.control_alive and (served or not self.needs_workers)

    def _alive(self, queue: str) -> list[Worker]:
        return [worker for worker in self.seen if worker.queue == queue and worker.alive]

    def _away(self, queue: str) -> str:
        """A sentence where no worker of this queue is alive; else empty."""
        worker = workers.latest(queue, self.seen)
        if worker is None:
            return f"The {queue} worker has never run. Start it."
        if worker.alive:
            return ""
        return f"The {queue} worker was last seen {duration(worker.seen_seconds)} ago. Start it again."


def pulses(experiments: Collection[Experiment]) -> dict[int, Pulse]:
    """The pulse of each experiment by its id, in as many queries for one as for many."""
    now = clock.now()
    seen = workers.seen("control", "analysis", "generation")
    writers = [worker for worker in seen if worker.queue == "generation"]
    usable = usable_names([each.pk for each in experiments])
    needed = needs_of(experiments, usable)
    asked = {
        pk: [usable[pk][name] for name in sorted({name for need in each for name in need.remote})]
        for pk, each in needed.items()
    }
    overspent, over = overspent_connections(), overspent_experiments()
    refusals = refused([each.pk for each in experiments])
    hit = {each.experiment_id for each in refusals}
    names = names_in([each for each in experiments if each.pk in hit]) if hit else {}
    rows = (
        Response.objects.filter(
            policy__experiment__in=experiments, state=Response.State.WAITING, refused_at__isnull=True
        )
        .values_list("policy__experiment_id")
        .annotate(n=Count("pk"), oldest=Min("created_at"))
        .order_by()
    )
    waiting = {experiment_id: (n, (now - oldest).total_seconds()) for experiment_id, n, oldest in rows}
    in_hand = in_time() & Q(state=Response.State.GENERATING)
    # Between two responses a worker has none in hand.
    lately = Q(done_at__gte=now - timedelta(seconds=_NOTED_WAIT_SECONDS))
    writing = bool(waiting) and (
        Response.objects.filter(in_hand | lately).exists() or proposals_being_answered().exists()
    )
    return {
        experiment.pk: Pulse(
            seen,
            *waiting.get(experiment.pk, (0, 0.0)),
            unserved=unserved_needs(needed[experiment.pk], writers),
            needs_workers=experiment.responses != Experiment.Responses.IMPORTED,
            writing=writing,
            waits=[each for each in asked[experiment.pk] if each.waits_until is not None],
            refused=[
                _refusal(each, names[experiment.pk][each.index].name)
                for each in refusals
                if each.experiment_id == experiment.pk
            ],
            halted=" ".join(
                _halted(each, names[experiment.pk][each.index].name)
                for each in refusals
                if each.experiment_id == experiment.pk and each.halted
            ),
            spent=_spent(
                experiment,
                experiment.pk in over,
                [each.name for each in asked[experiment.pk] if each.pk in overspent],
            ),
        )
        for experiment in experiments
    }


def _refusal(refused: Refused, name: str) -> str:
    return f"{number(refused.n, 'request')} of “{name}” refused: {refused.reason} They wait for “Try again”."


def _halted(refused: Refused, name: str) -> str:
    return (
        f"The server refuses what “{name}” sends, {refused.n} times in a row: {refused.reason} Nothing more "
        "is asked for in this experiment. Change what the connection takes on the page Models, then press "
        "“Try again”."
    )


def _spent(experiment: Experiment, is_over: bool, connections: Sequence[str]) -> str:
    if is_over and (said := money_trouble(experiment)):
        return said
    if connections:
        return (
            f"{' and '.join(connections)}: the limit of money in 24 hours is reached. Nothing is asked until "
            "older requests are a day old, or the limit is raised on the page Models."
        )
    return ""
