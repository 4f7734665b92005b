"""The report of an experiment on one page, for people who took no part in it."""

from typing import Any

from engine.domain.wording import moment
from engine.models import Experiment
from engine.selectors import counts, findings, improvements, pool_claims
from engine.selectors.past_votes import past_vote_count
from engine.selectors.policies import levels_told, policy_names
from engine.selectors.record import concluded_record
from engine.selectors.task_changes import tasks_present
from engine.services import dashboard_pages
from labeling.dashboard import charts, status
from labeling.dashboard.figures import doubts_of, judged_by, result_of
from labeling.dashboard.verdict import meanings
from labeling.dashboard.voids import sentence_about


def report_of(experiment: Experiment) -> dict[str, Any]:
    """The report as it stands, a moment ago. Only `voids` names people: a link shows `voids_unnamed`."""
    content: dict[str, Any] = dashboard_pages.show(experiment=experiment, page="report", make=_report).content
    return content


def _report(experiment: Experiment) -> dict[str, Any]:
    judged = judged_by(experiment)
    result = result_of(experiment)
    comparisons = result["comparisons"]
    verdict, policies = result["verdict"], result["policies"]
    doubted = doubts_of(experiment)
    past = past_vote_count(experiment) if experiment.past_votes else 0
    # A claim that was chosen after looking names two risks.
    finding = verdict["finding"] if experiment.certified_claim == experiment.claim else ""
    promised = None if findings.doubts_about_risk(experiment) else experiment.delta
    return {
        "verdict": verdict,
        "policies": policies,
        "crosses": charts.crossing(policies),
        "words": meanings(experiment, dict.fromkeys(row["word"] for row in policies)),
        "counts_tokens": any(row["tokens"] for row in policies),
        "priced": any(row["cost"] for row in policies),
        "judged": judged,
        "comparisons": comparisons,
        "conclusions": result["ladder"]["conclusions"] if result["ladder"] else [],
        "risk_of_all": result["ladder"]["risk_of_all"] if result["ladder"] else "",
        "changes": _changes(experiment),
        "improvements": [
            *map(improvements.sentence_of, improved := list(experiment.improvements.order_by("pk"))),
            *filter(None, [improvements.risk_of_several(improved)]),
        ],
        "voids": result["voids"],
        "voids_unnamed": result["voids"] and sentence_about(experiment, names=False),
        "tasks": tasks_present(experiment).count(),
        "tasks_compared": counts.tasks_compared(experiment),
        "winner": levels_told(experiment, experiment.winner.index) if experiment.winner else [],
        "past": past,
        "only_past": 0 < past == judged["judgments"],
        "by_machines": result["by_machines"],
        "doubts": [each.unnamed for each in doubted.found]
        + _doubtful(judged["people"], result["n_doubtful"]),
        "n_missing": doubted.n_missing,
        "finding": finding,
        "caveats": _caveats(experiment, finding),
        "record": concluded_record(experiment),
        # Where a caveat has another risk, there is none here.
        "risk": verdict["risk"] if experiment.winner_id else promised,
    }


def _changes(experiment: Experiment) -> list[str]:
    """The policies that joined or retired since the start."""
    names, said = policy_names(experiment), []
    for policy in experiment.policies.all():
        name = names[policy.index].name
        if policy.joined_at:
            said.append(f"{name} joined {moment(policy.joined_at)}.")
        if policy.retired_at:
            said.append(f"{name} left {moment(policy.retired_at)}: {policy.retired_because}")
    return said


def _doubtful(n_people: int, n_doubtful: int) -> list[str]:
    if not n_doubtful:
        return []
    return [
        f"There are doubts about the answers of {n_doubtful:,} of {n_people:,} "
        f"{'person' if n_people == 1 else 'people'}. Those who run the experiment can see the reasons."
    ]


def _caveats(experiment: Experiment, finding: str) -> list[str]:
    said = []
    if experiment.state != Experiment.State.CONCLUDED:
        said.append("The experiment is not concluded now. The order of the policies may still change.")
    said += status.notes(experiment)
    if findings.by_one_person(experiment):
        said.append("One person judged everything: this is what that person prefers.")
    if experiment.past_votes:
        said.append("Past votes were given before this experiment and not under its control.")
    said += pool_claims.tasks_left_out(experiment)
    # Where the same texts come again, nothing was learnt about others. A finding says so itself, in Method.
    of_pool = pool_claims.of_pool(experiment) or ["The result holds for tasks like those that were compared."]
    said += [each for each in of_pool if each not in " ".join([*said, finding])]
    if experiment.judge == Experiment.Judge.HUMAN:
        said.append("The result holds for judges like those who judged.")
    return said
