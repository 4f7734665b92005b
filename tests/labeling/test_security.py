"""Headers of every answer, and information that no annotator may get."""

import re
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from engine.models import Comparison, Level, Policy, Response
from tests.authorisation.table import ROLES, TABLE, is_api
from tests.authorisation.world import World
from tests.factories import assign, make_experiment

pytestmark = pytest.mark.django_db


def csp(response: HttpResponse) -> dict[str, str]:
    parts = (part.strip().partition(" ") for part in response["Content-Security-Policy"].split(";"))
    return {name: sources for name, _, sources in parts}


STRICT = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "font-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}


def every_page(admin_client: Client) -> dict[str, HttpResponse]:
    """One answer of every address, and the answers that are no page of ours."""
    world, pages = World(), {}
    for route, row in TABLE.items():
        if row.methods and not is_api(route):
            method, statuses = next(iter(row.methods.items()))
            role = next(role for role in reversed(ROLES) if role in statuses)
            pages[route] = world.call(role, method, world.path(route, role, "own"))
    return pages | {
        "login": Client().get(reverse("login")),
        "not found": admin_client.get("/nowhere/"),
        "not allowed": admin_client.get(reverse("change_state", args=[world.own.experiment.pk])),
        "forged": Client(enforce_csrf_checks=True).post(reverse("login"), {}),
        "admin site": admin_client.get(reverse("admin:index")),
        "admin login": Client().get(reverse("admin:login")),
        "redirect": Client().get(reverse("home")),
    }


def test_every_answer_carries_the_same_strict_policy_and_no_page_needs_more(admin, client_for):
    for name, response in every_page(client_for(admin)).items():
        assert csp(response) == STRICT, name
        assert response["X-Content-Type-Options"] == "nosniff", name
        assert response["X-Frame-Options"] == "DENY", name
        # The address of an invitation or a report is a secret, which not even our own log of referrers should
        # see.
        secret = name in {"join/<token>/", "report/<token>/"}
        assert response["Referrer-Policy"] == ("no-referrer" if secret else "same-origin"), name
        if response.streaming or not response["Content-Type"].startswith("text/html"):
            continue
        html = response.content.decode()
        for script in re.findall(r"<script\b[^>]*>", html):
            assert "src=" in script or 'type="application/json"' in script, (name, script)
        assert not re.search(r"<[^>]+\s(style|on\w+)=", html), name
        assert not re.search(r"<style\b", html), name
        assert not re.search(r"""(?:src|href|action)=["'](?:https?:)?//""", html), name


def test_an_error_page_tells_nothing_of_the_inside(experiment, settings, client_for, admin):
    settings.DEBUG = False
    client = client_for(admin)
    html = client.get("/nowhere/").content.decode()
    assert "This page does not exist, or you may not see it." in html
    assert "urlpatterns" not in html
    forged = Client(enforce_csrf_checks=True)
    assert "Not allowed" in forged.post(reverse("login"), {}).content.decode()


# ---------------------------------------------------------------- policy identity


def what_an_annotator_gets(client: Client, experiment: Any) -> str:
    """Every byte of the page and of its htmx part, headers included, but for the form's random tokens."""
    url = reverse("pair", args=[experiment.pk])
    seen = ""
    for headers in ({}, {"HX-Request": "true"}):
        response = client.get(url, headers=headers)
        assert response.status_code == 200
        seen += f"{sorted(response.headers.items())}\n{response.content.decode()}"
    seen = re.sub(r'name="csrfmiddlewaretoken" value="\w+"|"X-CSRFToken": "\w+"', "", seen)
    return re.sub(r"('Expires', '[^']*')", "", seen)


def test_the_page_of_a_pair_is_the_same_whichever_policies_wrote_it(annotator, client_for):
    """Another two policies, other levels, another generation: not one byte may differ."""
    experiment = make_experiment(n_policies=6, ready=True, annotators=(annotator,))
    client = client_for(annotator)
    comparison = assign(experiment, annotator).comparison
    before = what_an_annotator_gets(client, experiment)
    assert comparison.left.text in before

    Level.objects.update(value={"text": "utterly different"})
    for level in Level.objects.all():
        Level.objects.filter(pk=level.pk).update(name=f"Level renamed {level.pk}")
    others = Policy.objects.exclude(pk__in=[comparison.policy_i_id, comparison.policy_j_id])
    i, j = others[2], others[0]
    Comparison.objects.filter(pk=comparison.pk).update(
        policy_i=i, policy_j=j, plan={"sampler": "other"}, skips=0
    )
    for response_id, policy in ((comparison.response_i_id, i), (comparison.response_j_id, j)):
        Response.objects.filter(pk=response_id).update(
            policy=policy,
            seed=123456,
            model="another-model",
            latency_seconds=98.7,
            prompt_tokens=4321,
            completion_tokens=1234,
            finish_reason="length",
            guardrail="output",
            claimed_by="another-worker",
        )
    assert what_an_annotator_gets(client, experiment) == before


def test_neither_names_nor_texts_of_levels_nor_labels_reach_an_annotator(annotator, client_for):
    experiment = make_experiment(n_policies=4, ready=True, annotators=(annotator,))
    client = client_for(annotator)
    form = {"token": assign(experiment, annotator).token, "choice": "left"}
    judged = client.post(reverse("judge", args=[experiment.pk]), form, headers={"HX-Request": "true"})
    skipped = client.post(
        reverse("skip", args=[experiment.pk]),
        {"token": assign(experiment, annotator).token, "reason": "task"},
        headers={"HX-Request": "true"},
    )
    seen = [what_an_annotator_gets(client, experiment), judged.content.decode(), skipped.content.decode()]
    seen.append(client.get(reverse("home")).content.decode())
    secrets = [f"Prompt {k}" for k in range(4)] + [f"quality {k}" for k in range(4)]
    secrets += ["System prompt", *(f">P{k + 1}<" for k in range(4)), "skilled"]
    for html in seen:
        assert not [secret for secret in secrets if secret in html]
