"""Ask/tell interface of an adaptive experiment."""

import copy
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Self, overload

import numpy as np
from numpy.typing import ArrayLike

from .claims import NOBODY
from .decisions import Verdict
from .growth import expected_with_one_more, padded, with_one_more
from .judgments import as_exported, checked_columns, checked_policy_name, checked_triples
from .ledger import NONE, OPEN, Ledger
from .memory import check_memory
from .missing import by_answers
from .ranking import Place, Rate, Standing, mean_over_rivals, order_of, rates
from .remaining import drawn_strengths, expected_remaining
from .samplers import build_sampler
from .sampling import Picks, argmax_random
from .settings import (
    centred,
    checked_claim,
    checked_conclusions,
    checked_labels,
    checked_missing,
    checked_names,
    checked_prior,
    checked_settings,
    left_out_of,
)
from .showings import Showing
from .spaces import Space, Unstructured, grown
from .types import (
    Answers,
    BoolArray,
    Bounds,
    Claim,
    Decision,
    FloatArray,
    IntArray,
    Missing,
    Pair,
    Remaining,
    Seed,
    StopReason,
    Tally,
    check_real,
    check_tally,
    check_whole,
    checked_in_flight,
)


class Design:
    """An adaptive experiment that finds the best of K policies from pairwise comparisons.

    Parameters
    ----------
    space
        The assumption about the preference probabilities.
    delta
        Risk level δ in (0, ½): each claim is made wrongly with probability at most δ.
    claim
        The claim to stop on, see `Claim`: "best", "best_if_any" or "good_enough". The others are watched.
    epsilon
        Margin ε in [0, ½), needed by "good_enough": the policy named loses to no other by more than ε. With
        "best_if_any" a policy counts as the best only if it beats each other with probability at least ½ + ε.
        The claim "best" has no margin; with ε > 0 the claim "good_enough" is watched beside it.
    sampler
        Sampling rule: "balanced"; "tracking", the paper's; or one of the baselines "round_robin", "random",
        "eps_greedy", "thompson" and "rucb".
    stopping
        Stopping rule: "certified"; "heuristic", the threshold of the paper's experiments, or "theory", its
        proven one.
    capital_moves
        With three policies or more and nothing assumed, let the capital of the proofs of "best"
        and "good_enough" move to those who stand best. This saves comparisons. Leave it out where outcomes
        are drawn without replacement, as from a pool of responses.
    strict
        Have everything that the experiment ever concludes err with probability at most δ together, in place
        of each conclusion given all before it; see `add`.
    missing
        "against": a showing that has no outcome, or none yet, counts against each claim, so that the claims
        hold whoever leaves, delays or takes back what. "answers": it counts for nothing, and the claims hold
        if no outcome stays away because of what it says. What a Bradley-Terry model says always assumes that.
    prior_strengths
        Shape (K,): strengths expected beforehand, in log-odds, from an earlier experiment or a model's
        opinions. They steer sampling, bets and leaders of a certified stop. A policy that is expected to be
        strong needs less evidence to be named, and the others a little more. Of two policies, with a margin,
        there is nothing to weigh. No claim rests on their being right.
    labels
        Names of the K policies, for messages and tables; by default "policy 0" and so on, and the levels in a
        `Factorial` space.
    seed
        Anything `numpy.random.default_rng` takes; it breaks ties between equally good pairs.
    budget
        Number of comparisons after which the experiment ends regardless; None means no limit.

    Raises
    ------
    ValueError
        If a setting is out of range.

    Examples
    --------
    >>> design = Design(Unstructured(3), seed=1)
    >>> while not design.decision.stopped:
    ...     i, j = design.ask()
    ...     design.tell(i, j, 1.0 if i < j else 0.0)
    >>> design.decision.best
    0
    """

    def __init__(
        self,
        space: Space,
        *,
        delta: float = 0.05,
        claim: Claim | str = Claim.BEST,
        epsilon: float = 0.0,
        sampler: str = "balanced",
        stopping: str = "certified",
        capital_moves: bool = True,
        strict: bool = False,
        missing: Missing | str = Missing.AGAINST,
        prior_strengths: ArrayLike | None = None,
        labels: Sequence[str] | None = None,
        seed: Seed = 0,
        budget: int | None = None,
    ) -> None:
        check_memory(space.n_policies)
        self.space = space
        self.claim = checked_claim(claim, epsilon)
        self.delta, self.epsilon, self.budget = checked_settings(delta, epsilon, budget)
        self.sampler = sampler
        self.stopping = stopping
        self.capital_moves = capital_moves
        self.strict = strict
        self.missing = checked_missing(missing)
        self.labels = checked_labels(labels, space)
        # As given: to centre twice would round twice, and a state would come back with other bits.
        self._prior_strengths = checked_prior(prior_strengths, space.n_policies)
        self._prior = None if self._prior_strengths is None else centred(self._prior_strengths)
        self._sampler = build_sampler(sampler)
        self._rng = np.random.default_rng(seed)
        self._showings: dict[int, Showing] = {}
        self.events: list[dict[str, Any]] = []
        self._load(Tally.empty(space.n_policies), {})

    @classmethod
    def from_counts(
        cls,
        space: Space,
        wins: ArrayLike,
        *,
        in_flight: ArrayLike | None = None,
        peak_evidence: ArrayLike | None = None,
        progress: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Self:
        """Rebuild a design from stored counts.

        Given `progress`, its evidence equals, bit by bit, that of the design that it was stored by.

        Parameters
        ----------
        wins
            Shape (K, K): `Design.wins`, or counts from elsewhere. `wins[i, j]` is the summed outcome of i
            against j; `wins + wins.T` counts the comparisons of each pair.
        in_flight
            Shape (K, K), symmetric: comparisons under way. None means none.
        peak_evidence
            Shape (K,): `Design.peak_evidence` as it was stored. Without it a policy that was refuted
            earlier, and whose evidence has fallen back since, counts as open again.
        progress
            `Design.progress` as it was stored: peaks, streams, open showings, and what claims have named. In
            place of `peak_evidence`. Without it the streams and capital that has moved begin anew. A
            claim that held earlier, and does not by the present counts, counts as open again. Each such
            beginning errs with at most δ by itself: an experiment with n of them, for whatever reason, errs
            with at most (n + 1) δ.
        settings
            As for the constructor. With `progress`, claim, δ and ε are those that it was stored with: peaks,
            names and capital that has moved hold for these alone. To change one, `replay` the judgments.
            Prior strengths may be those of the policies that the experiment began with.

        Raises
        ------
        ValueError
            If an array does not fit the space or is not a valid tally, or a setting is out of range.
        """
        progress = dict(progress or {})
        prior = settings.get("prior_strengths")
        if prior is not None and len(prior) < space.n_policies:
            for event in progress.get("lived", {}).get("events", ()):
                if event["kind"] == "added" and event["policy"] == len(prior):
                    prior = expected_with_one_more(np.asarray(prior, dtype=np.float64), event["parent"])
            settings["prior_strengths"] = prior
        design = cls(space, **settings)
        if peak_evidence is not None:
            progress["peak_evidence"] = peak_evidence
        design._load(check_tally(wins, in_flight, space.n_policies), progress)
        return design

    def _load(self, tally: Tally, progress: Mapping[str, Any]) -> None:
        peak_evidence = progress.get("peak_evidence")
        peak = None if peak_evidence is None else np.asarray(peak_evidence, dtype=np.float64)[None]
        self._tally = tally
        lived = progress.get("lived") or {}
        tally.leave_out(lived.get("absent", ()))
        self.events = [dict(event) for event in lived.get("events", ())]
        self._concluded = checked_conclusions(lived.get("conclusions", ()))
        self.withheld = bool(lived.get("withheld"))
        self._ledger = Ledger(
            self.space,
            tally,
            delta=self.delta,
            epsilon=self.epsilon,
            stopping=self.stopping,
            claim=self.claim,
            peak_evidence=peak,
            named=checked_names(progress.get("named") or {}, self.n_policies),
            capital_moves=self.capital_moves,
            missing=self.missing,
            prior=self._prior,
            memory=None if progress.get("streams") is None else [progress["streams"]],
        )
        self._ledger.leave_out(left_out_of(progress.get("left_out", ()), self.n_policies))
        for key, known in progress.get("showings", ()):
            self.remember(key, known)
        self._rule = self._ledger.rule
        self._decision: Decision | None = None

    @classmethod
    def replay(
        cls,
        space: Space,
        judgments: Iterable[tuple[int, int, float | None]],
        *,
        events: Iterable[Mapping[str, Any]] = (),
        **settings: Any,
    ) -> Self:
        """Rebuild a design, peaks included, by telling it judgments (i, j, outcome) in their order.

        Parameters
        ----------
        space
            The assumption about the preference probabilities, of the policies that it began with.
        judgments
            As for `tell_many`, the oldest first.
        events
            `Design.events`: who joined and retired, and after how many of the judgments. What comes later
            than the last judgment is left out.
        settings
            As for the constructor.

        Raises
        ------
        ValueError
            If a setting is out of range, or `tell_many` refuses a judgment.
        """
        design, told = cls(space, **settings), 0
        if events := list(events):
            judgments = list(judgments)
            for event in events:
                if event["place"] > len(judgments):
                    break
                design.tell_many(judgments[told : event["place"]])
                told = event["place"]
                design.happen(event)
            judgments = judgments[told:]
        design.tell_many(judgments)
        return design

    def add(
        self, label: str | None = None, *, parent: int | None = None, row: Sequence[Any] | None = None
    ) -> int:
        """Have a policy join, at any time, also while showings are open and after a conclusion.

        Whoever adds it may know everything so far. It meets the others as their rival, and may be named
        itself; a claim that held before is open until its policy has excluded the newcomer as well.

        The first arrival after a conclusion begins a new stage: whatever happened before it, a stage adds a
        false conclusion with probability at most δ. `strict` designs, the claim "best_if_any" and
        Bradley-Terry spaces have no stages. All that they ever conclude errs with at most δ together.

        From the first event on, "best" no longer finds that no policy is the single best.

        Parameters
        ----------
        label
            Its name; by default "policy 4" and so on.
        parent
            The policy that it was made from. It is expected to be as strong; no claim rests on that.
        row
            In a `Factorial` space its levels, and in another Bradley-Terry space its features. Levels and
            features may be new; what is assumed about the others stays.

        Returns
        -------
        Its number, which stays.

        Raises
        ------
        ValueError
            If the name is taken, there is no such parent, `row` does not fit, or the design makes no claim.
        """
        self._check_alive()
        number = self.n_policies
        if parent is not None:
            parent = self._checked_policy("parent", parent)
        space = grown(self.space, row)
        check_memory(space.n_policies)
        if label is None:
            label = f"policy {number}" if row is None else ", ".join(map(str, row))
        labels = checked_labels([*self.labels, label], space)
        features = None if row is None else list(row)
        self._note("added", policy=number, label=labels[-1], parent=parent, row=features)
        renew = not self.strict and any(each.stage == self._ledger.stage() for each in self._concluded)
        progress = with_one_more(self.progress, parent)
        progress["lived"]["absent"].append(number)
        if self._prior_strengths is not None:
            self._prior_strengths = expected_with_one_more(self._prior_strengths, parent)
            self._prior = centred(self._prior_strengths)
        self.space, self.labels = space, labels
        self._load(Tally(padded(self.wins)[None], padded(self.in_flight)[None]), progress)
        self._ledger.join(np.array([0]), np.array([number]), renew=renew)
        self._sampler = build_sampler(self.sampler)
        return number

    def retire(self, policy: int) -> None:
        """Have a policy leave for good, at any time.

        Claims are about those who are present. Where the proof of another one had excluded it, nothing
        changes for that one. Where not, that proof keeps at most what it had against it. Under "best_if_any"
        the policy stays in the sentence, and nothing can be concluded that it may contradict.

        Parameters
        ----------
        policy
            Its number.

        Raises
        ------
        ValueError
            If it is not present, or the last one that is, or the design makes no claim.
        """
        self._check_alive()
        policy = self._checked_policy("policy", policy)
        present = self.present
        if not present[policy] or present.sum() == 1:
            reason = "the only one that is left" if present[policy] else "not present"
            raise ValueError(f"policy {policy} cannot retire: it is {reason}")
        self._note("retired", policy=policy)
        self._ledger.leave(np.array([0]), np.array([policy]))

    def begin_stage(self) -> None:
        """Have claims count what comes from now on alone, as where the tasks are others than before.

        It is as if the experiment began with those who are present: with a capital of 1, and nobody excluded.
        Showings that are open count against the claims. A stage that is given up without a conclusion has
        had its chance to err: its δ is added to the risk of the next conclusion. Estimates, and the claim
        "best_if_any" where it is watched, go on.

        Raises
        ------
        ValueError
            If there are no stages: see `add`. Or without `capital_moves`, as what a draw without replacement
            is worth cannot be told from the counts.
        """
        self._check_alive()
        if self.for_ever or not self.capital_moves:
            raise ValueError("this design has no stages: all that it ever concludes has one risk")
        self._note("stage")
        self._ledger.begin_stage(np.array([0]))

    def withhold_claims(self) -> None:
        """Have the design claim nothing until `allow_claims`, as while an `Improvement` uses its comparisons.

        Claims are open meanwhile, and it does not stop. So those who come and go add no conclusions, and one
        stage at most begins.

        Raises
        ------
        ValueError
            If the design makes no claim, or its claims are withheld already.
        """
        self._check_alive()
        if self.withheld:
            raise ValueError("claims are withheld already")
        self._note("withheld")
        self.withheld = True

    def allow_claims(self) -> None:
        """Have the design claim again what holds.

        Raises
        ------
        ValueError
            If its claims are not withheld.
        """
        if not self.withheld:
            raise ValueError("claims are not withheld")
        self._note("allowed")
        self.withheld = False

    def happen(self, event: Mapping[str, Any]) -> None:
        """Have one of `Design.events` happen again.

        Raises
        ------
        ValueError
            As for `add` and `retire`, or if it is no event.
        """
        if event.get("kind") == "added":
            self.add(event["label"], parent=event["parent"], row=event["row"])
        elif event.get("kind") == "retired":
            self.retire(event["policy"])
        elif event.get("kind") == "stage":
            self.begin_stage()
        elif event.get("kind") == "withheld":
            self.withhold_claims()
        elif event.get("kind") == "allowed":
            self.allow_claims()
        else:
            raise ValueError(
                f"an event is 'added', 'retired', 'stage', 'withheld' or 'allowed', got {dict(event)}"
            )

    def _note(self, kind: str, **about: Any) -> None:
        """Note an event that comes now, and a conclusion that it ends."""
        self._concluded = self._verdict.conclusions()
        self._ledger.begin_to_live()
        self.events.append({"kind": kind, "place": self.n_shown, **about})
        self._decision = None

    def _check_alive(self) -> None:
        if self._ledger.claim is None:
            raise ValueError(f"under the stopping rule {self.stopping!r} the policies are fixed")

    def _checked_policy(self, name: str, policy: int) -> int:
        if not 0 <= check_whole(name, policy) < self.n_policies:
            raise ValueError(f"policies are numbered 0 to {self.n_policies - 1}, got {name} {policy}")
        return int(policy)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on later, as plain data that JSON can hold; see `from_state`."""
        return {
            "wins": self.wins.tolist(),
            "in_flight": self.in_flight.tolist(),
            "progress": self.progress | {"showings": _listed(self._showings)},
            "delta": self.delta,
            "claim": self.claim.value,
            "epsilon": self.epsilon,
            "sampler": self.sampler,
            "stopping": self.stopping,
            "capital_moves": self.capital_moves,
            "strict": self.strict,
            "missing": self.missing.value,
            "prior_strengths": None if self._prior_strengths is None else self._prior_strengths.tolist(),
            "labels": list(self.labels),
            "budget": self.budget,
            "rng": self._rng.bit_generator.state,
            "memory": self._sampler.memory(),
        }

    @classmethod
    def from_state(cls, space: Space, state: Mapping[str, Any]) -> Self:
        """The design that `state` was taken from: it goes on with the same picks and decisions.

        Parameters
        ----------
        space
            The space of that design; the state does not hold it.
        state
            The value of `state`, also after a way through JSON.

        Raises
        ------
        ValueError
            If the state does not fit the space.
        """
        settings = {name: value for name, value in state.items() if name not in ("wins", "rng", "memory")}
        design = cls.from_counts(space, state["wins"], **settings)
        design._rng.bit_generator.state = state["rng"]
        design._sampler.recall(state["memory"])
        return design

    @classmethod
    def from_dataframe(
        cls,
        frame: Any,
        space: Space | None = None,
        *,
        first: str = "policy_i",
        second: str = "policy_j",
        outcome: str = "outcome",
        **settings: Any,
    ) -> Self:
        """Tell a design the judgments in a table with a row for each, in their order.

        The columns are by default those of the application's export of judgments. Of such a table only the
        rows `in_evidence` count, and claim, δ and ε are those of its last row (`plan_claim` and so on).

        Parameters
        ----------
        frame
            A pandas or polars data frame, or a mapping of columns.
        space
            The assumption; by default none, on the policies that the table names.
        first, second
            Columns with the names of the two policies. With `labels` they must be among these.
        outcome
            Column with 1 where the first was preferred, 0 where the second was, 0.5 for a tie.
        settings
            As for the constructor.

        Raises
        ------
        ValueError
            If a column is missing or shorter than another, a policy has no name or no label, or an outcome is
            out of range or no number; the row is named, counted from 0.
        """
        columns = checked_columns(frame, (first, second, outcome))
        columns, settings = as_exported(frame, columns, settings)
        names = [
            [
                checked_policy_name(value, f"row {row}: the column {name!r}")
                for row, value in enumerate(column)
            ]
            for name, column in zip((first, second), columns[:2], strict=True)
        ]
        labels = settings.pop("labels", None)
        if labels is None and space is None:
            labels = sorted({*names[0], *names[1]})
        design = cls(space or Unstructured(len(labels or ())), labels=labels, **settings)
        index = {label: policy for policy, label in enumerate(design.labels)}
        for row, (a, b, preferred) in enumerate(zip(*names, columns[2], strict=True)):
            try:
                design.tell(index[a], index[b], preferred)
            except KeyError as error:
                raise ValueError(
                    f"row {row}: there is no policy {error}; labels are {design.labels}"
                ) from error
            except ValueError as error:
                raise ValueError(f"row {row}: {error}") from error
        return design

    @overload
    def ask(self, *, among: BoolArray | None = None) -> Pair: ...

    @overload
    def ask(self, n: int, *, among: BoolArray | None = None) -> list[Pair]: ...

    def ask(self, n: int | None = None, *, among: BoolArray | None = None) -> Pair | list[Pair]:
        """Choose the next pair to compare, or the next n, and count them as under way.

        Any number of pairs may be under way at a time. The pair comes as the sampler picked it: for
        "balanced" the policy under test and its challenger. The order says nothing about which is better,
        nor about which response to show on which side. A design that has stopped still answers.

        Parameters
        ----------
        n
            How many pairs to choose, 0 or more; None for one that is not in a list.
        among
            Shape (K, K), of truth values, symmetric: the pairs that can be compared; None means all. The
            diagonal does not count. Where the sampler picks another one, the least compared pair with one of
            its two policies takes its place. Where these have none, it is the least compared pair of any two.

        Raises
        ------
        ValueError
            If n is not a whole number or is below 0, `among` has another shape or is not symmetric, or no
            pair can be compared.
        """
        n_pairs = 1 if n is None else check_whole("the number of pairs", n, least=0)
        checked = self._checked_among(among) if among is not None and n_pairs else None
        pairs = [self._ask(checked) for _ in range(n_pairs)]
        return pairs[0] if n is None else pairs

    def _ask(self, among: BoolArray | None) -> Pair:
        if not self._tally.everybody:
            present = self.present
            if present.sum() < 2:
                raise ValueError("one policy alone is not compared with anything: add another one")
            both = present & present[:, None] & ~np.eye(present.size, dtype=np.bool_)
            among = both if among is None else among & both
            if not among.any():
                raise ValueError("no two policies that are present can be compared")
        i, j = self._sampler.pick(self._ledger.situation(), self._rng)
        if among is not None and not among[i[0], j[0]]:
            i, j = self._pick_among(among, int(i[0]), int(j[0]))
        self._tally.begin(i, j)
        return int(i[0]), int(j[0])

    def _checked_among(self, among: ArrayLike) -> BoolArray:
        try:
            pairs: BoolArray = np.array(among, dtype=np.bool_)
        except ValueError:
            pairs = np.zeros(0, dtype=np.bool_)  # rows of several lengths
        if pairs.shape != (self.n_policies, self.n_policies) or np.any(pairs != pairs.T):
            raise ValueError(
                f"`among` must be symmetric and of shape {(self.n_policies, self.n_policies)}, true where "
                f"two policies can be compared; got {reprlib.repr(among)}"
            )
        np.fill_diagonal(pairs, False)
        if not pairs.any():
            raise ValueError("no two policies can be compared: `among` is false everywhere")
        return pairs

    def _pick_among(self, among: BoolArray, i: int, j: int) -> Picks:
        """The least compared pair that can be with policy i or j, else of any two: shapes (1,)."""
        near = np.zeros_like(among)
        near[[i, j]] = among[[i, j]]
        rows, columns = np.nonzero(near if near.any() else among)
        load = self._tally.counts[0] + self._tally.in_flight[0]
        place = int(argmax_random(-load[rows, columns], self._rng))
        return rows[place : place + 1], columns[place : place + 1]

    def propensities(self) -> FloatArray | None:
        """Shape (K, K), symmetric: the probability that the next `ask` picks each unordered pair.

        None where the sampler is deterministic given the history but for ties, or its draw has no closed
        form.
        """
        shares = self._sampler.propensities(self._ledger.situation())
        return None if shares is None else np.array(shares[0])

    def tell(self, i: int, j: int, outcome: float | None) -> None:
        """Show policies i and j and record the outcome, before anything else is shown.

        Also for pairs never asked for; one pending comparison of the pair, if there is one, is released.
        Where a pair is shown while the outcome of another one is still to come, use `show` and `end`.

        Parameters
        ----------
        i, j
            The two policies, in either order.
        outcome
            In [0, 1]: 1 where i was preferred, 0 where j was, 0.5 for a tie. None where the pair was shown
            and has no outcome.

        Raises
        ------
        ValueError
            If the pair or the outcome is out of range or no number; nothing is recorded then.
        """
        self._record(*self._checked_pair(i, j), self._checked_outcome(outcome))

    def _record(self, i: int, j: int, outcome: float | None) -> None:
        self._release(i, j)
        told = np.nan if outcome is None else outcome
        self._ledger.record(np.array([i]), np.array([j]), np.array([told], dtype=np.float64))
        self._decision = None

    def _release(self, i: int, j: int) -> None:
        if self._tally.in_flight[0, i, j] > 0:
            self._tally.release(np.array([i]), np.array([j]))

    def show(self, i: int, j: int, showing: int | None = None) -> int:
        """Begin to show a pair, whose outcome comes later, if at all.

        From here on it counts against every claim. The claims hold if the mean outcome is the pair's win
        rate, given all that is known as it begins and the outcomes of the showings that are open then. When
        and whether the outcome comes, and what else is shown meanwhile, may depend on anything.

        Parameters
        ----------
        i, j
            The two policies, in either order.
        showing
            A number for it that is not in use; by default the next one.

        Returns
        -------
        Its number.

        Raises
        ------
        ValueError
            If the pair is out of range, or the number is in use.
        """
        i, j = self._checked_pair(i, j)
        if showing is None:
            showing = max(self._showings, default=-1) + 1
        if check_whole("the number of a showing", showing) in self._showings:
            raise ValueError(f"showing {showing} has begun already")
        bets = self._ledger.show(np.array([i]), np.array([j]))
        self._showings[showing] = Showing(i, j, bets)
        self._decision = None
        return showing

    def end(
        self,
        showing: int,
        outcome: float | None,
        *,
        least: float | None = None,
        most: float | None = None,
    ) -> None:
        """Record the outcome of a showing, or that it ended without one.

        A showing that has ended may end otherwise, as where somebody takes an answer back after the next one.
        The estimates then take the new outcome, and each proof keeps the worse of both.

        Parameters
        ----------
        showing
            Its number.
        outcome
            As for `tell`, of the policy i that it was begun with.
        least, most
            What the outcome may be at least and at most, where a part of it is missing, as of a pair that
            several people judge. By default it is what it is; without an outcome it may be anything.

        Raises
        ------
        ValueError
            If there is no such showing, or a number is out of range.
        """
        known, told = self._known(showing), self._checked_outcome(outcome)
        bounds = NONE
        if told is not None:
            ends = (told if least is None else least), (told if most is None else most)
            if not 0.0 <= ends[0] <= told <= ends[1] <= 1.0:
                raise ValueError(
                    f"0 <= least <= outcome <= most <= 1 must hold, got {outcome}, {least}, {most}"
                )
            bounds = Bounds(*ends)
        before = known.kept if known.bounds.open else known.bounds.ends
        if before is not None:
            least, most = min(before[0], bounds.least), max(before[1], bounds.most)
            bounds = Bounds(least, most, missing=told is None)
        self._turn(known, bounds, told)
        known.n_moves = self._ledger.n_moves

    def reopen(self, showing: int) -> None:
        """Take the end of a showing back: somebody noticed a slip before anything else was answered.

        Where capital has moved since, each proof keeps the worse of this end and the next one.

        Raises
        ------
        ValueError
            If there is no such showing.
        """
        known = self._known(showing)
        if not known.bounds.open and known.n_moves != self._ledger.n_moves:
            known.kept = known.bounds.ends
        self._turn(known, OPEN, None)

    def revise(self, showing: int, outcome: float | None) -> None:
        """Have the estimates take another outcome of a showing, or none. The proofs keep what was told.

        Parameters
        ----------
        showing
            Its number.
        outcome
            As for `tell`.

        Raises
        ------
        ValueError
            If there is no such showing, it has no outcome, or the new one is out of range.
        """
        known, estimate = self._known(showing), self._checked_outcome(outcome)
        if known.outcome is None:
            raise ValueError(f"showing {showing} has no outcome")
        self._leave_out(known, estimate)
        self._decision = None

    def _turn(self, known: Showing, bounds: Bounds, told: float | None) -> None:
        self._leave_out(known, known.outcome)
        if not bounds.open:
            self._release(known.i, known.j)
        self._ledger.turn(
            np.array([known.i]),
            np.array([known.j]),
            known.bets,
            known.bounds,
            bounds,
            outcome=None if told is None else np.array([told]),
            instead_of=None if known.outcome is None else np.array([known.outcome]),
        )
        known.bounds, known.outcome, known.estimate = bounds, told, told
        self._decision = None

    def _leave_out(self, known: Showing, estimate: float | None) -> None:
        """Have the estimates count another outcome of a showing than they do."""
        if estimate == known.estimate:
            return
        left_out = self._ledger.left_out.copy()
        for outcome, direction in ((known.estimate, 1.0), (estimate, -1.0)):
            if outcome is not None:
                left_out[known.i, known.j] += direction * outcome
                left_out[known.j, known.i] += direction * (1.0 - outcome)
        self._ledger.leave_out(left_out)
        known.estimate = estimate

    def showing(self, showing: int) -> dict[str, Any]:
        """A showing as plain data that JSON can hold; see `remember`.

        Raises
        ------
        ValueError
            If there is no such showing.
        """
        return self._known(showing).data()

    def remember(self, showing: int, known: Mapping[str, Any]) -> None:
        """Make a showing known that has ended, so that its end can be changed.

        Parameters
        ----------
        showing
            Its number.
        known
            The value of `showing` since its last change.

        Raises
        ------
        ValueError
            If it does not fit.
        """
        found = Showing.of(known)
        self._checked_pair(found.i, found.j)
        self._showings[check_whole("the number of a showing", showing)] = found

    def _known(self, showing: int) -> Showing:
        if showing not in self._showings:
            raise ValueError(f"there is no showing {showing}: call `show`, or `remember` where it has ended")
        return self._showings[showing]

    def settled_without(self, showings: Iterable[int]) -> bool:
        """True if the claim that stops the experiment would hold if these open showings had never begun.

        Raises
        ------
        ValueError
            If one of them is not open.
        """
        ledger = copy.deepcopy(self._ledger)
        for showing in showings:
            known = self._known(showing)
            if not known.bounds.open:
                raise ValueError(f"showing {showing} is not open")
            ledger.turn(np.array([known.i]), np.array([known.j]), known.bets, known.bounds, None)
        established, none_best = ledger.settled()
        return bool(established[0] or none_best[0])

    def by_answers(self) -> Answers | None:
        """The policy that the claim would name by the answers alone, and how far that may be trusted.

        None where it would name nobody.
        """
        return by_answers(self._ledger)

    def tell_many(self, judgments: Iterable[tuple[int, int, float | None]]) -> None:
        """Record several outcomes in their order; all of them, or none where one is refused.

        Parameters
        ----------
        judgments
            Each (i, j, outcome) as for `tell`.

        Raises
        ------
        ValueError
            If one is no triple, or its pair or its outcome is out of range or no number; the message counts
            from judgment 0.
        """
        checked = []
        for place, (i, j, outcome) in enumerate(checked_triples(judgments)):
            try:
                checked.append((*self._checked_pair(i, j), self._checked_outcome(outcome)))
            except ValueError as error:
                raise ValueError(f"judgment {place}: {error}") from error
        for judgment in checked:
            self._record(*judgment)

    def optimize(self, ask_human: Callable[[int, int], float | None], n: int | None = None) -> Decision:
        """Ask and tell until the design stops, or for at most n comparisons.

        Parameters
        ----------
        ask_human
            Called with the two policies; returns the outcome as for `tell`, None where there is none. If it
            raises, the pair is cancelled.
        n
            Largest number of comparisons, 0 or more; None for no limit.

        Returns
        -------
        The decision after the last comparison.

        Raises
        ------
        ValueError
            If n is not a whole number or is below 0, or an outcome is out of range.
        """
        left = None if n is None else check_whole("the number of comparisons", n, least=0)
        while not (decision := self.decision).stopped and left != 0:
            i, j = self.ask()
            try:
                self.tell(i, j, ask_human(i, j))
            except BaseException:
                self.cancel(i, j)
                raise
            left = None if left is None else left - 1
        return decision

    def drawn_strengths(self) -> FloatArray:
        """Shape (M, K): strengths drawn from their posterior, as `forecast` takes them."""
        return drawn_strengths(self._ledger)

    def ranking(self) -> list[Standing]:
        """Every policy's strength, win rates with intervals, and place, the leader first.

        The intervals hold at once and at any time, with probability at least 1 - δ; in a Bradley-Terry space
        only to second order, and if the model holds. The evidence rules policies out, at risk δ.
        """
        tally, beliefs = self._ledger.estimates()
        n_first = self.n_policies - sum(event["kind"] == "added" for event in self.events)
        expected, low, high = rates(self.space, tally, beliefs, self.delta, n_first)
        standing = self._ledger.favour()[0]
        leader = int(self._ledger.best()[0]) if self.n_comparisons else int(standing.argmax())
        if not self._ledger.settled()[0][0]:
            # The leader is likeliest to be the best by two models, and the rates are expected by one: where
            # they differ, neither is ahead.
            here = self._tally.present[0]
            expected[here, leader] = np.maximum(np.minimum(expected[here, leader], 0.5), low[here, leader])
            expected[leader] = 1.0 - expected[:, leader]
        ruled_out = self._rule.refuted[0]
        order = order_of(expected[:, leader], standing, ~self._tally.present[0], leader)
        log_odds = beliefs.theta[0] - beliefs.theta[0].mean()
        means = [mean_over_rivals(values) for values in (expected, low, high)]
        ranking = []
        for k in order.tolist():
            other = int(order[1]) if k == leader else leader
            place = Place.LEADS if k == leader else Place.RULED_OUT if ruled_out[k] else Place.OPEN
            if not self._tally.present[0, k]:
                place = Place.RETIRED
            ranking.append(
                Standing(
                    policy=k,
                    label=self.labels[k],
                    log_odds=float(log_odds[k]),
                    field=Rate(*(float(mean[k]) for mean in means)),
                    leader=Rate(*(float(values[k, other]) for values in (expected, low, high))),
                    place=place,
                )
            )
        return ranking

    def plot(self, axes: Any = None) -> Any:
        """Draw the ranking: each policy's win rate against the field with its interval. Needs matplotlib.

        Parameters
        ----------
        axes
            Matplotlib axes to draw on; new ones by default.

        Returns
        -------
        The axes.

        Raises
        ------
        ImportError
            If new axes are needed and matplotlib is not installed.
        """
        if axes is None:
            try:
                from matplotlib import pyplot as plt  # noqa: PLC0415
            except ImportError as error:
                raise ImportError("plotting needs matplotlib: pip install matplotlib") from error
            axes = plt.figure().add_subplot()
        ranking = self.ranking()[::-1]
        for height, row in enumerate(ranking):
            below, above = row.field.estimate - row.field.low, row.field.high - row.field.estimate
            faint = 0.4 if row.place is Place.RULED_OUT else 1.0
            axes.errorbar(
                row.field.estimate, height, xerr=[[below], [above]], fmt="o", color="tab:blue", alpha=faint
            )
        axes.axvline(0.5, color="grey", linewidth=0.8)
        axes.set_yticks(range(len(ranking)), [row.label for row in ranking])
        axes.set_xlabel("win rate against the other policies")
        axes.set_title(self._progress_in_words(), fontsize="small", wrap=True)
        return axes

    def __repr__(self) -> str:
        rule = f"claim {self.claim.value!r}" if self.stopping == "certified" else f"stop {self.stopping!r}"
        return (
            f"<Design of {self.n_policies} policies, {rule} at δ={self.delta:g}: {self._progress_in_words()}>"
        )

    def _progress_in_words(self) -> str:
        decision = self.decision
        if not self.n_comparisons:
            return "nothing compared yet"
        state = f"stopped ({decision.reason})" if decision.stopped else f"{len(decision.open)} open"
        named = decision.reason is StopReason.CERTIFIED and decision.claim is not None
        verb = "is named" if named else "leads"
        leader = "no leader" if decision.best is None else f"{self.labels[decision.best]!r} {verb}"
        return f"{self.n_comparisons:,} compared, {leader}, {state}"

    def resume(self, in_flight: ArrayLike, seed: Seed) -> None:
        """Go on asking with other comparisons under way, as a design rebuilt from the same counts would.

        Parameters
        ----------
        in_flight
            Shape (K, K), symmetric: the comparisons under way now.
        seed
            Anything `numpy.random.default_rng` takes.

        Raises
        ------
        ValueError
            If `in_flight` is not a symmetric matrix of whole numbers.
        """
        self._tally.set_in_flight(checked_in_flight(in_flight, self.n_policies))
        self._rng = np.random.default_rng(seed)
        self._sampler = build_sampler(self.sampler)

    def cancel(self, i: int, j: int) -> None:
        """Release one pending comparison of i and j that will never be judged.

        Parameters
        ----------
        i, j
            The two policies, in either order.

        Raises
        ------
        ValueError
            If none is pending, or the pair is out of range.
        """
        i, j = self._checked_pair(i, j)
        if self._tally.in_flight[0, i, j] == 0:
            raise ValueError(f"no comparison of {i} and {j} is under way")
        self._tally.release(np.array([i]), np.array([j]))

    @property
    def n_policies(self) -> int:
        """Number of policies K."""
        return self.space.n_policies

    @property
    def n_comparisons(self) -> int:
        """Number of comparisons judged."""
        return int(self._tally.n_comparisons[0])

    @property
    def n_shown(self) -> int:
        """Number of showings begun: judged, open, or without an outcome."""
        others = self._tally.open[0] + self._tally.missing[0]
        return self.n_comparisons + int(others.sum() / 2.0)

    @property
    def present(self) -> BoolArray:
        """Shape (K,): whether each policy is present. A copy."""
        return np.array(self._tally.present[0])

    @property
    def counts(self) -> FloatArray:
        """Shape (K, K): comparisons judged, per pair, also those that estimates leave out. A copy."""
        return np.array(self._tally.counts[0])

    @property
    def wins(self) -> FloatArray:
        """Shape (K, K): `wins[i, j]` is the summed outcome of i against j, also of what estimates leave out.

        A copy.
        """
        return np.array(self._tally.wins[0])

    @property
    def in_flight(self) -> IntArray:
        """Shape (K, K): comparisons under way, per pair. A copy."""
        return np.array(self._tally.in_flight[0])

    @property
    def open_showings(self) -> list[int]:
        """The numbers of the showings whose outcome may still come."""
        return [number for number, known in self._showings.items() if known.bounds.open]

    @property
    def n_missing(self) -> int:
        """Number of showings that ended without an outcome."""
        return int(self._tally.missing[0].sum() / 2.0)

    @property
    def win_rate(self) -> FloatArray:
        """Shape (K, K): μ̂, the mean outcome of i against j; NaN where they were never compared."""
        tally, _ = self._ledger.estimates()
        wins, counts = tally.wins[0], tally.counts[0]
        rate: FloatArray = np.divide(wins, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
        return rate

    @property
    def evidence(self) -> FloatArray:
        """Shape (K,): current log evidence (nats) against each policy's being the best. A copy."""
        return np.array(self._rule.evidence[0])

    @property
    def peak_evidence(self) -> FloatArray:
        """Shape (K,): the largest log evidence (nats) so far; store it beside the counts. A copy."""
        return np.array(self._rule.peak_evidence[0])

    @property
    def progress(self) -> dict[str, Any]:
        """The state that the wins do not tell, as plain data that JSON can hold; see `from_counts`.

        The largest evidence so far, the state of the streams and of proofs whose capital moves, what proofs
        count beside the answers, what estimates leave out, showings that are open, the policies that claims
        have named, and who joined and retired.
        """
        open_ones = {number: self._showings[number] for number in self.open_showings}
        left_out = self._ledger.left_out
        lived: dict[str, Any] = {}
        if self.events:
            lived["lived"] = {
                "absent": np.flatnonzero(~self.present).tolist(),
                "events": [dict(event) for event in self.events],
                "conclusions": [asdict(each) for each in self._concluded],
                "withheld": self.withheld,
            }
        return lived | {
            "peak_evidence": self.peak_evidence.tolist(),
            "named": self.named,
            "streams": self._ledger.memory(),
            "showings": _listed(open_ones),
            "left_out": [[int(i), int(j), float(left_out[i, j])] for i, j in np.argwhere(left_out)],
        }

    @property
    def named(self) -> dict[str, int]:
        """The policies that claims have named so far, by the claim's value; a name once given stays."""
        named = {claim: proof.named[0] for claim, proof in self._ledger.proofs.items()}
        named[Claim.BEST_IF_ANY] = self._ledger.named_if_any[0]
        return {claim.value: int(policy) for claim, policy in named.items() if policy != NOBODY}

    def proves(self, claim: Claim, policy: int) -> bool:
        """Whether the present evidence establishes a claim head to head about a policy, whoever was named.

        Of two policies with a margin both may lose to the other by less.
        """
        proof = self._ledger.proofs.get(claim)
        return proof is not None and not proof.rivals(0, policy).size

    @property
    def stopped(self) -> bool:
        """`decision.stopped`, without the rest of the decision, which takes longer.

        Without a claim, outcomes that are told after the end can undo it: the policy that is left must lead
        each other one in the present data, and late losses may end that.
        """
        return self._verdict.reason is not None

    @property
    def decision(self) -> Decision:
        """The decision that the comparisons so far allow."""
        if self._decision is None:
            self._decision = self._verdict.decision()
        return self._decision

    @property
    def remaining(self) -> Remaining | None:
        """The comparisons that the decision still takes; None once stopped, and while too little is known or
        claims are withheld.

        The budget is not looked at. It takes some milliseconds.
        """
        return None if self.stopped or self.withheld else expected_remaining(self._ledger)

    @property
    def stage(self) -> int:
        """The number of the stage, from 1; see `add`."""
        return self._ledger.stage()

    @property
    def for_ever(self) -> bool:
        """Whether all that the design ever concludes errs with probability at most δ together; see `add`."""
        return self._verdict.for_ever

    @property
    def _verdict(self) -> Verdict:
        return Verdict(self._ledger, self.delta, self.budget, self.strict, self._concluded, self.withheld)

    def _checked_outcome(self, outcome: float | None) -> float | None:
        if outcome is None:
            return None
        checked = check_real("outcome", outcome)
        if not 0.0 <= checked <= 1.0:
            raise ValueError(
                "outcome must lie in [0, 1] (1: i preferred, 0: j preferred, 0.5: a tie) or be None, got "
                f"{outcome}"
            )
        return checked

    def _checked_pair(self, i: int, j: int) -> Pair:
        K = self.n_policies
        i, j = check_whole("policy i", i), check_whole("policy j", j)
        if not (0 <= i < K and 0 <= j < K):
            raise ValueError(f"policies are numbered 0 to {K - 1}, got the pair ({i}, {j})")
        if i == j:
            raise ValueError(f"a policy is not compared with itself, got the pair ({i}, {j})")
        return i, j


def _listed(showings: Mapping[int, Showing]) -> list[list[Any]]:
    return [[number, known.data()] for number, known in showings.items()]
