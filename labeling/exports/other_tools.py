"""Judgments in the formats of other tools: LMArena, Argilla, and a folder for Hugging Face's `datasets`."""

import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any
from uuid import UUID, uuid5

import yaml
from zipstream import ZipStream

from labeling.exports.formats import json_lines, json_list, parquet_pieces
from labeling.exports.judgments import COLUMNS, Row

_SPLIT = "data/train-00000-of-00001.parquet"
_WINNERS = {"left": "model_a", "right": "model_b", "tie": "tie", "both_bad": "tie (bothbad)"}
_PREFERENCES = {"left": "response_a", "right": "response_b", "tie": "tie", "both_bad": "both_bad"}
# Argilla's users have UUIDs; ours are derived from the names in the file.
_PEOPLE = UUID("6f1c1d62-2a3e-5b0e-9a53-0c6a2f4d7b11")
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"))

# A policy's name, and the text of its response, if there is one; then a row by its columns with both sides.
_Side = dict[str, str | None]
_Vote = tuple[dict[str, Any], _Side, _Side]


def lmarena_pieces(rows: Iterable[Row]) -> Iterator[bytes]:
    """One vote per line as LMArena's data sets have it: model_a is the response that was on the left.

    Voided judgments are left out: the format has no place to say so. Where a past vote has no text of a
    response, the conversation ends with the user.
    """
    return json_lines(
        {
            "question_id": str(said["comparison_id"]),
            "model_a": left["name"],
            "model_b": right["name"],
            "winner": _WINNERS[said["choice"]],
            "judge": said["annotator"],
            "conversation_a": [*_asked(said), *_answered(left)],
            "conversation_b": [*_asked(said), *_answered(right)],
            "turn": sum(message["role"] == "user" for message in _asked(said)),
            "tstamp": said["judged_at"].timestamp() if said["time_known"] else None,
            "judgment_uuid": said["judgment_uuid"],
            "judged_by": said["judge"],
        }
        for said, left, right in _standing(rows)
    )


def argilla_pieces(rows: Iterable[Row]) -> Iterator[bytes]:
    """Records of Argilla as one JSON list: two responses, and everybody's answer to ``preference``.

    ``rows`` come by :data:`RECORDS`. Argilla keeps one answer of a person to a record: who judged the same
    two responses again has it in another record. Its users are UUIDs, and its answers have no time, so names,
    times and UUIDs are metadata, in the order of the answers. Voided judgments are left out.
    """
    records = (
        _argilla_record(votes)
        for _, group in groupby(_standing(rows), key=lambda vote: tuple(vote[0][name] for name in _RECORD))
        for votes in _once_each(group)
    )
    return json_list(records)


# The columns that the judgments of one record share, and the order of rows in which they are together.
_RECORD = ("task_number", "response_i_id", "response_j_id", "left_policy")
RECORDS = (
    "comparison__task__position", "comparison__response_i_id", "comparison__response_j_id",
    "comparison__i_on_left", "pk",
)  # fmt: skip


def _once_each(votes: Iterable[_Vote]) -> Iterator[list[_Vote]]:
    """The votes in as few lists as hold nobody twice."""
    lists: list[list[_Vote]] = []
    given: Counter[str] = Counter()
    for vote in votes:
        by = vote[0]["annotator"]
        if given[by] == len(lists):
            lists.append([])
        lists[given[by]].append(vote)
        given[by] += 1
    yield from lists


def _argilla_record(votes: Sequence[_Vote]) -> dict[str, Any]:
    said, left, right = votes[0]
    return {
        "id": str(said["judgment_id"]),
        "fields": {
            "prompt": _asked(said) if said["task_messages"] else said["task"],
            "response_a": left["text"],
            "response_b": right["text"],
        },
        "metadata": {
            "model_a": left["name"],
            "model_b": right["name"],
            "annotators": [vote["annotator"] for vote, *_ in votes],
            "judged_at": [vote["judged_at"].isoformat() if vote["time_known"] else "" for vote, *_ in votes],
            "judgment_uuids": [vote["judgment_uuid"] for vote, *_ in votes],
            "judged_by": [vote["judge"] for vote, *_ in votes],
        },
        "responses": {
            "preference": [
                {
                    "value": _PREFERENCES[vote["choice"]],
                    "user_id": str(uuid5(_PEOPLE, vote["annotator"])),
                    "status": "submitted",
                }
                for vote, *_ in votes
            ]
        },
    }


def dataset_pieces(rows: Iterable[Row], card: Callable[[], str]) -> Iterator[bytes]:
    """A ZIP file of a folder that `datasets.load_dataset` reads: the rows as Parquet, and a card.

    ``card`` is asked for after the last row.
    """
    archive = ZipStream(compress_type=zipfile.ZIP_STORED)
    archive.add(parquet_pieces(rows), _SPLIT)
    archive.add((card().encode() for _ in range(1)), "README.md")
    return iter(archive)


def dataset_card(*, name: str, question: str, rows: int, policies: Iterable[str], sentences: str) -> str:
    """The card of a data set: YAML for programs, then Markdown for people."""
    size = next((label for most, label in _SIZES if rows < most), "n>1M")
    head = {
        "pretty_name": name,
        "task_categories": ["text-generation"],
        "tags": ["preference", "human-feedback", "llm-po"],
        "size_categories": [size],
        "configs": [
            {"config_name": "default", "data_files": [{"split": "train", "path": "data/train-*.parquet"}]}
        ],
    }
    columns = "\n".join(f"| `{column.name}` | {column.kind} | {column.says} |" for column in COLUMNS.values())
    listed = "\n".join(f"* {_plain(policy)}" for policy in policies)
    return f"""---
{yaml.safe_dump(head, allow_unicode=True, sort_keys=False)}---

# {_plain(name)}

Judgments of pairs of responses, from an experiment of LLM-PO. The question was: {_plain(question)}

{rows:,} rows, one per judgment. {sentences}

Read them with `datasets.load_dataset("folder")`. Before you publish them: choose a licence, and read the
texts and comments, which may hold personal data.

## Policies

{listed}

## Columns

| column | type | meaning |
|---|---|---|
{columns}
"""


def _plain(text: str) -> str:
    """Somebody's text on one line of Markdown, without any markup of its own."""
    line = " ".join(text.split())
    return "".join(f"\\{character}" if character in "\\`*_[]<>#|" else character for character in line)


def _standing(rows: Iterable[Row]) -> Iterator[_Vote]:
    """Each judgment that stands by its columns, with the name and text on the left and on the right."""
    for row in rows:
        said = dict(zip(COLUMNS, row, strict=True))
        if said["voided"]:
            continue
        # Empty, a text that is not there would be a response to judge again.
        i, j = (
            {
                "name": said[f"policy_{n}_name"],
                "text": said[f"response_{n}"] if said["texts_known"] or said[f"response_{n}"] else None,
            }
            for n in "ij"
        )
        yield (said, i, j) if said["left_policy"] == said["policy_i"] else (said, j, i)


def _asked(said: dict[str, Any]) -> list[dict[str, str]]:
    if said["task_messages"]:
        messages: list[dict[str, str]] = json.loads(said["task_messages"])
        return messages
    return [{"role": "user", "content": said["task"]}]


def _answered(side: _Side) -> list[dict[str, str]]:
    return [] if side["text"] is None else [{"role": "assistant", "content": side["text"]}]
