"""The dashboard's numbers, computed anew by the engine's core from the exported file and nothing else."""

import csv
import io
import json
import re
from collections import defaultdict
from html import unescape

import numpy as np
import pytest
from django.urls import reverse

from engine.core import Design, Factorial, Unstructured
from engine.core.effects import level_effects, optimal_shares, realised_shares
from engine.core.robustness import fewest_flips
from engine.core.spaces import Space
from engine.domain.claim_sentences import conclusion, sentence
from engine.domain.outcome_of_answers import joint_outcome
from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
from engine.models import Experiment, Membership
from engine.services.drafts import create_experiment
from engine.services.experiments import start, stop
from engine.services.judging import record_answer
from engine.services.planning import advance
from labeling.dashboard.status import status_of
from tests.factories import assign, click, click_for, make_user, write_responses

pytestmark = pytest.mark.django_db

LEVELS = {"System prompt": ["quality 0", "quality 1"], "Strategy": ["Direct", "Step by step"]}


def run(space: str, overlap: int, until: int | None) -> Experiment:
    """Judged by people of whom one often errs, planned anew after every click as the workers do."""
    experiment = create_experiment(
        spec=ExperimentSpec(
            name=f"{space} {overlap}",
            factors=[
                FactorSpec("System prompt", "prompt", {n: {"text": n} for n in LEVELS["System prompt"]}),
                FactorSpec("Strategy", "strategy", {n: {"instruction": n} for n in LEVELS["Strategy"]}),
            ],
            tasks=[TaskSpec("What is 1 + 0?", "1")],
            settings={
                "space": space,
                "overlap": overlap,
                "claim": "best_if_any",
                "delta": 0.3,
                "allow_tie": True,
            },
        )
    )
    people = [make_user(f"{space}{overlap}{n}") for n in range(3)]
    Membership.objects.bulk_create(
        Membership(experiment=experiment, user=user, role="annotator") for user in people
    )
    start(experiment_id=experiment.pk)
    experiment.refresh_from_db()
    advance(experiment_id=experiment.pk)
    n = 0
    while experiment.state == "running" and n != until:
        write_responses()
        for person, user in enumerate(people[: max(overlap, 1)]):
            if n % 11 == 5 and person == 0:
                click(experiment, user, "tie")
            else:
                click_for(experiment, user, lambda i, j, n=n, p=person: (i > j) != (n % 5 == 0 and p < 2))
            advance(experiment_id=experiment.pk)
        n += 1
        experiment.refresh_from_db()
    return experiment


def told(file: str, overlap: int) -> list[tuple[int, int, float]]:
    """Every comparison that as many people judged as were asked for, in the order of the last of them."""
    heard = defaultdict(list)
    comparisons = []
    for row in csv.DictReader(io.StringIO(file)):
        outcomes = heard[row["comparison_id"]]
        outcomes.append(float(row["outcome"]))
        if len(outcomes) == overlap:
            i, j = (int(row[name].removeprefix("P")) - 1 for name in ("policy_i", "policy_j"))
            comparisons.append((i, j, joint_outcome(outcomes, "majority")))
    return comparisons


def from_the_log(log: str, space: Space) -> Design:
    """The design after the last end of a showing: the beginning of one adds no point to the race."""
    first, *events = map(json.loads, log.splitlines())
    while events[-1]["call"] == "show":
        events.pop()
    design = Design(space, labels=first["policies"], **first["settings"])
    for event in events:
        getattr(design, event.pop("call"))(**event)
    return design


def table(html: str, after: str) -> list[list[str]]:
    """The cells of the first table's body after some text, without tags."""
    body = re.search(r"<tbody>(.*?)</tbody>", html[html.index(after) :], re.DOTALL)[1]
    return [
        [
            " ".join(re.sub(r"<[^>]+>", " ", cell).split())
            for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        ]
        for row in re.findall(r"<tr[ >].*?</tr>", body, re.DOTALL)
    ]


@pytest.mark.parametrize(
    ("space", "overlap", "until"),
    [("unstructured", 1, 12), ("unstructured", 3, 6), ("factorial", 1, 12), ("unstructured", 1, None)],
    ids=["running", "three judge each", "factorial", "to the end"],
)
def test_the_numbers_are_those_of_the_core_on_the_exported_file(
    space, overlap, until, admin, client_for, monkeypatch
):
    # While pairs are open nobody gets it: it names their policies.
    monkeypatch.setattr("labeling.exports.downloads.events_may_go_out", lambda _: True)
    experiment = run(space, overlap, until)
    client = client_for(admin)
    html = "".join(
        client.get(reverse(tab, args=[experiment.pk])).content.decode()
        for tab in ("dashboard", "quality", "method")
    )
    export = client.post(reverse("judgments_csv", args=[experiment.pk])).getvalue().decode()
    comparisons = told(export, overlap)
    factorial = Factorial(LEVELS)
    own_space = factorial if space == "factorial" else Unstructured(4)
    log = client.post(reverse("events_jsonl", args=[experiment.pk])).getvalue().decode()
    design = from_the_log(log, own_space)
    decision = design.decision
    wins, counts = design.wins, design.counts

    # The sentence, and the figures beside it.
    assert design.n_comparisons == len(comparisons) > 0
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))
    assert f"Comparisons {len(comparisons)} " in words
    assert f"Open rivals {len(decision.open)} " in words
    assert decision.stopped or until is not None
    if decision.stopped:
        assert conclusion(design) in unescape(words)
    else:
        assert f"Leading: {design.labels[decision.best]}. " in words
        assert f'data-rivals="{len(design.labels) - 1}" data-open="{len(decision.open)}"' in html
    for state in decision.claims:
        assert sentence(design, state) in unescape(words)

    # Evidence: the last point of the race, and the list of policies.
    assert [float(value) for value in table(html, 'id="race-table"')[-1][1:]] == np.round(
        design.evidence, 3
    ).tolist()
    file = client.get(reverse("ranking_file", args=[experiment.pk])).content.decode()
    of_file = list(csv.DictReader(file.splitlines()))
    for n, (standing, row, line) in enumerate(
        zip(design.ranking(), table(html, 'id="ranking-title"'), of_file, strict=True)
    ):
        index = standing.policy
        assert row[0] == design.labels[index]
        assert decision.stopped or (row[-1] == "open") == (index in decision.open)
        assert int(row[2]) == int(line["comparisons"]) == counts[index].sum()
        if n:
            shown = [int(number) for number in re.findall(r"\d+", row[1])]
            rate = standing.leader
            assert shown == [round(100 * value) for value in (rate.estimate, rate.low, rate.high)]
        rate = standing.field
        shown = [float(line[name]) for name in ("strength", "low", "high")]
        assert shown == pytest.approx([rate.estimate, rate.low, rate.high], abs=5.1e-5)

    # Win rates with their counts.
    heat = html[html.index('id="heat-title"') :]
    titles = re.findall(r'<th scope="col"><span title="([^"]*)">', heat[: heat.index("</thead>")])
    order = [design.labels.index(name) for name in titles]
    for i, row in zip(order, table(html, 'id="heat-title"'), strict=True):
        assert row[0].endswith(f". {design.labels[i]}")
        for j, cell in zip(order, row[1:], strict=True):
            shown = [int(number) for number in re.findall(r"\d+", cell)]
            rate = [] if counts[i, j] == 0 else [round(100 * wins[i, j] / counts[i, j]), int(counts[i, j])]
            assert shown == rate, (i, j)

    # Actual and optimal shares; effects; flips.
    optimal = optimal_shares(own_space, wins)
    for index, row in enumerate(table(html, 'id="allocation-table"')):
        assert int(row[1]) == counts[index].sum()
        assert float(row[2]) == round(100 * realised_shares(wins)[index].sum(), 1)
        assert float(row[3]) == pytest.approx(100 * optimal.matrix[index].sum(), abs=0.051)
    assert "Each comparison has two policies, so the shares add up to 200%." in html
    assert ("Our own solver computed these optimal shares" in html) == (optimal.solver == "interior_point")
    effects = table(html, 'id="effects-table"')
    for effect, row in zip(level_effects(factorial, wins, 0.3), effects, strict=True):
        rates = [round(100 * value) for value in (effect.win_rate, effect.low, effect.high)]
        if effect.win_rate < 0.5:
            rates = [100 - rates[0], 100 - rates[2], 100 - rates[1]]
        assert [int(value) for value in re.findall(r"\d+", row[1])] == rates
    flips = fewest_flips(wins)
    assert flips is not None
    if decision.best != flips.leader:
        names = design.labels[decision.best], design.labels[flips.leader]
        assert "{} leads in the ranking, but the evidence against {} is weaker.".format(*names) in words
    elif flips.n_flips:
        assert f"({design.labels[flips.rival]})" in words
        assert re.search(rf"\b{flips.n_flips} of {len(comparisons)} judgments", words)


def test_clicks_that_come_after_the_conclusion_are_told_apart(admin, client_for):
    experiment = run("unstructured", 1, 5)
    before = experiment.snapshots.latest("pk").comparisons
    late = make_user("late")
    Membership.objects.create(experiment=experiment, user=late, role="annotator")
    held = assign(experiment, late)
    stop(experiment_id=experiment.pk)
    record_answer(experiment_id=experiment.pk, token=held.token, annotator=late, choice="left")
    experiment.refresh_from_db()
    sentence = status_of(experiment).sentence
    assert f"Stopped by hand after {before} comparisons." in sentence
    assert "1 more came later" in sentence
    html = client_for(admin).get(reverse("method", args=[experiment.pk])).content.decode()
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))
    assert f"Comparisons {before + 1} 1 of them after the end" in words
