"""A real worker that has a language model judge, killed with -9 while it waits for an answer."""

import threading

import pytest

from engine.models import Connection, Experiment, Judgment, Opinion
from engine.selectors import counts
from engine.services.judging import rebuild_counts
from tests.factories import click, connect, make_experiment
from tests.generation.chat_server import MODEL, completion, serve
from tests.opinions import shadow, verdict, vote
from tests.workers import Workers, wait_until

pytestmark = pytest.mark.slow


def test_opinions_and_votes_survive_the_death_of_the_worker(workers: Workers, annotator, settings):
    settings.JUDGE_CALIBRATION = 10
    settings.BUFFER_MIN = settings.BUFFER_MAX = 20
    experiment = make_experiment(ready=True, annotators=(annotator,))
    for _ in range(10):
        click(experiment, annotator)
    connection = connect(MODEL, "", at_once=2)
    Experiment.objects.update(judge_model=MODEL)
    shadow(experiment)
    answering = threading.Event()
    opinions = Opinion.objects.filter(comparison__experiment=experiment)
    votes = Judgment.objects.filter(judge=Judgment.Judge.LLM)

    def respond(asked):
        answering.wait(60)
        return completion(verdict("A"))

    with serve(respond) as chat:
        Connection.objects.filter(pk=connection.pk).update(address=chat.url)
        workers.environment["JUDGE_BATCH"] = "4"
        for name in ("control", "remote", "beat"):
            workers.start(name)
        wait_until(lambda: chat.asked, 120, "the first question")
        workers.kill("remote")
        assert opinions.filter(state=Opinion.State.ASKING).count() == 4
        answering.set()
        workers.start("remote")
        wait_until(
            lambda: opinions.filter(state=Opinion.State.DONE).count() == 10, 120, "an opinion on all ten"
        )
        # A worker that dies says nothing of the questions that it held.
        assert set(opinions.values_list("attempts", flat=True)) == {1}
        assert not votes.exists()
        vote(experiment)
        wait_until(lambda: votes.count() == 10, 120, "a vote on all that was ready")
    assert votes.values("comparison").distinct().count() == 10
    assert set(votes.values_list("choice", flat=True)) == {"tie"}
    assert counts.comparison_count(experiment.pk) == 20
    assert rebuild_counts(experiment_id=experiment.pk) == {}
