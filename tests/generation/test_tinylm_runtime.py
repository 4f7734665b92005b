import json
from pathlib import Path

import numpy as np
import pytest

from engine.generation.tinylm.runtime import Llama, SamplingTable, choose

GOLDEN = Path(__file__).parent / "golden_llama"


@pytest.fixture(scope="module")
def golden():
    """Logits that transformers' LlamaForCausalLM computed for a small random model."""
    return json.loads((GOLDEN / "logits.json").read_text())


@pytest.fixture(scope="module")
def llama():
    return Llama(GOLDEN)


def tabulate(rows, *, temperature=1.0, top_p=1.0, top_k=0):
    return SamplingTable(np.full(rows, temperature), np.full(rows, top_p), np.full(rows, top_k))


def test_forward_agrees_with_transformers_on_prompts_of_unequal_length(llama, golden):
    logits, _ = llama.prefill(golden["prompts"])

    np.testing.assert_allclose(logits, golden["after_prompt"], atol=2e-4)


def test_cached_step_agrees_with_transformers(llama, golden):
    _, cache = llama.prefill(golden["prompts"])

    logits = llama.step(np.array(golden["next_tokens"]), cache)

    np.testing.assert_allclose(logits, golden["after_next_token"], atol=2e-4)


def test_cache_outgrows_its_first_block(llama):
    tokens = [1, *(3 + i % 30 for i in range(100))]
    _, cache = llama.prefill([tokens[:2], tokens[5:8]])

    for token in tokens[2:]:
        logits = llama.step(np.array([token, 7]), cache)

    at_once, _ = llama.prefill([tokens])
    np.testing.assert_allclose(logits[0], at_once[0], atol=2e-4)


def test_dropping_rows_leaves_the_others_alone(llama, golden):
    _, cache = llama.prefill(golden["prompts"])
    cache.retire(np.array([True, False, False]))
    cache.keep(np.array([1, 2]))

    logits = llama.step(np.array(golden["next_tokens"][1:]), cache)

    np.testing.assert_allclose(logits, golden["after_next_token"][1:], atol=2e-4)


def test_temperature_zero_takes_the_likeliest():
    logits = np.array([[0.0, 3.0, 1.0], [2.0, 1.0, 0.0]])

    chosen = choose(logits, tabulate(2, temperature=0.0), np.array([0.999, 0.999]))

    assert chosen.tolist() == [1, 0]


def test_draws_follow_the_softmax_at_the_given_temperature():
    logits, draws = np.log(np.array([0.5, 0.3, 0.2])), 4000
    uniforms = (np.arange(draws) + 0.5) / draws

    chosen = choose(np.tile(logits, (draws, 1)), tabulate(draws, temperature=0.5), uniforms)

    expected = np.array([0.5, 0.3, 0.2]) ** 2
    np.testing.assert_allclose(np.bincount(chosen) / draws, expected / expected.sum(), atol=1e-3)


@pytest.mark.parametrize(
    ("truncation", "allowed"),
    [
        ({"top_k": 1}, {2}),
        ({"top_k": 2}, {2, 0}),
        ({"top_p": 0.5}, {2}),
        ({"top_p": 0.7}, {2, 0}),
        ({"top_p": 1.0, "top_k": 0}, {0, 1, 2, 3}),
        ({"top_p": 0.99, "top_k": 3}, {2, 0, 3}),
    ],
)
def test_top_k_and_top_p_keep_the_likeliest(truncation, allowed):
    logits = np.log(np.array([0.25, 0.05, 0.6, 0.1]))
    uniforms = np.linspace(0, 0.9999, 200)

    chosen = choose(np.tile(logits, (200, 1)), tabulate(200, **truncation), uniforms)

    assert set(chosen.tolist()) == allowed


def test_rows_have_their_own_parameters():
    logits = np.tile(np.log(np.array([0.6, 0.4])), (3, 1))
    table = SamplingTable(np.array([0.0, 1.0, 1.0]), np.array([1.0, 1.0, 0.5]), np.array([0, 0, 0]))

    assert choose(logits, table, np.full(3, 0.9)).tolist() == [0, 1, 0]
