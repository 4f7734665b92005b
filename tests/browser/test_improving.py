"""An improvement from its button to its verdict, with the prepared texts and people of a known taste."""

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from engine.generation.worker import write_batch
from engine.models import Experiment, Improvement, Proposal, User
from engine.selectors.offered_models import Offer
from engine.services.improvements import accept_proposal
from engine.writing.first_answers import answer_proposals
from engine.writing.worker import write_proposals
from tests.backends import ScriptedBackend
from tests.browser.conftest import log_in, picture
from tests.browser.test_accessibility import violations
from tests.factories import add_member, make_user
from tests.improving import answer, judge, make_world, plan_and_answer

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def work(experiment: Experiment) -> None:
    """What the workers do meanwhile."""
    plan_and_answer(experiment)
    for improvement in experiment.improvements.filter(state=Improvement.State.OPEN):
        write_proposals(improvement.pk)
    answer_proposals(ScriptedBackend(answer), Offer("smollm2", "scripted-1"))
    write_batch(worker="test", backend=ScriptedBackend(answer))


def seen_well(page: Page, name: str) -> None:
    """The page is accessible and fits a desk and a phone, in light and in dark."""
    assert violations(page) == []
    for place, width, height in (("desk", 1280, 900), ("phone", 390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            picture(page, f"improve-{name}-{place}-{scheme}")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 900})


def test_from_the_button_to_the_verdict(page: Page, problems: list[str], transactional_db: None):
    people: list[User] = [make_user("ann"), make_user("bob")]
    editor = make_user("editor")
    experiment = make_world(people, n_tasks=40)
    add_member(experiment, editor, "editor")
    log_in(page, editor)
    page.goto(f"/experiments/{experiment.pk}/")
    page.get_by_role("link", name="Improve", exact=True).click()
    seen_well(page, "start")
    page.get_by_label("Writer").select_option("prepared")
    page.get_by_label("Your wish").fill("Friendlier, please.")
    page.get_by_label("Clicks").fill("150")
    page.get_by_role("button", name="Start improving").click()
    # Whom a race compares next is drawn.
    Improvement.objects.update(seed=1)

    work(experiment)
    # The page finds them by itself.
    expect(page.get_by_role("heading", name="2 proposals wait for your OK")).to_be_visible()
    expect(page.get_by_text("Its first 3 answers")).to_have_count(2)
    expect(page.locator("[data-difference] ins").first).to_be_visible()
    seen_well(page, "waiting")
    page.get_by_role("button", name="Accept proposal 1").click()
    expect(page.get_by_role("heading", name="1 proposal waits for your OK")).to_be_visible()
    second = page.get_by_role("article", name="Proposal 2")
    second.get_by_text("Edit the text").click()
    text = second.get_by_label("Text", exact=True)
    text.fill("You are a formal clerk!")
    page.get_by_role("button", name="Accept proposal 2").click()
    second.get_by_label("Reason of a refusal").fill("Too short for us.")
    # What somebody types, and why it cannot be, survive the page's own renewal.
    with page.expect_response("**/improve/live/"):
        pass
    expect(text).to_have_value("You are a formal clerk!")
    expect(text).to_have_accessible_description("The text is a copy of its parent, or nearly.")
    expect(text).to_be_in_viewport()
    seen_well(page, "returned")
    # The browser notes that the form was refused.
    assert "400" in problems.pop()
    expect(second.get_by_label("Reason of a refusal")).to_have_value("Too short for us.")
    page.get_by_role("button", name="Refuse proposal 2").click()
    expect(page.get_by_role("heading", name="wait")).to_have_count(0)
    expect(page.locator(".family")).to_contain_text("Too short for us.")

    rng = np.random.default_rng(3)
    for turn in range(3000):
        improvement = Improvement.objects.get()
        if improvement.state != Improvement.State.OPEN:
            break
        if turn == 60:
            seen_well(page, "race")
            page.get_by_role("button", name="Stop improving").click()
            seen_well(page, "stop")
            page.get_by_role("link", name="Leave as it is").click()
        for each in improvement.proposals.filter(state=Proposal.State.PROPOSED):
            accept_proposal(proposal_id=each.pk, by=editor)
        if not judge(experiment, people[turn % 2], rng):
            work(experiment)
    assert improvement.verdict["kind"] == "certified"
    expect(page.locator("[data-verdict=certified]")).to_be_visible()
    expect(page.locator("[data-champion] ins").first).to_be_visible()
    champion = improvement.champion.levels.get(factor=improvement.factor)
    expect(page.locator(".family .badge.certified")).to_have_count(1)
    page.get_by_text("The numbers").click()
    last = page.locator("#improvement-table tbody tr").last
    expect(last).to_contain_text(champion.name)
    assert page.evaluate("Boolean(Chart.getChart('improvement'))")
    seen_well(page, "end")
    page.get_by_role("link", name=f"Open {champion.name}").click()
    expect(page.get_by_role("heading", name=champion.name)).to_be_visible()
