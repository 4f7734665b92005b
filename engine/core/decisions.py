"""The claims and the decision that an experiment's state allows."""

from dataclasses import dataclass, replace

import numpy as np

from .claims import NOBODY
from .ledger import Ledger
from .types import Claim, ClaimState, Conclusion, Decision, StopReason


@dataclass(frozen=True, slots=True)
class Verdict:
    """Reads the first run of a ledger.

    Attributes
    ----------
    ledger
        The comparisons so far and the evidence in them.
    delta
        Risk level δ.
    budget
        Number of comparisons after which the experiment ends regardless; None means no limit.
    strict
        Whether all conclusions ever share one δ.
    concluded
        The conclusions that are told already.
    withheld
        Whether nothing is claimed for now; see `Design.withhold_claims`.
    """

    ledger: Ledger
    delta: float
    budget: int | None
    strict: bool = False
    concluded: tuple[Conclusion, ...] = ()
    withheld: bool = False

    def decision(self) -> Decision:
        """The decision that the comparisons so far allow."""
        reason = self.reason
        none_best = reason is StopReason.NO_SINGLE_BEST
        best = None if none_best or self._n_comparisons == 0 else int(self.ledger.best()[0])
        others = self.ledger.tally.present[0].copy()
        if best is not None:
            others[best] = False
        peak = self.ledger.rule.peak_evidence[0]
        own = self._claim_states()
        claims = self._with_contradiction(self._with_what_follows(own))
        if not own:
            risk, assumes_model = float(self.ledger.rule.risk[0, others].max()), False
        elif none_best:
            risk = self.ledger.none_risk()
            assumes_model = not self.ledger.none_without_model(self.ledger.claim)
        else:
            risk, assumes_model = own[0].risk, own[0].assumes_model
        return Decision(
            stopped=reason is not None,
            reason=reason,
            best=best,
            confidence=1.0 - risk,
            evidence=tuple(peak.tolist()),
            threshold=float(self.ledger.rule.threshold[0]),
            runner_up=None
            if best is None or not others.any()
            else int(np.argmin(np.where(others, peak, np.inf))),
            n_comparisons=self._n_comparisons,
            claim=self.ledger.claim,
            claims=claims,
            joint_risk=min(1.0, self.delta * sum(each.n_stages for each in claims)) if claims else 1.0,
            assumes_model=assumes_model,
            open=self._open(best, own[0])
            if own
            else tuple(np.flatnonzero(others & ~self.ledger.rule.refuted[0]).tolist()),
            conclusions=self.conclusions(),
        )

    def conclusions(self) -> tuple[Conclusion, ...]:
        """Every conclusion so far, that of the moment included."""
        now = self._conclusion_of_now()
        return self.concluded if now is None else (*self.concluded, now)

    def _conclusion_of_now(self) -> Conclusion | None:
        """The conclusion that the present evidence allows; None without one, or where it is told already: in
        the same stage about the same policy, and about all who are there.
        """
        ledger = self.ledger
        established, none_best = ledger.settled()
        if ledger.claim is None or self.withheld or not (established[0] or none_best[0]):
            return None
        policy = None if none_best[0] else int(ledger.best()[0])
        n_stages = 1 if policy is None else self._n_stages(ledger.claim, policy)
        among = ledger.tally.joined if ledger.claim is Claim.BEST_IF_ANY else ledger.tally.present
        now = Conclusion(
            stage=ledger.stage(),
            claim=ledger.claim,
            policy=policy,
            among=tuple(np.flatnonzero(among[0]).tolist()),
            risk=self.delta if self.for_ever else min(1.0, self.delta * n_stages),
            joint_risk=self.delta if self.for_ever else min(1.0, self.delta * ledger.stage()),
        )
        told = any(
            (each.stage, each.policy) == (now.stage, policy) and {*now.among} <= {*each.among}
            for each in self.concluded
        )
        return None if told else now

    def _n_stages(self, claim: Claim, policy: int) -> int:
        """The number of stages whose risk a claim about a policy has: those that its proof uses, and those
        before it that were given up without a conclusion.
        """
        if self.for_ever:
            return 1
        last = max((each.stage for each in self.concluded), default=0)
        given_up = max(self.ledger.stage() - last - 1, 0)
        return self.ledger.n_stages(claim, policy) + given_up * (claim in self.ledger.proofs)

    @property
    def for_ever(self) -> bool:
        """Whether all conclusions ever share one δ."""
        # What is said about all nulls at once at any time has one δ for ever.
        return self.strict or self.ledger.claim is Claim.BEST_IF_ANY or self.ledger.model is not None

    def _open(self, best: int | None, own: ClaimState) -> tuple[int, ...]:
        """The rivals that the claim which stops the run has still to exclude if it is to name `best`."""
        proof = self.ledger.proofs.get(own.claim)
        if proof is None or best is None or own.holds:
            return own.open
        if self.withheld:
            return self._all_but(best)
        return tuple(proof.rivals(0, best).tolist())

    def _all_but(self, policy: int) -> tuple[int, ...]:
        return tuple(k for k in np.flatnonzero(self.ledger.tally.present[0]).tolist() if k != policy)

    @property
    def _n_comparisons(self) -> int:
        return int(self.ledger.tally.n_comparisons[0])

    def _claim_states(self) -> tuple[ClaimState, ...]:
        """All claims that are watched, the one that stops the experiment first."""
        if self.ledger.claim is None:
            return ()
        states = [self._best_if_any()]
        for claim, proof in self.ledger.proofs.items():
            holds = bool(proof.named[0] != NOBODY)
            policy = proof.nearest(0, int(self.ledger.leader()[0])) if self._n_comparisons else None
            rivals = () if holds or policy is None else tuple(proof.rivals(0, policy).tolist())
            risk = 1.0 if policy is None else proof.risk(0, policy)
            states.append(self._state(claim, policy, rivals, min(risk, self.delta) if holds else risk))
        return tuple(sorted(states, key=lambda state: state.claim is not self.ledger.claim))

    def _best_if_any(self) -> ClaimState:
        refuted = self.ledger.rule.refuted[0]
        named = int(self.ledger.named_if_any[0])
        none_best = refuted.all() and named == NOBODY and not self.withheld
        if self._n_comparisons == 0 or none_best:
            return self._state(Claim.BEST_IF_ANY, None, (), 1.0)
        policy = int(self.ledger.leader()[0]) if named == NOBODY else named
        established = named != NOBODY or bool(self.ledger.last_standing()[0][0])
        others = self.ledger.tally.joined[0] & (np.arange(self.ledger.tally.n_policies) != policy)
        rivals = () if established else tuple(np.flatnonzero(others & ~refuted).tolist())
        risk = float(self.ledger.rule.risk[0, others].max())
        if not established and not rivals:
            # The last one standing has still to meet those that it was not compared with.
            behind = ~self.ledger.evidence.ahead()[0, policy] if self.ledger.model is None else others
            rivals = tuple(np.flatnonzero(behind & others).tolist())
        return self._state(Claim.BEST_IF_ANY, policy, rivals, risk)

    def _state(self, claim: Claim, policy: int | None, rivals: tuple[int, ...], risk: float) -> ClaimState:
        ledger = self.ledger
        if self.withheld and policy is not None:
            rivals, risk = self._all_but(policy), 1.0
        if policy is not None:
            without_model = ledger.holds_without_model(claim, policy)
        else:
            without_model = self._n_comparisons == 0 or ledger.none_without_model(claim)
        n_stages = 1 if policy is None else self._n_stages(claim, policy)
        return ClaimState(
            claim,
            holds=policy is not None and not rivals,
            policy=policy,
            open=rivals,
            risk=min(1.0, risk + self.delta * (n_stages - 1)),
            margin=ledger.margin_of(claim),
            assumes_model=not without_model,
            n_stages=n_stages,
        )

    def _with_what_follows(self, states: tuple[ClaimState, ...]) -> tuple[ClaimState, ...]:
        """The same, where a claim that follows from another one that holds says so.

        The policy that beats every other is the best if there is one, and loses to none by any margin. So
        the weaker claim is wrong only where the stronger one is.
        """
        best = next((each for each in states if each.claim is Claim.BEST and each.holds), None)
        if best is None or best.policy is None:
            return states
        return tuple(
            each
            if each.holds or each.policy is None
            else replace(best, claim=each.claim, margin=each.margin, holds=False, follows_from=best.claim)
            for each in states
        )

    def _with_contradiction(self, states: tuple[ClaimState, ...]) -> tuple[ClaimState, ...]:
        """The same, where "best" and "best, if there is a best" exclude each other.

        Their evidence differs: only the latter's has the streams.
        """
        best = next((each for each in states if each.claim is Claim.BEST and each.holds), None)
        if best is None or best.policy is None or self.ledger.margin > 0.0:
            # With a margin, a policy may beat every other, but none by as much.
            return states
        [other] = [each for each in states if each.claim is Claim.BEST_IF_ANY]
        named = other.policy if other.holds else None
        if other.policy is not None and named in {None, best.policy}:
            return states
        return tuple(
            replace(each, contradicted=True) if each.claim in (best.claim, other.claim) else each
            for each in states
        )

    @property
    def reason(self) -> StopReason | None:
        """The reason of the end; None while the run goes on. The rest of a decision takes longer."""
        if self.withheld:
            return None
        established, none_best = self.ledger.settled()
        if none_best[0]:
            return StopReason.NO_SINGLE_BEST
        if established[0]:
            return StopReason.CERTIFIED
        if self.budget is not None and self._n_comparisons >= self.budget:
            return StopReason.BUDGET
        return None
