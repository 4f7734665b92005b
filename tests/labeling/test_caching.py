"""Work that many viewers share is done once."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator

import pytest
from django.core.cache import cache
from django.urls import reverse

from engine.services.experiments import stop
from labeling import caching
from labeling.caching import is_shared, shared
from labeling.dashboard import figures
from tests.factories import click_for, click_on, plan_and_write, workers_alive

AGES = (1.0, 10.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, settings) -> Iterator[list[float]]:
    """A clock that is set by hand, and a cache that is empty before and after."""
    settings.DASHBOARD_SECONDS = 5
    now = [1000.0]
    monkeypatch.setattr(caching, "_now", lambda: now[0])
    cache.clear()
    yield now
    cache.clear()


@pytest.fixture
def make() -> Callable[[], int]:
    made: list[int] = []
    return lambda: made.append(1) or len(made)


def test_the_same_is_made_once(clock, make):
    assert not is_shared("x", 1, ages=AGES)
    assert [shared("x", 1, make, ages=AGES) for _ in range(3)] == [1, 1, 1]
    clock[0] += 49
    assert is_shared("x", 1, ages=AGES)
    assert not is_shared("x", 2, ages=AGES)
    assert shared("x", 1, make, ages=AGES) == 1


def test_what_changed_is_made_again_when_it_is_old_enough(clock, make):
    shared("x", 1, make, ages=AGES)
    clock[0] += 4
    assert shared("x", 2, make, ages=AGES) == 1
    clock[0] += 2
    assert shared("x", 2, make, ages=AGES) == 2


def test_what_has_not_changed_is_made_again_in_the_end(clock, make):
    shared("x", 1, make, ages=AGES)
    clock[0] += 51
    assert shared("x", 1, make, ages=AGES) == 2


def test_what_takes_long_rests_for_longer(clock, make):
    def slowly() -> int:
        clock[0] += 2
        return make()

    shared("x", 1, slowly, ages=AGES)
    clock[0] += 39
    assert shared("x", 2, slowly, ages=AGES) == 1
    clock[0] += 2
    assert shared("x", 2, slowly, ages=AGES) == 2


def test_while_it_is_made_the_others_see_what_there_was(clock, make):
    shared("x", 1, make, ages=AGES)
    clock[0] += 100
    seen = []

    def meanwhile() -> int:
        seen.append(shared("x", 2, make, ages=AGES))
        return 7

    assert shared("x", 2, meanwhile, ages=AGES) == 7
    assert seen == [1]


def test_before_there_is_any_the_others_wait_for_it(clock, make):
    begun, go_on = threading.Event(), threading.Event()

    def slowly() -> str:
        begun.set()
        go_on.wait(10)
        return "made once"

    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(shared("x", 1, slowly, ages=AGES)))]
    threads[0].start()
    assert begun.wait(10)
    threads.append(threading.Thread(target=lambda: results.append(shared("x", 1, make, ages=AGES))))
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert results == ["made once", "made once"]


def test_an_error_is_told_and_the_next_one_tries_again(clock, make):
    def fail() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        shared("x", 1, fail, ages=AGES)
    assert shared("x", 1, make, ages=AGES) == 1


def seen_in(html: str) -> str:
    """The version of the charts that the page asks with."""
    return re.search(r"seen=(\w+)", html)[1]


@pytest.mark.django_db
class TestPolls:
    def test_charts_that_the_page_has_seen_are_not_sent_again(
        self, clock, experiment, annotator, viewer, client_for
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
        clock[0] += 100
        changed = client.get(live, {"seen": seen}).content.decode()
        assert '<div id="charts" hx-swap-oob="true">' in changed
        assert seen_in(changed) != seen

    def test_the_verdict_and_the_ranking_are_of_one_moment(
        self, clock, experiment, annotator, viewer, client_for
    ):
        """Each had an age of its own: the card named a leader that the ranking below it had second."""

        def of_ranking(html: str) -> tuple[str, str]:
            leading = re.search(r"Leading .*?: <strong>(.*?)</strong>", html)[1]
            first = re.search(r'<th scope="row"><a [^>]*>(.*?)</a>', html)[1]
            return leading, first

        client, live = client_for(viewer), reverse("dashboard_live", args=[experiment.pk])
        leaders = set()
        for best in (0, 2):
            for turn in range(6):
                if turn % 3 == 0:
                    plan_and_write(experiment)
                click_for(experiment, annotator, lambda i, j, best=best: i == best)
                clock[0] += 1.5
                leading, first = of_ranking(client.get(live).content.decode())
                assert leading == first
                leaders.add(leading)
        assert len(leaders) > 1

    def test_what_one_may_do_is_not_shared(self, clock, experiment, viewer, editor, client_for):
        workers_alive()
        for view in ("dashboard", "dashboard_live"):
            url = reverse(view, args=[experiment.pk])
            assert "Invite" in client_for(editor).get(url).content.decode()
            assert "Invite" not in client_for(viewer).get(url).content.decode()

    def test_the_conclusion_is_shown_at_once_and_ends_the_polling(self, clock, experiment, admin, client_for):
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
        self, tab, state, clock, experiment, admin, annotator, client_for, monkeypatch
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
