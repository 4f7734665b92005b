"""All that happens to one showing of a pair, as events for the log that all evidence is folded from.

A *showing* begins when somebody is given a comparison, and is open until its outcome is there. It is one
showing with one joint outcome also where several people judge it.

The proofs need bounds of the outcome that nobody could choose by looking at other outcomes:

* Whoever skips may have done so because of what they would have said: all of [0, 1] is possible.
* An answer taken back before one's next answer was a slip, and leaves no trace.
* One taken back later widens the bounds: each proof has the worse of that answer and the new one.
* An answer that somebody else voids was still given: the proofs keep it, and the estimates leave it out.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from engine.core import Design, Factorial
from engine.domain.outcome_of_answers import joint_outcome


class Kind(StrEnum):
    """The kinds of events; `engine.core.Design` has a method for each."""

    BEGUN = "begun"
    TOLD = "told"
    REOPENED = "reopened"
    REVISED = "revised"
    # Of policies.
    JOINED = "joined"
    RETIRED = "retired"
    # Of neither.
    STAGE = "stage"
    WITHHELD = "withheld"
    ALLOWED = "allowed"


class Phase(StrEnum):
    """The point where a showing stands."""

    NONE = ""
    OPEN = "open"
    TOLD = "told"


class Fate(StrEnum):
    """The fate of an answer."""

    STANDS = "stands"
    SLIP = "slip"
    TAKEN_BACK = "taken_back"
    VOIDED = "voided"


class Event(NamedTuple):
    """A row of the log: D of policy i in [0, 1] or ``None``, and the bounds of D for the proofs."""

    kind: Kind
    outcome: float | None = None
    least: float | None = None
    most: float | None = None


class Logged(NamedTuple):
    """A row of the log with the indices of its two policies; ``row`` is its key.

    Where a policy joins or retires: ``policy`` is its key, ``comparison`` 0, ``i`` its index, and ``j`` that
    of the policy that it was made from. ``levels``: those of one that joins. Where a stage begins, or claims
    are withheld or allowed, ``policy`` is `None` and ``i`` and ``j`` are 0 too.
    """

    row: int
    comparison: int
    i: int
    j: int
    kind: str
    outcome: float | None
    least: float | None
    most: float | None
    policy: int | None = None
    levels: tuple[str, ...] = ()


class Answer(NamedTuple):
    """One answer to a comparison: whose, D in [0, 1], and what became of it."""

    person: Hashable
    outcome: float
    fate: Fate


@dataclass(frozen=True)
class Showing:
    """A showing: ``outcome`` for the estimates, ``least`` and ``most`` for the proofs.

    While it is open, the bounds of an answer that was taken back late; else `None`.
    """

    phase: Phase = Phase.NONE
    outcome: float | None = None
    least: float | None = None
    most: float | None = None
    # D as it was given, voided answers included.
    given: float | None = field(default=None, compare=False)


def showing_of(answers: Sequence[Answer], *, needed: int, skips: int, rule: str) -> Showing:
    """The showing that these answers make, in the order in which they were given.

    Parameters
    ----------
    needed
        How many people are to judge the comparison.
    skips
        How many of them have let it go.
    rule
        How several answers make one outcome, see `joint_outcome`.
    """
    lows: dict[Hashable, float] = {}
    highs: dict[Hashable, float] = {}
    latest: dict[Hashable, Answer] = {}
    for answer in answers:
        latest[answer.person] = answer
        if answer.fate is not Fate.SLIP:
            lows[answer.person] = min(answer.outcome, lows.get(answer.person, 1.0))
            highs[answer.person] = max(answer.outcome, highs.get(answer.person, 0.0))
    done = [person for person, answer in latest.items() if answer.fate in {Fate.STANDS, Fate.VOIDED}]
    lacking = needed - len(done)
    if lacking > skips:
        return Showing(Phase.OPEN, None, *_of_one(lows, highs, needed))
    standing = [answer.outcome for answer in latest.values() if answer.fate is Fate.STANDS]
    # For the estimates, who is lacking is for neither policy. So the mean of four is never made of thirds,
    # which would not add up exactly.
    given = [*(latest[person].outcome for person in done), *[0.5] * lacking]
    return Showing(
        Phase.TOLD,
        joint_outcome([*standing, *[0.5] * (needed - len(standing))], rule) if standing else None,
        joint_outcome([*(lows[person] for person in done), *[0.0] * lacking], rule),
        joint_outcome([*(highs[person] for person in done), *[1.0] * lacking], rule),
        joint_outcome(given, rule) if done else None,
    )


def _of_one(
    lows: dict[Hashable, float], highs: dict[Hashable, float], needed: int
) -> tuple[float | None, float | None]:
    """The bounds that an open showing of one person carries to its end."""
    return (min(lows.values()), max(highs.values())) if needed == 1 and lows else (None, None)


def events(before: Showing, after: Showing) -> list[Event]:
    """The events that lead from one state of a showing to the next."""
    found: list[Event] = []
    if before.phase is Phase.NONE and after.phase is not Phase.NONE:
        found.append(Event(Kind.BEGUN))
    said = before.outcome
    if after.phase is Phase.TOLD and before.phase is not Phase.TOLD:
        said = after.given
        found.append(Event(Kind.TOLD, said, after.least, after.most))
    elif before.phase is Phase.TOLD and after.phase is Phase.OPEN:
        found.append(Event(Kind.REOPENED))
    if after.phase is Phase.TOLD and said != after.outcome:
        found.append(Event(Kind.REVISED, after.outcome))
    return found


def follow(design: Design, event: Logged) -> None:
    """Have a design go through an event."""
    if event.kind == Kind.BEGUN:
        design.show(event.i, event.j, showing=event.comparison)
    elif event.kind == Kind.TOLD:
        design.end(event.comparison, event.outcome, least=event.least, most=event.most)
    elif event.kind == Kind.REOPENED:
        design.reopen(event.comparison)
    elif event.kind == Kind.REVISED:
        design.revise(event.comparison, event.outcome)
    elif event.kind == Kind.JOINED:
        design.add(parent=event.j, row=event.levels if isinstance(design.space, Factorial) else None)
    elif event.kind == Kind.STAGE:
        design.begin_stage()
    elif event.kind == Kind.WITHHELD:
        design.withhold_claims()
    elif event.kind == Kind.ALLOWED:
        design.allow_claims()
    else:
        design.retire(event.i)
