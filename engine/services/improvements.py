"""Improvements: a writer proposes new texts, people choose among them, and the best meets the original."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from scipy.special import expit

from engine.core import Improvement as Race
from engine.domain import secret_draws
from engine.domain.errors import SpecError, WrongStateError
from engine.domain.improvement_sentences import dropped_because, percent
from engine.domain.policy_space import code_of
from engine.domain.proposals import fault_of, is_answer, is_worse, longest_for
from engine.domain.showings import Kind
from engine.models import (
    Assignment,
    AuditEntry,
    Comparison,
    Connection,
    Evidence,
    Experiment,
    Improvement,
    Policy,
    Proposal,
    Response,
    ShowingEvent,
    Subscription,
    User,
    Writing,
    clock,
)
from engine.selectors import counts
from engine.selectors import improvements as selectors
from engine.selectors.policies import policy_names
from engine.selectors.spending import overspent_experiments
from engine.selectors.task_changes import tasks_present
from engine.selectors.writing import SCREENING_TAKES, WRITING_TAKES, screens, with_all
from engine.services.audit import record
from engine.services.descriptions import faults_in
from engine.services.evidence import settle as settle_evidence
from engine.services.experiments import discard_waiting
from engine.services.locks import locked_experiment
from engine.services.notifications import announce
from engine.services.policies import join, parent_of, retire
from engine.services.setting_changes import change_settings, run_again
from engine.services.task_changes import divide

_FEWEST_TASKS = 4
_MOST_POINTS = 100
# So many calls in a row without a text that can be used: the writer has no more to give.
_MOST_IN_VAIN = 5


# ---------------------------------------------------------------- starting and stopping


@transaction.atomic
def start_improvement(
    *, experiment_id: int, factor: str = "", original: int | None = None, by: User | None = None, **given: Any
) -> Improvement:
    """Begin to improve a policy of an experiment that has started; a concluded or paused one runs again.

    The budget grows where too little is left of it.

    Parameters
    ----------
    factor
        The name of the factor whose text is written anew; by default the first that has one.
    original
        Index of the policy to improve; by default the winner, or who leads.
    given
        ``clicks``, ``delta``, ``wish``, ``needs_ok``, ``longest``, ``writer``, ``connection``.

    Raises
    ------
    SpecError
        Says what is unusable.
    WrongStateError
        It has not started, is in the archive, makes no claim, or an improvement is running.
    """
    experiment = locked_experiment(experiment_id)
    policy = parent_of(experiment, original)
    if selectors.open_improvement(experiment):
        raise WrongStateError("An improvement is running already.")
    if (asked := given.get("connection")) and not Connection.objects.usable_by(experiment).filter(
        name=asked
    ).exists():
        raise SpecError(
            f"This experiment may not use the connection {asked!r}. Its owner lends it on the page Models, "
            "or chooses it on the page Improve.",
            ("connection",),
        )
    if experiment.responses == Experiment.Responses.IMPORTED:
        raise WrongStateError("Responses are ready-made here, so nothing could answer with a new text.")
    texts = [each for each in experiment.factors.order_by("position") if each.kind in selectors.TEXTS]
    changed = next((each for each in texts if factor in {"", each.name}), None)
    if changed is None:
        names = ", ".join(repr(each.name) for each in texts) or "none"
        raise SpecError(f"There is no factor {factor!r} with a text. There is: {names}.", ("factor",))
    n_tasks, open_tasks = tasks_present(experiment).count(), _divided(experiment)
    if n_tasks < _FEWEST_TASKS or n_tasks - len(open_tasks) < selectors.FEWEST_JUDGING:
        raise SpecError(
            f"Half of the tasks judge what was written from the others: give {_FEWEST_TASKS}, of which no "
            f"writer has seen votes on {selectors.FEWEST_JUDGING}."
        )
    was_running, last = _run(experiment)
    improvement = Improvement(
        experiment=experiment,
        original=policy,
        champion=policy,
        factor=changed,
        seed=secret_draws.new_seed(),
        open_tasks=open_tasks,
        was_running=was_running,
        first=last,
        by=by,
        **{"longest": longest_for(selectors.text_of(policy, changed))} | given,
    )
    try:
        improvement.clean_fields(exclude={each.name for each in Improvement._meta.fields} - given.keys())
    except ValidationError as error:
        raise SpecError(faults_in(error)) from error
    improvement.save()
    _begin(improvement, selectors.race_of(improvement), improvement.clicks, by)
    details = {
        "original": policy_names(experiment)[policy.index].name,
        "factor": changed.name,
        "clicks": improvement.clicks,
        "delta": improvement.delta,
        "wish": improvement.wish,
        "writer": improvement.writer,
        "needs_ok": improvement.needs_ok,
    }
    record(experiment=experiment, by=by, action=AuditEntry.Action.IMPROVE, details=details)
    return improvement


@transaction.atomic
def go_on_improving(*, improvement_id: int, clicks: int, by: User | None = None) -> Improvement:
    """Look for something better still than the champion of an improvement that has ended.

    The claim is about its original, and its risk is that of the whole improvement.

    Raises
    ------
    WrongStateError
        It cannot; see `why_not_go_on`.
    """
    improvement = _locked(improvement_id)
    experiment = improvement.experiment
    if reason := why_not_go_on(improvement):
        raise WrongStateError(reason)
    end = improvement.ended_at
    improvement.was_running, last = _run(experiment)
    improvement.state, improvement.phase = Improvement.State.OPEN, Improvement.Phase.EXPLORE
    improvement.last = improvement.ended_at = None
    improvement.exhausted = False
    improvement.save()
    race = selectors.race_of(improvement)
    others = experiment.tasks.exclude(pk__in=improvement.open_tasks)
    joined = others.filter(left_at=None, joined_at__gte=end)
    divide(improvement, list(joined), all_open=race.counts_on)
    more = clicks - (race.clicks - race.used)
    improvement.turns.append([last, more])
    improvement.clicks += more
    race.go_on(more)
    _begin(improvement, race, clicks, by)
    details = {"clicks": clicks, "champion": policy_names(experiment)[improvement.champion.index].name}
    _log(improvement, AuditEntry.Action.GO_ON, by, details)
    return improvement


def why_not_go_on(improvement: Improvement) -> str:
    """The reason why an improvement cannot go on; empty if it can."""
    experiment, end = improvement.experiment, improvement.ended_at
    if improvement.state == Improvement.State.OPEN:
        return "This improvement runs."
    try:
        parent_of(experiment)
    except WrongStateError as wrong:
        return str(wrong)
    if improvement != selectors.newest_improvement(experiment):
        return "Another improvement began after this one."
    for role, policy in (("champion", improvement.champion), ("original", improvement.original)):
        if policy.retired_at:
            return f"Its {role} has retired. Start another improvement."
    judged = experiment.tasks.exclude(pk__in=improvement.open_tasks)
    gone = judged.filter(left_at__gte=end).exclude(joined_at__gte=end)
    if gone.exists() and selectors.race_of(improvement).counts_on:
        return (
            "A task that judged was left out, and what was counted for the champion is about that one too. "
            "Start another improvement."
        )
    return ""


def _run(experiment: Experiment) -> tuple[bool, int]:
    """Have a locked experiment run and withhold its own claims; whether it ran, and the number of its last
    event.
    """
    was_running = experiment.state == Experiment.State.RUNNING
    if experiment.state == Experiment.State.CONCLUDED:
        run_again(experiment=experiment)
    experiment.state, experiment.closing_since = Experiment.State.RUNNING, None
    experiment.save(update_fields=["state", "closing_since"])
    ShowingEvent.objects.create(experiment=experiment, kind=Kind.WITHHELD)
    return was_running, settle_evidence(experiment=experiment).last


def _begin(improvement: Improvement, race: Race, clicks: int, by: User | None) -> None:
    """Have a locked experiment compare for this race alone from here on, so many clicks long."""
    experiment = improvement.experiment
    discard_waiting(experiment, "An improvement began before this comparison was shown.")
    needed = counts.comparison_count(experiment.pk) + clicks
    if experiment.budget < needed:
        change_settings(experiment_id=experiment.pk, by=by, budget=needed)
    improvement.verdict = selectors.verdict_of(improvement, race)
    improvement.save(update_fields=["clicks", "turns", "verdict"])
    _keep_wants(improvement, race)


def _divided(experiment: Experiment) -> list[int]:
    """The tasks that are open to writers: half of them, by the secret. Those that one has seen stay open."""
    seen = selectors.seen_tasks(experiment)
    tasks = tasks_present(experiment).values_list("pk", "position")
    by_lot = sorted((secret_draws.open_task(experiment.secret, position), pk) for pk, position in tasks)
    in_order = sorted((pk for _, pk in by_lot), key=lambda pk: pk not in seen)
    return in_order[: max(len(seen & set(in_order)), len(in_order) // 2)]


@transaction.atomic
def stop_improvement(*, improvement_id: int, by: User | None = None) -> Improvement:
    """End an improvement now, with what is established by now.

    Raises
    ------
    WrongStateError
        It has ended.
    """
    improvement = _locked_open(improvement_id)
    experiment = improvement.experiment
    settle_evidence(experiment=experiment)
    race = selectors.race_of(improvement)
    _note_moves(improvement, race)
    _end(improvement, race, Improvement.State.STOPPED, by)
    return improvement


@transaction.atomic
def fix_champion(*, improvement_id: int, by: User | None = None) -> Improvement:
    """Look for better texts no longer: from here on the champion meets the original.

    Its owner chooses when, whatever they have seen: the claim counts what begins afterwards.

    Raises
    ------
    WrongStateError
        It has ended, or its champion is fixed already.
    """
    improvement = _locked_open(improvement_id)
    last = settle_evidence(experiment=improvement.experiment).last
    race = selectors.race_of(improvement)
    if race.phase != "explore":
        raise WrongStateError("The champion is fixed already.")
    improvement.turns.append([last, None])
    race.certify()
    _note_moves(improvement, race, by)
    _keep_wants(improvement, race)
    _log(improvement, AuditEntry.Action.FIX_CHAMPION, by, {"used": improvement.used})
    return improvement


def _locked(improvement_id: int) -> Improvement:
    """An improvement, with its experiment locked."""
    experiment_id = Improvement.objects.values_list("experiment", flat=True).get(pk=improvement_id)
    experiment = locked_experiment(experiment_id)
    improvement = Improvement.objects.select_related("original", "champion", "factor").get(pk=improvement_id)
    improvement.experiment = experiment
    return improvement


def _locked_open(improvement_id: int) -> Improvement:
    """The same, if it is open."""
    improvement = _locked(improvement_id)
    if improvement.state != Improvement.State.OPEN:
        raise WrongStateError("This improvement has ended.")
    return improvement


# ---------------------------------------------------------------- proposals


@transaction.atomic
def claim_writing(*, improvement_id: int) -> dict[int, int] | None:
    """How many texts to write now, by the index of their parent, for one caller at a time.

    ``None`` where nothing is wanted, somebody writes already, or the limit of money is reached. The claim
    ends with `add_proposals` or `note_writer_failure`.
    """
    improvement = Improvement.objects.select_for_update(no_key=True).get(pk=improvement_id)
    taken = improvement.writing_since and improvement.writing_since > clock.now() - WRITING_TAKES
    if improvement.state != Improvement.State.OPEN or taken or not improvement.wants:
        return None
    if improvement.experiment_id in overspent_experiments():
        return None
    improvement.writing_since = clock.now()
    improvement.save(update_fields=["writing_since"])
    return {int(parent): n for parent, n in improvement.wants.items()}


@transaction.atomic
def add_proposals(
    *,
    improvement_id: int,
    parent: int,
    written: Sequence[tuple[str, str]],
    sent: str = "",
    gave: str = "",
    opened: Collection[int] = (),
) -> list[Proposal]:
    """Store the texts that a writer gave, each with its reason; unusable ones as refused.

    Without a need for an OK they join at once.

    Parameters
    ----------
    parent
        Index of the policy that they are made from.
    sent, gave
        The exchange with the writer, in full.
    opened
        Numbers of the tasks of which it saw votes.

    Raises
    ------
    WrongStateError
        The improvement has ended.
    """
    improvement = _locked_open(improvement_id)
    experiment = improvement.experiment
    origin = experiment.policies.get(index=parent)
    writing = _write_down(improvement, origin, sent=sent, gave=gave, opened=opened)
    number = Proposal.objects.filter(improvement__experiment=experiment).count()
    found, screened = [], screens(experiment)
    for text, reason in written:
        number += 1
        proposal = Proposal.objects.create(
            improvement=improvement, writing=writing, number=number, parent=origin, text=text, reason=reason
        )
        found.append(proposal)
        if improvement.phase != Improvement.Phase.EXPLORE:
            _refuse(proposal, "It came when the champion was fixed already.")
        elif fault := _fault(improvement, proposal, text):
            _refuse(proposal, fault)
        elif not improvement.needs_ok and not screened:
            _let_in(improvement, proposal)
    if _in_vain(improvement):
        improvement.exhausted = True
        improvement.save(update_fields=["exhausted"])
    _keep_wants(improvement)
    waiting = [each for each in found if each.state == Proposal.State.PROPOSED]
    if improvement.needs_ok and (n := len(waiting)):
        announce(experiment=experiment, event=Subscription.Event.PROPOSED, key=f"proposed {writing.pk}", n=n)
    return found


@transaction.atomic
def note_writer_failure(
    *,
    improvement_id: int,
    parent: int,
    reason: str,
    sent: str = "",
    gave: str = "",
    opened: Collection[int] = (),
    exhausted: bool = False,
) -> Writing:
    """Store why a writer gave nothing; the race goes on without new proposals.

    ``exhausted``: nothing more will come. Then the champion meets the original once the race is over.
    """
    improvement = _locked_open(improvement_id)
    origin = improvement.experiment.policies.get(index=parent)
    writing = _write_down(improvement, origin, sent=sent, gave=gave, opened=opened, fault=reason[:500])
    improvement.exhausted |= exhausted
    improvement.save(update_fields=["exhausted"])
    return writing


def claim_answers(proposal: Proposal) -> bool:
    """Take the first answers of a proposal on, unless another worker has since it was read."""
    same = Proposal.objects.filter(pk=proposal.pk, answers_since=proposal.answers_since)
    return bool(same.update(answers_since=clock.now()))


def store_answers(*, proposal_id: int, answers: Sequence[Mapping[str, str]]) -> None:
    """Store the answers of a proposal to a few open tasks, each with its ``task`` and ``text``, and where a
    language model compares them, with that of its ``parent``.
    """
    Proposal.objects.filter(pk=proposal_id).update(answers=answers)


def claim_screening(proposal: Proposal) -> bool:
    """Take the screening of a proposal on, unless another worker has since it was read."""
    same = Proposal.objects.filter(pk=proposal.pk, screened_since=proposal.screened_since)
    return bool(same.update(screened_since=clock.now()))


@transaction.atomic
def store_screening(*, proposal_id: int, screened: Sequence[float]) -> None:
    """Store what a language model made of a proposal, and refuse one that it has found worse than its parent.

    No evidence holds it.
    """
    try:
        proposal, improvement = _waiting(proposal_id)
    except WrongStateError:
        # Somebody was faster.
        return
    proposal.screened = list(screened)
    if is_worse(screened):
        _refuse(proposal, f"The language model preferred its parent on most of {len(screened)} tasks.")
        _keep_wants(improvement, selectors.race_of(improvement))
    elif improvement.needs_ok:
        proposal.save(update_fields=["screened"])
    else:
        _let_in(improvement, proposal)


def _let_in(improvement: Improvement, proposal: Proposal) -> None:
    try:
        _join(improvement, proposal)
    except (SpecError, WrongStateError) as error:
        _refuse(proposal, str(error))


def _let_unscreened_in(improvement: Improvement) -> bool:
    """Have those join that wait for a language model which is gone or silent; True if there were any."""
    if improvement.needs_ok:
        return False
    waiting = list(improvement.proposals.filter(state=Proposal.State.PROPOSED).select_related("parent"))
    if waiting and screens(improvement.experiment):
        waiting = [each for each in waiting if each.created_at < clock.now() - SCREENING_TAKES]
    if waiting:
        # The round has read the policies of its experiment once and for all.
        improvement = with_all(improvement.pk)
    for proposal in waiting:
        _let_in(improvement, proposal)
    return bool(waiting)


def _in_vain(improvement: Improvement) -> bool:
    """True if the newest calls of the writer gave nothing but texts that cannot be used."""
    given = improvement.writings.filter(proposals__isnull=False).distinct().order_by("-pk")[:_MOST_IN_VAIN]
    usable = Proposal.objects.filter(writing__in=list(given)).exclude(state=Proposal.State.REFUSED, by=None)
    return len(given) == _MOST_IN_VAIN and not usable.exists()


def _write_down(improvement: Improvement, origin: Policy, *, opened: Collection[int], **said: str) -> Writing:
    improvement.writing_since = None
    improvement.save(update_fields=["writing_since"])
    open_ones = sorted(set(opened) & set(improvement.open_tasks))
    return Writing.objects.create(improvement=improvement, parent=origin, opened_tasks=open_ones, **said)


@transaction.atomic
def accept_proposal(*, proposal_id: int, text: str | None = None, by: User | None = None) -> Proposal:
    """Let a proposal join the race, with another text where somebody has edited it.

    Raises
    ------
    SpecError
        The text cannot be used.
    WrongStateError
        It does not wait for an OK, or the race is over.
    """
    proposal, improvement = _waiting(proposal_id)
    if text is not None and text != proposal.text:
        if fault := _fault(improvement, proposal, text):
            raise SpecError(fault, ("text",))
        proposal.written_text, proposal.text = proposal.text, text
        proposal.reason = f"Edited. Of the text before: {proposal.reason}"
    proposal.by = by
    _join(improvement, proposal)
    _keep_wants(improvement)
    details = {"number": proposal.number, "edited": ", edited" if proposal.written_text else ""}
    _log(improvement, AuditEntry.Action.PROPOSAL_ACCEPTED, by, details)
    return proposal


@transaction.atomic
def refuse_proposal(*, proposal_id: int, reason: str, by: User | None = None) -> Proposal:
    """Refuse a proposal; the writer is told why.

    Raises
    ------
    WrongStateError
        It does not wait for an OK, or the race is over.
    """
    proposal, improvement = _waiting(proposal_id)
    proposal.by = by
    _refuse(proposal, reason)
    _keep_wants(improvement, selectors.race_of(improvement))
    details = {"number": proposal.number, "reason": proposal.refused_because}
    _log(improvement, AuditEntry.Action.PROPOSAL_REFUSED, by, details)
    return proposal


def _waiting(proposal_id: int) -> tuple[Proposal, Improvement]:
    improvement = _locked_open(Proposal.objects.values_list("improvement", flat=True).get(pk=proposal_id))
    proposal = Proposal.objects.select_related("parent").get(pk=proposal_id)
    if proposal.state != Proposal.State.PROPOSED:
        raise WrongStateError(f"This proposal does not wait for an OK: {proposal.get_state_display()}.")
    return proposal, improvement


def _fault(improvement: Improvement, proposal: Proposal, text: str) -> str:
    """Why a proposal cannot have this text; empty where it can."""
    experiment = improvement.experiment
    key = selectors.TEXTS[improvement.factor.kind]
    others = [level.value.get(key, "") for level in improvement.factor.levels.all()]
    tried = Proposal.objects.filter(improvement__experiment=experiment).exclude(pk=proposal.pk)
    refused = tried.filter(state__in=[Proposal.State.REFUSED, Proposal.State.PROPOSED])
    judging = tasks_present(experiment).exclude(pk__in=improvement.open_tasks)
    answers = Response.objects.filter(policy__experiment=experiment, task__in=improvement.open_tasks)
    if is_answer(text, answers.values_list("text", flat=True).iterator()):
        return "The text is an answer to a task, or a part of one."
    return fault_of(
        text,
        parent=selectors.text_of(proposal.parent, improvement.factor),
        others=[*others, *refused.values_list("text", flat=True)],
        longest=improvement.longest,
        judged=[each for row in judging.values_list("prompt", "reference") for each in row if each],
    )


def _refuse(proposal: Proposal, reason: str) -> None:
    proposal.state, proposal.refused_because = Proposal.State.REFUSED, reason[:500]
    proposal.settled_at = clock.now()
    proposal.save()


@transaction.atomic
def _join(improvement: Improvement, proposal: Proposal) -> None:
    factor = improvement.factor
    value = proposal.parent.levels.get(factor=factor).value | {selectors.TEXTS[factor.kind]: proposal.text}
    levels = {factor.name: {f"Proposal {proposal.number}": value}}
    [proposal.policy] = join(improvement.experiment, levels, proposal.parent, by=proposal.by)
    proposal.state, proposal.settled_at = Proposal.State.JOINED, clock.now()
    proposal.save()
    _look_for_texts(improvement.experiment)


def _keep_wants(improvement: Improvement, race: Race | None = None) -> None:
    """Store how many texts are to be written: what the race wants, without what is on its way.

    Without a ``race``, those that have just come are on their way.
    """
    proposals = improvement.proposals
    coming = proposals.filter(state=Proposal.State.PROPOSED).count()
    if race is None:
        race = selectors.race_of(improvement)
    in_race = proposals.filter(state=Proposal.State.JOINED).exclude(policy__index__in=race.challengers)
    coming += in_race.count() if race.phase == "explore" else 0
    left = {str(parent): n - coming for parent, n in race.wants().items() if n > coming}
    improvement.wants = {} if improvement.exhausted else left
    improvement.save(update_fields=["wants"])


def _log(improvement: Improvement, action: str, by: User | None, details: dict[str, Any]) -> None:
    record(experiment=improvement.experiment, by=by, action=action, details=details)


# ---------------------------------------------------------------- the race, round by round


class Settled(NamedTuple):
    """The race by now; ``ahead``: pairs that are planned and that nobody has seen. ``news``: something ended
    or moved, so that another round has to follow.
    """

    race: Race
    ahead: int
    news: bool


def settle(*, improvement: Improvement, folded: int) -> Settled:
    """Have an improvement go on with the evidence of its locked experiment: drop, promote, and end.

    ``folded``: the number of the last event in that evidence.
    """
    race = selectors.race_of(improvement)
    if (
        improvement.exhausted
        and race.phase == "explore"
        and not race.challengers
        and not _on_their_way(improvement)
    ):
        improvement.turns.append([folded, None])
        race.certify()
    news = _note_moves(improvement, race)
    pending = selectors.planned_in(improvement).filter(state__in=Comparison.PENDING, plan__phase=race.phase)
    ahead = pending.filter(showing="").count()
    waits = ahead > 0 or _somebody_looks(pending)
    used_up = improvement.experiment.used_up and not waits
    if race.phase == "ended" or (race.phase == "certify" and not waits and (used_up or not race.ask())):
        _end(improvement, race, Improvement.State.ENDED, None)
        return Settled(race, 0, news=True)
    if used_up and (pair := race.ask()):
        # Nobody has texts of the two left that are new to them.
        proposal = improvement.proposals.get(policy__index=pair[1])
        _leave(proposal, "All that people could compare of it was compared.")
        _look_for_texts(improvement.experiment)
        news = True
    news |= race.phase == "explore" and _let_unscreened_in(improvement)
    _keep_wants(improvement, race)
    return Settled(race, ahead, news)


def _look_for_texts(experiment: Experiment) -> None:
    """Have the next round look for texts for people to compare: the pair is another one now."""
    experiment.used_up = False
    experiment.save(update_fields=["used_up"])


def _on_their_way(improvement: Improvement) -> bool:
    return improvement.proposals.filter(state=Proposal.State.PROPOSED).exists()


def _somebody_looks(pending: QuerySet[Comparison]) -> bool:
    """True if somebody who is here holds one of these comparisons."""
    return Assignment.objects.filter(
        comparison__in=pending, state=Assignment.State.OPEN, expires_at__gt=clock.now()
    ).exists()


def _note_moves(improvement: Improvement, race: Race, by: User | None = None) -> bool:
    """Store who was promoted and dropped, and have them leave whom the race has left; True if anybody was.

    ``by``: who fixed the champion, if somebody did.
    """
    experiment, was = improvement.experiment, (improvement.phase, improvement.used)
    proposals = improvement.proposals.filter(state=Proposal.State.JOINED).select_related("policy")
    joined = {each.policy.index: each for each in proposals if each.policy}
    names = policy_names(experiment)
    news = False
    for each in race.promotions:
        if (proposal := joined.pop(each.child, None)) is None:
            continue
        news = True
        proposal.state, proposal.probability = Proposal.State.PROMOTED, each.probability
        proposal.at, proposal.settled_at = each.at, clock.now()
        proposal.save()
        before = experiment.policies.get(index=each.over)
        details = {
            "policy": names[each.child].name,
            "code": code_of(each.child),
            "over": names[each.over].name,
            "probability": percent(each.probability),
        }
        _log(improvement, AuditEntry.Action.PROMOTED, None, details)
        if each.over != improvement.original.index and before.retired_at is None:
            retire(experiment, before, f"{names[each.child].name} took its place as the champion."[:500])
    for gone in race.dropped:
        if (proposal := joined.pop(gone.child, None)) is None:
            continue
        news = True
        proposal.state, proposal.probability = Proposal.State.DROPPED, gone.probability
        proposal.compared, proposal.at, proposal.settled_at = gone.after, gone.at, clock.now()
        proposal.save()
        policy = experiment.policies.get(index=gone.child)
        retire(experiment, policy, dropped_because(gone.after, gone.probability))
    for proposal in joined.values():
        if proposal.policy and proposal.policy.retired_at:
            _leave(proposal, proposal.policy.retired_because)
    improvement.champion = experiment.policies.get(index=race.champion)
    improvement.used, improvement.phase = race.used, race.phase
    improvement.verdict = selectors.verdict_of(improvement, race)
    improvement.course = _with_this_point(improvement, race)
    # Not all: a claim to write is made without the experiment's lock.
    improvement.save(update_fields=["champion", "used", "phase", "verdict", "course", "turns"])
    if race.phase != "explore" and was[0] == Improvement.Phase.EXPLORE:
        news = True
        _close_race(improvement, "The champion was fixed before it was settled.", by)
        discard_waiting(experiment, "The champion was fixed before this comparison was shown.")
        _look_for_texts(experiment)
    return news


def _with_this_point(improvement: Improvement, race: Race) -> list[list[float]]:
    """Its course up to now, with no more points than a picture can show."""
    step = improvement.clicks // _MOST_POINTS + 1
    before = [point for point in improvement.course if point[0] // step < race.used // step]
    mean, spread = race.strength(race.champion)
    rates = expit([mean, mean - 2.0 * spread, mean + 2.0 * spread]).tolist()
    return [*before, [race.used, race.champion, *rates]]


def _close_race(improvement: Improvement, reason: str, by: User | None = None) -> None:
    """Have those leave who are still in the race, and those that wait for it."""
    unsettled = Proposal.State.JOINED, Proposal.State.PROPOSED
    for proposal in improvement.proposals.filter(state__in=unsettled).select_related("policy"):
        _leave(proposal, reason, by)


def _leave(proposal: Proposal, reason: str, by: User | None = None) -> None:
    if proposal.policy and proposal.policy.retired_at is None:
        retire(proposal.improvement.experiment, proposal.policy, reason, by=by)
    proposal.state, proposal.refused_because = Proposal.State.LEFT, reason
    proposal.settled_at = clock.now()
    proposal.save()


def _end(improvement: Improvement, race: Race, state: str, by: User | None) -> None:
    experiment = improvement.experiment
    _close_race(improvement, "The improvement ended before it was settled.", by)
    discard_waiting(experiment, "The improvement ended before this comparison was shown.")
    improvement.state, improvement.phase = state, Improvement.Phase.ENDED
    improvement.ended_at, improvement.wants = clock.now(), {}
    improvement.last = (
        Evidence.objects.filter(experiment=experiment).values_list("last", flat=True).first() or 0
    )
    ShowingEvent.objects.create(experiment=experiment, kind=Kind.ALLOWED)
    improvement.verdict = selectors.verdict_of(improvement, race, ends=True)
    improvement.save()
    if not improvement.was_running:
        experiment.state = Experiment.State.PAUSED
        experiment.save(update_fields=["state"])
    stopped = state == Improvement.State.STOPPED
    action = AuditEntry.Action.STOP_IMPROVING if stopped else AuditEntry.Action.IMPROVED
    details = improvement.verdict | {"used": improvement.used, "verdict": selectors.sentence_of(improvement)}
    _log(improvement, action, by, details)
    announce(
        experiment=experiment,
        event=Subscription.Event.IMPROVED,
        # It ends again after each time that it went on.
        key=f"improved {improvement.pk} {len(improvement.turns)}",
        sentence=details["verdict"],
    )
