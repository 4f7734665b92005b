"""Actions of an annotator besides judging: reporting, undoing, looking back, staying and leaving."""

import re
import uuid

import pytest
from django.urls import reverse

from engine.models import Assignment, Judgment, JudgmentVoid
from engine.models.append_only import lifted
from engine.selectors import annotators, answers, counts
from engine.selectors.missing import actively_held
from engine.services.experiments import pause, stop
from engine.services.voids import void_annotator
from tests.factories import add_member, assign, assign_all, checked, click, make_experiment, make_user, newest
from tests.markup import Markup, stage, words

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}


@pytest.fixture
def other(experiment):
    user = make_user("other")
    add_member(experiment, user)
    return user


class TestUndo:
    @pytest.fixture
    def url(self, experiment) -> str:
        return reverse("undo", args=[experiment.pk])

    def test_the_newest_own_answer_is_taken_back_and_its_pair_shown_again(
        self, experiment, annotator, other, client_for, url
    ):
        first, newest = click(experiment, annotator), click(experiment, annotator)
        theirs = click(experiment, other)
        response = client_for(annotator).post(url, {"answer": newest.token}, headers=HTMX)
        assert response.status_code == 200
        assert stage(response)["said"] == "Taken back. Choose again."
        assert list(JudgmentVoid.objects.values_list("judgment", "by")) == [(newest.pk, annotator.pk)]
        shown = Assignment.objects.get(token=stage(response)["token"])
        assert (shown.comparison, shown.annotator) == (newest.comparison, annotator)
        assert stage(response)["today"] == "1"
        assert set(counts.standing_judgments(experiment.pk)) == {first, theirs}

    def test_each_undo_goes_one_further_back(self, experiment, annotator, client_for, url):
        clicks = [click(experiment, annotator) for _ in range(3)]
        client = client_for(annotator)
        for _ in range(3):
            client.post(url, newest(experiment, annotator), headers=HTMX)
        voided = list(JudgmentVoid.objects.order_by("pk").values_list("judgment", flat=True))
        assert voided == [each.pk for each in reversed(clicks)]
        assert counts.comparison_count(experiment.pk) == 0

    def test_the_answer_that_the_page_names_is_taken_back_and_repeated_no_other(
        self, experiment, annotator, client_for, url
    ):
        first, second, newest = (click(experiment, annotator) for _ in range(3))
        assign(experiment, annotator)
        client, form = client_for(annotator), {"answer": second.token}
        shown = stage(client.post(url, form, headers=HTMX))
        again = stage(client.post(url, form, headers=HTMX))
        assert again["said"] == "That answer does not count any more."
        # The pair that came back is shown, though the reply to the first request may be lost.
        assert again["token"] == shown["token"]
        assert Assignment.objects.get(token=shown["token"]).comparison == second.comparison
        assert again["newest"] == shown["newest"] == str(newest.token)
        assert set(counts.standing_judgments(experiment.pk)) == {first, newest}

    def test_the_answer_of_somebody_else_cannot_be_named(self, experiment, annotator, other, client_for, url):
        theirs = click(experiment, other)
        shown = stage(client_for(annotator).post(url, {"answer": theirs.token}, headers=HTMX))
        assert (shown["said"], shown["newest"]) == ("That answer does not count any more.", "")
        assert not JudgmentVoid.objects.exists()

    def test_the_page_names_the_newest_answer(self, experiment, annotator, client_for, url):
        client, pair = client_for(annotator), reverse("pair", args=[experiment.pk])

        def named() -> list[str]:
            page = Markup(client.get(pair).content.decode())
            return [
                each.attributes["value"] for each in page.elements if each.attributes.get("name") == "answer"
            ]

        assert named() == [""]
        form = {"token": assign(experiment, annotator).token, "choice": "left"}
        replied = stage(client.post(reverse("judge", args=[experiment.pk]), form, headers=HTMX))
        assert [replied["newest"]] == named() == [str(form["token"])]
        assert stage(client.post(url, {"answer": form["token"]}, headers=HTMX))["newest"] == ""

    @pytest.mark.parametrize("headers", [{}, HTMX], ids=["plain", "htmx"])
    def test_a_page_that_knows_no_answer_takes_none_back_but_learns_of_the_newest(
        self, headers, experiment, annotator, client_for, url
    ):
        """It took the newest answer back, given in another tab, and repeated the one before it too."""
        elsewhere = click(experiment, annotator)
        held = assign(experiment, annotator)
        for _ in range(2):
            told = client_for(annotator).post(url, {"answer": ""}, headers=headers, follow=True)
            said = words(told) + stage(told)["said"]
            assert "Your newest answer was given on another page. Press Undo again to take it back." in said
            assert stage(told)["token"] == str(held.token)
        assert str(elsewhere.token) in told.content.decode()
        assert not JudgmentVoid.objects.exists()

    @pytest.mark.parametrize("headers", [{}, HTMX], ids=["plain", "htmx"])
    def test_with_nothing_to_take_back_it_says_so_and_leaves_the_page_as_it_is(
        self, headers, experiment, annotator, other, client_for, url
    ):
        held = assign(experiment, annotator)
        click(experiment, other)
        response = client_for(annotator).post(url, headers=headers, follow=True)
        assert "You have no answer to take back." in words(response) + stage(response)["said"]
        assert stage(response)["token"] == str(held.token)
        assert not JudgmentVoid.objects.exists()

    def test_without_javascript_it_leads_to_the_pair_that_was_taken_back(
        self, experiment, annotator, client_for, url
    ):
        judgment = click(experiment, annotator)
        response = client_for(annotator).post(url, {"answer": judgment.token}, follow=True)
        assert response.redirect_chain == [(reverse("pair", args=[experiment.pk]), 302)]
        assert "Taken back. Choose again." in words(response)
        assert Assignment.objects.get(token=stage(response)["token"]).comparison == judgment.comparison

    def test_a_made_up_screen_is_refused(self, experiment, annotator, client_for, url):
        click(experiment, annotator)
        assert client_for(annotator).post(url, {"answer": "x"}).status_code == 400
        assert not JudgmentVoid.objects.exists()


class TestHistory:
    @pytest.fixture
    def url(self, experiment) -> str:
        return reverse("history", args=[experiment.pk])

    def test_it_shows_ones_own_answers_newest_first_and_nobody_elses(
        self, experiment, annotator, other, client_for, url
    ):
        mine = [click(experiment, annotator, "left"), click(experiment, annotator, "right")]
        theirs = click(experiment, other)
        page = client_for(annotator).get(url)
        addresses = [
            e.attributes["action"] for e in Markup(page.content.decode()).elements if e.tag == "form"
        ]
        reopen = [reverse("reopen", args=[experiment.pk, each.token]) for each in reversed(mine)]
        assert [address for address in addresses if "reopen" in address] == reopen
        assert words(page).index("B is better") < words(page).index("A is better")
        assert theirs.comparison.task.prompt not in words(page) or theirs.comparison.task_id in {
            each.comparison.task_id for each in mine
        }

    def test_what_was_taken_back_is_no_answer_any_more(self, experiment, annotator, client_for, url):
        judgment = click(experiment, annotator)
        client = client_for(annotator)
        client.post(reverse("undo", args=[experiment.pk]), {"answer": judgment.token})
        assert "You have not answered anything here yet." in words(client.get(url))

    def test_checks_do_not_outlast_the_judgments_that_somebody_voids(self, annotator, admin, client_for):
        experiment = make_experiment(ready=True, n_gold=1, annotators=(annotator,))
        client, url = client_for(annotator), reverse("history", args=[experiment.pk])

        click(experiment, annotator)
        checked(experiment, annotator)
        assert client.get(url).content.decode().count("/reopen/") == 2
        void_annotator(experiment_id=experiment.pk, annotator=annotator, by=admin, reason="A robot.")
        assert "You have not answered anything here yet." in words(client.get(url))
        assert answers.judged_today(experiment.pk, annotator) == 0
        assert answers.newest_answer(experiment, annotator) is None
        assert annotators.check_results(experiment) == {(annotator.username, "gold"): (1, 1)}
        checked(experiment, annotator)
        assert client.get(url).content.decode().count("/reopen/") == 1

    def test_its_length_and_its_cost_are_bounded(
        self, annotator, client_for, settings, django_assert_max_num_queries
    ):
        settings.BUFFER_MIN = settings.BUFFER_MAX = 55
        experiment = make_experiment(ready=True, annotators=(annotator,), n_tasks=20)
        for _ in range(55):
            click(experiment, annotator)
        client, given = client_for(annotator), []
        for number in range(1, 6):
            with django_assert_max_num_queries(9):
                page = client.get(reverse("history", args=[experiment.pk]), {"page": number})
            assert f"Page {number} of 5" in words(page)
            tokens = re.findall(r"history/([^/]+)/reopen/", page.content.decode())
            assert len(tokens) == 10
            given += tokens
        newest = Judgment.objects.order_by("-pk").values_list("token", flat=True)[:50]
        assert given == [str(token) for token in newest]
        assert "Older" not in words(page)
        german = client.get(reverse("history", args=[experiment.pk]), headers={"Accept-Language": "de"})
        assert "Seite 1 von 5 Ältere" in words(german)

    def test_texts_are_only_text(self, experiment, annotator, client_for, url):
        judgment = click(experiment, annotator)
        hostile = '</dd><script>alert("history")</script>'
        with lifted():
            Judgment.objects.update(comment=hostile)
        for response in (judgment.comparison.response_i, judgment.comparison.response_j):
            type(response).objects.filter(pk=response.pk).update(text=hostile)
        type(judgment.comparison.task).objects.update(prompt=hostile)
        page = client_for(annotator).get(url)
        assert "<script>alert" not in page.content.decode()
        assert words(page).count('alert("history")') == 4

    @pytest.mark.parametrize("change", [pause, stop])
    def test_nothing_is_reopened_where_nothing_runs(self, change, experiment, annotator, client_for, url):
        click(experiment, annotator)
        change(experiment_id=experiment.pk)
        assert "/reopen/" not in client_for(annotator).get(url).content.decode()


class TestReopen:
    def test_an_older_answer_is_taken_back_and_its_pair_shown(self, experiment, annotator, client_for):
        older, newer = click(experiment, annotator), click(experiment, annotator)
        response = client_for(annotator).post(
            reverse("reopen", args=[experiment.pk, older.token]), follow=True
        )
        assert answers.newest_answer(experiment, annotator) == newer
        assert Assignment.objects.get(token=stage(response)["token"]).comparison == older.comparison

    def test_the_answers_of_others_and_of_other_experiments_do_not_exist(
        self, experiment, annotator, other, client_for
    ):
        theirs = click(experiment, other)
        elsewhere = click(make_experiment(ready=True, annotators=(annotator,)), annotator)
        for token in (theirs.token, elsewhere.token, assign(experiment, annotator).token, uuid.uuid4()):
            url = reverse("reopen", args=[experiment.pk, token])
            assert client_for(annotator).post(url).status_code == 404
        assert not JudgmentVoid.objects.exists()

    def test_twice_is_once_and_leads_to_the_pair_that_waits(self, experiment, annotator, client_for):
        """It led to 404. People press the button again if the reply is lost."""
        judgment = click(experiment, annotator)
        url = reverse("reopen", args=[experiment.pk, judgment.token])
        first, again = (client_for(annotator).post(url, follow=True) for _ in range(2))
        assert "Taken back. Choose again." in words(first)
        assert "That answer does not count any more." in words(again)
        assert stage(first)["token"] == stage(again)["token"]
        assert Assignment.objects.get(token=stage(again)["token"]).comparison == judgment.comparison
        assert JudgmentVoid.objects.count() == 1


class TestBeatAndLeave:
    def test_a_beat_says_that_somebody_is_here_and_replies_nothing(
        self, experiment, annotator, other, client_for
    ):
        assign_all(experiment_id=experiment.pk, annotator=annotator, n_wanted=2)
        before = list(Assignment.objects.order_by("pk").values_list("expires_at", flat=True))
        url = reverse("beat", args=[experiment.pk])
        reply = client_for(annotator).post(url)
        assert (reply.status_code, reply.content) == (204, b"")
        after = list(Assignment.objects.order_by("pk").values_list("expires_at", flat=True))
        assert all(late > early for early, late in zip(before, after, strict=True))
        assert client_for(other).post(url).status_code == 204
        assert list(Assignment.objects.order_by("pk").values_list("expires_at", flat=True)) == after

    @pytest.mark.parametrize("name", ["leave", "logout"])
    def test_who_leaves_keeps_their_pairs_and_nobody_waits_for_them(
        self, name, experiment, annotator, other, client_for
    ):
        held = assign_all(experiment_id=experiment.pk, annotator=annotator, n_wanted=2)
        address = reverse("leave", args=[experiment.pk])
        assert client_for(other).post(address).status_code == 204
        assert len(actively_held(experiment)) == 2
        client_for(annotator).post(address if name == "leave" else reverse("logout"))
        assert actively_held(experiment) == []
        page = client_for(annotator).get(reverse("pair", args=[experiment.pk]))
        assert stage(page)["token"] == str(held[0].token)
