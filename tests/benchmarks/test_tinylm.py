"""The small model behind the paper's real experiments."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.tinylm.runtime import Llama, Writer, choose
from benchmarks.tinylm.tasks import tasks_of
from engine.domain.conversations import chat

GOLDEN = Path(__file__).parent / "golden_llama"


@pytest.fixture(scope="module")
def golden():
    """Logits that transformers' LlamaForCausalLM computed for a small random model."""
    return json.loads((GOLDEN / "logits.json").read_text())


@pytest.fixture(scope="module")
def llama():
    return Llama(GOLDEN)


def test_logits_agree_with_transformers_on_prompts_of_unequal_length(llama, golden):
    logits, cache = llama.prefill(golden["prompts"])
    np.testing.assert_allclose(logits, golden["after_prompt"], atol=2e-4)
    logits = llama.step(np.array(golden["next_tokens"]), cache)
    np.testing.assert_allclose(logits, golden["after_next_token"], atol=2e-4)


def test_the_cache_outgrows_its_first_block(llama):
    tokens = [1, *(3 + i % 30 for i in range(100))]
    _, cache = llama.prefill([tokens[:2], tokens[5:8]])
    for token in tokens[2:]:
        logits = llama.step(np.array([token, 7]), cache)
    at_once, _ = llama.prefill([tokens])
    np.testing.assert_allclose(logits[0], at_once[0], atol=2e-4)


def test_dropping_rows_leaves_the_others_alone(llama, golden):
    _, cache = llama.prefill(golden["prompts"])
    cache.keep(np.array([1, 2]))
    logits = llama.step(np.array(golden["next_tokens"][1:]), cache)
    np.testing.assert_allclose(logits, golden["after_next_token"][1:], atol=2e-4)


def test_draws_follow_the_softmax_at_the_given_temperature():
    logits, draws = np.log(np.array([0.5, 0.3, 0.2])), 4000
    uniforms = (np.arange(draws) + 0.5) / draws
    chosen = choose(np.tile(logits, (draws, 1)), 0.5, uniforms)
    expected = np.array([0.5, 0.3, 0.2]) ** 2
    np.testing.assert_allclose(np.bincount(chosen) / draws, expected / expected.sum(), atol=1e-3)


@pytest.mark.slow
def test_it_adds_better_step_by_step_and_the_same_in_any_batch():
    tasks = tasks_of("sum", 40)
    asked = [chat(f"{task.prompt}\n\nThink step by step, then give the answer.") for task in tasks]
    writer, seeds = Writer(), range(40)
    texts = writer.write(asked, seeds, 0.1, 64)
    assert (
        sum(text.endswith(f"Answer: {task.reference}") for text, task in zip(texts, tasks, strict=True)) > 30
    )
    assert writer.write(asked[7:8], seeds[7:8], 0.1, 64) == texts[7:8]


def test_the_references_of_the_tasks_are_right():
    assert all(int(task.reference) == sum(map(int, task.prompt.split())) for task in tasks_of("sum", 150))
    assert all(task.reference == task.prompt[1] for task in tasks_of("second_word_letter", 150))
    for task in tasks_of("word_unscrambling", 150):
        assert sorted(task.prompt.split()[2]) == sorted(task.reference)
