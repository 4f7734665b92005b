"""The outbox: what is written to whom, when it goes wrong and when it is over, and how often sending is
tried.
"""

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from engine.domain.errors import SubscriptionError
from engine.models import (
    Alarm,
    Comparison,
    Experiment,
    Notification,
    Response,
    Subscription,
    WorkerPulse,
    clock,
)
from engine.models.append_only import lifted
from engine.selectors import experiment_log
from engine.services import notifications
from engine.services.experiments import pause, start, stop
from engine.services.notifications import (
    claim_due,
    mark_sent,
    mark_unsent,
    send_test,
    subscribe,
    unsubscribe,
    watch,
)
from engine.services.people import change_role, settle_account
from engine.services.policies import add_policies, retire_policy
from engine.services.setting_changes import reopen
from tests.concurrency import at_once
from tests.factories import add_member, click, make_experiment, make_user, workers_alive

pytestmark = pytest.mark.django_db
ALL = ("concluded", "stalled", "unhealthy")


@pytest.fixture
def experiment(annotator) -> Experiment:
    workers_alive()
    return make_experiment(ready=True, annotators=(annotator,))


def subscribed(experiment, events=ALL, kind="email", target="ann@example.org") -> Subscription:
    return subscribe(experiment=experiment, by=make_user(), kind=kind, target=target, events=events)


def messages() -> list[tuple[str, str]]:
    return list(Notification.objects.order_by("pk").values_list("event", "text"))


def events() -> list[str]:
    return [event for event, _ in messages()]


def test_everybody_but_who_did_it_hears_that_policies_join_and_retire(experiment):
    ada = make_user("ada")
    every = {"experiment": experiment, "events": ["policies"]}
    mine = subscribe(**every, by=ada, kind="email", target="ada@example.org")
    others = [
        subscribe(**every, by=make_user("bob"), kind="email", target="bob@example.org"),
        subscribe(**every, by=ada, kind="webhook", target="https://example.org/hook"),
    ]
    subscribed(experiment)
    levels = {"System prompt": {"Warm": {"text": "quality 9"}}}
    add_policies(experiment_id=experiment.pk, levels=levels, parent=1, parent_leaves=True, by=ada)
    retire_policy(experiment_id=experiment.pk, index=2, reason="Rude", by=None)
    told = [list(each.notifications.order_by("pk").values_list("text", flat=True)) for each in others]
    assert told[0] == told[1]
    assert [("Warm" in text, "Prompt 1" in text, "Rude" in text) for text in told[0]] == [
        (True, True, False),
        (False, False, True),
    ]
    assert [each.text for each in mine.notifications.all()] == told[0][1:]
    assert set(events()) == {"policies"}


class TestSubscribe:
    def test_a_webhook_gets_a_secret_and_a_mail_address_none(self, experiment):
        hook = subscribed(experiment, kind="webhook", target="https://example.org/hook?x=1")
        assert len(hook.secret) >= 40
        assert subscribed(experiment).secret == ""
        assert [e.action for e in experiment.audit_entries.all()[:2]] == ["subscribe", "subscribe"]
        log = str(list(experiment.audit_entries.values()))
        assert hook.secret not in log

    def test_the_log_that_viewers_read_names_the_host_only(self, experiment):
        """A Slack URL is a password, an e-mail address is somebody's; both stood in the log."""
        by = make_user()
        targets = {"webhook": "https://hooks.slack.com/services/T0/B0/s3cret?x=1", "email": "ann@example.org"}
        for kind, target in targets.items():
            made = subscribe(experiment=experiment, by=by, kind=kind, target=target, events=["concluded"])
            assert target not in str(made)
            unsubscribe(subscription=made, by=by)
        log = str(list(experiment.audit_entries.values()))
        assert "by webhook to hooks.slack.com." in log
        assert "by email to example.org." in log
        assert not any(part in log for part in ("s3cret", "services", "ann@"))

    @pytest.mark.parametrize(
        ("kind", "target", "words"),
        [
            ("email", "https://example.org", "Give an e-mail address"),
            ("email", "ann@example.org\nBcc: all@example.org", "Give an e-mail address"),
            ("webhook", "ann@example.org", "starts with https"),
            ("webhook", "file:///etc/passwd", "starts with https"),
            ("webhook", "https://", "names a host"),
            ("webhook", "https://example.org:99999/", "not a URL"),
            ("webhook", "https://ann:secret@example.org/", "Remove the name and the password"),
            ("webhook", "http://127.0.0.1/", "not a public address"),
            ("webhook", "http://[::1]/", "not a public address"),
            ("webhook", "http://[::ffff:10.0.0.1]/", "not a public address"),
            ("webhook", "http://169.254.169.254/latest/meta-data/", "not a public address"),
        ],
    )
    def test_an_address_that_cannot_be_used_is_refused_with_words(self, kind, target, words, experiment):
        with pytest.raises(SubscriptionError, match=words):
            subscribed(experiment, kind=kind, target=target)
        assert not experiment.subscriptions.exists()

    def test_only_hosts_of_the_list_where_there_is_one(self, experiment, settings):
        settings.WEBHOOK_HOSTS = ["Hooks.example.org"]
        subscribed(experiment, kind="webhook", target="https://hooks.example.org/x")
        with pytest.raises(SubscriptionError, match=r"hooks\.example\.org only"):
            subscribed(experiment, kind="webhook", target="https://example.org/x")

    def test_private_addresses_where_that_is_allowed(self, experiment, settings):
        settings.ALLOW_PRIVATE_WEBHOOKS = True
        subscribed(experiment, kind="webhook", target="http://127.0.0.1:9000/")
        assert experiment.subscriptions.get().target == "http://127.0.0.1:9000/"

    def test_the_same_address_once(self, experiment):
        subscribed(experiment)
        with pytest.raises(SubscriptionError, match="already has a notification"):
            subscribed(experiment)

    def test_it_ends_with_the_right_to_run_the_experiment(self, experiment):
        owner, editor = make_user(), make_user()
        add_member(experiment, owner, "owner")
        role = add_member(experiment, editor, "editor")
        kept = subscribe(experiment=experiment, by=owner, kind="email", target="a@example.org", events=ALL)
        subscribe(experiment=experiment, by=editor, kind="email", target="b@example.org", events=ALL)
        change_role(membership_id=role.pk, by=owner, role="viewer")
        assert list(experiment.subscriptions.all()) == [kept]
        assert "Removed the notification by email to example.org." in str(
            list(experiment.audit_entries.values())
        )
        owner.is_active = False
        owner.save()
        settle_account(user=owner)
        assert not experiment.subscriptions.exists()

    def test_an_experiment_has_at_most_twenty(self, experiment):
        for n in range(20):
            subscribed(experiment, target=f"a{n}@example.org")
        with pytest.raises(SubscriptionError, match="limit is 20"):
            subscribed(experiment)


def test_the_list_has_the_newest_message_of_each_in_two_queries(experiment, django_assert_num_queries):
    told, silent = subscribed(experiment), subscribed(experiment, target="bob@example.org")
    send_test(subscription=told)
    newest = send_test(subscription=told)
    with django_assert_num_queries(2):
        listed = experiment_log.subscriptions(experiment)
    assert [(each.subscription, each.latest) for each in listed] == [(told, newest), (silent, None)]
    assert listed[0].subscription.occasions[0] == "It concludes"


class TestConclusion:
    def test_subscribers_are_notified(self, experiment):
        subscribed(experiment)
        subscribed(experiment, events=("stalled",), target="other@example.org")
        stop(experiment_id=experiment.pk)
        assert messages() == [
            ("concluded", "Not decided. Stopped by hand after 0 comparisons. No judgments yet.")
        ]

    def test_nobody_is_told_of_what_was_rolled_back(self, experiment):
        subscribed(experiment)
        with transaction.atomic():
            stop(experiment_id=experiment.pk)
            assert events() == ["concluded"]
            transaction.set_rollback(True)
        assert messages() == []

    def test_a_second_conclusion_is_news_again(self, experiment, admin):
        subscribed(experiment)
        stop(experiment_id=experiment.pk)
        reopen(experiment_id=experiment.pk, by=admin)
        stop(experiment_id=experiment.pk)
        assert events() == ["concluded", "concluded"]

    def test_who_is_removed_gets_nothing_any_more(self, experiment, admin):
        subscription = subscribed(experiment)
        stop(experiment_id=experiment.pk)
        unsubscribe(subscription=subscription, by=admin)
        assert claim_due() is None


class TestHealth:
    def silence(self, minutes: float) -> None:
        writers = WorkerPulse.objects.filter(queue="generation")
        writers.update(seen_at=timezone.now() - timedelta(minutes=minutes))

    def grow_old(self) -> None:
        Alarm.objects.update(since=timezone.now() - timedelta(minutes=2))

    def test_trouble_is_told_once_it_has_lasted_and_once_only_and_its_end_too(self, experiment):
        subscribed(experiment)
        self.silence(minutes=10)
        watch()
        assert events() == [], "it may be over in a moment"
        self.grow_old()
        for _ in range(3):
            watch()
        assert events() == ["unhealthy"]
        assert "The generation worker was last seen 10 minutes ago. Start it again." in messages()[0][1]
        self.silence(minutes=0)
        for _ in range(3):
            watch()
        assert events() == ["unhealthy", "recovered"]

    def test_trouble_that_was_over_soon_is_told_to_nobody(self, experiment):
        subscribed(experiment)
        self.silence(minutes=10)
        watch()
        self.silence(minutes=0)
        watch()
        assert events() == []
        assert not Alarm.objects.exists()

    def test_the_next_trouble_is_news(self, experiment):
        subscribed(experiment)
        for _ in range(2):
            self.silence(minutes=10)
            watch()
            self.grow_old()
            watch()
            self.silence(minutes=0)
            watch()
        assert events() == ["unhealthy", "recovered"] * 2

    def test_responses_that_wait_are_trouble(self, experiment):
        subscribed(experiment)
        long_ago = timezone.now() - timedelta(minutes=2)
        Response.objects.update(state="waiting", created_at=long_ago, done_at=None)
        watch()
        self.grow_old()
        watch()
        assert "no worker writes" in messages()[0][1]

    def test_ready_made_responses_need_no_generation_worker(self, experiment):
        Experiment.objects.update(responses="imported")
        subscribed(experiment)
        WorkerPulse.objects.filter(queue="generation").delete()
        watch()
        self.grow_old()
        watch()
        assert not Alarm.objects.exists()
        assert events() == []

    def test_a_model_that_no_worker_serves_is_told_of_before_any_response_has_waited_for_long(
        self, experiment
    ):
        WorkerPulse.objects.filter(queue="generation").update(details={"backend": "smollm2", "model": "m"})
        Experiment.objects.update(backend="vllm")
        subscribed(experiment)
        watch()
        self.grow_old()
        watch()
        assert "No worker serves the vllm backend." in messages()[0][1]

    def test_a_paused_experiment_is_in_no_trouble(self, experiment):
        subscribed(experiment)
        self.silence(minutes=10)
        watch()
        pause(experiment_id=experiment.pk)
        watch()
        assert not Alarm.objects.exists()
        assert events() == []

    def test_an_experiment_that_nobody_asked_about_is_not_looked_at(self, experiment):
        self.silence(minutes=10)
        watch()
        assert not Alarm.objects.exists()


class TestStall:
    @pytest.fixture
    def abandoned(self, experiment, settings) -> Experiment:
        settings.STALL_HOURS = 2
        long_ago = timezone.now() - timedelta(hours=3)
        Comparison.objects.update(ready_at=long_ago)
        with lifted():
            experiment.audit_entries.update(at=long_ago)
        return experiment

    def test_pairs_that_nobody_judges_for_hours_are_told_of_once(self, abandoned):
        subscribed(abandoned)
        for _ in range(2):
            watch()
        assert events() == ["stalled"]
        assert "Nobody has judged a pair for 2 hours" in messages()[0][1]

    def test_a_judgment_ends_it_quietly(self, abandoned, annotator):
        subscribed(abandoned)
        watch()
        click(abandoned, annotator)
        watch()
        assert events() == ["stalled"]
        assert not Alarm.objects.exists()

    def test_just_resumed_is_not_stalled(self, abandoned):
        subscribed(abandoned)
        pause(experiment_id=abandoned.pk)
        start(experiment_id=abandoned.pk)
        watch()
        assert events() == []

    def test_nothing_to_judge_is_not_stalled(self, abandoned):
        subscribed(abandoned)
        Comparison.objects.update(state="planned")
        watch()
        assert events() == []


class TestOutbox:
    @pytest.fixture
    def waiting(self, experiment) -> Notification:
        return notifications.send_test(subscription=subscribed(experiment))

    def test_what_is_claimed_is_nobody_elses_for_a_while_and_comes_back_when_its_worker_died(self, waiting):
        late = claim_due()
        assert late == waiting
        assert claim_due() is None
        Notification.objects.update(claim_expires_at=timezone.now() - timedelta(seconds=1))
        again = claim_due()
        assert (again, again.attempts) == (waiting, 2)
        mark_unsent(notification=late, error="too late to say so", final=True)
        waiting.refresh_from_db()
        assert (waiting.state, waiting.error, waiting.claim) == ("waiting", "", again.claim)

    def test_what_was_sent_is_done(self, waiting):
        mark_sent(notification=claim_due())
        Notification.objects.update(due_at=timezone.now() - timedelta(seconds=1))
        assert claim_due() is None
        waiting.refresh_from_db()
        assert waiting.state == "sent"

    def test_it_is_tried_again_later_and_later_and_given_up_in_the_end(self, waiting):
        pauses = []
        while (claimed := claim_due()) is not None:
            mark_unsent(notification=claimed, error="no")
            waiting.refresh_from_db()
            pauses.append(waiting.due_at - timezone.now())
            if waiting.state == "waiting":
                Notification.objects.update(due_at=clock.now() - timedelta(seconds=1))
        assert (waiting.state, waiting.error, waiting.attempts) == ("failed", "no", 7)
        assert pauses[:6] == sorted(pauses[:6])
        assert pauses[5] > timedelta(hours=5)

    def test_what_would_never_do_is_given_up_at_once(self, waiting):
        mark_unsent(notification=claim_due(), error="private", final=True)
        waiting.refresh_from_db()
        assert waiting.state == "failed"

    @pytest.mark.django_db(transaction=True)
    def test_many_workers_at_once_take_each_message_once(self, experiment):
        subscription = subscribed(experiment)
        for _ in range(12):
            notifications.send_test(subscription=subscription)

        def empty() -> list[int]:
            taken = []
            while (claimed := claim_due()) is not None:
                taken.append(claimed.pk)
            return taken

        taken = [pk for one in at_once([empty] * 4) for pk in one]
        assert len(taken) == len(set(taken)) == 12

    @pytest.mark.django_db(transaction=True)
    def test_two_sweeps_at_once_tell_it_once(self, experiment):
        subscribed(experiment)
        WorkerPulse.objects.update(seen_at=timezone.now() - timedelta(minutes=10))
        watch()
        Alarm.objects.update(since=timezone.now() - timedelta(minutes=2))
        at_once([watch] * 4)
        assert events() == ["unhealthy"]
        WorkerPulse.objects.update(seen_at=timezone.now())
        at_once([watch] * 4)
        assert events() == ["unhealthy", "recovered"]
