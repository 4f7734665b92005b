import random
import re
import subprocess
import sys

import pytest

from engine.generation.tinylm.tasks import KINDS, draw_puzzle, is_held_out, sample_tasks
from engine.generation.tinylm.words import contains_blocked, is_blocked, lexicon, words
from tools.tinylm.corpus import SOLVERS, draw_training_puzzle, solve_sum
from tools.tinylm.evaluate import extract_answer


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_repeat_for_a_seed_and_differ_between_seeds(kind):
    tasks = sample_tasks(kind, 50, seed=3)

    assert tasks == sample_tasks(kind, 50, seed=3)
    assert tasks != sample_tasks(kind, 50, seed=4)
    assert len({task.prompt for task in tasks}) == 50
    assert {task.kind for task in tasks} == {kind}


def test_tasks_are_worded_as_in_the_paper():
    shapes = {
        "sum": r"\d{1,2} \d{1,2}",
        "second_word_letter": r"[a-z]+",
        "word_unscrambling": r"The word [a-z]{4,6} is a scrambled version of the English word",
        "object_counting": r"I have (an?|two|three) .*,? and .*\. How many [a-z ]+ do I have\?",
    }
    for kind, shape in shapes.items():
        assert all(re.fullmatch(shape, task.prompt) for task in sample_tasks(kind, 50, seed=0))


def test_references_are_right():
    for task in sample_tasks("sum", 100, seed=0):
        assert int(task.reference) == sum(int(number) for number in task.prompt.split())
    for task in sample_tasks("second_word_letter", 100, seed=0):
        assert task.reference == task.prompt[1]
    for task in sample_tasks("word_unscrambling", 100, seed=0):
        scramble = task.prompt.split()[2]
        assert sorted(scramble) == sorted(task.reference)
        assert scramble != task.reference


def test_unknown_kinds_and_too_many_tasks_are_refused():
    with pytest.raises(ValueError, match="unknown kind of task 'poetry'"):
        sample_tasks("poetry", 1, seed=0)
    with pytest.raises(ValueError, match="ask for fewer"):
        sample_tasks("sum", 5000, seed=0)


def test_training_text_and_held_out_tasks_never_overlap():
    rng = random.Random(0)
    trained = [draw_training_puzzle(rng) for _ in range(10_000)]
    numbers = {frozenset(p.facts) for p in trained if p.item.kind == "sum"}
    spelled = {p.facts[0] for p in trained if p.item.kind == "second_word_letter"}
    scrambles = {p.facts[0] for p in trained if p.item.kind == "word_unscrambling"}
    questions = {p.item.prompt for p in trained}

    assert not numbers & {frozenset(map(int, t.prompt.split())) for t in sample_tasks("sum", 300, seed=0)}
    assert not spelled & {t.prompt for t in sample_tasks("second_word_letter", 200, seed=0)}
    assert not scrambles & {t.prompt.split()[2] for t in sample_tasks("word_unscrambling", 500, seed=0)}
    assert not questions & {t.prompt for t in sample_tasks("object_counting", 500, seed=0)}


def test_the_split_ignores_the_order_of_a_sum():
    rng = random.Random(1)
    puzzles = [p for p in (draw_training_puzzle(rng) for _ in range(3000)) if p.item.kind == "sum"]

    assert puzzles
    assert not any(is_held_out("sum", f"{min(p.facts)} {max(p.facts)}") for p in puzzles)


def test_solutions_are_right_without_a_slip_and_wrong_with_one():
    rng = random.Random(0)
    puzzles = [draw_training_puzzle(rng) for _ in range(400)]

    assert all(SOLVERS[p.item.kind](p, None).answer == p.item.reference for p in puzzles)
    slipped = [SOLVERS[p.item.kind](p, rng).answer != p.item.reference for p in puzzles]
    assert sum(slipped) > 0.9 * len(puzzles)


def test_a_slip_in_the_work_is_carried_through_to_the_answer():
    rng = random.Random(0)
    for _ in range(200):
        solution = solve_sum(draw_puzzle("sum", rng, held_out=False), rng)
        ones, tens = re.findall(r"=(\d+)", solution.work)
        assert solution.answer == str(10 * int(tens) + int(ones) % 10)


def test_lexicon_is_large_clean_and_unambiguous():
    letters = {"".join(sorted(word)) for word in lexicon()}

    assert len(lexicon()) >= 1500
    assert len(letters) == len(lexicon())
    assert not any(is_blocked(word) for word in words())


@pytest.mark.parametrize("text", ["Damn.", "It is d a m n", "d-a-m-n", "The answer is damn."])
def test_offensive_words_are_recognised_plain_or_spelled_out(text):
    assert contains_blocked(text)


@pytest.mark.parametrize("text", ["class", "a b c", "The sorted letters are a b c e h. Answer: beach", ""])
def test_ordinary_text_is_let_through(text):
    assert not contains_blocked(text)


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("41", "41"),
        ("The answer is Four.", "four"),
        ("2+9=11, carry 1. 1+2+1=4. Answer: 41", "41"),
        ("g o v. First g, second o. So the answer is o.", "o"),
        ("beach. Reason: The sorted letters are a b c e h.", "beach"),
        ("The answer is 41. Here is why: 2+9=11, carry 1.", "41"),
        ("Guess: beach", "beach"),
        ("Guess: four. Reason: 2+2=4.", "four"),
        ("I can only do these tasks.", ""),
        ("", ""),
    ],
)
def test_answers_are_found_in_every_style(reply, answer):
    assert extract_answer(reply) == answer


@pytest.mark.slow
def test_tasks_need_neither_numpy_nor_torch():
    code = (
        "import sys, engine.generation.tinylm.tasks; print({'numpy', 'torch', 'tokenizers'} & "
        "set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "set()"
