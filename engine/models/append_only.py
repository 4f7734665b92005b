"""Triggers that keep judgments, voids, charges and the logs append-only against every writer of the database.

They are installed after every ``migrate`` and not by one migration. SQLite rebuilds a table that a migration
alters, and the old table takes its triggers with it. While it does, no trigger of another table may name that
table, so that SQLite has none during migrations.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper


@dataclass(frozen=True)
class Rule:
    """The permitted updates and deletions of a model's rows; a TRUNCATE is never permitted.

    ``may``: for each column that may change, the SQL condition under which it may. The other columns may not.
    ``gone``: the SQL condition under which a row may be deleted.
    """

    model: str
    may: dict[str, str]
    gone: str = "FALSE"


# A draft has no history. So an experiment that is about to be deleted becomes one in the same transaction:
# `engine.services.drafts.delete_experiment`.
_OF_A_DRAFT = "EXISTS (SELECT 1 FROM engine_experiment e WHERE e.id = {} AND e.state = 'draft')"

RULES = (
    Rule(
        "Judgment",
        {
            "standing": "OLD.standing AND NOT NEW.standing "
            "AND EXISTS (SELECT 1 FROM engine_judgmentvoid v WHERE v.judgment_id = OLD.id)",
            # A free text may tell more of a person than they want kept.
            "comment": "NEW.comment = ''",
            "further": "NEW.further = ''",
        },
        _OF_A_DRAFT.format(
            "COALESCE((SELECT c.experiment_id FROM engine_comparison c WHERE c.id = OLD.comparison_id), "
            "(SELECT a.experiment_id FROM engine_assignment a WHERE a.id = OLD.assignment_id))"
        ),
    ),
    # Its judgment goes first.
    Rule("JudgmentVoid", {}, "NOT EXISTS (SELECT 1 FROM engine_judgment j WHERE j.id = OLD.judgment_id)"),
    Rule("Charge", {}),
    # The planner numbers an event once. A replay under other rules gives its showing other bets.
    Rule(
        "ShowingEvent",
        {"number": "OLD.number IS NULL", "showing": "TRUE"},
        _OF_A_DRAFT.format("OLD.experiment_id"),
    ),
    Rule("Conclusion", {}, _OF_A_DRAFT.format("OLD.experiment_id")),
    # Entries stay when their experiment is deleted.
    Rule(
        "AuditEntry",
        {"experiment_id": f"NEW.experiment_id IS NULL AND {_OF_A_DRAFT.format('OLD.experiment_id')}"},
    ),
)


def install(using: str) -> None:
    """Create the triggers, or replace them."""
    _execute(connections[using], install_sql(connections[using]))


def install_sql(connection: BaseDatabaseWrapper) -> list[str]:
    """The statements that create the triggers of all tables that exist."""
    there = set(connection.introspection.table_names())
    rules = {table: rule for rule in RULES if (table := _table(rule)) in there}
    if connection.vendor == "postgresql":
        triggers = _triggers(connection)
        return [each for table, rule in rules.items() for each in _postgresql(rule, table, triggers)]
    return [
        each for table, rule in rules.items() for each in (*_remove(connection, table), *_sqlite(rule, table))
    ]


def remove_sql(connection: BaseDatabaseWrapper) -> list[str]:
    """The statements that drop the triggers."""
    there = set(connection.introspection.table_names())
    tables = [table for rule in RULES if (table := _table(rule)) in there]
    return [statement for table in tables for statement in _remove(connection, table)]


@contextmanager
def lifted() -> Iterator[None]:
    """A transaction in which history may be rewritten: to erase what a law requires, or to set up a test."""
    connection = connections[DEFAULT_DB_ALIAS]
    with transaction.atomic():
        _execute(connection, remove_sql(connection))
        yield
        _execute(connection, install_sql(connection))


def remove_before_migrate(using: str, plan: Sequence[Any], **_: Any) -> None:
    """Receiver of Django's ``pre_migrate``."""
    connection = connections[using]
    if plan and connection.vendor == "sqlite":
        _execute(connection, remove_sql(connection))


def install_after_migrate(using: str, **_: Any) -> None:
    """Receiver of Django's ``post_migrate``."""
    install(using)


def _execute(connection: BaseDatabaseWrapper, statements: list[str]) -> None:
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # A table cannot be altered while foreign keys to it wait to be checked.
            statements = ["SET CONSTRAINTS ALL IMMEDIATE", *statements, "SET CONSTRAINTS ALL DEFERRED"]
        for statement in statements:
            cursor.execute(statement)


def _table(rule: Rule) -> str:
    return str(apps.get_model("engine", rule.model)._meta.db_table)


def _columns(rule: Rule) -> list[str]:
    return [field.column for field in apps.get_model("engine", rule.model)._meta.concrete_fields]


def _allowed(rule: Rule, same: str) -> str:
    conditions = []
    for column in _columns(rule):
        unchanged = f'NEW."{column}" {same} OLD."{column}"'
        conditions.append(f"({unchanged} OR ({rule.may[column]}))" if column in rule.may else unchanged)
    return " AND ".join(conditions)


def _remove(connection: BaseDatabaseWrapper, table: str) -> list[str]:
    place = f' ON "{table}"' if connection.vendor == "postgresql" else ""
    return [
        f'DROP TRIGGER IF EXISTS "{table}_keeps_{event}"{place}'
        for event in ("updated", "deleted", "truncated")
    ]


def _triggers(connection: BaseDatabaseWrapper) -> set[str]:
    """The names of all triggers that PostgreSQL has and asks."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgname FROM pg_trigger WHERE pg_table_is_visible(tgrelid) AND tgenabled <> 'D'"
        )
        return {name for (name,) in cursor.fetchall()}


def _postgresql(rule: Rule, table: str, triggers: set[str]) -> list[str]:
    """The statements that create the triggers not among ``triggers``, and replace their functions.

    Creating a trigger locks its table against clicks and exports. Replacing its function does not.
    """
    refuse = f"RAISE EXCEPTION '{_message(table)}' USING ERRCODE = 'restrict_violation'"
    allowed = _allowed(rule, "IS NOT DISTINCT FROM")
    make = {
        "updated": f'BEFORE UPDATE ON "{table}" FOR EACH ROW EXECUTE FUNCTION "{table}_keep_updated"()',
        "deleted": f'BEFORE DELETE ON "{table}" FOR EACH ROW EXECUTE FUNCTION "{table}_keep_deleted"()',
        # TRUNCATE fires no row triggers.
        "truncated": f'BEFORE TRUNCATE ON "{table}" FOR EACH STATEMENT '
        f'EXECUTE FUNCTION "{table}_keep_deleted"()',
    }
    return [
        f'CREATE OR REPLACE FUNCTION "{table}_keep_updated"() RETURNS trigger LANGUAGE plpgsql AS $$ '
        f"BEGIN IF {allowed} THEN RETURN NEW; END IF; {refuse}; END $$",
        f'CREATE OR REPLACE FUNCTION "{table}_keep_deleted"() RETURNS trigger LANGUAGE plpgsql AS $$ '
        # A TRUNCATE has no OLD.
        f"BEGIN IF TG_OP = 'DELETE' THEN IF {rule.gone} THEN RETURN OLD; END IF; END IF; {refuse}; END $$",
        *(
            statement
            for event, what in make.items()
            if (name := f"{table}_keeps_{event}") not in triggers
            for statement in (
                f'DROP TRIGGER IF EXISTS "{name}" ON "{table}"',
                f'CREATE TRIGGER "{name}" {what}',
            )
        ),
    ]


def _sqlite(rule: Rule, table: str) -> list[str]:
    refuse = f"BEGIN SELECT RAISE(ABORT, '{_message(table)}'); END"
    return [
        f'CREATE TRIGGER "{table}_keeps_updated" BEFORE UPDATE ON "{table}" '
        f"FOR EACH ROW WHEN NOT ({_allowed(rule, 'IS')}) {refuse}",
        f'CREATE TRIGGER "{table}_keeps_deleted" BEFORE DELETE ON "{table}" FOR EACH ROW '
        f"WHEN NOT ({rule.gone}) {refuse}",
    ]


def _message(table: str) -> str:
    return f"rows of {table} are kept as they are"
