"""`advance`: the only planner. Reads the counts, decides, concludes or tops up the buffer."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

import numpy as np
from django.db import transaction
from django.db.models import prefetch_related_objects

from engine.core import Design
from engine.core.types import BoolArray, Pair
from engine.domain import secret_draws
from engine.domain.showings import Kind
from engine.models import Assignment, Comparison, Experiment, Improvement, Policy, Response, clock
from engine.selectors import counts, designs, pairs_ahead, pools
from engine.selectors.designs import Observed
from engine.selectors.gates import gate_of
from engine.selectors.improvements import open_improvement, tasks_for, unseen_tasks
from engine.selectors.pools import Halves, Stock
from engine.services import evidence, gates, improvements
from engine.services.assignments import discard_unwanted
from engine.services.experiments import conclude_as
from engine.services.generation import settle_shared
from engine.services.identical_texts import settle_by_rule
from engine.services.planned_tasks import Pool, PoolDrawer, Source, source_of
from engine.services.showings import settle_assignments
from engine.services.snapshots import write_snapshot

# Raise it whenever the same counts and seed would give other pairs: a replay needs the version.
RULES_VERSION = 7


# After a round that changed something there is none for this long, or for three times as long as the round
# took: a worker keeps three quarters of its time for other experiments. Where pairs are lacking it is a third
# of its time: messages that ask for rounds must not pile up before those of others.
_LEAST_REST_SECONDS, _REST, _REST_WHILE_LACKING, _LONGEST_REST_SECONDS = 0.1, 3.0, 0.5, 0.5


@dataclass(frozen=True)
class Advance:
    """The result of a round.

    Attributes
    ----------
    comparisons
        Comparisons judged, also those that were voided.
    planned
        Comparisons planned now.
    ready
        Those among them whose responses are written.
    asks_machine
        A rule or a language model may judge those at once.
    rest
        Seconds until the next round; 0 after a round that changed nothing.
    again
        There is more to do: something happened meanwhile, the evidence lacks more events than one round
        takes, or some of those planned need no judge.
    """

    comparisons: int
    planned: int = 0
    concluded: bool = False
    ready: int = 0
    asks_machine: bool = False
    rest: float = 0.0
    again: bool = False


def advance(*, experiment_id: int) -> Advance | None:
    """Make rounds of planning, without a rest, until there is no more to do.

    Where people click all the time this has no end. A worker, which serves other experiments too, makes
    single rounds (`plan_round`).
    """
    while True:
        done = plan_round(experiment_id=experiment_id)
        if done is None or not done.again:
            return done


def rests(experiment_id: int) -> bool:
    """True if the last round was so lately that the next one has to wait."""
    return Experiment.objects.filter(pk=experiment_id, rests_until__gt=clock.now()).exists()


def plan_round(*, experiment_id: int) -> Advance | None:
    """Bring a running experiment up to date with its judgments, and the evidence of a paused one.

    One at a time per experiment: while another caller holds the row, this one returns ``None`` at once. The
    holder looks again after its commit, so that no judgment is left unseen.
    """
    started = time.monotonic()
    _settle(experiment_id)
    done = _plan_round(experiment_id, started)
    if done is None or done.concluded or done.again:
        return done
    # What nobody is left to judge is looked for only where it may be in the way.
    freed = not done.planned and discard_unwanted(experiment_id=experiment_id)
    return replace(done, again=bool(freed) or _is_news(experiment_id))


def _is_news(experiment_id: int) -> bool:
    """True if an outcome, a void or an answer waits for a round."""
    unsettled = Assignment.objects.filter(experiment=experiment_id, settled=False)
    logged = designs.not_in_the_evidence(experiment_id).exclude(kind=Kind.BEGUN)
    return unsettled.exclude(state=Assignment.State.OPEN).exists() or logged.exists()


@transaction.atomic
def _settle(experiment_id: int) -> None:
    """Settle what people did, also after the conclusion, and what needs neither people nor a plan.

    Not in the transaction of the round, which takes longer: answers wait for the assignments locked here.
    """
    lock = Experiment.objects.select_for_update(no_key=True, skip_locked=True)
    if (experiment := lock.filter(pk=experiment_id).first()) is None:
        return
    settle_assignments(experiment=experiment)
    if experiment.state != Experiment.State.RUNNING:
        return
    if experiment.responses == Experiment.Responses.REUSE:
        settle_shared(experiment_id=experiment_id)
    settle_by_rule(experiment=experiment)


@transaction.atomic
def _plan_round(experiment_id: int, started: float) -> Advance | None:
    open_to_us = Experiment.objects.select_for_update(no_key=True, skip_locked=True)
    plannable = [Experiment.State.RUNNING, Experiment.State.PAUSED]
    if (experiment := open_to_us.filter(pk=experiment_id, state__in=plannable).first()) is None:
        return None
    # They are the same for as long as it runs, and most of what follows asks for them.
    prefetch_related_objects([experiment], "policies")
    folded = evidence.fold(experiment=experiment)
    design = folded.observed.design
    if not folded.complete:
        return Advance(design.n_comparisons, again=True)
    latest = evidence.note(experiment=experiment, folded=folded)
    if experiment.state == Experiment.State.PAUSED:
        return None
    latest = latest or write_snapshot(experiment=experiment, observed=folded.observed)
    race: _Race | None = None
    if improvement := open_improvement(experiment):
        improvement.experiment = experiment
        settled = improvements.settle(improvement=improvement, folded=folded.observed.last)
        if settled.news:
            return Advance(design.n_comparisons, again=True)
        race = _Race(improvement, settled)
    elif _has_ended(experiment, folded.observed):
        return Advance(design.n_comparisons, concluded=True)
    target, added = 0, list[Comparison]()
    if race or not ((folded.changed or experiment.closing_since) and _is_closing(experiment, design)):
        asks_people = experiment.judge == Experiment.Judge.HUMAN
        here = pairs_ahead.annotators_present(experiment) if asks_people else set()
        target = pairs_ahead.buffer_target(experiment, latest, here)
        added = _top_up(experiment, design, target, here, race)
    rest = 0.0
    if folded.changed or added:
        took = time.monotonic() - started
        lacking = 2 * len(added) > target
        rest = (_REST_WHILE_LACKING if lacking else _REST) * took
        rest = min(max(rest, _LEAST_REST_SECONDS), _LONGEST_REST_SECONDS)
        experiment.round_seconds = took + rest
        experiment.rests_until = clock.now() + timedelta(seconds=rest)
    experiment.save(
        update_fields=["planned_count", "used_up", "closing_since", "round_seconds", "rests_until"]
    )
    return Advance(
        design.n_comparisons,
        planned=len(added),
        ready=sum(comparison.ready_at is not None for comparison in added),
        asks_machine=experiment.judge == Experiment.Judge.RULE
        or experiment.llm_judge != Experiment.LLMJudge.OFF,
        rest=rest,
        again=any("by_rule" in comparison.plan for comparison in added),
    )


def _has_ended(experiment: Experiment, observed: Observed) -> bool:
    """Conclude a locked experiment whose evidence decides; True if it did."""
    if gate_of(experiment):
        return gates.settle(experiment=experiment, observed=observed)
    if observed.design.decision.reason is None:
        return False
    conclude_as(experiment=experiment, observed=observed)
    return True


def _is_closing(experiment: Experiment, design: Design) -> bool:
    """True if the claim would hold without the pairs that somebody is looking at: then nobody gets new ones.

    Otherwise some pair would always be open, and count against the claim.
    """
    open_ones = design.open_showings
    held = Assignment.objects.filter(
        comparison__in=open_ones, state=Assignment.State.OPEN, expires_at__gt=clock.now()
    )
    looked_at = set(held.values_list("comparison_id", flat=True)) if open_ones else set()
    closing = bool(looked_at) and design.settled_without(looked_at)
    if closing != (experiment.closing_since is not None):
        experiment.closing_since = clock.now() if closing else None
    return closing


class _Race:
    """Asks for the pairs of an improvement, in the place of the design."""

    def __init__(self, improvement: Improvement, settled: improvements.Settled) -> None:
        self.plan = {"improvement": improvement.pk, "phase": settled.race.phase}
        self.task_ids = tasks_for(improvement, settled.race.phase)
        self._race, self._ahead = settled.race, settled.ahead

    @property
    def asks(self) -> bool:
        """True if it wants a pair, and does not wait for proposals or open pairs."""
        return self._race.ask(self._ahead) is not None

    def ask(self, *, among: BoolArray | None = None) -> Pair | None:
        """The next pair; ``None`` where none is wanted, or another one than the race's own would be."""
        if among is not None or (pair := self._race.ask(self._ahead)) is None:
            return None
        self._ahead += 1
        return pair

    def cancel(self, i: int, j: int) -> None:
        """Take the last pair back."""
        self._ahead -= 1

    def propensities(self) -> None:
        """The chances of the pairs are not known."""


def _top_up(
    experiment: Experiment, design: Design, target: int, here: set[int], race: _Race | None
) -> list[Comparison]:
    """Plan what the annotators need next, those who are ``here`` first; returns the comparisons planned."""
    design.resume(counts.in_flight_matrix(experiment), designs.design_seed(experiment))
    in_flight = int(design.in_flight.sum()) // 2
    most = pairs_ahead.most_at_once(experiment)
    if race is None:
        # A race counts its own clicks. The budget also paid for voided ones, and for those shown before.
        most = min(most, experiment.budget - design.n_comparisons - in_flight)
    source = source_of(experiment, race.task_ids if race else unseen_tasks(experiment) or None)
    if not (isinstance(source, Pool) and experiment.judge == Experiment.Judge.HUMAN):
        # Skipped pairs wait for other annotators, who may be away: they must not fill the skipper's buffer.
        waiting = counts.waiting(experiment).count()
        chooser = _Chooser(experiment, design, source, race)
        return _planned(experiment, chooser, min(target - waiting, most))
    if most <= 0:
        return []
    stocks = pools.stocks(experiment, here)
    added = _planned_from_pool(experiment, design, source, stocks, target, most, race)
    if not added and not any(stock.n_waiting for stock in stocks):
        # However many members are away, they are looked at only while nobody here is served.
        stocks = [stock for stock in pools.stocks(experiment) if stock.annotator not in here]
        added = _planned_from_pool(experiment, design, source, stocks, target, most, race)
    wanted = race is None or race.asks
    experiment.used_up = wanted and not added and not any(stock.n_waiting for stock in stocks)
    return added


def _planned_from_pool(  # noqa: PLR0917 - they belong to one round
    experiment: Experiment,
    design: Design,
    pool: Pool,
    stocks: Sequence[Stock],
    target: int,
    most: int,
    race: _Race | None,
) -> list[Comparison]:
    """Plan for the first of these annotators who have too little and for whom there is something.

    The same texts wait for one annotator and are over for another: the one who has least comes first.
    """
    wanted = [stock for stock in stocks if stock.n_waiting < target]
    while wanted:
        stock, *others = wanted
        chooser = _PoolChooser(experiment, design, PoolDrawer(experiment, pool, stock.annotator), race)
        if added := _planned(experiment, chooser, min(target - stock.n_waiting, most)):
            return added
        wanted = pools.with_texts_left(experiment, others)
    return []


class _Choice(NamedTuple):
    """Two responses, of the policy of the smaller index first.

    ``propensity``: the chance that their policies had to be chosen, where it is known.
    """

    halves: Halves
    propensity: float | None


class _Chooser:
    """Chooses policies by the design, and a task and responses by the rule of the experiment's responses."""

    # Whether the texts that it chooses come again, so that their use is looked up by name.
    names_texts = False

    def __init__(self, experiment: Experiment, design: Design, source: Source, race: _Race | None) -> None:
        self.design, self.race = design, race
        self.policies = list(experiment.policies.all())
        self._source = source
        self._asks = race or design

    def choices(self, rngs: Sequence[np.random.Generator]) -> Iterator[_Choice]:
        """One choice for each of these generators, in their order; fewer where a pool has nothing left."""
        for rng in rngs:
            # Read before the choice, which changes it.
            propensities = self._asks.propensities()
            if (pair := self._asks.ask()) is None:
                return
            i, j = sorted(pair)
            halves = self._source.draw(rng, self.policies[i], self.policies[j])
            yield _Choice(halves, None if propensities is None else float(propensities[i, j]))


class _PoolChooser:
    """Chooses from a finite pool for one annotator: another pair in place of one that is used up."""

    names_texts = True

    def __init__(self, experiment: Experiment, design: Design, pool: PoolDrawer, race: _Race | None) -> None:
        self.design, self.race = design, race
        self.policies = list(experiment.policies.all())
        self._asks = race or design
        self._pool = pool
        self._left: BoolArray | None = None

    def choices(self, rngs: Sequence[np.random.Generator]) -> Iterator[_Choice]:
        """One choice for each of these generators, in their order; fewer where nothing is left.

        The chance of each pair is not known: it would take the pairs that are used up.
        """
        asked = [pair for _ in rngs if (pair := self._asked())]
        rngs = rngs[: len(asked)]
        begun = self._pool.begin([self._wanted(rng, *pair) for rng, pair in zip(rngs, asked, strict=True)])
        for place, (rng, pair) in enumerate(zip(rngs, asked, strict=True)):
            halves = self._pool.finish(begun[place]) or self._instead_of(pair, rng)
            if halves is None:
                for i, j in asked[place + 1 :]:
                    self._asks.cancel(i, j)
                return
            yield _Choice(halves, None)

    def _asked(self) -> Pair | None:
        if (pair := self._asks.ask(among=self._left)) is None:
            return None
        i, j = sorted(pair)
        return i, j

    def _wanted(self, rng: np.random.Generator, i: int, j: int) -> tuple[np.random.Generator, Policy, Policy]:
        return rng, self.policies[i], self.policies[j]

    def _instead_of(self, pair: Pair | None, rng: np.random.Generator) -> Halves | None:
        """Two responses of other policies, as the annotator has seen all texts of these two."""
        while pair is not None:
            i, j = pair
            self._asks.cancel(i, j)
            # Looked up only now: most of the time every pair has something left.
            left = self._left
            if left is None:
                here = self.design.present
                left = self._pool.pairs_left() & here & here[:, None]
            left[i, j] = left[j, i] = False
            self._left = left
            if not left.any():
                return None
            if (pair := self._asked()) is not None:
                [begun] = self._pool.begin([self._wanted(rng, *pair)])
                if (halves := self._pool.finish(begun)) is not None:
                    return halves
        return None


def _planned(experiment: Experiment, chooser: _Chooser | _PoolChooser, room: int) -> list[Comparison]:
    """Plan up to ``room`` comparisons; fewer where the pool has no more."""
    design = chooser.design
    in_flight = int(design.in_flight.sum()) // 2
    first, next_number = experiment.planned_count, counts.next_number(experiment)
    so_far = design.evidence
    indices = {policy.pk: policy.index for policy in chooser.policies}
    # All else that is random about a comparison follows from the experiment's secret and its own number.
    # Anybody who could draw it too would know a response by its seed.
    rngs = [
        np.random.default_rng(secret_draws.draw_seed(experiment.secret, number))
        for number in range(first, first + room)
    ]
    choices = list(chooser.choices(rngs))
    new = [half for choice in choices for half in choice.halves if isinstance(half, Response)]
    # By identity: a response that is used again in this very round is one row.
    Response.objects.bulk_create({id(half): half for half in new}.values())
    comparisons: list[Comparison] = []
    for number, (halves, propensity) in enumerate(choices, first):
        half_i, half_j = halves
        i, j = indices[half_i.policy_id], indices[half_j.policy_id]
        ready = half_i.state == half_j.state == Response.State.DONE
        texts = pools.name_of(half_i, half_j) if ready and chooser.names_texts else ""
        rule = pools.rule_for(experiment, texts) if texts else ""
        comparisons.append(
            Comparison(
                experiment_id=experiment.pk,
                number=next_number + number - first,
                policy_i_id=half_i.policy_id,
                policy_j_id=half_j.policy_id,
                task_id=half_i.task_id,
                response_i_id=half_i.pk,
                response_j_id=half_j.pk,
                state=Comparison.State.READY if ready and not rule else Comparison.State.PLANNED,
                ready_at=clock.now() if ready else None,
                i_on_left=secret_draws.i_on_left(experiment.secret, number),
                texts=texts,
                plan={
                    "rules": RULES_VERSION,
                    "number": number,
                    "sampler": experiment.sampler,
                    "stopping": experiment.stopping,
                    "claim": design.claim.value,
                    "delta": experiment.delta,
                    "epsilon": experiment.epsilon,
                    "seed": designs.design_seed(experiment),
                    "draw": number - first,
                    "comparisons": design.n_comparisons,
                    "in_flight": in_flight,
                    # Basis of the choice: log E of both policies at the start of this round.
                    "evidence": [float(so_far[i]), float(so_far[j])],
                    # The chance that this pair had, where the sampler draws it and the chance is known.
                    "propensity": propensity,
                }
                | ({"by_rule": rule} if rule else {})
                | (chooser.race.plan if chooser.race else {}),
            )
        )
    Comparison.objects.bulk_create(comparisons)
    experiment.planned_count = first + len(comparisons)
    return comparisons
