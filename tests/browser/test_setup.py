"""Building an experiment of 2 × 3 policies by hand, with the keyboard."""

import pytest
from playwright.sync_api import Dialog, Page, Route, expect

from engine.domain.specs import FactorSpec, TaskSpec
from engine.models import Experiment, Membership, User, WorkerPulse
from engine.selectors import specs
from tests.accounts import let_create
from tests.browser.conftest import log_in, log_in_by_form
from tests.browser.test_accessibility import violations
from tests.factories import add_member, make_experiment, make_user

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def maker(transactional_db: None) -> User:
    user = make_user("maker")
    let_create(user)
    WorkerPulse.objects.create(queue="generation", worker="w", details={"backend": "vllm", "model": "Qwen"})
    return user


def press(page: Page, name: str) -> None:
    """Reach a button as a keyboard does, and press it, before anything else can take the focus."""
    page.get_by_role("button", name=name, exact=True).press("Enter")


def type_level(page: Page, field: str, name: str, text: str) -> None:
    """Type into the level whose name has the focus: what was added is what is typed into next."""
    expect(page.locator(f"#id_{field}-name")).to_be_focused()
    page.keyboard.type(name)
    page.locator(f"#id_{field}-text").focus()
    page.keyboard.type(text)


@pytest.mark.parametrize("width", [1280, 390], ids=["desk", "phone"])
def test_an_experiment_is_built_by_hand_counted_and_started(page, maker, problems, width):
    page.set_viewport_size({"width": width, "height": 844})
    log_in(page, maker)
    page.goto("/")
    page.get_by_role("link", name="New experiment").click()
    page.get_by_role("link", name="From scratch").click()
    page.get_by_label("Name", exact=True).fill("Counting objects")
    # Before the page's script runs, the server shows the step, as it does without one.
    page.wait_for_load_state()
    press(page, "Next: Tasks")
    expect(page.get_by_role("button", name="2. Tasks")).to_be_focused()
    page.locator("#tasks").fill("I have two cars and a dog. How many animals?\t1\nA cow, a cat: how many?\t2")
    expect(page.locator("#tasks-preview")).to_contain_text("2 tasks, 2 with a reference answer.")
    expect(page.locator("#size-tasks")).to_have_text("2")

    press(page, "1. Policies")
    press(page, "Add a factor")
    expect(page.locator("#id_f1-name")).to_be_focused()
    page.keyboard.type("Prompt")
    for level, (name, text) in {"l1": ("Plain", "Help."), "l2": ("Careful", "Check twice.")}.items():
        page.locator(f"#id_f1-{level}-name").fill(name)
        page.locator(f"#id_f1-{level}-text").fill(text)
    press(page, "Add a factor")
    expect(page.locator("#id_f2-name")).to_be_focused()
    page.keyboard.type("Strategy")
    page.locator("#id_f2-kind").select_option("strategy")
    expect(page.locator("#id_f2-kind")).to_be_focused()
    page.locator("#id_f2-l1-name").fill("Direct")
    page.locator("#id_f2-l1-text").fill("Answer directly.")
    page.locator("#id_f2-l2-name").fill("Steps")
    page.locator("#id_f2-l2-text").fill("Think step by step.")
    press(page, "Add a level to factor 2")
    type_level(page, "f2-l3", "None", "")
    press(page, "Move level 3 of factor 2 up")
    # The pressed button has this id until the reply, which gives it to the row's new one.
    expect(page.locator("#up-f2-l3")).to_have_attribute("aria-label", "Move level 2 of factor 2 up")
    expect(page.locator("#up-f2-l3")).to_be_focused()

    press(page, "3. Judges")
    page.get_by_label("Rule (reference answers)").check()
    press(page, "4. Stop and start")
    page.get_by_label("Budget: maximum number of comparisons").fill("60")
    page.keyboard.press("Tab")
    expect(page.locator("#size-policies")).to_have_text("6")
    expect(page.locator("#size-pairs")).to_have_text("15")
    expect(page.locator("#size-comparisons")).to_contain_text("over")

    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    for step in ("1. Policies", "2. Tasks", "3. Judges", "4. Stop and start"):
        press(page, step)
        assert violations(page) == []
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    expect(page.get_by_text("Ready to start.")).to_be_visible()

    press(page, "Save as a draft")
    page.wait_for_url("**/setup/?step=stop")
    expect(page.get_by_role("status").filter(has_text="Saved as a draft.")).to_be_visible()
    experiment = Experiment.objects.get()
    spec = specs.experiment_spec(experiment)
    assert spec.factors == [
        FactorSpec("Prompt", "prompt", {"Plain": {"text": "Help."}, "Careful": {"text": "Check twice."}}),
        FactorSpec(
            "Strategy",
            "strategy",
            {
                "Direct": {"instruction": "Answer directly."},
                "None": {},
                "Steps": {"instruction": "Think step by step."},
            },
        ),
    ]
    assert spec.tasks == [
        TaskSpec("I have two cars and a dog. How many animals?", "1"),
        TaskSpec("A cow, a cat: how many?", "2"),
    ]

    press(page, "Save and start")
    page.wait_for_url(f"**/experiments/{experiment.pk}/")
    experiment.refresh_from_db()
    assert (experiment.state, experiment.judge, experiment.budget) == ("running", "rule", 60)


def test_a_late_reply_leaves_the_focus_where_it_went_meanwhile(page: Page, maker: User):
    log_in(page, maker)
    page.goto("/experiments/new/prompts/")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/experiments/new/**", hold)
    with page.expect_request(lambda request: "add-factor" in (request.post_data or "")):
        press(page, "Add a factor")
    page.get_by_label("Name", exact=True).focus()
    for route in held:
        route.continue_()
    page.unroute_all()
    expect(page.locator("#id_f2-name")).to_be_visible()
    page.keyboard.type("Kept")
    expect(page.get_by_label("Name", exact=True)).to_have_value("Kept")


def test_back_leads_to_the_step_before_with_all_that_was_typed(page, maker):
    log_in(page, maker)
    page.goto("/experiments/new/prompts/")
    page.get_by_label("Name", exact=True).fill("Typed")
    press(page, "2. Tasks")
    press(page, "3. Judges")
    for step, back in (
        ("2. Tasks", page.go_back),
        ("1. Policies", page.go_back),
        ("2. Tasks", page.go_forward),
    ):
        back()
        expect(page.get_by_role("button", name=step, exact=True)).to_have_attribute("aria-current", "step")
    press(page, "1. Policies")
    expect(page.get_by_label("Name", exact=True)).to_have_value("Typed")


def test_a_press_without_a_connection_is_said(page, maker, problems):
    log_in(page, maker)
    page.goto("/experiments/new/prompts/")
    lost = page.get_by_role("alert").filter(has_text="The server did not answer.")
    page.route("**/experiments/new/**", lambda route: route.abort())
    press(page, "Add a factor")
    expect(lost).to_be_visible()
    page.unroute_all()
    press(page, "Add a factor")
    expect(page.locator("#id_f2-name")).to_be_visible()
    expect(lost).to_have_count(0)
    # The browser and htmx log what does not arrive.
    problems[:] = [each for each in problems if "ERR_FAILED" not in each and "htmx:" not in each]


def test_what_is_wrong_is_said_on_top_and_nothing_typed_is_lost(page, maker, problems):
    log_in(page, maker)
    page.goto("/experiments/new/prompts-strategies/")
    page.locator("#id_f1-l2-text").fill("Kept.")
    page.get_by_label("Name", exact=True).focus()
    page.keyboard.press("Enter")  # saves, and is no press of the first button that there is
    expect(page.locator("#errors")).to_contain_text("Give the experiment a name.")
    expect(page.locator("#errors")).to_be_focused()
    # A draft may have no tasks yet; the start needs some.
    expect(page.locator("#errors")).not_to_contain_text("Tasks")
    # The start is on the last step alone.
    expect(page.get_by_role("button", name="Save and start")).to_be_hidden()
    page.get_by_role("button", name="4. Stop and start").click()
    page.get_by_role("button", name="Save and start").click()
    expect(page.locator("#errors")).to_contain_text("Tasks: give at least one.")
    expect(page.locator("#errors")).to_be_focused()
    expect(page.get_by_role("button", name="2. Tasks to correct")).to_be_visible()
    expect(page.locator("#id_f1-l2-text")).to_have_value("Kept.")
    page.get_by_role("link", name="Tasks: give at least one.").press("Enter")
    expect(page.get_by_label("Tasks", exact=True)).to_be_focused()
    assert not Experiment.objects.exists()
    assert violations(page) == []
    page.get_by_label("Tasks", exact=True).fill("How are you?")
    expect(page.get_by_role("button", name="2. Tasks", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="1. Policies to correct")).to_be_visible()
    expect(page.locator("#errors li")).to_have_count(1)
    page.get_by_role("button", name="1. Policies to correct").click()
    page.get_by_label("Name", exact=True).fill("Answers")
    page.get_by_label("Name", exact=True).blur()
    # "Ready to start" beside "Give the experiment a name" would leave both in doubt.
    expect(page.get_by_text("Ready to start.")).to_be_visible()
    expect(page.locator("#errors, .errorlist")).to_have_count(0)
    # The browser logs the answer as the 400 that it is.
    problems[:] = [problem for problem in problems if "400" not in problem]


def test_after_a_logout_what_was_typed_stays_and_is_saved_after_the_next_login(page, maker, problems):
    log_in(page, maker)
    page.goto("/experiments/new/prompts/")
    page.get_by_label("Name", exact=True).fill("The work of an hour")
    page.context.clear_cookies(name="sessionid")
    page.get_by_label("Name", exact=True).blur()
    told = page.get_by_text("Not saved: you were logged out.")
    # The summary is asked for by itself, and never has the login page in it.
    expect(told).to_be_visible()
    expect(page.get_by_label("Password")).to_have_count(0)
    page.get_by_role("button", name="2. Tasks").click()
    page.get_by_label("Tasks", exact=True).fill("How are you?")
    page.get_by_role("button", name="Save as a draft").click()
    with page.context.expect_page() as other:
        page.get_by_role("link", name="Log in in another tab").click()
    log_in_by_form(other.value, maker)
    other.value.close()
    page.bring_to_front()
    page.get_by_role("button", name="Save as a draft").dblclick()
    expect(page.get_by_text("Saved as a draft.")).to_be_visible()
    experiment = Experiment.objects.get()
    assert experiment.name == "The work of an hour"
    assert experiment.tasks.get().prompt == "How are you?"
    # A summary that was asked for with the token of the login before.
    problems[:] = [problem for problem in problems if "403" not in problem]


@pytest.mark.parametrize("role", ["viewer", None])
def test_losing_the_right_to_edit_loses_nothing_that_was_typed(page, maker, problems, role):
    draft = make_experiment(running=False)
    membership = add_member(draft, maker, "editor")
    log_in(page, maker)
    page.goto(f"/experiments/{draft.pk}/setup/")
    page.get_by_label("Name", exact=True).fill("The work of an hour")
    if role is None:
        membership.delete()
    else:
        Membership.objects.filter(pk=membership.pk).update(role=role)
    page.get_by_role("button", name="Save as a draft").click()
    told = page.get_by_role("alert").filter(has_text="Not saved: you may no longer change this draft.")
    expect(told).to_be_visible()
    expect(page.get_by_label("Name", exact=True)).to_have_value("The work of an hour")
    Membership.objects.update_or_create(experiment=draft, user=maker, defaults={"role": "editor"})
    page.get_by_role("button", name="Save as a draft").click()
    expect(page.get_by_text("Saved as a draft.")).to_be_visible()
    draft.refresh_from_db()
    assert draft.name == "The work of an hour"
    # The browser logs what the server refuses.
    problems[:] = [each for each in problems if "403" not in each and "404" not in each]


def test_an_answer_of_the_server_that_failed_loses_nothing_that_was_typed(page, maker, problems):
    log_in(page, maker)
    page.goto("/experiments/new/prompts/")
    page.get_by_label("Name", exact=True).fill("The work of an hour")
    page.route("**/experiments/new/**", lambda route: route.fulfill(status=503, body="Busy."))
    page.get_by_role("button", name="Save as a draft").click()
    expect(page.get_by_role("alert").filter(has_text="The server did not answer.")).to_be_visible()
    expect(page.get_by_label("Name", exact=True)).to_have_value("The work of an hour")
    problems[:] = [problem for problem in problems if "503" not in problem]


def test_typed_texts_are_neither_left_nor_removed_without_a_question(browser, live_server, maker):
    page = browser.new_page(base_url=live_server.url)
    asked: list[str] = []
    answers = {"confirm": False, "beforeunload": False}

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.type)
        (dialog.accept if answers[dialog.type] else dialog.dismiss)()

    page.on("dialog", answer)
    log_in(page, maker)
    page.goto("/experiments/new/prompts-strategies/")
    text = page.locator("#id_f1-l1-text")
    text.fill("The work of an hour.")
    press(page, "Remove level 1 of factor 1")
    expect(text).to_have_value("The work of an hour.")
    with page.expect_event("dialog"):
        page.evaluate("void (location.href = '/')")
    assert asked == ["confirm", "beforeunload"]
    expect(text).to_have_value("The work of an hour.")

    answers["confirm"] = True
    press(page, "Remove level 1 of factor 1")
    expect(text).to_have_count(0)
    press(page, "Add a level to factor 1")
    # The new field takes the focus a moment after the new buttons are there.
    expect(page.locator("#id_f1-l3-name")).to_be_focused()
    asked.clear()
    press(page, "Remove level 2 of factor 1")
    expect(page.get_by_role("button", name="Remove level 2 of factor 1")).to_have_count(0)
    assert asked == [], "there is no text to lose"

    page.get_by_label("Name", exact=True).fill("Kept")
    press(page, "2. Tasks")
    tasks = page.locator("#tasks")
    file = {"name": "t.txt", "mimeType": "text/plain", "buffer": b"Of the file?"}
    page.locator("#tasks-file").set_input_files(file)
    expect(tasks).to_have_value("Of the file?")
    assert asked == [], "there are no tasks to lose"
    tasks.fill("How many?")
    answers["confirm"] = False
    page.locator("#tasks-file").set_input_files(file)
    expect(page.locator("#tasks-file")).to_have_value("")
    expect(tasks).to_have_value("How many?")
    assert asked == ["confirm"]
    asked.clear()
    press(page, "Save as a draft")
    page.wait_for_url("**/setup/**")
    page.goto("/")
    assert asked == [], "what is saved is not lost"
    page.close()


def test_the_size_is_asked_for_again_after_a_request_that_failed(page, maker, problems):
    log_in(page, maker)
    lost: list[str] = []

    def lose_the_first(route: Route) -> None:
        if "part=size" in (route.request.post_data or "") or 'name="part"' in (route.request.post_data or ""):
            lost.append(route.request.url)
            if len(lost) == 1:
                route.abort()
                return
        route.continue_()

    page.route("**/experiments/new/**", lose_the_first)
    page.goto("/experiments/new/prompts/")
    expect(page.locator("#size-comparisons")).to_be_visible(timeout=20_000)
    assert len(lost) == 2
    assert all("ERR_FAILED" in problem or "htmx:" in problem for problem in problems)
    problems.clear()


def test_the_margin_follows_the_claim_until_another_one_is_typed(page: Page, maker: User):
    log_in(page, maker)
    page.goto("/experiments/new/prompts/?step=stop")
    page.locator("summary", has_text="Advanced: margin").click()
    margin = page.locator("#id_epsilon")
    expect(page.get_by_label("Stop when one is good enough")).to_be_checked()
    expect(margin).to_have_value("0.05")
    page.locator("[name=claim][value=best_if_any]").check()
    expect(margin).to_have_value("0.0")
    margin.fill("0.1")
    page.get_by_label("Stop when one is good enough").check()
    expect(margin).to_have_value("0.1")
    expect(page.locator("#size-claims li")).to_have_count(3)


@pytest.mark.parametrize("width", [1280, 390], ids=["desk", "phone"])
def test_a_thing_that_is_missing_leads_to_its_field_in_any_step(page: Page, maker, width):
    page.set_viewport_size({"width": width, "height": 844})
    log_in(page, maker)
    page.goto("/experiments/new/prompts-strategies/")
    page.get_by_label("Name", exact=True).fill("Tone")
    page.get_by_label("Factor", exact=True).nth(1).fill("System prompt")
    page.keyboard.press("Tab")
    link = page.get_by_role("link", name="Two factors are named")
    expect(link).to_be_visible()
    for each in page.locator("#can-start a").all():
        box = each.bounding_box()
        assert box is not None
        assert box["height"] >= 44
    press(page, "3. Judges")
    link.click()
    field = page.locator("#id_f2-name")
    expect(field).to_be_focused()
    expect(page.locator("label[for=id_f2-name]")).to_be_in_viewport()
    field.fill("Strategy")
    page.keyboard.press("Tab")
    expect(link).to_have_count(0)
    page.get_by_role("link", name="Add tasks.").click()
    expect(page.locator("#tasks")).to_be_focused()
