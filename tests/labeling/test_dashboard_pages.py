"""Pages of the dashboard are computed once for all viewers, and say how old they are."""

import html
import re
from datetime import timedelta

import pytest
from django.db.models import F
from django.urls import reverse
from django.utils import timezone

from engine.models import DashboardPage
from engine.services import dashboard_pages
from engine.services.experiments import stop
from engine.services.forgetting import forget_person
from engine.services.policies import add_policies, retire_policy
from engine.services.setting_changes import change_settings
from engine.tasks import advance
from labeling.dashboard import figures
from tests.factories import click_for, click_on, plan_and_write, workers_alive

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def kept(settings) -> None:
    settings.DASHBOARD_SECONDS = 5


def later(seconds: float, *, watched: bool = False) -> None:
    """Let so much time pass for what is stored; ``watched``: with somebody looking all the time."""
    past = timedelta(seconds=seconds)
    DashboardPage.objects.update(made_at=F("made_at") - past, due_at=F("due_at") - past)
    if not watched:
        DashboardPage.objects.update(watched_at=F("watched_at") - past)


def comparisons_shown(experiment) -> int:
    return figures.result_of(experiment)["comparisons"]


class TestAge:
    def test_a_page_is_computed_once_for_all(self, experiment, annotator):
        assert comparisons_shown(experiment) == 0
        click_on(experiment, annotator, 2)
        later(5)
        assert comparisons_shown(experiment) == 0

    def test_one_that_no_worker_has_renewed_is_computed_by_the_request(self, experiment, annotator):
        comparisons_shown(experiment)
        click_on(experiment, annotator, 2)
        later(16)
        assert comparisons_shown(experiment) == 2

    def test_who_has_joined_or_left_is_seen_at_once(self, experiment):
        before = len(figures.result_of(experiment)["policies"])
        add_policies(experiment_id=experiment.pk, levels={"System prompt": {"New": {"text": "quality 3"}}})
        shown = figures.result_of(experiment)["policies"]
        assert len(shown) == before + 1
        retire_policy(experiment_id=experiment.pk, index=0, reason="Old.")
        assert figures.result_of(experiment)["policies"] != shown

    def test_while_somebody_computes_it_the_others_see_the_former_one(self, experiment, annotator):
        comparisons_shown(experiment)
        click_on(experiment, annotator, 2)
        later(16)
        seen = []

        def meanwhile(_: object) -> dict[str, int]:
            seen.append(comparisons_shown(experiment))
            return {"comparisons": 7}

        row = dashboard_pages.show(experiment=experiment, page="result", make=meanwhile)
        assert (row.content, seen) == ({"comparisons": 7}, [0])

    def test_who_dies_meanwhile_keeps_nobody_from_it_for_long(self, experiment):
        comparisons_shown(experiment)
        later(16)
        with pytest.raises(ZeroDivisionError):
            dashboard_pages.show(experiment=experiment, page="result", make=lambda _: {"n": 1 // 0})
        assert dashboard_pages.show(
            experiment=experiment, page="result", make=lambda _: {"n": 7}
        ).content != {"n": 7}
        later(61)
        assert dashboard_pages.show(
            experiment=experiment, page="result", make=lambda _: {"n": 7}
        ).content == {"n": 7}

    def test_the_page_says_how_old_it_is(self, experiment, viewer, client_for):
        comparisons_shown(experiment)
        later(5)
        made = DashboardPage.objects.get().made_at
        page = client_for(viewer).get(reverse("dashboard_live", args=[experiment.pk])).content.decode()
        assert f'data-made>As of <time datetime="{made.isoformat()}"' in page


class TestWorker:
    """A round of planning is followed by what it changes on a page that somebody watches."""

    @pytest.mark.parametrize(("watched", "now"), [(True, 2), (False, 0)])
    def test_it_renews_what_is_watched_and_nothing_else(self, watched, now, experiment, annotator):
        comparisons_shown(experiment)
        click_on(experiment, annotator, 2)
        later(20, watched=watched)
        advance(experiment.pk)
        assert DashboardPage.objects.get().content["comparisons"] == now

    def test_it_does_so_at_most_every_two_seconds(self, experiment, annotator):
        comparisons_shown(experiment)
        click_on(experiment, annotator, 2)
        # As if it had just been computed, however long the clicks took.
        later(-60, watched=True)
        advance(experiment.pk)
        assert comparisons_shown(experiment) == 0
        later(63, watched=True)
        advance(experiment.pk)
        assert comparisons_shown(experiment) == 2

    def test_its_work_counts_as_nobodys_look(self, experiment):
        comparisons_shown(experiment)
        before = DashboardPage.objects.get().watched_at
        later(3, watched=True)
        advance(experiment.pk)
        assert DashboardPage.objects.get().watched_at == before

    def test_a_look_is_noted(self, experiment):
        comparisons_shown(experiment)
        DashboardPage.objects.update(watched_at=timezone.now() - timedelta(seconds=10))
        comparisons_shown(experiment)
        assert DashboardPage.objects.get().watched_at > timezone.now() - timedelta(seconds=5)


def test_a_changed_promise_is_never_shown_beside_an_older_verdict(experiment, annotator, admin):
    comparisons_shown(experiment)
    click_on(experiment, annotator, 2)
    change_settings(experiment_id=experiment.pk, by=admin, delta=0.2)
    experiment.refresh_from_db()
    assert comparisons_shown(experiment) == 2


def test_the_name_of_a_forgotten_person_is_in_no_page(experiment, annotator):
    click_on(experiment, annotator, 2)
    figures.charts_of(experiment, "quality")
    assert annotator.username in DashboardPage.objects.get(page="quality").html
    forget_person(user_id=annotator.pk, by=None)
    assert not DashboardPage.objects.exists()


def seen_in(html: str) -> str:
    """The version of the charts that the page asks with."""
    return re.search(r"seen=(\w+)", html)[1]


class TestPolls:
    def test_a_page_that_is_there_is_sent_once_and_read_once(
        self, experiment, annotator, viewer, client_for, django_assert_num_queries
    ):
        client = client_for(viewer)
        page = client.get(reverse("dashboard", args=[experiment.pk])).content.decode()
        address = html.unescape(re.search(r'hx-get="([^"]*)" hx-trigger="every 2s"', page)[1])
        # The session, the person, and the page.
        with django_assert_num_queries(3):
            again = client.get(address)
        assert (again.status_code, again.content) == (204, b"")
        click_on(experiment, annotator, 2)
        later(3, watched=True)
        advance(experiment.pk)
        assert "As of" in client.get(address).content.decode()

    @pytest.mark.parametrize(("who", "status"), [("annotator", 403), ("stranger", 404)])
    def test_a_stored_page_is_for_those_who_may_watch(self, who, status, experiment, request, client_for):
        comparisons_shown(experiment)
        person = request.getfixturevalue(who)
        assert client_for(person).get(reverse("dashboard_live", args=[experiment.pk])).status_code == status

    def test_charts_that_the_page_has_seen_are_not_sent_again(
        self, experiment, annotator, viewer, client_for
    ):
        click_on(experiment, annotator, 1)
        client = client_for(viewer)
        live = reverse("dashboard_live", args=[experiment.pk])
        page = client.get(reverse("dashboard", args=[experiment.pk])).content.decode()
        seen = seen_in(page)
        again = client.get(live, {"seen": seen}).content.decode()
        assert "Leading" in again
        assert 'id="charts"' not in again
        assert seen_in(again) == seen
        click_on(experiment, annotator, 3)
        later(16)
        changed = client.get(live, {"seen": seen}).content.decode()
        assert '<div id="charts" hx-swap-oob="true">' in changed
        assert seen_in(changed) != seen

    def test_the_verdict_and_the_ranking_are_of_one_moment(self, experiment, annotator, viewer, client_for):
        """Each had an age of its own: the card named a leader that the ranking below it had second."""

        def of_ranking(html: str) -> tuple[str, str]:
            leading = re.search(r'class="headline">Leading: (.*?)<', html)[1]
            first = re.search(r'<th scope="row"><a [^>]*>(.*?)</a>', html)[1]
            return leading, first

        workers_alive()
        client, live = client_for(viewer), reverse("dashboard_live", args=[experiment.pk])
        leaders = set()
        for best in (0, 2):
            for turn in range(6):
                click_for(experiment, annotator, lambda i, j, best=best: i == best)
                plan_and_write(experiment)
                later(turn * 7.0)
                leading, first = of_ranking(client.get(live).content.decode())
                assert leading == first
                leaders.add(leading)
        assert len(leaders) > 1

    def test_what_one_may_do_is_not_shared(self, experiment, viewer, editor, client_for):
        workers_alive()
        for view in ("dashboard", "dashboard_live"):
            url = reverse(view, args=[experiment.pk])
            assert "Invite" in client_for(editor).get(url).content.decode()
            assert "Invite" not in client_for(viewer).get(url).content.decode()

    def test_the_conclusion_is_shown_at_once_and_ends_the_polling(self, experiment, admin, client_for):
        client = client_for(admin)
        dashboard, live = (reverse(name, args=[experiment.pk]) for name in ("dashboard", "dashboard_live"))
        seen = seen_in(client.get(dashboard).content.decode())
        client.post(reverse("change_state", args=[experiment.pk]), {"action": "stop", "confirmed": "1"})
        reply = client.get(live, {"seen": seen})
        assert (reply.status_code, reply["HX-Refresh"]) == (200, "true")
        page = client.get(dashboard).content.decode()
        assert "Stopped by hand" in page
        assert "hx-trigger" not in page

    @pytest.mark.parametrize("state", ["running", "concluded"])
    @pytest.mark.parametrize("tab", ["quality", "method"])
    def test_the_charts_of_a_large_experiment_follow_their_page(
        self, tab, state, experiment, admin, annotator, client_for, monkeypatch
    ):
        monkeypatch.setattr(figures, "LARGE", 2)
        click_on(experiment, annotator, 3)
        if state == "concluded":
            stop(experiment_id=experiment.pk)
        client = client_for(admin)
        page, charts = (reverse(name, args=[experiment.pk]) for name in (tab, f"{tab}_charts"))
        first = client.get(page).content.decode()
        assert "Reading all judgments." in first
        assert f'hx-get="{charts}" hx-trigger="load"' in first
        made = client.get(charts).content.decode()
        assert "Reading all judgments." not in made
        assert made.strip() in client.get(page).content.decode(), "from now on they come with the page"
