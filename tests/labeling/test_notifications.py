"""Subscriptions on the page of settings: added, tested and removed."""

import pytest
from django.urls import reverse

from engine.models import Notification, Subscription
from engine.services.notifications import claim_due, mark_unsent
from tests.factories import subscribed
from tests.markup import words

pytestmark = pytest.mark.django_db


def add(client, experiment, **form):
    defaults = {"kind": "email", "target": "ann@example.org", "events": ["concluded"]}
    return client.post(reverse("subscribe", args=[experiment.pk]), defaults | form)


def settings_of(client, experiment) -> str:
    return words(client.get(reverse("experiment_settings", args=[experiment.pk])))


def test_an_address_is_added_and_listed(experiment, editor, client_for):
    client = client_for(editor)
    assert add(client, experiment)["Location"] == reverse("experiment_settings", args=[experiment.pk])
    assert "E-mail to ann@example.org It concludes." in settings_of(client, experiment)


def test_a_webhooks_secret_is_shown_once(experiment, editor, client_for):
    client = client_for(editor)
    page = add(client, experiment, kind="webhook", target="https://example.org/hook")
    secret = Subscription.objects.get().secret
    assert secret in words(page)
    assert "no-store" in page["Cache-Control"]
    assert secret not in settings_of(client, experiment)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"target": "nobody"}, "Give an e-mail address"),
        ({"kind": "webhook", "target": "http://127.0.0.1/"}, "not a public address"),
        ({"events": []}, "Tick at least one."),
        ({"kind": "pigeon"}, "Select a valid choice."),
    ],
)
def test_what_cannot_be_is_explained(form, message, experiment, editor, client_for):
    response = add(client_for(editor), experiment, **form)
    assert response.status_code == 400
    assert not Subscription.objects.exists()
    if form.get("kind") != "pigeon":
        assert message in words(response)


def test_a_test_is_written_and_what_became_of_it_is_shown(experiment, editor, client_for):
    subscription = subscribed(experiment)
    client = client_for(editor)
    client.post(reverse("send_test", args=[experiment.pk, subscription.pk]))
    assert Notification.objects.get().event == "test"
    mark_unsent(notification=claim_due(), error="It answered 500.")
    assert "It answered 500." in settings_of(client, experiment)


@pytest.fixture(params=["console", "dummy"])
def no_mail(settings, request) -> None:
    settings.EMAIL_BACKEND = f"django.core.mail.backends.{request.param}.EmailBackend"


def test_without_mail_no_test_pretends_to_be_sent(no_mail, experiment, editor, client_for):
    """Under console:// the page said that a test e-mail was on its way."""
    subscription = subscribed(experiment)
    client = client_for(editor)
    page = client.post(reverse("send_test", args=[experiment.pk, subscription.pk]), follow=True)
    assert "No test was sent. Mail is not configured here" in words(page)
    assert "on its way" not in words(page)
    assert not Notification.objects.exists()


def test_without_mail_webhooks_are_tested_all_the_same(no_mail, experiment, editor, client_for):
    hook = subscribed(experiment, kind="webhook", target="https://example.org/hook")
    client_for(editor).post(reverse("send_test", args=[experiment.pk, hook.pk]))
    assert Notification.objects.get().event == "test"


def test_no_page_shows_the_url_of_a_webhook_again(experiment, editor, viewer, client_for):
    """A Slack URL lets anybody post who knows it, so pages show only its host."""
    client = client_for(editor)
    url = "https://hooks.slack.com/services/T0/B0/s3cret"
    pages = [words(add(client, experiment, kind="webhook", target=url)), settings_of(client, experiment)]
    subscription = Subscription.objects.get()
    client.post(reverse("send_test", args=[experiment.pk, subscription.pk]))
    pages.append(settings_of(client, experiment))
    client.post(reverse("unsubscribe", args=[experiment.pk, subscription.pk]))
    pages.append(words(client_for(viewer).get(reverse("log", args=[experiment.pk]))))
    assert all("hooks.slack.com" in page for page in pages)
    assert not any("s3cret" in page or "services" in page for page in pages)
