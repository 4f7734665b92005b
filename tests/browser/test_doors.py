"""Doors for material, people and winners, each found by clicks; `make pictures` takes pictures of them."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from engine.models import Experiment, Membership, User
from tests.browser.conftest import log_in, picture
from tests.factories import add_member, certify, make_experiment, make_user

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

CONFIGURATION = Path(__file__).parents[1] / "fixtures" / "promptfoo" / "01-two-by-two.yaml"


@pytest.fixture
def owner(page: Page, transactional_db) -> User:
    """Logged in, in a browser whose window is as wide as a page of Help."""
    owner = make_user("ann", is_superuser=True)
    log_in(page, owner)
    page.set_viewport_size({"width": 1000, "height": 1300})
    return owner


@pytest.fixture
def experiment(owner: User) -> Experiment:
    made = make_experiment(name="Support answers", ready=True, epsilon=0.05)
    add_member(made, owner, Membership.Role.OWNER)
    return made


def test_a_file_of_another_tool_says_what_was_found(page: Page, owner):
    page.goto("/")
    page.get_by_role("link", name="New experiment").click()
    page.get_by_label("File (up to 1 MB)").set_input_files(CONFIGURATION)
    picture(page.get_by_role("region", name="From an experiment file"), "doors/file")
    picture(page.get_by_role("region", name="From existing responses"), "doors/responses")
    page.get_by_role("button", name="Read the description").click()
    expect(page.locator("[data-counts] tbody tr")).not_to_have_count(0)
    picture(page, "doors/found")


def test_tasks_come_from_a_source(page: Page, owner):
    page.goto("/")
    page.get_by_role("link", name="New experiment").click()
    page.get_by_role("link", name="Your own questions").first.click()
    page.get_by_text("From a source: the Hugging Face hub, Langfuse").click()
    page.get_by_label("Data set").fill("openai/gsm8k")
    page.get_by_label("Configuration").fill("main")
    page.get_by_label("Split").fill("test")
    source = page.locator("details", has=page.get_by_label("Data set"))
    expect(source.get_by_role("button", name="Get the tasks")).to_be_visible()
    picture(source, "doors/source")


def test_the_winner_is_shown_before_it_goes(page: Page, experiment, settings):
    settings.ALLOW_PRIVATE_WEBHOOKS = True
    certify(experiment, winner=1)
    page.goto(f"/experiments/{experiment.pk}/")
    page.get_by_role("link", name="Send it…").click()
    page.get_by_label("To", exact=True).select_option("mlflow")
    page.get_by_label("Server").fill("http://localhost:5000")
    page.get_by_label("Name of the prompt").fill("support")
    page.get_by_label("Label", exact=True).fill("production")
    page.get_by_role("button", name="Add", exact=True).click()
    picture(page.get_by_role("region", name="goes to"), "doors/destination")
    page.get_by_role("link", name="See what is sent").click()
    expect(page.locator("[data-body]").first).to_contain_text("support")
    page.set_viewport_size({"width": 1000, "height": 640})
    picture(page, "doors/sending")


def test_messages_and_commit_statuses_are_under_settings(page: Page, experiment):
    page.goto(f"/experiments/{experiment.pk}/")
    page.get_by_role("link", name="Settings").click()
    form = page.get_by_role("region", name="Notifications")
    form.get_by_label("By").select_option("github")
    form.get_by_label("To", exact=True).fill("https://github.com/example/prompts")
    form.get_by_label("Token").fill("x" * 20)
    picture(form, "doors/status")
    form.get_by_role("button", name="Add").click()
    expect(form.get_by_text("example/prompts")).to_be_visible()


def test_guests_and_groups_are_under_people(page: Page, experiment, settings):
    settings.OIDC_ISSUER, settings.OIDC_NAME = "https://id.example.org", "Example ID"
    page.goto(f"/experiments/{experiment.pk}/")
    page.get_by_role("link", name="People").click()
    groups = page.get_by_role("region", name="Groups of")
    groups.get_by_label("Group").fill("support-raters")
    groups.get_by_role("button", name="Add").click()
    expect(groups.get_by_text("support-raters")).to_be_visible()
    picture(groups, "doors/groups")
    page.get_by_role("link", name="Invite…").click()
    page.get_by_text("Guests, and crowds").click()
    page.get_by_label("Without an account").check()
    page.get_by_label("Pairs for each guest").fill("20")
    page.get_by_label("Identifier in the link").fill("PROLIFIC_PID")
    expect(page.get_by_role("dialog")).to_be_visible()
    picture(page.get_by_role("dialog"), "doors/guests")
