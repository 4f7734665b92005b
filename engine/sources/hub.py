"""Data sets of the Hugging Face hub, by the API of its data viewer.

Its own library would bring pyarrow and download whole files; the API gives the rows that were drawn, with the
names of classes and the revision.
"""

import io
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.domain.limits import RESPONSES_BYTES
from engine.importing.reading_process import source_of
from engine.sources.base import Fetched, SourceError, Wanted
from engine.sources.web import Server

ADDRESS = "https://datasets-server.huggingface.co"
_NAME = re.compile(r"(?:[\w.-]+/)?[\w.-]+", re.ASCII)
_PAGE = 100


class Hub:
    """Rows of one split, drawn at random."""

    def fetch(self, wanted: Wanted) -> Fetched:
        """Draw rows by a seed; the same revision gives the same ones."""
        if not _NAME.fullmatch(wanted.name):
            raise SourceError("Give the name of a data set as the hub has it, such as owner/name.")
        headers = {"Authorization": f"Bearer {wanted.token}"} if wanted.token else {}
        with Server(ADDRESS, headers) as server:
            splits = self._get(server, wanted, "/splits", dataset=wanted.name)[1]["splits"]
            configuration = _one_of(
                "configuration", wanted.configuration, [each["config"] for each in splits]
            )
            here = [each["split"] for each in splits if each["config"] == configuration]
            split = _one_of("split", wanted.split, here)
            asked = {"dataset": wanted.name, "config": configuration, "split": split}
            revision, first = self._get(server, wanted, "/rows", **asked, offset=0, length=1)
            if wanted.revision and not revision.startswith(wanted.revision):
                raise SourceError(
                    f"The hub has revision {revision[:12]} now, and not {wanted.revision[:40]}."
                )
            total = int(first["num_rows_total"])
            drawn = sorted(random.Random(wanted.seed).sample(range(total), min(wanted.number, total)))  # noqa: S311
            chosen, rows, cut = {*drawn}, [], 0
            for start, length in _windows(drawn):
                page = self._get(server, wanted, "/rows", **asked, offset=start, length=length)[1]
                for each in page["rows"]:
                    if each["row_idx"] not in chosen:
                        continue
                    # A cell that is cut would be another text.
                    cut += bool(each["truncated_cells"])
                    if not each["truncated_cells"]:
                        rows.append(_named(each["row"], page["features"]))
        lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        told = (
            f"{len(rows):,} of {total:,} rows of {wanted.name}, configuration {configuration}, "
            f"split {split}, revision {revision}, seed {wanted.seed}."
        )
        left = f" {cut:,} left out, as the hub cuts their long cells." if cut else ""
        files = source_of([("hub.jsonl", io.BytesIO(lines.encode()))], RESPONSES_BYTES)
        return Fetched(files, told + left, f"{wanted.name}@{revision[:12]}")

    def _get(self, server: Server, wanted: Wanted, path: str, **query: object) -> tuple[str, Any]:
        status, headers, found = server.get(path, **query)
        if status in {401, 403, 404} and not wanted.token:
            raise SourceError(
                f"The hub shows no data set {wanted.name}. A private or gated one needs a token."
            )
        if status in {401, 403}:
            raise SourceError("The hub refuses this token. It needs a token that may read this data set.")
        if status != 200 or not isinstance(found, dict):
            said = found.get("error", "") if isinstance(found, dict) else ""
            raise SourceError(f"The hub answered {status}. {str(said)[:300]}".strip())
        return headers.get("x-revision", ""), found


def _one_of(what: str, chosen: str, there: Sequence[str]) -> str:
    names = list(dict.fromkeys(there))
    if chosen in names:
        return chosen
    if not chosen and len(names) == 1:
        return names[0]
    said = f"There is no {what} {chosen[:100]!r}; it" if chosen else f"The {what}"
    raise SourceError(f"{said} needs one of: {', '.join(names[:50])}.")


def _windows(drawn: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The fewest stretches of rows that hold these, each no longer than a page."""
    at = 0
    while at < len(drawn):
        start = drawn[at]
        inside = [n for n in drawn[at : at + _PAGE] if n < start + _PAGE]
        yield start, inside[-1] - start + 1
        at += len(inside)


def _named(row: Mapping[str, Any], features: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The row with the names of classes in the place of their numbers."""
    types = {each["name"]: each["type"] for each in features}
    return {name: _name_in(value, types.get(name)) for name, value in row.items()}


def _name_in(value: Any, kind: Any) -> Any:
    if isinstance(kind, list) and isinstance(value, list):
        return [_name_in(each, kind[0]) for each in value]
    if not isinstance(kind, Mapping):
        return value
    if kind.get("_type") == "ClassLabel" and isinstance(value, int):
        names = kind.get("names") or []
        return names[value] if 0 <= value < len(names) else value
    if isinstance(value, list) and "feature" in kind:
        return [_name_in(each, kind["feature"]) for each in value]
    if isinstance(value, Mapping):
        return {name: _name_in(each, kind.get(name)) for name, each in value.items()}
    return value
