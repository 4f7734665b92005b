"""The annotator's page."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from engine.models import Assignment, Comparison, Experiment
from engine.selectors import admission
from engine.selectors.policies import policy_names
from engine.services.experiments import archive, pause, start, stop
from engine.services.planning import advance
from tests.backends import ScriptedBackend
from tests.factories import assign_all, certify, click_on, make_experiment, make_user, newest, write_responses
from tests.markup import Markup, stage, words

pytestmark = pytest.mark.django_db


@pytest.fixture
def url(experiment) -> str:
    return reverse("pair", args=[experiment.pk])


def test_it_shows_the_task_the_question_and_both_responses(experiment, annotator, client_for, url):
    html = client_for(annotator).get(url).content.decode()
    held = Assignment.objects.get()
    comparison = held.comparison
    assert comparison.task.prompt in html
    assert experiment.question in html
    left, right = html.index(f">{comparison.left.text}</p>"), html.rindex(f">{comparison.right.text}</p>")
    assert html.index('id="label-a"') < left < html.index('id="label-b"') < right
    assert f'name="token" value="{held.token}"' in html
    assert reverse("judge", args=[experiment.pk]) in html
    assert reverse("skip", args=[experiment.pk]) in html


def test_for_htmx_it_is_only_the_part_that_changes(annotator, client_for, url):
    part = client_for(annotator).get(url, headers={"HX-Request": "true"}).content.decode()
    assert part.lstrip().startswith('<div id="stage"')
    assert "<html" not in part
    assert str(Assignment.objects.get().token) in part


def test_only_the_whole_page_has_a_csrf_token(annotator, client_for, url):
    """Its script sends that one with each request, so a new one in each reply would be for nothing."""
    client = client_for(annotator)
    page = client.get(url)
    assert "csrfmiddlewaretoken" in page.content.decode()
    assert "csrftoken" in page.cookies
    part = client.get(url, headers={"HX-Request": "true"})
    assert "csrfmiddlewaretoken" not in part.content.decode()
    assert "csrftoken" not in part.cookies


def test_a_head_request_holds_no_pair(annotator, client_for, url):
    response = client_for(annotator).head(url)
    assert (response.status_code, response.content) == (200, b"")
    assert not Assignment.objects.exists()


def test_when_nothing_is_ready_it_says_so_and_looks_again_by_itself(annotator, client_for):
    experiment = make_experiment(annotators=(annotator,))
    url = reverse("pair", args=[experiment.pk])
    html = client_for(annotator).get(url).content.decode()
    assert "The next pair is on its way" in html
    assert f'hx-get="{url}?waits=1"' in html
    assert 'hx-trigger="load delay:400ms, every 1.5s"' in html


def test_a_page_that_waits_is_shown_the_pair_once_there_is_one(annotator, client_for):
    experiment = make_experiment(annotators=(annotator,))
    client, url = client_for(annotator), reverse("pair", args=[experiment.pk])
    htmx = {"HX-Request": "true"}
    client.get(url)
    with CaptureQueriesContext(connection) as captured:
        told = client.get(url, {"waits": 1}, headers=htmx)
    assert (told.status_code, told.content) == (204, b"")
    assert len(captured) <= 6, [each["sql"] for each in captured]
    # Nothing that planning or a click may wait for.
    assert not any("FOR NO KEY" in each["sql"] for each in captured)
    changed = [each["sql"].split()[1] for each in captured if each["sql"].startswith("UPDATE")]
    assert changed == ['"engine_allowance"']
    write_responses()
    assert "token" in stage(client.get(url, {"waits": 1}, headers=htmx))


def test_a_person_who_finds_no_pair_wakes_the_planner_once(annotator, client_for, monkeypatch):
    experiment = make_experiment(annotators=(annotator,))
    client, url = client_for(annotator), reverse("pair", args=[experiment.pk])
    woken: list[int] = []
    monkeypatch.setattr("labeling.annotation.waiting_annotators.wake_planner", woken.append)
    client.get(url)
    assert woken == [experiment.pk]
    client.get(url, {"waits": 1}, headers={"HX-Request": "true"})
    assert woken == [experiment.pk]


def test_a_crowd_that_comes_at_once_has_a_pair_each_after_one_round(client_for, settings):
    settings.BUFFER_MIN, settings.BUFFER_MAX = 2, 100
    crowd = [make_user() for _ in range(6)]
    experiment = make_experiment(ready=True, annotators=crowd)
    url = reverse("pair", args=[experiment.pk])
    found = [bool(stage(client_for(person).get(url)).get("token")) for person in crowd]
    assert not all(found)
    advance(experiment_id=experiment.pk)
    write_responses()
    assert all(stage(client_for(person).get(url)).get("token") for person in crowd)


def test_a_page_that_waits_finds_the_pair_that_another_tab_holds(annotator, client_for, experiment, url):
    client, htmx = client_for(annotator), {"HX-Request": "true"}
    held = stage(client.get(url))["token"]
    Comparison.objects.filter(state="ready").update(state="discarded")
    assert stage(client.get(url, {"waits": 1}, headers=htmx))["token"] == held


ENDINGS = {
    "certified": "Finished. Thank you! This experiment has its answer",
    "no_single_best": "Finished. Thank you! The answers show that no single alternative is the best",
    "budget": "They were not enough to decide",
    "stopped": "Stopped. Thank you! This experiment was stopped before it was decided",
    "archived": "Archived This experiment is in the archive",
    "paused": "Paused This experiment is paused",
}


@pytest.mark.parametrize("how", ENDINGS)
def test_every_ending_is_told_as_what_it_is(how, experiment, annotator, client_for, url):
    """An annotator of an experiment stopped at 2% read “This experiment has its answer”."""
    if how == "paused":
        pause(experiment_id=experiment.pk)
    else:
        stop(experiment_id=experiment.pk)
        Experiment.objects.update(conclusion="stopped" if how == "archived" else how)
        if how == "archived":
            archive(experiment_id=experiment.pk, by=None)
    told = words(client_for(annotator).get(url))
    assert [each for each, text in ENDINGS.items() if text in told] == [how]
    assert not Assignment.objects.exists()


@pytest.mark.parametrize(("told", "conclusion", "named"), [
    (True, "certified", True), (False, "certified", False),
    (True, "stopped", False), (True, "no_single_best", False),
])  # fmt: skip
def test_the_outcome_is_told_at_the_end_where_the_owner_allows_it(
    told, conclusion, named, experiment, annotator, client_for, url
):
    Experiment.objects.update(tell_outcome=told)
    client = client_for(annotator)
    winner = experiment.policies.get(index=1)
    sentence = f"Your group preferred “{policy_names(experiment)[winner.index].name}”."
    assert sentence not in words(client.get(reverse("home")))
    stop(experiment_id=experiment.pk)
    Experiment.objects.update(conclusion=conclusion, winner=winner)
    assert (sentence in words(client.get(url))) == named


def test_the_end_says_thanks_with_numbers_and_leads_to_the_next_experiment(
    experiment, annotator, client_for, url
):
    click_on(experiment, annotator, 2)
    others = make_experiment(ready=True, annotators=(annotator,))
    make_experiment(annotators=(annotator,))  # which has no pair yet
    stop(experiment_id=experiment.pk)
    page = client_for(annotator).get(url)
    assert "Thank you for your 2 answers. All of you together gave 2." in words(page)
    assert stage(page)["left"] == ""
    markup = Markup(page.content.decode())
    links = {each.attributes.get("href") for each in markup.elements if each.tag == "a"}
    assert reverse("pair", args=[others.pk]) in links
    assert len({link for link in links if link and link.startswith("/label/")} - {f"{url}history/"}) == 1


def test_owners_are_asked_at_the_end_whether_the_outcome_is_told(
    experiment, annotator, admin, client_for, url
):
    client, result = client_for(admin), reverse("dashboard", args=[experiment.pk])
    tell = reverse("tell_outcome", args=[experiment.pk])
    assert tell not in client.get(result).content.decode()
    certify(experiment, winner=1)
    assert tell in client.get(result).content.decode()
    sentence = f"Your group preferred “{policy_names(experiment)[1].name}”."
    assert sentence not in words(client_for(annotator).get(url))
    client.post(tell)
    assert sentence in words(client_for(annotator).get(url))
    assert tell not in client.get(result).content.decode()
    assert experiment.audit_entries.latest("pk").text == "Changed the description: tell_outcome."


def test_a_paused_page_looks_again_by_itself_and_ever_less_often(experiment, annotator, client_for, url):
    """A tab that was open when the experiment was paused stayed paused."""
    pause(experiment_id=experiment.pk)
    client = client_for(annotator)
    page, looks = client.get(url), []
    for _ in range(6):
        attributes = Markup(page.content.decode()).by_id("stage").attributes
        looks.append(attributes["hx-trigger"])
        page = client.get(attributes["hx-get"], headers={"HX-Request": "true"})
    assert looks == [f"every {seconds}s, focus from:window" for seconds in (5, 10, 20, 40, 60, 60)]
    start(experiment_id=experiment.pk)
    page = client.get(attributes["hx-get"], headers={"HX-Request": "true"})
    assert stage(page)["token"]
    assert "hx-trigger" not in page.content.decode()


@pytest.mark.parametrize("waited", ["x", "-1"])
def test_a_wait_that_is_no_time_is_refused(waited, annotator, client_for, url):
    assert client_for(annotator).get(url, {"waited": waited}).status_code == 400


@pytest.mark.parametrize(
    "checks", [{}, {"n_gold": 1, "gold_rate": 0.5}], ids=["without checks", "with checks"]
)
def test_what_was_shown_before_the_end_may_be_answered_and_is_not_asked_again(
    checks, annotator, client_for, monkeypatch
):
    monkeypatch.setattr(admission, "ADMISSION_ITEMS", 0)
    experiment = make_experiment(ready=True, annotators=(annotator,), **checks)
    # The first pair may be the check.
    held = assign_all(experiment_id=experiment.pk, annotator=annotator)[0]
    stop(experiment_id=experiment.pk)
    client = client_for(annotator)
    page = client.get(reverse("pair", args=[experiment.pk]))
    assert "Stopped. Thank you!" in words(page)
    assert "over" in stage(page)
    answer = {"token": held.token, "choice": "left"}
    htmx = {"HX-Request": "true"}
    reply = client.post(reverse("judge", args=[experiment.pk]), answer, headers=htmx)
    assert "over" in stage(reply)
    assert held.comparison.judgments.count() == 1


def test_an_answer_counts_today_at_once_and_only_once(annotator, client_for):
    experiment = make_experiment(ready=True, annotators=(annotator,), practice=1, n_gold=1)
    client, url = client_for(annotator), reverse("judge", args=[experiment.pk])
    htmx = {"HX-Request": "true"}
    shown = client.get(reverse("pair", args=[experiment.pk]), headers=htmx)
    told = []
    # Practice does not count.
    for _ in range(3):
        answer = {"token": stage(shown)["token"], "choice": "left"}
        shown = client.post(url, answer, headers=htmx)
        told.append(stage(shown)["today"])
    told.append(stage(client.post(url, answer, headers=htmx))["today"])
    undone = client.post(reverse("undo", args=[experiment.pk]), newest(experiment, annotator), headers=htmx)
    assert [*told, stage(undone)["today"]] == ["0", "1", "2", "2", "1"]


def test_beside_the_pair_on_show_the_next_one_is_handed_out(annotator, client_for, url):
    client = client_for(annotator)
    shown = stage(client.get(url, headers={"HX-Request": "true"}))["token"]
    ahead = stage(client.get(url, {"after": shown}, headers={"HX-Request": "true"}))["token"]
    assert ahead != shown
    again = stage(client.get(url, {"after": shown}, headers={"HX-Request": "true"}))["token"]
    assert again == ahead
    assert Assignment.objects.filter(state="open").count() == 2


@pytest.mark.parametrize(
    "asked", [{"after": "x"}, {"after": "1 or 1=1"}, {"ahead": "-1"}, {"ahead": 7}], ids=str
)
def test_what_is_no_token_or_number_is_refused(asked, annotator, client_for, url):
    assert client_for(annotator).get(url, asked).status_code == 400
    assert not Assignment.objects.exists()


def test_while_the_open_pairs_are_awaited_no_new_one_is_shown(experiment, annotator, client_for, url):
    Experiment.objects.filter(pk=experiment.pk).update(closing_since=timezone.now())
    page = client_for(annotator).get(url)
    assert "token" not in stage(page)
    assert "No new pairs are needed" in words(page)


def test_only_the_offered_answers_are_on_the_page(annotator, client_for):
    for settings, choices in (
        ({}, {"left", "right"}),
        ({"allow_tie": True}, {"left", "right", "tie"}),
        ({"allow_tie": True, "allow_both_bad": True}, {"left", "right", "tie", "both_bad"}),
    ):
        experiment = make_experiment(ready=True, annotators=(annotator,), **settings)
        page = Markup(client_for(annotator).get(reverse("pair", args=[experiment.pk])).content.decode())
        offered = {e.attributes["value"] for e in page.elements if e.attributes.get("name") == "choice"}
        assert offered == choices


def test_the_task_and_the_responses_cannot_break_out_of_their_places(annotator, client_for):
    experiment = make_experiment(annotators=(annotator,), question="<i>Which?</i>")
    experiment.tasks.update(prompt='</p><script>alert("task")</script>')
    write_responses(ScriptedBackend(lambda r: f'</article><script>alert("model {r.seed}")</script>'))
    html = client_for(annotator).get(reverse("pair", args=[experiment.pk])).content.decode()
    assert "<script>alert" not in html
    assert "</article><script" not in html
    assert "<i>Which?</i>" not in html
    assert html.count("<article") == html.count("</article>") == 2


@pytest.mark.postgres
@pytest.mark.usefixtures("late_planner")
def test_a_click_takes_a_bounded_number_of_statements(annotator, client_for, settings):
    # Everybody's progress is shared by all clicks of a minute, which tests turn off.
    settings.DASHBOARD_SECONDS = 2
    experiment = make_experiment(ready=True, annotators=(annotator,))
    client, url = client_for(annotator), reverse("judge", args=[experiment.pk])
    htmx = {"HX-Request": "true"}
    shown = client.get(reverse("pair", args=[experiment.pk]), headers=htmx)
    taken = []
    for _ in range(3):
        answer = {"token": stage(shown)["token"], "choice": "left"}
        with CaptureQueriesContext(connection) as captured:
            shown = client.post(url, answer, headers=htmx)
        taken.append(len(captured))
    assert "token" in stage(shown)
    # Two of the statements begin and end the transaction.
    assert taken == [15, 15, 15], [each["sql"] for each in captured]


def test_practice_is_counted_and_its_lesson_comes_before_the_next_pair(annotator, client_for):
    """The lesson stood in a corner, above a pair that was not practice."""
    experiment = make_experiment(ready=True, annotators=(annotator,), practice=2, n_gold=2)
    client, url = client_for(annotator), reverse("pair", args=[experiment.pk])
    htmx = {"HX-Request": "true"}
    first = client.get(url, headers=htmx)
    assert "Practice 1 of 2: not counted" in words(first)
    token = stage(first)["token"]
    # Nothing is fetched ahead of what is to be learned.
    ahead = client.get(url, {"after": token, "ahead": 3}, headers=htmx)
    assert "token" not in stage(ahead)
    judge = reverse("judge", args=[experiment.pk])
    second = client.post(judge, {"token": token, "choice": "left", "ahead": 3}, headers=htmx)
    told = words(second)
    assert "Practice 2 of 2" in told
    assert told.count("Reason 0.") == 1
    third = client.post(judge, {"token": stage(second)["token"], "choice": "left", "ahead": 2}, headers=htmx)
    assert third.content.decode().count('id="stage"') == 2
    assert words(third).count("Reason 1.") == 1
    assert "Practice" not in words(third)
