"""The Celery tasks. Messages only wake: each task finds its work in the rows, so losing one is harmless."""

import logging
import time
from collections.abc import Callable, Collection
from functools import partial
from threading import Lock, Thread, Timer
from typing import Any
from uuid import UUID

from celery import Task, shared_task
from celery.signals import worker_ready
from celery.utils.nodenames import worker_direct
from celery.worker import state
from django.conf import settings
from django.db import connection, transaction
from django.dispatch import Signal
from kombu.exceptions import ChannelError, OperationalError

from engine.generation import registry
from engine.generation.base import BackendError
from engine.generation.remote import connection_test
from engine.generation.worker import write_batch
from engine.judges import llm_worker
from engine.judges.rule_worker import judge_comparisons
from engine.judges.screening import screen_proposals
from engine.notifying.delivery import deliver_due
from engine.publishing.sending import publish_next
from engine.selectors import offered_models, workers
from engine.selectors.experiments import paused_and_behind, running
from engine.selectors.opinions import experiments_with_opinions
from engine.selectors.publications import has_waiting
from engine.selectors.writing import improvements_to_write
from engine.services import (
    analysis,
    connections,
    experiments,
    generation,
    imports,
    notifications,
    opinions,
    planning,
    retention,
    tokens,
    worker_holds,
)
from engine.services.workers import note_pulse, offer_models
from engine.writing.first_answers import answer_proposals
from engine.writing.worker import write_proposals as write_proposals_of

logger = logging.getLogger(__name__)

# A busy worker reports that it is alive at most this often.
_PULSE_SECONDS = 2.0
# The least time between two messages of a process that ask for planning.
_GATHERING_SECONDS = 0.25
# The clocks of two processes differ by less.
_CLOCKS_SECONDS = 0.02


def wake(task: Task[Any, Any], *args: Any, worker: str | None = None) -> None:
    """Queue a task after the commit, for any worker or for this ``worker``.

    A broker that is away causes no error: the click is stored, and ``sweep`` finds the work later.
    """
    transaction.on_commit(partial(_send, task, *args, worker=worker))


def _send(task: Task[Any, Any], *args: Any, worker: str | None = None) -> None:
    try:
        # Let it expire: after a minute a sweep has started the work.
        destination: dict[str, Any] = {"queue": worker_direct(worker)} if worker else {}
        task.apply_async(args, expires=60, **destination)
    except (OperationalError, ChannelError, OSError) as error:
        logger.warning("The broker is away (%s); the sweep will drive %s", error, task.name)


def wake_writers() -> None:
    """Wake a worker to write what waits: any one, or each of them where they do not all serve the same."""
    offers = offered_models.live_offers()
    _wake_each(generate, offers if len(set(offers.values())) > 1 else ())


def wake_judges() -> None:
    """Wake the language models that judge: a worker's own model, and the worker that asks connections."""
    alive = [worker for worker in workers.seen("judging") if worker.alive]
    several = len({worker.details.get("backend") for worker in alive}) > 1
    _wake_each(give_opinions, [worker.name for worker in alive] if several else ())


def _wake_each(task: Task[Any, Any], names: Collection[str]) -> None:
    for name in names:
        wake(task, worker=name)
    if not names:
        wake(task)


class _Once:
    """Work that one thread of this process does at a time. A call meanwhile makes it begin once more."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._again = False

    def run(self, work: Callable[[], None]) -> None:
        self._again = True
        while self._again and self._lock.acquire(blocking=False):
            try:
                self._again = False
                work()
            finally:
                self._lock.release()


_writing, _judging = _Once(), _Once()


def _send_after(seconds: float, task: Task[Any, Any], *args: Any) -> None:
    # Not by a message with a date: the worker that reads it may have a different clock.
    later = Timer(seconds, _send, (task, *args))
    later.daemon = True
    later.start()


# By experiment: until when this process gathers messages that ask for planning, and whether one follows then.
_gathering: dict[int, tuple[float, bool]] = {}


def wake_planner(experiment_id: int) -> None:
    """Wake a worker to plan for an experiment, once the transaction is committed."""
    transaction.on_commit(partial(_gather, experiment_id))


def _gather(experiment_id: int, *, later: bool = False) -> None:
    """Send one message now, or ``later``, or a single one for all that come within some time of it."""
    now = time.monotonic()
    ends, follows = _gathering.get(experiment_id, (now, False))
    if now < ends:
        later, later_already = True, follows
    else:
        ends, later_already = now + _GATHERING_SECONDS, False
    if not later:
        _send(advance, experiment_id)
    elif not later_already:
        _send_after(ends - now, advance, experiment_id)
    _gathering[experiment_id] = ends, later


# Sent by a worker after each round, or where one was wanted: the pages that show its result follow.
planned = Signal()


@shared_task(bind=True)
def advance(self: Task[Any, Any], experiment_id: int) -> None:
    """Bring one experiment up to date, and wake workers to write the planned responses."""
    if self.request.called_directly or self.request.is_eager:
        done = planning.advance(experiment_id=experiment_id)
    elif planning.rests(experiment_id):
        return  # A message follows the rest.
    else:
        done = planning.plan_round(experiment_id=experiment_id)
        if done is None and experiment_id in running():
            # Another worker makes a round, and may have begun before what this message tells of.
            _gather(experiment_id, later=True)
        if done is not None and (done.rest or done.again):
            _send_after(done.rest + _CLOCKS_SECONDS, advance, experiment_id)
    if done is not None and done.planned > done.ready:
        wake_writers()
    if done is not None and done.ready and done.asks_machine:
        wake(judge, experiment_id)
    wake_proposers(experiment_id)
    planned.send_robust(sender=advance, experiment_id=experiment_id)


@shared_task(bind=True)
def generate(self: Task[Any, Any]) -> None:
    """Write what waits, and continue while there is more."""
    worker = self.request.hostname or "local"
    _writing.run(lambda: _generate(worker))


def _generate(worker: str) -> None:
    pulsed_at = time.monotonic()

    def on_progress(touched: set[int]) -> None:
        nonlocal pulsed_at
        if time.monotonic() - pulsed_at >= _PULSE_SECONDS:
            pulsed_at = time.monotonic()
            note_pulse("generation", worker, registry.details(backend))
        for experiment_id in touched:
            wake(judge, experiment_id)

    note_pulse("generation", worker)
    try:
        backend = registry.backend()
        if not getattr(backend, "loaded", True):
            note_pulse("generation", worker, registry.details(backend))
        # Somebody waits for these few, and a batch may take long.
        if answer_proposals(backend, registry.offer()):
            wake_judges()
        claimed, _ = write_batch(
            worker=worker,
            backend=backend,
            offer=registry.offer(),
            speed=registry.speed(),
            stopping=_is_stopping,
            on_progress=on_progress,
        )
    except BackendError as error:
        # The next sweep tries again; trying at once would only fill the log.
        logger.exception("The generation backend does not work")
        note_pulse("generation", worker, registry.details(trouble=str(error)))
        return
    if claimed:
        note_pulse("generation", worker, registry.details(backend))
        wake_writers()


@worker_ready.connect
def introduce(sender: Any, **_: Any) -> None:
    """Let a worker with a model tell what it serves, and go on where an earlier process of its name ended."""
    queues = sender.app.amqp.queues.consume_from
    if settings.GENERATION_BACKEND == "remote":
        connections.from_environment()
    if "generation" in queues:
        offer_models(registry.offer())
        note_pulse("generation", sender.hostname, registry.details())
        generation.expire_claims(begun_anew=sender.hostname)
        wake(generate, worker=sender.hostname)
    if "judging" in queues:
        note_pulse("judging", sender.hostname, registry.judge_details())
        opinions.expire_opinions(begun_anew=sender.hostname)
        wake(give_opinions, worker=sender.hostname)


def _is_stopping() -> bool:
    """True if this worker was told to stop. A solo worker learns it in the middle of its task."""
    # Celery puts the exit status there, which may be 0.
    return any(flag is not None and flag is not False for flag in (state.should_stop, state.should_terminate))


@shared_task
def judge(experiment_id: int) -> None:
    """Let the automatic judges judge what is ready, then plan more."""
    judge_comparisons(experiment_id)
    if experiments_with_opinions().filter(pk=experiment_id).exists():
        wake_judges()
    wake(advance, experiment_id)


@shared_task
def deliver() -> None:
    """Send the waiting messages of the outbox."""
    deliver_due()


@shared_task
def publish() -> None:
    """Send the winners that wait."""
    while publish_next():
        pass


@shared_task
def forget_old() -> None:
    """Delete what need not be kept any longer."""
    if gone := {name: n for name, n in retention.forget_old().items() if n}:
        logger.info("Deleted as old: %s", ", ".join(f"{n} {name}" for name, n in gone.items()))


@shared_task(bind=True)
def give_opinions(self: Task[Any, Any]) -> None:
    """Ask the language model about comparisons, and let it vote where it may; continue while some wait."""
    worker = self.request.hostname or "local"
    _judging.run(lambda: _give_opinions(worker))


def _give_opinions(worker: str) -> None:
    wanted: list[int] = []
    moved_at = time.monotonic()

    def ask() -> None:
        wanted[:] = experiments_with_opinions().values_list("pk", flat=True)
        for experiment_id in wanted:
            opinions.ask_opinions(experiment_id=experiment_id, most=settings.JUDGE_BATCH)

    def cast() -> None:
        for experiment_id in wanted:
            opinions.cast_votes(experiment_id=experiment_id)
            # The planner may have found the row locked meanwhile.
            wake(advance, experiment_id)

    def on_progress() -> None:
        nonlocal moved_at
        if time.monotonic() - moved_at >= _PULSE_SECONDS:
            moved_at = time.monotonic()
            note_pulse("judging", worker)
            cast()
            ask()

    ask()
    if not wanted:
        return
    note_pulse("judging", worker, registry.judge_details())
    try:
        backend = registry.judge_backend()
        # Writers wait for these few.
        screen_proposals(backend)
        asked = llm_worker.give_opinions(
            worker=worker, backend=backend, stopping=_is_stopping, on_progress=on_progress
        )
    except BackendError as error:
        # The next sweep tries again; trying at once would only fill the log.
        logger.exception("The backend of the language model that judges does not work")
        note_pulse("judging", worker, registry.judge_details(trouble=str(error)))
        asked = 0
    cast()
    if asked:
        wake_judges()


@shared_task(bind=True)
def analyse(self: Task[Any, Any]) -> None:
    """Do a turn of replays; continue while there is more."""
    worker = self.request.hostname or "local"
    note_pulse("analysis", worker)
    pulsed_at = time.monotonic()

    def tick() -> None:
        nonlocal pulsed_at
        if _is_stopping():
            raise worker_holds.StoppedError
        if time.monotonic() - pulsed_at >= _PULSE_SECONDS:
            pulsed_at = time.monotonic()
            note_pulse("analysis", worker)

    try:
        found = analysis.examine_next(worker=worker, tick=tick)
    except worker_holds.StoppedError:
        return
    if found:
        wake(analyse)


def wake_import(upload_id: UUID) -> None:
    """Wake a worker to import an uploaded file, once the transaction is committed."""
    wake(import_upload, str(upload_id))


@shared_task
def import_upload(upload_id: str) -> None:
    """Import an uploaded file."""
    if (experiment := imports.run_import(UUID(upload_id))) is not None:
        wake_planner(experiment.pk)


def wake_proposers(experiment_id: int | None = None) -> None:
    """Wake workers to ask the writers of improvements that want texts, in one experiment or in all."""
    for improvement in improvements_to_write():
        if experiment_id in {None, improvement.experiment_id}:
            wake(write_proposals, improvement.pk, improvement.experiment_id)


@shared_task(bind=True)
def write_proposals(self: Task[Any, Any], improvement_id: int, experiment_id: int) -> None:
    """Ask a writer for new texts."""

    def work() -> None:
        if write_proposals_of(improvement_id):
            wake(advance, experiment_id)
            wake_writers()

    _apart(self, work)


def _apart(task: Task[Any, Any], work: Callable[[], None]) -> None:
    """Do work that waits for a server, which may take minutes, in a thread: planning must not wait for it."""
    if task.request.called_directly or task.request.is_eager:
        work()
        return

    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    Thread(target=run, daemon=True).start()


@shared_task(bind=True)
def try_connection(self: Task[Any, Any], connection_id: int) -> None:
    """Test a connection. The message holds no key: the worker reads it."""
    _apart(self, partial(connection_test.try_connection, connection_id))


@shared_task
def note_token_use(token_id: int) -> None:
    """Record when an API token was used last. If the message is lost, the recorded time is merely older."""
    tokens.note_use(token_id=token_id)


@shared_task(bind=True)
def sweep(self: Task[Any, Any]) -> None:
    """Restart stuck work: dead workers' claims, comparisons open at an experiment's end, lost messages."""
    note_pulse("control", self.request.hostname or "local")
    generation.expire_claims()
    opinions.expire_opinions()
    experiments.discard_leftovers()
    for upload_id in imports.expire_imports():
        wake_import(upload_id)
    for experiment_id in running():
        wake(judge, experiment_id)
    for experiment_id in paused_and_behind():
        wake(advance, experiment_id)
    wake(analyse)
    wake_writers()
    notifications.watch()
    if notifications.has_due():
        wake(deliver)
    if has_waiting():
        wake(publish)
    wake_proposers()
    # Without such an experiment nobody may listen to that queue.
    if experiments_with_opinions().exists():
        wake_judges()
