"""A crowd: guests in browsers of their own, from the owner's link to the way back."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from engine.models import Experiment, InvitationUse, Judgment, Membership
from tests.browser.annotating import press, write_everything
from tests.browser.conftest import log_in, watch
from tests.factories import add_member, make_experiment, make_user

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

N_GUESTS, N_PAIRS = 6, 3


@pytest.fixture
def experiment(transactional_db, settings) -> Experiment:
    settings.BUFFER_MIN = settings.BUFFER_MAX = N_GUESTS * N_PAIRS + 10
    experiment = make_experiment(n_policies=3, n_tasks=40)
    add_member(experiment, make_user("boss"), Membership.Role.OWNER)
    write_everything(experiment)
    return experiment


def link_of(page: Page, experiment: Experiment) -> str:
    """Make the link for a crowd on the page, as an owner would."""
    log_in(page, experiment.memberships.get().user)
    page.goto(f"/experiments/{experiment.pk}/people/")
    page.get_by_role("link", name="Invite…").click()
    page.get_by_text("Guests, and crowds").click()
    page.get_by_label("Without an account").check()
    page.get_by_label("Pairs for each guest").fill(str(N_PAIRS))
    page.get_by_label("Identifier in the link").fill("PROLIFIC_PID")
    page.get_by_label("Link or code after the last pair").fill("C0MPLETE")
    page.get_by_role("button", name=re.compile("Invite|Make a link")).click()
    return page.get_by_label("Link", exact=True).input_value()


def test_twenty_guests_judge_resume_and_get_their_code(
    page: Page, browser: Browser, live_server, problems, experiment
):
    link = link_of(page, experiment)
    for number in range(N_GUESTS):
        own = f"{link}?PROLIFIC_PID=p{number}"
        # Every second one goes on in another browser after the first answer.
        for first, last in ((0, 1), (1, N_PAIRS)) if number % 2 else ((0, N_PAIRS),):
            with watch(browser.new_context(base_url=live_server.url), live_server, problems) as context:
                guest = context.new_page()
                guest.goto(own)
                if not first:
                    guest.get_by_role("button", name="Begin").click()
                guest.goto(f"/label/{experiment.pk}/")
                for n in range(first, last):
                    press(guest, "1")
                    expect(guest.locator("#today")).to_have_text(str(n + 1))
                if last == N_PAIRS:
                    expect(guest.locator("[data-onward]")).to_have_text("C0MPLETE")
    assert InvitationUse.objects.count() == N_GUESTS
    assert Judgment.objects.count() == N_GUESTS * N_PAIRS
    assert problems == []
