"""Tabs that close, phones that sleep, reloads and lost networks leave no pair without an outcome."""

import random
from datetime import timedelta

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from engine.models import Assignment, Comparison
from engine.services.undos_and_skips import hold
from tests.browser.annotating import open_pair, press, saved, shown_token, write_everything
from tests.factories import make_experiment, make_user

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

N_PAIRS = 300
PAIRS_FROM_FAULT_TO_FAULT = 4


def time_passes(span: timedelta) -> None:
    """Nobody is heard of for so long."""
    for assignment in Assignment.objects.filter(state="open"):
        assignment.created_at, assignment.granted_at = (
            assignment.created_at - span,
            assignment.granted_at - span,
        )
        assignment.expires_at -= span
        assignment.save()


@pytest.mark.slow
def test_of_300_pairs_with_faults_at_most_one_in_a_hundred_has_no_outcome(
    page: Page, context: BrowserContext, problems, settings
):
    settings.BUFFER_MIN = settings.BUFFER_MAX = 40
    ann, bob = make_user("ann"), make_user("bob")
    experiment = make_experiment(n_policies=4, n_tasks=120, delta=1e-9, annotators=(ann, bob))
    write_everything(experiment)
    open_pair(page, experiment, ann)
    dice = random.Random(44)
    for number in range(N_PAIRS):
        if number % 20 == 0:
            write_everything(experiment)
        token = shown_token(page)
        if number % PAIRS_FROM_FAULT_TO_FAULT == 0:
            fault = dice.choice(["reload", "close", "sleep", "offline", "lost reply"])
            if fault == "reload":
                page.reload()
            elif fault == "close":
                page.close(run_before_unload=False)
                time_passes(dice.choice([timedelta(minutes=1), 2 * hold()]))
                page = context.new_page()
                open_pair(page, experiment)
            elif fault == "sleep":
                session = context.new_cdp_session(page)
                session.send("Page.setWebLifecycleState", {"state": "frozen"})
                time_passes(2 * hold())
                session.send("Page.setWebLifecycleState", {"state": "active"})
            elif fault == "offline":
                context.set_offline(True)
                page.wait_for_timeout(50)
                context.set_offline(False)
            else:
                page.route("**/judge/", lambda route: (route.fetch(), route.abort()), times=1)
            expect(page.locator("#stage")).to_have_attribute("data-token", token)
        press(page, dice.choice("12"))
        saved(page, number + 1)
        expect(page.locator("#stage:has(#choose-left)")).not_to_have_attribute("data-token", token)
    shown = Comparison.objects.filter(assignments__isnull=False)
    waiting = Assignment.objects.filter(state="open", annotator=ann).count()
    assert waiting <= 6, "those that are on the page now"
    without = shown.exclude(state="judged").count() - waiting
    assert without <= N_PAIRS / 100
    problems.clear()
