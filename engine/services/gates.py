"""Gates for pull requests: a changed text meets that of main in an experiment of its own."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from django.db import transaction

from engine.core import Claim, StopReason
from engine.domain.errors import SpecError, WrongStateError
from engine.domain.levels import Composition, compose, parse_level
from engine.domain.policy_space import Combination, combinations
from engine.domain.secret_draws import new_seed
from engine.domain.specs import ExperimentSpec, FactorSpec, TaskSpec
from engine.domain.variables import VariableError
from engine.models import (
    AuditEntry,
    Experiment,
    Gate,
    GateCommit,
    GroupRole,
    Level,
    MainText,
    Membership,
    User,
    clock,
)
from engine.selectors import gates as selectors
from engine.selectors import specs
from engine.selectors.designs import Observed
from engine.selectors.findings import finding_about
from engine.selectors.improvements import TEXTS
from engine.selectors.policies import combinations_of
from engine.services.audit import record
from engine.services.connection_loans import lend_alike
from engine.services.descriptions import Description, check_description
from engine.services.drafts import write_description
from engine.services.experiments import conclude, refuse_archived, start
from engine.services.locks import locked_experiment
from engine.services.notifications import announce_status


class Text(NamedTuple):
    """The text that a level has in a commit."""

    factor: str
    level: str
    text: str


@dataclass(frozen=True)
class Sides:
    """The policy of main and that of a change.

    ``spec`` describes their challenge. ``changed``: the texts that are others than main's. ``same``: what is
    sent to the models is the same.
    """

    spec: ExperimentSpec
    changed: Sequence[Text]
    same: bool
    key: str


def check_texts(*, experiment_id: int, texts: Sequence[Text], commit: str = "", by: User) -> Gate | None:
    """The gate of these texts against main's, whose challenge begins now unless it has; ``None``: what is
    sent is the same.

    ``commit`` hears of the state now, and of the end, where the experiment has a subscriber on its forge.

    Raises
    ------
    SpecError
        Says which text is unusable, or that nothing has these levels.
    WrongStateError
        Nothing could answer with a new text, or the experiment has no margin.
    """
    sides = sides_of(Experiment.objects.get(pk=experiment_id), texts)
    # SQLite has one writer at a time: check before the transaction.
    description = None if sides.same else check_description(sides.spec)
    with transaction.atomic():
        experiment = locked_experiment(experiment_id)
        refuse_archived(experiment)
        gate = None if description is None else _gate(experiment, sides, description, by)
        if commit:
            # Another comparison, against what main was, no longer speaks for this commit.
            GateCommit.objects.filter(gate__experiment=experiment, sha=commit).exclude(gate=gate).delete()
            if gate:
                GateCommit.objects.get_or_create(gate=gate, sha=commit)
            announce_status(experiment=experiment, gate=gate, sha=commit)
    return gate


def _gate(experiment: Experiment, sides: Sides, description: Description, by: User) -> Gate:
    """The gate of these sides in a locked experiment; its challenge begins where there is none yet."""
    if found := experiment.gates.select_related("challenge__winner").filter(key=sides.key).first():
        return found
    challenge = write_description(experiment=Experiment(maker=by), description=description)
    record(experiment=challenge, by=by, action=AuditEntry.Action.CREATE)
    _let_in(experiment, challenge, by)
    challenge = start(experiment_id=challenge.pk, by=by)
    details = {"challenge": challenge.name, "levels": _named(sides.changed)}
    record(experiment=experiment, by=by, action=AuditEntry.Action.GATE, details=details)
    return Gate.objects.create(experiment=experiment, challenge=challenge, key=sides.key)


@transaction.atomic
def set_main_texts(*, experiment_id: int, texts: Sequence[Text], by: User) -> None:
    """Take these texts as those of main, which changes meet from now on.

    Raises
    ------
    SpecError
        Says which text is unusable, or that nothing has these levels.
    WrongStateError
        Nothing could answer with a new text, or the experiment has no margin.
    """
    experiment = locked_experiment(experiment_id)
    refuse_archived(experiment)
    sides = sides_of(experiment, texts)
    if not sides.changed:
        return
    check_description(sides.spec)
    for each in sides.changed:
        level = Level.objects.get(factor__experiment=experiment, factor__name=each.factor, name=each.level)
        MainText.objects.update_or_create(level=level, defaults={"text": each.text, "at": clock.now()})
    details = {"levels": _named(sides.changed)}
    record(experiment=experiment, by=by, action=AuditEntry.Action.MAIN_TEXTS, details=details)


def settle(*, experiment: Experiment, observed: Observed) -> bool:
    """Close the locked challenge of a gate if its evidence decides; docs/gate.md has the reason."""
    design = observed.design
    if design.proves(Claim.GOOD_ENOUGH, selectors.OF_CHANGE):
        claim, policy = Claim.GOOD_ENOUGH, selectors.OF_CHANGE
    elif design.named.get(Claim.BEST) == selectors.OF_MAIN:
        claim, policy = Claim.BEST, selectors.OF_MAIN
    elif design.n_comparisons >= experiment.budget:
        conclude(experiment=experiment, conclusion=StopReason.BUDGET, winner=None)
        return True
    else:
        return False
    conclude(
        experiment=experiment,
        conclusion=StopReason.CERTIFIED,
        winner=experiment.policies.get(index=policy),
        claim=claim.value,
        finding=finding_about(experiment, observed, claim, policy),
    )
    return True


def sides_of(experiment: Experiment, texts: Sequence[Text]) -> Sides:
    """Both sides of a change: main's policy, which has these levels, and the same one with these texts.

    Raises
    ------
    SpecError, WrongStateError
        As for `check_texts`.
    """
    if experiment.responses == Experiment.Responses.IMPORTED:
        raise WrongStateError("Responses are ready-made here, so nothing could answer with a new text.")
    if not experiment.epsilon:
        raise WrongStateError("This experiment has the margin 0. Give it one by which a change may be worse.")
    spec, now = specs.experiment_spec(experiment), selectors.main_texts(experiment)
    kinds = {factor.name: factor.kind for factor in spec.factors}
    wanted = {each.factor: each.level for each in texts}
    if len(wanted) < len(texts):
        raise SpecError("A policy has one level of each factor. Name each factor once.", ("texts",))
    if wrong := [name for name in wanted if kinds.get(name) not in TEXTS]:
        names = ", ".join(repr(name) for name, kind in kinds.items() if kind in TEXTS) or "none"
        raise SpecError(f"There is no factor {wrong[0]!r} with a text. There is: {names}.", ("texts",))
    main = _of_main(experiment, wanted, list(kinds))
    given = {each.factor: each for each in texts}
    changed: list[Text] = []
    factors, new = list[FactorSpec](), list[str]()
    for factor, name in zip(spec.factors, main, strict=True):
        key = TEXTS.get(factor.kind, "")
        value = dict(factor.levels[name])
        if (factor.name, name) in now:
            value[key] = now[factor.name, name]
        levels, other = {name: value}, name
        theirs = given.get(factor.name)
        if theirs and theirs.text != value.get(key, ""):
            changed.append(theirs)
            other = f"{name[:90]} {_hash(theirs.text)[:7]}"
            levels[other] = value | {key: theirs.text}
        factors.append(replace(factor, levels=levels))
        new.append(other)
    sides = (main, tuple(new))
    every = combinations({factor.name: list(factor.levels) for factor in factors}, ())
    # What is certified, and by which margin: an old result is none under a stricter one, or on other tasks.
    compared = [[factor.levels for factor in factors], repr(spec.tasks), experiment.model]
    key = _hash(json.dumps([*compared, experiment.epsilon, experiment.delta], sort_keys=True))
    settings = {
        **{name: value for name, value in spec.settings.items() if name not in {"sampler", "stopping"}},
        "claim": Claim.BEST.value,
        "space": Experiment.Space.UNSTRUCTURED.value,
        "excluded": [dict(zip(kinds, one, strict=True)) for one in every if one not in sides],
        "llm_judge": Experiment.LLMJudge.OFF.value,
        "seed": new_seed(),
    }
    name = f"{experiment.name[:180]}, gate {key[:7]}"
    return Sides(
        replace(spec, name=name, factors=factors, settings=settings),
        changed,
        not changed
        or _sent_alike(spec.tasks, *(_composed(factors, side, experiment.model) for side in sides)),
        key,
    )


def _of_main(experiment: Experiment, wanted: Mapping[str, str], factors: list[str]) -> Combination:
    """The policy that has these levels; where several have, the winner, or else the first."""
    every = combinations_of(experiment)
    present = experiment.policies.present().values_list("index", flat=True)
    having = [
        index for index in present if wanted.items() <= dict(zip(factors, every[index], strict=True)).items()
    ]
    if not having:
        raise SpecError(f"No policy that is present has the levels {wanted}.", ("texts",))
    winner = experiment.winner
    return every[winner.index if winner and winner.index in having else having[0]]


def _sent_alike(tasks: Sequence[TaskSpec], one: Composition, two: Composition) -> bool:
    """True if both send the same for every task."""
    try:
        # Without tasks nothing is known to be alike, and the start of the challenge says so.
        return bool(tasks) and all(one.filled(task.variables) == two.filled(task.variables) for task in tasks)
    except VariableError:
        # The check of the description says what is wrong.
        return False


def _composed(factors: Sequence[FactorSpec], side: Combination, model: str) -> Composition:
    levels = zip(factors, side, strict=True)
    return compose((parse_level(factor.kind, factor.levels[name]) for factor, name in levels), model=model)


def _let_in(experiment: Experiment, challenge: Experiment, by: User) -> None:
    """Give everybody of an experiment the same roles in a challenge, and it the same connections."""
    Membership.objects.bulk_create(
        Membership(
            experiment=challenge, user_id=each.user_id, role=each.role, origin=each.origin, invited_by=by
        )
        for each in experiment.memberships.all()
    )
    # Else the next login would take the roles of groups away again.
    GroupRole.objects.bulk_create(
        GroupRole(experiment=challenge, group=each.group, role=each.role)
        for each in experiment.group_roles.all()
    )
    lend_alike(experiment=experiment, to=challenge, by=by)


def _named(texts: Sequence[Text]) -> str:
    return ", ".join(f"{each.factor} “{each.level}”" for each in texts)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
