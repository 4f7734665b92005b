"""The test of a connection in a real worker, at DEBUG, whose key is rotated meanwhile."""

import pytest
from django.conf import settings as django_settings

from engine.models import Connection, WorkerPulse
from engine.services import connection_pauses, connections, keys
from engine.tasks import try_connection
from tests.servers import serving
from tests.workers import Workers, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

KEY = "sk-process-Zq7Lw3Xy9Rt5Vb1Nm8Kp4Hd6Jf-TAIL"
NEWER = "n" * 40


def test_a_worker_tests_a_connection_while_its_key_is_rotated(workers: Workers, settings, tmp_path):
    settings.ALLOW_PRIVATE_CONNECTIONS = True
    workers.environment |= {"LOG_LEVEL": "DEBUG", "CONNECTION_KEYS": NEWER}
    workers.start("control")
    wait_until(lambda: WorkerPulse.objects.exists() or _logged(tmp_path, "ready"), 120, "a worker")
    with serving() as server:
        for model in ("echo401", "echo200"):
            made = connections.make(
                by=None, owner=None, key=KEY, name=model, provider="compatible", model_id=model,
                address=server.url,
            )  # fmt: skip
            connection_pauses.ask_test(connection_id=made.pk)
            try_connection.delay(made.pk)
            settings.CONNECTION_KEYS = [NEWER]
            assert keys.seal_anew()[1] == []
            wait_until(lambda pk=made.pk: Connection.objects.get(pk=pk).test, 60, "a result")
        assert {each["authorization"] for each in server.headers} == {f"Bearer {KEY}"}
    assert [each.test["works"] for each in Connection.objects.order_by("name")] == [True, False]
    assert not _logged(tmp_path, KEY[3:15])
    broker = django_settings.VAR_DIR / "broker"
    assert not [
        file for file in broker.rglob("*") if file.is_file() and KEY[3:15].encode() in file.read_bytes()
    ]


def _logged(folder, text: str) -> bool:
    return any(text in file.read_text(errors="replace") for file in folder.glob("*.log"))
