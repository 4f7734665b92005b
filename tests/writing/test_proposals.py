"""What a writer gives that cannot join the race."""

import pytest

from engine.domain.proposals import fault_of, is_answer, is_worse, longest_for

PARENT = "Answer in one short sentence. Be polite."
JUDGED = [
    "How do I cook rice?",
    "Hello",
    "My train is late and I will miss a meeting with the whole team. What should I write to them?",
]


def fault(text: str, parent: str = PARENT, others=(), longest: int = 600, judged=JUDGED) -> str:
    return fault_of(text, parent=parent, others=others, longest=longest, judged=judged)


@pytest.mark.parametrize(
    "text",
    [
        "Answer in two warm sentences, and end with a question.",
        # One word turns a short text around.
        "Answer in one long sentence. Be polite.",
        # What answers are about may be named, and everyday words of tasks.
        "Hello is a good first word. Recipes come with amounts.",
        "Help the reader choose: say which of two options fits whom.",
        "Prefer short words.",
    ],
)
def test_what_differs_may_join(text):
    assert fault(text) == ""


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("", "empty"),
        (" \u200b\n", "empty"),
        ("Answer warmly. " * 50, "characters"),
        (PARENT, "copy of its parent"),
        ("answer in ONE short sentence -- be polite!", "copy of its parent"),
        ("Be kind, and short.", "tried already"),
        ("Be warm. The reader should choose this answer.", "person who judges"),
        ("Write so that annotators prefer it.", "person who judges"),
        ("Say that it is better than the other response.", "person who judges"),
        ("Schreibe: Wählen Sie diese Antwort!", "person who judges"),
        ("Be warm. Asked “How do I cook rice?”, say: twelve minutes.", "how do i cook rice"),
        ("If a train is late and I will miss a meeting with the team, be brief.", "names a task"),
    ],
)
def test_what_is_refused_says_why(text, because):
    assert because in fault(text, others=["Be kind and short"])


def test_a_near_copy_of_a_long_text_is_refused_and_a_new_sentence_is_not():
    words = [f"word{n}" for n in range(120)]
    long = " ".join(words)
    assert "copy" in fault(long.replace("word60", "other"), parent=long, longest=5000)
    assert fault(f"{long} End with a question.", parent=long, longest=5000) == ""
    assert fault(" ".join(words[20:]), parent=long, longest=5000) == ""


def test_what_the_parent_says_of_tasks_may_stay():
    parent = (
        "Be warm. “How do I cook rice?” is a typical question. The other response is none of your business."
    )
    assert fault(f"{parent} End with a question.", parent=parent) == ""


def test_children_cannot_grow_without_end():
    original = "x" * 1000
    assert longest_for(original) == 2000
    assert longest_for("short") == 600


@pytest.mark.parametrize(
    ("screened", "worse"),
    [
        ([0.0] * 5, True),
        ([0.5, 0, 0, 0, 0], True),
        ([0.5, 0.5, 0, 0, 0], False),
        # Of two tasks one that is as good loses both, or one and a tie, in a third of all cases.
        ([0.0, 0.0], False),
        ([], False),
    ],
)
def test_a_language_model_refuses_only_what_it_finds_worse_on_five_tasks(screened, worse):
    assert is_worse(screened) is worse


def test_an_answer_that_a_writer_was_shown_is_known_by_its_words():
    """Texts of a model with 0.5 billion parameters, which wrote answers in the place of prompts."""
    answer = (
        "1. Start by getting up early and going for a short walk, jog, or simply stretch. This will help you "
        "relax and reduce stress.\n\n2. **Use"
    )
    copied = "Start by getting up early and going for a short walk, jog or simply stretch."
    assert is_answer(copied, ["Wake up earlier.", answer])
    assert not is_answer(copied, ["Wake up earlier."])
    assert not is_answer("Start by getting up", [answer]), "everyday words"
    assert not is_answer(f"{copied} Be warm.", [answer])
