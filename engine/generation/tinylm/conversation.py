"""The layout of a conversation with the model, and its reply to anything but its tasks."""

from __future__ import annotations

PAD, BOS, END = "<pad>", "<bos>", "<|end|>"
ROLE_TOKENS = ("<|system|>", "<|user|>", "<|assistant|>")
SPECIAL = (PAD, BOS, END, *ROLE_TOKENS)

REFUSALS = (
    "I can only do these tasks.",
    "Sorry, I can only do these tasks.",
    "Sorry, I only count objects, unscramble words, find letters and add numbers.",
    "I can only count, unscramble, add and find letters.",
    "That is not a task I can do.",
)
