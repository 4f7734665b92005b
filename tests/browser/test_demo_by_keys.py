"""The demo's experiment for people, judged to its end with two keys."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import Page, expect

from engine.generation.base import GenerationRequest, GenerationResult, Outcome
from engine.generation.smollm2 import SmolLM2Backend
from engine.models import Assignment, User
from engine.selectors.policies import policy_names
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from engine.services.planning import advance
from labeling.demo import human_spec
from tests.browser.annotating import open_pair, press, shown_token, wait_until_heard
from tests.browser.conftest import log_in, picture
from tests.factories import add_member, make_user, write_responses

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

# The reader's taste, best first.
TASTE = ("Three steps · Calm", "Kind, with a next step · Calm", "One sentence · Calm", "Three steps · Wild")
MOST_CLICKS = 100


class Echo:
    """Says the request's own words again, which no two requests share."""

    name, model = "echo", "echo-1"

    def generate(self, requests: Sequence[GenerationRequest]) -> Iterator[GenerationResult]:
        for each in requests:
            yield GenerationResult(each.key, f"{each.seed}: {each.messages[-1].content}", 9, 9, "stop", 0.1)


class Real:
    """SmolLM2, in a thread without the browser's event loop."""

    def __init__(self) -> None:
        self._backend = SmolLM2Backend()
        self.name, self.model = self._backend.name, self._backend.model

    def generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Outcome]:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: list(self._backend.generate(requests))).result()


@pytest.fixture
def annotator(transactional_db) -> User:
    return make_user("ann")


def test_it_ends_with_its_outcome_within_a_hundred_clicks(page: Page, annotator, settings):
    # As many as somebody who reads has waiting; a test clicks faster, and more would be written ahead.
    settings.BUFFER_MAX = 6
    experiment = create_experiment(spec=human_spec())
    add_member(experiment, annotator)
    start(experiment_id=experiment.pk)
    names = [policy.name for policy in policy_names(experiment)]

    # Pictures show what people see.
    backend = Real() if "PICTURES" in os.environ else Echo()

    def plan() -> None:
        advance(experiment_id=experiment.pk)
        write_responses(backend)

    page.set_viewport_size({"width": 1280, "height": 800})
    plan()
    open_pair(page, experiment, annotator)
    press(page, "ArrowLeft")
    expect(page.get_by_text("A response that makes sense and helps")).to_be_visible()
    outcome = page.get_by_text(f"Your group preferred “{TASTE[0]}”.")
    for click in range(MOST_CLICKS):
        # Who has just seen a pair when the experiment ends is told the outcome in its place.
        expect(page.locator("#choose-left:enabled").or_(outcome).first).to_be_visible()
        assignment = (
            Assignment.objects.select_related("comparison").filter(token=shown_token(page) or None).first()
        )
        if assignment is None:
            break
        shown = assignment.comparison
        if click == 5:
            picture(page, "pair")
        i_wins = TASTE.index(names[shown.policy_i.index]) < TASTE.index(names[shown.policy_j.index])
        wait_until_heard(page)
        page.keyboard.press("ArrowLeft" if i_wins == shown.i_on_left else "ArrowRight")
        expect(page.locator("#stage")).not_to_have_attribute("data-token", str(assignment.token))
        plan()
    expect(outcome).to_be_visible()
    experiment.refresh_from_db()
    assert experiment.conclusion == "certified"
    log_in(page, make_user("admin", is_superuser=True))
    page.goto(f"/experiments/{experiment.pk}/")
    expect(page.get_by_role("heading", name=f"Use {TASTE[0]}")).to_be_visible()
    picture(page, "demo-result")
