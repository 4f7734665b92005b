"""The commands of ``manage.py`` that tell or mend."""

import json
import stat
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from engine.models import Experiment, Membership, PairCount, User
from engine.services.experiments import stop
from labeling.demo import HUMAN_EXPERIMENT, RULE_EXPERIMENT
from labeling.management.commands import seed_demo
from tests.commands import run
from tests.factories import click_on, make_experiment

pytestmark = pytest.mark.django_db


class TestDemoStatus:
    def test_it_says_where_every_experiment_stands(self, annotator, settings):
        settings.BUFFER_MIN = settings.BUFFER_MAX = 4
        experiment = make_experiment(name="Running one", ready=True, annotators=(annotator,))
        click_on(experiment, annotator, 3)
        ended = make_experiment(name="Ended one")
        stop(experiment_id=ended.pk)
        lines = run("demo_status").splitlines()
        assert lines[0] == f"{experiment.pk}. Running one"
        assert lines[1].startswith("   [Unhealthy] The control worker has never run. Start it. ")
        assert lines[2].startswith(
            "   3 judged, 4 ready, 0 planned; 14 responses written (14 tokens), 0 failed"
        )
        assert lines[3] == f"{ended.pk}. Ended one"
        assert lines[4].startswith("   [Stopped by hand] Not decided. ")


class TestRebuildCounts:
    def test_wrong_counts_are_named_mended_and_an_exit_status(self, annotator, capsys):
        experiment = make_experiment(ready=True, annotators=(annotator,))
        PairCount.objects.filter(policy_i__index=0, policy_j__index=2).update(wins_i=1.0, comparisons=2)
        with pytest.raises(SystemExit) as exited:
            call_command("rebuild_counts", experiment.pk)
        assert exited.value.code == 1
        said = capsys.readouterr().out
        assert f"{experiment.pk} {experiment.name}: 1 pair(s) differed" in said
        assert "P1 against P3: wins, comparisons were (1.0, 2), are (0.0, 0)" in said
        assert "0 pair(s) differed" in run("rebuild_counts")

    def test_an_experiment_that_is_not_there_is_said_and_not_passed_over(self):
        make_experiment()
        with pytest.raises(CommandError, match="There is no experiment 77"):
            call_command("rebuild_counts", 77)


class TestSeedDemo:
    @pytest.fixture(autouse=True)
    def logins(self, tmp_path, monkeypatch) -> Path:
        file = tmp_path / "demo-logins.json"
        monkeypatch.setattr(seed_demo, "LOGINS", file)
        return file

    def test_it_makes_two_running_experiments_and_two_logins(self, logins):
        said = run("seed_demo")
        human, rule = (Experiment.objects.get(name=name) for name in (HUMAN_EXPERIMENT, RULE_EXPERIMENT))
        assert (human.state, human.judge) == ("running", "human")
        assert (rule.state, rule.judge) == ("running", "rule")
        assert (human.policies.count(), rule.policies.count()) == (4, 6)
        assert f"Created experiment {human.pk}" in said
        assert set(Membership.objects.values_list("experiment", "user__username", "role")) == {
            (experiment.pk, *member)
            for experiment in (human, rule)
            for member in (("annotator", "annotator"), ("admin", "owner"))
        }
        assert not rule.tasks.filter(reference="").exists()
        assert set(human.audit_entries.filter(action="add").values_list("by", "sentence")) == {
            (None, "Added {person} as annotator."),
            (None, "Added {person} as owner."),
        }

    def test_the_logins_work_are_random_and_readable_by_the_owner_alone(self, logins, client):
        run("seed_demo")
        passwords = json.loads(logins.read_text())
        assert set(passwords) == {"annotator", "admin"}
        assert len(set(passwords.values())) == 2
        assert stat.S_IMODE(logins.stat().st_mode) == 0o600
        for name, password in passwords.items():
            response = client.post("/accounts/login/", {"username": name, "password": password})
            assert response.status_code == 302, name
            client.logout()
        admin, annotator = User.objects.get(username="admin"), User.objects.get(username="annotator")
        assert admin.is_superuser
        assert not annotator.is_staff

    def test_a_password_that_is_no_longer_the_demos_is_not_told(self, logins):
        run("seed_demo")
        told = seed_demo.passwords()
        assert told == json.loads(logins.read_text())
        logins.unlink()
        run("seed_demo")
        assert seed_demo.passwords() == {"annotator": None, "admin": None}

    def test_seeding_again_leaves_everything_as_it_is(self, logins):
        run("seed_demo")
        tasks = list(Experiment.objects.get(name=HUMAN_EXPERIMENT).tasks.values_list("prompt", "reference"))
        passwords, hashes = logins.read_text(), set(User.objects.values_list("password", flat=True))
        stop(experiment_id=Experiment.objects.get(name=RULE_EXPERIMENT).pk)
        assert run("seed_demo") == ""
        assert Experiment.objects.count() == 2
        assert Experiment.objects.get(name=RULE_EXPERIMENT).state == "concluded"
        assert logins.read_text() == passwords
        assert set(User.objects.values_list("password", flat=True)) == hashes
        assert (
            list(Experiment.objects.get(name=HUMAN_EXPERIMENT).tasks.values_list("prompt", "reference"))
            == tasks
        )
