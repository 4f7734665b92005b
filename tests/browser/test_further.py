"""Further questions on the annotator's page: by keys on a desktop, by touch on a phone."""

import json

import pytest
from playwright.sync_api import Page, expect

from engine.models import Experiment, Judgment, User
from tests.browser.annotating import open_pair, saved, settled, tap, write_everything
from tests.browser.conftest import picture
from tests.factories import make_experiment, make_user

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def experiment(transactional_db, settings) -> Experiment:
    settings.BUFFER_MIN = settings.BUFFER_MAX = 10
    experiment = make_experiment(
        n_policies=3,
        n_tasks=9,
        annotators=(make_user("ann"),),
        allow_tie=True,
        further_questions="More correct?\nHow friendly? (1-5)\nWhy? (text)",
    )
    write_everything(experiment)
    return experiment


def kept() -> list[dict[str, object]]:
    return [
        json.loads(each or "{}") for each in Judgment.objects.order_by("pk").values_list("further", flat=True)
    ]


def test_by_keys_each_is_reached_and_an_answer_needs_none(page: Page, experiment):
    open_pair(page, experiment, User.objects.get(username="ann"))
    settled(page)
    page.keyboard.press("f")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("f")
    page.keyboard.press("Space")
    page.keyboard.press("f")
    page.keyboard.press("ArrowRight")
    picture(page, "doors/further")
    page.keyboard.press("1")
    saved(page, 1)
    settled(page)
    page.keyboard.press("2")
    saved(page, 2)
    assert kept() == [{"More correct?": "tie", "How friendly?": [1, 2]}, {}]


def test_on_a_phone_they_lie_over_the_responses_and_close_with_the_pair(phone: Page, experiment):
    open_pair(phone, experiment, User.objects.get(username="ann"))
    summary = phone.locator("#further > summary")
    expect(phone.get_by_label("Why?")).to_be_hidden()
    summary.tap()
    phone.get_by_role("radiogroup", name="B").get_by_label("4").tap()
    phone.get_by_label("Why?").fill("Warmer.")
    phone.get_by_role("group", name="More correct?").get_by_label("A", exact=True).tap()
    summary.tap()
    tap(phone, "#choose-right")
    saved(phone, 1)
    expect(phone.get_by_label("Why?")).to_be_hidden()
    # Half of the marks are no answer.
    assert kept() == [{"More correct?": "left", "Why?": "Warmer."}]
