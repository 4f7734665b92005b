"""The claims and the decision that an experiment's state allows, and the sentences for both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .claims import NOBODY, describe, describe_contradiction, describe_no_best
from .contradictions import Misfit, is_qualified, on_the_test
from .ledger import Ledger
from .remaining import expected_remaining
from .types import Claim, ClaimState, Decision, StopReason

_RIVALS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """Reads the first run of a ledger.

    Attributes
    ----------
    ledger
        The comparisons so far and the evidence in them.
    labels
        Names of the K policies.
    delta
        Risk level δ.
    stopping
        Name of the stopping rule.
    budget
        Number of comparisons after which the experiment ends regardless; None means no limit.
    tested
        A test of the Bradley-Terry model on the same data; None where there was none.
    """

    ledger: Ledger
    labels: Sequence[str]
    delta: float
    stopping: str
    budget: int | None
    tested: Misfit | None = None

    def decision(self) -> Decision:
        """The decision that the comparisons so far allow."""
        reason = self.reason
        none_best = reason is StopReason.NO_SINGLE_BEST
        best = None if none_best or self._n_comparisons == 0 else int(self.ledger.best()[0])
        others = np.arange(self.ledger.tally.n_policies) != (-1 if best is None else best)
        peak = self.ledger.rule.peak_evidence[0]
        own = self._claim_states()
        claims = self._with_contradiction(self._with_what_follows(own))
        if not own:
            risk = float(self.ledger.rule.risk[0, others].max())
        elif none_best:
            risk = self.ledger.none_risk()
        else:
            risk = own[0].risk
        return Decision(
            stopped=reason is not None,
            reason=reason,
            best=best,
            confidence=1.0 - risk,
            evidence=tuple(peak.tolist()),
            threshold=float(self.ledger.rule.threshold[0]),
            runner_up=None if best is None else int(np.argmin(np.where(others, peak, np.inf))),
            n_comparisons=self._n_comparisons,
            expected_left=0.0 if reason is not None else expected_remaining(self.ledger, best),
            claim=self.ledger.claim,
            claims=claims,
            joint_risk=min(1.0, self.delta * len(claims)) if claims else 1.0,
            claim_text=self._claim_text(claims, none_best=none_best),
            open=own[0].open
            if own
            else tuple(np.flatnonzero(others & ~self.ledger.rule.refuted[0]).tolist()),
        )

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
        if self._n_comparisons == 0 or refuted.all():
            return self._state(Claim.BEST_IF_ANY, None, (), 1.0)
        policy = int(self.ledger.leader()[0])
        established = bool(self.ledger.last_standing()[0][0])
        others = np.arange(self.ledger.tally.n_policies) != policy
        rivals = () if established else tuple(np.flatnonzero(others & ~refuted).tolist())
        risk = float(self.ledger.rule.risk[0, others].max())
        if not established and not rivals:
            # The last one standing has still to meet those that it was not compared with.
            behind = ~self.ledger.evidence.ahead()[0, policy] if self.ledger.model is None else others
            rivals = tuple(np.flatnonzero(behind & others).tolist())
        return self._state(Claim.BEST_IF_ANY, policy, rivals, risk)

    def _state(self, claim: Claim, policy: int | None, rivals: tuple[int, ...], risk: float) -> ClaimState:
        if policy is None:
            none = self._n_comparisons > 0
            text = self._no_best(claim) if none else "Nothing has been compared yet."
            return ClaimState(claim, holds=False, policy=None, open=(), risk=1.0, text=text)
        assumes_model = not self.ledger.holds_without_model(claim, policy)
        text = describe(
            claim,
            self._name(policy),
            [self._name(rival) for rival in rivals[:_RIVALS_SHOWN]],
            len(rivals),
            delta=self.delta,
            margin=self.ledger.margin_of(claim),
            missing=self.ledger.missing,
            model=assumes_model,
            note=on_the_test(self.tested, assumes_model=assumes_model),
        )
        return ClaimState(
            claim,
            holds=not rivals,
            policy=policy,
            open=rivals,
            risk=risk,
            text=text,
            assumes_model=assumes_model,
            qualified=is_qualified(self.tested, assumes_model=assumes_model),
        )

    def _with_what_follows(self, states: tuple[ClaimState, ...]) -> tuple[ClaimState, ...]:
        """The same, where a claim that follows from another one that holds says so.

        The policy that beats every other is the best if there is one, and loses to none by any margin. So
        the weaker claim is wrong only where the stronger one is.
        """
        best = next((each for each in states if each.claim is Claim.BEST and each.holds), None)
        if best is None or best.policy is None:
            return states
        text = {
            each.claim: describe(
                each.claim,
                self._name(best.policy),
                (),
                0,
                delta=self.delta,
                margin=self.ledger.margin_of(each.claim),
                missing=self.ledger.missing,
                model=best.assumes_model,
                note=on_the_test(self.tested, assumes_model=best.assumes_model),
                follows_from=best.claim,
            )
            for each in states
        }
        return tuple(
            each
            if each.holds or each.policy is None
            else replace(best, claim=each.claim, holds=False, text=text[each.claim], follows_from=best.claim)
            for each in states
        )

    def _with_contradiction(self, states: tuple[ClaimState, ...]) -> tuple[ClaimState, ...]:
        """The same, where "best" and "best, if there is a best" exclude each other, and say so.

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
        opposites = {
            best.claim: describe_contradiction(None if named is None else self._name(named)),
            other.claim: describe_contradiction(self._name(best.policy), sure=True),
        }
        return tuple(
            replace(each, text=f"{each.text} {opposites[each.claim]}", contradicted=True)
            if each.claim in opposites
            else each
            for each in states
        )

    def _claim_text(self, claims: tuple[ClaimState, ...], *, none_best: bool) -> str:
        if not claims:
            return f"The stopping rule {self.stopping!r} makes no claim that holds at any time."
        # Under "best" the claim that stops the run has a rival still open, and says nothing of the finding.
        opposite = none_best and claims[0].policy is not None
        return self._no_best(self.ledger.claim) if opposite else claims[0].text

    def _no_best(self, claim: Claim | None) -> str:
        """The finding of a claim that no policy is the single best."""
        assumes_model = not self.ledger.none_without_model(claim)
        return describe_no_best(
            delta=self.delta,
            margin=self.ledger.margin,
            missing=self.ledger.missing,
            model=assumes_model,
            note=on_the_test(self.tested, assumes_model=assumes_model),
        )

    def _name(self, policy: int) -> str:
        # Names with commas in a list could be any number of names.
        label = self.labels[policy]
        return f"“{label}”" if "," in label else label

    @property
    def reason(self) -> StopReason | None:
        """The reason of the end; None while the run goes on. The rest of a decision takes longer."""
        established, none_best = self.ledger.settled()
        if none_best[0]:
            return StopReason.NO_SINGLE_BEST
        if established[0]:
            return StopReason.CERTIFIED
        if self.budget is not None and self._n_comparisons >= self.budget:
            return StopReason.BUDGET
        return None
