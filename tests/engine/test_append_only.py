"""Changes that the database itself refuses."""

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import F

from engine.models import (
    AuditEntry,
    Charge,
    Experiment,
    Judgment,
    JudgmentVoid,
    PairCount,
    ShowingEvent,
    append_only,
)
from engine.models.append_only import lifted
from engine.services.drafts import delete_experiment
from engine.services.experiments import stop
from engine.services.judging import rebuild_counts, record_answer, void_judgment
from engine.services.voids import restore_judgment, void_annotator
from tests.engine.test_checks import work
from tests.factories import assign_next, click, make_experiment, make_user

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


@pytest.fixture
def experiment(annotator) -> Experiment:
    return make_experiment(ready=True, annotators=(annotator, make_user("bob")), overlap=2)


def refused(call) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        call()


class TestOnePersonCountsOnce:
    def test_the_database_takes_no_second_standing_judgment(self, experiment, annotator):
        first = click(experiment, annotator)
        again = {"comparison": first.comparison, "annotator": annotator, "judge": "human"}
        refused(lambda: Judgment.objects.create(**again, choice="left", outcome=1.0))

    def test_standing_says_what_the_voids_say(self, experiment, annotator, admin):
        bob = experiment.memberships.get(user__username="bob").user
        for user in (annotator, bob, annotator):
            click(experiment, user)
        void_judgment(judgment_id=Judgment.objects.first().pk, by=admin, reason="A slip.")
        void_annotator(experiment_id=experiment.pk, annotator=bob, by=admin, reason="Spam")
        restore_judgment(judgment_id=Judgment.objects.first().pk)
        standing = set(Judgment.objects.filter(standing=True).values_list("pk", flat=True))
        assert standing == set(Judgment.objects.filter(void__isnull=True).values_list("pk", flat=True))
        assert 0 < len(standing) < Judgment.objects.count()


@pytest.mark.postgres_only
def test_history_is_not_truncated(experiment, annotator):
    click(experiment, annotator)
    for model in (Judgment, JudgmentVoid, AuditEntry, Charge):

        def truncate(table: str = model._meta.db_table) -> None:
            with connection.cursor() as cursor:
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
                cursor.execute(f'TRUNCATE "{table}" CASCADE')

        refused(truncate)
    assert Judgment.objects.count() == 1


class TestCounts:
    @pytest.mark.parametrize("wrong", [{"wins_i": -0.5}, {"wins_i": F("comparisons") + 1}], ids=str)
    def test_wins_lie_between_none_and_all(self, wrong, experiment):
        refused(lambda: PairCount.objects.filter(experiment=experiment).update(**wrong))
        assert rebuild_counts(experiment_id=experiment.pk) == {}


class TestHistory:
    @pytest.fixture
    def judgment(self, experiment, annotator, admin) -> Judgment:
        judgment = click(experiment, annotator)
        with lifted():
            Judgment.objects.filter(pk=judgment.pk).update(comment="I am Ann.")
        voided = click(experiment, annotator)
        void_judgment(judgment_id=voided.pk, by=admin, reason="A slip.")
        return judgment

    @pytest.mark.parametrize(
        ("model", "change"),
        [
            (Judgment, {"outcome": 0.5}),
            (Judgment, {"choice": "tie"}),
            (Judgment, {"annotator": None}),
            (Judgment, {"comment": "Other words."}),
            (Judgment, {"created_at": F("comparison__created_at")}),
            (JudgmentVoid, {"reason": ""}),
            (JudgmentVoid, {"by": 1}),
            (AuditEntry, {"sentence": "Nothing happened."}),
            (AuditEntry, {"details": {"count": 3}}),
            (AuditEntry, {"experiment": None}),
        ],
        ids=str,
    )
    def test_rows_are_not_rewritten(self, model, change, judgment):
        if "created_at" in change:
            change = {"created_at": judgment.comparison.created_at}
        before = list(model.objects.order_by("pk").values())
        assert before
        refused(lambda: model.objects.update(**change))
        assert list(model.objects.order_by("pk").values()) == before

    @pytest.mark.parametrize("table", ["engine_judgment", "engine_judgmentvoid", "engine_auditentry"])
    def test_rows_are_not_deleted_by_plain_sql_either(self, table, judgment):
        def delete() -> None:
            with connection.cursor() as cursor:
                cursor.execute(f"DELETE FROM {table}")  # noqa: S608

        refused(delete)

    def test_a_judgment_neither_stands_again_nor_falls_without_a_void(self, judgment):
        voided = Judgment.objects.get(standing=False)
        refused(lambda: Judgment.objects.filter(pk=voided.pk).update(standing=True))
        refused(lambda: Judgment.objects.filter(pk=judgment.pk).update(standing=False))

    def test_a_comment_may_be_emptied(self, judgment):
        Judgment.objects.filter(pk=judgment.pk).update(comment="")
        judgment.refresh_from_db()
        assert judgment.comment == ""

    def test_the_log_of_a_deleted_draft_stays(self, admin):
        draft = make_experiment(running=False)
        entries = list(draft.audit_entries.values_list("pk", flat=True))
        delete_experiment(experiment_id=draft.pk, by=admin)
        kept = AuditEntry.objects.filter(pk__in=entries)
        assert [entry.experiment for entry in kept] == [None] * len(entries) != []

    def test_after_it_was_lifted_it_holds_again(self, judgment):
        with lifted():
            Judgment.objects.filter(pk=judgment.pk).update(reason="Mended.")
        refused(lambda: Judgment.objects.filter(pk=judgment.pk).update(reason="Mended again."))

    def test_an_error_while_it_was_lifted_brings_it_back(self, judgment):
        with pytest.raises(ZeroDivisionError), lifted():
            raise ZeroDivisionError
        refused(lambda: Judgment.objects.filter(pk=judgment.pk).update(reason="Mended."))

    def test_sqlite_has_none_while_a_migration_rebuilds_a_table(self, judgment):
        """It refused to rebuild the experiments' table, which the log's trigger names."""
        append_only.remove_before_migrate(using="default", plan=[])
        refused(lambda: Judgment.objects.filter(pk=judgment.pk).update(reason="Mended."))
        append_only.remove_before_migrate(using="default", plan=["a migration"])
        if connection.vendor == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name LIKE '%keeps%'"
                )
                assert cursor.fetchone() == (0,)
        append_only.install_after_migrate(using="default")
        refused(lambda: Judgment.objects.filter(pk=judgment.pk).update(reason="Mended."))

    def test_every_migrate_makes_them_anew(self, judgment):
        """SQLite drops a table's triggers with the table that a migration rebuilds."""
        with connection.cursor() as cursor:
            for statement in append_only.remove_sql(connection):
                if connection.vendor == "sqlite":
                    cursor.execute(statement)
        append_only.install_after_migrate(using="default")
        refused(lambda: Judgment.objects.filter(pk=judgment.pk).update(reason="Mended."))


def test_nobody_is_shown_the_pair_of_a_judgment_that_was_restored(experiment, annotator, admin):
    old = click(experiment, annotator)
    void_judgment(judgment_id=old.pk, by=admin, reason="A slip.")
    restore_judgment(judgment_id=old.pk)
    shown = []
    while (held := assign_next(experiment_id=experiment.pk, annotator=annotator)) is not None:
        record_answer(experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left")
        shown.append(held.comparison_id)
    assert old.comparison_id not in shown


def test_a_finished_experiment_goes_with_all_its_history_and_nobody_elses(annotator, admin):
    """Only the log and the costs stay."""
    checked = {"n_gold": 1, "practice": 1}
    experiment, other = (make_experiment(ready=True, annotators=(annotator,), **checked) for _ in range(2))
    for each in (experiment, other):
        assert work(each, annotator, 3) == ["practice", "comparison", "comparison"]
        last = Judgment.objects.filter(comparison__experiment=each).latest("pk")
        void_judgment(judgment_id=last.pk, by=admin, reason="A slip.")
    before = {model: model.objects.count() for model in (Judgment, JudgmentVoid, ShowingEvent, AuditEntry)}
    stop(experiment_id=experiment.pk)
    delete_experiment(experiment_id=experiment.pk, by=admin)
    connection.check_constraints()
    assert list(Experiment.objects.all()) == [other]
    for model in (Judgment, JudgmentVoid, ShowingEvent):
        assert 2 * model.objects.count() == before[model] > 0
    assert AuditEntry.objects.count() > before[AuditEntry]
    assert rebuild_counts(experiment_id=other.pk) == {}
