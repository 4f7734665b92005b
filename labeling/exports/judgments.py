"""The columns of an export of judgments, in one table; one row per judgment, in the order in which they were
made.

`read_rows` (CSV on SQLite, JSON lines, Parquet) and `copying` (CSV written by PostgreSQL) both follow this
table. A test holds the table in `docs/export.md` against it. Add new columns at the end, so that nobody's
reader breaks.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice, repeat
from operator import getitem
from typing import Any

from django.db import connection, transaction
from django.db.models import Subquery, TextField
from django.db.models.functions import Cast, Coalesce

from engine.domain.judgment_record import COLUMNS as COLUMNS_OF_LINE
from engine.domain.judgment_uuids import exchanged, mark
from engine.domain.policy_space import code_of
from engine.models import Experiment
from engine.selectors import browsing
from engine.selectors.browsing import Selection
from engine.selectors.policies import policy_names
from engine.selectors.record import ENDED, digest_of_row, last_event
from engine.selectors.remarks import flag_reasons
from engine.selectors.spending import cost_in_sql
from labeling.exports.people import names_of_people

Row = tuple[Any, ...]


class Kind(StrEnum):
    """The type of a column."""

    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    TIME = "time"
    TRUTH = "truth"


@dataclass(frozen=True)
class Column:
    """One column. Its value has one source: ``path``, ``plan``, or ``python`` and ``of`` with ``sql``.

    Attributes
    ----------
    kind
        The type of its values, which may be ``None`` except for text and truth.
    says
        What the column means, in Markdown, for `docs/export.md`.
    path
        Django's path from the judgment to the value, or its subquery.
    plan
        The key of the value in the comparison's `plan`, where it may be missing.
    python, of
        The function that makes the value in Python, and its arguments in order. These are `FIELDS`, columns
        that stand further up, and the tables of `_lookups`.
    sql
        The same value as PostgreSQL makes it. ``r`` has the columns of `FIELDS`, and ``pi`` and ``pj`` are
        the two policies. ``%(names)s`` are the policies' names by index, and ``%(people)s`` the names of
        people by id, as JSON. ``%(mark)s`` is the experiment's mark on tokens.
    ours
        Only the application writes this text, so it never is a spreadsheet's formula.
    """

    name: str
    kind: Kind
    says: str
    path: str | Subquery | Coalesce = ""
    plan: str = ""
    python: Callable[..., Any] | None = None
    of: tuple[str, ...] = ()
    sql: str = ""
    ours: bool = False


def _on_that_side(i_is_there: bool, i: str, j: str) -> str:
    return i if i_is_there else j


def _chosen(choice: str, i_on_left: bool, i: str, j: str) -> str:
    if choice not in {"left", "right"}:
        return ""
    return i if (choice == "left") == i_on_left else j


def _json(text: str) -> str:
    """JSON as PostgreSQL writes it; nothing for an empty list or object."""
    return "" if text in _EMPTY else json.dumps(json.loads(text), ensure_ascii=False)


def _seconds(shown_at: datetime | None, judged_at: datetime) -> float | None:
    return None if shown_at is None else (judged_at - shown_at).total_seconds()


def _evidence(side: int) -> Callable[[dict[str, Any]], float | None]:
    return lambda plan: (plan.get("evidence") or (None, None))[side]


def _of_both(name: str, kind: Kind, field: str, *, i: str, j: str, ours: bool = False) -> Iterator[Column]:
    """A field of response i and of response j."""
    for side, says in (("i", i), ("j", j)):
        path = f"comparison__response_{side}__{field}"
        yield Column(name.replace("*", side), kind, says, path=path, ours=ours)


def _costs(side: str, says: str) -> Iterator[Column]:
    cost, currency = cost_in_sql(f"comparison__response_{side}")
    yield Column(f"cost_{side}", Kind.NUMBER, says, path=cost)
    yield Column(f"currency_{side}", Kind.TEXT, f"The currency of `cost_{side}`.", path=currency, ours=True)


def time_in_sql(value: str) -> str:
    """The SQL that writes a time as `stamped` does."""
    return f"""to_char({value} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US') || '+00:00'"""


# A list or an object of JSON that holds nothing, as both databases keep it.
_EMPTY = ("[]", "{}")
_CHOSE_ONE = "CASE WHEN r.choice IN ('left', 'right') THEN"
_CHOSE_I = "CASE WHEN (r.choice = 'left') = r.i_on_left"

# `judgment_uuids.exchanged` by bytes, as cutting the text to pieces takes longer.
_FIRST_BITS = " | ".join(f"(get_byte(uuid_send(r.token), {n}) << {24 - 8 * n})" for n in range(4))
_EXCHANGED = (
    f"encode(int4send(({_FIRST_BITS}) # (%(mark)s)::bigint::bit(32)::int), 'hex') || right(r.token::text, 28)"
)
# The digest of a judgment's line as PostgreSQL makes it; each value as CSV has it.
_VALUES_OF_LINE = {
    "judgment_uuid": _EXCHANGED,
    "comparison_number": "r.comparison_number::text",
    "policy_i": "'P' || pi.index + 1",
    "policy_j": "'P' || pj.index + 1",
    "left_policy": "'P' || (CASE WHEN r.i_on_left THEN pi.index ELSE pj.index END) + 1",
    "choice": "r.choice",
    "outcome": "r.outcome::text || CASE WHEN r.outcome = floor(r.outcome) THEN '.0' ELSE '' END",
    "judge": "r.judge",
    "via": "r.via",
    "judged_at": time_in_sql("r.judged_at"),
    "restores": "r.restores::text",
    "void_kind": "r.fate_of_void",
    "voided_at": time_in_sql("r.voided_at"),
}
_LINE = " || '\", \"' || ".join(f"coalesce({_VALUES_OF_LINE[name]}, '')" for name in COLUMNS_OF_LINE)
_LINE_DIGEST = f"""encode(sha256(convert_to('["' || {_LINE} || '"]', 'UTF8')), 'hex')"""

_TABLE = (
    Column("judgment_id", Kind.INTEGER, "Number of the judgment.", path="pk"),
    Column(
        "comparison_id",
        Kind.INTEGER,
        "Number of the comparison; of several rows where several people judge it.",
        path="comparison_id",
    ),
    Column("judge", Kind.TEXT, "Who judged: `human`, `rule` or `llm`.", path="judge", ours=True),
    Column(
        "annotator",
        Kind.TEXT,
        "The person who judged: a pseudonym, or the user name where an owner asked for it.",
        python=getitem,
        of=("people", "annotator_id"),
        sql="%(people)s::jsonb ->> r.annotator_id::text",
    ),
    Column("shown_at", Kind.TIME, "When the pair was handed out to be shown.", path="shown_at"),
    Column("judged_at", Kind.TIME, "When the judgment was stored.", path="created_at"),
    Column("task", Kind.TEXT, "Text of the task.", path="comparison__task__prompt"),
    Column(
        "reference",
        Kind.TEXT,
        "The task's reference answer.",
        path="comparison__task__reference",
    ),
    *(
        Column(
            f"policy_{side}",
            Kind.TEXT,
            says,
            python=getitem,
            of=("labels", f"policy_{side}_id"),
            sql=f"'P' || p{side}.index + 1",
            ours=True,
        )
        for side, says in (
            ("i", "The pair's first policy: `P1`, `P2` …"),
            ("j", "The pair's second policy. Its number is larger than that of the first."),
        )
    ),
    *(
        Column(
            f"policy_{side}_name",
            Kind.TEXT,
            f"Name of policy {side}: its levels of the factors that vary.",
            python=getitem,
            of=("levels", f"policy_{side}_id"),
            sql=f"(%(names)s::text[])[p{side}.index + 1]",
        )
        for side in ("i", "j")
    ),
    *_of_both("response_*", Kind.TEXT, "text", i="Policy i's response.", j="Policy j's response."),
    Column(
        "left_policy",
        Kind.TEXT,
        "The policy whose response was shown on the left, as A: a coin that follows from the experiment's "
        "[secret](blinding.md).",
        python=_on_that_side,
        of=("i_on_left", "policy_i", "policy_j"),
        sql="'P' || (CASE WHEN r.i_on_left THEN pi.index ELSE pj.index END) + 1",
        ours=True,
    ),
    Column(
        "right_policy",
        Kind.TEXT,
        "The policy whose response was shown on the right, as B.",
        python=_on_that_side,
        of=("i_on_left", "policy_j", "policy_i"),
        sql="'P' || (CASE WHEN r.i_on_left THEN pj.index ELSE pi.index END) + 1",
        ours=True,
    ),
    Column("choice", Kind.TEXT, "`left`, `right`, `tie` or `both_bad`.", path="choice", ours=True),
    Column(
        "chosen_policy",
        Kind.TEXT,
        "The preferred policy; empty for `tie` and `both_bad`.",
        python=_chosen,
        of=("choice", "i_on_left", "policy_i", "policy_j"),
        sql=f"{_CHOSE_ONE} 'P' || ({_CHOSE_I} THEN pi.index ELSE pj.index END) + 1 END",
        ours=True,
    ),
    Column(
        "chosen_response",
        Kind.TEXT,
        "The preferred policy's response; empty for `tie` and `both_bad`.",
        python=_chosen,
        of=("choice", "i_on_left", "response_i", "response_j"),
        sql=f"{_CHOSE_ONE} {_CHOSE_I} THEN r.response_i ELSE r.response_j END END",
    ),
    Column(
        "outcome",
        Kind.NUMBER,
        "D of this judgment: 1 where policy i was preferred, 0 where policy j was, 0.5 where neither.",
        path="outcome",
    ),
    Column("reason", Kind.TEXT, "The judge's reason, where it gives one.", path="reason"),
    Column("sampler", Kind.TEXT, "The sampler that picked the pair.", plan="sampler", ours=True),
    Column(
        "sampling_seed",
        Kind.TEXT,
        "Seed of the round of picks: two numbers for numpy's `default_rng`.",
        python=lambda plan: " ".join(map(str, plan.get("seed", ()))),
        of=("plan",),
        sql="translate(r.plan ->> 'seed', '[],', '')",
        ours=True,
    ),
    Column("sampling_draw", Kind.INTEGER, "Which pick of that round this was, from 0.", plan="draw"),
    Column(
        "voided",
        Kind.TRUTH,
        "Whether the judgment was taken back.",
        python=lambda voided_at: voided_at is not None,
        of=("voided_at",),
        sql="r.voided_at IS NOT NULL",
    ),
    Column("voided_at", Kind.TIME, "When it was taken back.", path="void__created_at"),
    Column(
        "voided_by",
        Kind.TEXT,
        "Who took it back: a pseudonym, or the user name.",
        python=getitem,
        of=("people", "voided_by_id"),
        sql="%(people)s::jsonb ->> r.voided_by_id::text",
    ),
    Column(
        "void_reason",
        Kind.TEXT,
        "Why it was taken back.",
        python=lambda reason: reason or "",
        of=("reason_of_void",),
        sql="r.reason_of_void",
    ),
    Column(
        "restores",
        Kind.INTEGER,
        "Number of the voided judgment that this one brings back.",
        path="restores_id",
    ),
    Column("comment", Kind.TEXT, "The annotator's comment.", path="comment"),
    Column(
        "seconds",
        Kind.NUMBER,
        "Seconds from `shown_at` to storing the judgment, the wait behind other pairs included.",
        python=_seconds,
        of=("shown_at", "judged_at"),
        sql="date_part('epoch', r.judged_at - r.shown_at)",
    ),
    Column(
        "task_number",
        Kind.INTEGER,
        "The task's place in the experiment's list, from 1.",
        python=lambda position: position + 1,
        of=("position",),
        sql="r.position + 1",
    ),
    Column(
        "comparison_state",
        Kind.TEXT,
        "State of the comparison: `judged` when it has its outcome.",
        path="comparison__state",
        ours=True,
    ),
    Column(
        "comparison_outcome",
        Kind.NUMBER,
        "The joint D of all its judgments, which the estimates count.",
        path="comparison__outcome",
    ),
    Column("skips", Kind.INTEGER, "How many annotators skipped the pair.", path="comparison__skips"),
    Column(
        "flags",
        Kind.TEXT,
        "Why annotators skipped the pair, oldest first, separated by spaces: `cannot_tell`, `broken`, "
        "`task`, "
        "`leak`.",
        python=lambda flags, comparison_id: flags.get(comparison_id, ""),
        of=("flags", "comparison_id"),
        sql="(SELECT string_agg(f.reason, ' ' ORDER BY f.id) FROM engine_flag f "
        "WHERE f.comparison_id = r.comparison_id)",
        ours=True,
    ),
    Column("planned_at", Kind.TIME, "When the pair was picked.", path="comparison__created_at"),
    Column("plan_number", Kind.INTEGER, "Which pick of the experiment this was, from 0.", plan="number"),
    Column("plan_rules", Kind.INTEGER, "Version of the sampler's rules.", plan="rules"),
    Column(
        "plan_stopping",
        Kind.TEXT,
        "The stopping rule.",
        plan="stopping",
        ours=True,
    ),
    Column("plan_delta", Kind.NUMBER, "δ.", plan="delta"),
    Column("plan_epsilon", Kind.NUMBER, "ε.", plan="epsilon"),
    Column(
        "plan_comparisons",
        Kind.INTEGER,
        "Comparisons that had been judged.",
        plan="comparisons",
    ),
    Column(
        "plan_in_flight",
        Kind.INTEGER,
        "Comparisons that were picked and not yet judged.",
        plan="in_flight",
    ),
    *(
        Column(
            f"plan_evidence_{side}",
            Kind.NUMBER,
            f"log E (natural logarithm) against policy {side}'s being the best.",
            python=_evidence(place),
            of=("plan",),
            sql=f"r.plan -> 'evidence' ->> {place}",
        )
        for place, side in enumerate(("i", "j"))
    ),
    Column(
        "propensity",
        Kind.NUMBER,
        "The probability that this pair had of being picked, given everything before; empty for samplers "
        "other than `random` and `eps_greedy`.",
        plan="propensity",
    ),
    *_of_both("response_*_id", Kind.INTEGER, "pk", i="Number of response i.", j="Number of response j."),
    *_of_both(
        "model_*",
        Kind.TEXT,
        "model",
        i="The model that wrote response i.",
        j="The model that wrote response j.",
    ),
    *_of_both("seed_*", Kind.INTEGER, "seed", i="Seed of response i.", j="Seed of response j."),
    *_of_both(
        "prompt_tokens_*",
        Kind.INTEGER,
        "prompt_tokens",
        i="Tokens that the model read for response i.",
        j="Tokens that the model read for response j.",
    ),
    *_of_both(
        "completion_tokens_*",
        Kind.INTEGER,
        "completion_tokens",
        i="Tokens that the model wrote for response i.",
        j="Tokens that the model wrote for response j.",
    ),
    *_of_both(
        "finish_reason_*",
        Kind.TEXT,
        "finish_reason",
        i="Why response i ends: `stop`, `length`, or why it is no answer: `filtered`, `refused`, `error`.",
        j="Why response j ends.",
    ),
    *_of_both(
        "guardrail_*",
        Kind.TEXT,
        "guardrail",
        i="What acted on response i: a pattern on the `input` or the `output`, or a guard model "
        "(`guard_input`, `guard_output`).",
        j="What acted on response j.",
        ours=True,
    ),
    *_of_both(
        "leak_*",
        Kind.TEXT,
        "leak",
        i="What response i gives away of its own prompt or model.",
        j="What response j gives away of its own prompt or model.",
    ),
    Column(
        "via",
        Kind.TEXT,
        "How the judgment came in: `page` or `api` (a person), `rule`, `model` (a language model), "
        "`identical` (two equal texts: a tie that nobody saw), `no_answer` (a text won against no answer "
        "without a click), `import` (read from a file). A restored judgment keeps its value.",
        path="via",
        ours=True,
    ),
    Column(
        "side_known",
        Kind.TRUTH,
        "False for a past vote whose file did not name the side; it was drawn then.",
        python=lambda plan: bool(plan.get("side_known", "past" not in plan)),
        of=("plan",),
        sql="coalesce((r.plan ->> 'side_known')::boolean, (r.plan -> 'past') IS NULL)",
    ),
    Column(
        "annotator_could_see_policies",
        Kind.TRUTH,
        "Whether the annotator also had a role (viewer, editor, owner, administrator) "
        "that shows which policy wrote what. See [blinding](blinding.md).",
        path="annotator_could_see_policies",
    ),
    Column("plan_claim", Kind.TEXT, "The claim to stop on.", plan="claim", ours=True),
    *(
        Column(
            f"task_{name}",
            Kind.TEXT,
            says,
            python=_json,
            of=(f"{name}_of_task",),
            sql=f"CASE WHEN r.{name}_of_task IN {_EMPTY} THEN '' ELSE r.{name}_of_task END",
            ours=True,
        )
        for name, says in (
            (
                "messages",
                "The task's conversation: a JSON list of objects with `role` and `content`.",
            ),
            ("variables", "The task's variables: a JSON object of texts."),
            ("tags", "The task's tags: a JSON list of texts."),
        )
    ),
    Column(
        "comparison_number",
        Kind.INTEGER,
        "The comparison's place in its experiment, from 1, as the pages name it.",
        path="comparison__number",
    ),
    *(
        Column(
            name,
            Kind.TRUTH,
            says,
            python=lambda plan, name=name: bool(plan.get(name, True)),
            of=("plan",),
            sql=f"coalesce((r.plan ->> '{name}')::boolean, true)",
        )
        for name, says in (
            (
                "time_known",
                "False for a past vote whose file did not give its time: `judged_at` is that of the import.",
            ),
            (
                "texts_known",
                "False for a past vote whose file lacked the text of a response.",
            ),
        )
    ),
    Column(
        "judgment_uuid",
        Kind.TEXT,
        "UUID of the judgment: the same in every export, and after an import.",
        python=lambda token, mark: str(exchanged(token, mark)),
        of=("token", "mark"),
        sql=_EXCHANGED,
        ours=True,
    ),
    Column(
        "void_kind",
        Kind.TEXT,
        "How it was taken back: `slip` (by the annotator before their next answer), `taken_back` (by the "
        "annotator later), `voided` (by hand, by somebody else).",
        python=lambda fate: fate or "",
        of=("fate_of_void",),
        sql="r.fate_of_void",
        ours=True,
    ),
    Column(
        "in_evidence",
        Kind.TRUTH,
        "Whether the comparison has ended in the evidence. A click after the conclusion is not in it.",
        python=lambda kind: kind in ENDED,
        of=("last_event",),
        sql=f"coalesce(r.last_event IN {tuple(map(str, ENDED))}, false)",
    ),
    Column(
        "line_digest",
        Kind.TEXT,
        "SHA-256 of the judgment's line in the record. See [the record](#the-record-of-the-judgments).",
        python=digest_of_row,
        of=COLUMNS_OF_LINE,
        sql=_LINE_DIGEST,
        ours=True,
    ),
    *_of_both(
        "thinking_*",
        Kind.TEXT,
        "thinking",
        i="What the model thought before response i, apart from its text.",
        j="What the model thought before response j.",
    ),
    *_of_both(
        "refusal_*",
        Kind.TEXT,
        "refusal",
        i="The model's own words where it refused in a field made for that; `response_i` is empty then.",
        j="The same of response j.",
    ),
    *(
        Column(
            f"marks_{side}",
            Kind.TEXT,
            says,
            python=_json,
            of=(f"marks_of_{side}",),
            sql=f"CASE WHEN r.marks_of_{side} IN {_EMPTY} THEN '' ELSE r.marks_of_{side} END",
            ours=True,
        )
        for side, says in (
            ("i", "Marks of a chat template that were cut off the end of response i: a JSON list of texts."),
            ("j", "The same of response j."),
        )
    ),
    *_of_both(
        "served_model_*",
        Kind.TEXT,
        "served_model",
        i="The model's name as the server gave it with response i.",
        j="The model's name as the server gave it with response j.",
    ),
    *_of_both(
        "thinking_tokens_*",
        Kind.INTEGER,
        "thinking_tokens",
        i="Those of `completion_tokens_i` that were thinking; empty where the server does not tell.",
        j="Those of `completion_tokens_j` that were thinking.",
    ),
    *_of_both(
        "cached_tokens_*",
        Kind.INTEGER,
        "cached_tokens",
        i="Those of `prompt_tokens_i` that the server had in its cache.",
        j="Those of `prompt_tokens_j` that the server had in its cache.",
    ),
    *_costs(
        "i", "Cost of response i, with its guards and failed attempts; empty if unknown or in two currencies."
    ),
    *_costs("j", "Cost of response j."),
    *_of_both(
        "failure_reason_*",
        Kind.TEXT,
        "failure_reason",
        i="Why response i is no answer, in words of this program; empty for most.",
        j="Why response j is no answer.",
    ),
    Column(
        "in_view",
        Kind.TEXT,
        "How both texts were on the screen before the answer, as the annotator's page said: `together`, or "
        "`in_turn` (under tabs). Empty where no page with its script was used.",
        path="in_view",
        ours=True,
    ),
    Column(
        "further",
        Kind.TEXT,
        "Answers to the further questions as JSON, by question: `left`, `tie` or `right`; the marks of the "
        "left and the right response; or a text. Empty without any.",
        path="further",
    ),
)

COLUMNS = {column.name: column for column in _TABLE}


def _text(path: str) -> Cast:
    """A field of JSON as its text: most tasks have none, and then nothing is decoded."""
    return Cast(path, TextField())


# The fields that are read of each judgment, by name, with the path of each. Some are columns; from others,
# columns are computed.
FIELDS: dict[str, str | Cast | Subquery | Coalesce] = {
    **{column.name: column.path for column in _TABLE if column.path},
    "annotator_id": "annotator_id",
    "voided_by_id": "void__by_id",
    "reason_of_void": "void__reason",
    "policy_i_id": "comparison__policy_i_id",
    "policy_j_id": "comparison__policy_j_id",
    "i_on_left": "comparison__i_on_left",
    "position": "comparison__task__position",
    "plan": "comparison__plan",
    "messages_of_task": _text("comparison__task__messages"),
    "variables_of_task": _text("comparison__task__variables"),
    "tags_of_task": _text("comparison__task__tags"),
    "marks_of_i": _text("comparison__response_i__marks"),
    "marks_of_j": _text("comparison__response_j__marks"),
    "token": "token",
    "fate_of_void": "void__fate",
    "last_event": last_event("comparison_id"),
}


# Judgments that an export holds in memory.
_AT_ONCE = 2000


def stamped(time: datetime) -> str:
    """The time in ISO 8601, as CSV and JSON lines have it."""
    return time.isoformat(timespec="microseconds")


def read_rows(
    experiment: Experiment,
    selection: Selection,
    *,
    usernames: bool = False,
    stamp: Callable[[datetime], Any] = stamped,
    order: Sequence[str] = ("pk",),
) -> Iterator[Row]:
    """The selected judgments, a row each, as they stand at the first one; at most 2,000 of them in
    memory.

    ``usernames``: people by their user names instead of pseudonyms. ``stamp`` makes a column's value of a
    time. ``order``: fields of a judgment.
    """
    lookups = _lookups(experiment, usernames=usernames)
    selected = browsing.selected_judgments(experiment, selection).order_by(*order)
    judgments = selected.values_list(*FIELDS.values())
    with one_snapshot():
        found = judgments.iterator(chunk_size=_AT_ONCE)
        while batch := list(islice(found, _AT_ONCE)):
            yield from _rows(batch, lookups, stamp)


def one_snapshot() -> AbstractContextManager[Any]:
    """Read rows from the database in pieces, as the reader asks for them.

    PostgreSQL keeps such a cursor in a transaction only; outside of one it would write the whole result aside
    before the first row. SQLite needs no transaction, and one would make all writers wait.
    """
    return transaction.atomic() if connection.vendor == "postgresql" else nullcontext()


def _lookups(experiment: Experiment, *, usernames: bool) -> dict[str, Any]:
    """Lookup tables of an experiment for its columns.

    ``labels`` (``P1``) and ``levels`` (their names) of the policies by id, and the names of ``people`` by id,
    of whom ``None`` is nobody. ``flags`` by the comparison's id: their reasons, oldest first. The ``mark`` on
    the tokens of judgments.
    """
    names = [name.name for name in policy_names(experiment)]
    indices = dict(experiment.policies.values_list("pk", "index"))
    return {
        "labels": {pk: code_of(index) for pk, index in indices.items()},
        "levels": {pk: names[index] for pk, index in indices.items()},
        "people": {None: "", **names_of_people(experiment, usernames=usernames)},
        "flags": flag_reasons(experiment),
        "mark": mark(experiment.pk),
    }


def _rows(batch: Sequence[Row], lookups: dict[str, Any], stamp: Callable[[datetime], Any]) -> Iterable[Row]:
    """The rows of a batch, made column by column, which is faster than row by row."""
    known: dict[str, Iterable[Any]] = dict(zip(FIELDS, zip(*batch, strict=True), strict=True))
    known |= {name: repeat(table) for name, table in lookups.items()}
    cells = []
    for column in _TABLE:
        if column.python is not None:
            known[column.name] = list(map(column.python, *(known[name] for name in column.of)))
        elif column.plan:
            key, missing = column.plan, "" if column.kind == Kind.TEXT else None
            known[column.name] = [plan.get(key, missing) for plan in known["plan"]]
        values = known[column.name]
        if column.kind == Kind.TIME:
            values = [None if time is None else stamp(time) for time in values]
        cells.append(values)
    return zip(*cells, strict=True)
