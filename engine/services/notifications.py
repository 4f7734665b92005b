"""News of experiments: their subscribers, and the outbox from which they are sent.

A message is written in the same transaction as its event: both exist or neither. It is sent afterwards, at
least once: if a worker dies after sending it, the next one sends it again under the same number.
"""

import json
import secrets
import uuid
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import F, Q, QuerySet

from engine.domain.addresses import check_url
from engine.domain.errors import SubscriptionError
from engine.domain.forges import check_repository
from engine.domain.limits import SUBSCRIPTIONS
from engine.domain.mail_state import why_no_mail, worded
from engine.domain.wording import moment
from engine.models import Alarm, AuditEntry, Experiment, Gate, Notification, Policy, Subscription, User, clock
from engine.selectors.alarms import stall
from engine.selectors.doubts import doubts
from engine.selectors.findings import by_machines
from engine.selectors.gates import SAME, gate_of, in_few_words, state_of
from engine.selectors.policies import policy_names
from engine.selectors.pulses import pulses
from engine.selectors.snapshots import latest_snapshot
from engine.selectors.standings import standing_of
from engine.services import worker_holds
from engine.services.audit import record
from engine.services.keys import sealed_token
from engine.services.locks import locked_experiment

TEST = "test"
RECOVERED = "recovered"
COMMIT = "commit"
# Shorter problems get no message.
_GRACE = {Alarm.Kind.UNHEALTHY: timedelta(minutes=1), Alarm.Kind.STALLED: timedelta(0)}
_RETRY_SECONDS = (30, 120, 480, 1800, 7200, 21600)
# A message that is being sent is reserved for this long: longer than the wait for any server.
_CLAIM_SECONDS = 120.0


# ---------------------------------------------------------------- who wants them


@transaction.atomic
def subscribe(
    *, experiment: Experiment, by: User, kind: str, target: str, events: Collection[str], token: str = ""
) -> Subscription:
    """Send news of these events to an address. A webhook gets a secret of its own.

    A repository gets the states of its commits at the gate instead, posted with this ``token``.

    The log names only the host: viewers read it, and the URL of many a webhook is as good as a password.

    Raises
    ------
    SubscriptionError
        The address is not usable, is subscribed already, or there are too many.
    """
    try:
        if kind == Subscription.Kind.EMAIL:
            validate_email(target)
        elif kind in Subscription.FORGES:
            check_repository(kind, target)
        else:
            check_url(target)
    except ValidationError as error:
        raise SubscriptionError("Give an e-mail address, such as name@example.org.") from error
    except ValueError as error:
        raise SubscriptionError(str(error)) from error
    locked_experiment(experiment.pk)
    if experiment.subscriptions.filter(kind=kind, target=target).exists():
        raise SubscriptionError("This address already has a notification. Remove that one first.")
    if refusal := SUBSCRIPTIONS.refusal(experiment.subscriptions.count() + 1):
        raise SubscriptionError(refusal)
    subscription = Subscription(
        experiment=experiment, kind=kind, target=target, events=sorted(events), created_by=by
    )
    if kind == Subscription.Kind.WEBHOOK:
        subscription.secret = secrets.token_urlsafe(32)
    elif kind in Subscription.FORGES:
        subscription.events, subscription.secret = [], sealed_token(subscription, token)
    subscription.save()
    record(
        experiment=experiment,
        by=by,
        action=AuditEntry.Action.SUBSCRIBE,
        details={"kind": kind, "host": subscription.host, "events": subscription.events},
    )
    return subscription


@transaction.atomic
def unsubscribe(*, subscription: Subscription, by: User | None) -> None:
    """Send nothing more to this address; waiting messages are dropped too."""
    record(
        experiment=subscription.experiment,
        by=by,
        action=AuditEntry.Action.UNSUBSCRIBE,
        details={"kind": subscription.kind, "host": subscription.host},
    )
    subscription.delete()


@transaction.atomic
def end_subscriptions_without_rights(*, user: User, by: User | None) -> None:
    """End a user's subscriptions to experiments that they may no longer run."""
    theirs = Subscription.objects.filter(created_by=user).select_related("experiment")
    if user.is_active:
        theirs = theirs.exclude(experiment__in=Experiment.objects.run_by(user))
    for subscription in theirs.order_by("pk"):
        unsubscribe(subscription=subscription, by=by)


# ---------------------------------------------------------------- writing them


def announce(
    *, experiment: Experiment, event: str, key: str, done_by: User | None = None, **facts: Any
) -> None:
    """Write a message with these facts to every subscriber of the event, in the caller's transaction.

    A second message with the same ``key`` is not written. A long subject is cut. ``done_by`` knows already,
    and gets no e-mail of it.
    """
    subject, text = worded(event, **facts)
    wanted = Subscription.Event.UNHEALTHY if event == RECOVERED else event
    subscriptions = experiment.subscriptions.all()
    theirs = Q(kind=Subscription.Kind.EMAIL, created_by=done_by)
    Notification.objects.bulk_create(
        (
            Notification(
                subscription=subscription,
                event=event,
                key=key,
                subject=f"{experiment.name}: {subject}"[: Notification.LONGEST_SUBJECT],
                text=text,
            )
            for subscription in (subscriptions.exclude(theirs) if done_by else subscriptions)
            if wanted in subscription.events
        ),
        ignore_conflicts=True,
    )


def announce_conclusion(*, experiment: Experiment) -> None:
    """Announce that an experiment has concluded, its result in full, and the doubts about it."""
    if (gate := gate_of(experiment)) is not None:
        for commit in gate.commits.all():
            announce_status(experiment=gate.experiment, gate=gate, sha=commit.sha)
    if not experiment.subscriptions.exists():
        return
    machines = by_machines(experiment)
    announce(
        experiment=experiment,
        event=Subscription.Event.CONCLUDED,
        key=f"concluded {experiment.concluded_at:%Y-%m-%dT%H:%M:%S.%f}",
        standing=standing_of(experiment, latest_snapshot(experiment), policy_names(experiment)),
        # First, before anything reads as if people had said it.
        machines=machines,
        finding=experiment.finding.removeprefix(machines).lstrip(),
        doubts=doubts(experiment).found,
    )


def announce_status(*, experiment: Experiment, gate: Gate | None, sha: str) -> None:
    """Announce where a commit stands to the forges of an experiment; without a gate nothing changed."""
    state = state_of(gate) if gate else SAME
    compared = gate.challenge if gate else experiment
    forges = experiment.subscriptions.filter(kind__in=Subscription.FORGES)
    earlier = Notification.objects.filter(subscription__in=forges, event=COMMIT, key__startswith=f"{sha} ")
    key = f"{sha} {gate.pk if gate else 0} {state}"
    # Tried again later, it would take the place of the state of now; and one that was posted before another
    # has to be posted again.
    live = (Notification.State.WAITING, Notification.State.SENT)
    earlier.exclude(key=key, state__in=live).delete()
    Notification.objects.bulk_create(
        (
            Notification(
                subscription=forge,
                event=COMMIT,
                key=key,
                subject=in_few_words(state, compared),
                text=json.dumps({"sha": sha, "state": state, "experiment": compared.pk}),
            )
            for forge in forges
        ),
        ignore_conflicts=True,
    )


def announce_policies(
    *, experiment: Experiment, joined: Sequence[Policy], retired: Sequence[Policy], by: User | None
) -> None:
    """Announce who has joined and who has retired, but not by an e-mail to whoever did it."""
    names = policy_names(experiment)
    announce(
        experiment=experiment,
        event=Subscription.Event.POLICIES,
        key=f"policies {' '.join(each.label for each in (*joined, *retired))}"[:100],
        done_by=by,
        joined=[names[each.index].name for each in joined],
        retired=[(names[each.index].name, each.retired_because) for each in retired],
    )


@transaction.atomic
def send_test(*, subscription: Subscription) -> Notification:
    """Send a message that only says that messages arrive.

    Raises
    ------
    SubscriptionError
        It would arrive nowhere: mail is not configured, or it is a repository.
    """
    if subscription.kind in Subscription.FORGES:
        raise SubscriptionError("A status is of a commit: run the gate.")
    if subscription.kind == Subscription.Kind.EMAIL and (reason := why_no_mail()):
        raise SubscriptionError(reason)
    subject, text = worded(TEST)
    return Notification.objects.create(
        subscription=subscription,
        event=TEST,
        key=f"{TEST} {uuid.uuid4()}",
        subject=f"{subscription.experiment.name}: {subject}",
        text=text,
    )


def watch() -> None:
    """Notice new and ended trouble of running experiments, and notify the subscribers."""
    Alarm.objects.exclude(experiment__state=Experiment.State.RUNNING).delete()
    running = Experiment.objects.filter(state=Experiment.State.RUNNING, subscriptions__isnull=False)
    watched = list(running.distinct())
    now = pulses(watched)
    for experiment in watched:
        _watch(experiment, Alarm.Kind.UNHEALTHY, now[experiment.pk].ailment)
        _watch(experiment, Alarm.Kind.STALLED, stall(experiment))


@transaction.atomic
def _watch(experiment: Experiment, kind: Alarm.Kind, reason: str) -> None:
    if not reason:
        _end_alarm(experiment, kind)
        return
    alarm, _ = Alarm.objects.get_or_create(experiment=experiment, kind=kind)
    now = clock.now()
    if alarm.announced_at is not None or now - alarm.since < _GRACE[kind]:
        return
    if Alarm.objects.filter(pk=alarm.pk, announced_at__isnull=True).update(announced_at=now):
        announce(experiment=experiment, event=kind, key=f"{kind} {alarm.pk}", reason=reason)


def _end_alarm(experiment: Experiment, kind: Alarm.Kind) -> None:
    alarm = Alarm.objects.filter(experiment=experiment, kind=kind).first()
    if alarm is None or not Alarm.objects.filter(pk=alarm.pk).delete()[0]:
        return
    if kind == Alarm.Kind.UNHEALTHY and alarm.announced_at is not None:
        announce(
            experiment=experiment,
            event=RECOVERED,
            key=f"{RECOVERED} {alarm.pk}",
            since=moment(alarm.since),
        )


# ---------------------------------------------------------------- sending them


def claim_due() -> Notification | None:
    """The next message to send, reserved for this caller for a while."""
    while (next_due := _due().order_by("due_at", "pk").first()) is not None:
        row = Notification.objects.filter(pk=next_due.pk)
        claim = worker_holds.take(
            row.filter(state=Notification.State.WAITING, due_at__lte=clock.now()),
            seconds=_CLAIM_SECONDS,
            attempts=F("attempts") + 1,
        )
        mine = (
            worker_holds.held(row, claim)
            .select_related("subscription__experiment__winner", "invitation__created_by")
            .first()
        )
        if mine is not None:
            return mine
    return None


def mark_sent(*, notification: Notification) -> None:
    """End a claimed message: it was delivered."""
    worker_holds.release(_claimed(notification), state=Notification.State.SENT, sent_at=clock.now(), error="")


def mark_unsent(*, notification: Notification, error: str, final: bool = False) -> None:
    """Try again later, after a longer wait each time.

    It is given up after the last attempt, or at once if the failure is ``final``.
    """
    unsent = _claimed(notification)
    if final or notification.attempts > len(_RETRY_SECONDS):
        worker_holds.release(unsent, state=Notification.State.FAILED, error=error[:500])
        return
    pause = timedelta(seconds=_RETRY_SECONDS[notification.attempts - 1])
    worker_holds.release(unsent, due_at=clock.now() + pause, error=error[:500])


def has_due() -> bool:
    """True if some message may be sent now."""
    return _due().exists()


def _due() -> QuerySet[Notification]:
    waiting = Notification.objects.filter(state=Notification.State.WAITING, due_at__lte=clock.now())
    return worker_holds.free(waiting)


def _claimed(notification: Notification) -> QuerySet[Notification]:
    return worker_holds.held(Notification.objects.filter(pk=notification.pk), notification.claim)
