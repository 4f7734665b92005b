"""Every action through a page or the API is in the log with its actor, and the text names no person."""

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from engine.models import (
    AuditEntry,
    Connection,
    Experiment,
    Invitation,
    Judgment,
    Membership,
    Response,
    Token,
)
from engine.models.append_only import lifted
from engine.publishing import sending
from engine.publishing.winners import winner_of
from engine.selectors.findings import ladder
from engine.services import people
from engine.services.drafts import delete_experiment
from engine.services.improvements import add_proposals, claim_writing
from engine.services.invitations import create_invitation
from engine.services.planning import advance
from tests.accounts import bearer, log_in_recently
from tests.downloads import ask
from tests.factories import add_member, certify, click, click_for, make_experiment, make_user, write_responses
from tests.labeling.test_setup import filled, sent
from tests.tables import run_imports

# Actions of LLM-PO itself and of the command line.
NOBODYS = {
    AuditEntry.Action.CONCLUDE,
    AuditEntry.Action.IMPROVED,
    AuditEntry.Action.LLM_HALTED,
    AuditEntry.Action.PROMOTED,
    AuditEntry.Action.RESET_LINK,
}


@pytest.fixture(scope="class")
def walked(shared_rows: None) -> int:
    """The key of a person who has done every possible action through the pages."""
    annotator = make_user("ann.of.kiel")
    admin = make_user("admin", is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(admin)
    log_in_recently(client, admin)

    def post(name: str, /, *arguments: object, **data: object) -> Experiment:
        response = client.post(reverse(name, args=arguments), data)
        assert response.status_code in {200, 302}, (name, response.content)
        return response

    # Set up, start from the same page, change, delete.
    client.post(reverse("new_from", args=["prompts-strategies"]), sent(filled(name="One")))
    draft = Experiment.objects.get(name="One")
    client.post(reverse("setup", args=[draft.pk]), sent(filled(name="Two"), action="start"))
    client.post(reverse("new_from", args=["prompts-strategies"]), sent(filled(name="Gone")))
    post("delete_experiment", Experiment.objects.get(name="Gone").pk)

    experiment = make_experiment(name="Which?", ready=True, annotators=(annotator,))
    with lifted():
        AuditEntry.objects.filter(experiment=experiment).delete()
    add_member(experiment, admin, "owner")
    judgment = click(experiment, annotator)
    post("settle_remarks", experiment.pk, judgment.comparison_id, until=timezone.now().isoformat())
    post("void", experiment.pk, judgment.pk, reason="A slip.")
    post("restore", experiment.pk, judgment.pk)
    post("void_annotator", experiment.pk, annotator.pk, reason="A robot.")

    post("change_llm_judge", experiment.pk, stage="shadow", rubric="", budget="40")
    form = {"level-name": "Warm", "level-text": "Be warm."}
    post("add_policy", experiment.pk, **form)
    post("retire_policy", experiment.pk, 4, reason="Too warm.")
    post("add_tasks", experiment.pk, tasks="I have two owls.")
    post("leave_out_task", experiment.pk, 1, reason="Too easy.")
    post("change_settings", experiment.pk, claim="best", budget=7, delta=0.2, epsilon=0.1, confirmed="1")
    Experiment.objects.filter(pk=experiment.pk).update(
        state="concluded", conclusion="budget", concluded_at=timezone.now()
    )
    post("change_settings", experiment.pk, claim="best", budget=9, delta=0.2, epsilon=0.1, confirmed="1")
    post(
        "new_connection", whose="site", provider="openai", model_id="gpt", key="sk-0123456789abcdef",
        currency="USD", at_once=16, answer_seconds=600,
    )  # fmt: skip
    model = Connection.objects.get()
    post("lend_connection", model.pk, experiment=experiment.pk)
    post("end_loan", model.pk, model.loans.get().pk)
    Response.objects.filter(pk=experiment.comparisons.first().response_i_id).update(refused_at=timezone.now())
    for action in ("try_again", "pause", "start", "stop", "archive", "unarchive"):
        post("change_state", experiment.pk, action=action, confirmed="1")
    post("clone", experiment.pk, name="Another")
    votes = SimpleUploadedFile("votes.csv", b"task,policy_a,policy_b,winner\nWhy?,Short,Long,a\n")
    post("import_votes", name="Past", votes=votes)
    run_imports()
    settled = make_experiment(
        n_policies=2, ready=True, annotators=(annotator,), claim="best", epsilon=0.3, delta=0.4
    )
    with lifted():
        AuditEntry.objects.filter(experiment=settled).delete()
    while not ladder(settled).rungs[0].holds:
        click_for(settled, annotator, lambda i, j: i < j)
        write_responses()
        advance(experiment_id=settled.pk)
    post("stop_here", settled.pk, claim="good_enough", confirmed="1")

    improved = make_experiment(n_tasks=24, epsilon=0.1, annotators=(annotator,))
    with lifted():
        AuditEntry.objects.filter(experiment=improved).delete()
    post("improve", improved.pk, writer="prepared", factor="System prompt", clicks=40, needs_ok="on")
    improvement = improved.improvements.get()
    claim_writing(improvement_id=improvement.pk)
    add_proposals(
        improvement_id=improvement.pk,
        parent=0,
        written=[("You are warm.", "Why."), ("You are short.", "Why.")],
    )
    post("settle_proposal", improved.pk, 1, action="accept", text="You are warm.")
    post("settle_proposal", improved.pk, 2, action="refuse", reason="Too short.")
    post("stop_improving", improved.pk, certify="1")
    post("stop_improving", improved.pk, confirmed="1")
    post("improve", improved.pk, more="20")

    texts = [{"factor": "System prompt", "level": "Prompt 0", "text": "Be warm."}]
    by_token = bearer(admin)
    for merged in (False, True):
        body = {"texts": texts, "merged": merged}
        path = f"/api/experiments/{improved.pk}/gate"
        asked = client.post(path, body, content_type="application/json", headers=by_token)
        assert asked.status_code == 200, asked.content
    Token.objects.get(user=admin).delete()
    certify(improved)
    given = {"kind": "webhook", "address": "https://hooks.example.org/of-kiel", "key": "of kiel"}
    post("destinations", improved.pk, **given)
    destination = improved.destinations.get()
    requests = sending.planned(destination, winner_of(improved), back=False)
    post("publish", improved.pk, destination.pk, shown=sending.digest_of(requests))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("engine.publishing.over_http.call", lambda **_: None)
        assert sending.publish_next()
    post("remove_destination", improved.pk, destination.pk)

    post("invite", experiment.pk, role="annotator", most_uses=1, valid_days=1)
    post("end_invitation", experiment.pk, Invitation.objects.get().pk)
    post("invite", experiment.pk, role="annotator", valid_days=1, addresses="new.of.kiel@example.org")
    post("share_report", experiment.pk, valid_days="7")
    post("end_report_link", experiment.pk, experiment.report_links.get().pk)
    member = Membership.objects.get(experiment=experiment, user=annotator)
    post("change_role", experiment.pk, member.pk, role="viewer")
    post("remove_member", experiment.pk, member.pk)
    post("add_group", experiment.pk, group="leads", role="viewer")
    post("remove_group", experiment.pk, experiment.group_roles.get().pk)
    people.add_member(experiment=experiment, user=annotator, role="viewer", by=admin)

    target = "ann.of.kiel@example.org"
    post("subscribe", experiment.pk, kind="email", target=target, events=["concluded"])
    post("unsubscribe", experiment.pk, experiment.subscriptions.get().pk)
    ask(client, "judgments_csv", experiment.pk, annotator="ann.of.kiel", judgments="")
    ask(client, "own_data")
    post("tokens", name="nightly of kiel", scopes=["read"], valid_days=1)
    post("revoke_token", Token.objects.get(user=admin).pk)
    forgotten = make_user("somebody.of.kiel")
    post("person", forgotten.pk, name="somebody.of.kiel", delete="on")
    post("log_out_everywhere", tokens="on")
    return admin.pk


pytestmark = pytest.mark.django_db


class TestEveryAction:
    def test_every_action_has_its_actor(self, walked):
        entries = list(AuditEntry.objects.exclude(action__in=NOBODYS))
        # People join by themselves: see below.
        others = NOBODYS | {AuditEntry.Action.JOIN}
        assert {entry.action for entry in entries} == set(AuditEntry.Action) - others
        assert {(entry.action, entry.by) for entry in entries if entry.by_id != walked} == set()

    def test_no_entry_holds_the_name_of_a_person(self, walked):
        """An entry is never changed, so it must not hold what a person may ask to have forgotten."""
        for entry in AuditEntry.objects.all():
            assert "kiel" not in f"{entry.sentence} {entry.details}", entry.action

    def test_the_name_is_there_when_the_entry_is_read(self, walked):
        texts = [entry.text for entry in AuditEntry.objects.select_related("about")]
        assert "Changed the role of ann.of.kiel from annotator to viewer." in texts
        assert "Removed ann.of.kiel, who was viewer." in texts
        assert "Voided judgments, 1 in all: all of ann.of.kiel. A robot." in texts
        assert "Exported judgments as csv (annotator ann.of.kiel)." in texts


def test_who_joins_is_the_actor(experiment, owner, client_for):
    _, secret = create_invitation(experiment=experiment, by=owner, role="viewer", most_uses=1, valid_days=1)
    newcomer = make_user("newcomer.of.kiel")
    client = client_for(newcomer)
    client.get(reverse("join", args=[secret]))
    client.post(reverse("accept_invitation"))
    entry = AuditEntry.objects.get(action="join")
    assert entry.by == newcomer
    assert "kiel" not in f"{entry.sentence} {entry.details}"


def test_of_a_deleted_draft_a_trace_stays_in_the_log_of_the_site(admin, client_for):
    draft = make_experiment(name="Secret plans", running=False)
    delete_experiment(experiment_id=draft.pk, by=admin)
    entry = AuditEntry.objects.get(action="delete")
    assert (entry.experiment, entry.by) == (None, admin)
    assert entry.text == f"Deleted the experiment “Secret plans”, number {draft.pk}."
    page = client_for(admin).get(reverse("admin:engine_auditentry_changelist")).content.decode()
    assert "Deleted the experiment “Secret plans”" in page


def test_the_api_says_who_did_it_too(annotator):
    owner = make_user()
    experiment = make_experiment(ready=True, annotators=(annotator,))
    add_member(experiment, owner, "owner")
    headers = bearer(owner, ["read", "manage"])
    for action in ("pause", "start", "stop"):
        assert (
            Client().post(f"/api/experiments/{experiment.pk}/actions/{action}", headers=headers).status_code
            == 200
        )
    done = experiment.audit_entries.filter(action__in=["pause", "resume", "stop"])
    assert list(done.values_list("by", flat=True)) == [owner.pk] * 3
    log = Client().get(f"/api/experiments/{experiment.pk}/log", headers=headers).json()
    assert {entry["by"] for entry in log[:3]} == {owner.username}
    assert Judgment.objects.count() == 0
