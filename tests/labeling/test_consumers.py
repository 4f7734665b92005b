"""Each export is read by a real consumer, whose files come in: Hugging Face's `datasets` and pandas."""

import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from engine.domain.limits import VOTES_BYTES
from engine.importing.items import read_responses, read_tasks
from engine.importing.reading_process import source_at
from engine.importing.votes import Vote, Winner, read_votes
from engine.services.past_votes import start_from_votes
from tests.downloads import ask
from tests.factories import make_user

pytestmark = [
    pytest.mark.django_db,
    # Times are written as numbers until pandas 4; both ways are read.
    pytest.mark.filterwarnings("ignore:The default formatting of datetime"),
]

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
# Texts that CSV has to quote, that pandas takes for nothing, and of other scripts.
TEXTS = ['a "quoted", text\nof two lines', "N/A", "0012", "مرحبا 👋🏽", "plain", "five", "six", "seven"]
VOTES = [
    Vote(
        "",
        f"Task {n % 2}",
        "Terse",
        "Warm",
        winner,
        text,
        f"other {n}",
        annotator="0ann",
        judged_at=NOON + timedelta(minutes=n),
        a_on_left=n % 3 > 0,
    )
    for n, (winner, text) in enumerate(zip([*Winner, *Winner], TEXTS, strict=True))
]
CHOSEN = [(v.response_a, v.response_b)[v.winner == Winner.B] for v in VOTES if v.winner in {"a", "b"}]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """`datasets`, which keeps what it reads in a folder of these tests and asks no server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hub")))
        import datasets  # noqa: PLC0415 - it reads both when it is imported
    datasets.disable_progress_bars()
    return datasets


@pytest.fixture
def export(client: Any) -> Callable[..., bytes]:
    client.force_login(make_user(is_superuser=True))
    experiment = start_from_votes(name="Which tone", votes=VOTES)

    def exported(name: str, **query: str) -> bytes:
        reply = ask(client, name, experiment.pk, usernames="1", **query)
        return b"".join(reply.streaming_content)

    return exported


def said(row: dict[str, Any]) -> tuple[Any, ...]:
    """The vote that a row of an export holds."""
    names = {row[f"policy_{n}"]: (row[f"policy_{n}_name"], row[f"response_{n}"]) for n in "ij"}
    chosen = row["chosen_policy"] or ""
    return (
        row["task"],
        sorted(names.values()),
        names[chosen] if chosen else row["choice"],
        names[row["left_policy"]][0],
        row["judged_at"],
    )


def given(vote: Vote) -> tuple[Any, ...]:
    sides = [(vote.policy_a, vote.response_a), (vote.policy_b, vote.response_b)]
    decided = {Winner.A: sides[0], Winner.B: sides[1]}
    left = sides[not vote.a_on_left][0]
    return vote.task, sorted(sides), decided.get(vote.winner, vote.winner.value), left, vote.judged_at


GIVEN = list(map(given, VOTES))

# ---------------------------------------------------------------- out


def test_datasets_loads_the_folder_with_its_split_and_types(hub, export, tmp_path):
    zipfile.ZipFile(io.BytesIO(export("huggingface_zip"))).extractall(tmp_path)
    loaded = hub.load_dataset(str(tmp_path))
    assert list(loaded) == ["train"]
    types = loaded["train"].features
    assert types["judged_at"].dtype == "timestamp[us, tz=UTC]"
    assert [types[name].dtype for name in ("judgment_id", "outcome", "voided")] == [
        "int64",
        "float64",
        "bool",
    ]
    assert [said(row) for row in loaded["train"]] == GIVEN


@pytest.mark.parametrize("conversational", ["", "1"])
@pytest.mark.parametrize(
    ("name", "texts", "others"),
    [
        # The columns that TRL's trainers ask for; docs of TRL, "Dataset formats and types".
        ("dpo_jsonl", ("prompt", "chosen", "rejected"), {"margin": "float64", "comparisons": "int64"}),
        ("reward_jsonl", ("chosen", "rejected"), {"margin": "float64"}),
        ("kto_jsonl", ("prompt", "completion"), {"label": "bool"}),
    ],
)
def test_datasets_loads_what_trl_trains_on(name, texts, others, conversational, hub, export, tmp_path):
    file = tmp_path / name
    file.write_bytes(export(name, conversational=conversational))
    loaded = hub.load_dataset("json", data_files=str(file), split="train")
    text = hub.Value("string")
    kind = hub.List({"role": text, "content": text}) if conversational else text
    assert dict(loaded.features) == dict.fromkeys(texts, kind) | {
        column: hub.Value(type_) for column, type_ in others.items()
    }
    rows = loaded.filter(lambda row: row["label"]) if name == "kto_jsonl" else loaded
    best = [row["completion" if name == "kto_jsonl" else "chosen"] for row in rows]
    whole = [each[-1]["content"] if conversational else each.removeprefix("Task 0\n\n") for each in best]
    assert sorted(each.removeprefix("Task 1\n\n") for each in whole) == sorted(CHOSEN)


def read_csv(data: bytes) -> pd.DataFrame:
    # Unless told, pandas takes the answer "N/A" for none, and "0012" for 12.
    return pd.read_csv(io.BytesIO(data), keep_default_na=False, dtype=dict.fromkeys(ANSWERS, str))


def read_jsonl(data: bytes) -> pd.DataFrame:
    return pd.read_json(io.BytesIO(data), lines=True, dtype=False)


ANSWERS = ("response_i", "response_j")


@pytest.mark.parametrize(
    ("name", "read_as"),
    [
        ("judgments_csv", read_csv),
        ("judgments_jsonl", read_jsonl),
        ("judgments_parquet", lambda data: pd.read_parquet(io.BytesIO(data))),
    ],
)
def test_pandas_reads_the_rows(name, read_as, export):
    frame = read_as(export(name)).assign(judged_at=lambda each: pd.to_datetime(each["judged_at"]))
    assert [said(row) for row in frame.to_dict("records")] == GIVEN
    assert set(frame["annotator"].str.partition("@")[0]) == {"0ann"}


def test_pandas_reads_lmarenas_format(export):
    frame = read_jsonl(export("lmarena_jsonl"))
    wins = {"model_a": "a", "model_b": "b", "tie": "tie", "tie (bothbad)": "both_bad"}
    found = [
        Vote(
            "", row.conversation_a[0]["content"], row.model_a, row.model_b, Winner(wins[row.winner]),
            row.conversation_a[1]["content"], row.conversation_b[1]["content"],
            judged_at=datetime.fromtimestamp(row.tstamp, UTC), a_on_left=True,
        )
        for row in frame.itertuples()
    ]  # fmt: skip
    assert list(map(given, found)) == GIVEN


# ---------------------------------------------------------------- in


def record(vote: Vote) -> dict[str, Any]:
    return {
        "task": vote.task,
        "policy_a": vote.policy_a,
        "policy_b": vote.policy_b,
        "winner": vote.winner.value,
        "response_a": vote.response_a,
        "response_b": vote.response_b,
        "annotator": vote.annotator,
        # Spreadsheets know no zones; ours is UTC.
        "judged_at": vote.judged_at and vote.judged_at.replace(tzinfo=None),
        "side_a": {True: "left", False: "right", None: None}[vote.a_on_left],
    }


def read(path: Path) -> list[Vote]:
    return [replace(vote, place="") for vote in read_votes(source_at(path, VOTES_BYTES)).votes]


# The second vote lacks everything that is optional.
FEW = [VOTES[0], replace(VOTES[1], response_a=None, response_b=None, annotator="", a_on_left=None)]


@pytest.mark.parametrize(
    ("suffix", "write"),
    [
        ("csv", lambda frame, file: frame.to_csv(file, index=False)),
        ("csv", lambda frame, file: frame.to_csv(file)),
        ("csv", lambda frame, file: frame.to_csv(file, sep=";", index=False, encoding="utf-8-sig")),
        ("csv", lambda frame, file: frame.to_csv(file, sep="\t", index=False, encoding="utf-16")),
        ("csv.gz", lambda frame, file: frame.to_csv(file, index=False)),
        ("jsonl", lambda frame, file: frame.to_json(file, orient="records", lines=True)),
        ("json", lambda frame, file: frame.to_json(file, orient="records", date_format="iso")),
        ("parquet", lambda frame, file: frame.to_parquet(file)),
        ("parquet", lambda frame, file: frame.set_index("task").to_parquet(file)),
        ("xlsx", lambda frame, file: frame.to_excel(file, index=False)),
        ("xlsx", lambda frame, file: frame.to_excel(file)),
    ],
)
def test_votes_that_pandas_wrote_come_in(suffix, write, tmp_path):
    file = tmp_path / f"votes.{suffix}"
    write(pd.DataFrame(map(record, FEW)), file)
    assert read(file) == FEW


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("split", ["", "train"])
def test_votes_that_datasets_saved_come_in(shards, split, hub, tmp_path):
    data = hub.Dataset.from_list(list(map(record, VOTES)))
    if split:
        hub.DatasetDict({split: data}).save_to_disk(str(tmp_path / "saved"), num_shards={split: shards})
    else:
        data.save_to_disk(str(tmp_path / "saved"), num_shards=shards)
    assert read(tmp_path / "saved") == VOTES


@pytest.mark.parametrize("suffix", ["parquet", "json", "csv"])
def test_votes_that_datasets_wrote_as_a_file_come_in(suffix, hub, tmp_path):
    file = tmp_path / f"votes.{suffix}"
    getattr(hub.Dataset.from_list(list(map(record, VOTES))), f"to_{suffix}")(str(file))
    assert read(file) == VOTES


def test_tasks_and_responses_that_datasets_saved_come_in(hub, tmp_path):
    asked = [{"role": "user", "content": "Hi"}]
    tasks = [{"messages": asked, "reference": "Hello", "tags": ["easy", "short"], "tone": "warm"}]
    hub.Dataset.from_list(tasks).save_to_disk(str(tmp_path / "tasks"))
    [task] = read_tasks(source_at(tmp_path / "tasks", VOTES_BYTES))
    assert (task.prompt, task.reference, task.tags) == ("Hi", "Hello", ("easy", "short"))
    assert task.variables == {"tone": "warm"}
    frame = pd.DataFrame({"task": ["Hi", "Hi"], "policy": ["Terse", "Warm"], "response": ["Yo", "Hello!"]})
    frame.to_parquet(tmp_path / "responses.parquet")
    answers = read_responses(source_at(tmp_path / "responses.parquet", VOTES_BYTES))
    assert [(each.policy, each.response) for each in answers.responses] == [
        ("Terse", "Yo"),
        ("Warm", "Hello!"),
    ]
