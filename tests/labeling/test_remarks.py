"""The inbox of flags and comments."""

import re
from datetime import timedelta

import pytest
from django.urls import reverse

from engine.models import AuditEntry, Comparison, Experiment, Flag, Judgment, clock
from engine.models.append_only import lifted
from engine.selectors.remarks import remarked_comparisons
from engine.services.voids import settle_remarks
from tests.factories import add_member, click, make_experiment, make_user
from tests.markup import text_of

pytestmark = pytest.mark.django_db


def flagged(comparison: Comparison, by, comment: str = "") -> Flag:
    Comparison.objects.filter(pk=comparison.pk).update(state="discarded")
    return Flag.objects.create(comparison=comparison, annotator=by, reason="broken", comment=comment)


def commented(experiment: Experiment, by, comment: str) -> Judgment:
    judgment = click(experiment, by)
    with lifted():
        Judgment.objects.filter(pk=judgment.pk).update(comment=comment)
    return judgment


def inbox(client, experiment: Experiment, **query: str) -> str:
    response = client.get(reverse("remarks", args=[experiment.pk]), query)
    assert response.status_code == 200
    return response.content.decode()


def settle(client, comparison: Comparison, until: object):
    address = reverse("settle_remarks", args=[comparison.experiment_id, comparison.pk])
    return client.post(address, {"until": str(until)})


def test_flags_and_comments_stand_on_one_page(experiment, annotator, editor, client_for):
    judgment = commented(experiment, annotator, "The <first> is kinder.")
    flag = flagged(experiment.comparisons.filter(state="ready").last(), annotator, "Cut off.")
    elsewhere = make_experiment(ready=True, annotators=(annotator,))
    commented(elsewhere, annotator, "Of another experiment.")
    page = inbox(client_for(editor), experiment)
    said = text_of(page)
    for expected in ("The <first> is kinder.", "Cut off.", "A response is broken", "ann"):
        assert expected in said
    assert f"Comparison {judgment.comparison.number}" in said
    assert f"Comparison {flag.comparison.number}" in said
    assert "Of another experiment." not in said


def test_the_newest_three_stand_on_the_result_for_who_may_read_them(annotator, client_for, settings):
    settings.BUFFER_MIN = settings.BUFFER_MAX = 6
    experiment = make_experiment(ready=True, annotators=(annotator,))
    editor, viewer = make_user(), make_user()
    add_member(experiment, editor, "editor")
    add_member(experiment, viewer, "viewer")
    for n in range(4):
        commented(experiment, annotator, f"Remark {n}.")
    settle(client_for(editor), commented(experiment, annotator, "Settled.").comparison, clock.now())
    result = reverse("dashboard", args=[experiment.pk])
    said = text_of(client_for(editor).get(result).content.decode())
    assert re.findall(r"Remark \d\.|Settled\.", said) == ["Remark 3.", "Remark 2.", "Remark 1."]
    assert "Remark" not in client_for(viewer).get(result).content.decode()


def test_done_is_kept_in_the_log_and_ends_with_the_next_remark(experiment, annotator, editor, client_for):
    client, comparison = client_for(editor), experiment.comparisons.filter(state="ready").last()
    flag = flagged(comparison, annotator, "Cut off.")
    assert settle(client, comparison, flag.created_at.isoformat()).status_code == 302
    assert "Cut off." not in inbox(client, experiment)
    assert "Cut off." in inbox(client, experiment, show="done")
    [entry] = AuditEntry.objects.filter(action="remarks_done")
    assert (entry.by, entry.text) == (
        editor,
        f"Marked the flags and comments on comparison {comparison.number} as done.",
    )
    assert not settle_remarks(comparison_id=comparison.pk, by=editor, until=flag.created_at)
    assert AuditEntry.objects.filter(action="remarks_done").count() == 1
    flagged(comparison, editor, "Still cut off.")
    assert "Still cut off." in inbox(client, experiment)
    assert "Still cut off." not in inbox(client, experiment, show="done")


def test_what_was_not_read_yet_stays_open(experiment, annotator, editor):
    comparison = experiment.comparisons.filter(state="ready").last()
    flag = flagged(comparison, annotator)
    later = flagged(comparison, editor)
    Flag.objects.filter(pk=later.pk).update(created_at=flag.created_at + timedelta(milliseconds=1))
    settle_remarks(comparison_id=comparison.pk, by=editor, until=flag.created_at)
    assert list(remarked_comparisons(experiment, done=False)) == [comparison]
    assert list(remarked_comparisons(experiment, done=True)) == []


def test_an_answer_that_was_taken_back_says_nothing(experiment, annotator, editor, client_for):
    judgment = commented(experiment, annotator, "A slip.")
    with lifted():
        Judgment.objects.filter(pk=judgment.pk).update(standing=False)
    assert "A slip." not in inbox(client_for(editor), experiment)


def test_everybody_reads_of_finished_pairs_only(experiment, annotator, owner, client_for):
    commented(experiment, annotator, "Of a finished pair.")
    pending = experiment.comparisons.filter(state="ready").last()
    Flag.objects.create(comparison=pending, annotator=annotator, reason="broken", comment="Of an open pair.")
    client = client_for(owner)
    result = client.get(reverse("dashboard", args=[experiment.pk])).content.decode()
    for page in (inbox(client, experiment), result):
        assert "Of a finished pair." in page
        assert "Of an open pair." not in page


def test_a_page_that_is_out_of_date_is_refused(experiment, annotator, editor, client_for):
    comparison = experiment.comparisons.filter(state="ready").last()
    flagged(comparison, annotator)
    assert settle(client_for(editor), comparison, "yesterday").status_code == 400
    comparison.refresh_from_db()
    assert comparison.remarks_done_at is None


def test_the_inbox_shows_one_tag_of_the_tasks(experiment, annotator, editor, client_for):
    client, comparison = client_for(editor), experiment.comparisons.filter(state="ready").last()
    flagged(comparison, annotator, "Cut off.")
    assert 'name="tag"' not in inbox(client, experiment), "no task has one"
    experiment.tasks.filter(pk=comparison.task_id).update(tags=["sums"])
    experiment.tasks.exclude(pk=comparison.task_id).update(tags=["rhymes"])
    assert "Cut off." in inbox(client, experiment, tag="sums")
    others = inbox(client, experiment, tag="rhymes", show="done")
    assert "No flags or comments on tasks with this tag" in others
    assert '<input type="hidden" name="show" value="done">' in others
    assert "is not one of the available choices" in inbox(client, experiment, tag="\x00")
