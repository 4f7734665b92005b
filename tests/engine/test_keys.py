"""Keys of connections at rest: sealed, bound to their address, rotated, read by workers alone."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings as django_settings
from django.contrib import admin as django_admin
from django.core import serializers

from engine.domain.errors import KeyUnreadableError, SpecError
from engine.models import AuditEntry, Connection, Destination, Loan
from engine.services import connections, keys
from labeling.accounts.adapters import TwoStepAdapter

pytestmark = pytest.mark.django_db

KEY = "sk-proj-0123456789abcdefghijklmnop-WXYZ"
ADDRESS = "https://api.example.org/v1"


def make(key: str = KEY, **values) -> Connection:
    values = {"name": "gpt", "provider": "openai", "model_id": "gpt-5", "address": ADDRESS} | values
    return connections.make(by=None, owner=None, key=key, **values)


def opened(connection: Connection) -> str:
    return keys.target_of(Connection.objects.get(pk=connection.pk)).key


def test_a_key_is_sealed_and_opened_and_only_its_end_is_readable():
    connection = make()
    row = Connection.objects.filter(pk=connection.pk).values().get()
    assert not [name for name, value in row.items() if KEY[:12] in str(value)]
    assert row["key_hint"] == "WXYZ"
    assert opened(connection) == KEY


def test_a_short_key_has_no_hint():
    assert make("short-key").key_hint == ""


def test_the_target_does_not_print_its_key():
    assert KEY not in repr(keys.target_of(make()))


@pytest.mark.parametrize("field", ["address", "pk"])
def test_a_key_opens_for_no_other_address_and_no_other_row(field):
    connection = make()
    if field == "address":
        Connection.objects.update(address="https://attacker.example.org/v1")
        other = connection
    else:
        other = make("", name="other", address=ADDRESS)
        Connection.objects.filter(pk=other.pk).update(sealed_key=connection.sealed_key)
    with pytest.raises(KeyUnreadableError, match="another address"):
        opened(other)


@pytest.mark.parametrize(
    "changes",
    [
        {"address": "https://attacker.example.org/v1"},
        {"address": "https://api.example.org:8443/v1"},
        {"address": "https://api.example.org/v2"},
        {"provider": "compatible"},
    ],
)
def test_who_changes_the_address_deletes_the_key(changes, settings):
    settings.CONNECTION_HOSTS = []
    settings.ALLOW_PRIVATE_CONNECTIONS = True
    connection = make()
    assert connections.change(connection_id=connection.pk, by=None, **changes)
    assert opened(connection) == ""
    assert AuditEntry.objects.latest("pk").details["what"] == "Removed"


def test_other_changes_and_a_slash_keep_the_key():
    connection = make()
    assert not connections.change(connection_id=connection.pk, by=None, at_once=3, address=ADDRESS + "/")
    assert opened(connection) == KEY


def test_a_key_may_come_with_the_new_address():
    connection = make()
    new = "sk-another-key-of-this-test-9999"
    assert not connections.change(
        connection_id=connection.pk, by=None, address="https://b.example.org", key=new
    )
    assert opened(connection) == new


def test_keys_are_rotated_while_old_ones_are_read(settings):
    connection = make()
    settings.CONNECTION_KEYS = ["n" * 40]
    assert opened(connection) == KEY, "what SECRET_KEY sealed is still read"
    assert keys.seal_anew() == (1, [])
    settings.SECRET_KEY = "another" * 8
    assert opened(connection) == KEY
    settings.CONNECTION_KEYS = ["m" * 40, "n" * 40]
    assert keys.seal_anew() == (1, [])
    settings.CONNECTION_KEYS = ["m" * 40]
    assert opened(connection) == KEY
    assert Connection.objects.get().key_hint == "WXYZ"


def test_an_unreadable_key_says_so_and_is_not_overwritten(settings):
    connection = make()
    sealed = Connection.objects.get().sealed_key
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another" * 8, []
    with pytest.raises(KeyUnreadableError, match="cannot be read"):
        opened(connection)
    assert keys.seal_anew() == (0, [connection])
    assert Connection.objects.get().sealed_key == sealed


def test_it_is_not_sealed_as_second_steps_are():
    """A key of one purpose opens nothing of another."""
    with pytest.raises(Exception):  # noqa: B017, PT011 - cryptography's
        TwoStepAdapter().decrypt(make().sealed_key)


def test_a_key_may_stay_in_the_environment_of_the_workers(monkeypatch):
    connection = connections.make(
        by=None, owner=None, key_variable="VENDOR_KEY", name="gpt", provider="openai", model_id="gpt-5"
    )
    with pytest.raises(KeyUnreadableError, match="VENDOR_KEY"):
        opened(connection)
    monkeypatch.setenv("VENDOR_KEY", KEY)
    assert opened(connection) == KEY
    assert connections.change(connection_id=connection.pk, by=None, address="https://attacker.example.org")
    assert opened(connection) == "", "nor does a key of the environment follow a new address"


def test_the_environment_keeps_address_and_key_together(settings, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    settings.OPENAI_MODEL, settings.OPENAI_BASE_URL = "gpt-5", "https://one.example.org/v1"
    connections.from_environment()
    made = Connection.objects.get()
    assert (made.provider, made.everybody, opened(made)) == ("compatible", True, KEY)
    connections.change(connection_id=made.pk, by=None, address="https://attacker.example.org")
    connections.from_environment()
    made.refresh_from_db()
    assert (made.address, opened(made)) == ("https://one.example.org/v1", KEY)
    connections.change(connection_id=made.pk, by=None, key="sk-entered-on-the-page-12345")
    connections.from_environment()
    assert opened(made) == "sk-entered-on-the-page-12345", "a key from the page stays"


def test_retiring_deletes_the_key():
    connection = make()
    connections.retire(connection_id=connection.pk, by=None)
    assert Connection.objects.get().sealed_key == ""
    connections.take_back(connection_id=connection.pk, by=None)
    assert opened(connection) == ""


@pytest.mark.parametrize("key", ["two words", "ümlaut-key-of-this-test", "x" * 9000, "a\nb"])
def test_what_is_no_key_is_refused(key):
    with pytest.raises(SpecError) as refused:
        make(key)
    assert key not in str(refused.value)
    assert not Connection.objects.exists()


def test_the_log_has_the_number_and_the_last_characters_alone():
    connection = make()
    connections.change(connection_id=connection.pk, by=None, key=KEY[:-4] + "QRST")
    connections.remove_key(connection_id=connection.pk, by=None)
    said = [entry.sentence for entry in AuditEntry.objects.filter(action="key").order_by("pk")]
    assert [each.split(" the key ")[0] for each in said] == ["Set", "Replaced", "Removed"]
    assert ["…WXYZ" in said[0], "…QRST" in said[1], "…QRST" in said[2]] == [True] * 3
    assert not [each for each in AuditEntry.objects.values() if KEY[:12] in str(each)]


def test_it_is_no_field_of_a_form_of_an_experiment_or_of_the_admin_site():
    assert Connection not in django_admin.site._registry
    assert Loan not in django_admin.site._registry
    for name in ("sealed_key", "key_hint", "key_set_at"):
        assert not Connection._meta.get_field(name).editable
        assert name not in connections.EDITABLE
    fields = {
        field.name
        for model in apps.get_models()
        for field in model._meta.fields
        if model not in {Connection, Destination}
    }
    assert not Destination._meta.get_field("sealed_key").editable
    assert Destination not in django_admin.site._registry
    assert not {name for name in fields if "sealed" in name}


def test_a_dump_of_the_row_has_no_readable_key():
    assert KEY[:12] not in serializers.serialize("json", [make()])


def test_children_get_no_environment_of_ours():
    """`/proc/PID/environ` of a child that reads a file is open to whatever the file makes of it."""
    roots = [Path(django_settings.BASE_DIR) / name for name in ("engine/importing", "engine/generation")]
    calls = [
        (file.name, {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords})
        for root in roots
        for file in root.rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in {"subprocess.run", "subprocess.Popen"}
    ]
    assert {name for name, _ in calls} >= {"reading_process.py", "child_processes.py"}
    # Python does not start on Windows without the one that is kept.
    kept = "{name: os.environ[name] for name in ('SYSTEMROOT',) if name in os.environ}"
    assert {keywords.get("env") for _, keywords in calls} == {"{}", kept}


def test_files_are_for_this_user_alone():
    """`settings` sets the umask, and every entry point loads it first."""
    before = os.umask(0o077)
    os.umask(before)
    assert before == 0o077
    program = (
        "import os; os.umask(0); os.environ['DJANGO_SETTINGS_MODULE'] = 'llmpo_site.settings';"
        "import django.conf; django.conf.settings.DEBUG; print(oct(os.umask(0)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=django_settings.BASE_DIR,
        env=dict(os.environ),
    )
    assert done.stdout.strip() == "0o77"


def test_http_clients_are_kept_from_the_log_at_debug():
    pinned = django_settings.LOGGING["loggers"]
    for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2", "hpack", "urllib3"):
        assert pinned[name]["level"] == "WARNING"
