"""The CSV written by PostgreSQL itself: the same rows as `read_rows`, four times as fast.

A test holds the two against each other, cell by cell. `benchmarks.export_scale` has the figures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from django.db import connection, transaction

from engine.models import Experiment
from engine.selectors import browsing, counts
from engine.selectors.browsing import Selection
from labeling.dashboard.status import policy_names
from labeling.exports.columns import COLUMNS, FIELDS, NUMBER, TEXT, TIME, TRUTH
from labeling.exports.defusing import FIRST, NUMBER_PATTERN, STARTS_CLASS
from labeling.exports.formats import heading
from labeling.exports.people import names_of_people

_PIECE_BYTES = 1 << 17

# Expressions of the columns that differ from the field of the same name. The fields are those of `FIELDS`.
_MADE_OF = {
    "judgment_id": "r.pk",
    "annotator": "%(people)s::jsonb ->> r.annotator_id::text",
    "judged_at": "r.created_at",
    "task": "r.prompt",
    "policy_i": "'P' || pi.index + 1",
    "policy_j": "'P' || pj.index + 1",
    "policy_i_name": "(%(names)s::text[])[pi.index + 1]",
    "policy_j_name": "(%(names)s::text[])[pj.index + 1]",
    "response_i": "r.text_i",
    "response_j": "r.text_j",
    "left_policy": "'P' || (CASE WHEN r.i_on_left THEN pi.index ELSE pj.index END) + 1",
    "right_policy": "'P' || (CASE WHEN r.i_on_left THEN pj.index ELSE pi.index END) + 1",
    "chosen_policy": "CASE WHEN r.choice IN ('left', 'right') THEN "
    "'P' || (CASE WHEN (r.choice = 'left') = r.i_on_left THEN pi.index ELSE pj.index END) + 1 END",
    "chosen_response": "CASE WHEN r.choice IN ('left', 'right') THEN "
    "CASE WHEN (r.choice = 'left') = r.i_on_left THEN r.text_i ELSE r.text_j END END",
    "sampler": "r.plan ->> 'sampler'",
    "sampling_seed": "translate(r.plan ->> 'seed', '[],', '')",
    "sampling_draw": "r.plan ->> 'draw'",
    "voided": "r.voided_at IS NOT NULL",
    "voided_by": "%(people)s::jsonb ->> r.voided_by_id::text",
    "restores": "r.restores_id",
    "seconds": "date_part('epoch', r.created_at - r.shown_at)",
    "task_number": "r.position + 1",
    "flags": "(SELECT string_agg(f.reason, ' ' ORDER BY f.id) FROM engine_flag f "
    "WHERE f.comparison_id = r.comparison_id)",
    "plan_number": "r.plan ->> 'number'",
    "plan_rules": "r.plan ->> 'rules'",
    "plan_stopping": "r.plan ->> 'stopping'",
    "plan_delta": "r.plan ->> 'delta'",
    "plan_epsilon": "r.plan ->> 'epsilon'",
    "plan_comparisons": "r.plan ->> 'comparisons'",
    "plan_in_flight": "r.plan ->> 'in_flight'",
    "plan_evidence_i": "r.plan -> 'evidence' ->> 0",
    "plan_evidence_j": "r.plan -> 'evidence' ->> 1",
    "propensity": "r.plan ->> 'propensity'",
}
# Written by nobody but the application itself, so never a formula.
_OURS = {
    "judge", "policy_i", "policy_j", "left_policy", "right_policy", "choice", "chosen_policy", "sampler",
    "sampling_seed", "comparison_state", "flags", "plan_stopping", "guardrail_i", "guardrail_j",
    "via",
}  # fmt: skip
_FIRST_CODES = ", ".join(str(ord(start)) for start in sorted(FIRST))
# A percent sign would be a parameter.
_DANGEROUS = f"^''*{STARTS_CLASS}".replace("%", "%%")
# From this many on, row after row along the indexes, as a sort or a hash of everything would come before the first row.
# Workers look the rows up, and this process, which then has no part in that, makes the columns meanwhile: a quarter
# faster on two cores.
_MANY = 50_000
_IN_ORDER = """
    SET LOCAL enable_sort = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL jit = off;
    SET LOCAL parallel_leader_participation = off
"""


def copied_rows(
    experiment: Experiment, selection: Selection, *, raw: bool, usernames: bool = False
) -> Iterator[tuple[bytes, int]]:
    """Pieces of the CSV, each with the number of rows in it; the heading first."""
    yield heading(), 0
    query = browsing.selected_judgments(experiment, selection).order_by().values_list(*FIELDS.values())
    sql, parameters = query.query.sql_with_params()
    # Pseudonyms are ours too, and need no look at each.
    untouched = COLUMNS.keys() if raw else _OURS if usernames else _OURS | {"annotator", "voided_by"}
    columns = ", ".join(_column(name, kind, defused=name not in untouched) for name, kind in COLUMNS.items())
    values = {
        "names": [name.long for name in policy_names(experiment)],
        "people": json.dumps(names_of_people(experiment, usernames=usernames)),
    }
    # Django's part of the statement has its parameters by place, so these go by place too.
    placed = [values[name] for name in re.findall(r"%\((\w+)\)s", columns)]
    columns = re.sub(r"%\(\w+\)s", "%s", columns)
    statement = f"""
        COPY (SELECT {columns}
        FROM ({sql}) AS r ({", ".join(FIELDS)})
        JOIN engine_policy pi ON pi.id = r.policy_i_id JOIN engine_policy pj ON pj.id = r.policy_j_id
        ORDER BY r.pk) TO STDOUT (FORMAT csv)
    """  # noqa: S608 - made of our own expressions; what people typed is in the parameters
    with transaction.atomic(), connection.cursor() as cursor:
        if counts.comparison_count(experiment.pk) >= _MANY:
            cursor.execute(_IN_ORDER)
        # psycopg's own cursor: Django's wrapper of it for debugging takes no parameters.
        with cursor.cursor.copy(statement, [*placed, *parameters]) as copy:
            lines: list[bytes] = []
            size = 0
            for line in copy:  # one row each
                lines.append(line)
                size += len(line)
                if size >= _PIECE_BYTES:
                    yield b"".join(lines), len(lines)
                    lines, size = [], 0
            if lines:
                yield b"".join(lines), len(lines)


def _column(name: str, kind: str, *, defused: bool) -> str:
    """The expression of a column, written as Python writes it."""
    value = _MADE_OF.get(name, f"r.{name}")
    if kind == TIME:
        return f"""to_char({value} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US') || '+00:00'"""
    if kind == NUMBER and not value.startswith("r.plan"):
        return f"({value})::text || CASE WHEN {value} = floor({value}) THEN '.0' ELSE '' END"
    if kind == TRUTH:
        return f"CASE WHEN {value} THEN 'True' ELSE 'False' END"
    if kind != TEXT:
        return value  # JSON writes its numbers as Python does
    if defused:
        # The code of the first character is quick to look at; hardly any cell needs more.
        value = (
            f"CASE WHEN ascii({value}) IN ({_FIRST_CODES}) AND ({value}) ~ '{_DANGEROUS}' "
            f"AND ({value}) !~ '^{NUMBER_PATTERN}$' THEN '''' || ({value}) ELSE {value} END"
        )
    return f"NULLIF({value}, '')"
