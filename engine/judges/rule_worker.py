"""Judging the ready comparisons of an experiment by rule."""

from engine.domain.text_checks import read_checks
from engine.judges.rule import judge
from engine.models import Comparison
from engine.selectors.rule_judge import ready_for_rule
from engine.services.judging import judge_ready


def judge_comparisons(experiment_id: int) -> int:
    """Judge every ready comparison of a running rule-judged experiment; returns how many were judged."""
    return sum(
        judge_ready(comparison_id=comparison_id, verdict=_verdict) is not None
        for comparison_id in ready_for_rule(experiment_id)
    )


def _verdict(comparison: Comparison) -> tuple[str, str]:
    verdict = judge(
        left=comparison.left.text,
        right=comparison.right.text,
        reference=comparison.task.reference,
        prefer=comparison.experiment.rule_preference,
        seed=comparison.response_i.seed,
        checks=read_checks(comparison.task.checks),
    )
    return verdict.choice, verdict.reason
