"""A model of one's own in the setup, thinking on the annotators' page, and cost on the result."""

import re
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect

from engine.models import Connection, Experiment, Response, WorkerPulse
from tests.browser.conftest import log_in, watch
from tests.factories import add_member, click_on, make_experiment, make_user, pay

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}


def fits(page: Page) -> None:
    """Check that nothing is wider than the page."""
    page.wait_for_function("() => document.documentElement.scrollWidth <= window.innerWidth")


@pytest.fixture(params=SIZES)
def size(request, page: Page) -> str:
    page.set_viewport_size(SIZES[request.param])
    return request.param


@pytest.fixture
def gpt() -> Connection:
    return Connection.objects.create(
        name="GPT",
        provider="openai",
        model_id="gpt-5",
        everybody=True,
        price_prompt=2.0,
        price_completion=8.0,
    )


def test_times_are_in_the_readers_zone(browser: Browser, live_server, gpt, problems):
    Connection.objects.update(waits_until=timezone.now().replace(hour=12, minute=5) + timedelta(days=9))
    with watch(
        browser.new_context(base_url=live_server.url, timezone_id="Asia/Tokyo"), live_server, problems
    ) as context:
        page = context.new_page()
        log_in(page, make_user(is_superuser=True))
        page.goto("/models/")
        until = page.locator(".badge time")
        expect(until).to_have_text(re.compile(r"-\d\d 21:05$"))
        expect(until).to_have_attribute("title", re.compile("Asia/Tokyo"))
    assert problems == []


def test_a_level_chooses_a_connection_and_its_settings(size, page: Page, gpt, problems):
    details = {"backend": "remote", "model": "", "others": [], "any_model": True}
    WorkerPulse.objects.create(queue="generation", worker="w", details=details)
    log_in(page, make_user(is_superuser=True))
    page.goto("/experiments/new/prompts/")
    page.get_by_label("Name", exact=True).fill("Two models")
    page.get_by_role("button", name="Add a factor").click()
    expect(page.locator("#id_f2-name")).to_be_focused()
    page.locator("#id_f2-kind").select_option("model")
    page.locator("select#id_f2-l1-text").select_option("GPT")
    expect(page.locator("#id_f2-l1-name")).to_have_value("GPT")
    # It would be the experiment's own model, which is the same one.
    page.get_by_role("button", name="Remove level 2 of factor 2").click()
    expect(page.locator("#id_f2-l2-name")).to_have_count(0)
    page.get_by_role("button", name="Add a factor").click()
    expect(page.locator("#id_f3-name")).to_be_focused()
    page.locator("#id_f3-kind").select_option("sampling")
    page.locator("#id_f3-l1-temperature").fill("0")
    page.locator("li.level", has=page.locator("#id_f3-l1-temperature")).get_by_text("More settings").click()
    page.locator("#id_f3-l1-response_format").fill('{"type": "object"')
    page.get_by_role("button", name="Save as a draft").click()
    expect(page.get_by_text("This is not JSON").first).to_be_visible()
    fits(page)
    page.locator("#id_f3-l1-response_format").fill('{"type": "object"}')
    page.get_by_role("button", name="Save as a draft").click()
    expect(page.get_by_text("temperature is not sent: this model refuses it.").first).to_be_visible()
    page.locator("#id_f3-l1-temperature").fill("")
    page.get_by_role("button", name="Save as a draft").click()
    expect(page.get_by_text("Saved as a draft.")).to_be_visible()
    fits(page)
    # Chromium complains of the two pages that refuse.
    problems[:] = [each for each in problems if "400 (Bad Request)" not in each]


def test_thinking_is_folded_and_an_empty_response_reads_no_answer(size, page: Page, gpt):
    people = [make_user(), make_user()]
    experiment = make_experiment(ready=True, annotators=tuple(people), shown_thinking="both")
    Response.objects.update(
        thinking="First I think.\nThen I answer. " * 20, connection=gpt, latency_seconds=2.0
    )
    for row in Response.objects.filter(state="done").select_related("policy"):
        pay([row], 0.001 * (1 + row.policy.index))
        if row.policy.index == 0:
            row.text, row.finish_reason = "", "filtered"
        row.save()
    log_in(page, people[0])
    page.goto(reverse("pair", args=[experiment.pk]))
    page.locator("article.response details").first.get_by_text("Thinking").click()
    expect(page.get_by_text("First I think.").first).to_be_visible()
    fits(page)
    click_on(experiment, people[1], 6)
    viewer = make_user()
    add_member(experiment, viewer, "viewer")
    log_in(page, viewer)
    page.goto(reverse("dashboard", args=[experiment.pk]))
    page.get_by_text("Preference against cost and time").click()
    expect(page.locator("svg.tradeoff").first).to_be_visible()
    fits(page)
    judged = Experiment.objects.get().comparisons.filter(state="judged", response_i__thinking__gt="").first()
    page.goto(reverse("comparison", args=[experiment.pk, judged.pk]))
    expect(page.get_by_text("Thinking").first).to_be_visible()
    fits(page)
    page.goto(reverse("method", args=[experiment.pk]))
    fits(page)
