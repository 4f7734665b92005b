"""The secret stays secret until the conclusion, and then the record can be verified with it."""

import hashlib
import hmac
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from engine.domain import secret_draws
from engine.importing.experiment_files import write_experiment
from engine.models import Assignment, Comparison, Experiment, User
from engine.selectors import browsing, specs
from engine.services import drafts, serving, setting_changes
from engine.services.drafts import create_experiment
from engine.services.experiments import pause, start, stop
from engine.services.planning import advance
from engine.services.tokens import make_token
from labeling.exports.files import Export, Tally
from tests.authorisation.table import TABLE, is_api
from tests.factories import (
    add_member,
    assign,
    click_on,
    make_experiment,
    make_spec,
    make_user,
    write_responses,
)

pytestmark = pytest.mark.django_db

SECRET = "0123456789abcdef" * 4
DOCS = Path(__file__).parents[2] / "docs" / "blinding.md"


@pytest.fixture
def experiment(annotator: User) -> Experiment:
    return make_experiment(name="Blind", ready=True, annotators=(annotator,), secret=SECRET)


def manifest(experiment: Experiment) -> dict[str, object]:
    export = Export(experiment=experiment, format="csv", selection=browsing.Selection(), filter={})
    tally = Tally()
    list(export.pieces(tally))
    return export.manifest(tally)


class TestDerivation:
    def test_it_is_the_documented_one(self):
        """An auditor of this year's record must be able to verify it with next year's code."""
        key = bytes.fromhex(SECRET)
        for number in (0, 1, 17, 2**40):
            side = hmac.new(key, f"llmpo/1/side/{number}".encode(), hashlib.sha256).digest()
            assert secret_draws.i_on_left(SECRET, number) is bool(side[-1] & 1)
            check = hmac.new(key, f"llmpo/1/check/7/{number}".encode(), hashlib.sha256).digest()
            assert (
                secret_draws.check_draw(SECRET, 7, number) == (int.from_bytes(check[:7], "big") >> 3) / 2**53
            )

    @pytest.mark.parametrize("purpose", ["side", "gold-side", "check", "draw", "repeat"])
    def test_no_two_values_are_the_same(self, purpose):
        values = {secret_draws.digest(SECRET, purpose, a, b) for a in range(40) for b in range(40)}
        assert len(values) == 1600
        assert not values & {secret_draws.digest(SECRET, "other", a, b) for a in range(40) for b in range(40)}

    def test_sides_are_fair_and_draws_uniform(self):
        n = 4000
        assert abs(sum(secret_draws.i_on_left(SECRET, k) for k in range(n)) - n / 2) < 4 * (n / 4) ** 0.5
        draws = [secret_draws.check_draw(SECRET, 1, k) for k in range(n)]
        assert min(draws) >= 0
        assert max(draws) < 1
        assert abs(sum(draws) / n - 0.5) < 4 * (1 / 12 / n) ** 0.5

    def test_every_number_has_the_secret_of_its_period(self):
        periods = [secret_draws.Period(5, "a"), secret_draws.Period(9, "b"), secret_draws.Period(9, "c")]
        assert [secret_draws.secret_of(periods, k) for k in (5, 8, 9, 99)] == ["a", "a", "c", "c"]
        with pytest.raises(ValueError, match="No published secret"):
            secret_draws.secret_of(periods, 4)


class TestEachExperimentHasItsOwn:
    def test_seed_and_secret_are_random(self):
        made = [create_experiment(spec=make_spec(name=name)) for name in ("one", "two")]
        assert made[0].secret != made[1].secret
        assert all(len(bytes.fromhex(each.secret)) == 32 for each in made)
        seeds = {Experiment(name=str(k)).seed for k in range(50)}
        assert len(seeds) == 50
        assert max(seeds) > 2**55
        assert all(0 <= seed < 2**63 for seed in seeds)

    def test_a_seed_of_63_bits_is_stored_and_read_back(self):
        experiment = make_experiment(seed=2**63 - 1)
        experiment.refresh_from_db()
        assert experiment.seed == 2**63 - 1
        assert experiment.comparisons.first().plan["seed"][0] == 2**63 - 1

    def test_a_clone_has_another_seed_and_secret(self, experiment, admin):
        copy = drafts.clone(experiment=experiment, by=admin, name="Copy")
        assert copy.secret != experiment.secret
        assert copy.seed != experiment.seed

    def test_a_file_that_is_dumped_and_loaded_has_another_secret(self, experiment, tmp_path):
        file = tmp_path / "again.yaml"
        described = write_experiment(specs.experiment_spec(experiment))
        assert SECRET not in described
        file.write_text(described.replace("Blind", "Loaded"))
        call_command("load_experiment", str(file), verbosity=0)
        assert Experiment.objects.get(name="Loaded").secret != SECRET

    def test_neither_a_description_nor_the_api_sets_it(self, experiment, admin):
        with pytest.raises(Exception, match="Unknown setting: secret"):
            create_experiment(spec=make_spec(secret=SECRET))
        client = Client()
        key = make_token(user=admin, name="t", valid_days=1, scopes=["manage"])[1]
        reply = client.patch(
            f"/api/experiments/{experiment.pk}",
            data={"secret": "0" * 64},
            content_type="application/json",
            headers={"Authorization": f"Bearer {key}"},
        )
        assert reply.status_code == 422
        experiment.refresh_from_db()
        assert experiment.secret == SECRET


class TestItStaysSecret:
    @pytest.fixture
    def everything(self, experiment: Experiment, annotator: User, admin: User) -> Iterator[list[bytes]]:
        """Each page that an administrator gets of the experiment, and each that its annotator does."""
        bodies = []
        for user in (admin, annotator):
            client = Client()
            client.force_login(user)
            for route, row in TABLE.items():
                if "get" not in row.methods or is_api(route):
                    continue
                path = f"/{route}".replace("<experiment_id>", str(experiment.pk)).replace("<start>", "blank")
                bodies.append(_content(client.get(re.sub(r"<\w+>", "1", path))))
            bodies.append(_content(client.get(reverse("admin:engine_auditentry_changelist"))))
            key = make_token(user=user, name="t", valid_days=1)[1]
            for path in (
                "",
                f"/{experiment.pk}",
                f"/{experiment.pk}/log",
                f"/{experiment.pk}/judgments.jsonl",
            ):
                reply = client.get(f"/api/experiments{path}", headers={"Authorization": f"Bearer {key}"})
                bodies.append(_content(reply))
        return bodies

    def test_no_page_no_export_and_no_reply_of_the_api_has_it(self, everything):
        assert len(everything) > 50
        assert sum(b"Blind" in body for body in everything) > 10
        assert not [body for body in everything if SECRET.encode() in body]

    def test_not_in_a_text_of_the_row_nor_in_the_log(self, experiment, annotator, caplog):
        with caplog.at_level(logging.DEBUG):
            click_on(experiment, annotator, 3)
            logging.getLogger("llmpo").warning("%s %r", experiment, experiment)
        assert SECRET not in repr(experiment) + str(experiment)
        assert not [record for record in caplog.records if SECRET in str(record.msg % (record.args or ()))
                    and record.name != "django.db.backends"]  # fmt: skip
        sentences = experiment.audit_entries.values_list("sentence", "details")
        assert SECRET not in str(list(sentences))

    @pytest.mark.parametrize("state", ["running", "paused"])
    def test_no_export_before_the_conclusion_has_it(self, state, experiment, annotator):
        click_on(experiment, annotator, 2)
        if state == "paused":
            pause(experiment_id=experiment.pk)
        written = manifest(experiment)
        assert written["experiment"]["secrets"] == []
        assert SECRET not in json.dumps(written)

    def test_not_while_somebody_still_looks_at_a_pair(self, experiment, annotator):
        held = assign(experiment, annotator)
        stop(experiment_id=experiment.pk)
        assert manifest(experiment)["experiment"]["secrets"] == []
        serving.answer(experiment_id=experiment.pk, token=held.token, annotator=annotator, choice="left")
        assert manifest(experiment)["experiment"]["secrets"] == [{"first_comparison": 0, "secret": SECRET}]


class TestAudit:
    def test_a_reopened_experiment_goes_on_under_another_secret_and_publishes_none(
        self, experiment, annotator
    ):
        click_on(experiment, annotator, 3)
        stop(experiment_id=experiment.pk)
        before = set(experiment.comparisons.values_list("pk", flat=True))
        setting_changes.reopen(experiment_id=experiment.pk, by=None)
        experiment.refresh_from_db()
        assert experiment.secret != SECRET
        assert manifest(experiment)["experiment"]["secrets"] == []
        advance(experiment_id=experiment.pk)
        new = experiment.comparisons.exclude(pk__in=before)
        assert new.count() > 0
        for comparison in new:
            side = secret_draws.i_on_left(experiment.secret, comparison.plan["number"])
            assert comparison.i_on_left is side
        stop(experiment_id=experiment.pk)
        assert [each["secret"] for each in manifest(experiment)["experiment"]["secrets"]] == [
            SECRET,
            experiment.secret,
        ]
        call_command("verify_blinding", "Blind", verbosity=0)

    def test_the_program_in_the_documentation_verifies_an_export(
        self, experiment, annotator, tmp_path, monkeypatch
    ):
        click_on(experiment, annotator, 12)
        stop(experiment_id=experiment.pk)
        monkeypatch.chdir(tmp_path)
        call_command("export", "Blind", "--format", "jsonl", "--out", "judgments.jsonl", verbosity=0)
        [program] = re.findall(r"```python\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
        exec(program, {})  # noqa: S102 - ours
        rows = [json.loads(line) for line in Path("judgments.jsonl").read_text().splitlines()]
        rows[5]["left_policy"] = rows[5]["right_policy"]
        Path("judgments.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        with pytest.raises(AssertionError):
            exec(program, {})  # noqa: S102 - ours

    def test_the_command_verifies_checks_and_says_what_was_changed(self, annotator, capsys):
        experiment = make_experiment(
            name="Checked", ready=True, n_gold=30, n_tasks=30, gold_rate=0.4, repeat_rate=0.3,
            practice=2, annotators=(annotator,), secret=SECRET,
        )  # fmt: skip
        for _ in range(25):
            shown = serving.show_next(experiment=experiment, annotator=annotator)
            serving.answer(experiment_id=experiment.pk, token=shown.token, annotator=annotator, choice="left")
            advance(experiment_id=experiment.pk)
            write_responses()
        assert set(Assignment.objects.checks().values_list("kind", flat=True)) >= {"practice", "gold"}
        call_command("verify_blinding", "Checked")
        said = capsys.readouterr().out
        assert re.search(r"All \d+ values agree with the secrets", said)
        assert SECRET not in said

        comparison, check = (
            Comparison.objects.first(),
            Assignment.objects.checks().filter(kind="gold").first(),
        )
        Comparison.objects.filter(pk=comparison.pk).update(i_on_left=not comparison.i_on_left)
        other = {"left": "right", "right": "left"}[check.expected]
        Assignment.objects.filter(pk=check.pk).update(expected=other)
        with pytest.raises(CommandError, match="2 of"):
            call_command("verify_blinding", "Checked")
        said = capsys.readouterr().out
        assert f"Comparison {comparison.number}, policy i" in said
        assert f"Check {check.pk}, better" in said


def _content(response: object) -> bytes:
    return b"".join(response.streaming_content) if response.streaming else response.content


def test_started_experiments_keep_their_secret(experiment):
    pause(experiment_id=experiment.pk)
    start(experiment_id=experiment.pk)
    add_member(experiment, make_user(), "viewer")
    experiment.refresh_from_db()
    assert experiment.secret == SECRET
