"""Rows for tests, made through the services that make them in earnest."""

import itertools
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from django.conf import settings

from engine.core import StopReason
from engine.domain.specs import ExperimentSpec, FactorSpec, GoldSpec, TaskSpec
from engine.generation.base import Backend
from engine.generation.worker import write_batch
from engine.models import (
    Assignment,
    Charge,
    Comparison,
    Connection,
    Experiment,
    Invitation,
    Judgment,
    Membership,
    PairCount,
    Response,
    Subscription,
    User,
    WorkerPulse,
    clock,
)
from engine.selectors.answers import newest_answer
from engine.services import serving
from engine.services.assignments import come_for
from engine.services.drafts import create_experiment
from engine.services.experiments import conclude, start
from engine.services.generation import Failed
from engine.services.invitations import create_invitation
from engine.services.judging import record_answer
from engine.services.notifications import subscribe
from engine.services.planning import advance
from engine.services.serving import desk
from engine.services.undos_and_skips import MOST_HELD
from tests.accounts import PASSWORD
from tests.backends import SkilledBackend

_numbers = itertools.count(1)

SECRET = "5a" * 32


def make_user(name: str | None = None, **fields: Any) -> User:
    return User.objects.create_user(name or f"user{next(_numbers)}", password=PASSWORD, **fields)


def make_spec(n_policies: int = 3, n_tasks: int = 5, n_gold: int = 0, **settings: Any) -> ExperimentSpec:
    """One prompt factor with ``n_policies`` levels; tasks whose reference answers are their numbers.

    ``right n`` is the better response of gold item n, and ``wrong n`` the worse.
    """
    return ExperimentSpec(
        name=settings.pop("name", f"Experiment {next(_numbers)}"),
        factors=[
            FactorSpec(
                name="System prompt",
                kind="prompt",
                levels={f"Prompt {k}": {"text": f"quality {k}"} for k in range(n_policies)},
            )
        ],
        tasks=[TaskSpec(prompt=f"What is {n} + 0?", reference=str(n)) for n in range(n_tasks)],
        # Small experiments come to few endings under "good enough", whose own tests ask for it.
        settings={"seed": 0, "claim": "best_if_any", "allow_tie": False} | settings,
        gold=[GoldSpec(f"Gold {n}", f"right {n}", f"wrong {n}", f"Reason {n}.") for n in range(n_gold)],
    )


def sums_spec(**settings: Any) -> ExperimentSpec:
    """Two prompts × three strategies on sums, which ``tests.servers.adds_up`` answers and the rule judges."""
    return ExperimentSpec(
        name="Sums",
        factors=[
            FactorSpec(
                "System prompt",
                "prompt",
                {
                    "Careful tutor": {"text": "You are a careful tutor. Check every step."},
                    "In a hurry": {"text": "You are in a hurry. Just guess quickly."},
                },
            ),
            FactorSpec(
                "Strategy",
                "strategy",
                {
                    "Direct": {"instruction": "Answer directly."},
                    "Step by step": {"instruction": "Think step by step, then give the answer."},
                    "Answer, then explain": {"instruction": "Give the answer first, then explain."},
                },
            ),
        ],
        tasks=[TaskSpec(f"What is {n} + {3 * n}?", str(4 * n)) for n in range(40)],
        settings={"judge": "rule", "seed": 2} | settings,
    )


def make_experiment(
    *,
    running: bool = True,
    planned: bool = True,
    ready: bool = False,
    annotators: tuple[User, ...] = (),
    secret: str = SECRET,
    **spec: Any,
) -> Experiment:
    """An experiment, started and with its first comparisons planned unless told otherwise.

    ``ready``: their responses are written too. Seed and secret are always the same, so that a test is.
    """
    experiment = create_experiment(spec=make_spec(**spec))
    Experiment.objects.filter(pk=experiment.pk).update(secret=secret)
    for user in annotators:
        add_member(experiment, user)
    if running:
        start(experiment_id=experiment.pk)
        if planned:
            advance(experiment_id=experiment.pk)
        if ready:
            write_responses()
    experiment.refresh_from_db()
    return experiment


def add_member(experiment: Experiment, user: User, role: str = Membership.Role.ANNOTATOR) -> Membership:
    return Membership.objects.create(experiment=experiment, user=user, role=role)


def write_responses(backend: Backend | None = None, worker: str = "w") -> set[int]:
    """Write everything that waits; returns the experiments that it touched."""
    touched: set[int] = set()
    backend = backend or SkilledBackend()
    # Asking is cheaper than a batch of nothing.
    while Response.objects.filter(state=Response.State.WAITING).exists():
        claimed, experiment_ids = write_batch(worker=worker, backend=backend)
        touched |= experiment_ids
        if not claimed:
            break
    return touched


def pay(
    responses: Iterable[Response], cost: float, currency: str = "USD", purpose: str = "", **fields: Any
) -> None:
    """Let each of these responses have cost so much, by a request of its own."""
    Charge.objects.bulk_create(
        Charge(
            model=each.model,
            connection=each.connection,
            purpose=purpose or ("trial" if each.trial_id else "response"),
            experiment_id=each.policy.experiment_id,
            policy_id=each.policy_id,
            response=each,
            cost=cost,
            currency=currency,
            **fields,
        )
        for each in responses
    )


def workers_alive(*queues: str) -> None:
    """A worker of each of these queues was seen a moment ago; by default those that people's clicks need."""
    for queue in queues or ("control", "generation"):
        WorkerPulse.objects.create(queue=queue, worker="w")


def hopeless(response_id: int, reason: str = "broken") -> Failed:
    """The failure of a response that has used up its attempts."""
    Response.objects.filter(pk=response_id).update(attempts=settings.GENERATION_ATTEMPTS)
    return Failed(response_id, reason)


def assign_all(*, experiment_id: int, annotator: User, n_wanted: int = MOST_HELD) -> list[Assignment]:
    """The comparisons that this annotator holds when they ask for so many, the first one first."""
    experiment = Experiment.objects.get(pk=experiment_id)
    held = desk(experiment=experiment, annotator=annotator, n_wanted=n_wanted).pairs
    found = {each.pk: each for each in come_for([pair for pair in held if pair.comparison_id])}
    return [found[pair.pk] for pair in held if pair.comparison_id]


def assign_next(*, experiment_id: int, annotator: User) -> Assignment | None:
    """The pair that this annotator is shown now, where there is one."""
    return next(iter(assign_all(experiment_id=experiment_id, annotator=annotator, n_wanted=1)), None)


def assign(experiment: Experiment, user: User) -> Assignment:
    """The pair that this annotator is shown now; there must be one."""
    held = assign_next(experiment_id=experiment.pk, annotator=user)
    assert held is not None, "nothing is ready"
    return held


def click(experiment: Experiment, user: User, choice: str = "left") -> Judgment:
    """Show this annotator the next pair, and have them choose."""
    return record_answer(
        experiment_id=experiment.pk, token=assign(experiment, user).token, annotator=user, choice=choice
    ).judgment


def click_for(experiment: Experiment, user: User, beats: Callable[[int, int], bool]) -> Judgment:
    """Judge the next pair by what is true: ``beats(i, j)`` says whether policy i wins against policy j."""
    held = assign(experiment, user)
    comparison = held.comparison
    i_wins = beats(comparison.policy_i.index, comparison.policy_j.index)
    choice = "left" if i_wins == comparison.i_on_left else "right"
    return record_answer(
        experiment_id=experiment.pk, token=held.token, annotator=user, choice=choice
    ).judgment


def skip(*, experiment_id: int, token: uuid.UUID, annotator: User) -> None:
    """Have this annotator skip a comparison; not a check."""
    serving.skip(
        experiment=Experiment.objects.get(pk=experiment_id), token=token, annotator=annotator, reason="task"
    )


def checked(experiment: Experiment, user: User, *, passed: bool = True, **fields: Any) -> Judgment:
    """The answer of this annotator to a check, by default to the experiment's first gold item."""
    shown = {name: fields.pop(name) for name in ("kind", "repeated") if name in fields}
    check = Assignment.objects.create(
        **(shown or {"kind": "gold", "gold": experiment.gold_items.first()}),
        experiment=experiment,
        annotator=user,
        expected="left",
        state="judged",
        passed=passed,
        expires_at=clock.now(),
    )
    choice = "left" if passed else "right"
    return Judgment.objects.create(
        assignment=check,
        judge="human",
        annotator=user,
        choice=choice,
        outcome=float(passed),
        token=check.token,
        **fields,
    )


def newest(experiment: Experiment, user: User) -> dict[str, uuid.UUID]:
    """The form of an undo, which names the user's newest answer."""
    answer = newest_answer(experiment, user)
    assert answer is not None
    return {"answer": answer.token}


def click_on(experiment: Experiment, user: User, n_clicks: int, choice: str = "left") -> None:
    """Judge pair after pair, planning and writing new ones as they are used up, and once more at the end."""
    for _ in range(n_clicks):
        if not experiment.comparisons.filter(state=Comparison.State.READY).exists():
            plan_and_write(experiment)
        click(experiment, user, choice)
    plan_and_write(experiment)


def discard_pending(experiment: Experiment) -> None:
    """Finish the comparisons that wait or are open: until then they are hidden from everybody."""
    experiment.comparisons.filter(state__in=Comparison.PENDING).update(state=Comparison.State.DISCARDED)


def certify(experiment: Experiment, winner: int = 0) -> None:
    """Conclude it with a policy, by its index, that is good enough."""
    conclude(
        experiment=experiment,
        conclusion=StopReason.CERTIFIED,
        winner=experiment.policies.get(index=winner),
        claim="good_enough",
        finding="It is good enough.",
        by=None,
    )


def plan_and_write(experiment: Experiment) -> None:
    """Do what the workers do after judgments."""
    advance(experiment_id=experiment.pk)
    write_responses()


def invited(experiment: Experiment, role: str = "annotator", most_uses: int = 1, **fields: Any) -> Invitation:
    """An invitation that nobody has used, by somebody who may do everything;
    ``token`` is its link's secret.
    """
    by = User.objects.filter(username="inviter").first() or make_user("inviter", is_superuser=True)
    invitation, secret = create_invitation(
        experiment=experiment, by=by, role=role, most_uses=most_uses, valid_days=1
    )
    if fields:
        Invitation.objects.filter(pk=invitation.pk).update(**fields)
        invitation.refresh_from_db()
    invitation.token = secret
    return invitation


def subscribed(
    experiment: Experiment,
    kind: str = "email",
    target: str = "ann@example.org",
    events: tuple[str, ...] = ("concluded", "stalled", "unhealthy"),
) -> Subscription:
    """A subscriber of the experiment's notifications."""
    by = User.objects.filter(username="subscriber").first() or make_user("subscriber")
    return subscribe(experiment=experiment, by=by, kind=kind, target=target, events=events)


def copy_of(comparison: Comparison, **changes: Any) -> Comparison:
    """Another comparison of its experiment with the same values but for ``changes``."""
    rows = Comparison.objects.filter(experiment=comparison.experiment_id)
    values = {field.attname: getattr(comparison, field.attname) for field in comparison._meta.fields}
    last = rows.latest("number").number
    return Comparison.objects.create(**values | {"id": None, "number": last + 1} | changes)


def nobodys_turn(experiment: Experiment) -> None:
    """Forget who judged each pair of policies last, so that the oldest ready comparison comes first."""
    PairCount.objects.filter(experiment=experiment).update(last_annotator=None)


def connect(name: str, address: str, **fields: Any) -> Connection:
    """A connection that every experiment may use, to a server of this machine."""
    made = {"provider": "compatible", "model_id": name, "everybody": True}
    return Connection.objects.create(name=name, address=address, **(made | fields))
