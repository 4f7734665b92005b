"""One export as a file: its pieces, its name, its manifest, and both together as a ZIP."""

import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any

from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone
from django.utils.text import slugify
from zipstream import ZipStream

from engine import __version__
from engine.domain.specs import ExperimentSpec
from engine.models import Comparison, Experiment
from engine.selectors import blinding, browsing, counts, improvements, specs
from engine.selectors.accounts import account
from engine.selectors.agreement import agreement_of_people
from engine.selectors.browsing import Selection
from engine.selectors.doubts import doubts
from engine.selectors.experiments import as_stored
from engine.selectors.findings import doubts_about_risk
from engine.selectors.policies import policy_names
from engine.selectors.record import concluded_record, record_of
from engine.selectors.snapshots import latest_snapshot
from engine.selectors.voids import groups_of, named
from engine.services.planning import RULES_VERSION
from labeling.exports.copying import copied_rows
from labeling.exports.events import event_rows
from labeling.exports.formats import (
    csv_pieces,
    dpo_pieces,
    json_lines,
    jsonl_pieces,
    kto_pieces,
    parquet_pieces,
    reward_pieces,
)
from labeling.exports.judgments import read_rows, stamped
from labeling.exports.other_tools import RECORDS, argilla_pieces, dataset_card, dataset_pieces, lmarena_pieces
from labeling.exports.people import names_of_people, pseudonym
from labeling.exports.training import preferences, rated
from labeling.formatting import agreement, agreement_figures

CSV, JSONL, PARQUET = "csv", "jsonl", "parquet"
DPO, REWARD, KTO = "dpo", "reward", "kto"
LMARENA, ARGILLA, HUGGING_FACE = "lmarena", "argilla", "huggingface"
EVENTS = "events"
_JSON_LINES = "application/jsonl; charset=utf-8"


# The longest that a manifest waits for the evidence without the voided judgments.
_REPLAY_SECONDS = 10.0


@dataclass(frozen=True)
class Format:
    """One kind of file.

    Attributes
    ----------
    title
        Name of the format.
    suffix
        End of the file's name, behind the experiment's; also the end of its address.
    content_type
        Its media type.
    says
        One sentence for the page that offers it.
    training
        Its rows are texts, not judgments.
    """

    title: str
    suffix: str
    content_type: str
    says: str
    training: bool = False

    @property
    def route(self) -> str:
        """Name of the address of its download."""
        return self.suffix.replace(".", "_")


FORMATS = {
    CSV: Format(
        "CSV",
        "judgments.csv",
        "text/csv; charset=utf-8",
        "For spreadsheets, R and pandas: one row per judgment.",
    ),
    JSONL: Format(
        "JSON lines",
        "judgments.jsonl",
        _JSON_LINES,
        "The same rows with unchanged texts.",
    ),
    PARQUET: Format(
        "Parquet",
        "judgments.parquet",
        "application/vnd.apache.parquet",
        "The same rows with their types.",
    ),
    DPO: Format(
        "DPO pairs",
        "dpo.jsonl",
        _JSON_LINES,
        "Prompt, the text that most chose and the other: a row for each pair of texts; ties are left out.",
        training=True,
    ),
    REWARD: Format(
        "Reward",
        "reward.jsonl",
        _JSON_LINES,
        "The same pairs for a reward model: the prompt is in both texts.",
        training=True,
    ),
    KTO: Format(
        "KTO",
        "kto.jsonl",
        _JSON_LINES,
        "Each text once, with whether it was chosen more often than rejected.",
        training=True,
    ),
    LMARENA: Format(
        "LMArena",
        "lmarena.jsonl",
        _JSON_LINES,
        "Votes with both conversations, as LMArena's data sets have them; they can be imported again.",
    ),
    ARGILLA: Format(
        "Argilla",
        "argilla.json",
        "application/json",
        "Records of Argilla: two responses with everybody's answers. They can be imported again.",
    ),
    HUGGING_FACE: Format(
        "Hugging Face",
        "huggingface.zip",
        "application/zip",
        "A folder for the library datasets: the rows as Parquet, and a card.",
    ),
    EVENTS: Format(
        "Log of showings",
        "events.jsonl",
        _JSON_LINES,
        "What began and ended when, in the order of the evidence: enough to compute the decision again.",
    ),
}
_OF_ROWS = {
    JSONL: jsonl_pieces,
    PARQUET: parquet_pieces,
    LMARENA: lmarena_pieces,
    ARGILLA: argilla_pieces,
}
# Raise it when a column changes its meaning or the manifest its shape, not for a new column or field.
SCHEMA_VERSION = 2


@dataclass
class Tally:
    """The number of rows and the hash so far; complete after the last piece."""

    rows: int = 0
    n_bytes: int = 0
    _hash: Any = field(default_factory=hashlib.sha256)

    @property
    def sha256(self) -> str:
        return str(self._hash.hexdigest())

    def counted(self, rows: Iterable[Any]) -> Iterator[Any]:
        for row in rows:
            self.rows += 1
            yield row

    def counted_pieces(self, pieces: Iterable[tuple[bytes, int]]) -> Iterator[bytes]:
        for piece, rows in pieces:
            self.rows += rows
            yield piece

    def hashed(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.n_bytes += len(piece)
            self._hash.update(piece)
            yield piece


@dataclass(frozen=True)
class Export:
    """One export: its rows, its format and its options.

    Attributes
    ----------
    filter
        The fields of the `SelectionForm` that made ``selection``, for the manifest.
    raw
        CSV: cells as they are, formulas too.
    usernames
        People by their user names instead of pseudonyms.
    conversational
        DPO, reward and KTO: messages instead of texts.
    withholds_responses
        The manifest leaves out who wrote the ready-made responses.
    """

    experiment: Experiment
    format: str
    selection: Selection
    filter: dict[str, str]
    raw: bool = False
    conversational: bool = False
    usernames: bool = False
    withholds_responses: bool = False

    @property
    def filename(self) -> str:
        return f"{stem(self.experiment)}-{FORMATS[self.format].suffix}"

    @property
    def content_type(self) -> str:
        return FORMATS[self.format].content_type

    def pieces(self, tally: Tally) -> Iterator[bytes]:
        """The file, piece by piece."""
        if self.format == EVENTS:
            return tally.hashed(json_lines(tally.counted(event_rows(self.experiment))))
        return tally.hashed(self._pieces(tally))

    def _pieces(self, tally: Tally) -> Iterator[bytes]:
        if self.format == KTO:
            texts = tally.counted(rated(self.experiment, self.selection))
            return kto_pieces(texts, conversational=self.conversational)
        if FORMATS[self.format].training:
            pairs = tally.counted(preferences(self.experiment, self.selection))
            shaped = dpo_pieces if self.format == DPO else reward_pieces
            return shaped(pairs, conversational=self.conversational)
        if self.format == CSV and connection.vendor == "postgresql":
            return tally.counted_pieces(
                copied_rows(self.experiment, self.selection, raw=self.raw, usernames=self.usernames)
            )
        stamp = stamped if self.format in {CSV, JSONL} else _as_it_is
        order = RECORDS if self.format == ARGILLA else ("pk",)
        rows = tally.counted(
            read_rows(self.experiment, self.selection, usernames=self.usernames, stamp=stamp, order=order)
        )
        if self.format == HUGGING_FACE:
            return dataset_pieces(rows, lambda: self._card(tally.rows))
        if self.format == CSV:
            return csv_pieces(rows, raw=self.raw)
        return _OF_ROWS[self.format](rows)

    def _card(self, rows: int) -> str:
        return dataset_card(
            name=self.experiment.name,
            question=self.experiment.question,
            rows=rows,
            policies=(name.name for name in policy_names(self.experiment)),
            sentences=agreement(agreement_of_people(self.experiment)),
        )

    def _filter(self) -> dict[str, str]:
        """As it stands in the manifest, which goes with the file: no user name where the file has none."""
        if self.usernames or "annotator" not in self.filter:
            return self.filter
        # Nobody, if this person was forgotten meanwhile: then the user name is another one.
        person = account(self.filter["annotator"])
        return self.filter | {"annotator": pseudonym(self.experiment, person.pk) if person else ""}

    def manifest(self, tally: Tally) -> dict[str, Any]:
        """The manifest of the file, after all its pieces have gone through ``tally``."""
        experiment = as_stored(self.experiment)
        winner, concluded = experiment.winner, concluded_record(experiment)
        # Stale evidence rests on other rows than this file has.
        snapshot = None if experiment.evidence_stale else latest_snapshot(experiment)
        return {
            "file": self.filename,
            "sha256": tally.sha256,
            "bytes": tally.n_bytes,
            "rows": tally.rows,
            "format": self.format,
            "raw": self.raw,
            "conversational": self.conversational,
            "people": "usernames" if self.usernames else "pseudonyms",
            "filter": self._filter(),
            "unfinished_left_out": self.selection.finished,
            "exported_at": timezone.now().isoformat(),
            "versions": {
                "schema": SCHEMA_VERSION,
                "application": __version__,
                "database": _last_migration(),
                "rules": RULES_VERSION,
            },
            "experiment": {
                "id": experiment.pk,
                "state": experiment.state,
                "conclusion": experiment.conclusion,
                "winner": None if winner is None else winner.label,
                "planned_count": experiment.planned_count,
                "started_at": _iso(experiment.started_at),
                "concluded_at": _iso(experiment.concluded_at),
                "comparisons": counts.comparison_count(experiment.pk),
                "evidence": None if snapshot is None else snapshot.evidence,
                "certified_claim": experiment.certified_claim,
                "finding": experiment.finding,
                "record": asdict(record_of(experiment)),
                "record_at_conclusion": concluded and asdict(concluded),
                "voids": self._voids(),
                "improvements": [*map(improvements.record_of, experiment.improvements.order_by("pk"))],
                "caveats": [
                    *doubts_about_risk(experiment),
                    *(each.unnamed for each in doubts(experiment).found),
                ],
                "agreement": agreement_figures(agreement_of_people(experiment)),
                # Empty before the conclusion: the secrets reveal the sides. docs/blinding.md shows their use.
                "secrets": [
                    {"first_comparison": period.first, "secret": period.secret}
                    for period in blinding.published_secrets(experiment)
                ],
                "spec": asdict(self._spec()),
            },
        }

    def _voids(self) -> dict[str, Any]:
        """All that was voided by hand, and the policy that is named with and without it."""
        people = names_of_people(self.experiment, usernames=self.usernames)
        groups = [
            {
                "by": people[group.by.pk],
                "of": group.judge if group.of is None else people[group.of.pk],
                "on": group.on.isoformat(),
                "judgments": group.judgments,
                "reasons": group.reasons,
            }
            for group in groups_of(self.experiment)
        ]
        return {"by_hand": groups} | (
            asdict(named(self.experiment, seconds=_REPLAY_SECONDS)) if groups else {}
        )

    def _spec(self) -> ExperimentSpec:
        """The experiment's description; without ready-made responses for who judges them."""
        spec = specs.experiment_spec(self.experiment)
        return replace(spec, ready_made=()) if self.withholds_responses else spec

    def zipped(self) -> Iterator[bytes]:
        """The file and its manifest in one ZIP, in pieces."""
        tally = Tally()
        archive = ZipStream(compress_type=zipfile.ZIP_DEFLATED, compress_level=1)
        archive.add(self.pieces(tally), self.filename)
        # Asked for when the file is through, and not before.
        archive.add((manifest_bytes(self.manifest(tally)) for _ in range(1)), manifest_name(self.filename))
        return iter(archive)


def stem(experiment: Experiment) -> str:
    """The experiment's name as files have it."""
    return slugify(experiment.name) or f"experiment-{experiment.pk}"


def manifest_name(filename: str) -> str:
    return f"{filename}.manifest.json"


def manifest_bytes(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, indent=2, ensure_ascii=False, default=datetime.isoformat).encode() + b"\n"


def preferred_comparisons(experiment: Experiment, selection: Selection) -> Any:
    """The selected comparisons of two known responses that were decided for one side."""
    return (
        browsing.selected_comparisons(experiment, selection)
        .filter(counts.with_both_texts(), state=Comparison.State.JUDGED)
        .exclude(outcome=0.5)
        .order_by("pk")
    )


def _as_it_is(time: datetime) -> datetime:
    return time


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


@cache
def _last_migration() -> str:
    [leaf] = MigrationLoader(None).graph.leaf_nodes("engine")
    return str(leaf[1])
