"""The small model behind the paper's real experiments."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.tinylm.runtime import Llama, Writer
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
