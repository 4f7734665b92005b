"""The CSV written by PostgreSQL itself: the same rows as `read_rows`, four times as fast.

A test holds the two against each other, cell by cell. `benchmarks.export_scale` has the figures.
"""

import json
import re
from collections.abc import Iterator

from django.core.exceptions import EmptyResultSet
from django.db import connection, transaction

from engine.domain.judgment_uuids import mark
from engine.importing.formula_cells import (
    FIRST,
    FORMULA_PATTERN,
    NUMBER_PATTERN,
    SEPARATORS_CLASS,
    STARTS_CLASS,
)
from engine.models import Experiment
from engine.selectors import browsing, counts
from engine.selectors.browsing import Selection
from engine.selectors.policies import policy_names
from labeling.exports.formats import heading
from labeling.exports.judgments import COLUMNS, FIELDS, Column, Kind, time_in_sql
from labeling.exports.people import names_of_people

_PIECE_BYTES = 1 << 17

_FIRST_CODES = ", ".join(str(ord(start)) for start in sorted(FIRST))
# A percent sign would be a parameter.
_DANGEROUS = f"^''*{STARTS_CLASS}".replace("%", "%%")
_WITHIN = f"({SEPARATORS_CLASS})(?={FORMULA_PATTERN})".replace("'", "''")
# With at least so many judgments, PostgreSQL is told to follow the indexes row by row. A sort or a hash of
# all rows would delay the first one. Its parallel workers look rows up while the leading process makes the
# columns, which is a quarter faster on two cores.
_MANY = 50_000
_IN_ORDER = """
    SET LOCAL enable_sort = off; SET LOCAL enable_hashjoin = off;
    SET LOCAL enable_mergejoin = off; SET LOCAL jit = off;
    SET LOCAL parallel_leader_participation = off
"""


def copied_rows(
    experiment: Experiment, selection: Selection, *, raw: bool, usernames: bool = False
) -> Iterator[tuple[bytes, int]]:
    """Pieces of the CSV, each with the number of rows in it; the heading first."""
    yield heading(), 0
    query = browsing.selected_judgments(experiment, selection).order_by().values_list(*FIELDS.values())
    try:
        sql, parameters = query.query.sql_with_params()
    except EmptyResultSet:
        # Django knows without a query that nothing is selected, such as for an empty list of ids.
        return
    # Pseudonyms are ours too, and need no look at each.
    pseudonyms = () if usernames else ("annotator", "voided_by")
    columns = ", ".join(
        _expression(column, defused=not (raw or column.ours or column.name in pseudonyms))
        for column in COLUMNS.values()
    )
    values = {
        "names": [name.name for name in policy_names(experiment)],
        "people": json.dumps(names_of_people(experiment, usernames=usernames)),
        "mark": mark(experiment.pk),
    }
    # Django's part of the statement has its parameters by place, so these go by place too.
    placed = [values[name] for name in re.findall(r"%\((\w+)\)s", columns)]
    columns = re.sub(r"%\(\w+\)s", "%s", columns)
    statement = f"""
        COPY (SELECT {columns}
        FROM ({sql}) AS r ({", ".join(FIELDS)})
        JOIN engine_policy pi ON pi.id = r.policy_i_id JOIN engine_policy pj ON pj.id = r.policy_j_id
        ORDER BY r.judgment_id) TO STDOUT (FORMAT csv)
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


def _expression(column: Column, *, defused: bool) -> str:
    """The expression of a column, written as Python writes it."""
    value = f"r.plan ->> '{column.plan}'" if column.plan else column.sql or f"r.{column.name}"
    if column.kind == Kind.TIME:
        return time_in_sql(value)
    if column.kind == Kind.NUMBER and value.startswith("r.plan"):
        # JSON writes numbers as Python does, but none with an exponent.
        number = f"({value})::float8"
        usual = f"{number} = 0 OR (abs({number}) >= 1e-4 AND abs({number}) < 1e16)"
        return f"CASE WHEN {usual} THEN {value} ELSE {number}::text END"
    if column.kind == Kind.NUMBER:
        return f"({value})::text || CASE WHEN {value} = floor({value}) THEN '.0' ELSE '' END"
    if column.kind == Kind.TRUTH:
        return f"CASE WHEN {value} THEN 'True' ELSE 'False' END"
    if column.kind != Kind.TEXT:
        return value
    if defused:
        # The code of the first character is quick to look at; hardly any cell needs more.
        safe = f"regexp_replace({value}, '{_WITHIN}', '\\1''', 'g')"
        value = (
            f"CASE WHEN ascii({value}) IN ({_FIRST_CODES}) AND ({value}) ~ '{_DANGEROUS}' "
            f"AND ({value}) !~ '^{NUMBER_PATTERN}$' THEN '''' || {safe} ELSE {safe} END"
        )
    return f"NULLIF({value}, '')"
