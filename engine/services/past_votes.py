"""Past votes: an experiment made of them, or more of them for one that is there.

They count as judgments do. No sampler of ours chose their pairs, and each is so marked: docs/votes.md says
what the experiment's claim rests on then.
"""

import itertools
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists, Max, OuterRef

from engine.domain import limits
from engine.domain.conversations import as_json
from engine.domain.errors import SpecError, WrongStateError
from engine.domain.outcome_of_answers import outcome_of
from engine.domain.policy_space import code_of
from engine.domain.showings import Phase
from engine.domain.specs import ExperimentSpec, FactorSpec, ReadyMade, TaskSpec
from engine.domain.texts import digest, pair_of_texts
from engine.domain.wording import number
from engine.importing.items import factor_of
from engine.importing.votes import Vote, Winner
from engine.models import (
    AuditEntry,
    Comparison,
    Experiment,
    Judgment,
    Response,
    ShowingEvent,
    Task,
    Upload,
    User,
    clock,
)
from engine.selectors.counts import next_number
from engine.selectors.gates import gate_of
from engine.selectors.policies import policy_names
from engine.services.audit import record
from engine.services.descriptions import check_description
from engine.services.drafts import store_experiment
from engine.services.evidence import mark_stale
from engine.services.experiments import refuse_archived
from engine.services.imported_votes import (
    BATCH,
    NO_TEXT,
    PAST_PLAN,
    add_to_counts,
    made_people,
    name_in_file,
    person_of,
    suffix_of,
    tokens_of,
)
from engine.services.locks import locked_experiment
from engine.services.repeated_votes import Counted, refuse_repeated
from engine.services.showings import told
from engine.services.uploads import take_upload

_CHOICES = {Winner.TIE: Judgment.Choice.TIE, Winner.BOTH_BAD: Judgment.Choice.BOTH_BAD}

# A policy by index, a task by position, and the text of the response, if there is one.
_Text = tuple[int, int, str | None]


@dataclass(frozen=True)
class Added:
    """An experiment, the number of votes that were added to it, and warnings besides those of the file."""

    experiment: Experiment
    n_votes: int
    warnings: Sequence[str] = ()


def store_votes(
    *,
    experiment: Experiment | None,
    name: str,
    votes: Sequence[Vote],
    by: User | None = None,
    counted: str = "",
    upload: Upload | None = None,
) -> Added:
    """Add the votes to the experiment, or make one of this name of them."""
    if experiment is None:
        return Added(start_from_votes(name=name, votes=votes, by=by, upload=upload), len(votes))
    return add_votes(experiment_id=experiment.pk, votes=votes, by=by, counted=counted, upload=upload)


def start_from_votes(
    *, name: str, votes: Sequence[Vote], by: User | None = None, upload: Upload | None = None
) -> Experiment:
    """Make a paused experiment of the policies, tasks and responses that the votes name, and count the votes.

    It continues with the ready-made responses if the file has a text for each vote and each two policies
    have a task in common. Else the policies are models, by the names in the file, and a backend writes new
    responses. The budget has room for as many new comparisons as any experiment's. ``by``: who makes it, and
    becomes its owner. ``upload``: the kept file of which the votes are.

    The evidence is marked as stale: the next `advance` replays the votes.

    Raises
    ------
    SpecError
        The votes exceed a limit, or the name is taken; nothing is stored then.
    WrongStateError
        Another worker has imported the file, or its user has cancelled.
    """
    policies = {name: n for n, name in enumerate(_once(p for v in votes for p in (v.policy_a, v.policy_b)))}
    tasks = {prompt: n for n, prompt in enumerate(_once(vote.task for vote in votes))}
    messages = {vote.task: vote.messages for vote in reversed(votes)}
    # Check the numbers first: the time of the following checks grows with the square of the policies.
    limits.POLICIES.check(len(policies))
    limits.TASKS.check(len(tasks))
    texts = _texts_of(votes, policies, tasks)
    limits.RESPONSES.check(len(texts))
    imported = _can_be_drawn(texts, len(policies))
    names = list(policies)
    spec = ExperimentSpec(
        name=name,
        factors=[
            factor_of(names)
            if imported
            else FactorSpec("Model", "model", {each: {"name": each} for each in names})
        ],
        tasks=[TaskSpec(prompt, messages=messages[prompt]) for prompt in tasks],
        settings={
            "responses": Experiment.Responses.IMPORTED if imported else Experiment.Responses.FRESH,
            "allow_tie": any(vote.winner == Winner.TIE for vote in votes),
            "allow_both_bad": any(vote.winner == Winner.BOTH_BAD for vote in votes),
        },
        ready_made=[ReadyMade(task, names[policy], text or "") for policy, task, text in texts]
        if imported
        else (),
    )
    description = check_description(spec)
    # `_store` stores the responses, as the votes refer to them.
    bare = replace(description, spec=replace(description.spec, ready_made=()))
    with transaction.atomic():
        experiment = store_experiment(description=bare, by=by, upload=upload)
        return _store(experiment, votes, policies=policies, tasks=tasks, known={}, by=by)


def add_votes(
    *,
    experiment_id: int,
    votes: Sequence[Vote],
    by: User | None = None,
    counted: str = "",
    upload: Upload | None = None,
) -> Added:
    """Count past votes in a draft or a paused experiment that knows their policies and tasks.

    A policy has the name that the dashboard shows, the names of its levels joined by “ · ”, or its number, as
    P3. The budget grows by the votes, so that as many new comparisons fit as before, and the evidence is
    marked as stale.

    A file with votes that count here already is refused unless ``counted`` says what to do: "only_new" leaves
    these out, "again" counts every vote of the file. ``upload``: the kept file of which the votes are.

    Raises
    ------
    SpecError
        A vote does not fit the experiment; the message names its row.
    ImportedBeforeError
        Some of the votes count here already, or all of them, as after a request that is repeated. With
        "only_new": all of them.
    WrongStateError
        The experiment runs, has concluded or is in the archive, or changed meanwhile; or another worker has
        imported the file, or its user has cancelled.
    """
    experiment = Experiment.objects.get(pk=experiment_id)
    n_in_file = len(votes)
    _check_state(experiment)
    _check_settings(experiment)
    policies, tasks = _places(experiment)
    known = _known_responses(experiment)
    position = max(tasks.values(), default=-1)
    for vote in votes:
        _check_vote(experiment, vote, policies, tasks)
        if vote.task not in tasks:
            position += 1
            tasks[vote.task] = position
    if counted != "again":
        found = Counted.of(experiment, tasks).sort(votes, policies, tasks)
        if not (counted == "only_new" and found.new):
            refuse_repeated(len(votes), found)
        votes = found.new
    offered = {vote.winner for vote in votes}
    left_out = n_in_file - len(votes)
    warnings = [f"{number(left_out, 'vote')} left out that counted already."] if left_out else []
    rows = _rows_of(experiment)
    limits.RESPONSES.check(len(known) + len(_texts_of(votes, policies, tasks)))
    with transaction.atomic():
        n_before = experiment.past_votes
        experiment = locked_experiment(experiment_id)
        take_upload(upload, experiment, left_out, warnings)
        _check_state(experiment)
        if _rows_of(experiment) != rows or experiment.past_votes != n_before:
            raise WrongStateError("The experiment changed meanwhile. Import the votes again.")
        experiment.allow_tie |= Winner.TIE in offered
        experiment.allow_both_bad |= Winner.BOTH_BAD in offered
        _add_tasks(experiment, votes, tasks)
        stored = _store(experiment, votes, policies=policies, tasks=tasks, known=known, by=by)
        return Added(stored, len(votes), warnings)


def _places(experiment: Experiment) -> tuple[dict[str, int], dict[str, int]]:
    """Indexes of policies and positions of tasks, by the names that a vote may use."""
    names = [each.name for each in policy_names(experiment)]
    policies = {code_of(n): n for n in range(len(names))} | {name: n for n, name in enumerate(names)}
    # The first of two equal tasks.
    return policies, dict(experiment.tasks.order_by("-position").values_list("prompt", "position"))


def _once(names: Any) -> list[str]:
    """Each name once, in the order of the first time."""
    return list(dict.fromkeys(names))


# ---------------------------------------------------------------- checks


def _can_be_drawn(texts: Sequence[_Text], n_policies: int) -> bool:
    """True if every vote has its texts, and every two policies share a task with texts."""
    answered: defaultdict[int, set[int]] = defaultdict(set)
    for policy, task, text in texts:
        if text is None:
            return False
        answered[policy].add(task)
    return all(answered[i] & answered[j] for i, j in itertools.combinations(range(n_policies), 2))


def _check_state(experiment: Experiment) -> None:
    if experiment.state not in {Experiment.State.DRAFT, Experiment.State.PAUSED}:
        remedy = "Pause it first." if experiment.state == Experiment.State.RUNNING else "Use another name."
        raise WrongStateError(
            f"Past votes can be added to a draft or a paused experiment; this one is {experiment.state}. "
            f"{remedy}"
        )
    refuse_archived(experiment)
    if gate_of(experiment):
        raise WrongStateError("A gate's challenge is decided here: past votes do not count in it.")


def _check_settings(experiment: Experiment) -> None:
    if experiment.judge != Experiment.Judge.HUMAN:
        raise SpecError("Past votes are people's, but a rule judges this experiment. Use another one.")
    if experiment.overlap > 1:
        raise SpecError(
            f"This experiment wants {experiment.overlap} judgments of each comparison, "
            "and a past vote is one. Use an experiment with one judgment each."
        )


def _known_responses(experiment: Experiment) -> dict[_Text, int]:
    """Keys of the ready-made responses; none where nothing is ready-made."""
    if experiment.responses != Experiment.Responses.IMPORTED:
        return {}
    rows = Response.objects.filter(policy__experiment=experiment).order_by("-pk")
    return {
        (policy, task, text): pk
        for policy, task, text, pk in rows.values_list("policy__index", "task__position", "text", "pk")
    }


def _check_vote(
    experiment: Experiment, vote: Vote, policies: Mapping[str, int], tasks: Mapping[str, int]
) -> None:
    for name in (vote.policy_a, vote.policy_b):
        if name not in policies:
            raise SpecError(
                f"{vote.place}: {limits.shown(name)} is no policy of this experiment. It has "
                f"{', '.join(list(policies)[-5:])} … Rename it, or give the experiment another name to make "
                "a new one."
            )
    if policies[vote.policy_a] == policies[vote.policy_b]:
        raise SpecError(f"{vote.place}: Both policies are the same one. Remove the row.")
    if vote.task not in tasks and experiment.responses != Experiment.Responses.IMPORTED:
        raise SpecError(
            f"{vote.place}: The task {limits.shown(vote.task)} is not in this experiment. "
            "Remove the row, or add the task while the experiment is a draft."
        )
    if experiment.responses == Experiment.Responses.FRESH:
        return
    for name, text in ((vote.policy_a, vote.response_a), (vote.policy_b, vote.response_b)):
        if text is None:
            raise SpecError(
                f"{vote.place}: There is no text of the response of {limits.shown(name)}, "
                "and this experiment shows responses again. Add response_a and response_b."
            )


def _add_tasks(experiment: Experiment, votes: Sequence[Vote], tasks: Mapping[str, int]) -> None:
    """Add the tasks of these votes that the experiment does not have."""
    last = experiment.tasks.aggregate(last=Max("position"))["last"]
    first = -1 if last is None else last
    new = {vote.task: vote for vote in reversed(votes) if tasks[vote.task] > first}
    limits.TASKS.check(first + 1 + len(new))
    Task.objects.bulk_create(
        Task(experiment=experiment, position=tasks[prompt], prompt=prompt, messages=as_json(vote.messages))
        for prompt, vote in sorted(new.items(), key=lambda each: tasks[each[0]])
    )


def _rows_of(experiment: Experiment) -> tuple[list[int], list[int]]:
    return (
        list(experiment.policies.order_by("index").values_list("pk", flat=True)),
        list(experiment.tasks.order_by("position").values_list("pk", flat=True)),
    )


# ---------------------------------------------------------------- rows


def _texts_of(votes: Iterable[Vote], policies: Mapping[str, int], tasks: Mapping[str, int]) -> list[_Text]:
    """The responses that votes are about, each once."""
    found: dict[_Text, None] = {}
    for vote in votes:
        for policy, text in ((vote.policy_a, vote.response_a), (vote.policy_b, vote.response_b)):
            found[policies[policy], tasks[vote.task], text] = None
    return list(found)


@dataclass(frozen=True)
class _Placed:
    """A vote whose policies and task are numbers, with i as the policy of the lower one.

    ``at``: the time of the vote, or of the import where nobody knows it.
    """

    vote: Vote
    i: _Text
    j: _Text
    i_on_left: bool
    choice: Judgment.Choice
    at: datetime

    @property
    def outcome(self) -> float:
        return outcome_of(self.choice, i_on_left=self.i_on_left)


def _placed(vote: Vote, policies: Mapping[str, int], tasks: Mapping[str, int], now: datetime) -> _Placed:
    task = tasks[vote.task]
    a, b = policies[vote.policy_a], policies[vote.policy_b]
    of_a, of_b = (a, task, vote.response_a), (b, task, vote.response_b)
    # A side that nobody knows is drawn, so that it says nothing about anybody's habit.
    a_on_left = random.random() < 0.5 if vote.a_on_left is None else vote.a_on_left  # noqa: S311
    choice = _CHOICES.get(vote.winner)
    if choice is None:
        a_won = vote.winner == Winner.A
        choice = Judgment.Choice.LEFT if a_won == a_on_left else Judgment.Choice.RIGHT
    return _Placed(
        vote=vote,
        i=min(of_a, of_b, key=lambda text: text[0]),
        j=max(of_a, of_b, key=lambda text: text[0]),
        i_on_left=a_on_left == (a < b),
        choice=choice,
        at=vote.judged_at or now,
    )


def _response(text: str | None, number: int, **keys: int) -> Response:
    """A response that was written elsewhere. Without its text it is a failed one, so that nobody is shown
    it.
    """
    now = clock.now()
    response = Response(seed=number, created_at=now, **keys)
    if text is None:
        response.state, response.failure_reason = Response.State.FAILED, NO_TEXT
    else:
        response.state, response.text, response.done_at = Response.State.DONE, text, now
    return response


def _comparison(placed: _Placed, **keys: Any) -> Comparison:
    vote = placed.vote
    return Comparison(
        i_on_left=placed.i_on_left,
        plan=PAST_PLAN
        | {
            "side_known": vote.a_on_left is not None,
            "time_known": vote.judged_at is not None,
            "texts_known": None not in {vote.response_a, vote.response_b},
        },
        state=Comparison.State.JUDGED,
        outcome=placed.outcome,
        showing=Phase.TOLD,
        least=placed.outcome,
        most=placed.outcome,
        created_at=placed.at,
        judged_at=placed.at,
        **keys,
    )


def _store(
    experiment: Experiment,
    votes: Sequence[Vote],
    *,
    policies: Mapping[str, int],
    tasks: Mapping[str, int],
    known: Mapping[_Text, int],
    by: User | None,
) -> Experiment:
    """Store the rows of an experiment that nobody else changes, in the caller's transaction.

    ``known``: keys of the responses that are there already.
    """
    policy_keys, task_keys = _rows_of(experiment)
    names = [person_of(vote.annotator) for vote in votes]
    people = _people(experiment, sorted({*names} - {""}))
    new = [text for text in _texts_of(votes, policies, tasks) if text not in known]
    stored = Response.objects.bulk_create(
        (
            _response(text, len(known) + n, policy_id=policy_keys[policy], task_id=task_keys[task])
            for n, (policy, task, text) in enumerate(new)
        ),
        batch_size=BATCH,
    )
    responses = {**known, **{text: row.pk for text, row in zip(new, stored, strict=True)}}
    come_again = experiment.responses != Experiment.Responses.FRESH
    digests = {text: digest(text[2] or "") for text in responses} if come_again else {}
    first, now = next_number(experiment), clock.now()
    placed = [_placed(vote, policies, tasks, now) for vote in votes]
    comparisons = Comparison.objects.bulk_create(
        (
            _comparison(
                each,
                experiment=experiment,
                number=first + n,
                policy_i_id=policy_keys[each.i[0]],
                policy_j_id=policy_keys[each.j[0]],
                task_id=task_keys[each.i[1]],
                response_i_id=responses[each.i],
                response_j_id=responses[each.j],
                texts=pair_of_texts(task_keys[each.i[1]], digests[each.i], digests[each.j])
                if come_again
                else "",
            )
            for n, each in enumerate(placed)
        ),
        batch_size=BATCH,
    )
    tokens = tokens_of(experiment, [vote.uuid for vote in votes])
    Judgment.objects.bulk_create(
        (
            Judgment(
                comparison=comparison,
                judge=Judgment.Judge(each.vote.judge),
                via=Judgment.Via.IMPORT,
                annotator=people.get(name),
                token=token,
                choice=each.choice,
                outcome=each.outcome,
                created_at=each.at,
            )
            for each, comparison, name, token in zip(placed, comparisons, names, tokens, strict=True)
        ),
        batch_size=BATCH,
    )
    ShowingEvent.objects.bulk_create(told(experiment, comparisons), batch_size=BATCH)
    add_to_counts(experiment, ((each.i[0], each.j[0], each.outcome) for each in placed))
    experiment.past_votes += len(votes)
    experiment.budget += len(votes)
    experiment.state = Experiment.State.PAUSED
    experiment.started_at = experiment.started_at or now
    experiment.save(
        update_fields=["past_votes", "budget", "state", "started_at", "allow_tie", "allow_both_bad"]
    )
    mark_stale(experiment=experiment)
    record(
        experiment=experiment,
        by=by,
        action=AuditEntry.Action.IMPORT_VOTES,
        details={"votes": len(votes), "budget": experiment.budget},
    )
    _analyze()
    return experiment


def _analyze() -> None:
    """Have PostgreSQL look at tables into which many rows came. It does so by itself within minutes; until
    then it plans for the few rows that were there before. A table that is being looked at is passed over.
    """
    if connection.vendor == "postgresql":
        tables = [model._meta.db_table for model in (Response, Comparison, Judgment, ShowingEvent)]
        with connection.cursor() as cursor:
            cursor.execute(f"ANALYZE (SKIP_LOCKED) {', '.join(map(connection.ops.quote_name, tables))}")


def _people(experiment: Experiment, names: Sequence[str]) -> dict[str, User]:
    """Accounts by the names in the file. A name that an earlier file of this experiment had is the same
    person. Somebody who joined under such a name is not.
    """
    imported = Judgment.objects.filter(
        annotator=OuterRef("pk"), via=Judgment.Via.IMPORT, comparison__experiment=experiment
    )
    before = {
        name_in_file(user.username, experiment.pk): user
        for user in User.objects.filter(
            Exists(imported), username__contains=suffix_of(experiment.pk), forgotten_at__isnull=True
        )
    }
    known = {name: before[name] for name in names if name in before}
    return known | made_people(experiment, [name for name in names if name not in known])
