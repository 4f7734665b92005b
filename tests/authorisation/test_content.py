"""Links, buttons and texts of the pages: all work for their readers, and nobody reads above their role."""

import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from django.http import HttpResponse
from django.urls import resolve, reverse
from lxml import html

from engine.models import AuditEntry
from tests.authorisation.table import ADMIN_SITE, TABLE, is_api
from tests.authorisation.world import World, people_inside

pytestmark = pytest.mark.django_db

# A button answers with 400 or 409 where a form is not filled in, which says that it may be pressed.
REFUSED = {401, 403, 404, 405}
# They lead to the login on purpose.
LOG_OUT = {"/accounts/logout/", "/accounts/everywhere/"}


@dataclass(frozen=True)
class Step:
    """The request that a click on a page sends."""

    method: str
    path: str
    fields: tuple[tuple[str, str], ...] = ()


def steps(page: str, response: HttpResponse) -> Iterator[Step]:
    """Every link, form (once for each of its buttons) and request of htmx on a page."""
    if not response["Content-Type"].startswith("text/html") or not response.text_read.strip():
        return
    document = html.fromstring(response.text_read)
    document.make_links_absolute(f"http://testserver{page}")
    for link in document.iterfind(".//a[@href]"):
        yield from _step("get", link.get("href"))
    for element in document.iter():
        for method in ("get", "post", "put", "patch", "delete"):
            if target := element.get(f"hx-{method}") if isinstance(element.tag, str) else None:
                yield from _step(method, urljoin(f"http://testserver{page}", target))
    for form in document.forms:
        if form.method == "DIALOG":
            continue
        buttons = [b for b in form.iter("button") if b.get("type") != "button" and not b.get("disabled")]
        for button in buttons:
            fields = [
                *form.form_values(),
                *([(button.get("name"), button.get("value", ""))] if button.get("name") else []),
            ]
            yield from _step(form.method.lower(), button.get("formaction") or form.action or page, fields)


def _step(method: str, target: str, fields: list[tuple[str, str]] | None = None) -> Iterator[Step]:
    url = urlsplit(urljoin("http://testserver", target))
    if url.netloc == "testserver" and not url.path.startswith(("/static/", f"/{ADMIN_SITE}")):
        query = f"?{url.query}" if url.query and method == "get" else ""
        yield Step(method, url.path + query, tuple(fields or ()))


def kind_of(step: Step) -> tuple[Any, ...]:
    """Steps of one kind lead alike: the same address of the same experiment, with the same fields and the
    same button.
    """
    match = resolve(urlsplit(step.path).path)
    # Each page has a token of its own against forgery.
    fields = [field for field in step.fields if field[0] != "csrfmiddlewaretoken"]
    names = tuple(sorted({name for name, _ in fields}))
    return step.method, match.route, match.kwargs.get("experiment_id"), names, tuple(fields[-1:])


def take(world: World, role: str, step: Step) -> HttpResponse:
    if step.method == "get" and step.fields:
        return world.call(role, "get", step.path, dict(step.fields))
    body: dict[str, Any] = {}
    for name, value in step.fields:
        body.setdefault(name, []).append(value)
    return world.call(role, step.method, step.path, body or None)


@pytest.mark.parametrize("role", ["anonymous", *people_inside()])
def test_every_link_and_button_works_for_its_readers_and_nobody_reads_above_their_role(role, world: World):
    """From every page that the role may open, in every state of an experiment,
    and on to what those lead to.
    """
    starts = dict(start_pages(world, role))
    waiting = [Step("get", path) for path in starts]
    seen, wrong = set(map(kind_of, waiting)), []
    origins = dict.fromkeys(waiting, "the table")
    while waiting:
        step = waiting.pop()
        response = take(world, role, step)
        if origins[step] == "the table" and not starts[step.path] and 200 < response.status_code < 500:
            continue
        to_login = response.status_code == 302 and response["Location"].startswith(reverse("login"))
        logged_out = to_login and role != "anonymous" and step.path not in LOG_OUT
        if response.status_code in REFUSED or response.status_code >= 500 or logged_out:
            wrong.append(f"{origins[step]} leads to {step.method} {step.path}: {response.status_code}")
        told = TABLE["report/<token>/"].tells if step.path.startswith("/report/") else ()
        wrong += [f"{step.method} {step.path} shows {leak}" for leak in world.leaks(role, response, told)]
        if response.status_code != 200 or step.method != "get":
            continue
        for following in steps(step.path, response):
            if (kind := kind_of(following)) not in seen:
                seen.add(kind)
                origins[following] = step.path
                waiting.append(following)
    assert not wrong, f"As {role}:\n" + "\n".join(dict.fromkeys(wrong))
    assert len(seen) > 3


def start_pages(world: World, role: str) -> Iterator[tuple[str, bool]]:
    """The pages of the table, and whether this role may open each: that depends on the experiment's state."""
    for route, row in TABLE.items():
        if is_api(route) or row.methods.get("get", {}).get(role) != 200:
            continue
        if route.count("<") == 1 and "<experiment_id>" in route:
            for experiment in world.by_state.values():
                yield (
                    world.path(route.replace("<experiment_id>", str(experiment.pk)), role, "own"),
                    experiment == world.own.experiment,
                )
        else:
            yield world.path(route, role, "own"), True


@pytest.mark.parametrize("role", ["annotator", "superuser"])
def test_no_page_that_is_only_looked_at_writes_to_the_log(role, world: World):
    """A link of somebody else's could make anybody export."""
    paths = [path for path, _ in start_pages(world, role)]
    with world.visit(role) as client:
        before = AuditEntry.objects.count()
        for path in paths:
            b"".join(client.get(path))
            assert AuditEntry.objects.count() == before, path


@pytest.mark.parametrize("role", people_inside())
def test_a_canary_is_where_it_may_be_read(role, world: World):
    """A canary that nobody ever meets would guard nothing."""
    readers = {
        "the names of the policies": "",
        "a prompt": "setup.yaml",
        "a reference answer": "setup.yaml",
        "the rubric": "setup.yaml",
        "the seed": "setup.yaml",
        "another annotator's comment": "judgments.csv",
        "another annotator's name": "comparisons/",
        "a subscriber's e-mail address": "settings/",
        "a webhook's host": "log/",
        "a destination's host": "log/",
        "the hint of an annotator's invitation": "people/",
        "the hint of an owner's invitation": "people/",
    }
    for name, page in readers.items():
        method = "post" if page in FILES else "get"
        text = world.call(role, method, f"/experiments/{world.own.experiment.pk}/{page}").text_read
        assert (world.own.canaries[name].encode() in text) == world.may_read(role, name), (name, page)


FILES = ("judgments.csv", "judgments.jsonl", "dpo.jsonl", "reward.jsonl", "kto.jsonl")


@pytest.mark.parametrize("role", ["viewer", "editor", "owner", "superuser"])
def test_exports_name_nobody_unless_an_owner_asks(role, world: World):
    """docs/privacy.md."""
    name, own = world.own.canaries["another annotator's name"].encode(), world.own.experiment.pk
    for file in FILES[:2]:
        path = f"/experiments/{own}/{file}"
        assert name not in world.call(role, "post", path).text_read
        asked = world.call(role, "post", f"{path}?usernames=on")
        assert asked.status_code == (200 if role in {"owner", "superuser"} else 403)
        assert (name in asked.text_read) == (role in {"owner", "superuser"})


@pytest.mark.parametrize("state", ["running", "paused", "concluded"])
@pytest.mark.parametrize("role", people_inside())
def test_the_secret_is_published_with_exports_after_the_conclusion(role, state, world: World):
    """docs/blinding.md: until then nobody could know a side by it, owners and superusers included."""
    experiment = world.by_state[state]
    secret = experiment.secret.encode()
    for file in FILES:
        answer = world.call(role, "post", f"/experiments/{experiment.pk}/{file}?zip=on")
        pieces = [answer.text_read]
        if answer.status_code == 200:
            archive = zipfile.ZipFile(io.BytesIO(answer.text_read))
            pieces = [archive.read(name) for name in archive.namelist()]
        published = state == "concluded" and role in {"viewer", "editor", "owner", "superuser"}
        assert any(secret in piece for piece in pieces) == published, file
