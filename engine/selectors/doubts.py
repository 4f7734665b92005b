"""Reasons to doubt a result, in words, and what has no outcome: by person, by policy and by reason."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from django.db.models import Count, Q

from engine.core.doubts import Examined, Found, Kind, Showings, examine
from engine.domain.wording import number
from engine.models import Assignment, Experiment, Flag, Judgment, Response, User
from engine.selectors import missing, pools
from engine.selectors.annotators import could_see_policies
from engine.selectors.counts import standing_judgments
from engine.selectors.missing import Tally
from engine.selectors.people import accounts_of_one_browser
from engine.selectors.policies import policy_names
from engine.selectors.snapshots import latest_snapshot

# Sentences of one kind, the most telling first: more would not be read.
_MOST = 3


@dataclass(frozen=True)
class Doubt:
    """A reason to doubt a result.

    ``text`` names people; ``unnamed`` is for those who are not to know them. ``place``: where on the tab
    Quality the figures are.
    """

    text: str
    unnamed: str
    place: str = "found-title"


@dataclass(frozen=True)
class Lost:
    """All that came of the pairs with one policy, and of its responses.

    Attributes
    ----------
    name
        The policy's.
    pairs
        Those that people were given.
    texts, failed
        Responses that were asked for, and those that failed or that a guardrail replaced.
    tasks, n_tasks
        Tasks that the policy was to answer, and how many of them have no answer.
    """

    name: str
    pairs: Tally
    texts: int
    failed: int
    tasks: int
    n_tasks: int


@dataclass(frozen=True)
class Doubts:
    """The doubts about an experiment, and the figures behind them.

    Attributes
    ----------
    n_tests
        Exact tests that were made.
    people
        What came of the pairs of each person, by user name.
    reasons
        Why there is no outcome, and how often.
    """

    found: list[Doubt]
    n_tests: int
    people: dict[str, Tally]
    policies: list[Lost]
    reasons: list[tuple[str, int]]

    @property
    def n_missing(self) -> int:
        """Number of all that has no outcome."""
        return sum(n for _, n in self.reasons)


@dataclass(frozen=True)
class _Texts:
    """Responses that were asked for: policy and task of each, and whether there is none."""

    policy: npt.NDArray[np.int64]
    task: npt.NDArray[np.int64]
    failed: npt.NDArray[np.bool_]


def doubts(experiment: Experiment) -> Doubts:
    """The doubts about an experiment as it stands."""
    rows = _shown(experiment)
    people = _names({row[0] for row in rows})
    place = {pk: index for index, pk in enumerate(people)}
    shown = Showings(
        person=np.array([place[row[0]] for row in rows], dtype=np.int64),
        i=np.array([row[1] for row in rows], dtype=np.int64),
        j=np.array([row[2] for row in rows], dtype=np.int64),
        outcome=np.array([row[3] for row in rows], dtype=np.float64),
    )
    texts = _texts(experiment)
    names = [name.name for name in policy_names(experiment)]
    tested = examine(shown, len(names), _leader(experiment), (texts.policy, texts.failed))
    by_person, by_policy = missing.by_person(experiment), missing.by_policy(experiment)
    lost = [_lost(name, index, by_policy.get(index, Tally()), texts) for index, name in enumerate(names)]
    return Doubts(
        found=[
            *_in_words(tested, list(people.values()), names, lost),
            *_seeing(experiment),
            *_telling(experiment),
            *_one_browser(experiment),
        ],
        n_tests=tested.n_tests,
        people=by_person,
        policies=lost,
        reasons=_reasons(sum(by_person.values(), Tally()), int(texts.failed.sum())),
    )


def _reasons(pairs: Tally, n_failed: int) -> list[tuple[str, int]]:
    labels = dict(Flag.Reason.choices)
    reasons = {
        **{f"Skipped, “{labels.get(reason, reason)}”": n for reason, n in pairs.reasons.most_common()},
        "Skipped without a reason": pairs.skipped - pairs.reasons.total(),
        "Left open": pairs.left,
        "Response failed, or a guardrail replaced it": n_failed,
    }
    return [(reason, n) for reason, n in reasons.items() if n > 0]


def _shown(experiment: Experiment) -> list[tuple[int, int, int, float]]:
    """Person, policies and outcome of what people were given: answers in their order, then what they left."""
    answers = standing_judgments(experiment.pk).filter(judge=Judgment.Judge.HUMAN, annotator__isnull=False)
    pair = ("annotator_id", "comparison__policy_i__index", "comparison__policy_j__index")
    left = Assignment.objects.filter(missing.let_go(), comparison__experiment=experiment)
    return [
        *answers.order_by("pk").values_list(*pair, "outcome"),
        *((*row, np.nan) for row in left.values_list(*pair)),
    ]


def _names(people: Iterable[int]) -> dict[int, str]:
    return dict(User.objects.filter(pk__in=people).order_by("username").values_list("pk", "username"))


def _leader(experiment: Experiment) -> int | None:
    if experiment.winner is not None:
        return experiment.winner.index
    snapshot = latest_snapshot(experiment)
    return None if snapshot is None or snapshot.best is None else snapshot.best.index


def _texts(experiment: Experiment) -> _Texts:
    """Responses that were written or failed; a guardrail's replacement is no response."""
    asked = Response.objects.filter(policy__experiment=experiment, trial=None).filter(
        Q(state=Response.State.DONE) | Q(state=Response.State.FAILED, attempts__gt=0)
    )
    rows = list(asked.values_list("policy__index", "task_id", "state", "guardrail"))
    return _Texts(
        policy=np.array([row[0] for row in rows], dtype=np.int64),
        task=np.array([row[1] for row in rows], dtype=np.int64),
        failed=np.array([row[2] == Response.State.FAILED or row[3] != "" for row in rows], dtype=np.bool_),
    )


def _lost(name: str, index: int, pairs: Tally, texts: _Texts) -> Lost:
    own = texts.policy == index
    tasks = set(texts.task[own].tolist())
    return Lost(
        name=name,
        pairs=pairs,
        texts=int(own.sum()),
        failed=int(texts.failed[own].sum()),
        tasks=len(tasks),
        n_tasks=len(tasks - set(texts.task[own & ~texts.failed].tolist())),
    )


def _in_words(
    tested: Examined, people: Sequence[str], policies: Sequence[str], lost: Sequence[Lost]
) -> list[Doubt]:
    """The least likely finding for each person and kind, and over time, as sentences."""
    said: dict[tuple[Kind, int | None], Doubt] = {}
    n_said: Counter[Kind] = Counter()
    for each in tested.found:
        # Who leaves pairs of a policy has answered fewer of them, which is no second finding.
        again = each.kind is Kind.SERVED and (Kind.LEFT, each.person) in said
        about = each.policy if each.kind is Kind.FAILED else each.person
        if again or (each.kind, about) in said or n_said[each.kind] == _MOST:
            continue
        n_said[each.kind] += 1
        who = "" if each.person is None else people[each.person]
        said[each.kind, about] = Doubt(
            text=_sentence(each, who, policies, lost),
            unnamed=_sentence(each, "One person", policies, lost),
            place="missing-title" if each.kind in {Kind.LEFT, Kind.FAILED} else "found-title",
        )
    return list(said.values())


def _sentence(found: Found, who: str, policies: Sequence[str], lost: Sequence[Lost]) -> str:
    name = "" if found.policy is None else policies[found.policy]
    these, others = f"{found.hits:,} of {found.n:,}", f"{found.other_hits:,} of {found.other_n:,}"
    match found.kind:
        case Kind.LEFT if found.person is None:
            return f"{these} pairs with {name} were left without an answer, and {others} other pairs."
        case Kind.LEFT:
            return f"{who} left {these} pairs with {name} without an answer, and {others} other pairs."
        case Kind.FAILED:
            on = lost[found.policy or 0]
            lacks = (
                f" Its answers are missing on {on.n_tasks:,} of {number(on.tasks, 'task')}."
                if on.n_tasks
                else ""
            )
            return f"{these} responses of {name} failed, and {others} of the other policies.{lacks}"
        case Kind.EARLY:
            return f"{name} won {these} comparisons in the first half of the answers, {others} in the second."
        case Kind.PERSON:
            return f"{who} preferred the leader in {these} comparisons, everybody else in {others}."
        case Kind.SERVED:
            return f"{who} judged other pairs than the rest: {these} with {name}, of theirs {others}."


def _seeing(experiment: Experiment) -> list[Doubt]:
    """The sentence where people judged who may see which policy wrote what."""
    seeing = could_see_policies(experiment)
    if not seeing:
        return []
    votes = standing_judgments(experiment.pk).exclude(via__in=Judgment.UNSEEN).count()
    were = "was" if seeing == 1 else "were"
    said = (
        f"{seeing:,} of {number(votes, 'vote')} {were} given by people who may see which policy wrote what."
    )
    return [Doubt(said, said, "people-title")]


def _telling(experiment: Experiment) -> list[Doubt]:
    """A sentence where pairs were shown whose two texts their annotator had not seen equally often."""
    if not pools.is_finite(experiment):
        return []
    shown = pools.shown_by_familiarity(experiment)
    if not (told := shown[pools.Familiarity.UNEQUALLY_SEEN]):
        return []
    text = (
        f"{told:,} of {number(shown.total(), 'pair')} came with one text that the person had seen more often "
        "than the other. Mostly this is the leader’s, so these votes may follow the leader."
    )
    return [Doubt(text, text)]


def _one_browser(experiment: Experiment) -> list[Doubt]:
    """A sentence for each browser in which several of the people have logged in."""
    judgments = dict(
        standing_judgments(experiment.pk)
        .exclude(annotator=None)
        .order_by()
        .values_list("annotator")
        .annotate(n=Count("pk"))
    )
    n_all = sum(judgments.values())
    found = []
    for accounts in accounts_of_one_browser(experiment):
        gave = sum(judgments.get(user.pk, 0) for user in accounts)
        if gave:
            names = ", ".join(user.get_username() for user in accounts)
            said = f"used one browser and gave {gave:,} of {number(n_all, 'vote')}. They may be one person."
            several = f"{len(accounts):,} accounts"
            found.append(Doubt(f"{several} ({names}) {said}", f"{several} {said}", "people-title"))
    return found
