"""The page that tries a draft: its responses, what it warns of, and that it ends with the draft."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from engine import tasks
from engine.domain.specs import FactorSpec, TaskSpec
from engine.models import Connection, Experiment, Response, WorkerPulse
from engine.selectors.specs import experiment_spec, version_of
from engine.services.drafts import create_experiment
from engine.services.experiments import start
from labeling.forms.draft import data_of
from tests.backends import ScriptedBackend, system_of
from tests.engine.test_drawing import imported_spec
from tests.factories import add_member, make_experiment, make_spec, make_user, pay, write_responses
from tests.markup import text_of

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


@pytest.fixture(autouse=True)
def woken(monkeypatch) -> list[str]:
    sent: list[str] = []
    monkeypatch.setattr(tasks.generate, "apply_async", lambda args=(), **options: sent.append("generate"))
    return sent


@pytest.fixture
def draft() -> Experiment:
    return make_experiment(running=False, budget=60, n_tasks=9)


@pytest.fixture
def page(draft, client_for):
    editor = make_user()
    add_member(draft, editor, "editor")
    return client_for(editor)


def url(experiment: Experiment) -> str:
    return reverse("try", args=[experiment.pk])


def tried(page, experiment: Experiment, backend=None, tasks: str = "1") -> str:
    """The page after a trial whose responses this backend wrote."""
    assert page.post(url(experiment), {"tasks": tasks}).status_code == 302
    write_responses(backend)
    return page.get(url(experiment)).content.decode()


def test_a_trial_from_its_first_page_to_its_last_response(
    draft, page, woken, django_capture_on_commit_callbacks
):
    assert 'value="1, ' in page.get(url(draft)).content.decode()
    with django_capture_on_commit_callbacks(execute=True):
        assert page.post(url(draft), {"tasks": "9, 1"})["Location"] == url(draft)
    assert woken == ["generate"]
    html = page.get(url(draft), headers=HTMX).content.decode()
    assert "<html" not in html
    assert "0 of 6 responses written." in html
    assert 'hx-trigger="every 1s"' in html
    start = '<button class="primary" name="action" value="start">'
    assert start not in html
    write_responses()
    pay(Response.objects.all(), 1.0)
    html = page.get(url(draft)).content.decode()
    assert "6 of 6 responses written." in html
    assert 'hx-trigger="every 1s"' not in html
    assert "6.00 USD" in html
    assert html.count("It is ") == 6
    assert start in html


def save_and_try(page, draft: Experiment):
    """Press the button of the setup page."""
    data = data_of(experiment_spec(draft)) | {"action": "try", "version": str(version_of(draft))}
    return page.post(reverse("setup", args=[draft.pk]), data, follow=True)


def test_saving_and_trying_is_one_press(draft, page, woken, settings, django_capture_on_commit_callbacks):
    """It led to a page with one more button to press."""
    settings.MOST_TRIED = 10
    with django_capture_on_commit_callbacks(execute=True):
        shown = save_and_try(page, draft)
    assert "0 of 9 responses written." in text_of(shown.content.decode())
    assert woken == ["generate"]
    shown = text_of(save_and_try(page, draft).content.decode())
    assert "Saved as a draft." in shown
    assert "Try fewer tasks, wait until tomorrow, or raise MOST_TRIED." in shown


def test_a_draft_has_the_tabs_with_something_to_show(draft, page, client_for):
    """Four others were empty, and its setup had no link to its trial."""

    def tabs(client, name: str = "setup") -> list[str]:
        html = client.get(reverse(name, args=[draft.pk])).content.decode()
        nav = html.partition('<nav class="tabs no-print"')[2].partition("</nav>")[0]
        assert ("appear after the start." in nav) is (draft.state == "draft")
        return re.findall(r"<a href=[^>]*>(\w+)</a>", nav)

    viewer = make_user()
    add_member(draft, viewer, "viewer")
    assert tabs(page) == tabs(page, "try") == ["Setup", "Trial", "People", "Settings"]
    assert tabs(client_for(viewer)) == ["Setup"]
    page.post(reverse("change_state", args=[draft.pk]), {"action": "archive"})
    assert tabs(page) == ["Setup", "People", "Settings"]
    page.post(reverse("change_state", args=[draft.pk]), {"action": "unarchive"})
    start(experiment_id=draft.pk)
    draft.refresh_from_db()
    started = ["Result", "Quality", "Method", "Setup", "Comparisons", "Export"]
    assert tabs(client_for(viewer)) == started
    assert tabs(page) == [*started, "People", "Settings"]


def test_a_draft_opens_where_its_next_step_is(draft, page, client_for):
    """It opened on an empty tab Result."""

    def opened(client) -> str:
        response = client.get(reverse("dashboard", args=[draft.pk]), follow=True)
        assert response.status_code == 200
        return response.redirect_chain[-1][0]

    setup = reverse("setup", args=[draft.pk])
    state = reverse("change_state", args=[draft.pk])
    viewer = make_user()
    add_member(draft, viewer, "viewer")
    assert opened(page) == setup
    tried(page, draft)
    assert opened(page) == url(draft)
    assert opened(client_for(viewer)) == setup
    page.post(state, {"action": "archive"})
    assert opened(page) == setup
    page.post(state, {"action": "unarchive"})
    page.post(setup, data_of(experiment_spec(draft)) | {"tasks": "", "version": str(version_of(draft))})
    assert opened(page) == f"{setup}?step=tasks"


@pytest.mark.parametrize(
    ("details", "message", "awaited"),
    [
        (
            {"trouble": "The server is away."},
            "The backend does not work: The server is away.",
            "the backend to work again",
        ),
        ({"loading": True}, "The workers are loading their models.", "the model to load"),
        ({}, "", "the next look of a worker"),
        (None, "No generation worker is running", "a generation worker"),
    ],
)
def test_while_nothing_is_written_it_says_why(details, message, awaited, draft, page):
    if details is not None:
        details |= {"backend": "smollm2", "model": "m"}
        WorkerPulse.objects.create(queue="generation", worker="w", seen_at=timezone.now(), details=details)
    page.post(url(draft), {"tasks": "1"})
    html = page.get(url(draft)).content.decode()
    assert message in html
    assert html.count(f"Waiting for {awaited} …") == 3


def test_while_one_is_written_the_others_wait_for_their_turn(draft, page):
    details = {"backend": "smollm2", "model": "m"}
    WorkerPulse.objects.create(queue="generation", worker="w", seen_at=timezone.now(), details=details)
    page.post(url(draft), {"tasks": "1"})
    first = Response.objects.order_by("pk").values("pk")[:1]
    soon = timezone.now() + timedelta(minutes=1)
    Response.objects.filter(pk__in=first).update(state="generating", claim_expires_at=soon)
    html = page.get(url(draft)).content.decode()
    assert html.count("Being written …") == 1
    assert html.count("Waiting for its turn: the workers are busy …") == 2


def test_a_stop_keeps_what_is_written(draft, page):
    page.post(url(draft), {"tasks": "1, 2"})
    first = Response.objects.order_by("pk").first()
    Response.objects.filter(pk=first.pk).update(state="done", text="Written.", done_at=timezone.now())
    assert page.post(url(draft), {"action": "stop"})["Location"] == url(draft)
    assert "1 of 1 responses written." in page.get(url(draft)).content.decode()


def by_quality(*texts: str) -> ScriptedBackend:
    """Writes these texts, by the number in the prompt "quality N"."""
    return ScriptedBackend(lambda request: texts[int(system_of(request)[-1])])


@pytest.mark.parametrize(
    ("backend", "message", "place"),
    [
        (by_quality("One.", "One.", "Two."), "Two policies gave the same", "Prompt 0 = Prompt 1, task 1"),
        (by_quality("One.", " \n", "Two."), "A response is no answer", "Prompt 1, task 1"),
        (
            by_quality("One.", "Two.", "I am scripted-1, at your service."),
            "A response reveals its prompt or its model",
            "Prompt 2, task 1",
        ),
    ],
    ids=["equal", "empty", "leak"],
)
def test_it_warns_of_responses_and_says_where(backend, message, place, draft, page):
    html = tried(page, draft, backend)
    assert message in html
    assert f">{place}</a>" in html
    assert "No problem was found." not in html


def test_it_warns_of_braces_left_over(client_for):
    spec = make_spec()
    spec.tasks[:] = [TaskSpec("What is 1 + 0? {{ name }}"), TaskSpec("What is 2 + 0?")]
    draft = create_experiment(spec=spec)
    page = client_for(make_user(is_superuser=True))
    html = tried(page, draft, tasks="1, 2")
    assert "Braces are left over" in html
    assert ">Prompt 0, task 1</a>" in html
    assert ">Prompt 0, task 2</a>" not in html


def test_a_policy_that_has_a_prompt_from_another_factor_does_not_lack_one(client_for):
    """It warned of the level "Neutral", though each policy with it has the prompt of the other factor."""
    spec = make_spec()
    spec.factors.append(FactorSpec("Tone", "prompt", {"Neutral": {"text": ""}, "Warm": {"text": "Be warm."}}))
    page = client_for(make_user(is_superuser=True))
    assert "No system prompt" not in tried(page, create_experiment(spec=spec))
    spec = replace(spec, name="Another")
    spec.factors[0].levels["Prompt 1"] = {"text": ""}
    assert "No system prompt: “Prompt 1 · Neutral”. Write one" in tried(page, create_experiment(spec=spec))


@pytest.mark.parametrize(("budget", "warns"), [(10, True), (5000, False)])
def test_it_warns_of_a_budget_that_will_not_do(budget, warns, client_for):
    draft = create_experiment(spec=make_spec(budget=budget, claim="good_enough", epsilon=0.1))
    html = tried(client_for(make_user(is_superuser=True)), draft)
    assert ("would spend their budget" in html) == warns
    assert ("No problem was found." in html) != warns
    assert "choose “good enough”" not in html


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ("", "required"),
        ("one", "Write the numbers of tasks"),
        ("10", "There is no task 10."),
        ("9" * 27, "Write the"),
    ],
)
def test_other_tasks_are_refused_with_the_reason(tasks, message, draft, page):
    response = page.post(url(draft), {"tasks": tasks})
    assert response.status_code == 400
    assert message in text_of(response.content.decode())
    assert not Response.objects.exists()


def test_ready_made_responses_are_not_tried(client_for):
    draft = create_experiment(spec=imported_spec())
    page = client_for(make_user(is_superuser=True))
    html = page.get(url(draft)).content.decode()
    assert "The responses of this experiment are ready-made." in text_of(html)
    assert f'href="{reverse("rehearse", args=[draft.pk])}"' in html
    assert "Start the experiment" in html
    assert page.post(url(draft), {"tasks": "1"})["Location"] == reverse("setup", args=[draft.pk])


class TestRehearsal:
    def url(self, experiment: Experiment) -> str:
        return reverse("rehearse", args=[experiment.pk])

    def test_it_is_the_annotators_page_with_tried_responses_to_one_task(self, draft, page):
        tried(page, draft, tasks="1, 2")
        html = page.get(self.url(draft)).content.decode()
        assert "Rehearsal: not counted" in html
        assert 'id="choose-left"' in html
        asked, *numbers = map(int, re.findall(r"(?:What is|It is) (\d+)", html))
        assert {number % 1000 for number in numbers} == {asked}
        assert "quality" not in html
        assert "Prompt 1" not in html

    @pytest.mark.parametrize("body", [{"choice": "left"}, {"reason": "broken"}, {}])
    def test_an_answer_is_followed_by_a_pair_and_stores_nothing(self, body, draft, page):
        tried(page, draft)
        with CaptureQueriesContext(connection) as queries:
            html = page.post(self.url(draft), body, headers=HTMX).content.decode()
        assert "Rehearsal: nothing was saved." in html
        assert 'id="choose-left"' in html
        changes = [each["sql"] for each in queries if not each["sql"].startswith(("SELECT", "SAVEPOINT"))]
        assert [sql for sql in changes if "session" not in sql.lower()] == []
        assert page.post(self.url(draft) + "?held", body, headers=HTMX).status_code == 204

    def test_without_two_responses_that_differ_it_leads_back(self, draft, page):
        assert page.get(self.url(draft))["Location"] == url(draft)
        tried(page, draft, by_quality("A.", "A.", "A."))
        assert page.get(self.url(draft))["Location"] == url(draft)

    def test_ready_made_responses_need_no_trial(self, client_for):
        draft = create_experiment(spec=imported_spec())
        page = client_for(make_user(is_superuser=True))
        for _ in range(8):
            html = page.get(self.url(draft)).content.decode()
            shown = re.findall(r'aria-labelledby="label-[ab]"[^>]*><p[^>]*>(\w+)</p>', html)
            assert {*shown} in ({"1", "one"}, {"I", "one"}, {"2", "two"}), "of two policies, to one task"
        assert (
            "Rehearsal: nothing was saved." in page.post(self.url(draft), {}, headers=HTMX).content.decode()
        )


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"text": "", "finish_reason": "length"}, "No answer within the maximum of tokens."),
        ({"text": "Half a", "finish_reason": "length"}, "was cut at its maximum of tokens."),
        ({"text": "", "finish_reason": "refused", "refusal": "I will not."}, "“I will not.”"),
        ({"text": "<think>Hm</think> 2"}, "holds tags of thinking"),
        ({"marks": ["</s>"]}, "ended in &lt;/s&gt;"),
    ],
)
def test_it_says_what_the_parts_of_a_reply_give_reason_to_look_at(parts, message, draft, page):
    tried(page, draft)
    row = Response.objects.order_by("pk").first()
    for name, value in parts.items():
        setattr(row, name, value)
    row.save()
    assert message in page.get(url(draft)).content.decode()


def test_it_warns_of_equal_requests_and_says_what_is_not_sent(client_for):
    """Two connections to one model: their policies can only tie."""
    for name, takes in (("One", {}), ("Same", {}), ("Else", {"system": False})):
        Connection.objects.create(
            name=name, provider="compatible", model_id="m", address="http://a", everybody=True, takes=takes
        )
    spec = make_spec(1)
    spec.factors.append(FactorSpec("Model", "model", {n: {"name": n} for n in ("One", "Same", "Else")}))
    html = tried(client_for(make_user(is_superuser=True)), create_experiment(spec=spec))
    assert "Two policies send the same request" in html
    assert ">One = Same, task 1</a>" in html
    assert "system message" in html
