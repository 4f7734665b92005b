"""The page of an experiment's settings: said first, then done."""

from dataclasses import replace
from typing import ClassVar

import pytest
from django.urls import reverse

from engine.domain.errors import WrongStateError
from engine.importing.experiment_files import read_experiment
from engine.models import Experiment
from engine.selectors.specs import experiment_spec
from engine.services.drafts import create_experiment, replace_draft
from engine.services.experiments import stop
from tests.accounts import let_create
from tests.factories import add_member, click, make_experiment, make_spec, make_user
from tests.markup import Markup, words

pytestmark = pytest.mark.django_db


def change(client, experiment, *, confirmed: bool = False, **values):
    form = {name: getattr(experiment, name) for name in ("claim", "budget", "delta", "epsilon")} | values
    url = reverse("change_settings", args=[experiment.pk])
    return client.post(url, form | ({"confirmed": "1"} if confirmed else {}))


def test_a_change_is_explained_before_it_is_made(experiment, annotator, editor, client_for, sent):
    click(experiment, annotator)
    client = client_for(editor)
    asked = change(client, experiment, delta=0.1, budget=3000)
    assert asked.status_code == 200
    assert "A larger risk chosen after looking breaks the guarantee" in words(asked)
    assert "The budget only limits the number of comparisons" in words(asked)
    experiment.refresh_from_db()
    assert (experiment.delta, experiment.budget) == (0.05, 2000)

    # The very form that the page of questions holds.
    page = Markup(asked.content.decode())
    hidden = {
        e.attributes["name"]: e.attributes["value"]
        for e in page.elements
        if e.attributes.get("type") == "hidden"
        and e.attributes["name"] in {"claim", "budget", "delta", "epsilon"}
    }
    assert change(client, experiment, confirmed=True, **hidden).status_code == 302
    experiment.refresh_from_db()
    assert (experiment.delta, experiment.budget, experiment.epsilon) == (0.1, 3000, 0)
    dashboard = words(client.get(reverse("dashboard", args=[experiment.pk])))
    assert "The accepted risk was raised from 0.05 to 0.1 after outcomes had been seen" in dashboard


def test_after_a_change_the_planner_looks_again(
    experiment, editor, client_for, sent, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True):
        change(client_for(editor), experiment, budget=5, confirmed=True)
    assert sent == [(experiment.pk,)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"delta": "0.9"},
        # Setup and the API refuse it, too: there is one largest risk.
        {"delta": "0.495"},
        {"delta": "nan"},
        {"delta": ""},
        {"epsilon": "-1"},
        {"budget": "1e9"},
        {"budget": "x"},
    ],
)
@pytest.mark.parametrize("confirmed", [False, True])
def test_a_value_that_cannot_be_is_marked_and_nothing_changes(
    wrong, confirmed, experiment, editor, client_for
):
    response = change(client_for(editor), experiment, confirmed=confirmed, **wrong)
    assert response.status_code == 400
    assert "field-error" in response.content.decode()
    experiment.refresh_from_db()
    assert (experiment.delta, experiment.epsilon, experiment.budget) == (0.05, 0, 2000)


class TestReopen:
    def test_a_concluded_one_goes_on(self, experiment, owner, client_for):
        stop(experiment_id=experiment.pk)
        client = client_for(owner)
        assert "Reopen with these settings?" in words(change(client, experiment))
        change(client, experiment, confirmed=True)
        experiment.refresh_from_db()
        assert experiment.state == "running"

    def test_why_it_cannot_is_said_on_the_page(self, annotator, owner, client_for):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        add_member(experiment, owner, "owner")
        click(experiment, annotator)
        stop(experiment_id=experiment.pk)
        response = change(client_for(owner), experiment, budget=1, confirmed=True)
        assert response.status_code == 400
        assert "the experiment would conclude again at once. Give it a larger budget." in words(response)
        experiment.refresh_from_db()
        assert (experiment.state, experiment.budget) == ("concluded", 2000)


class TestClone:
    def clone(self, client, experiment, name="Second"):
        return client.post(reverse("clone", args=[experiment.pk]), {"name": name})

    def test_who_may_make_experiments_copies_and_owns_the_copy(self, experiment, editor, client_for):
        let_create(editor)
        response = self.clone(client_for(editor), experiment)
        copy = Experiment.objects.get(name="Second")
        # There the candidates that are to challenge the winner are added.
        assert response["Location"] == reverse("setup", args=[copy.pk])
        assert copy.memberships.get().user == editor


class TestArchive:
    def act(self, client, experiment, action):
        return client.post(reverse("change_state", args=[experiment.pk]), {"action": action})

    def test_it_leaves_everybodys_first_page_until_it_is_asked_for(
        self, experiment, annotator, viewer, owner, client_for
    ):
        stop(experiment_id=experiment.pk)
        self.act(client_for(owner), experiment, "archive")
        home = client_for(viewer).get(reverse("home"))
        assert experiment.name not in words(home)
        assert "Archive (1)" in words(home)
        assert experiment.name in words(client_for(viewer).get(reverse("home") + "?state=archived"))
        assert experiment.name not in words(client_for(annotator).get(reverse("home")))
        self.act(client_for(owner), experiment, "unarchive")
        assert experiment.name in words(client_for(viewer).get(reverse("home")))

    def test_a_draft_in_it_is_read_and_not_changed(self, owner, client_for):
        draft = make_experiment(running=False)
        add_member(draft, owner, "owner")
        client, setup = client_for(owner), reverse("setup", args=[draft.pk])
        assert 'name="action" value="save"' in client.get(setup).content.decode()
        self.act(client, draft, "archive")
        page = client.get(setup)
        assert (page.status_code, b'value="save"' in page.content) == (200, False)
        spec = experiment_spec(draft)
        with pytest.raises(WrongStateError, match="Take it out of the archive first"):
            replace_draft(experiment_id=draft.pk, spec=replace(spec, name="Changed"), by=owner)
        self.act(client, draft, "unarchive")
        replace_draft(experiment_id=draft.pk, spec=replace(spec, name="Changed"), by=owner)
        draft.refresh_from_db()
        assert draft.name == "Changed"


class TestDisplay:
    """Tags, and a leaderboard that is off until somebody wants it."""

    def test_both_change_after_the_start_and_touch_no_evidence(self, experiment, editor, client_for):
        address = reverse("change_display", args=[experiment.pk])
        client = client_for(editor)
        form = {"name": experiment.name, "leaderboard": "on"}
        client.post(address, form | {"tags": " Support,german ,, support"})
        client.post(address, form | {"tags": "german, Support"})
        experiment.refresh_from_db()
        assert (experiment.tags, experiment.leaderboard) == ("german, support", True)
        assert not experiment.evidence_stale
        [entry] = experiment.audit_entries.filter(action="edit")
        assert entry.text == "Changed the description: tags, leaderboard."

    def test_a_file_carries_them(self, experiment):
        read = read_experiment("name: A\ntags: Two, one\nleaderboard: true\n").spec
        assert (read.settings["tags"], read.settings["leaderboard"]) == ("Two, one", True)
        made = create_experiment(spec=make_spec(tags="Two, one"))
        assert experiment_spec(made).settings["tags"] == "one, two"


class TestTheEvidenceDoesNotDependOn:
    """Name, guidelines and tags change in every state; on the page and by the API."""

    FORM: ClassVar = {"name": "Better name", "guidelines": "No typo.", "tags": "a", "money_limit": ""}

    @pytest.fixture
    def finished(self, experiment, annotator) -> Experiment:
        click(experiment, annotator)
        return stop(experiment_id=experiment.pk)

    def test_they_change_even_at_the_end_and_the_log_keeps_what_was(self, finished, editor, client_for):
        before = (finished.name, finished.guidelines)
        client = client_for(editor)
        assert client.post(reverse("change_display", args=[finished.pk]), self.FORM).status_code == 302
        finished.refresh_from_db()
        assert (finished.name, finished.guidelines, finished.tags) == ("Better name", "No typo.", "a")
        assert finished.state == "concluded"
        entry = finished.audit_entries.first()
        assert (entry.details["before"]["name"], entry.details["before"]["guidelines"]) == before

    def test_the_page_has_every_field_of_the_form(self, finished, editor, client_for):
        """One that it lacks would be emptied by saving the others."""
        answer = client_for(editor).get(reverse("experiment_settings", args=[finished.pk]))
        fields = answer.context["display_form"].fields
        assert [each for each in fields if f'name="{each}"' not in answer.text] == []

    @pytest.mark.parametrize("name", ["", "Taken", "x" * 201])
    def test_a_bad_name_is_refused_at_its_field(self, name, finished, editor, client_for):
        create_experiment(spec=replace(make_spec(), name="Taken"))
        url = reverse("change_display", args=[finished.pk])
        answer = client_for(editor).post(url, self.FORM | {"name": name})
        assert answer.status_code == 400
        assert answer.context["display_form"].errors.keys() == {"name"}
        assert not Experiment.objects.filter(name="Better name").exists()

    def test_others_change_nothing(self, finished, annotator, client_for, client):
        url = reverse("change_display", args=[finished.pk])
        viewer = add_member(finished, make_user("v"), "viewer").user
        answers = [
            each.post(url, self.FORM).status_code for each in (client_for(viewer), client_for(annotator))
        ]
        assert answers == [403, 403]
        assert client.post(url, self.FORM)["Location"].startswith(reverse("login"))
        assert not Experiment.objects.filter(name="Better name").exists()


def test_the_proposed_name_of_a_copy_is_free(experiment, editor, client_for):
    let_create(editor)
    add_member(experiment, editor, "owner")
    client = client_for(editor)
    page, url = reverse("experiment_settings", args=[experiment.pk]), reverse("clone", args=[experiment.pk])
    names = [client.get(page).context["clone_form"].initial["name"]]
    assert client.post(url, {"name": names[0]}).status_code == 302
    names.append(client.get(page).context["clone_form"].initial["name"])
    assert client.post(url, {"name": names[1]}).status_code == 302
    assert len({*names, experiment.name}) == 3
    taken = client.post(url, {"name": names[0]})
    assert (taken.status_code, list(taken.context["clone_form"].errors)) == (400, ["name"])
