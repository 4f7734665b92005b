"""Changes single settings of experiments, and reopens those that have concluded. The log records each."""

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, TypedDict, Unpack

from django.core.exceptions import ValidationError
from django.db import transaction

from engine.core import StopReason
from engine.domain.claim_settings import check_claim
from engine.domain.errors import SpecError, WrongStateError
from engine.domain.secret_draws import new_secret
from engine.domain.tags import normal_tags
from engine.models import AuditEntry, Experiment, User
from engine.selectors import consequences, counts
from engine.services.analysis import outdate
from engine.services.audit import record
from engine.services.descriptions import faults_in
from engine.services.drafts import check_name
from engine.services.evidence import settle, start_again
from engine.services.experiments import end_leftovers, refuse_archived, refuse_weaker
from engine.services.locks import locked_experiment

CONSEQUENCES: dict[str, Callable[[Experiment, Any], str]] = {
    "claim": consequences.claim_consequence,
    "budget": consequences.budget_consequence,
    "delta": consequences.delta_consequence,
    "epsilon": consequences.epsilon_consequence,
}


class GivenSettings(TypedDict, total=False):
    """The settings that may change after the start; one that is left out or ``None`` stays as it is."""

    claim: str | None
    budget: int | None
    delta: float | None
    epsilon: float | None


@transaction.atomic
def change_settings(*, experiment_id: int, by: User | None, **given: Unpack[GivenSettings]) -> Experiment:
    """Change some settings of an experiment that has not concluded.

    The evidence counts as stale, so that the next decision rests on the new settings alone.

    Raises
    ------
    SpecError
        A value is out of range.
    WrongStateError
        The experiment has concluded: reopen it with the new settings instead. Or it is in the archive.
    """
    experiment = locked_experiment(experiment_id)
    if experiment.state == Experiment.State.CONCLUDED:
        raise WrongStateError("The experiment has concluded. Reopen it with the new settings instead.")
    refuse_archived(experiment)
    _change(experiment, by, given)
    return experiment


@transaction.atomic
def reopen(*, experiment_id: int, by: User | None, **given: Unpack[GivenSettings]) -> Experiment:
    """Concluded → running, with these changes of the settings.

    Raises
    ------
    SpecError
        A value is out of range.
    WrongStateError
        It has not concluded, is in the archive, or would conclude again at once.
    """
    experiment = locked_experiment(experiment_id)
    if experiment.state != Experiment.State.CONCLUDED:
        raise WrongStateError(f"Only a concluded experiment can be reopened; this one is {experiment.state}.")
    refuse_archived(experiment)
    record(
        experiment=experiment,
        by=by,
        action=AuditEntry.Action.REOPEN,
        details={
            "comparisons": counts.comparison_count(experiment.pk),
            "conclusion": experiment.get_conclusion_display(),
        },
    )
    _change(experiment, by, given)
    decision = settle(experiment=experiment).design.decision
    if decision.stopped:
        spent = decision.reason == StopReason.BUDGET
        remedy = (
            "Give it a larger budget."
            if spent
            else "Choose a stronger claim, a smaller risk, or another margin."
        )
        raise WrongStateError(f"With these settings the experiment would conclude again at once. {remedy}")
    run_again(experiment=experiment)
    return experiment


def run_again(*, experiment: Experiment) -> None:
    """Have a locked experiment that has concluded run again; what waited at its end stays ended."""
    experiment.state = Experiment.State.RUNNING
    experiment.conclusion = experiment.certified_claim = experiment.finding = ""
    experiment.winner = experiment.concluded_at = experiment.closing_since = None
    experiment.save(
        update_fields=[
            "state", "conclusion", "certified_claim", "finding", "winner", "concluded_at", "closing_since",
        ]
    )  # fmt: skip
    _renew_secret(experiment=experiment)
    end_leftovers(experiment=experiment)


def _renew_secret(*, experiment: Experiment) -> None:
    """Plan under a new secret from now on, as the old one may have been published. The record keeps both."""
    experiment.past_secrets = [
        *experiment.past_secrets,
        {"first": experiment.secret_from, "secret": experiment.secret},
    ]
    experiment.secret = new_secret()
    experiment.secret_from = experiment.planned_count
    experiment.save(update_fields=["past_secrets", "secret", "secret_from"])


def _change(experiment: Experiment, by: User | None, given: GivenSettings) -> None:
    changes = _changes(experiment, given)
    _check(experiment, changes)
    refuse_weaker(experiment, by, changes)
    seen = consequences.outcomes_seen(experiment)
    for name, value in changes.items():
        record(
            experiment=experiment,
            by=by,
            action=name,
            details={
                "before": value_in_words(name, getattr(experiment, name)),
                "after": value_in_words(name, value),
                "consequence": CONSEQUENCES[name](experiment, value),
            },
        )
        # The guarantee is about the values chosen before anybody saw an outcome.
        if seen and name != "budget" and getattr(experiment, f"first_{name}") in {None, ""}:
            setattr(experiment, f"first_{name}", getattr(experiment, name))
        setattr(experiment, name, value)
    experiment.save(
        update_fields=["claim", "budget", "delta", "epsilon", "first_claim", "first_delta", "first_epsilon"]
    )
    if changes:
        outdate(experiment=experiment)
    lowered = "budget" in changes and experiment.budget < counts.comparison_count(experiment.pk)
    if seen and (lowered or changes.keys() & {"claim", "delta", "epsilon"}):
        # Peaks reached under other settings, or beyond the budget, do not count for these.
        start_again(experiment=experiment)


@transaction.atomic
def change_display(
    *,
    experiment_id: int,
    by: User | None,
    name: str | None = None,
    guidelines: str | None = None,
    further_questions: str | None = None,
    tags: str | None = None,
    leaderboard: bool | None = None,
    tell_outcome: bool | None = None,
    **money: float | None,
) -> Experiment:
    """Change what the evidence does not depend on, in any state. ``None`` changes nothing.

    The log keeps the values before. ``money``: ``money_limit``, if it is to change; ``None`` is no limit.

    Raises
    ------
    SpecError
        The name is empty or taken, a text is too long, or the limit is below 0.
    """
    experiment = locked_experiment(experiment_id)
    given = {
        "name": name if name is None else name.strip(),
        "guidelines": guidelines,
        "further_questions": further_questions,
        "tags": None if tags is None else normal_tags(tags),
        "leaderboard": leaderboard,
        "tell_outcome": tell_outcome,
    }
    changes = _changes(experiment, given)
    if money and money["money_limit"] != experiment.money_limit:
        changes |= money
    check_name(_check_fields(experiment, changes))
    before = {field: getattr(experiment, field) for field in changes}
    for field, value in changes.items():
        setattr(experiment, field, value)
    if changes:
        experiment.save(update_fields=list(changes))
        record(
            experiment=experiment,
            by=by,
            action=AuditEntry.Action.EDIT,
            details={"changed": ", ".join(changes), "before": before},
        )
    return experiment


def _changes(experiment: Experiment, given: Mapping[str, Any]) -> dict[str, Any]:
    """The given values that differ from the experiment's; ``None`` stands for no change."""
    return {
        name: value
        for name, value in given.items()
        if value is not None and value != getattr(experiment, name)
    }


def value_in_words(name: str, value: Any) -> Any:
    """The value of a setting as the log and the pages show it: a claim in words."""
    return dict(Experiment.CLAIMS).get(value, value) if name == "claim" else value


def _check(experiment: Experiment, changes: Mapping[str, float | str]) -> None:
    changed = _check_fields(experiment, changes)
    check_claim(claim=changed.claim, epsilon=changed.epsilon, stopping=changed.stopping)


def _check_fields(experiment: Experiment, changes: Mapping[str, Any]) -> Experiment:
    """The experiment as it would be after the changes."""
    changed = copy(experiment)
    for name, value in changes.items():
        setattr(changed, name, value)
    try:
        changed.clean_fields(exclude={"winner"})
    except ValidationError as error:
        raise SpecError(faults_in(error)) from error
    return changed
