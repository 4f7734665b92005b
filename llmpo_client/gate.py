"""``llmpo gate``: may this change of a prompt be merged? For CI; docs/gate.md describes it."""

import argparse
import json
import os
import sys
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from llmpo_client.client import Client
from llmpo_client.errors import LLMPOError, UnavailableError, UnreachableError
from llmpo_client.types import Gate, GateText

# The exit codes, the one that several files have together first.
CODES = {"worse": 10, "stopped": 12, "open": 11, "passed": 0, "same": 0}
NO_ANSWER, WRONG = 1, 2
MARKER = "<!-- llmpo gate -->"
_PROMPT = {"file": str, "experiment": int, "factor": str, "level": str}
_WORDS = {
    "same": "✅ Nothing to compare",
    "passed": "✅ Not worse",
    "worse": "❌ Worse",
    "open": "⏳ Still open",
    "stopped": "❌ Stopped without a claim",
}


class ConfigurationError(Exception):
    """The gate cannot begin: the message says what to change."""


def main(arguments: Sequence[str]) -> NoReturn:
    """Say on stdout, in one line of JSON, how each experiment sees the change; the exit code is the worst."""
    parser = argparse.ArgumentParser(
        prog="llmpo gate",
        description="Compare the prompts of this checkout with those of main.",
        epilog="Exit codes: 0 not worse, or nothing to compare; 10 worse; 11 still open; 12 stopped without "
        "a claim; 1 and 2 a fault of the gate itself. The token is in LLMPO_TOKEN.",
    )
    parser.add_argument("--config", type=Path, default=Path("llmpo.toml"), help="default: llmpo.toml")
    parser.add_argument("--commit", default="", help="hash of the commit that hears of the end")
    parser.add_argument("--markdown", type=Path, help="write a comment for the pull request into this file")
    parser.add_argument("--merged", action="store_true", help="main has these prompts from now on")
    given = parser.parse_args(arguments)
    try:
        gates = _ask(given.config, given.commit.strip().lower(), merged=given.merged)
    except (ConfigurationError, LLMPOError, ValueError, OSError) as fault:
        if given.markdown:
            given.markdown.write_text(f"{MARKER}\n**LLM-PO could not compare:** {fault}\n", encoding="utf-8")
        sys.stderr.write(f"llmpo gate: {fault}\n")
        sys.exit(NO_ANSWER if isinstance(fault, (UnavailableError, UnreachableError)) else WRONG)
    state = min((each["state"] for each in gates.values()), key=list(CODES).index)
    told = {
        "state": state,
        "code": CODES[state],
        "reported": all(each["reported"] for each in gates.values()),
        "experiments": {str(number): each for number, each in gates.items()},
    }
    sys.stdout.write(f"{json.dumps(told)}\n")
    if given.markdown:
        given.markdown.write_text(_markdown(gates), encoding="utf-8")
    sys.exit(CODES[state])


def _ask(file: Path, commit: str, *, merged: bool) -> dict[int, Gate]:
    """The state of each experiment that the configuration names."""
    configuration = tomllib.loads(file.read_text(encoding="utf-8"))
    prompts = configuration.get("prompt", [])
    server = configuration.get("server")
    if not isinstance(server, str) or not isinstance(prompts, list) or not prompts:
        raise ConfigurationError(f'{file} needs a line server = "https://…" and a table [[prompt]] per file.')
    texts: dict[int, list[GateText]] = defaultdict(list)
    for prompt in prompts:
        _check(file, prompt)
        texts[prompt["experiment"]].append(
            {"factor": prompt["factor"], "level": prompt["level"], "text": _text(file, prompt["file"])}
        )
    token = os.environ.get("LLMPO_TOKEN", "").strip()
    if not token:
        raise ConfigurationError(
            "LLMPO_TOKEN is not set. CI gives no secrets to a fork: somebody with rights to this repository "
            "pushes the branch here to have it compared."
        )
    with Client(server, token) as client:
        return {
            number: client.gate(number, each, commit=commit, merged=merged) for number, each in texts.items()
        }


def _check(file: Path, prompt: Mapping[str, Any]) -> None:
    if prompt.keys() != _PROMPT.keys() or any(
        type(prompt[name]) is not kind for name, kind in _PROMPT.items()
    ):
        raise ConfigurationError(
            f"{file}: each [[prompt]] has file, factor and level, which are texts, and experiment, a number."
        )


def _text(file: Path, name: str) -> str:
    """The text of a prompt's file, without the line break that ends its last line."""
    return (file.parent / name).read_text(encoding="utf-8-sig").removesuffix("\n")


def _markdown(gates: Mapping[int, Gate]) -> str:
    """One comment, which is found again by its marker."""
    lines = [MARKER, "### Prompts compared with main", ""]
    for each in gates.values():
        sentence = " ".join(each["sentence"].split()).replace("<", "&lt;")
        more = f" ({each['comparisons']} comparisons)" if each["challenge"] else ""
        lines.append(f"- **{_WORDS[each['state']]}**{more}: {sentence} [Open the experiment]({each['url']})")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
