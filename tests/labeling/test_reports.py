"""The report of an experiment, and the links by which people without an account read it."""

import re
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from engine.importing.votes import Vote, Winner
from engine.models import AuditEntry, Experiment, ReportLink, User
from engine.services.experiments import start
from engine.services.past_votes import start_from_votes
from engine.services.people import change_role, remove_member, settle_account
from engine.services.planning import advance
from engine.services.reports import end_report_link, open_link, share_report
from engine.services.setting_changes import change_settings
from tests.engine.test_pools import pool_of, texts
from tests.factories import add_member, certify, click, click_on, make_experiment
from tests.markup import words

pytestmark = pytest.mark.django_db


def shared(experiment: Experiment, by: User) -> str:
    """The address of a new link."""
    _, secret = share_report(experiment=experiment, by=by, valid_days=7)
    return reverse("shared_report", args=[secret])


def test_it_tells_the_result_and_names_nobody(experiment, annotator, owner, client_for):
    click_on(experiment, annotator, 6)
    certify(experiment, winner=2)
    address = shared(experiment, owner)
    page = Client().get(address)
    told = words(page)
    assert (page.status_code, page["Referrer-Policy"]) == (200, "no-referrer")
    assert "noindex" in page["X-Robots-Tag"]
    assert "no-store" in page["Cache-Control"]
    for text in (experiment.question, "Use Prompt 2", "Prompt 0", "Prompt 1", "6 answers by 1 person"):
        assert text in told
    assert re.search(r"Prompt 2 winner \d+ comparisons", told)
    # Its claim is another one than that of the setup: verdict and method have the risk of both together.
    assert told.count("at most 10%") == 2
    for name in (annotator.username, owner.username, "quality 2"):
        assert name not in told
    links = re.findall(r'href="(/[^"]*)"', page.content.decode())
    assert not [link for link in links if link.startswith("/experiments/")]
    own = client_for(owner).get(reverse("report", args=[experiment.pk])).content.decode()
    assert reverse("export", args=[experiment.pk]) in own


def test_a_prompt_is_shown_only_by_a_link_that_was_made_to_show_it(
    experiment, annotator, owner, viewer, client_for
):
    click_on(experiment, annotator, 6)
    certify(experiment, winner=2)
    told = []
    for choice in ({}, {"shows_prompt": "on"}):
        form = {"valid_days": "7"} | choice
        page = client_for(owner).post(reverse("share_report", args=[experiment.pk]), form)
        secret = re.search(r"/report/([\w-]{43})/", page.content.decode())[1]
        told.append(words(Client().get(reverse("shared_report", args=[secret]))))
    without, with_prompt = told
    assert "quality 2" not in without
    assert "System prompt quality 2" in with_prompt
    assert "quality 1" not in with_prompt, "nothing of the others"
    # The list of links and the log tell them apart.
    list_of_links = words(client_for(owner).get(reverse("report", args=[experiment.pk])))
    assert list_of_links.count("with the recommended policy’s prompt") == 1
    entry = AuditEntry.objects.filter(action="share").latest("pk")
    assert entry.details["until"].endswith(", with the winner’s prompt and settings")
    assert "quality 2" not in words(client_for(viewer).get(reverse("report", args=[experiment.pk])))


def test_of_ready_made_responses_no_prompt_is_offered(owner, client_for):
    experiment = pool_of({name: texts(name) for name in "ABC"})
    add_member(experiment, owner, "owner")
    certify(experiment, winner=2)
    form = {"valid_days": "7", "shows_prompt": "on"}
    page = client_for(owner).post(reverse("share_report", args=[experiment.pk]), form)
    assert page.status_code == 200
    assert not ReportLink.objects.get().shows_prompt


def test_a_link_is_shown_once_stored_as_a_hash_and_ended(experiment, editor, client_for):
    client = client_for(editor)
    page = client.post(reverse("share_report", args=[experiment.pk]), {"valid_days": "0"})
    secret = re.search(r"/report/([\w-]{43})/", page.content.decode())[1]
    link = ReportLink.objects.get()
    assert link.expires_at is None
    assert secret not in str(ReportLink.objects.values())
    again = client.get(reverse("report", args=[experiment.pk])).content.decode()
    assert secret not in again
    assert f"{link.hint}…" in again
    assert open_link(secret=secret) == link
    client.post(reverse("end_report_link", args=[experiment.pk, link.pk]))
    assert Client().get(reverse("shared_report", args=[secret])).status_code == 410
    actions = AuditEntry.objects.filter(experiment=experiment).order_by("-pk")[:2]
    assert [entry.action for entry in actions] == ["end_share", "share"]
    # A second click ends nothing more.
    end_report_link(link_id=link.pk, by=editor)
    assert AuditEntry.objects.filter(action="end_share").count() == 1


@pytest.mark.parametrize("how", ["removed", "demoted", "deactivated"])
def test_a_role_that_comes_back_opens_no_old_link(how, experiment, editor, admin):
    address = shared(experiment, editor)
    member = experiment.memberships.get(user=editor)
    if how == "removed":
        remove_member(membership_id=member.pk, by=None)
        add_member(experiment, editor, "editor")
    elif how == "demoted":
        change_role(membership_id=member.pk, by=admin, role="viewer")
        change_role(membership_id=member.pk, by=admin, role="editor")
    else:
        for is_active in (False, True):
            User.objects.filter(pk=editor.pk).update(is_active=is_active)
            editor.refresh_from_db()
            settle_account(user=editor)
    assert Client().get(address).status_code == 410
    assert AuditEntry.objects.filter(action="end_share", about=editor).count() == 1


@pytest.mark.parametrize("how", ["expired", "its maker left", "its maker was deactivated", "no such link"])
def test_a_link_that_is_over_shows_nothing(how, experiment, editor):
    address = shared(experiment, editor)
    if how == "expired":
        ReportLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    elif how == "its maker left":
        remove_member(membership_id=experiment.memberships.get(user=editor).pk, by=None)
    elif how == "its maker was deactivated":
        User.objects.filter(pk=editor.pk).update(is_active=False)
    else:
        address = reverse("shared_report", args=["x" * 43])
    page = Client().get(address)
    assert page.status_code == 410
    assert experiment.question not in page.content.decode()


def test_before_the_end_its_makers_are_warned_and_its_annotators_get_nothing(
    experiment, annotator, editor, client_for
):
    click_on(experiment, annotator, 3)
    address, own = shared(experiment, editor), reverse("report", args=[experiment.pk])
    assert "Do not give the link to annotators" in words(client_for(editor).get(own))
    theirs = client_for(annotator).get(address)
    assert (theirs.status_code, b"Prompt" in theirs.content) == (403, False)
    certify(experiment, winner=2)
    assert client_for(annotator).get(address).status_code == 200
    assert "Do not give the link" not in words(client_for(editor).get(own))


def test_of_past_votes_it_tells_no_pairs_or_sides_that_were_chosen_here(annotator, owner, client_for):
    votes = [
        Vote(f"row {n}", f"T{n // 2}", "P", "QR"[n % 2], Winner.TIE, response_a=f"p{n}", response_b=f"q{n}")
        for n in range(12)
    ]
    experiment = start_from_votes(name="Past", votes=votes)
    add_member(experiment, annotator)
    add_member(experiment, owner, "owner")
    start(experiment_id=experiment.pk)
    advance(experiment_id=experiment.pk)
    for n, fair in ((12, False), (13, True)):
        told = words(client_for(owner).get(reverse("report", args=[experiment.pk])))
        assert ("12 of 13 judgments are past votes" if fair else "All judgments are past votes") in told
        assert ("A fair coin decided the sides." in told) == fair, n
        click(experiment, annotator)
        cache.clear()


def test_guessing_links_is_throttled(settings, experiment):
    cache.clear()
    settings.ACCOUNT_RATE_LIMITS = settings.ACCOUNT_RATE_LIMITS | {"shared_report": "3/m/ip"}
    client = Client()
    codes = [client.get(reverse("shared_report", args=[f"{n}" * 43])).status_code for n in range(5)]
    assert codes == [410, 410, 410, 429, 429]


def test_a_draft_has_none(admin, client_for):
    draft = make_experiment(running=False)
    assert client_for(admin).get(reverse("report", args=[draft.pk])).status_code == 404


def test_a_promise_that_is_changed_after_outcomes_is_told_at_once(experiment, annotator, owner, settings):
    settings.DASHBOARD_SECONDS = 60
    click_on(experiment, annotator, 6)
    address = shared(experiment, owner)
    said, promised = "had been seen", "however often somebody looked"
    told = words(Client().get(address))
    assert promised in told
    assert said not in told
    change_settings(experiment_id=experiment.pk, by=owner, delta=0.2)
    told = words(Client().get(address))
    assert said in told
    assert promised not in told
