"""Train the embedded model on the CPU: about 20 minutes of one core.

Usage, in an environment of its own::

    pip install -r tools/tinylm/requirements-train.txt
    python -m tools.tinylm.train --out var/tinylm

Every step draws its own text from the seed and the step's number. So a run that was stopped continues from
its last checkpoint with the same text. Weights repeat up to the order of floating-point sums.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from engine.generation.tinylm.conversation import BOS, END, PAD
from engine.generation.tinylm.runtime import ModelConfig
from tools.tinylm.corpus import draw_conversation
from tools.tinylm.tokenizer import MAX_POSITIONS, build_tokenizer, prompt_text, save_tokenizer
from tools.tinylm.torch_model import Llama

BATCHES_PER_CHUNK = 4
CHECKPOINT_EVERY = 200
REPORT_EVERY = 50


@dataclass(frozen=True, slots=True)
class Schedule:
    """Length and rate of the training; the rate warms up, stays, then falls linearly to zero."""

    steps: int = 1300
    batch_size: int = 96
    matrix_rate: float = 0.02
    other_rate: float = 0.004
    warmup_steps: int = 50
    cooldown_share: float = 0.7
    seed: int = 0

    def rate_factor(self, step: int) -> float:
        """Share of the full rate at a step."""
        cooldown_steps = self.cooldown_share * self.steps
        return min(1.0, (step + 1) / self.warmup_steps, (self.steps - step) / cooldown_steps)


def write_chunk(tokenizer: Tokenizer, schedule: Schedule, chunk: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Draw a few batches' worth of conversations, batched by length so that padding is small.

    Each batch is (tokens, targets, weights); only the reply is learned, so targets before it are -1. A long
    reply weighs as its square root, lest worked solutions drown the one-word answers.
    """
    rng = random.Random(f"{schedule.seed}/{chunk}")  # noqa: S311
    conversations = [draw_conversation(rng) for _ in range(schedule.batch_size * BATCHES_PER_CHUNK)]
    prompts = tokenizer.encode_batch(
        [prompt_text(c.system, c.user) for c in conversations], add_special_tokens=False
    )
    replies = tokenizer.encode_batch([c.reply + END for c in conversations], add_special_tokens=False)
    rows = sorted(
        ((p.ids, r.ids) for p, r in zip(prompts, replies, strict=True)),
        key=lambda row: len(row[0]) + len(row[1]),
    )
    batches = []
    for start in range(0, len(rows), schedule.batch_size):
        batch = rows[start : start + schedule.batch_size]
        longest = max(len(prompt) + len(reply) for prompt, reply in batch)
        shape = (len(batch), -(-longest // 8) * 8)
        tokens = torch.full(shape, tokenizer.token_to_id(PAD))
        targets, weights = torch.full(shape, -1), torch.zeros(shape)
        for i, (prompt, reply) in enumerate(batch):
            tokens[i, : len(prompt) + len(reply)] = torch.tensor(prompt + reply)
            said = slice(len(prompt) - 1, len(prompt) + len(reply) - 1)
            targets[i, said] = torch.tensor(reply)
            weights[i, said] = len(reply) ** -0.5
        batches.append((tokens, targets, weights))
    rng.shuffle(batches)
    return batches


def build_optimizers(model: Llama, schedule: Schedule) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for the embedding and the norms."""
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    inside = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in inside]
    return [
        torch.optim.Muon(matrices, lr=schedule.matrix_rate, weight_decay=0.01),
        torch.optim.AdamW(others, lr=schedule.other_rate, betas=(0.9, 0.98), weight_decay=0.01),
    ]


def export(model: Llama, config: ModelConfig, tokenizer: Tokenizer, folder: Path) -> None:
    """Write weights, configuration and tokenizer as transformers and vLLM expect them."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: p.detach().to(torch.bfloat16).contiguous() for name, p in model.named_parameters()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    end = tokenizer.token_to_id(END)
    ids = {
        "bos_token_id": tokenizer.token_to_id(BOS),
        "eos_token_id": end,
        "pad_token_id": tokenizer.token_to_id(PAD),
    }
    architecture = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"}
    shared = {"num_key_value_heads": config.num_attention_heads, "attention_bias": False, "mlp_bias": False}
    described = architecture | asdict(config) | shared | ids
    described |= {"tie_word_embeddings": True, "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(described, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(ids | {"do_sample": True}, indent=2) + "\n")
    save_tokenizer(tokenizer, folder)


def train(schedule: Schedule, out: Path, *, start_from: Path | None, compiled: bool) -> None:
    """Run the schedule, continuing from ``out/checkpoint.pt`` if there is one, and export to ``out/model``.

    ``start_from`` is another run's checkpoint; a new run then takes over its weights, and nothing else.
    """
    torch.manual_seed(schedule.seed)
    tokenizer = build_tokenizer()
    config = ModelConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=MAX_POSITIONS)
    model = Llama(config)
    optimizers = build_optimizers(model, schedule)
    checkpoint, step = out / "checkpoint.pt", 0
    out.mkdir(parents=True, exist_ok=True)
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        if saved["schedule"] != asdict(schedule):
            raise SystemExit(f"{checkpoint} belongs to another schedule: delete it or choose another --out")
        model.load_state_dict(saved["model"])
        for optimizer, state in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        step = saved["step"]
    elif start_from:
        model.load_state_dict(torch.load(start_from, weights_only=True)["model"])

    body = torch.compile(model.model, dynamic=True) if compiled else model.model
    full_rates = (schedule.matrix_rate, schedule.other_rate)
    started, tokens_seen = time.monotonic(), 0
    losses: list[float] = []
    while step < schedule.steps:
        if step % BATCHES_PER_CHUNK == 0 or not losses:
            batches = write_chunk(tokenizer, schedule, step // BATCHES_PER_CHUNK)
        tokens, targets, weights = batches[step % BATCHES_PER_CHUNK]
        for optimizer, rate in zip(optimizers, full_rates, strict=True):
            optimizer.param_groups[0]["lr"] = rate * schedule.rate_factor(step)
            optimizer.zero_grad(set_to_none=True)
        said = targets >= 0
        with torch.autocast("cpu", torch.bfloat16):
            logits = model.logits(body(tokens)[said])
        surprise = functional.cross_entropy(logits.float(), targets[said], reduction="none")
        loss = (surprise * weights[said]).sum() / weights[said].sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        step += 1
        tokens_seen += tokens.numel()
        losses.append(loss.item())
        if step % REPORT_EVERY == 0:
            minutes, recent = (time.monotonic() - started) / 60, losses[-REPORT_EVERY:]
            speed = tokens_seen / (60 * minutes)
            print(
                f"step {step}/{schedule.steps}  loss {sum(recent) / len(recent):.4f}  "
                f"{minutes:.1f} min  {speed:,.0f} tokens/s",
                flush=True,
            )
        if step % CHECKPOINT_EVERY == 0 or step == schedule.steps:
            state = {"schedule": asdict(schedule), "step": step, "model": model.state_dict()}
            state["optimizers"] = [optimizer.state_dict() for optimizer in optimizers]
            torch.save(state, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)
            export(model, config, tokenizer, out / "model")


def main() -> None:
    """Parse the command line and train."""
    defaults = Schedule()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("var/tinylm"))
    parser.add_argument("--steps", type=int, default=defaults.steps)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--matrix-rate", type=float, default=defaults.matrix_rate)
    parser.add_argument("--other-rate", type=float, default=defaults.other_rate)
    parser.add_argument(
        "--start-from", type=Path, help="checkpoint.pt of a run whose weights to train further"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-compile", action="store_true", help="slower, but needs no C++ compiler")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    schedule = Schedule(
        steps=chosen.steps, matrix_rate=chosen.matrix_rate, other_rate=chosen.other_rate, seed=chosen.seed
    )
    train(schedule, chosen.out, start_from=chosen.start_from, compiled=not chosen.no_compile)


if __name__ == "__main__":
    main()
