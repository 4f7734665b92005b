"""Real processes whose database and broker go away and come back, and which are killed themselves.

Whatever happens, an annotator's answer is saved, or refused with 503 until it is; the next pairs come again
by themselves; and every answer that was confirmed is there once.
"""

import http.client
import os
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from io import StringIO
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection, transaction

from benchmarks.installation import session_of, web_server
from engine.domain.specs import ExperimentSpec, FactorSpec, ReadyMade, TaskSpec
from engine.models import Experiment, Judgment, WorkerPulse, clock
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from llmpo_site.celery import app as celery
from tests.factories import add_member
from tests.faults.network import Proxy, Redis
from tests.workers import Workers, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.postgres_only]

_CLICKS = 3
# Long enough that an answer which only has to wait is not refused, and as long as a test has time for.
_PATIENCE_SECONDS = 10
# So long may servers be away altogether: every timeout on the way to them ends before.
_AWAY_SECONDS = 30
# Beside beat. Each has Celery's connection to the broker and Django's to the database.
_WORKERS = ("control", "generation")
_SECRET = "c" * 32


class Annotator:
    """A person's browser: sends an answer again until it is saved."""

    def __init__(self, port: int, session: str, experiment: Experiment) -> None:
        self._port, self._base = port, f"/label/{experiment.pk}/"
        self._headers = {
            "Cookie": f"{session}; csrftoken={_SECRET}",
            "X-CSRFToken": _SECRET,
            "HX-Request": "true",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        self.statuses: list[int] = []
        self.saved: list[str] = []
        self._token = ""

    def ask(self, method: str, path: str, **form: str) -> tuple[int, str]:
        """Status and text; 0 where nobody answers, as while a web process starts again."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request(method, self._base + path, urlencode(form), self._headers)
            reply = connection.getresponse()
            text = reply.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()
        self.statuses.append(reply.status)
        if reply.status == 503:
            assert reply.getheader("Retry-After") == "2"
        return reply.status, text

    def look(self) -> bool:
        """True if a pair is on show."""
        if not self._token:
            self._show(self.ask("GET", "")[1])
        return bool(self._token)

    def send(self) -> bool:
        """Send the answer to the pair on show; True once it is saved."""
        status, text = self.ask("POST", "judge/", token=self._token, choice="left")
        if status != 200:
            return False
        self.saved.append(self._token)
        self._show(text)
        return True

    def _show(self, text: str) -> None:
        found = re.search(r'data-token="([^"]+)"', text)
        self._token = found[1] if found else ""


@pytest.fixture
def database(transactional_db) -> Iterator[Proxy]:
    server = connection.settings_dict
    proxy = Proxy(server["HOST"], int(server["PORT"]))
    proxy.open()
    yield proxy
    # A session that hung in a transaction would keep its locks, and the tables could not be emptied.
    proxy.cut()
    proxy.go_on()


@pytest.fixture
def experiment(transactional_db, annotator) -> Experiment:
    """One whose responses are there: pairs are ready as soon as they are planned."""
    names = [f"Model {k}" for k in range(4)]
    spec = ExperimentSpec(
        name="Faults",
        factors=[FactorSpec("Model", "imported", {name: {} for name in names})],
        tasks=[TaskSpec(f"What is {n} and one?") for n in range(20)],
        ready_made=[ReadyMade(n, name, f"{name}: {n + 1}.") for name in names for n in range(20)],
        settings={"responses": Experiment.Responses.IMPORTED, "budget": 10_000, "delta": 1e-9},
    )
    experiment = create_experiment(spec=spec)
    add_member(experiment, annotator)
    start(experiment_id=experiment.pk)
    return experiment


def test_the_site_heals_after_each_fault(
    workers: Workers, redis: Redis, database: Proxy, experiment, annotator
):
    broker = Proxy("127.0.0.1", redis.port)
    broker.open()
    servers = {
        "CELERY_BROKER_URL": f"redis://127.0.0.1:{broker.port}/0",
        "CACHE_URL": f"redis://127.0.0.1:{broker.port}/1",
    }
    url = urlsplit(workers.environment["DATABASE_URL"])
    workers.environment |= servers | {
        "DATABASE_URL": url._replace(netloc=url.netloc.replace(str(url.port), str(database.port))).geturl(),
        # So few that three clicks need planning.
        "BUFFER_MIN": "2",
        "BUFFER_MAX": "2",
    }
    for name in _WORKERS:
        workers.start(name)
    workers.start("beat")
    with web_server(
        workers.environment["DATABASE_URL"],
        processes=1,
        REQUEST_DATABASE_SECONDS=str(_PATIENCE_SECONDS),
        **servers,
    ) as (port, web):
        ann = Annotator(port, session_of(annotator), experiment)

        def beat_killed() -> None:
            workers.kill("beat")
            workers.start("beat")

        def web_killed() -> None:
            children = Path(f"/proc/{web}/task/{web}/children").read_text().split()
            os.kill(int(children[0]), signal.SIGKILL)

        def database_away() -> None:
            database.cut()
            assert not ann.send()
            assert ann.statuses[-1] == 503
            database.open()

        def hanging(browser: ThreadPoolExecutor) -> Future[bool]:
            """An answer that waits for the database, which hangs."""
            while True:
                sent = browser.submit(ann.send)
                try:
                    sent.result(timeout=1)
                except TimeoutError:
                    return sent
                # The first request since a cut is refused.
                assert ann.statuses[-1] == 503

        def database_hung() -> None:
            database.hang()
            with ThreadPoolExecutor(1) as browser:
                sent = hanging(browser)
                database.go_on()
                assert sent.result(timeout=60), "it only had to wait"

        def database_hung_and_gone() -> None:
            wait_until(ann.look, 60, "a pair before the database hangs")
            database.hang()
            with ThreadPoolExecutor(1) as browser:
                sent = hanging(browser)
                database.cut()
                database.go_on()
                assert not sent.result(timeout=60)
            assert ann.statuses[-1] == 503
            database.open()

        def database_hung_for_long() -> None:
            wait_until(ann.look, 60, "a pair before the database hangs for long")
            database.hang()
            with ThreadPoolExecutor(1) as browser:
                assert not hanging(browser).result(timeout=60), "the request gives up by itself"
            assert ann.statuses[-1] == 503
            database.go_on()

        def both_away() -> None:
            database.cut()
            redis.kill()
            began = time.monotonic()
            while time.monotonic() - began < _AWAY_SECONDS:
                assert not ann.send()
                assert ann.statuses[-1] == 503
                time.sleep(1)
            redis.start()
            database.open()

        def table_changed() -> None:
            wait_until(ann.look, 60, "a pair before the table is changed")
            with ThreadPoolExecutor(1) as browser, connection.cursor() as cursor:
                with transaction.atomic():
                    cursor.execute("ALTER TABLE engine_judgment ADD COLUMN newer integer")
                    sent = hanging(browser)
                assert sent.result(timeout=60), "it only had to wait"
                cursor.execute("ALTER TABLE engine_judgment DROP COLUMN newer")

        def broker_away() -> None:
            redis.kill()
            assert ann.send(), "a click needs no broker"
            redis.start()

        def broker_hung() -> None:
            broker.hang()
            assert ann.send(), "a click does not wait for a broker that says nothing"
            broker.go_on()

        def newer_code() -> None:
            with celery.connection_for_write(redis.url) as connected:
                for name, arguments in (("advance_all", []), ("advance", [experiment.pk, "gently"])):
                    celery.send_task(f"engine.tasks.{name}", arguments, queue="control", connection=connected)

        def all_work_again(since: datetime) -> bool:
            return WorkerPulse.objects.filter(queue__in=_WORKERS, seen_at__gt=since).count() == len(_WORKERS)

        faults = {
            "nothing yet": lambda: None,
            "the database was away": database_away,
            "the database hung": database_hung,
            "the database hung and was gone": database_hung_and_gone,
            "the database hung for long": database_hung_for_long,
            "database and broker were away for long": both_away,
            "a migration changed a table": table_changed,
            "the broker was away": broker_away,
            "the broker hung": broker_hung,
            "the broker lost its messages": lambda: redis.command("FLUSHALL"),
            "the web process was killed": web_killed,
            "beat was killed": beat_killed,
            "newer code runs beside this one": newer_code,
        }
        for what, happen in faults.items():
            wait_until(ann.look, 60, f"a pair before {what}")
            happen()
            over = clock.now()
            for _ in range(_CLICKS):
                wait_until(ann.look, 60, f"a pair: {what}")
                wait_until(ann.send, 60, f"an answer to be saved: {what}")
            wait_until(lambda since=over: all_work_again(since), 60, f"all workers: {what}")
    workers.stop_all()
    broker.cut()
    assert set(ann.statuses) <= {200, 503}
    tokens = list(Judgment.objects.values_list("token", flat=True))
    assert sorted(map(str, tokens)) == sorted(set(ann.saved))
    call_command("verify", stdout=StringIO())


def test_a_worker_that_has_to_wait_to_acknowledge_a_message_is_sent_the_next(redis: Redis):
    """Celery goes on after an acknowledgement that failed, and then asks for no message ever again."""
    broker = Proxy("127.0.0.1", redis.port)
    broker.open()
    # A web process, as other tests start one in this process, gives up a broker sooner than a worker does.
    options = dict.fromkeys(settings.REQUEST_BROKER_OPTIONS)
    url = f"redis://127.0.0.1:{broker.port}/0"
    with celery.connection_for_read(url, transport_options=options) as connected:
        queue = connected.SimpleQueue("faults")
        queue.consumer.qos(prefetch_count=1)
        for number in range(2):
            queue.put(number)
        first = queue.get(timeout=60)
        broker.hang()
        with ThreadPoolExecutor(1) as worker:
            acknowledged = worker.submit(first.ack)
            with pytest.raises(TimeoutError):
                acknowledged.result(timeout=3)
            broker.go_on()
            acknowledged.result(timeout=60)
        assert queue.get(timeout=60).payload == 1
    broker.cut()
