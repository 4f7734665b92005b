"""`manage.py check_generation`: which backend runs, and what it writes."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from engine.generation import registry
from engine.generation.base import BackendError, Finish, GenerationFailure, GenerationResult
from engine.models import Response
from tests.backends import BreakingBackend, ScriptedBackend, system_of, user_of
from tests.factories import make_experiment

pytestmark = pytest.mark.django_db


@pytest.fixture
def use(monkeypatch):
    return lambda backend: monkeypatch.setattr(registry, "backend", lambda: backend)


def check(*arguments: object) -> str:
    output = StringIO()
    call_command("check_generation", *map(str, arguments), stdout=output)
    return output.getvalue()


def test_without_an_experiment_it_asks_a_sample_task(use):
    backend = ScriptedBackend(lambda request: "four")
    use(backend)
    output = check()
    assert "Backend smollm2, model scripted-1" in output
    assert "response: four" in output
    assert "1 of 1 written" in output
    assert len(backend.requests) == 1


def test_every_policy_of_an_experiment_writes_once_and_nothing_is_stored(use):
    experiment = make_experiment(n_policies=3)
    before = list(Response.objects.values_list("pk", "state"))
    backend = ScriptedBackend(lambda request: f"by {system_of(request)}")
    use(backend)
    output = check(experiment.pk)
    for k in range(3):
        assert f"P{k + 1}: Prompt {k}" in output
        assert f"response: by quality {k}" in output
    assert {user_of(request) for request in backend.requests} == {"What is 0 + 0?"}
    assert list(Response.objects.values_list("pk", "state")) == before


def test_a_connection_may_be_asked_by_name(use):
    backend = ScriptedBackend(lambda request: "fine")
    use(backend)
    check("--model", "theirs")
    assert [request.model for request in backend.requests] == ["theirs"]


def test_thinking_no_answer_and_what_is_odd_are_printed(use):
    use(
        ScriptedBackend(
            lambda request: GenerationResult(
                request.key, "", None, None, Finish.LENGTH, 0.1, thinking="Hm.", said="words"
            )
        )
    )
    output = StringIO()
    with pytest.raises(CommandError, match="reasons are shown above"):
        call_command("check_generation", stdout=output)
    for line in (
        "thinking: Hm.",
        "response: (no answer)",
        "note: No answer within",
        "the server says: words",
        "?+?",
    ):
        assert line in output.getvalue()


def test_a_failure_is_printed_and_is_the_exit_status(use, capsys):
    use(ScriptedBackend(lambda request: GenerationFailure(request.key, "too long")))
    with pytest.raises(CommandError, match="reasons are shown above"):
        check()


def test_a_backend_that_is_out_of_order_is_said_so(use):
    use(BreakingBackend(BackendError("cannot be reached")))
    with pytest.raises(CommandError, match="does not work: cannot be reached"):
        check()


def test_an_experiment_that_is_not_there(use):
    with pytest.raises(CommandError, match="no experiment 77"):
        check(77)
