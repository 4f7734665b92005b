"""Past votes in every format in which people have them; each file is made here."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from engine.domain.conversations import Message
from engine.domain.limits import Limit
from engine.importing.rows import ImportingError
from engine.importing.sources import source_of
from engine.importing.votes.reading import read_votes
from engine.importing.votes.vote import Vote, Votes, Winner

MOST = Limit("bytes in a test", 1_000_000, "It is a test.", "Take less.")
TASK = "Name a colour."

Record = Mapping[str, Any]


def as_csv(records: Iterable[Record], delimiter: str = ",") -> bytes:
    records = list(records)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().encode()


def as_jsonl(records: Iterable[Record]) -> bytes:
    return "".join(f"{json.dumps(record)}\n" for record in records).encode()


def as_json(records: Iterable[Record]) -> bytes:
    return json.dumps(list(records)).encode()


def as_parquet(records: Iterable[Record]) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist([dict(record) for record in records]), sink)
    return sink.getvalue()


def read(data: bytes) -> Votes:
    return read_votes(source_of([("votes", io.BytesIO(data))], MOST))


def one(record: Record, **changes: Any) -> Vote:
    [vote] = read(as_jsonl([{**record, **changes}])).votes
    return vote


def fault_of(*records: Record) -> str:
    return fault_in(as_jsonl(records))


def fault_in(data: bytes) -> str:
    with pytest.raises(ImportingError) as refused:
        read(data)
    return str(refused.value)


PLAIN = {"task": TASK, "policy_a": "P", "policy_b": "Q", "winner": "a"}


# ---------------------------------------------------------------- tables


WHOLE = PLAIN | {
    "response_a": "Red", "response_b": "Green, or so", "annotator": "ann",
    "judged_at": "2026-01-02T03:04:05+00:00", "side_a": "right",
}  # fmt: skip


@pytest.mark.parametrize(
    "written",
    [
        as_csv,
        lambda records: as_csv(records, ";"),
        lambda records: b"sep=\t\r\n" + as_csv(records, "\t"),
        as_jsonl,
        as_json,
        as_parquet,
        lambda records: gzip.compress(as_csv(records)),
        lambda records: gzip.compress(as_parquet(records)),
    ],
    ids=["csv", "semicolons", "tabs", "jsonl", "json", "parquet", "csv.gz", "parquet.gz"],
)
def test_a_table_holds_the_same_votes_in_every_format(written: Callable[[Iterable[Record]], bytes]):
    votes = read(written([WHOLE, WHOLE | {"winner": "tie", "annotator": "bob"}])).votes
    assert [(vote.winner, vote.annotator) for vote in votes] == [(Winner.A, "ann"), (Winner.TIE, "bob")]
    first = votes[0]
    assert (first.task, first.policy_a, first.policy_b) == (TASK, "P", "Q")
    assert (first.response_a, first.response_b) == ("Red", "Green, or so")
    assert first.judged_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert first.a_on_left is False


def test_the_number_of_a_person_is_the_same_in_a_column_with_gaps():
    """pandas makes floating-point numbers of a column of whole ones where one is missing."""
    said = [37, 37.0, "37.0", "37,0", "37", "3.70", "v1.0"]
    votes = read(as_jsonl([PLAIN | {"annotator": each} for each in said])).votes
    assert [vote.annotator for vote in votes] == ["37", "37", "37", "37", "37", "3.70", "v1.0"]


def test_four_columns_are_enough_and_nothing_is_made_up():
    [vote] = read(as_csv([PLAIN])).votes
    assert (vote.response_a, vote.response_b, vote.annotator, vote.judged_at, vote.a_on_left) == (
        None, None, "", None, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *((word, Winner.A) for word in ("a", "A", "model_a", "Response A", "1", "response-1", "[[A]]", "P")),
        *((word, Winner.B) for word in ("b", "policy_b", "model_2", "2", 2, "Q")),
        *((word, Winner.TIE) for word in ("tie", "Tie", "equal", "draw", "tie (inconsistent)")),
        *((word, Winner.BOTH_BAD) for word in ("both_bad", "tie (bothbad)", "Both bad", "neither")),
    ],
)
def test_the_winner_is_read_as_the_formats_spell_it(written, meant):
    assert one(PLAIN, winner=written).winner == meant


@pytest.mark.parametrize(
    "names",
    [
        ("prompt", "model_a", "model_b", "preference"),
        ("question", "Policy A", "Policy B", "Winner"),
        ("instruction", "model1", "model2", "label"),
        ("input", "model-1", "model-2", "choice"),
    ],
)
def test_columns_are_known_by_the_names_that_people_give_them(names):
    assert one(dict(zip(names, PLAIN.values(), strict=True))).winner == Winner.A


@pytest.mark.parametrize(
    ("names", "texts"),
    [
        (("answer_a", "response_b"), ("yes", "no")),
        (("output_1", "text_b"), ("yes", "")),
        (("response_a", "completion 2"), ("", "no")),
    ],
)
def test_two_texts_are_read_under_the_names_of_two_kinds(names, texts):
    vote = one(PLAIN | dict(zip(names, texts, strict=True)))
    assert (vote.response_a or "", vote.response_b or "") == texts


def test_two_policies_are_read_under_the_names_of_two_kinds():
    vote = one({"task": "T", "model_a": "P", "policy_b": "Q", "winner": "Q"})
    assert (vote.policy_a, vote.policy_b, vote.winner) == ("P", "Q", Winner.B)


def test_a_side_as_the_winner_needs_to_know_who_was_there():
    assert one(PLAIN, winner="left", side_a="right").winner == Winner.B
    assert one({"task": TASK, "model_left": "P", "model_right": "Q", "winner": "left"}).winner == Winner.A
    assert "nothing says which policy was there. Add side_a" in fault_of(PLAIN | {"winner": "left"})


def test_votes_come_in_the_order_of_their_times_where_all_have_one():
    records = [PLAIN | {"annotator": str(day), "judged_at": f"2026-01-0{day}"} for day in (3, 1, 2)]
    assert [vote.annotator for vote in read(as_jsonl(records)).votes] == ["1", "2", "3"]
    records[1]["judged_at"] = ""
    assert [vote.annotator for vote in read(as_jsonl(records)).votes] == ["3", "1", "2"]


@pytest.mark.parametrize(
    "at",
    [
        1767323045,
        1767323045000,
        "1767323045.0",
        "1767323045,0",
        "2026-01-02T04:04:05+01:00",
        "2026-01-02 03:04:05",
        "2026/01/02 03:04:05",
        "20260102030405",
        20260102030405,
    ],
)
def test_a_time_is_iso_8601_or_seconds_or_milliseconds_and_utc_without_a_zone(at):
    assert one(PLAIN, judged_at=at).judged_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_day_in_eight_digits_is_no_number_of_seconds():
    assert one(PLAIN, judged_at="20260301").judged_at == datetime(2026, 3, 1, tzinfo=UTC)
    # Seconds as before, where they are no day.
    assert one(PLAIN, judged_at=20261301).judged_at == datetime.fromtimestamp(20261301, UTC)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_tables_of_any_spreadsheet_are_read(encoding, delimiter):
    record = WHOLE | {"task": 'Nenne; eine, "Farbe".\nSchön?'}
    given = as_csv([record], delimiter).decode().encode(encoding)
    [vote] = read(given).votes
    assert (vote.task, vote.response_b, vote.a_on_left) == (record["task"], "Green, or so", False)
    assert vote.judged_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


# ---------------------------------------------------------------- arenas


def said(user: str, *turns: str) -> list[dict[str, Any]]:
    roles = ["assistant", "user"] * len(turns)
    return [{"role": "user", "content": user}] + [
        {"role": role, "content": text} for role, text in zip(roles, turns, strict=False)
    ]


LMARENA = {
    "question_id": "58210e39b3fd4441a2bd4a518bb44c2d", "model_a": "chatglm-6b", "model_b": "koala-13b",
    "winner": "model_b", "judge": "arena_user_973", "conversation_a": said(TASK, "Red"),
    "conversation_b": said(TASK, "Green"), "turn": 1, "anony": True, "language": "English",
    "tstamp": 1682351591.1322,
}  # fmt: skip


@pytest.mark.parametrize("written", [as_jsonl, as_parquet])
def test_lmarenas_conversations(written):
    [vote] = read(written([LMARENA])).votes
    assert (vote.task, vote.policy_a, vote.policy_b, vote.winner) == (
        TASK,
        "chatglm-6b",
        "koala-13b",
        Winner.B,
    )
    assert (vote.response_a, vote.response_b, vote.annotator) == ("Red", "Green", "arena_user_973")
    assert vote.judged_at == datetime.fromtimestamp(1682351591.1322, UTC)
    assert vote.a_on_left  # the arena shows model_a there


def test_lmarenas_newer_release_has_parts_and_other_words():
    parts = [{"type": "output_text", "text": "Red"}]
    record = LMARENA | {
        "winner": "both_bad",
        "conversation_a": [*said(TASK), {"role": "assistant", "content": parts}],
    }
    assert (one(record).winner, one(record).response_a) == (Winner.BOTH_BAD, "Red")
    picture = [{"type": "image", "image": "…"}]
    assert "conversation_a holds more than text" in fault_of(
        record | {"conversation_a": [*said(TASK), {"role": "assistant", "content": picture}]}
    )
    # The second message would be the answer to something that nobody is shown.
    calls = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    assert "conversation_a holds more than text" in fault_of(
        record | {"conversation_a": [*said(TASK), calls, {"role": "assistant", "content": "Red"}]}
    )


def test_search_arenas_messages_are_conversations():
    record = {name: value for name, value in LMARENA.items() if not name.startswith("conversation")}
    messages = {f"messages_{side}": LMARENA[f"conversation_{side}"] for side in "ab"}
    beside = {"turn": 1, "languages": ["English"], "conv_metadata": {}, "primary_intent": "Other"}
    assert one(record | messages | beside) == one(LMARENA)


def test_nothing_of_a_long_conversation_is_lost():
    vote = one(LMARENA, conversation_a=said(TASK, "Red", "Another?", "Blue"), turn=2)
    assert (vote.task, vote.response_a, vote.response_b) == (
        TASK,
        "Red\n\nUser: Another?\n\nAssistant: Blue",
        "Green",
    )
    system = {"role": "system", "content": "Be brief."}
    vote = one(LMARENA, **{name: [system, *LMARENA[name]] for name in ("conversation_a", "conversation_b")})
    assert vote.task == f"System: Be brief.\n\nUser: {TASK}"
    assert vote.messages == (Message("system", "Be brief."), Message("user", TASK))
    strange = {"role": "narrator", "content": "It rains."}
    vote = one(LMARENA, **{name: [strange, *LMARENA[name]] for name in ("conversation_a", "conversation_b")})
    assert (vote.task, vote.messages) == (f"Narrator: It rains.\n\nUser: {TASK}", ())


def test_lmarenas_table_for_kaggle():
    [vote] = read(
        as_csv([
            {
                "id": 1, "model_a": "P", "model_b": "Q", "prompt": json.dumps([TASK, "Another?"]),
                "response_a": json.dumps(["Red", "Blue"]), "response_b": json.dumps(["Green", None]),
                "winner_model_a": 0, "winner_model_b": 0, "winner_tie": 1,
            }
        ])
    ).votes  # fmt: skip
    assert (vote.task, vote.winner) == (TASK, Winner.TIE)
    assert vote.response_a == "Red\n\nUser: Another?\n\nAssistant: Blue"


@pytest.mark.parametrize("column", ["prompt", "response_a", "response_b"])
def test_a_turn_of_kaggles_table_that_cannot_be_stored_is_refused_with_its_line(column):
    texts = {"prompt": "Is it?", "response_a": "Yes", "response_b": "No"}
    texts[column] += " \ud83d"
    turns = {name: json.dumps([text]) for name, text in texts.items()}
    row = {"model_a": "P", "model_b": "Q", "winner_model_a": 1, "winner_model_b": 0, "winner_tie": 0} | turns
    name = "task" if column == "prompt" else column
    with pytest.raises(ImportingError, match=f"line 2: {name} holds a character that cannot be stored"):
        read(as_csv([row]))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"response_b": '["No"]'}, "prompt has 2 turns, response_a has 2 turns, response_b has 1 turn."),
        ({"prompt": '["Is it?"]'}, "prompt has 1 turn, response_a has 2 turns, response_b has 2 turns."),
        ({"response_a": "Yes"}, "prompt has 2 turns, response_a has no list of them, response_b has 2"),
    ],
)
def test_a_row_of_kaggles_table_whose_lists_do_not_fit_is_refused_with_its_line(changes, words):
    row = {
        "model_a": "P", "model_b": "Q", "winner_model_a": 1, "winner_model_b": 0, "winner_tie": 0,
        "prompt": '["Is it?", "Sure?"]', "response_a": '["Yes", "Sure"]', "response_b": '["No", "Sure"]',
    }  # fmt: skip
    with pytest.raises(ImportingError) as refused:
        read(as_csv([row, row | changes]))
    assert str(refused.value).startswith(f"line 3: {words}")


def test_an_answer_that_is_a_list_is_no_list_of_turns():
    vote = read(as_csv([{"task": "List", "model_a": "P", "model_b": "Q", "winner": "a",
                         "response_a": '["x"]', "response_b": '["x", "y"]'}])).votes[0]  # fmt: skip
    assert (vote.task, vote.response_b) == ("List", '["x", "y"]')


def test_mt_benchs_judgments():
    record = LMARENA | {"judge": ["gpt-4", "pair-v2"], "winner": "tie (inconsistent)"}
    assert (one(record).annotator, one(record).winner) == ("gpt-4 pair-v2", Winner.TIE)


def test_a_vote_of_mt_bench_is_about_the_turns_up_to_its_own():
    """Every row has both turns, and people judged after the first or after the second."""
    record = LMARENA | {
        "conversation_a": said(TASK, "Red", "Another?", "Blue"),
        "conversation_b": said(TASK, "Green", "Another?", "Pink"),
    }
    first, second, both = (one(record, turn=turn) for turn in (1, "2.0", None))
    assert (first.task, first.response_a, first.response_b) == (TASK, "Red", "Green")
    assert (second.task, second.response_b) == (TASK, "Green\n\nUser: Another?\n\nAssistant: Pink")
    assert both == second
    system = {"role": "system", "content": "Be brief."}
    vote = one(
        {**record, **{name: [system, *record[name]] for name in ("conversation_a", "conversation_b")}}, turn=1
    )
    assert (vote.task, vote.response_a) == (f"System: Be brief.\n\nUser: {TASK}", "Red")
    for turn in (0, -1, "two", 1.5, True, [1]):
        assert "Write the number of turns that were judged" in fault_of(record | {"turn": turn})


# ---------------------------------------------------------------- Argilla


ARGILLA = {
    "id": "1", "status": "completed", "_server_id": "0f",
    "fields": {"prompt": TASK, "response-1": "Red", "response-2": "Green"},
    "metadata": {"model-1": "P", "model-2": "Q"}, "suggestions": {}, "vectors": {},
    "responses": {
        "comment": [{"value": "Nice", "user_id": "u1"}, {"value": "Hm", "user_id": "u2"}],
        "preference": [{"value": "response-1", "user_id": "u1"}, {"value": "tie", "user_id": "u2"}],
    },
}  # fmt: skip


def check_argilla(votes: Votes) -> None:
    assert [(v.winner, v.annotator) for v in votes.votes] == [(Winner.A, "u1"), (Winner.TIE, "u2")]
    assert {(v.task, v.policy_a, v.policy_b, v.response_a, v.response_b) for v in votes.votes} == {
        (TASK, "P", "Q", "Red", "Green")
    }


@pytest.mark.parametrize("written", [as_json, as_jsonl])
def test_argillas_records(written):
    check_argilla(read(written([ARGILLA])))


@pytest.mark.parametrize("written", [as_json, as_parquet])
def test_argillas_flattened_records(written):
    flat = ARGILLA["fields"] | ARGILLA["metadata"] | {
        "id": "1", "status": "completed", "comment.responses": ["Nice", "Hm"],
        "preference.responses": ["response-1", "tie"], "preference.responses.users": ["u1", "u2"],
        "preference.responses.status": ["submitted", "submitted"],
    }  # fmt: skip
    check_argilla(read(written([flat])))


@pytest.mark.parametrize("written", [as_json, as_parquet])
def test_drafts_and_discarded_answers_of_argillas_flattened_records_are_no_votes(written):
    flat = ARGILLA["fields"] | ARGILLA["metadata"] | {
        "preference.responses": ["response-1", "response-2", "response-2"],
        "preference.responses.users": ["u1", "u2", "u3"],
        "preference.responses.status": ["submitted", "draft", "discarded"],
    }  # fmt: skip
    [vote] = read(written([flat])).votes
    assert (vote.winner, vote.annotator) == (Winner.A, "u1")


def test_answers_of_pending_records_that_may_be_drafts_are_counted_in_a_warning():
    """Argilla 2.8.0 leaves the states of the answers out of its JSON."""
    pending = ARGILLA | {"status": "pending", "fields": ARGILLA["fields"] | {"prompt": "Another."}}
    votes = read(as_jsonl([ARGILLA, pending]))
    assert len(votes.votes) == 4
    assert votes.warnings == [
        "2 votes of records that are pending in Argilla, which may be drafts or discarded: the file does not "
        "say it. Each counts. An export by to_datasets says it."
    ]
    answers = [{"value": "response-1", "user_id": "u1", "status": "submitted"}]
    assert read(as_jsonl([pending | {"responses": {"preference": answers}}])).warnings == []


def test_the_records_of_argillas_first_releases():
    answers = [
        {"value": "response-1", "user_id": "u1", "status": "submitted"},
        {"value": "tie", "user_id": "u2", "status": "submitted"},
        {"value": "response-2", "user_id": "u3", "status": "discarded"},
    ]
    check_argilla(
        read(
            as_jsonl(
                [ARGILLA["fields"] | {"preference": answers, "metadata": json.dumps(ARGILLA["metadata"])}]
            )
        )
    )


def test_argillas_rankings_say_who_is_first():
    def ranked(value: list[Any]) -> Winner:
        return one(ARGILLA, responses={"rank": [{"value": value, "user_id": "u1"}]}).winner

    assert ranked(["response-2", "response-1"]) == Winner.B
    assert ranked([{"value": "response-1", "rank": 2}, {"value": "response-2", "rank": 1}]) == Winner.B
    assert ranked([{"value": "response-1", "rank": 1}, {"value": "response-2", "rank": 1}]) == Winner.TIE


def test_argillas_labels_are_no_ranking():
    """The first of two labels that somebody chose was the winner, without a word."""

    def records(*answers: list[str]) -> bytes:
        given = ({"rank": [{"value": value, "user_id": "u1"}]} for value in answers)
        return as_jsonl([ARGILLA | {"responses": each} for each in given])

    first, second = "response-1", "response-2"
    assert [vote.winner for vote in read(records([first], [second])).votes] == ["a", "b"]
    assert [vote.winner for vote in read(records([first, second], [second, first])).votes] == ["a", "b"]
    with pytest.raises(ImportingError, match=r"^line 2: An answer names 2 responses, and others name one"):
        read(records([first], [second, first]))


@pytest.mark.parametrize("ranks", [(1, "2"), (1, None), ([], {})])
def test_argillas_ranks_that_are_no_numbers_are_refused(ranks):
    value = [{"value": f"response-{n}", "rank": rank} for n, rank in enumerate(ranks, 1)]
    answer = {"value": value, "user_id": "u1", "status": ["odd"]}
    assert "No question's answers name a response" in fault_of(ARGILLA | {"responses": {"rank": [answer]}})


def test_a_record_that_nobody_has_answered_is_left_out_and_counted():
    votes = read(as_jsonl([ARGILLA, ARGILLA | {"responses": {}}]))
    check_argilla(votes)
    assert "1 record without an answer, or taken back, left out." in votes.warnings
    assert "No question's answers name a response ('stars')" in fault_of(
        ARGILLA | {"responses": {"stars": [{"value": 5, "user_id": "u1"}]}}
    )


OLD = ARGILLA["fields"] | {"metadata": json.dumps(ARGILLA["metadata"]), "external_id": None}
FLAT = ARGILLA["fields"] | ARGILLA["metadata"]


@pytest.mark.parametrize("written", [as_jsonl, as_parquet])
def test_all_answers_in_one_object_are_those_of_argillas_first_releases_on_hugging_face(written):
    answers = {
        "user_id": ["u1", "u2", "u3"],
        "value": ["response-1", "tie", "response-2"],
        "status": ["submitted", "submitted", "discarded"],
    }
    check_argilla(read(written([OLD | {"preference": answers}])))


@pytest.mark.parametrize(
    ("record", "nothing"),
    [
        (ARGILLA, {"responses": {"preference": [{"value": "tie", "user_id": "u1", "status": "draft"}]}}),
        (
            FLAT | {"preference.responses": ["tie"], "preference.responses.users": ["u1"]},
            {"preference.responses.status": ["discarded"]},
        ),
        (OLD, {"preference": [{"value": "tie", "user_id": "u1", "status": "discarded"}]}),
        (OLD, {"preference": []}),
        (OLD, {"preference": None}),
        (OLD, {"preference": {"user_id": [], "value": [], "status": []}}),
    ],
)
def test_a_record_of_drafts_and_of_no_answers_is_left_out_and_the_others_are_read(record, nothing):
    """Each of them refused the whole file."""
    votes = read(as_jsonl([ARGILLA, record | nothing]))
    check_argilla(votes)
    assert "1 record without an answer, or taken back, left out." in votes.warnings


def test_a_vote_beside_columns_as_argillas_is_none_of_its_records():
    assert one(PLAIN | {"external_id": None, "metadata": None}).winner == Winner.A
    assert "Missing: policy_a" in fault_of({"external_id": "7", "metadata": "{}", "task": TASK})


def test_argillas_lists_that_became_texts_are_refused():
    """As `datasets` and pandas write them to a CSV."""
    record = FLAT | {"preference.responses": "['response-1' 'tie']"}
    assert "preference.responses is a list that a program has written as a text." in fault_of(record)


# ---------------------------------------------------------------- Label Studio


def label_studio(*selected: str | None, by: Any = 7) -> dict[str, Any]:
    return {
        "id": 1, "project": 83,
        "data": {"prompt": TASK, "text1": "Red", "text2": "Green", "model1": "P", "model2": "Q"},
        "annotations": [
            {
                "id": 1000 + n, "completed_by": by, "was_cancelled": side is None,
                "created_at": "2026-03-09T22:16:08.728353Z",
                "lead_time": 4.2,
                "result": [] if side is None else [
                    {"type": "pairwise", "from_name": "pw", "to_name": "text1", "value": {"selected": side}}
                ],
            }
            for n, side in enumerate(selected)
        ],
        "predictions": [],
    }  # fmt: skip


def test_label_studios_pairwise_tasks():
    votes = read(as_json([label_studio("left", "right", None)])).votes
    assert [(v.winner, v.annotator, v.a_on_left) for v in votes] == [
        (Winner.A, "7", True), (Winner.B, "7", True),
    ]  # fmt: skip
    assert (votes[0].task, votes[0].policy_a, votes[0].policy_b) == (TASK, "P", "Q")
    assert (votes[0].response_a, votes[0].response_b) == ("Red", "Green")
    assert votes[0].judged_at == datetime(2026, 3, 9, 22, 16, 8, 728353, tzinfo=UTC)


def test_an_annotation_that_was_made_from_another_one_is_counted_and_told():
    """A reviewer who confirms one makes a second, so that two accounts gave one vote."""
    record = label_studio("left", "left", "right")
    record["annotations"][1] |= {"parent_annotation": 5, "completed_by": 9}
    record["annotations"][2] |= {"parent_annotation": 5, "was_cancelled": True}
    found = read(as_json([record]))
    assert [vote.annotator for vote in found.votes] == ["7", "9"]
    assert [each[:57] for each in found.warnings if "annotation" in each] == [
        "1 annotation made from another one in Label Studio, as a "
    ]


def test_label_studios_people_have_addresses_and_ties_are_choices():
    record = label_studio("left", by={"id": 7, "email": "ann@example.org"})
    record["annotations"][0]["result"].append(
        {"type": "choices", "from_name": "tie", "value": {"choices": ["Both bad"]}}
    )
    assert (one(record).winner, one(record).annotator) == (Winner.BOTH_BAD, "ann@example.org")


@pytest.mark.parametrize(
    ("results", "winner"),
    [
        ({"pw": "right"}, Winner.B),
        ({"side": [{"selected": "right"}]}, Winner.B),
        ({"side": {"selected": "left"}}, Winner.A),
        ({"side": [{"selected": "left"}], "remark": "No idea"}, Winner.A),
        ({"side": [{"selected": "left"}], "level": "Tie"}, Winner.TIE),
        ({"side": [{"selected": "left"}], "level": [{"choices": ["Both bad", "Rude"]}]}, Winner.BOTH_BAD),
    ],
)
def test_label_studios_minimal_export(results, winner):
    flat = {
        "prompt": TASK, "text1": "Red", "text2": "Same", "model1": "P", "model2": "Q", "id": 1,
        "annotator": 7, "annotation_id": 1000, "lead_time": 4.2, "created_at": "2026-03-09T22:16:08Z",
    }  # fmt: skip
    as_text = {name: each if isinstance(each, str) else json.dumps(each) for name, each in results.items()}
    for written in (as_json([flat | results]), as_csv([flat | as_text])):
        [vote] = read(written).votes
        assert (vote.winner, vote.a_on_left, vote.annotator) == (winner, True, "7")
        assert (vote.response_a, vote.response_b) == ("Red", "Same")


@pytest.mark.parametrize("empty", [{}, {"pw": ""}, {"pw": None, "remark": "No idea"}])
def test_an_annotation_without_a_result_is_left_out_of_both_exports_with_a_count(empty):
    flat = {
        "prompt": TASK, "text1": "Red", "text2": "Green", "model1": "P", "model2": "Q", "id": 1,
        "annotator": 7, "annotation_id": 1000,
    }  # fmt: skip
    full = label_studio("left", "right")
    full["annotations"][1]["result"] = []
    for records in ([flat | {"pw": "left"}, flat | empty], [full, full | {"annotations": []}]):
        votes = read(as_json(records))
        assert [vote.winner for vote in votes.votes] == [Winner.A]
        assert votes.warnings == ["1 record without an answer, or taken back, left out."]
    # An answer under a name that is unknown here is no missing one.
    assert "Missing: winner" in fault_of(flat | {"which": "right"})


def choices_of(*words: str, control: str = "pref") -> dict[str, Any]:
    record = label_studio("left")
    record["annotations"][0]["result"] = [
        {"type": "choices", "from_name": control, "value": {"choices": [word]}} for word in words
    ]
    return record


@pytest.mark.parametrize("word", ["A is better", "Besser links"])
def test_a_choice_that_is_no_answer_is_refused_where_others_answer_by_its_control(word):
    """All but the ties were left out, as if nobody had answered."""
    full = [choices_of("Tie"), choices_of(word)]
    assert f"entry 2: pref is '{word}', which is no answer" in fault_in(as_json(full))
    flat = {
        "prompt": TASK, "text1": "Red", "text2": "Green", "model1": "P", "model2": "Q", "id": 1,
        "annotator": 7, "annotation_id": 1000,
    }  # fmt: skip
    for said in (word, "A"):
        short = [flat | {"pref": "Tie"}, flat | {"pref": said}]
        for written in (as_json(short), as_csv(short)):
            assert f"pref is '{said}', which is no answer" in fault_in(written)


def test_records_of_which_none_has_an_answer_are_called_so():
    assert fault_in(as_json([choices_of("A is better"), choices_of()])) == (
        "There are no votes here: 2 records without an answer such as left, right, tie or both_bad, or "
        "taken back."
    )


def test_a_choice_of_another_control_is_no_answer_that_was_missed():
    found = read(as_json([label_studio("left"), choices_of("Rude", control="flags")]))
    assert len(found.votes) == 1
    assert found.warnings == ["1 record without an answer, or taken back, left out."]


# ---------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policy_b": "P"}, "line 2: Both policies are 'P'. A vote is about two policies; remove the row."),
        # The columns were called missing, beside their names among those found.
        ({"policy_b": " "}, "line 2: The policy of b is empty. Write it, or remove the row."),
        ({"policy_a": ""}, "line 2: The policy of a is empty. Write it, or remove the row."),
        ({"policy_b": "Q" * 101}, "line 2: policy_b has 101 characters; the limit is 100. Shorten the name."),
        ({"winner": "the first"}, "line 2: winner is 'the first'. Write a, b, tie or both_bad, or the name"),
        ({"winner": None}, "line 2: The winner is empty. Write a, b, tie or both_bad, or remove the row."),
        (
            # AlpacaEval's, of a comparison that failed.
            {"winner": ..., "preference": None},
            "line 2: The winner (preference) is empty. Write a, b, tie or both_bad, or remove the row.",
        ),
        (
            {"winner": ..., "winner_model_a": 0, "winner_model_b": 0, "winner_tie": 0},
            "line 2: One of winner_model_a, winner_model_b and winner_tie must be 1, and the others 0.",
        ),
        (
            {"policy_a": ..., "chosen": "Red", "rejected": "Blue"},
            "rejected. chosen and rejected say which text is better, but not whose it is. Add policy_a",
        ),
        (
            {"policy_a": "b", "policy_b": "Q", "winner": "b"},
            "which is a policy's name and also says the other one",
        ),
        ({"task": ""}, "line 2: Missing: task (or prompt"),
        ({"task": "\x00"}, "line 2: task holds a character that cannot be stored"),
        ({"task": "a" * 200_001}, "200,001 characters in one text; the limit is 200,000"),
        (
            {"response_a": {"text": "Red"}, "response_b": ""},
            "line 2: response_a must be a text, not {'text': 'Red'}.",
        ),
        ({"judged_at": True}, "line 2: judged_at is True. Write a time in ISO 8601"),
        ({"judged_at": "yesterday"}, "line 2: judged_at is 'yesterday'. Write a time in ISO 8601"),
        ({"judged_at": 1e300}, "line 2: judged_at is 1e+300"),
        ({"judged_at": 46082.5}, "line 2: judged_at is 46082.5, as spreadsheets count days. Format the"),
        ({"judged_at": "0001-01-01T00:00:00+14:00"}, "line 2: judged_at is"),
        ({"side_a": "top"}, "line 2: side_a is 'top'. Write left or right"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(changes, words):
    row = {name: value for name, value in (PLAIN | changes).items() if value is not ...}
    assert words in fault_of(PLAIN, row)


def test_where_all_columns_but_one_are_left_out_nothing_is_said_of_separators():
    """The page of columns advised to separate columns that were separate."""
    file = io.BytesIO(b"Question,First,Second,Better\nT,P,Q,a\n")
    left_out = dict.fromkeys(("First", "Second", "Better"), "ignore")
    with pytest.raises(ImportingError) as refused:
        read_votes(source_of([("votes", file)], MOST), columns={"Question": "task"} | left_out)
    assert "Missing: policy_a and policy_b (or model_a and model_b). Found: task. Add" in str(refused.value)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (b"Task,Policy A,Policy B\nT,P,Q\n", "Missing: winner. Found: Task, Policy A, Policy B. Add the"),
        (
            b"task policy_a policy_b winner\nT P Q a\n",
            "Found: task policy_a policy_b winner. This is one column: separate columns by a comma",
        ),
        (b'{"messages": [{"role": "user", "content": "Hi"}]}', "Found: messages. Add the column"),
        (
            b'{"fields": {"prompt": "T", "Text 1": "Red"}, "responses": {"better": [{"value": "text1"}]}}',
            "Found: fields.prompt, fields.Text 1, responses.better. Add the column",
        ),
    ],
)
def test_columns_are_named_as_the_file_writes_them(file, words):
    with pytest.raises(ImportingError) as refused:
        read(file)
    assert words in str(refused.value)


def test_two_columns_that_count_as_one_name_are_refused_unless_they_agree():
    words = "line 2: 'policy_a' and 'policy a' count as the same name. Rename one of them."
    with pytest.raises(ImportingError) as refused:
        read(b"task,policy_a,Policy A,policy_b,winner\nT,A,C,B,a\n")
    assert words in str(refused.value)
    [vote] = read(b"task,policy_a,Policy A,policy_b,winner\nT,A,A,B,a\n").votes
    assert vote.policy_a == "A"


def test_a_column_that_no_row_has_is_missed_once():
    with pytest.raises(ImportingError) as refused:
        read(b"Which,policy_a,policy_b,winner\n" + b"T,P,Q,a\n" * 1_200)
    assert str(refused.value) == (
        "Missing: task (or prompt, question, instruction, conversation_a). Found: Which, policy_a, "
        "policy_b, winner. Add the column, or rename one. None of the 1,200 rows has it."
    )
    with pytest.raises(ImportingError, match=r"^line 2, line 4: Missing: task") as refused:
        read(b"task,policy_a,policy_b,winner\n,P,Q,a\nT,P,Q,a\n,P,Q,b\n")
    assert len(refused.value.faults) == 1


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("line", [1, 2])
def test_a_number_that_is_none_is_refused_with_its_line(value, line):
    lines = [json.dumps(PLAIN)] * 3
    lines[line - 1] = lines[line - 1].replace("{", f'{{"score": {value}, ')
    with pytest.raises(ImportingError, match=rf"^line {line}: {value} is [^\n]*$"):
        read("\n".join(lines).encode())


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("value", ["NaN", "1e999", "[" * 60 + "]" * 60])
@pytest.mark.parametrize("entry", [1, 3])
def test_a_list_that_holds_one_is_refused_with_the_number_of_its_entry(value, indent, entry):
    """All of it may be one line."""
    votes = [PLAIN | {"note": ["}, {", f"number {n + 1}"]} for n in range(4)]
    text = json.dumps(votes, indent=indent).replace(f'"number {entry}"', value)
    with pytest.raises(ImportingError, match=rf"^entry {entry}: [^\n]*$"):
        read(text.encode())


def test_conversations_that_begin_differently_are_no_vote():
    assert "begin with different messages" in fault_of(
        LMARENA | {"conversation_b": said("Name an animal.", "Cow")}
    )
    for broken in ([{"role": "user"}], "Red", [], [{"role": "assistant", "content": "Red"}]):
        assert "conversation_a" in fault_of(LMARENA | {"conversation_a": broken})


def test_a_file_without_votes_and_a_file_of_something_else_are_told_apart():
    with pytest.raises(ImportingError, match="There are no votes here"):
        read(b"task,policy_a,policy_b,winner\n")
    with pytest.raises(
        ImportingError, match=r"line 2: Missing: policy_a and policy_b .* Found: prompt, reference"
    ):
        read(b"prompt,reference\nWhat?,4\n")
    with pytest.raises(ImportingError, match="The Parquet file cannot be read"):
        read(as_parquet([PLAIN])[:-20] + b"PAR1")
    with pytest.raises(ImportingError, match="not UTF-8"):
        read("task,policy_a,policy_b,winner\nä,P,Q,a".encode("latin-1"))


def test_a_packed_file_unpacks_to_no_more_than_the_limit():
    many = [PLAIN | {"task": "a" * 100_000 + str(n)} for n in range(20)]
    packed = gzip.compress(as_jsonl(many))
    assert len(packed) < MOST.most / 10
    with pytest.raises(ImportingError, match="The unpacked file is larger than 1 MB"):
        read(packed)
    columns = as_parquet([PLAIN | {"task": "a" * 100_000}] * 20)
    assert len(columns) < MOST.most / 10
    with pytest.raises(ImportingError, match="The unpacked file is larger than 1 MB"):
        read(columns)


def test_no_more_votes_are_read_than_the_limit(settings):
    settings.MOST_JUDGMENTS = 3
    assert len(read(as_jsonl([PLAIN] * 3)).votes) == 3
    with pytest.raises(ImportingError, match="4 rows of judgments; the limit is 3"):
        read(as_jsonl([PLAIN] * 4))
    with pytest.raises(ImportingError, match="4 rows of judgments; the limit is 3"):
        read(as_jsonl([ARGILLA] * 2))


def test_what_may_be_a_mistake_is_counted_and_left_as_it_is():
    votes = read(as_jsonl([WHOLE, WHOLE, WHOLE | {"policy_a": "p", "response_b": ""}]))
    assert len(votes.votes) == 3
    assert votes.warnings == [
        "1 vote equal to an earlier one in every column. Each counts.",
        "1 response empty.",
        "1 policy came with nearly equal names, such as 'P' and 'p'. They count as different ones.",
    ]


def test_votes_without_texts_are_told_where_others_have_them():
    """One row without its texts kept a new experiment from going on with those of all others."""
    bare = {name: value for name, value in WHOLE.items() if name != "response_a"}
    [warning, *_] = read(as_jsonl([WHOLE, WHOLE | {"task": "U"}, bare])).warnings
    assert warning == (
        "1 vote without both texts. A new experiment goes on with the responses of the file only where each "
        "vote has both. Add the texts, or remove the rows."
    )
    assert not any("texts" in each for each in read(as_jsonl([bare, bare | {"task": "U"}])).warnings)


@pytest.mark.parametrize("word", ["NA", "<NA>", "NaN", "NULL", "None", "n/a", r"\N", " NA "])
def test_what_programs_write_for_no_value_is_no_time_and_no_side(word):
    """R, pandas, polars and DuckDB have a word each."""
    vote = one(WHOLE, judged_at=word, side_a=word)
    assert (vote.judged_at, vote.a_on_left) == (None, None)


@pytest.mark.parametrize(
    ("winners", "is_told"),
    [
        ("1" * 10, True),
        (["b"] * 10, True),
        # Nine may be so by chance; where one is not, somebody has made a choice; ties are seen at once.
        ("1" * 9, False),
        (["1"] * 10 + ["tie"], False),
        (["tie"] * 10, False),
    ],
)
def test_votes_that_are_all_for_one_side_are_told(winners, is_told):
    rows = [PLAIN | {"winner": winner, "task": str(n)} for n, winner in enumerate(winners)]
    side = "a" if winners[0] == "1" else "b"
    warning = (
        f"All 10 votes are for policy_{side}. Where that is wrong, as where each 1 of the file only marks "
        "a vote, write a, b, tie or both_bad instead."
    )
    assert read(as_csv(rows)).warnings == [warning] * is_told


@pytest.mark.parametrize(
    ("names", "warning"),
    [
        (
            ["Fiona", "Ａnn", "Ann", "Ann"],
            "1 annotator came with names of the same letters in several forms of Unicode, such as "
            "'Ａnn' and 'Ann'. They count as one person.",
        ),
        (
            ["Ren\u00e9", "Rene\u0301", "\ufb01", "fi", "fi"],
            "2 annotators came with names of the same letters in several forms of Unicode, such as "
            "'Ren\u00e9' and 'Rene\u0301'. They count as one person.",
        ),
        (
            ["Ann", "ann", "Bob"],
            "1 annotator came with nearly equal names, such as 'Ann' and 'ann'. They count as different "
            "ones.",
        ),
    ],
)
def test_annotators_whose_names_look_alike_are_counted_in_a_warning(names, warning):
    rows = [PLAIN | {"annotator": name, "winner": "a", "task": str(n)} for n, name in enumerate(names)]
    assert read(as_jsonl(rows)).warnings == [warning]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"winner": "a", "preference": "b"}, ("winner", "preference")),
        ({"Preferred": "tie", "choice": "model_a"}, ("Preferred", "choice")),
        ({"winner": "a", "model_1": "X", "model_2": "Y"}, ("policy_a", "model_1")),
        ({"winner": "a", "output_a": "Blue", "output_b": "Green"}, ("response_a", "output_a")),
        ({"winner": "a", "question": "Name another."}, ("task", "question")),
        # The same, and something else.
        ({"winner": "a", "preference": "model_a"}, None),
        ({"winner": "a", "label": "polite", "choice": "7"}, None),
        ({"winner": "a", "model_1": "P", "model_2": "Q"}, None),
    ],
)
def test_of_two_columns_that_may_be_the_same_the_one_that_is_left_out_is_told(columns, said):
    row = {"task": TASK, "policy_a": "P", "policy_b": "Q", "response_a": "Red", "response_b": "Green"}
    warnings = read(as_csv([row | columns])).warnings
    first = [each for each in warnings if each.startswith("1 row with both ")][:1]
    taken, other = said or ("", "")
    assert first == [
        f"1 row with both {taken.lower()} and {other.lower()}: {taken.lower()} is read, and {other.lower()} "
        "is left out. Where that is wrong, say what each column is, or rename one."
    ] * bool(said)


def test_opposite_votes_of_one_person_and_what_programs_write_for_no_text_are_counted():
    turned = WHOLE | {"policy_a": WHOLE["policy_b"], "policy_b": WHOLE["policy_a"]}
    turned |= {"response_a": WHOLE["response_b"], "response_b": WHOLE["response_a"], "winner": "a"}
    first = WHOLE | {"winner": "a"}
    opposite = "1 pair of texts on which one person gave opposite votes. Each counts."
    assert read(as_jsonl([first, turned])).warnings == [opposite]
    # Somebody else, a tie, another text, or the same answer from the other side.
    others = [{"annotator": "bob"}, {"winner": "tie"}, {"response_a": "Another"}, {"winner": "b"}]
    for other in others:
        assert read(as_jsonl([first, turned | other])).warnings == []
    odd = read(as_jsonl([first | {"prompt": "Else", "response_a": "#N/A", "response_b": "None"}])).warnings
    assert [warning.partition(":")[0][:40] for warning in odd] == [
        "1 response said only null, None, NaN or ",
        "1 response said only #N/A or the like, a",
        "1 row with both task and prompt",
    ]
