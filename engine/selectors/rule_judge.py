"""Comparisons for the judge that decides by rule."""

from engine.models import Comparison, Experiment


def ready_for_rule(experiment_id: int) -> list[int]:
    """The numbers of the ready comparisons of an experiment in order; none unless it runs and is judged by
    rule.
    """
    ready = Comparison.objects.filter(
        experiment_id=experiment_id,
        experiment__judge=Experiment.Judge.RULE,
        experiment__state=Experiment.State.RUNNING,
        state=Comparison.State.READY,
    )
    return list(ready.order_by("pk").values_list("pk", flat=True))
