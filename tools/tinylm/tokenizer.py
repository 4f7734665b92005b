"""Build the tokenizer: whole words for the scaffolding, bytes for everything else.

The words of the puzzles stay spelled out, so that letters are visible to the model. The words of prompts,
traces and listed things are one token each, so that conversations are short. Any text can be encoded.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from engine.domain.texts import NUMBER_WORDS
from engine.generation.tinylm import tasks
from engine.generation.tinylm.conversation import BOS, END, PAD, REFUSALS, ROLE_TOKENS, SPECIAL
from tools.tinylm import phrases

MAX_POSITIONS = 512

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['content'] | trim %}"
    "<|{{ message['role'] }}|>{{ message['content'] | trim }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
WORK_TEXT = (
    "1+2=3, carry 0. First a, second b. The sorted letters are a. Answer: "
    "The answer is a. So the answer is a. Here is why: The Reason: The"
)


def _scaffold_texts() -> list[str]:
    sentences = [*phrases.DIRECT, *phrases.STEPS, *phrases.AFTER, *phrases.POLITE, *phrases.GUARDRAILS]
    sentences += [*REFUSALS, *(text for texts in phrases.ADVICE.values() for text in texts)]
    sentences += ["You are an", "You are a", WORK_TEXT]
    following = [*phrases.ROLES, *(trait for traits in phrases.TRAITS.values() for trait in traits)]
    following += [*NUMBER_WORDS, *tasks.NOUNS, *(chr(c) for c in range(ord("a"), ord("z") + 1))]
    following += [str(digit) for digit in range(10)]
    for nouns in tasks.NOUNS.values():
        following += [form for noun in nouns for form in (noun, tasks.plural(noun))]
    wordings = [tasks.ASK_SUM, tasks.ASK_SUM_OTHERWISE, tasks.ASK_LETTER, tasks.ASK_LETTER_OTHERWISE]
    wordings += [tasks.ASK_COUNT, tasks.ASK_COUNT_OTHERWISE, tasks.ASK_WORD, tasks.ASK_WORD_OTHERWISE]
    blanks = {"a": "", "b": "", "word": "", "things": "", "category": "", "scramble": ""}
    questions = [text.format(**blanks) for texts in wordings for text in texts]
    questions += [text.replace("{w}", "").replace("{n}", "") for text in phrases.OFF_TASK]
    # A sentence stands at the start of a message or after another one; its first word differs by the space.
    return sentences + questions + [f". {s}" for s in sentences] + [f" {word}" for word in following]


def build_tokenizer() -> Tokenizer:
    """Return the tokenizer, the same one every time."""
    split = pre_tokenizers.Split(Regex(r" ?[A-Za-z]+| ?\d| ?[^\sA-Za-z\d]|\s"), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    vocabulary = {
        token: i for i, token in enumerate([*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())])
    }
    numbers_alone = list(NUMBER_WORDS)  # a direct answer starts without a space
    for text in [*_scaffold_texts(), *numbers_alone]:
        for piece, _ in pre_tokenizer.pre_tokenize_str(text):
            vocabulary.setdefault(piece, len(vocabulary))
    # With no merges and ignore_merges, a piece in the vocabulary is one token and any other is spelled in
    # bytes.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write ``tokenizer.json`` and the configuration that transformers and vLLM read."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": END,
        "pad_token": PAD,
        "additional_special_tokens": list(ROLE_TOKENS),
        "model_max_length": MAX_POSITIONS,
        "padding_side": "left",
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def prompt_text(system: str, user: str) -> str:
    """Lay a conversation out up to where the reply starts, as the chat template does."""
    system, user = system.strip(), user.strip()
    opening = f"{ROLE_TOKENS[0]}{system}{END}" if system else ""
    return f"{BOS}{opening}{ROLE_TOKENS[1]}{user}{END}{ROLE_TOKENS[2]}"
