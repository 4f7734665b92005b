"""The states that experiments move through."""

import pytest

from engine.core import StopReason
from engine.models import Comparison, Experiment, Response
from engine.services.experiments import discard_leftovers, pause, start, stop
from engine.services.generation import claim_responses
from engine.services.judging import record_answer
from engine.services.planning import advance
from tests.factories import assign, make_experiment, write_responses

pytestmark = pytest.mark.django_db


class TestStates:
    def test_start_pause_start_keeps_the_first_start_time(self):
        experiment = make_experiment(running=False)
        first = start(experiment_id=experiment.pk)
        assert first.state == Experiment.State.RUNNING
        assert pause(experiment_id=experiment.pk).state == Experiment.State.PAUSED
        again = start(experiment_id=experiment.pk)
        assert again.state == Experiment.State.RUNNING
        assert again.started_at == first.started_at

    @pytest.mark.parametrize("before", ["running", "paused"])
    def test_stopping_by_hand_names_no_winner(self, before):
        experiment = in_state(before)
        stop(experiment_id=experiment.pk)
        experiment.refresh_from_db()
        assert (experiment.state, experiment.conclusion, experiment.winner) == ("concluded", "stopped", None)
        assert experiment.concluded_at is not None


def in_state(state: str) -> Experiment:
    experiment = make_experiment(running=state != "draft")
    if state == "paused":
        pause(experiment_id=experiment.pk)
    if state == "concluded":
        stop(experiment_id=experiment.pk)
    return experiment


class TestConclusion:
    def test_it_has_a_label_for_every_reason(self):
        choices = dict(Experiment._meta.get_field("conclusion").choices)
        assert [reason.value for reason in StopReason] == list(choices)

    def test_what_was_planned_or_ready_is_discarded_with_its_reason(self):
        experiment = make_experiment(ready=True)
        advance(experiment_id=experiment.pk)
        stop(experiment_id=experiment.pk)
        states = set(experiment.comparisons.values_list("state", "discard_reason"))
        assert states == {("discarded", "The experiment concluded before this comparison was judged.")}

    def test_nothing_waits_to_be_written_any_longer(self):
        experiment = make_experiment()
        stop(experiment_id=experiment.pk)
        assert set(Response.objects.values_list("state", "failure_reason")) == {
            ("failed", "The experiment concluded before this comparison was judged.")
        }
        assert claim_responses(worker="w", limit=10).responses == []

    def test_another_experiment_goes_on_undisturbed(self):
        stopped, other = make_experiment(), make_experiment()
        stop(experiment_id=stopped.pk)
        assert set(other.comparisons.values_list("state", flat=True)) == {"planned"}
        assert write_responses() == {other.pk}

    def test_what_is_handed_back_in_that_very_moment_is_discarded_by_the_sweep(self):
        """A skip that read "running" just before puts its pair back to ready just after."""
        experiment, running = make_experiment(ready=True), make_experiment(ready=True)
        stop(experiment_id=experiment.pk)
        late = experiment.comparisons.first()
        Comparison.objects.filter(pk=late.pk).update(state="ready", discard_reason="")
        discard_leftovers()
        late.refresh_from_db()
        assert (late.state, late.discard_reason) == (
            "discarded",
            "The experiment concluded before this comparison was judged.",
        )
        assert set(running.comparisons.values_list("state", flat=True)) == {"ready"}

    def test_what_an_annotator_is_looking_at_stays_theirs(self, annotator):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        held = assign(experiment, annotator)
        stop(experiment_id=experiment.pk)
        held.comparison.refresh_from_db()
        assert held.comparison.state == Comparison.State.ASSIGNED
        late = record_answer(
            experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left"
        )
        assert late.created


def test_what_is_handed_back_as_an_experiment_concludes_is_discarded_by_the_next_sweep():
    experiment = make_experiment()
    stop(experiment_id=experiment.pk)
    late = experiment.comparisons.order_by("pk").first()
    Comparison.objects.filter(pk=late.pk).update(state=Comparison.State.READY)
    discard_leftovers()
    late.refresh_from_db()
    assert late.state == Comparison.State.DISCARDED
    assert "concluded" in late.discard_reason
