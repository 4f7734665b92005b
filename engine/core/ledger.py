"""The tally of R runs together with everything that sampling and stopping derive from it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from .beliefs import Beliefs
from .capital import FEWEST_TO_MOVE, NO_CAPITAL, RESERVE, Stakes
from .claims import NOBODY, HeadToHead, InModel, Proof, starting_capital
from .evidence import NO_WEIGHT, EliminationCost, EvidenceModel, PairwiseEvidence
from .mixture import TYPICAL_LOG_ODDS, BradleyTerryEvidence, Mixture
from .paper_thresholds import (
    PARAMETER_RADIUS,
    HeuristicThreshold,
    ProvenLinearThreshold,
    ProvenPairwiseThreshold,
    Threshold,
)
from .pooled_evidence import Bets, StreamedEvidence, recalled
from .ruling_out import Certified, StoppingRule, Thresholded, raised
from .sampling import Situation
from .spaces import BradleyTerry, Space
from .structured import BradleyTerryModel, SeparationStatistic, prior_precision
from .types import BoolArray, Bounds, Claim, FloatArray, IntArray, Missing, Tally, located

STOPPING_RULES = ("certified", "heuristic", "theory")
# Far more than differences that matter need, and far fewer than rounding reaches.
_DECIMALS_OF_STANDING = 9
# Sums of thirds differ by less.
_DECIMALS_OF_OUTCOMES = 6
# The bounds of an outcome that may still come, and of one that will not.
OPEN, NONE = Bounds(0.0, 1.0, open=True), Bounds(0.0, 1.0, missing=True)


class Ledger:
    """Runs side by side, their evidence and their claims, kept in step with each showing and its outcome.

    Parameters
    ----------
    space
        The assumption about the preference probabilities.
    tally
        The comparisons so far.
    delta, epsilon
        Risk level and margin.
    stopping
        One of `STOPPING_RULES`.
    claim
        The claim to stop on, under the stopping rule "certified".
    watch_all
        Watch the other claims as well; a simulation that only asks when it stops can do without.
    peak_evidence
        Shape (R, K): running maximum of the evidence to go on from.
    named
        The policies that claims named earlier, shape (R,) each, `claims.NOBODY` where none was.
    capital_moves
        Under the stopping rule "certified", have the capital of proofs head to head move to those who stand
        best.
    missing
        Whether proofs count showings without an outcome against themselves, or the answers alone.
    prior
        Shape (K,): strengths expected beforehand, in log-odds. They steer a certified stop, and weigh what
        proofs head to head begin with.
    memory
        State to go on from beside the wins, one for each run.

    Attributes
    ----------
    evidence
        E-processes of the pairs, at the margin of the claim "best if any". They steer the sampler and the
        choice of the leader under every claim.
    streams
        The same averaged with streams that pool opponents, under the stopping rule "certified"; else None.
    none_peak
        Shape (R, K): under the claim "best", the largest evidence so far against each policy's beating every
        other; None under another.
    proofs
        Progress of the claims "best" and, with a margin, "good enough", as far as they are watched.
    named_if_any
        Shape (R,): under the claim "best if any", the policy that it has named, `claims.NOBODY` where none.
    missing
        As given.
    margin
        Margin of the claim "best if any", and of the finding that there is no best policy.
    rule
        The evidence that rules policies out as the best.

    Raises
    ------
    ValueError
        If `stopping` is unknown or `peak_evidence` does not fit.
    """

    def __init__(
        self,
        space: Space,
        tally: Tally,
        *,
        delta: float,
        epsilon: float,
        stopping: str,
        claim: Claim,
        watch_all: bool = True,
        peak_evidence: ArrayLike | None = None,
        named: Mapping[Claim, IntArray] | None = None,
        capital_moves: bool = True,
        missing: Missing = Missing.AGAINST,
        prior: FloatArray | None = None,
        memory: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        if stopping not in STOPPING_RULES:
            raise ValueError(f"stopping must be one of {', '.join(STOPPING_RULES)}; got {stopping!r}")
        self.tally = tally
        self._leader: IntArray | None = None
        self._space = space
        self._prior = prior
        self.missing = missing
        tally.counts_missing = missing is Missing.AGAINST
        # Shape (K, K): outcomes of the first run that estimates leave out; proofs keep them.
        self.left_out: FloatArray = np.zeros((tally.n_policies, tally.n_policies))
        self._estimates: tuple[Tally, Beliefs] | None = None
        self.log_inverse_delta = -np.log(delta)
        self.claim = claim if stopping == "certified" else None
        # The margin belongs to the claim that stops the experiment. Unless that is "best if any", the finding
        # that a policy is ruled out as the best is about any lead, however small.
        self.margin = epsilon if self.claim in (None, Claim.BEST_IF_ANY) else 0.0
        if self.claim is not None:
            tally.tell_ties_apart()
        if memory is not None:
            tally.recall([each.get("proofs", ()) for each in memory])
        self._proof_margins = self._watched_margins(epsilon, watch_all=watch_all)
        self._pairs = {margin: PairwiseEvidence(tally, margin) for margin in self._proof_margins.values()}
        self.evidence = PairwiseEvidence(
            tally, self.margin, narrow=True, log_weights=self._log_weights(memory)
        )
        # A wrong name under the claim "best" and a wrong "none" have one e-process and one δ together.
        self._for_none = self._pairs[0.0] if self.claim is Claim.BEST else self.evidence
        self.streams: StreamedEvidence | None = None
        if self.claim is not None:
            self.streams = StreamedEvidence(tally, self.evidence, prior, memory)
        self.model = self._posterior = None
        self._mixture: Mixture | None = None
        if isinstance(space, BradleyTerry):
            # Only the proven threshold is about the projected estimate.
            radius = PARAMETER_RADIUS if stopping == "theory" else None
            self.model = BradleyTerryModel(space, tally, radius=radius)
            mode = None
            if stopping == "certified":
                starts = None if memory is None else [each.get("starts", ()) for each in memory]
                self._mixture = Mixture(space, self.model, tally, starts=starts)
                mode = self._mixture.mode
            self._posterior = BradleyTerryModel(
                space, tally, prior_precision(space, TYPICAL_LOG_ODDS), estimate=mode
            )
        self._watched = self._watch(space, epsilon, stopping)
        self.rule = self._build_rule(space, delta, stopping, peak_evidence)
        self._in_model: dict[float, BradleyTerryEvidence] = {}
        # Without moves, something is kept for who joins; a model has no need of it.
        self._reserve = 0.0 if capital_moves or self.model is not None else RESERVE
        self._stakes = self._build_stakes(memory, moves=capital_moves and self.model is None)
        named = {Claim.BEST_IF_ANY: np.full(tally.n_runs, NOBODY), **(named or {})}
        self.proofs = self._build_proofs(space, delta, named)
        self.named_if_any: IntArray = named[Claim.BEST_IF_ANY].copy()
        self._name_if_any()
        self.none_peak: FloatArray | None = None
        if self.claim is Claim.BEST and not self._has_lived():
            known = memory is not None and all("none_peak" in each for each in memory)
            peak = recalled(memory, "none_peak", (tally.n_policies,)) if memory and known else None
            self.none_peak = raised(self._against_being_best(...), peak)

    def show(self, i: IntArray, j: IntArray, runs: IntArray | None = None) -> Bets | None:
        """Begin a showing in these runs: it is open, and counts against every claim.

        `i` and `j` have shape (m,), as have the runs' indices; None for all. Returns the bets of the streams,
        to be kept with the showing; None without streams.
        """
        bets = self.bets(i, j, runs)
        self._count(i, j, bets, OPEN, sign=1, runs=runs)
        self._refresh(i, j, runs, answered=False)
        return bets

    def bets(self, i: IntArray, j: IntArray, runs: IntArray | None = None) -> Bets | None:
        """The bets on a showing that begins now; see `show`."""
        return None if self.streams is None else self.streams.bets(i, j, runs)

    def turn(
        self,
        i: IntArray,
        j: IntArray,
        bets: Bets | None,
        was: Bounds | None,
        now: Bounds | None,
        *,
        runs: IntArray | None = None,
        outcome: FloatArray | None = None,
        instead_of: FloatArray | None = None,
        observe: bool = True,
    ) -> None:
        """Have a showing in each of these runs count otherwise: it ends, changes, or is open again.

        Parameters
        ----------
        bets
            The value of `show`.
        was, now
            The bounds of the outcome before and from now on; None where the showing does not exist.
        outcome, instead_of
            Shape (m,), in [0, 1]: an answer that comes, and one that goes; None for none.
        """
        for bounds, direction in ((was, -1), (now, 1)):
            if bounds is not None:
                self._count(i, j, bets, bounds, sign=direction, runs=runs)
        for answer, direction in ((instead_of, -1), (outcome, 1)):
            if answer is not None:
                at, first, second, won = located(runs, i, j, answer)
                self.tally.answer((at, first, second), won, direction)
                if self.streams is not None:
                    self.streams.answer(won, direction, at)
        if instead_of is not None and self._mixture is not None:
            self._mixture.forget()
        answered = outcome is not None or instead_of is not None
        self._refresh(i, j, runs, answered=answered, observe=observe)
        if was is not None and now is not None and now.open:
            for proof in self.proofs.values():
                proof.take_back(i, j, runs)

    def record(self, i: IntArray, j: IntArray, outcome: FloatArray, *, observe: bool = True) -> None:
        """Show a pair in every run and end it at once, and bring the evidence up to date.

        `outcome`, shape (R,), is the share of the win that goes to i; NaN where there is none. Without
        `observe` a simulation puts off what takes long (the estimate, and evidence that builds on it) until
        the next comparison that it does observe.
        """
        for runs, answered in self._with_and_without(outcome):
            first, second, won = (i, j, outcome) if runs is None else (i[runs], j[runs], outcome[runs])
            now = Bounds(won, won) if answered else NONE
            bets = self.bets(first, second, runs)
            told = won if answered else None
            self.turn(first, second, bets, None, now, runs=runs, outcome=told, observe=observe)

    def begin_to_live(self) -> None:
        """Keep what depends on how many policies there are, before the first event."""
        self.none_peak = None
        self.evidence.weigh()
        for proof in self.proofs.values():
            proof.exclusions()
            proof.observe()

    def join(self, runs: IntArray, n: IntArray, *, renew: bool = False) -> None:
        """Have a policy n that was absent so far join each of these runs, shape (m,) both.

        With `renew`, a new stage begins in these runs, if the claim is proved without a model.
        """
        champion = self.best()[runs] if renew and self.model is None else None
        present, joined = self.tally.present.copy(), self.tally.joined.copy()
        present[runs, n] = joined[runs, n] = True
        self.tally.set_present(present, joined)
        self.named_if_any[runs] = NOBODY
        self.evidence.join(runs, n)
        if self.streams is not None:
            self.streams.join(runs, n, self.rule.refuted)
        for proof in self.proofs.values():
            proof.join(runs, n, champion)
        self._look_again()

    def begin_stage(self, runs: IntArray) -> None:
        """Begin a new stage of these runs, shape (m,), whose proofs count what comes from now on alone.

        The same policies are present in all of them.
        """
        for proof in self.proofs.values():
            if isinstance(proof, HeadToHead):
                proof.begin_stage(runs)
        self._look_again()

    def leave(self, runs: IntArray, r: IntArray) -> None:
        """Have a policy r retire from each of these runs, shape (m,) both."""
        present = self.tally.present.copy()
        present[runs, r] = False
        self.tally.set_present(present, self.tally.joined)
        self.named_if_any[runs[self.named_if_any[runs] == r]] = NOBODY
        for proof in self.proofs.values():
            proof.leave(runs, r)
        self._look_again()

    def _look_again(self) -> None:
        """Bring up to date what depends on who is present."""
        self._leader, self._estimates, self.none_peak = None, None, None
        if self.streams is not None:
            self.streams.look_again()
        runs = np.arange(self.tally.n_runs)
        for evidence in self._model_evidence():
            evidence.update(np.zeros_like(runs), np.ones_like(runs))
        self.rule.observe()
        self._name_if_any()
        for proof in self.proofs.values():
            proof.observe()

    def _name_if_any(self) -> None:
        """Name the policy that "best if any" is shown for, where none was: late answers undo no name."""
        if self.claim is Claim.BEST_IF_ANY and (self.named_if_any == NOBODY).any():
            established, _ = self.last_standing()
            fresh = np.flatnonzero(established & (self.named_if_any == NOBODY))
            left = self.tally.joined[fresh] & ~self.rule.refuted[fresh]
            self.named_if_any[fresh] = left.argmax(axis=1)

    def _has_lived(self) -> bool:
        """True once somebody has joined or retired: a wrong "none is best" would then need a δ of its own."""
        return any(stakes.excluded is not None for stakes in self._stakes.values())

    def stage(self, run: int = 0) -> int:
        """The number of the stage, from 1; see `Design.add`."""
        return max((int(stakes.stage[run]) for stakes in self._stakes.values()), default=1)

    def n_stages(self, claim: Claim, b: int) -> int:
        """The number of stages whose exclusions the proof of b uses in the first run, the present one
        included.
        """
        proof = self.proofs.get(claim)
        if not isinstance(proof, HeadToHead) or proof.stakes.excluded is None:
            return 1
        used = proof.stakes.excluded[0, self.tally.present[0], b].tolist()
        return len({*used, int(proof.stakes.stage[0])} - {0})

    def _model_evidence(self) -> list[EvidenceModel]:
        """The evidence beside that of pairs and streams, each once."""
        watched = [] if self._watched in (self._for_none, self.streams) else [self._watched]
        return watched + [each for each in self._in_model.values() if each is not self._watched]

    def _refresh_models(self) -> None:
        """Have everything that the answers say in a model computed again when it is next needed."""
        for model in (self.model, self._posterior, self._mixture):
            if model is not None:
                model.refresh()

    def leave_out(self, outcomes: FloatArray) -> None:
        """Have the estimates of the first run leave out these outcomes, shape (K, K).

        Proofs, sampler and bets keep them: whoever voids an answer by hand may have seen what it says.
        """
        self.left_out = outcomes
        self._estimates = self._leader = None

    def estimates(self) -> tuple[Tally, Beliefs]:
        """The answers that estimates rest on, and the beliefs that follow from them."""
        if self._estimates is None:
            left_out = np.round(self.left_out, _DECIMALS_OF_OUTCOMES)
            if left_out.any():
                tally = Tally(np.maximum(self.tally.wins - left_out, 0.0))
                self._estimates = tally, Beliefs(tally, self._prior)
            elif self.streams is None:
                self._estimates = self.tally, Beliefs(self.tally, self._prior)
            else:
                self._estimates = self.tally, self.streams.beliefs
        return self._estimates

    def favour(self) -> FloatArray:
        """Shape (R, K): the larger, the likelier is the policy to be the best, by the estimates."""
        _, beliefs = self.estimates()
        if self.streams is not None and beliefs is self.streams.beliefs:
            return self.streams.favour()
        chances = beliefs.log_chances() if self.streams is not None else None
        return beliefs.standing() if chances is None else chances

    @property
    def n_moves(self) -> int:
        """The number of times that capital has moved in the first run."""
        return sum(stakes.n_moved(0) for stakes in self._stakes.values())

    def pairs_of(self, claim: Claim) -> PairwiseEvidence:
        """The e-processes of the pairs with the margin of a claim that is proved head to head."""
        return self._pairs[self._proof_margins[claim]]

    def _with_and_without(self, outcome: FloatArray) -> list[tuple[IntArray | None, bool]]:
        """The runs that have an outcome and those that have none, None for all."""
        none = np.isnan(outcome)
        if not np.count_nonzero(none):
            return [(None, True)]
        if none.all():
            return [(None, False)]
        return [(np.flatnonzero(~none), True), (np.flatnonzero(none), False)]

    def _count(
        self,
        i: IntArray,
        j: IntArray,
        bets: Bets | None,
        bounds: Bounds,
        *,
        sign: int,
        runs: IntArray | None,
    ) -> None:
        """Have the proofs count an outcome within these bounds, or with sign -1 no more."""
        at, first, second = located(runs, i, j)
        if self.missing is Missing.ANSWERS and (bounds.open or bounds.missing):
            # Known to be open or missing, it counts for nothing.
            self.tally.note((at, first, second), bounds, sign)
            return
        least, most = (np.full(i.size, end) if isinstance(end, float) else end for end in bounds.ends)
        of_all = replace(bounds, least=least, most=most)
        of_one = replace(bounds, least=least.item(), most=most.item()) if i.size == 1 else of_all
        self.tally.count((at, first, second), of_one, sign)
        if self.streams is not None and bets is not None:
            self.streams.settle(i, j, bets, of_all, sign=sign, runs=runs)

    def _refresh(
        self, i: IntArray, j: IntArray, runs: IntArray | None, *, answered: bool, observe: bool = True
    ) -> None:
        """Bring up to date what depends on the counts of the pair (i[r], j[r]) of these runs."""
        if not answered and self.missing is Missing.ANSWERS:
            return
        self._leader = None
        if self.streams is None or self.left_out.any():
            self._estimates = None
        for pairs in (self.evidence, *self._pairs.values()):
            pairs.update(i, j, runs)
        if self.streams is not None:
            if answered:
                self.streams.beliefs.update(i, j, runs)
            self.streams.update(i, j, runs)
        if self.model is not None:
            if not observe:
                return
            if answered:
                self._refresh_models()
        for evidence in self._model_evidence():
            evidence.update(i, j, runs)
        self.rule.observe()
        self._name_if_any()
        for proof in self.proofs.values():
            proof.update(i, j, runs)
            proof.observe()
        self._observe_none(i, j, runs)
        if answered:
            if self._mixture is not None:
                self._mixture.consider(self.separation())
            self._move_capital()

    def keep(self, runs: BoolArray) -> None:
        """Keep the runs that are True in `runs`, of shape (R,), and drop the others."""
        self._leader = None
        self.named_if_any = self.named_if_any[runs]
        self.tally.keep(runs)
        for pairs in (self.evidence, *self._pairs.values()):
            pairs.keep(runs)
        if self.model is not None and self._posterior is not None:
            self.model.keep(runs)
            self._posterior.keep(runs)
        if self._mixture is not None:
            self._mixture.keep(runs)
        if self.streams is not None:
            self.streams.keep(runs)
        if self.none_peak is not None:
            self.none_peak = self.none_peak[runs]
        for stakes in self._stakes.values():
            stakes.keep(runs)
        for evidence in self._model_evidence():
            evidence.keep(runs)
        self.rule.keep(runs)
        for proof in self.proofs.values():
            proof.keep(runs)

    def situation(self) -> Situation:
        """The data that a sampling rule may look at."""
        return Situation(
            self.tally,
            self.evidence,
            self.rule.refuted if self.tally.everybody else self.rule.refuted | ~self.tally.present,
            self.rule.threshold,
            self.model,
            self._posterior,
            self.head_to_head(),
            self.streams,
            0.0 if self.claim is None else float(special.logit(0.5 + self.margin_of(self.claim))),
        )

    def memory(self, run: int = 0) -> dict[str, Any] | None:
        """State of one run beside its wins, as plain data that JSON can hold; None where no claim is made."""
        if self.claim is None:
            return None
        memory: dict[str, Any] = {}
        if self.none_peak is not None:
            memory["none_peak"] = self.none_peak[run].tolist()
        if proofs := self.tally.in_proofs(run):
            memory["proofs"] = proofs
        if self.streams is not None:
            memory |= self.streams.memory(run)
        if self._mixture is not None:
            memory["starts"] = self._mixture.memory(run)
        stakes = {
            claim.value: stakes.memory(run)
            for claim, stakes in self._stakes.items()
            if stakes.excluded is not None or (stakes.moves and self.tally.n_policies >= FEWEST_TO_MOVE)
        }
        if stakes:
            memory["stakes"] = stakes
        return memory or None

    def head_to_head(self) -> HeadToHead | None:
        """The proof that stops the run, where it assumes nothing about μ."""
        proof = self.stopping_proof()
        return proof if isinstance(proof, HeadToHead) else None

    def best(self) -> IntArray:
        """Shape (R,): the policy named by the claim that stops the run, or the leader."""
        proof = self.stopping_proof()
        named = self.named_if_any if proof is None else proof.named
        return np.where(named == NOBODY, self.leader(), named)

    def leader(self) -> IntArray:
        """Shape (R,): the leader, among the policies not refuted if there are any.

        With the streams it is the policy that the beliefs favour, which weigh strengths against head-to-head
        results. Without, it is the policy with the least evidence against it. Where that does not tell, it is
        the one that the estimate or else the e-processes favour.
        """
        if self._leader is None:
            self._leader = self._computed_leader()
        return self._leader

    def separation(self) -> FloatArray:
        """Shape (R, K): nats by which a Bradley-Terry estimate separates each policy from what the claim that
        stops the run has to exclude.
        """
        watched = self._watched
        if self.claim is not None:
            watched = self._in_model.get(self.margin_of(self.claim), watched)
        return watched.separation if isinstance(watched, BradleyTerryEvidence) else watched.per_policy

    def margin_of(self, claim: Claim) -> float:
        """ε of a claim, in [0, ½)."""
        return self._proof_margins.get(claim, self.margin)

    def settled(self) -> tuple[BoolArray, BoolArray]:
        """Masks of shape (R,): a policy may be named; it is established that none is the single best."""
        if (proof := self.stopping_proof()) is not None:
            established = proof.named != NOBODY
            if self.claim is Claim.GOOD_ENOUGH or (self.claim is Claim.BEST and self.none_peak is None):
                return established, np.zeros_like(established)
            peak = self.rule.peak_evidence if self.none_peak is None else self.none_peak
            return established, ~established & (peak >= self.log_inverse_delta).all(axis=1)
        established, none_best = self.last_standing()
        if self.claim is Claim.BEST_IF_ANY:
            established = self.named_if_any != NOBODY
        return established, none_best & ~established

    def holds_without_model(self, claim: Claim, policy: int) -> bool:
        """True if the present evidence of the first run establishes a claim without a Bradley-Terry model."""
        if self.model is None:
            return True
        others = self.tally.present[0] & (np.arange(self.tally.n_policies) != policy)
        if claim is Claim.BEST_IF_ANY:
            against = self._without_model()[0, others]
            return bool(np.all(against >= self.log_inverse_delta) and self.evidence.leads()[0, policy])
        against = self._pairs[self._proof_margins[claim]].log_e[0, others, policy]
        log_share = self._stakes[claim].log_share[0, others, policy]
        return bool(np.all(against >= self.log_inverse_delta - log_share))

    def none_without_model(self, claim: Claim | None) -> bool:
        """True if the present evidence of the first run establishes without a Bradley-Terry model that there
        is no single best policy.

        A finding under the claim "best" owes nothing to the streams.
        """
        if self.model is None:
            return True
        evidence = self._for_none.per_policy if claim is Claim.BEST else self._without_model()
        return bool(np.all(evidence[0] >= self.log_inverse_delta))

    def none_risk(self) -> float:
        """The risk, in [0, 1], at which the first run would just find that there is no single best policy."""
        peak = self.rule.peak_evidence if self.none_peak is None else self.none_peak
        return float(np.exp(-max(0.0, float(peak[0].min()))))

    def last_standing(self) -> tuple[BoolArray, BoolArray]:
        """Shapes (R,): whether all policies are refuted but one that leads them, and whether all are."""
        refuted = self.rule.refuted
        n_open = np.sum(self.tally.joined & ~refuted, axis=1)
        established = n_open == 1
        if established.any():
            established &= np.any(self.tally.present & ~refuted & self.rule.leads(), axis=1)
        return established, n_open == 0

    def _out(self) -> BoolArray:
        """Shape (R, K): the policies that may not lead. Where all are refuted, each may that is present."""
        refuted, absent = self.rule.refuted, ~self.tally.present
        out: BoolArray = refuted & ~(refuted | absent).all(axis=1, keepdims=True)
        return out | absent

    def _two_best(self, streams: StreamedEvidence) -> IntArray:
        """Shape (R, 2): the leader by the streams, and the one after it."""
        # Early on two policies often have results that mirror each other. Their order must not depend on how
        # a processor rounds, or a replay on another one comes to other evidence.
        standing = np.round(streams.standing(), _DECIMALS_OF_STANDING)
        order: IntArray = np.lexsort((-standing, self._out()), axis=-1)
        return order[:, :2]

    def _first(self, standing: FloatArray) -> IntArray:
        """Shape (R,): the policy that stands best, of those that may lead."""
        open_only = np.where(self._out(), -np.inf, standing)
        return np.asarray(open_only.argmax(axis=1), dtype=np.int64)

    def _computed_leader(self) -> IntArray:
        if self.streams is not None and self.model is None:
            return self._first(self.favour())
        evidence = np.where(self._out(), np.inf, self.rule.evidence)
        favour = self.evidence.per_policy if self.model is None else -self.model.scores
        if self.model is not None and isinstance(self._space, BradleyTerry) and self.left_out.any():
            favour = -BradleyTerryModel(self._space, self.estimates()[0]).scores
        order = np.lexsort((favour, evidence), axis=-1)
        best: IntArray = order[:, 0]
        return best

    def _without_model(self) -> FloatArray:
        """Shape (R, K): present evidence against each policy's being the best that assumes nothing
        about μ.
        """
        return self.evidence.per_policy if self.streams is None else self.streams.per_policy

    def _against_being_best(self, of: Any) -> FloatArray:
        """Evidence against policies' beating every other that counts with the proofs of "best".

        A wrong "none" and a wrong name have one e-process and one δ together. The streams have no part in it.
        """
        if (proof := self.head_to_head()) is not None:
            return proof.against_being_best(of)
        plain = self._watched.plain if isinstance(self._watched, BradleyTerryEvidence) else self.rule.evidence
        return np.asarray(plain[of], dtype=np.float64)

    def _observe_none(self, i: IntArray, j: IntArray, runs: IntArray | None) -> None:
        """Raise the peak of the evidence against each policy's being the best, where it has changed."""
        if self.none_peak is None:
            return
        at, i, j = located(runs, i, j)
        # In a model a comparison tells about all policies.
        of: Any = (at, np.array([i, j])) if self.model is None else ...
        self.none_peak[of] = np.maximum(self.none_peak[of], self._against_being_best(of))

    def _move_capital(self) -> None:
        """Have the capital move that is to move."""
        # Where there are stakes, there are streams. The leader that is shown decides nothing.
        for claim, stakes in self._stakes.items():
            if (runs := stakes.due()).size and self.streams is not None:
                proof = self.proofs[claim]
                proof.move(runs, self._two_best(self.streams)[runs])
                proof.observe()
                if self.none_peak is not None and claim is Claim.BEST:
                    np.maximum(self.none_peak, self._against_being_best(...), out=self.none_peak)

    def stopping_proof(self) -> Proof | None:
        """The proof that stops the run; None under a claim or a stopping rule that has none."""
        return None if self.claim is None else self.proofs.get(self.claim)

    def _watched_margins(self, epsilon: float, *, watch_all: bool) -> dict[Claim, float]:
        """The claims that are proved head to head or in the model, and their margins."""
        if self.claim is None:
            return {}
        margins = {Claim.BEST: 0.0}
        if epsilon > 0.0:
            margins[Claim.GOOD_ENOUGH] = epsilon
        return {claim: margin for claim, margin in margins.items() if watch_all or claim is self.claim}

    def _watch(self, space: Space, epsilon: float, stopping: str) -> EvidenceModel:
        if self.model is not None and isinstance(space, BradleyTerry):
            if self._mixture is not None:
                return BradleyTerryEvidence(
                    space,
                    self.model,
                    self._mixture,
                    self._for_none,
                    streams=self.streams,
                )
            return SeparationStatistic(self.model, self.tally)
        if stopping != "certified":
            return EliminationCost(self.tally, epsilon)
        return self._for_none if self.streams is None else self.streams

    def log_start(self, margin: float) -> FloatArray:
        """Shape (K,): logarithms of the stakes of proofs head to head with this margin, if they began now."""
        log_share, _ = self._start(margin)
        return log_share

    def _start(self, margin: float) -> tuple[FloatArray, FloatArray]:
        prior = None if self.streams is None else self._prior
        return starting_capital(self.tally.present[0], margin, prior, self._reserve)

    def _build_stakes(
        self, memory: Sequence[Mapping[str, Any]] | None, *, moves: bool
    ) -> dict[Claim, Stakes]:
        stakes = {}
        for claim, margin in self._proof_margins.items():
            known = None
            if memory is not None:
                known = [each.get("stakes", {}).get(claim.value, {}) for each in memory]
            if self.model is None:
                log_share, account = self._start(margin)
            else:
                # Beside a model, what head-to-head counts have is divided evenly.
                present = self.tally.present[0]
                log_share = np.where(present, -np.log(np.count_nonzero(present)), NO_CAPITAL)
                account = np.exp(log_share)
            stakes[claim] = Stakes(
                self.tally,
                log_share,
                margin,
                known,
                account=account,
                moves=moves,
                reserve=self._reserve,
            )
        return stakes

    def _log_weights(self, memory: Sequence[Mapping[str, Any]] | None) -> FloatArray | None:
        """Shape (R, K, K): the weights of opponents; None where all have the same."""
        n = self.tally.n_policies
        if memory is None:
            if self.tally.everybody:
                return None
            equal = -np.log(np.maximum(self.tally.n_present - 1, 1))[:, None]
            weights = np.where(self.tally.present, equal, NO_WEIGHT)
            return np.repeat(weights[:, None], n, axis=1)
        return recalled(memory, "weights", (n, n)) if "weights" in memory[0] else None

    def _build_proofs(
        self, space: Space, delta: float, named: Mapping[Claim, IntArray]
    ) -> dict[Claim, Proof]:
        proofs: dict[Claim, Proof] = {}
        for claim, margin in self._proof_margins.items():
            pairs = self._pairs[margin]
            if self.model is None or self._mixture is None or not isinstance(space, BradleyTerry):
                proofs[claim] = HeadToHead(
                    pairs,
                    delta,
                    named.get(claim),
                    stakes=self._stakes[claim],
                )
            else:
                if margin == self.margin and isinstance(self._watched, BradleyTerryEvidence):
                    self._in_model[margin] = self._watched
                else:
                    self._in_model[margin] = BradleyTerryEvidence(space, self.model, self._mixture, pairs)
                proofs[claim] = InModel(
                    self._in_model[margin], pairs, delta, named.get(claim), stakes=self._stakes[claim]
                )
            proofs[claim].observe()
        return proofs

    def _build_rule(self, space: Space, delta: float, stopping: str, peak: ArrayLike | None) -> StoppingRule:
        if stopping == "certified":
            return Certified(self._watched, delta, peak)
        threshold: Threshold = HeuristicThreshold(delta)
        if stopping == "theory":
            threshold = (
                ProvenPairwiseThreshold(delta, space.n_policies)
                if not isinstance(space, BradleyTerry)
                else ProvenLinearThreshold(delta, space)
            )
        return Thresholded(self._watched, self.tally, threshold, peak)
