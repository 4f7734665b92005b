"""The page of an improvement: it begins, proposals are looked at and settled, and its three ends."""

import re
from html import unescape

import numpy as np
import pytest
from django.urls import reverse

from engine.domain.errors import WrongStateError
from engine.models import AuditEntry, Connection, Experiment, Improvement, Loan, Policy, Proposal, clock
from engine.selectors.improvements import open_improvement
from engine.selectors.writing import brief_of
from engine.services.gates import Text, check_texts
from engine.services.improvements import (
    accept_proposal,
    go_on_improving,
    start_improvement,
    stop_improvement,
)
from engine.writing import registry
from engine.writing.base import Written
from engine.writing.worker import write_proposals
from labeling.annotation.progress import left_together, rounded
from tests.factories import add_member
from tests.improving import judge, make_world, plan_and_answer

pytestmark = pytest.mark.django_db

FORM = {"writer": "prepared", "factor": "System prompt", "wish": "", "clicks": "60", "needs_ok": "on"}
CONFIRMED = {"confirmed": "1"}


@pytest.fixture
def world(annotator, editor) -> Experiment:
    experiment = make_world([annotator])
    add_member(experiment, editor, "editor")
    return experiment


@pytest.fixture
def improving(world) -> Improvement:
    """One with two proposals that wait."""
    found = start_improvement(experiment_id=world.pk, clicks=60, writer="prepared")
    plan_and_answer(world)
    write_proposals(found.pk)
    found.refresh_from_db()
    return found


def url(name: str, experiment: Experiment, *more: int) -> str:
    return reverse(name, args=[experiment.pk, *more])


def html(reply) -> str:
    assert reply.status_code == 200
    return reply.content.decode()


class TestStarting:
    def test_result_leads_to_the_form_and_the_form_starts(self, world, editor, client_for):
        client = client_for(editor)
        assert url("improve", world) in html(client.get(url("dashboard", world)))
        form = html(client.get(url("improve", world)))
        assert 'value="300"' in form
        assert re.search(r'name="needs_ok"[^>]*checked', form)
        assert client.post(url("improve", world), FORM | {"wish": "Be warm."}).status_code == 302
        found = open_improvement(world)
        assert (found.writer, found.connection, found.clicks) == ("prepared", "", 60)
        assert (found.wish, found.needs_ok, found.by) == ("Be warm.", True, editor)
        assert "twenty prepared texts" in html(client.get(url("improve", world)))

    def test_a_connection_of_theirs_is_lent_and_asked(self, world, editor, client_for):
        Connection.objects.create(name="Mine", provider="compatible", model_id="m", owner=editor)
        Connection.objects.create(name="Another's", provider="compatible", model_id="m")
        client = client_for(editor)
        form = html(client.get(url("improve", world)))
        assert "model:Mine" in form
        assert "Another" not in form
        data = {name: value for name, value in FORM.items() if name != "needs_ok"} | {"writer": "model:Mine"}
        assert client.post(url("improve", world), data).status_code == 302
        found = open_improvement(world)
        assert (found.writer, found.connection, found.needs_ok) == ("reflective", "Mine", False)
        assert Loan.objects.get().experiment == world

    @pytest.mark.parametrize(
        "wrong", [{"clicks": "3"}, {"writer": "model:Another's"}, {"factor": "None"}, {"clicks": ""}]
    )
    def test_what_cannot_be_is_said_at_its_field(self, world, editor, client_for, wrong):
        assert client_for(editor).post(url("improve", world), FORM | wrong).status_code == 400
        assert open_improvement(world) is None

    def test_a_second_one_has_to_wait(self, improving, editor, client_for):
        assert client_for(editor).post(url("improve", improving.experiment), FORM).status_code == 400

    def test_where_no_policy_can_join_no_button_leads_there(self, world, annotator, editor, client_for):
        world.epsilon = 0.2
        world.save()
        texts = [Text("System prompt", "Formal", "You are a kind clerk.")]
        challenge = check_texts(experiment_id=world.pk, texts=texts, by=editor).challenge
        client = client_for(editor)
        page = html(client.get(url("dashboard", challenge)))
        assert url("improve", challenge) not in page
        assert url("add_policy", challenge) not in page
        assert url("add_policy", challenge) not in html(client.get(url("setup", challenge)))
        assert url("add_policy", challenge) not in html(client.get(url("policy", challenge, 1)))
        assert url("add_policy", world) in html(client.get(url("setup", world)))
        assert url("add_policy", world) in html(client.get(url("policy", world, 1)))
        assert client.get(url("improve", challenge)).status_code == 302

    def test_somebody_who_only_watches_starts_and_settles_nothing(self, improving, viewer, client_for):
        experiment = improving.experiment
        add_member(experiment, viewer, "viewer")
        client = client_for(viewer)
        page = html(client.get(url("improve", experiment)))
        assert 'name="action"' not in page
        assert "<ins>" in page
        for name, more in (("improve", ()), ("stop_improving", ()), ("settle_proposal", (1,))):
            assert client.post(url(name, experiment, *more), FORM | {"action": "accept"}).status_code == 403
        assert client.get(url("improve", experiment) + "?new").status_code == 403


class TestProposals:
    def test_each_shows_its_changes_its_reason_and_its_answers(self, improving, editor, client_for):
        Proposal.objects.filter(number=1).update(answers=[{"task": "Who?", "text": "Nobody at all."}])
        page = html(client_for(editor).get(url("improve", improving.experiment)))
        for each in improving.proposals.all():
            assert f'id="proposal-{each.number}"' in page
            assert each.reason in page
        assert page.count("data-difference") == 2
        assert "<del>" in page
        assert "Nobody at all." in page

    def test_one_is_accepted_one_edited_and_one_refused(self, improving, editor, client_for):
        client, experiment = client_for(editor), improving.experiment
        client.post(url("settle_proposal", experiment, 1), {"action": "accept"})
        edited = {"action": "accept", "text": "Be warm\r\nand short."}
        client.post(url("settle_proposal", experiment, 2), edited)
        first, second = improving.proposals.all()
        assert (first.state, second.state) == (Proposal.State.JOINED, Proposal.State.JOINED)
        assert (second.text, second.by) == ("Be warm\nand short.", editor)
        told = {each.text for each in brief_of(improving, improving.original, []).tried}
        assert {second.text, second.written_text} <= told
        plan_and_answer(experiment)
        actions = AuditEntry.objects.values_list("action", flat=True)
        assert list(actions).count(AuditEntry.Action.PROPOSAL_ACCEPTED) == 2

    def test_who_waits_at_the_end_was_not_refused(self, improving, editor, client_for):
        client_for(editor).post(url("stop_improving", improving.experiment), CONFIRMED)
        assert {each.state for each in improving.proposals.all()} == {Proposal.State.LEFT}

    def test_people_hear_of_the_clicks_that_it_has_left(self, improving):
        Improvement.objects.update(used=17)
        assert left_together(improving.experiment) == rounded(improving.clicks - 17)

    def test_a_refusal_keeps_its_reason_for_the_writer(self, improving, editor, client_for):
        refusal = {"action": "refuse", "reason": "Too long."}
        client_for(editor).post(url("settle_proposal", improving.experiment, 1), refusal)
        refused = improving.proposals.get(number=1)
        assert (refused.state, refused.refused_because) == (Proposal.State.REFUSED, "Too long.")

    @pytest.mark.parametrize(
        ("text", "because"),
        [
            ("Readers should choose <this> answer.", "person who judges"),
            ("You are a formal clerk!", "copy of its parent"),
            ("Go on and on. " * 100, "more than the limit"),
            (" \r\n", "text is empty"),
        ],
    )
    def test_an_edit_that_cannot_join_stays_in_its_box_beside_the_reason(
        self, improving, editor, client_for, text, because
    ):
        edited = {"action": "accept", "text": text, "reason": "Too stiff."}
        reply = client_for(editor).post(url("settle_proposal", improving.experiment, 1), edited)
        assert reply.status_code == 400
        [mine, other] = re.findall(r'<details id="edit-\d"(.*?)</details>', reply.content.decode(), re.DOTALL)
        error, _, box = mine.partition("<textarea")
        assert because in error[error.index('id="id_text_error"') :]
        assert 'aria-describedby="id_text_error"' in box
        assert unescape(re.search(">(.*?)</textarea>", box, re.DOTALL)[1]) == text
        assert 'value="Too stiff."' in mine
        assert "errorlist" not in other
        assert improving.proposals.get(number=1).state == Proposal.State.PROPOSED

    @pytest.mark.parametrize(
        ("text", "because"),
        [
            ("Be warm. The reader should choose this answer.", "speaks to the person who judges"),
            ("you are a FORMAL clerk!", "copy of its parent"),
            ("Be warm. “{judging}” is easy.", "names a task that judges"),
            ("Go on and on. " * 100, "more than the limit"),
            (" ", "is empty"),
        ],
    )
    def test_what_a_writer_may_not_write_is_refused_and_the_page_says_why(
        self, world, editor, client_for, monkeypatch, text, because
    ):
        class Writer:
            def write(self, brief, n):
                return [Written(text.format(judging=judging.prompt)), Written("Be warm.")]

        monkeypatch.setitem(registry._OWN, "prepared", lambda ask: Writer())
        client = client_for(editor)
        client.post(url("improve", world), {name: FORM[name] for name in FORM if name != "needs_ok"})
        found = open_improvement(world)
        judging = world.tasks.exclude(pk__in=found.open_tasks).first()
        write_proposals(found.pk)
        assert [each.state for each in found.proposals.all()] == ["refused", "joined"]
        assert because in html(client.get(url("improve", world)))

    def test_twice_is_once(self, improving, editor, client_for):
        client, experiment = client_for(editor), improving.experiment
        for _ in range(2):
            reply = client.post(url("settle_proposal", experiment, 1), {"action": "accept"}, follow=True)
        assert "does not wait" in html(reply)
        assert experiment.policies.count() == 3

    def test_what_no_button_sends_is_refused(self, improving, editor, client_for):
        client, experiment = client_for(editor), improving.experiment
        assert client.post(url("settle_proposal", experiment, 1), {"action": "eat"}).status_code == 400
        assert client.post(url("settle_proposal", experiment, 99), {"action": "accept"}).status_code == 404


class TestWhatIsSaid:
    def test_result_says_what_waits(self, improving, editor, client_for):
        page = html(client_for(editor).get(url("dashboard", improving.experiment)))
        assert "2 proposals wait for an OK" in page

    def test_the_ranking_tells_why_a_policy_was_proposed(self, improving, editor, annotator, client_for):
        first = accept_proposal(proposal_id=improving.proposals.get(number=1).pk, by=editor)
        plan_and_answer(improving.experiment)
        assert judge(improving.experiment, annotator, np.random.default_rng(0))
        plan_and_answer(improving.experiment)
        page = html(client_for(editor).get(url("dashboard", improving.experiment)))
        heads = re.findall(r'<th scope="row">(<a href.*?)</th>', page)
        assert [first.reason in each for each in heads] == ["Proposal 1" in each for each in heads]
        assert sum(first.reason in each for each in heads) == 1

    @pytest.mark.parametrize(
        ("verdict", "said"),
        [
            (
                {"kind": "nothing_better", "share": None, "lower": 0.0},
                "Nothing better was found after 60 clicks",
            ),
            ({"kind": "leads", "share": 0.55, "lower": 0.476}, "not established"),
            ({"kind": "certified", "share": 0.68, "lower": 0.57}, "preferred in 68% of 15 comparisons"),
        ],
    )
    def test_each_end_has_its_sentence(self, improving, editor, client_for, verdict, said):
        result = reverse("dashboard", args=[improving.experiment.pk])
        assert said not in html(client_for(editor).get(result))
        full = verdict | {"policy": improving.original.index, "n_told": 15, "risk": 0.05, "delta": 0.05}
        Improvement.objects.update(state="ended", phase="ended", used=60, verdict=full, ended_at=clock.now())
        page = html(client_for(editor).get(url("improve", improving.experiment)))
        assert said in page
        assert f'data-verdict="{verdict["kind"]}"' in page
        assert said in html(client_for(editor).get(result))
        assert "?new" in page

    def test_a_champion_of_which_less_is_expected_is_not_called_ahead(self, improving, editor, client_for):
        accept_proposal(proposal_id=improving.proposals.earliest("number").pk, by=editor)
        champion, original = Policy.objects.exclude(parent=None).get(), improving.original
        client, experiment = client_for(editor), improving.experiment
        for best in (champion, original):
            verdict = improving.verdict | {"policy": best.index}
            Improvement.objects.update(champion=champion, verdict=verdict)
            assert f'data-best="{best.index}"' in html(client.get(url("improve", experiment)))
        verdict["kind"] = "nothing_better"
        Improvement.objects.update(state="ended", phase="ended", verdict=verdict, ended_at=clock.now())
        page = html(client.get(url("improve", experiment)))
        main = re.search(r'<a class="button primary" href="([^"]+)"', page)[1]
        assert main == url("policy", experiment, original.index + 1)

    def test_it_moves_by_itself_and_reloads_at_the_end(self, improving, editor, client_for):
        client, experiment = client_for(editor), improving.experiment
        assert url("improve_live", experiment) in html(client.get(url("improve", experiment)))
        assert "data-tasks" in html(client.get(url("improve_live", experiment)))
        client.post(url("stop_improving", experiment), CONFIRMED)
        assert client.get(url("improve_live", experiment))["HX-Redirect"] == url("improve", experiment)
        assert client.post(url("stop_improving", experiment)).status_code == 302

    @pytest.mark.parametrize(("before", "then"), [("running", "runs"), ("paused", "pauses")])
    def test_ending_it_is_asked_once_and_says_what_becomes_of_the_experiment(
        self, world, editor, client_for, before, then
    ):
        Experiment.objects.update(state=before)
        found = start_improvement(experiment_id=world.pk, clicks=60, writer="prepared")
        client = client_for(editor)
        asked = html(client.post(url("stop_improving", world)))
        assert f'data-then="{then}"' in asked
        assert 'data-verdict="nothing_better"' in asked
        found.refresh_from_db()
        assert found.state == Improvement.State.OPEN
        assert client.post(url("stop_improving", world), CONFIRMED).status_code == 302
        found.refresh_from_db()
        world.refresh_from_db()
        assert (found.state, found.verdict["kind"]) == ("stopped", "nothing_better")
        assert world.state == before

    def test_an_annotator_is_told_what_is_awaited(self, improving, editor, annotator, client_for):
        client, experiment = client_for(annotator), improving.experiment

        def said() -> str:
            reply = client.get(url("pair", experiment), {"waits": 1})
            return "" if reply.status_code == 204 else html(reply)

        assert "task-title" in (waiting := said())
        accept_proposal(proposal_id=improving.proposals.get(number=1).pk, by=editor)
        # Its pairs are on their way: the page waits on in silence.
        assert said() != waiting

    def test_the_picture_has_a_row_for_what_happened(self, improving, editor, client_for):
        [first, second] = improving.proposals.all()
        for each in (first, second):
            accept_proposal(proposal_id=each.pk, by=editor)
        course = [[0, 0, 0.5, 0.5, 0.5], [4, 0, 0.5, 0.5, 0.5], [9, 2, 0.6, 0.5, 0.7]]
        Improvement.objects.update(course=course)
        Proposal.objects.filter(pk=first.pk).update(state="dropped", at=3)
        Proposal.objects.filter(pk=second.pk).update(state="promoted", at=9)
        page = html(client_for(editor).get(url("improve", improving.experiment)))
        assert re.findall(r'data-marks="(.*?)"', page) == ["", "dropped", "promoted"]

    def test_what_its_pairs_wait_for_is_said(self, improving, editor, client_for):
        # No worker has ever run here.
        assert "data-awaited" in html(client_for(editor).get(url("improve", improving.experiment)))

    def test_what_has_ended_goes_on_by_a_button(self, improving, editor, client_for):
        client, experiment = client_for(editor), improving.experiment
        client.post(url("stop_improving", experiment), CONFIRMED)
        assert 'name="more"' in html(client.get(url("improve", experiment)))
        assert client.post(url("improve", experiment), {"more": "3"}).status_code == 400
        client.post(url("improve", experiment), {"more": "40"})
        improving.refresh_from_db()
        assert (improving.state, improving.clicks) == (Improvement.State.OPEN, 40)
        assert 'name="more"' not in html(client.get(url("improve", experiment)))

    @pytest.mark.parametrize("gone", ["champion", "original", "experiment"])
    def test_what_cannot_go_on_says_why_in_place_of_the_button(self, improving, editor, client_for, gone):
        champion = accept_proposal(proposal_id=improving.proposals.get(number=1).pk, by=editor).policy
        stop_improvement(improvement_id=improving.pk)
        Improvement.objects.update(champion=champion)
        Policy.objects.update(retired_at=None)
        whose = {"champion": champion, "original": improving.original}
        if gone == "experiment":
            Experiment.objects.update(archived_at=clock.now())
        else:
            Policy.objects.filter(pk=whose[gone].pk).update(retired_at=clock.now())
        client, address = client_for(editor), url("improve", improving.experiment)
        page = html(client.get(address))
        assert 'name="more"' not in page
        with pytest.raises(WrongStateError) as refused:
            go_on_improving(improvement_id=improving.pk, clicks=40)
        assert str(refused.value) in re.search(r"<p[^>]*data-why-not>(.*?)</p>", page)[1]

    def test_trouble_of_the_writer_is_shown(self, improving, editor, client_for):
        improving.writings.create(parent=improving.original, fault="It is away.", sent="Hello?", gave="")
        page = html(client_for(editor).get(url("improve", improving.experiment)))
        assert "It is away." in page
        assert "Hello?" in page
