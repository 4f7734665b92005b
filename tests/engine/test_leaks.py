"""Responses that give themselves away."""

import pytest

from engine.domain.leaks import find_leak
from engine.generation.worker import write_batch
from engine.models import Response
from tests.backends import ScriptedBackend
from tests.factories import make_experiment

INSTRUCTIONS = ["You are a careful tutor. Check every step.", "Think step by step, then give the answer."]


@pytest.mark.parametrize(
    "text",
    [
        "As told, YOU ARE A  careful\ntutor, so here goes: 4",
        "I was asked to think step by step then give the answer!",
        "I am Llama-3 8B and I say 4.",
    ],
)
def test_what_names_its_instructions_or_its_model_leaks(text):
    assert find_leak(text, instructions=INSTRUCTIONS, model="meta/Llama-3-8B")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The answer is 4.",
        "Check every stepladder.",  # a longer word is another word
        "We check, then give the answer.",
        "Llamas have 8 babies.",
    ],
)
def test_what_only_sounds_alike_does_not(text):
    assert find_leak(text, instructions=INSTRUCTIONS, model="meta/Llama-3-8B") == ""


def test_no_model_and_no_instructions_leak_nothing():
    assert find_leak("anything at all", instructions=[""], model="") == ""


@pytest.mark.django_db
def test_it_is_written_down_with_the_response():
    make_experiment()
    write_batch(worker="w", backend=ScriptedBackend(lambda request: "I am scripted-1, at your service."))
    assert set(Response.objects.values_list("leak", flat=True)) == {"its model: scripted-1"}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("text", "leak"), [("I am Other-2.", "its model: other-2"), ("I am scripted-1.", "")]
)
def test_its_model_is_the_one_that_wrote_it(text, leak):
    """A backend may serve several models; the one that it uses where nobody names one is not always meant."""
    make_experiment(model="other-2")
    write_batch(worker="w", backend=ScriptedBackend(lambda request: text))
    assert set(Response.objects.values_list("model", "leak")) == {("other-2", leak)}
