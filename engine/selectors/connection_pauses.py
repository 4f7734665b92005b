"""Connections as workers see them: which are asked over the network, and which pause."""

from collections import defaultdict
from collections.abc import Collection

from django.db.models import Exists, OuterRef, Q, QuerySet

from engine.domain.wording import moment
from engine.models import Connection, Experiment, Loan, clock

# So many failures in a row, or a pause so long, say that somebody should look.
TROUBLED = 5
_LONG_PAUSE_SECONDS = 60.0


def asked_from_here() -> QuerySet[Connection]:
    """The connections that the remote worker asks: all but the models of our own workers."""
    return Connection.objects.remote().filter(retired_at__isnull=True)


def by_name() -> dict[str, Connection]:
    """All connections, also the models of our own workers."""
    return {each.name: each for each in Connection.objects.all()}


def usable_names(experiment_ids: Collection[int]) -> dict[int, dict[str, Connection]]:
    """The connections that each experiment may use, by name, in three queries for all."""
    everybody = {each.name: each for each in Connection.objects.filter(everybody=True, retired_at=None)}
    lent: dict[int | None, dict[str, Connection]] = defaultdict(dict)
    tried = Experiment.objects.filter(pk__in=experiment_ids, trial_of__isnull=False)
    lent_to = {pk: pk for pk in experiment_ids} | dict(tried.values_list("pk", "trial_of"))
    loans = Loan.objects.filter(
        experiment__in=lent_to.values(), connection__retired_at=None, by__is_active=True
    )
    for loan in loans.select_related("connection"):
        lent[loan.experiment_id][loan.connection.name] = loan.connection
    return {pk: everybody | lent[lent_to[pk]] for pk in experiment_ids}


def lent() -> set[tuple[int, int]]:
    """The ids of connections and of the experiments that they are lent to."""
    return set(Loan.objects.filter(by__is_active=True).values_list("connection", "experiment"))


def judged_by_connection() -> Exists:
    """The condition that an experiment names a connection as its judge, and may use it."""
    lent = Loan.objects.filter(
        connection=OuterRef("pk"), experiment=OuterRef(OuterRef("pk")), by__is_active=True
    )
    named = asked_from_here().filter(name=OuterRef("judge_model"))
    return Exists(named.filter(Q(everybody=True) | Exists(lent)))


def pause_seconds(connection: Connection) -> float:
    """Seconds until the connection is asked again; 0 while it works, or is tried."""
    if connection.waits_until is None:
        return 0.0
    return max(0.0, (connection.waits_until - clock.now()).total_seconds())


def is_probed(connection: Connection) -> bool:
    """True after a pause, until it has answered once: it is asked one request at a time."""
    return connection.waits_until is not None


def is_troubled(connection: Connection) -> bool:
    """True if somebody should look at it: it fails again and again, or pauses for long."""
    return connection.failures >= TROUBLED or pause_seconds(connection) >= _LONG_PAUSE_SECONDS


def waiting_for(connection: Connection) -> str:
    """A sentence about a connection that pauses or is tried again; empty while it works."""
    if connection.waits_until is None:
        return ""
    if pause_seconds(connection) <= 0:
        return f"{connection.name} is being tried again: {connection.trouble}"
    return f"Waiting for {connection.name} until {moment(connection.waits_until)}: {connection.trouble}"
