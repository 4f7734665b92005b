"""The states of a demo that pages need before they can be pictured. Each function returns an address."""

from __future__ import annotations

from time import time

from playwright.sync_api import expect

from tools.pictures.demos import DECIDED, WAIT_MS, Visit

# As many hasty answers as earn an annotator a mark, and a few more.
_HASTY_ANSWERS = 24
# Who uses two-step login, and who has no password.
CAREFUL, LOGGED_IN_ELSEWHERE = "carla", "otto"
_VOTES = b"""question,model 1,model 2,better
How do I make tea?,terse,warm,1
What is a tide?,warm,terse,2
"""


def a_decision(visit: Visit) -> str:
    """The experiment that the rule has decided."""
    with visit.page_of("admin") as page:
        page.goto("/experiments/2/")
        expect(page.locator(".headline")).to_have_text(DECIDED, timeout=WAIT_MS)
    return "/experiments/2/"


def a_trial(visit: Visit) -> str:
    """A trial all of whose responses are written."""
    with visit.page_of("admin") as page:
        page.goto("/experiments/new/prompts-strategies/")
        page.get_by_label("Name", exact=True).fill("Answers to everyday questions")
        page.get_by_role("button", name="2. Tasks").click()
        page.locator("#tasks").fill("How do I make a good cup of tea?")
        page.get_by_role("button", name="Save and try").click()
        expect(page.get_by_role("heading", name="Written")).to_be_visible(timeout=WAIT_MS)
        return page.url


def columns(visit: Visit) -> str:
    """The page on which the columns of a file of votes are chosen."""
    with visit.page_of("admin") as page:
        page.goto("/experiments/new/votes/")
        page.get_by_label("Name of the experiment").fill("Last year's votes")
        page.locator("input[type=file]").set_input_files(
            {"name": "votes.csv", "mimeType": "text/csv", "buffer": _VOTES}
        )
        page.get_by_label("Show me the columns first").check()
        page.get_by_role("button", name="Import the votes").click()
        page.wait_for_url("**/columns/**")
        return page.url


def an_invitation(visit: Visit) -> str:
    return visit.invitation("Viewer")


def a_shared_report(visit: Visit) -> str:
    a_decision(visit)
    return visit.shared_report(2)


def a_report_of_one_that_runs(visit: Visit) -> str:
    return visit.shared_report(1)


def hasty_answers(visit: Visit) -> str:
    """The annotator has answered pairs faster than anybody reads, always for the left response."""
    with visit.page_of("annotator") as page:
        page.goto("/label/1/")
        for _ in range(_HASTY_ANSWERS):
            visit.answer(page, "left")
    with visit.page_of("admin") as page:
        # Until the model has caught up with somebody so fast.
        page.goto("/experiments/1/")
        expect(page.locator("#badge")).to_have_text("Running", timeout=WAIT_MS)
    return "/experiments/1/"


def a_claim_to_stop_on(visit: Visit) -> str:
    """A copy of the rule's experiment that may stop on another claim than its own, paused there."""
    with visit.page_of("admin") as page:
        page.goto("/experiments/2/settings/")
        page.get_by_label("Name", exact=True).fill("Adding numbers, until one is the best")
        page.get_by_role("button", name="Make a copy").click()
        page.get_by_role("button", name="4. Stop and start").click()
        page.get_by_label("Stop when one is proved best").check()
        # With a margin, "good enough" is watched too, and holds first.
        page.get_by_text("Advanced: margin").click()
        page.locator("#id_epsilon").fill("0.3")
        page.get_by_role("button", name="Save and start").click()
        # The rule answers faster than the page asks for news.
        while page.get_by_role("button", name="Stop here").count() == 0:
            expect(page.locator("#badge")).to_have_text("Running")
            page.reload()
        page.get_by_role("button", name="Pause", exact=True).click()
        return page.url


def one_who_judges_and_watches(visit: Visit) -> str:
    """The admin annotates, too; a comparison that is still hidden from them."""
    with visit.page_of("admin") as page:
        page.goto("/experiments/1/comparisons/?state=ready")
        page.locator("tbody th a").first.click()
        comparison = page.url
        page.goto("/label/1/")
        page.get_by_role("button", name="Begin to judge").click()
        expect(page.locator("#choose-left")).to_be_visible(timeout=WAIT_MS)
    return comparison


def two_steps(visit: Visit) -> str:
    """Somebody has turned two-step login on, and keeps the recovery codes."""
    # allauth's modules are read only once Django is set up.
    from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value  # noqa: PLC0415

    visit.join(CAREFUL, "Viewer")
    with visit.page_of(CAREFUL) as page:
        page.goto("/accounts/two-step/on/")
        secret = page.locator("code.secret").inner_text()
        page.get_by_role("textbox", name="Code").fill(
            format_hotp_value(hotp_value(secret, int(time()) // 30))
        )
        page.get_by_role("button", name="Turn on").click()
        visit.recovery_codes[CAREFUL] = page.locator(".codes code").all_inner_texts()
    return "/accounts/two-step/recovery/"


def a_new_address(visit: Visit) -> str:
    """A link by e-mail that confirms an address, and has not been used."""
    with visit.page_of("annotator") as page:
        page.goto("/accounts/email/")
        page.get_by_label("New e-mail address").fill("annotator@example.org")
        page.get_by_role("button", name="Send a link to it").click()
        expect(page.get_by_text("Waiting for you")).to_be_visible()
    return visit.latest_link_by_mail()


def a_forgotten_password(visit: Visit) -> str:
    """A link by e-mail to set a new password; the address is confirmed first."""
    with visit.page_of("admin") as page:
        page.goto("/accounts/email/")
        page.get_by_label("New e-mail address").fill("admin@example.org")
        page.get_by_role("button", name="Send a link to it").click()
        expect(page.get_by_text("Waiting for you")).to_be_visible()
        page.goto(visit.latest_link_by_mail())
        page.get_by_role("button", name="Confirm").click()
        expect(page.get_by_text("The e-mail address is confirmed.")).to_be_visible()
    with visit.page_of("") as page:
        page.goto("/accounts/password/reset/")
        page.get_by_label("E-mail address").fill("admin@example.org")
        page.get_by_role("button", name="Send the link").click()
        page.wait_for_url("**/sent/")
    return visit.latest_link_by_mail()


def one_who_logs_in_elsewhere(visit: Visit) -> str:
    """Somebody who joined by single sign-on, and has no password here."""
    visit.provider.claims = {"sub": "1", "preferred_username": LOGGED_IN_ELSEWHERE}
    with visit.page_of("") as page:
        page.goto(visit.invitation("Viewer"))
        page.get_by_role("button", name="Join with").click()
        expect(page.get_by_role("link", name=LOGGED_IN_ELSEWHERE)).to_be_visible()
    return "/accounts/password/set/"
