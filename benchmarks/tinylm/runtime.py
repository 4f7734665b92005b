"""The Llama architecture in NumPy, many conversations at once, each with its own seed.

Rows of a batch never see each other. Keys and values lie flush left in the cache, so a row's padding is
always in its own future, where attention does not look. Each row draws from its own random stream by
inverting its cumulative distribution, one number a token. So a row's text does not depend on its company,
apart from rounding in the last bits of a float.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from safetensors import deserialize
from tokenizers import Tokenizer

from engine.domain.conversations import Message

MODEL_FOLDER = Path(__file__).with_name("model")
MASKED = np.float32(-1e30)
_BATCH = 64
_END = "<|end|>"
_NEVER_WRITTEN = ("<pad>", "<bos>", "<|system|>", "<|user|>", "<|assistant|>")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shape of the model, named as in ``config.json``."""

    vocab_size: int
    hidden_size: int = 192
    intermediate_size: int = 512
    num_hidden_layers: int = 4
    num_attention_heads: int = 3
    max_position_embeddings: int = 512
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    @classmethod
    def read(cls, path: Path) -> ModelConfig:
        """Read the fields of this class from a ``config.json``."""
        described = json.loads(path.read_text())
        # transformers 5 moved it into a group of its own.
        described |= {"rope_theta": described.get("rope_parameters", described)["rope_theta"]}
        return cls(**{field.name: described[field.name] for field in fields(cls)})

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    def rotary_tables(self) -> tuple[np.ndarray, np.ndarray]:
        """Cosine and sine of each position's rotation angles, positions × half a head's width."""
        half = self.head_size // 2
        frequencies = self.rope_theta ** -(np.arange(half) / half)
        angles = np.outer(np.arange(self.max_position_embeddings), frequencies)
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """Read a bfloat16 safetensors file as float32, which NumPy can compute with."""
    weights = {}
    for name, tensor in deserialize(path.read_bytes()):  # type: ignore[no-untyped-call]  # written in Rust
        if tensor["dtype"] != "BF16":
            raise ValueError(f"{path}: {name} is {tensor['dtype']}, but this runtime reads BF16")
        # A bfloat16 is the upper half of the float32 with the same value.
        upper = np.frombuffer(tensor["data"], dtype="<u2").astype(np.uint32)
        weights[name] = (upper << 16).view(np.float32).reshape(tensor["shape"])
    return weights


@dataclass(frozen=True, slots=True)
class _Layer:
    """Weights of one layer; projections that share their input are joined, norms folded into what follows."""

    query_key_value: np.ndarray
    attention_out: np.ndarray
    gate_up: np.ndarray
    down: np.ndarray


class Cache:
    """Keys and values of the tokens so far, flush left; ``lengths`` counts each row's."""

    BLOCK = 64

    def __init__(self, config: ModelConfig, lengths: np.ndarray) -> None:
        capacity = int(lengths.max()) + self.BLOCK
        shape = (
            config.num_hidden_layers,
            len(lengths),
            config.num_attention_heads,
            capacity,
            config.head_size,
        )
        # Zeros, not np.empty: a masked position has weight 0, but 0 times a stray NaN would still be NaN.
        self.keys, self.values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.lengths = lengths

    def make_room(self) -> None:
        """Grow if the longest row is full."""
        if self.lengths.max() == self.keys.shape[3]:
            more = [(0, 0)] * 3 + [(0, self.BLOCK), (0, 0)]
            self.keys, self.values = np.pad(self.keys, more), np.pad(self.values, more)

    def keep(self, rows: np.ndarray) -> None:
        """Drop all rows but these."""
        self.keys, self.values = self.keys[:, rows], self.values[:, rows]
        self.lengths = self.lengths[rows]


class Llama:
    """A Llama with tied embeddings and as many key-value heads as heads.

    Parameters
    ----------
    folder : Path
        Holds ``config.json`` and ``model.safetensors`` (bfloat16) in the layout that transformers writes.
    """

    def __init__(self, folder: Path) -> None:
        self.config = ModelConfig.read(folder / "config.json")
        weights = read_weights(folder / "model.safetensors")
        self._embedding = weights["model.embed_tokens.weight"]
        self._to_logits = np.ascontiguousarray((self._embedding * weights["model.norm.weight"]).T)
        self._layers = [
            self._join(weights, f"model.layers.{i}.") for i in range(self.config.num_hidden_layers)
        ]
        self._cos, self._sin = self.config.rotary_tables()

    @staticmethod
    def _join(weights: dict[str, np.ndarray], prefix: str) -> _Layer:
        def joined(norm: str | None, *names: str) -> np.ndarray:
            matrix = np.concatenate([weights[f"{prefix}{name}.weight"] for name in names])
            scale = weights[f"{prefix}{norm}.weight"] if norm else 1
            return np.ascontiguousarray((matrix * scale).T)

        return _Layer(
            joined("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            joined(None, "self_attn.o_proj"),
            joined("post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj"),
            joined(None, "mlp.down_proj"),
        )

    def prefill(self, prompts: Sequence[Sequence[int]]) -> tuple[np.ndarray, Cache]:
        """Read prompts; return the logits after each one's last token and the filled cache."""
        lengths = np.array([len(prompt) for prompt in prompts])
        longest = int(lengths.max())
        tokens = np.zeros((len(prompts), longest), np.int64)
        for row, prompt in zip(tokens, prompts, strict=True):
            row[: len(prompt)] = prompt
        cache = Cache(self.config, lengths)
        positions = np.arange(longest)
        visible = positions[None, :] <= positions[:, None]
        x = self._embedding[tokens]
        for number, layer in enumerate(self._layers):
            query, key, value = self._project(x, layer, self._cos[:longest], self._sin[:longest])
            cache.keys[number, :, :, :longest] = key
            cache.values[number, :, :, :longest] = value
            x = self._finish_layer(x, _attend(query, key, value, visible), layer)
        return self._logits(x[np.arange(len(prompts)), lengths - 1]), cache

    def step(self, tokens: np.ndarray, cache: Cache) -> np.ndarray:
        """Append one token to each row; return the logits after it."""
        cache.make_room()
        rows, longest = np.arange(len(tokens)), int(cache.lengths.max()) + 1
        visible = (np.arange(longest) <= cache.lengths[:, None])[:, None, None, :]
        cos, sin = (table[cache.lengths][:, None, None] for table in (self._cos, self._sin))
        x = self._embedding[tokens][:, None]
        for number, layer in enumerate(self._layers):
            query, key, value = self._project(x, layer, cos, sin)
            cache.keys[number, rows, :, cache.lengths] = key[:, :, 0]
            cache.values[number, rows, :, cache.lengths] = value[:, :, 0]
            past = cache.keys[number, :, :, :longest], cache.values[number, :, :, :longest]
            x = self._finish_layer(x, _attend(query, *past, visible), layer)
        cache.lengths = cache.lengths + 1
        return self._logits(x[:, 0])

    def _project(
        self, x: np.ndarray, layer: _Layer, cos: np.ndarray, sin: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        joined = _normalize(x, self.config.rms_norm_eps) @ layer.query_key_value
        split = joined.reshape(*x.shape[:2], 3, self.config.num_attention_heads, self.config.head_size)
        query, key, value = split.transpose(2, 0, 3, 1, 4)
        return _rotate(query, cos, sin), _rotate(key, cos, sin), value

    def _finish_layer(self, x: np.ndarray, mixed: np.ndarray, layer: _Layer) -> np.ndarray:
        x = x + mixed.transpose(0, 2, 1, 3).reshape(x.shape) @ layer.attention_out
        gate, up = np.split(_normalize(x, self.config.rms_norm_eps) @ layer.gate_up, 2, axis=-1)
        out: np.ndarray = x + (gate / (1 + np.exp(-gate)) * up) @ layer.down
        return out

    def _logits(self, x: np.ndarray) -> np.ndarray:
        logits: np.ndarray = _normalize(x, self.config.rms_norm_eps) @ self._to_logits
        return logits


def _normalize(x: np.ndarray, eps: float) -> np.ndarray:
    normalized: np.ndarray = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps))
    return normalized


def _rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)


def _attend(query: np.ndarray, keys: np.ndarray, values: np.ndarray, visible: np.ndarray) -> np.ndarray:
    scores = query @ keys.swapaxes(-1, -2) * np.float32(query.shape[-1] ** -0.5)
    scores = np.where(visible, scores, MASKED)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed: np.ndarray = (weights / weights.sum(axis=-1, keepdims=True)) @ values
    return mixed


def choose(logits: np.ndarray, temperature: float, uniforms: np.ndarray) -> np.ndarray:
    """Choose one token a row; ``uniforms`` are each row's draw from [0, 1)."""
    logits = logits.astype(np.float64) / temperature
    order = np.argsort(-logits, axis=-1, kind="stable")
    ranked = np.take_along_axis(logits, order, axis=-1)
    weights = np.exp(ranked - ranked[:, :1])
    cumulative = np.cumsum(weights / weights.sum(axis=-1, keepdims=True), axis=-1)
    drawn = (cumulative <= uniforms[:, None] * cumulative[:, -1:]).sum(axis=-1)
    picked: np.ndarray = order[np.arange(len(order)), np.minimum(drawn, logits.shape[1] - 1)]
    return picked


class Writer:
    """Writes replies to conversations with the model in ``model``."""

    def __init__(self) -> None:
        self._llama = Llama(MODEL_FOLDER)
        self._tokenizer = Tokenizer.from_file(str(MODEL_FOLDER / "tokenizer.json"))
        self._never_written = [self._tokenizer.token_to_id(token) for token in _NEVER_WRITTEN]

    def write(
        self,
        conversations: Sequence[Sequence[Message]],
        seeds: Sequence[int],
        temperature: float,
        max_tokens: int,
    ) -> list[str]:
        """A reply to each conversation, drawn with its own seed."""
        prompts = [self._read(conversation) for conversation in conversations]
        texts = [""] * len(prompts)
        places = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
        for start in range(0, len(places), _BATCH):
            batch = places[start : start + _BATCH]
            replies = self._write(
                [prompts[place] for place in batch],
                np.stack([np.random.default_rng(seeds[place]).random(max_tokens) for place in batch]),
                temperature,
            )
            for place, reply in zip(batch, replies, strict=True):
                texts[place] = self._tokenizer.decode(reply)
        return texts

    def _read(self, conversation: Sequence[Message]) -> list[int]:
        marked = [f"<|{each.role}|>{each.content.strip()}{_END}" for each in conversation if each.content]
        text = "".join(["<bos>", *marked, "<|assistant|>"])
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _write(
        self, prompts: Sequence[Sequence[int]], uniforms: np.ndarray, temperature: float
    ) -> list[list[int]]:
        replies: list[list[int]] = [[] for _ in prompts]
        end = self._tokenizer.token_to_id(_END)
        at_work = np.arange(len(prompts))
        logits, cache = self._llama.prefill(prompts)
        for place in range(uniforms.shape[1]):
            logits[:, self._never_written] = MASKED
            tokens = choose(logits, temperature, uniforms[at_work, place])
            for row, token in zip(at_work, tokens, strict=True):
                replies[row].append(int(token))
            going = np.flatnonzero(tokens != end)
            if not len(going):
                break
            if len(going) < len(at_work):
                cache.keep(going)
                at_work, tokens = at_work[going], tokens[going]
            logits = self._llama.step(tokens, cache)
        return replies
