"""Policies join experiments that have started, and retire from them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q

from engine.domain.errors import SpecError, WrongStateError
from engine.domain.policy_space import Combination, combinations, name_of
from engine.domain.showings import Kind
from engine.domain.specs import ExperimentSpec, ReadyMade
from engine.models import (
    AuditEntry,
    Experiment,
    Level,
    PairCount,
    Policy,
    Response,
    ShowingEvent,
    User,
    clock,
)
from engine.selectors import specs
from engine.selectors.gates import gate_of
from engine.selectors.improvements import open_improvement, race_of
from engine.selectors.policies import combinations_of, policy_names
from engine.selectors.snapshots import latest_snapshot
from engine.selectors.spending import money_trouble
from engine.services.audit import record
from engine.services.dashboard_pages import forget_pages
from engine.services.descriptions import check_description
from engine.services.drafts import discard, write_description
from engine.services.evidence import settle
from engine.services.experiments import check_connections, refuse_archived, withdraw
from engine.services.locks import locked_experiment
from engine.services.notifications import announce_policies
from engine.services.ready_made import ready_made_responses
from engine.services.setting_changes import run_again
from engine.services.trials import start_trial

_FEWEST = 2
_STARTED = {Experiment.State.RUNNING, Experiment.State.PAUSED, Experiment.State.CONCLUDED}


@transaction.atomic
def add_policies(
    *,
    experiment_id: int,
    levels: Mapping[str, Mapping[str, Mapping[str, Any]]],
    chosen: Sequence[Mapping[str, str]] = (),
    parent: int | None = None,
    responses: Sequence[ReadyMade] = (),
    losers_leave: bool = True,
    parent_leaves: bool = False,
    by: User | None = None,
) -> list[Policy]:
    """Have policies with new levels join an experiment that has started; a concluded one runs again.

    Parameters
    ----------
    levels
        The new levels by factor: ``{factor: {name: value}}``; see ``engine.domain.levels``.
    chosen
        The policies to make of them, each with its level of every factor. By default each new level takes its
        place in the parent.
    parent
        Index of the policy that they are made from; by default the winner, or who leads.
    responses
        What they answered to the tasks, where responses are ready-made.
    losers_leave
        Those whom the conclusion has ruled out retire first.
    parent_leaves
        The parent retires: the new ones take its place, as where its prompt had a slip.

    Raises
    ------
    SpecError
        Says what is unusable.
    WrongStateError
        It has not started, is in the archive, can have no more policies, or an improvement is running.
    """
    experiment = locked_experiment(experiment_id)
    _check_open(experiment)
    if open_improvement(experiment):
        raise WrongStateError("An improvement is running, in which proposals alone join. Stop it first.")
    here = list(experiment.policies.present().values_list("pk", flat=True))
    origin = _parent(experiment, parent)
    joined = join(experiment, levels, origin, chosen, responses=responses, losers_leave=losers_leave, by=by)
    names = policy_names(experiment)
    origin.refresh_from_db()
    if parent_leaves and origin.retired_at is None:
        replaced = f"Replaced by {names[joined[0].index].name}."[:500]
        retire(experiment, origin, replaced, by)
    if experiment.policies.present().count() < _FEWEST:
        raise WrongStateError("One policy alone would be left. Keep another one.")
    if settle(experiment=experiment).design.decision.stopped:
        raise WrongStateError("The budget is used up. Give the experiment a larger budget first.")
    _drop_tried_drafts(experiment)
    left = experiment.policies.filter(pk__in=here).exclude(retired_at=None)
    forget_pages(experiment=experiment)
    announce_policies(experiment=experiment, joined=joined, retired=list(left), by=by)
    return joined


def join(
    experiment: Experiment,
    levels: Mapping[str, Mapping[str, Mapping[str, Any]]],
    origin: Policy,
    chosen: Sequence[Mapping[str, str]] = (),
    *,
    responses: Sequence[ReadyMade] = (),
    losers_leave: bool = True,
    by: User | None = None,
) -> list[Policy]:
    """Have policies join a locked experiment that has started; the evidence takes them in later.

    See `add_policies`.
    """
    had = combinations_of(experiment)
    spec, new = _described(experiment, levels, chosen, had, origin.index)
    # With several factors a response names the new level alone.
    added = {level for names in levels.values() for level in names}
    full = {level: name_of(each) for each in new for level in added.intersection(each)}
    responses = [replace(each, policy=full.get(each.policy, each.policy)) for each in responses]
    check_description(replace(spec, ready_made=[*spec.ready_made, *responses]))
    if experiment.state == Experiment.State.CONCLUDED:
        if losers_leave:
            _retire_losers(experiment, by)
        run_again(experiment=experiment)
    joined = _store(experiment, levels, new, spec.settings["excluded"], parent=origin)
    own = replace(spec, ready_made=responses)
    everybody, tasks = list(experiment.policies.all()), list(experiment.tasks.all())
    Response.objects.bulk_create(ready_made_responses(own, everybody, tasks))
    check_connections(experiment)
    names = policy_names(experiment)
    for policy in joined:
        ShowingEvent.objects.create(experiment=experiment, policy=policy, kind=Kind.JOINED)
        details = {"policy": names[policy.index].name, "code": policy.label, "parent": origin.label}
        record(experiment=experiment, by=by, action=AuditEntry.Action.POLICY_JOINED, details=details)
    return joined


@transaction.atomic
def try_policies(
    *,
    experiment_id: int,
    levels: Mapping[str, Mapping[str, Mapping[str, Any]]],
    chosen: Sequence[Mapping[str, str]] = (),
    parent: int | None = None,
    positions: Collection[int],
    by: User,
) -> Experiment:
    """Let policies that might join answer the tasks at these positions, beside the one they are made from.

    They do so in a draft that no list shows, so that nothing of it enters the experiment. The next trial
    replaces it, and the policies' joining deletes it. The caller wakes the workers.

    Parameters are those of `add_policies`.

    Raises
    ------
    SpecError
        Says what is unusable, or that somebody's allowance is spent.
    WrongStateError
        No policy can join, or nothing can be written.
    """
    experiment = locked_experiment(experiment_id)
    _check_open(experiment)
    if spent := money_trouble(experiment):
        raise WrongStateError(spent)
    had = combinations_of(experiment)
    origin = _parent(experiment, parent)
    spec, new = _described(experiment, levels, chosen, had, origin.index)
    tried = [had[origin.index], *new]
    factors = [
        replace(factor, levels={name: factor.levels[name] for name in dict.fromkeys(names)})
        for factor, names in zip(spec.factors, zip(*tried, strict=True), strict=True)
    ]
    every = combinations({factor.name: list(factor.levels) for factor in factors}, ())
    settings = {
        **spec.settings,
        "excluded": [
            dict(zip((each.name for each in factors), one, strict=True)) for one in every if one not in tried
        ],
        "llm_judge": Experiment.LLMJudge.OFF,
        "money_limit": None,
        "space": Experiment.Space.UNSTRUCTURED,
        "tags": "",
    }
    tasks = [spec.tasks[position] for position in sorted(positions)]
    spec = replace(spec, name=f"Trial for {experiment.pk}", factors=factors, tasks=tasks, settings=settings)
    _drop_tried_drafts(experiment)
    draft = write_description(experiment=Experiment(trial_of=experiment), description=check_description(spec))
    check_connections(draft)
    start_trial(experiment_id=draft.pk, positions=range(len(tasks)), by=by)
    return draft


def forget_tried_drafts(*, before: datetime) -> None:
    """Delete what was tried before this moment for policies that have not joined."""
    for draft in Experiment.objects.filter(trial_of__isnull=False, created_at__lt=before):
        with transaction.atomic():
            discard(locked_experiment(draft.pk))


def _drop_tried_drafts(experiment: Experiment) -> None:
    for draft in experiment.tried_drafts.all():
        discard(locked_experiment(draft.pk))


@transaction.atomic
def retire_policy(*, experiment_id: int, index: int, reason: str, by: User | None = None) -> Policy:
    """Have a policy leave for good: nobody is shown it from now on. Pairs on a screen may be finished.

    Raises
    ------
    WrongStateError
        The experiment neither runs nor is paused, or is in the archive; fewer than two would be left; or an
        improvement compares others with it.
    """
    experiment = locked_experiment(experiment_id)
    _check_open(experiment)
    if improvement := open_improvement(experiment):
        # The last answers may have made it the champion.
        settle(experiment=experiment)
        if index in {improvement.original.index, race_of(improvement).champion}:
            raise WrongStateError("An improvement compares others with this policy. Stop improving first.")
    if experiment.state == Experiment.State.CONCLUDED:
        raise WrongStateError("The experiment has concluded. Policies that lost leave when a new one joins.")
    here = experiment.policies.present()
    policy = here.filter(index=index).first()
    if policy is None:
        raise WrongStateError("This policy is not there, or has retired already.")
    if here.count() <= _FEWEST:
        raise WrongStateError("Fewer than two policies would be left. Add another one first.")
    retire(experiment, policy, reason, by)
    settle(experiment=experiment)
    forget_pages(experiment=experiment)
    announce_policies(experiment=experiment, joined=[], retired=[policy], by=by)
    return policy


def parent_of(experiment: Experiment, index: int | None = None) -> Policy:
    """The policy that new ones are made from: the one of this index, or who has won or leads.

    Raises
    ------
    SpecError
        It is not there, or has retired.
    WrongStateError
        No policy can join.
    """
    _check_open(experiment)
    return _parent(experiment, index)


def policies_may_change(experiment: Experiment) -> bool:
    """True if policies can join and leave, apart from an improvement that runs."""
    try:
        _check_open(experiment)
    except WrongStateError:
        return False
    return True


def _check_open(experiment: Experiment) -> None:
    if experiment.state not in _STARTED:
        raise WrongStateError("This experiment has not started: change its policies on the page Setup.")
    refuse_archived(experiment)
    if gate_of(experiment):
        raise WrongStateError("A gate compares a change with main alone: no policy joins or leaves here.")
    if experiment.stopping != "certified":
        raise WrongStateError("Under this stopping rule the policies are fixed: it makes no claim.")


def _parent(experiment: Experiment, index: int | None) -> Policy:
    here = experiment.policies.present()
    if index is not None:
        if (named := here.filter(index=index).first()) is None:
            raise SpecError("The policy to start from is not there, or has retired.", ("parent",))
        return named
    snapshot = latest_snapshot(experiment)
    leader = experiment.winner or (snapshot.best if snapshot else None)
    return leader if leader and leader.retired_at is None else here.earliest("index")


def _described(
    experiment: Experiment,
    levels: Mapping[str, Mapping[str, Mapping[str, Any]]],
    chosen: Sequence[Mapping[str, str]],
    had: Sequence[Combination],
    origin: int,
) -> tuple[ExperimentSpec, list[Combination]]:
    """The description of the experiment with its new levels, and the policies that join."""
    spec = specs.experiment_spec(experiment)
    names = [factor.name for factor in spec.factors]
    for factor, added in levels.items():
        if factor not in names:
            raise SpecError(f"There is no factor {factor!r}; there are {', '.join(map(repr, names))}.")
        if taken := set(added) & set(spec.factors[names.index(factor)].levels):
            raise SpecError(f"{factor!r} has a level {min(taken)!r} already. Choose another name.", ("name",))
    factors = [
        replace(factor, levels={**factor.levels, **levels.get(factor.name, {})}) for factor in spec.factors
    ]
    parent = dict(zip(names, had[origin], strict=True))
    wanted = chosen or [{factor: name} for factor, added in levels.items() for name in added]
    new = [tuple((parent | dict(each))[name] for name in names) for each in wanted]
    if not new or len(set(new) | set(had)) < len(new) + len(had):
        raise SpecError("Each policy that joins must be a new combination of levels.", ("policies",))
    present = {*had, *new}
    kept = [
        each
        for each in experiment.excluded
        if not any(dict(zip(names, one, strict=True)).items() >= each.items() for one in present)
    ]
    every = combinations({factor.name: list(factor.levels) for factor in factors}, kept)
    excluded = kept + [dict(zip(names, one, strict=True)) for one in every if one not in present]
    return replace(spec, factors=factors, settings={**spec.settings, "excluded": excluded}), new


def _store(
    experiment: Experiment,
    levels: Mapping[str, Mapping[str, Mapping[str, Any]]],
    new: Sequence[Combination],
    excluded: list[dict[str, str]],
    *,
    parent: Policy,
) -> list[Policy]:
    experiment.excluded = excluded
    experiment.save(update_fields=["excluded"])
    factors = list(experiment.factors.order_by("position"))
    for factor in factors:
        position = factor.levels.count()
        for place, (name, value) in enumerate(levels.get(factor.name, {}).items(), position):
            Level.objects.create(factor=factor, name=name, value=dict(value), position=place)
    rows = [{level.name: level for level in factor.levels.all()} for factor in factors]
    others = list(experiment.policies.all())
    for combination in new:
        policy = Policy.objects.create(
            experiment=experiment, index=len(others), parent=parent, joined_at=clock.now()
        )
        policy.levels.set(by_name[name] for by_name, name in zip(rows, combination, strict=True))
        PairCount.objects.bulk_create(
            PairCount(experiment=experiment, policy_i=other, policy_j=policy) for other in others
        )
        others.append(policy)
    return others[-len(new) :]


def _retire_losers(experiment: Experiment, by: User | None) -> None:
    """Have everybody leave whom the conclusion of a locked experiment has ruled out."""
    if experiment.winner is None:
        return
    name = policy_names(experiment)[experiment.winner.index].name
    for policy in experiment.policies.present().exclude(pk=experiment.winner.pk):
        retire(experiment, policy, f"Lost to {name}.", by)


def retire(experiment: Experiment, policy: Policy, reason: str, by: User | None = None) -> None:
    """Have a policy leave a locked experiment; the evidence takes it in later."""
    policy.retired_at, policy.retired_because = clock.now(), reason
    policy.save(update_fields=["retired_at", "retired_because"])
    ShowingEvent.objects.create(experiment=experiment, policy=policy, kind=Kind.RETIRED)
    said = f"{policy.label} has retired."
    withdraw(experiment, experiment.comparisons.filter(Q(policy_i=policy) | Q(policy_j=policy)), said)
    name = policy_names(experiment)[policy.index].name
    details = {"policy": name, "code": policy.label, "reason": reason}
    record(experiment=experiment, by=by, action=AuditEntry.Action.POLICY_RETIRED, details=details)
