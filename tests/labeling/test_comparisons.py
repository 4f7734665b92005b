"""The comparison browser: filters, leafing, one comparison in full, voiding and restoring."""

import re

import pytest
from django.contrib.messages import get_messages
from django.db import connection
from django.urls import reverse

from engine.core.samplers import SAMPLERS
from engine.models import Comparison, Experiment, Flag, Judgment, JudgmentVoid, Response, Task
from engine.models.append_only import lifted
from engine.models.full_text import responses_with
from engine.selectors import browsing, counts
from engine.selectors.policies import policy_names
from engine.services.experiments import stop
from labeling.dashboard.explanations import explain
from tests.factories import add_member, checked, click, click_on, discard_pending, make_experiment, make_user
from tests.markup import text_of

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


def listed(client, experiment: Experiment, **query: object) -> list[int]:
    response = client.get(reverse("comparisons", args=[experiment.pk]), query)
    assert response.status_code == 200
    return numbers(response.content.decode(), experiment)


def content(client, page: str, experiment: Experiment) -> str:
    return client.get(reverse(page, args=[experiment.pk])).content.decode()


def numbers(page: str, experiment: Experiment) -> list[int]:
    return [int(pk) for pk in re.findall(rf"/experiments/{experiment.pk}/comparisons/(\d+)/", page)]


def opened(client, comparison: Comparison) -> str:
    response = client.get(reverse("comparison", args=[comparison.experiment_id, comparison.pk]))
    assert response.status_code == 200
    return response.content.decode()


def said(response) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


class TestList:
    def test_all_of_them_newest_first(self, experiment, viewer, client_for):
        discard_pending(experiment)
        expected = list(experiment.comparisons.order_by("-pk").values_list("pk", flat=True))
        assert listed(client_for(viewer), experiment) == expected

    def test_leafing_shows_each_once_both_ways(self, experiment, viewer, client_for):
        row = experiment.comparisons.first()
        Comparison.objects.bulk_create(
            Comparison(
                experiment=experiment, number=1000 + number, policy_i=row.policy_i, policy_j=row.policy_j,
                task=row.task, response_i=row.response_i, response_j=row.response_j, i_on_left=True,
            )
            for number in range(120)
        )  # fmt: skip
        discard_pending(experiment)
        expected = list(experiment.comparisons.order_by("-pk").values_list("pk", flat=True))
        client, address = client_for(viewer), reverse("comparisons", args=[experiment.pk])
        for rel, start in (("next", address), ("prev", f"{address}?after=0")):
            seen, url = [], start
            for _ in range(10):
                page = client.get(url).content.decode()
                seen.append(numbers(page, experiment))
                link = re.search(rf'rel="{rel}" href="([^"]+)"', page)
                if link is None:
                    break
                url = address + link[1].replace("&amp;", "&")
            ordered = seen if rel == "next" else seen[::-1]
            assert [pk for some in ordered for pk in some] == expected
            assert max(map(len, seen)) == 50

    def test_each_experiment_numbers_its_own_from_one(self, experiment, viewer, admin, client_for):
        another = make_experiment(ready=True)
        for some, reader in ((experiment, viewer), (another, admin)):
            discard_pending(some)
            rows = list(some.comparisons.order_by("pk"))
            assert [row.number for row in rows] == list(range(1, len(rows) + 1))
            page = content(client_for(reader), "comparisons", some)
            link = reverse("comparison", args=[some.pk, rows[0].pk])
            assert f'<a href="{link}">1</a>' in page
            assert "<h1>Comparison 1</h1>" in opened(client_for(reader), rows[0])

    def test_a_part_of_a_response_is_found(self, experiment, viewer, client_for, monkeypatch):
        client = client_for(viewer)
        discard_pending(experiment)
        comparison = experiment.comparisons.order_by("pk")[1]
        for text, looked_for, found in (
            ("A Needle in hay", "needle", True),
            ("A Needle in hay", "eedl", True),
            ("A Needle in hay", "e i", True),
            ("A Needle in hay", "in", True),
            ("A Needle in hay", "needles", False),
            ("ÄPFEL und Birnen", "äpfel", True),
            ('print("100%_sure")', '"100%_sure"', True),
            ('print("100%_sure")', "100%sure", False),
            ("Überall “so” * OR (x)", "* or (", True),
            ("数えるのは楽しい", "のは楽", True),
        ):
            Response.objects.filter(policy__experiment=experiment).update(text="1 2 3")
            assert listed(client, experiment, text=looked_for) == []
            Response.objects.filter(pk=comparison.response_i_id).update(text=text)
            expected = [comparison.pk] if found else []
            assert listed(client, experiment, text=looked_for) == expected
            # Found in the index or in one comparison after the other, the same are found.
            with monkeypatch.context() as patched:
                patched.setattr(browsing, "_RARE", -1)
                if text.isascii() or connection.vendor == "postgresql":  # SQLite knows capitals of ASCII only
                    assert listed(client, experiment, text=looked_for) == expected

    def test_the_text_of_a_task_is_found(self, experiment, viewer, client_for):
        discard_pending(experiment)
        task = experiment.tasks.first()
        Task.objects.filter(pk=task.pk).update(prompt="How many Needles are there?")
        expected = experiment.comparisons.filter(task=task).order_by("-pk").values_list("pk", flat=True)
        assert listed(client_for(viewer), experiment, text="needles") == list(expected)

    def test_responses_are_looked_up_in_an_index(self, experiment):
        used = "VIRTUAL TABLE INDEX"
        if connection.vendor == "postgresql":
            used = "engine_response_trigrams"
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL enable_seqscan = off")
                cursor.execute("SET LOCAL enable_indexscan = off")
        assert used in Response.objects.filter(responses_with("needle")).explain()

    def test_leafing_keeps_the_filter(self, experiment, viewer, client_for):
        discard_pending(experiment)
        page = client_for(viewer).get(
            reverse("comparisons", args=[experiment.pk]), {"policy": "P1", "before": 10**9}
        )
        assert 'href="?policy=P1&amp;after=' in page.content.decode()

    def test_what_cannot_be_is_said_so(self, experiment, viewer, client_for):
        client, address = client_for(viewer), reverse("comparisons", args=[experiment.pk])
        for query in (
            {"policy": "P9"},
            {"before": "x"},
            {"after": "-1"},
            {"before": "9" * 30},
            {"state": "x"},
        ):
            assert client.get(address, query).status_code == 400, query

    def test_more_rows_cost_no_more_queries(
        self, experiment, annotator, viewer, client_for, django_assert_max_num_queries
    ):
        click_on(experiment, annotator, 20)
        client = client_for(viewer)
        with django_assert_max_num_queries(15):
            listed(client, experiment)


class TestOne:
    def test_texts_sides_people_and_the_reason_of_the_pick(self, experiment, annotator, viewer, client_for):
        judgment = click(experiment, annotator)
        with lifted():
            Judgment.objects.filter(pk=judgment.pk).update(comment="Nicer.")
        comparison = judgment.comparison
        Response.objects.filter(pk=comparison.left.pk).update(
            text="LEFT-TEXT", leak="I am P1", guardrail="output"
        )
        Response.objects.filter(pk=comparison.right.pk).update(text="<script>RIGHT-TEXT</script>")
        Flag.objects.create(comparison=comparison, annotator=annotator, reason="broken", comment="Cut off.")
        checked(experiment, annotator, kind="repeat", repeated=judgment, passed=False)
        page = opened(client_for(viewer), comparison)
        assert page.index("LEFT-TEXT") < page.index("RIGHT-TEXT")
        assert "<script>RIGHT" not in page
        for expected in (
            comparison.task.prompt, "Nicer.", "by ann", "Cut off.", "I am P1", "replaced this response",
            "a different answer", "The balanced sampler", "evidence against being the best",
            "Number of the choice", "s after it was handed out",
        ):  # fmt: skip
            assert expected in page, expected

    def test_the_sides_are_named_as_they_were_shown(self, experiment, annotator, viewer, client_for):
        client = client_for(viewer)
        discard_pending(experiment)
        for comparison in experiment.comparisons.all()[:4]:
            page = opened(client, comparison)
            left, right = comparison.policy_i, comparison.policy_j
            if not comparison.i_on_left:
                left, right = right, left
            names = policy_names(experiment)
            for side, policy in (("A, left", left), ("B, right", right)):
                name = names[policy.index]
                named = rf"<a [^>]*>{name.name}</a>"
                assert re.search(rf"Response {side}</h3>\s*<p>{named}", page)
            name_i, name_j = (names[each.index].name for each in (comparison.policy_i, comparison.policy_j))
            assert re.search(
                rf"against being the best was [\d.]+ for {name_i} and [\d.]+ for {name_j};", page
            )

    def test_every_sampler_is_explained(self):
        for sampler in SAMPLERS:
            [sentence], _ = explain(Comparison(plan={"sampler": sampler}), [])
            assert sentence != f"The sampler {sampler} chose this pair."


class TestVoidAndRestore:
    def post(self, client, name: str, experiment: Experiment, judgment: Judgment, **data: str):
        return client.post(reverse(name, args=[experiment.pk, judgment.pk]), data)

    def test_void_then_restore(
        self, experiment, annotator, editor, client_for, sent, django_capture_on_commit_callbacks
    ):
        client, judgment = client_for(editor), click(experiment, annotator)
        address = reverse("void", args=[experiment.pk, judgment.pk])
        with django_capture_on_commit_callbacks(execute=True):
            response = self.post(client, "void", experiment, judgment, reason="Spam")
        assert response["Location"] == address
        void = JudgmentVoid.objects.get(judgment=judgment)
        assert (void.by, void.reason, void.fate) == (editor, "Spam", "voided")
        for page in (client.get(address).content.decode(), opened(client, judgment.comparison)):
            assert "Voided by editor" in page
            assert "Spam" in page
        with django_capture_on_commit_callbacks(execute=True):
            response = self.post(client, "restore", experiment, judgment)
        assert response["Location"] == address
        assert counts.comparison_count(experiment.pk) == 1
        page = opened(client, judgment.comparison)
        assert f"Restored as no. {Judgment.objects.get(restores=judgment).pk}" in page
        assert sent == [(experiment.pk,)] * 2

    @pytest.mark.parametrize("overlap", [1, 2])
    def test_the_page_and_its_replies_are_the_same_whatever_was_chosen(self, annotator, client_for, overlap):
        """All that differs between two judgments is what the texts, the clock and the numbers say."""
        seen = []
        for choice in ("left", "right", "tie"):
            other, editor = make_user(), make_user(f"editor-{choice}")
            experiment = make_experiment(
                ready=True, annotators=(annotator, other), overlap=overlap, allow_tie=True
            )
            add_member(experiment, editor, "editor")
            judgment = click(experiment, annotator, choice)
            Response.objects.filter(policy__experiment=experiment).update(text="The same text")
            client = client_for(editor)
            address = reverse("void", args=[experiment.pk, judgment.pk])
            pages = [client.get(address)]
            pages.append(client.post(address, {"reason": ""}))
            pages.append(client.post(address, {"reason": "Spam"}, follow=True))
            pages.append(client.post(reverse("restore", args=[experiment.pk, judgment.pk]), follow=True))
            said = " ".join(text_of(page.content.decode()) for page in pages)
            assert ("The same text" in said) == (overlap == 1), "an unfinished pair is hidden"
            assert not re.search(r"Prompt \d|\bP\d\b|Decided|Tie|preferred", said)
            said = said.replace(judgment.comparison.task.prompt, "TASK").replace(editor.username, "EDITOR")
            seen.append(re.sub(r"\d+", "0", said))
        assert len(set(seen)) == 1

    def test_it_shows_who_judged_how_fast_and_which_checks_they_passed(
        self, experiment, annotator, editor, client_for
    ):
        judgment = click(experiment, annotator)
        with lifted():
            Judgment.objects.filter(pk=judgment.pk).update(comment="In a hurry.", reason="secret reason")
        checked(experiment, annotator, kind="repeat", repeated=judgment, passed=False)
        Flag.objects.create(
            comparison=judgment.comparison, annotator=annotator, reason="broken", comment="Cut off."
        )
        address = reverse("void", args=[experiment.pk, judgment.pk])
        said = text_of(client_for(editor).get(address).content.decode())
        for expected in (
            "ann", "In a hurry.", "a different answer", "0 of 1 passed", "Cut off.", "handed out",
            judgment.comparison.task.prompt, judgment.comparison.left.text,
        ):  # fmt: skip
            assert expected in said, expected
        assert "secret reason" not in said

    @pytest.mark.parametrize("reason", ["", " ", "x" * 201])
    def test_a_void_needs_a_reason(self, reason, experiment, annotator, editor, client_for):
        judgment = click(experiment, annotator)
        response = self.post(client_for(editor), "void", experiment, judgment, reason=reason)
        assert response.status_code == 400
        assert "Give a reason" in text_of(response.content.decode())
        assert not JudgmentVoid.objects.exists()

    def test_what_is_refused_is_explained(self, experiment, annotator, editor, client_for):
        client, judgment = client_for(editor), click(experiment, annotator)
        assert "cannot be restored" in said(self.post(client, "restore", experiment, judgment))[0]
        stop(experiment_id=experiment.pk)
        assert "final" in said(self.post(client, "void", experiment, judgment, reason="Spam"))[-1]
        assert not JudgmentVoid.objects.exists()


class TestVoidAnnotator:
    def test_all_of_theirs_at_once_without_a_look_at_what_it_changes(
        self, annotator, editor, client_for, sent, django_capture_on_commit_callbacks
    ):
        other = make_user("bob")
        experiment = make_experiment(ready=True, annotators=(annotator, other))
        add_member(experiment, editor, "editor")
        click_on(experiment, annotator, 4)
        click_on(experiment, other, 2)
        client = client_for(editor)
        url = reverse("void_annotator", args=[experiment.pk, annotator.pk])
        page = client.get(reverse("comparisons", args=[experiment.pk]), {"annotator": "ann"})
        assert f'href="{url}"' in page.content.decode()
        seen = client.get(url).content.decode()
        assert 'data-judgments="4"' in seen
        assert not re.search(r"Prompt \d|\bP\d\b|Leader|Claim", text_of(seen))
        nothing = client.post(url)
        assert (nothing.status_code, JudgmentVoid.objects.count()) == (400, 0)
        assert "Give a reason" in nothing.content.decode()
        sent.clear()
        with django_capture_on_commit_callbacks(execute=True):
            response = client.post(url, {"reason": "Spam"})
        assert response["Location"] == reverse("annotator", args=[experiment.pk, annotator.pk])
        assert said(response)[-1] == "4 judgments of ann voided."
        assert counts.comparison_count(experiment.pk) == 2
        assert sent == [(experiment.pk,)]
        assert "ann has no judgments here." in text_of(client.get(url).content.decode())

    def test_who_has_judged_nothing_and_what_is_final(self, experiment, annotator, editor, client_for):
        client = client_for(editor)
        assert client.get(reverse("void_annotator", args=[experiment.pk, editor.pk])).status_code == 404
        click(experiment, annotator)
        stop(experiment_id=experiment.pk)
        response = client.post(
            reverse("void_annotator", args=[experiment.pk, annotator.pk]), {"reason": "Spam"}
        )
        assert said(response) == ["The experiment has concluded; its judgments are final."]
        assert not JudgmentVoid.objects.exists()
