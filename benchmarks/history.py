"""Judged comparisons of an experiment, written by SQL as the services would leave them; PostgreSQL only."""

from typing import Any

# Responses of 40 to 340 characters; each comparison judged by one of the people; the last ones are ready.
_ROWS = """
INSERT INTO engine_response (id, policy_id, task_id, seed, state, claimed_by, attempts, crashes, faults, failure_reason, said,
    thinking, refusal, marks, served_model, text, digest, model, prompt_tokens, completion_tokens, finish_reason, guardrail, latency_seconds, leak, created_at, done_at)
SELECT 2 * n + side, CASE side WHEN 0 THEN p.i ELSE p.j END, t.id, (n::bigint * 7919 + side) %% 2147483647, 'done', 'w', 1, 0, 0, '', '',
    '', '', '[]', '', 'Answer ' || n || ': ' || repeat('so it is, and so on; ', 2 + (n * 31 + side * 17) %% 15), md5(n::text || side)::char(16), 'bench-1', 60,
    20 + n %% 90, 'stop', '', 0.5, '', now(), now()
FROM generate_series(1, %(rows)s + %(ready)s) n CROSS JOIN generate_series(0, 1) side
JOIN bench_pairs p ON p.number = n %% %(pairs)s JOIN bench_tasks t ON t.number = n %% %(tasks)s;
INSERT INTO engine_comparison (id, experiment_id, number, policy_i_id, policy_j_id, task_id, response_i_id, response_j_id,
    texts, i_on_left, plan, state, skips, outcome, least, most, discard_reason, showing, created_at, ready_at, judged_at)
SELECT n, %(experiment)s, n, p.i, p.j, t.id, 2 * n, 2 * n + 1, '', n %% 2 = 0, jsonb_build_object('rules', 1, 'number', n - 1,
    'sampler', 'balanced', 'stopping', 'certified', 'delta', 0.05, 'epsilon', 0.0, 'seed', jsonb_build_array(0, n - 1),
    'draw', 0, 'comparisons', n - 1, 'in_flight', 4, 'evidence', jsonb_build_array(n * 0.00123, n * 0.00077),
    'propensity', null), CASE WHEN told THEN 'judged' ELSE 'ready' END, 0, CASE WHEN told THEN (n %% 3 = 0)::int END,
    CASE WHEN told THEN (n %% 3 = 0)::int END, CASE WHEN told THEN (n %% 3 = 0)::int END,
    '', CASE WHEN told THEN 'told' ELSE '' END, now(), now(), CASE WHEN told THEN now() END
FROM generate_series(1, %(rows)s + %(ready)s) n CROSS JOIN LATERAL (SELECT n <= %(rows)s AS told) state
JOIN bench_pairs p ON p.number = n %% %(pairs)s JOIN bench_tasks t ON t.number = n %% %(tasks)s;
INSERT INTO engine_judgment (comparison_id, judge, via, annotator_id, annotator_could_see_policies, token, choice,
    outcome, reason, comment, in_view, further, standing, shown_at, created_at)
SELECT n, 'human', 'page', u.id, false, gen_random_uuid(), CASE WHEN (n %% 2 = 0) = (n %% 3 = 0) THEN 'left' ELSE 'right' END,
    (n %% 3 = 0)::int, '', '', 'together', '', true, now() - interval '9 seconds', now()
FROM generate_series(1, %(rows)s) n JOIN bench_people u ON u.number = n %% %(people)s;
SELECT setval(pg_get_serial_sequence('engine_response', 'id'), max(id)) FROM engine_response;
SELECT setval(pg_get_serial_sequence('engine_comparison', 'id'), max(id)) FROM engine_comparison;
"""
# What the dashboard reads besides: each showing, and a snapshot after each click.
_WATCHED = """
INSERT INTO engine_showingevent (experiment_id, comparison_id, kind, outcome, least, most, created_at)
SELECT %(experiment)s, n, kind, outcome, outcome, outcome, now() FROM generate_series(1, %(rows)s) n
CROSS JOIN LATERAL (VALUES ('begun', NULL), ('told', (n %% 3 = 0)::int)) event (kind, outcome);
INSERT INTO engine_snapshot (experiment_id, comparisons, evidence, peak_evidence, threshold, best_id, open_rivals, reason, created_at)
SELECT %(experiment)s, n, evidence, evidence, 20.7, (SELECT max(j) FROM bench_pairs), %(policies)s - 1, '', now()
FROM generate_series(1, %(rows)s - 1) n
CROSS JOIN LATERAL (SELECT jsonb_agg(round(n / 10000.0 * (1 + k / 50.0), 6)) AS evidence FROM generate_series(1, %(policies)s) k) each;
"""


def write_history(
    experiment: Any, people: list[Any], rows: int, *, ready: int = 0, watched: bool = False
) -> None:
    """Have these people judge so many comparisons, with so many more ready; ``watched``: for a dashboard."""
    from django.db import connection

    from engine.services.judging import rebuild_counts

    policies = list(experiment.policies.values_list("pk", flat=True))
    pairs = [(i, j) for a, i in enumerate(policies) for j in policies[a + 1 :]]
    tables = {
        "bench_pairs (number int, i bigint, j bigint)": [(n, *pair) for n, pair in enumerate(pairs)],
        "bench_tasks (number int, id bigint)": list(enumerate(experiment.tasks.values_list("pk", flat=True))),
        "bench_people (number int, id bigint)": [(n, user.pk) for n, user in enumerate(people)],
    }
    figures = {"rows": rows, "ready": ready, "experiment": experiment.pk, "policies": len(policies)}
    with connection.cursor() as cursor:
        for table, values in tables.items():
            cursor.execute(f"CREATE TEMPORARY TABLE {table}")
            marks = ", ".join(["%s"] * len(values[0]))
            cursor.executemany(f"INSERT INTO {table.split()[0]} VALUES ({marks})", values)  # noqa: S608
            figures[table.split()[0].removeprefix("bench_")] = len(values)
        for statement in filter(str.strip, (_ROWS + (_WATCHED if watched else "")).split(";\n")):
            cursor.execute(statement, figures)
    rebuild_counts(experiment_id=experiment.pk)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
