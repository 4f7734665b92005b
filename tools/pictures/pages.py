"""Every page, and how to come to it. A test holds the templates against this list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.template.loader import render_to_string
from django.test import override_settings
from playwright.sync_api import Page, Route, expect

from engine.domain import limits
from tools.pictures import needs
from tools.pictures.demos import Visit

_STATIC_FILES = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
NOBODY, ANNOTATOR, ADMIN = "", "annotator", "admin"


@dataclass(frozen=True)
class Picture:
    """A page with this template, as ``login`` sees it.

    ``needs`` happens once, before all pictures; its result is the address where none is given. ``act`` goes
    on from there to the page. ``whole``: the whole page, and not only what fits into the window.
    ``connected``: at the demo with e-mail and single sign-on.
    """

    template: str
    login: str
    address: str = ""
    needs: Callable[[Visit], str] | None = None
    act: Callable[[Visit, Page], object] | None = None
    whole: bool = False
    connected: bool = False


def _click(selector: str) -> Callable[[Visit, Page], None]:
    def act(visit: Visit, page: Page) -> None:
        page.locator(selector).first.click()

    return act


def _delete_the_draft(visit: Visit, page: Page) -> None:
    page.locator("a[href$='/setup/']").first.click()
    page.locator("a[href$='/delete/']").click()


def _keys(visit: Visit, page: Page) -> None:
    page.keyboard.press("?")


def _change_the_risk(visit: Visit, page: Page) -> None:
    page.locator("#id_delta").fill("0.05")
    page.get_by_role("button", name="Change…").click()


def _upload_too_much(visit: Visit, page: Page) -> None:
    page.get_by_label("Name of the experiment").fill("Last year's votes")
    page.locator("input[type=file]").set_input_files(
        {"name": "votes.csv", "mimeType": "text/csv", "buffer": b"-" * (limits.UPLOAD_BYTES.most + 1)}
    )
    page.get_by_role("button", name="Import the votes").click()
    expect(page.get_by_role("heading", name="Too much at once")).to_be_visible()


def _fail_to_log_in(visit: Visit, page: Page) -> None:
    while page.get_by_role("heading", name="Too many attempts").count() == 0:
        page.get_by_label("Name").fill("somebody")
        page.get_by_label("Password").fill("not the password")
        page.get_by_role("button", name="Log in", exact=True).click()


def _log_in_without_cookies(visit: Visit, page: Page) -> None:
    page.context.clear_cookies()
    page.get_by_label("Name").fill("somebody")
    page.get_by_label("Password").fill("not the password")
    page.get_by_role("button", name="Log in", exact=True).click()


def _give_the_password(visit: Visit, page: Page) -> None:
    page.get_by_label("Name").fill(needs.CAREFUL)
    page.get_by_label("Password").fill(visit.passwords[needs.CAREFUL])
    page.get_by_role("button", name="Log in", exact=True).click()
    expect(page.get_by_role("textbox", name="Code")).to_be_visible()


def _stay_on_the_way(visit: Visit, page: Page) -> None:
    """The page leads on at once, so the other site has nothing to show."""
    page.route(f"{visit.provider.url}/**", lambda route: route.fulfill(status=204))
    page.get_by_role("button", name="Go on").click()


def _log_in_as_a_stranger(visit: Visit, page: Page) -> None:
    known = visit.provider.claims
    visit.provider.claims = {"sub": "2", "preferred_username": "stranger"}
    page.get_by_role("button", name="Log in with").click()
    expect(page.get_by_role("heading", name="No account")).to_be_visible()
    visit.provider.claims = known


def _error(status: int) -> Picture:
    """An error that no visitor of a demo can cause. The browser gets its page in place of the answer."""

    def answer(route: Route) -> None:
        # The manifest with the names of static files is the demo's.
        with override_settings(STORAGES={"staticfiles": _STATIC_FILES}):
            body = render_to_string(f"{status}.html")
        route.fulfill(status=status, content_type="text/html; charset=utf-8", body=body)

    def act(visit: Visit, page: Page) -> None:
        page.route("**/error/", answer)
        page.goto("/error/")

    return Picture(f"{status}.html", NOBODY, "/accounts/login/", act=act)


_SETUP = "/experiments/new/prompts-strategies/"
_EDIT, _PAIR = "setup/edit.html", "labeling/pair.html"
_CAREFUL, _ELSEWHERE = needs.CAREFUL, needs.LOGGED_IN_ELSEWHERE

PICTURES = {
    # ------------------------------------------------------------ annotators
    "join": Picture("labeling/join.html", NOBODY, needs=needs.an_invitation),
    "not-invited": Picture("labeling/invitation_refused.html", NOBODY, "/join/unknown/"),
    "home": Picture("labeling/home.html", ANNOTATOR, "/"),
    "welcome": Picture("labeling/welcome.html", ANNOTATOR, "/label/1/welcome/"),
    "pair": Picture(_PAIR, ANNOTATOR, "/label/1/", needs=needs.hasty_answers),
    "help": Picture(_PAIR, ANNOTATOR, "/label/1/", needs=needs.hasty_answers, act=_keys),
    "out-of-date": Picture("labeling/bad_request.html", ANNOTATOR, "/label/1/?ahead=0"),
    "history": Picture(
        "labeling/history.html", ANNOTATOR, "/label/1/history/", needs=needs.hasty_answers, whole=True
    ),
    # ------------------------------------------------------------ setup
    "experiments": Picture("labeling/home.html", ADMIN, "/"),
    "new": Picture("setup/new.html", ADMIN, "/experiments/new/"),
    "votes": Picture("setup/votes.html", ADMIN, "/experiments/new/votes/"),
    "columns": Picture("setup/columns.html", ADMIN, needs=needs.columns, whole=True),
    "setup": Picture(_EDIT, ADMIN, _SETUP),
    "setup-tasks": Picture(_EDIT, ADMIN, _SETUP, act=_click("button:has-text('2. Tasks')")),
    "setup-judges": Picture(_EDIT, ADMIN, _SETUP, act=_click("button:has-text('3. Judges')")),
    "setup-stop": Picture(_EDIT, ADMIN, _SETUP, act=_click("button:has-text('4. Stop and start')")),
    "try": Picture("setup/try.html", ADMIN, needs=needs.a_trial, whole=True),
    "rehearsal": Picture(_PAIR, ADMIN, needs=needs.a_trial, act=_click("a[href$='/rehearsal/']")),
    "delete": Picture("setup/delete.html", ADMIN, needs=needs.a_trial, act=_delete_the_draft),
    # ------------------------------------------------------------ results
    "dashboard": Picture(
        "dashboard/dashboard.html", ADMIN, "/experiments/2/", needs=needs.a_decision, whole=True
    ),
    "report": Picture(
        "reports/report.html", ADMIN, "/experiments/2/report/", needs=needs.a_decision, whole=True
    ),
    "shared": Picture("reports/report.html", ANNOTATOR, needs=needs.a_shared_report, whole=True),
    "link-ended": Picture("reports/ended.html", NOBODY, "/report/unknown/"),
    "quality": Picture(
        "dashboard/quality.html", ADMIN, "/experiments/2/quality/", needs=needs.a_decision, whole=True
    ),
    "marks": Picture(
        "dashboard/quality.html", ADMIN, "/experiments/1/quality/", needs=needs.hasty_answers, whole=True
    ),
    "method": Picture(
        "dashboard/method.html", ADMIN, "/experiments/2/method/", needs=needs.a_decision, whole=True
    ),
    "described": Picture("dashboard/setup.html", ADMIN, "/experiments/2/setup/", needs=needs.a_decision),
    "policy": Picture(
        "dashboard/policy.html", ADMIN, "/experiments/2/policies/1/", needs=needs.a_decision, whole=True
    ),
    "comparisons": Picture(
        "comparisons/comparisons.html", ADMIN, "/experiments/2/comparisons/", needs=needs.a_decision
    ),
    "comparison": Picture(
        "comparisons/comparison.html",
        ADMIN,
        "/experiments/2/comparisons/?state=judged",
        needs=needs.a_decision,
        act=_click("tbody th a"),
        whole=True,
    ),
    "export": Picture("export/export.html", ADMIN, "/experiments/2/export/", needs=needs.a_decision),
    "remarks": Picture("comparisons/remarks.html", ADMIN, "/experiments/1/remarks/"),
    # ------------------------------------------------------------ running an experiment
    "begin": Picture("labeling/begin.html", ADMIN, "/label/1/"),
    "stop": Picture(
        "dashboard/stop_confirm.html", ADMIN, "/experiments/1/", act=_click("button:has-text('Stop…')")
    ),
    "stop-here": Picture(
        "dashboard/stop_here.html",
        ADMIN,
        needs=needs.a_claim_to_stop_on,
        act=_click("button:has-text('Stop here…')"),
    ),
    "settings": Picture("dashboard/settings.html", ADMIN, "/experiments/1/settings/", whole=True),
    "changes": Picture(
        "dashboard/settings_confirm.html",
        ADMIN,
        "/experiments/1/settings/",
        act=_change_the_risk,
        whole=True,
    ),
    "people": Picture("dashboard/people.html", ADMIN, "/experiments/1/people/", whole=True),
    "invite": Picture("dashboard/people.html", ADMIN, "/experiments/1/invitations/"),
    "person": Picture(
        "dashboard/annotator.html",
        ADMIN,
        "/experiments/1/people/",
        needs=needs.hasty_answers,
        act=_click("a[href*='/annotators/']"),
        whole=True,
    ),
    "voiding": Picture(
        "dashboard/void_annotator.html",
        ADMIN,
        "/experiments/1/comparisons/?annotator=annotator",
        needs=needs.hasty_answers,
        act=_click("a[href*='/void']"),
    ),
    "log": Picture("dashboard/log.html", ADMIN, "/experiments/2/log/", needs=needs.a_decision),
    # ------------------------------------------------------------ the site, and one's account
    "login": Picture("account/login.html", NOBODY, "/accounts/login/"),
    "locked-out": Picture("account/locked_out.html", NOBODY, "/accounts/login/", act=_fail_to_log_in),
    "inactive": Picture("account/account_inactive.html", NOBODY, "/accounts/inactive/"),
    "forgotten": Picture("account/password_reset_by_hand.html", NOBODY, "/accounts/password/reset/"),
    "account": Picture("account/account.html", ADMIN, "/accounts/"),
    "keys": Picture("account/keys.html", ADMIN, "/accounts/keys/"),
    "password": Picture("account/password_change.html", ADMIN, "/accounts/password/change/"),
    "confirm": Picture("account/reauthenticate.html", ADMIN, "/accounts/confirm/"),
    "two-step": Picture("mfa/totp/activate_form.html", ADMIN, "/accounts/two-step/on/"),
    "two-step-code": Picture(
        "mfa/authenticate.html", NOBODY, "/accounts/login/", needs=needs.two_steps, act=_give_the_password
    ),
    "two-step-confirm": Picture(
        "mfa/reauthenticate.html", _CAREFUL, "/accounts/confirm/code/", needs=needs.two_steps
    ),
    "two-step-off": Picture(
        "mfa/totp/deactivate_form.html", _CAREFUL, "/accounts/two-step/off/", needs=needs.two_steps
    ),
    "recovery": Picture("mfa/recovery_codes/index.html", _CAREFUL, needs=needs.two_steps),
    "recovery-new": Picture(
        "mfa/recovery_codes/generate.html",
        _CAREFUL,
        "/accounts/two-step/recovery/new/",
        needs=needs.two_steps,
    ),
    "tokens": Picture("tokens.html", ADMIN, "/tokens/"),
    "persons": Picture("persons/persons.html", ADMIN, "/persons/"),
    "forget": Picture("persons/person.html", ADMIN, "/persons/", act=_click("a:text-is('annotator')")),
    "api": Picture("api/reference.html", ADMIN, "/api/docs"),
    "documents": Picture("help.html", ADMIN, "/help/"),
    "document": Picture("help.html", ADMIN, "/help/dashboard/"),
    # ------------------------------------------------------------ e-mail and single sign-on
    "login-elsewhere": Picture("account/login.html", NOBODY, "/accounts/login/", connected=True),
    "forgotten-by-mail": Picture(
        "account/password_reset.html", NOBODY, "/accounts/password/reset/", connected=True
    ),
    "forgotten-sent": Picture(
        "account/password_reset_done.html", NOBODY, "/accounts/password/reset/sent/", connected=True
    ),
    "forgotten-new": Picture(
        "account/password_reset_from_key.html", NOBODY, needs=needs.a_forgotten_password, connected=True
    ),
    "email": Picture(
        "account/email_change.html",
        ANNOTATOR,
        "/accounts/email/",
        needs=needs.a_new_address,
        connected=True,
    ),
    "email-confirm": Picture(
        "account/email_confirm.html", ANNOTATOR, needs=needs.a_new_address, connected=True
    ),
    "elsewhere": Picture("socialaccount/login.html", NOBODY, "/accounts/oidc/sso/login/", connected=True),
    "elsewhere-leaving": Picture(
        "socialaccount/leaving.html",
        NOBODY,
        "/accounts/oidc/sso/login/",
        act=_stay_on_the_way,
        connected=True,
    ),
    "elsewhere-failed": Picture(
        "socialaccount/authentication_error.html",
        NOBODY,
        "/accounts/oidc/sso/login/callback/",
        connected=True,
    ),
    "elsewhere-refused": Picture(
        "socialaccount/refused.html",
        NOBODY,
        "/accounts/login/",
        act=_log_in_as_a_stranger,
        connected=True,
    ),
    "elsewhere-linked": Picture("socialaccount/connections.html", ADMIN, "/accounts/linked/", connected=True),
    "elsewhere-confirm": Picture(
        "account/confirm_by_oidc.html",
        _ELSEWHERE,
        "/accounts/confirm/sso/",
        needs=needs.one_who_logs_in_elsewhere,
        connected=True,
    ),
    "password-first": Picture(
        "account/password_set.html", _ELSEWHERE, needs=needs.one_who_logs_in_elsewhere, connected=True
    ),
    # ------------------------------------------------------------ refusals and errors
    "withheld": Picture(
        "comparisons/withheld.html", ADMIN, needs=needs.one_who_judges_and_watches, connected=True
    ),
    "report-withheld": Picture(
        "reports/withheld.html", ANNOTATOR, needs=needs.a_report_of_one_that_runs, connected=True
    ),
    "no-cookies": Picture("403_csrf.html", NOBODY, "/accounts/login/", act=_log_in_without_cookies),
    "error-403": Picture("403.html", ANNOTATOR, "/experiments/1/"),
    "error-413": Picture("413.html", ADMIN, "/experiments/new/votes/", act=_upload_too_much),
    "error-404": Picture("404.html", ANNOTATOR, "/unknown/"),
} | {f"error-{status}": _error(status) for status in (400, 429, 500, 503)}
