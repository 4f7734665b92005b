"""The tally of R runs together with everything that sampling and stopping derive from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from .claims import BY_EXPECTATION, NOBODY, HeadToHead, InModel, Proof, log_weights
from .evidence import EliminationCost, EvidenceModel, PairwiseEvidence
from .mixture import TYPICAL_LOG_ODDS, BradleyTerryEvidence, Mixture
from .problem import BradleyTerry, Space
from .reserve import START_SHARE, Reserve, holds_back
from .sampling import Situation
from .stakes import Stakes, capital_moves
from .stopping import Certified, StoppingRule, Thresholded, raised
from .streams import StreamedEvidence, recalled
from .structured import BradleyTerryModel, SeparationStatistic, prior_precision
from .thresholds import (
    PARAMETER_RADIUS,
    HeuristicThreshold,
    ProvenLinearThreshold,
    ProvenPairwiseThreshold,
    Threshold,
)
from .types import BoolArray, Claim, FloatArray, IntArray, Tally

STOPPING_RULES = ("certified", "heuristic", "theory")
# Far more than differences that matter need, and far fewer than rounding reaches.
_DECIMALS_OF_STANDING = 9


class Ledger:
    """Runs side by side, their evidence and their claims, kept in step with each outcome.

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
    streams
        Average the evidence against being the best with the streams, under the stopping rule "certified".
    reserve
        With the streams, have proofs head to head hold capital back for the leaders of later moments, or with
        `exclusive_proofs` move it to them.
    exact_ties
        With the streams, bet on a tie as on a half, and not on half of a win and half of a loss.
    exclusive_proofs
        Have the proofs of two policies, with a margin, share no risk: one of the two names at most is false.
        Of three to six policies, have capital move where the claim has a margin.
    prior
        Shape (K,): strengths expected beforehand, in log-odds. With the streams they steer, and weigh what
        proofs head to head without a reserve begin with.
    memory
        State of the streams, of the reserve and of the stakes to go on from, one for each run.
    exact_from
        Evidence (nats) below which certified evidence in a Bradley-Terry space may be approximate.

    Attributes
    ----------
    evidence
        E-processes of the pairs, at the margin of the claim "best if any". They steer the sampler and the
        choice of the leader under every claim.
    streams
        The same averaged with the streams; None without them.
    plain_peak
        Shape (R, K): the largest evidence so far that owes nothing to the streams.
    proofs
        Progress of the claims "best" and, with a margin, "good enough", as far as they are watched.
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
        streams: bool = False,
        reserve: bool = True,
        exact_ties: bool = True,
        exclusive_proofs: bool = True,
        prior: FloatArray | None = None,
        memory: Sequence[Mapping[str, Any]] | None = None,
        exact_from: float = 0.0,
    ) -> None:
        if stopping not in STOPPING_RULES:
            raise ValueError(f"stopping must be one of {', '.join(STOPPING_RULES)}; got {stopping!r}")
        self.tally = tally
        self._leader: IntArray | None = None
        self._log_inverse_delta = -np.log(delta)
        self.claim = claim if stopping == "certified" else None
        # The margin belongs to the claim that stops the experiment. Unless that is "best if any", the finding
        # that a policy is ruled out as the best is about any lead, however small.
        self.margin = epsilon if self.claim in (None, Claim.BEST_IF_ANY) else 0.0
        if streams and exact_ties and self.claim is not None:
            tally.tell_ties_apart(None if memory is None else [each.get("ties", ()) for each in memory])
        self._proof_margins = self._watched_margins(epsilon, watch_all=watch_all)
        self._pairs = {margin: PairwiseEvidence(tally, margin) for margin in self._proof_margins.values()}
        self.evidence = PairwiseEvidence(tally, self.margin, narrow=True)
        # A wrong name under the claim "best" and a wrong "none" have one e-process and one δ together.
        self._for_none = self._pairs[0.0] if self.claim is Claim.BEST else self.evidence
        self.streams: StreamedEvidence | None = None
        if streams and self.claim is not None:
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
                self._mixture = Mixture(space, self.model, tally, restarts=streams, starts=starts)
                mode = self._mixture.mode
            self._posterior = BradleyTerryModel(
                space, tally, prior_precision(space, TYPICAL_LOG_ODDS), estimate=mode
            )
        self._watched = self._watch(space, epsilon, stopping, exact_from)
        self.rule = self._build_rule(space, delta, stopping, peak_evidence)
        plain_peak = peak_evidence
        if self.streams is not None:
            shape = (tally.n_policies,)
            plain_peak = None if memory is None else recalled(memory, "plain_peak", shape)
        self.plain_peak = raised(self._plain(), plain_peak)
        self._in_model: dict[float, BradleyTerryEvidence] = {}
        self._weighed_by = prior if self.streams is not None and self.model is None else None
        self._reserve: Reserve | None = None
        if self.streams is not None and self.model is None and reserve:
            self._reserve = Reserve(tally, None if memory is None else [m.get("reserve", ()) for m in memory])
        self._exclusive_proofs = exclusive_proofs
        self._stakes: Stakes | None = None
        if self._reserve is not None and Claim.GOOD_ENOUGH in self._proof_margins:
            self._stakes = self._build_stakes(memory)
        self.proofs = self._build_proofs(space, delta, exact_from, named or {})

    def record(self, i: IntArray, j: IntArray, outcome: FloatArray, *, observe: bool = True) -> None:
        """Add one judged comparison to every run and bring the evidence up to date.

        Parameters
        ----------
        i, j
            Shape (R,): the pair of every run.
        outcome
            Shape (R,), in [0, 1]: the share of the win that goes to i.
        observe
            False has a simulation put off what takes long (the estimate, and evidence that builds on it)
            until the next comparison that it does observe.
        """
        self._leader = None
        if self.streams is not None:
            self.streams.bet(i, j, outcome)
        self.tally.record(i, j, outcome)
        for pairs in (self.evidence, *self._pairs.values()):
            pairs.update(i, j)
        if self.streams is not None:
            self.streams.update(i, j)
        if self.model is not None and self._posterior is not None:
            if not observe:
                return
            self.model.refresh()
            self._posterior.refresh()
        if self._mixture is not None:
            self._mixture.refresh()
        if self._watched not in (self._for_none, self.streams):
            self._watched.update(i, j)
        for evidence in self._in_model.values():
            if evidence is not self._watched:
                evidence.update(i, j)
        self.rule.observe()
        np.maximum(self.plain_peak, self._plain(), out=self.plain_peak)
        for proof in self.proofs.values():
            proof.update(i, j, outcome)
            proof.observe()
        if self._mixture is not None:
            self._mixture.consider(self.separation())
        self._place()

    def keep(self, runs: BoolArray) -> None:
        """Keep the runs that are True in `runs`, of shape (R,), and drop the others."""
        self._leader = None
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
        if self._watched not in (self._for_none, self.streams):
            self._watched.keep(runs)
        self.plain_peak = self.plain_peak[runs]
        if self._reserve is not None:
            self._reserve.keep(runs)
        if self._stakes is not None:
            self._stakes.keep(runs)
        for evidence in self._in_model.values():
            if evidence is not self._watched:
                evidence.keep(runs)
        self.rule.keep(runs)
        for proof in self.proofs.values():
            proof.keep(runs)

    def situation(self) -> Situation:
        """The data that a sampling rule may look at."""
        return Situation(
            self.tally,
            self.evidence,
            self.rule.refuted,
            self.rule.threshold,
            self.model,
            self._posterior,
            self.head_to_head(),
            self.streams,
            0.0 if self.claim is None else float(special.logit(0.5 + self.margin_of(self.claim))),
        )

    def memory(self, run: int = 0) -> dict[str, Any] | None:
        """State of the streams of one run, as plain data that JSON can hold; None without them."""
        if self.streams is None:
            return None
        memory = self.streams.memory(run) | {"plain_peak": self.plain_peak[run].tolist()}
        if self._mixture is not None:
            memory["starts"] = self._mixture.memory(run)
        if self._reserve is not None:
            memory["reserve"] = self._reserve.memory(run)
        if self._stakes is not None:
            memory["stakes"] = self._stakes.memory(run)
        if self.tally.ties is not None:
            memory["ties"] = self.tally.known_ties(run)
        return memory

    def head_to_head(self) -> HeadToHead | None:
        """The proof that stops the run, where it assumes nothing about μ."""
        proof = self._stopping_proof()
        return proof if isinstance(proof, HeadToHead) else None

    def best(self) -> IntArray:
        """Shape (R,): the policy named by the claim that stops the run, or the leader."""
        leader = self.leader()
        if (proof := self._stopping_proof()) is not None:
            return np.where(proof.named == NOBODY, leader, proof.named)
        return leader

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
        if (proof := self._stopping_proof()) is not None:
            established = proof.named != NOBODY
            if self.claim is Claim.GOOD_ENOUGH:
                return established, np.zeros_like(established)
            refuted = (
                self.rule.refuted if self.streams is None else self.none_peak() >= self._log_inverse_delta
            )
            return established, ~established & refuted.all(axis=1)
        return self.last_standing()

    def holds_without_model(self, claim: Claim, policy: int) -> bool:
        """True if what is known without a Bradley-Terry model establishes a claim about a policy in the first
        run.

        Only the present evidence counts.
        """
        if self.model is None:
            return True
        others = np.arange(self.tally.n_policies) != policy
        if claim is Claim.BEST_IF_ANY:
            against = self._without_model()[0, others]
            return bool(np.all(against >= self._log_inverse_delta) and self.evidence.leads()[0, policy])
        against = self._pairs[self._proof_margins[claim]].log_e[0, others, policy]
        return bool(np.all(against >= self._log_inverse_delta + np.log(self.tally.n_policies)))

    def none_without_model(self, claim: Claim | None) -> bool:
        """True if it is established without a Bradley-Terry model that the first run has no single best
        policy.

        Only the present evidence counts.

        Parameters
        ----------
        claim
            The claim that finds so: a finding under "best" owes nothing to the streams.
        """
        if self.model is None:
            return True
        evidence = self._for_none.per_policy if claim is Claim.BEST else self._without_model()
        return bool(np.all(evidence[0] >= self._log_inverse_delta))

    def none_peak(self) -> FloatArray:
        """Shape (R, K): the largest evidence that counts for there being no single best policy.

        Under the claim "best" it owes nothing to the streams, and counts as little as it does in the proofs.
        A wrong "none" and a wrong name have one e-process together.
        """
        if self._stopping_proof() is None:
            return self.rule.peak_evidence
        counted = START_SHARE
        if self._reserve is None:
            counted = 1.0 if self._weighed_by is None else 1.0 - BY_EXPECTATION
        return np.asarray(self.plain_peak + np.log(counted), dtype=np.float64)

    def last_standing(self) -> tuple[BoolArray, BoolArray]:
        """Shapes (R,): whether all policies are refuted but one that leads them, and whether all are."""
        refuted = self.rule.refuted
        n_open = np.sum(~refuted, axis=1)
        established = n_open == 1
        if established.any():
            established &= np.any(~refuted & self.rule.leads(), axis=1)
        return established, n_open == 0

    def _out(self) -> BoolArray:
        """Shape (R, K): the policies that may not lead. Where all are refuted, each may."""
        refuted = self.rule.refuted
        out: BoolArray = refuted & ~refuted.all(axis=1, keepdims=True)
        return out

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
            return self._first(self.streams.favour())
        evidence = np.where(self._out(), np.inf, self.rule.evidence)
        favour = self.evidence.per_policy if self.model is None else -self.model.scores
        order = np.lexsort((favour, evidence), axis=-1)
        best: IntArray = order[:, 0]
        return best

    def _without_model(self) -> FloatArray:
        """Shape (R, K): present evidence against each policy's being the best that assumes nothing
        about μ.
        """
        return self.evidence.per_policy if self.streams is None else self.streams.per_policy

    def _plain(self) -> FloatArray:
        """Shape (R, K): evidence against each policy that owes nothing to the streams."""
        if isinstance(self._watched, BradleyTerryEvidence):
            return self._watched.plain
        return self._watched.per_policy if self.streams is None else self._for_none.per_policy

    def _place(self) -> None:
        """Put what is due of the reserve on who stands best, and have the capital move that is to move."""
        # Where there is a reserve or are stakes, there are streams. The leader that is shown decides nothing.
        streams = self.streams
        if streams is None:
            return
        if self._reserve is not None and (runs := self._reserve.due()).size:
            self._reserve.place(runs, self._first(streams.standing())[runs])
            for proof in self.proofs.values():
                proof.place(runs)
                proof.observe()
        if (stakes := self._stakes) is not None and (runs := stakes.due()).size:
            proof = self.proofs[Claim.GOOD_ENOUGH]
            proof.move(runs, self._two_best(streams)[runs])
            proof.observe()

    def _stopping_proof(self) -> Proof | None:
        return None if self.claim is None else self.proofs.get(self.claim)

    def _watched_margins(self, epsilon: float, *, watch_all: bool) -> dict[Claim, float]:
        """The claims that are proved head to head or in the model, and their margins."""
        if self.claim is None:
            return {}
        margins = {Claim.BEST: 0.0}
        if epsilon > 0.0:
            margins[Claim.GOOD_ENOUGH] = epsilon
        return {claim: margin for claim, margin in margins.items() if watch_all or claim is self.claim}

    def _watch(self, space: Space, epsilon: float, stopping: str, exact_from: float) -> EvidenceModel:
        if self.model is not None and isinstance(space, BradleyTerry):
            if self._mixture is not None:
                return BradleyTerryEvidence(
                    space,
                    self.model,
                    self._mixture,
                    self._for_none,
                    exact_from=exact_from,
                    streams=self.streams,
                )
            return SeparationStatistic(self.model, self.tally)
        if stopping != "certified":
            return EliminationCost(self.tally, epsilon)
        return self._for_none if self.streams is None else self.streams

    def _build_stakes(self, memory: Sequence[Mapping[str, Any]] | None) -> Stakes | None:
        """Capital that moves; None where it stays. In a state that is older than it, none has moved."""
        n = self.tally.n_policies
        if not capital_moves(Claim.GOOD_ENOUGH, n, exclusive_proofs=self._exclusive_proofs):
            return None
        log_start = log_weights(self._weighed_by, n) - np.log(n)
        known = None if memory is None else [each.get("stakes") for each in memory]
        return Stakes(self.tally, log_start, known)

    def _build_proofs(
        self, space: Space, delta: float, exact_from: float, named: Mapping[Claim, IntArray]
    ) -> dict[Claim, Proof]:
        proofs: dict[Claim, Proof] = {}
        for claim, margin in self._proof_margins.items():
            pairs = self._pairs[margin]
            if self.model is None or self._mixture is None or not isinstance(space, BradleyTerry):
                reserve = self._reserve if holds_back(claim, self.tally.n_policies) else None
                proofs[claim] = HeadToHead(
                    pairs,
                    self.tally,
                    delta,
                    named.get(claim),
                    reserve=reserve,
                    prior=self._weighed_by,
                    exclusive_proofs=self._exclusive_proofs,
                    stakes=self._stakes if claim is Claim.GOOD_ENOUGH else None,
                )
            else:
                if margin == self.margin and isinstance(self._watched, BradleyTerryEvidence):
                    self._in_model[margin] = self._watched
                else:
                    self._in_model[margin] = BradleyTerryEvidence(
                        space, self.model, self._mixture, pairs, exact_from=exact_from
                    )
                proofs[claim] = InModel(self._in_model[margin], pairs, delta, named.get(claim))
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
