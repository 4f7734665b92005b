"""Forgetting a person: the judgments stay, the person goes."""

import io
import json
from datetime import timedelta

import pytest
from allauth.account.models import EmailAddress
from allauth.usersessions.models import UserSession
from django.contrib.admin.models import ADDITION, LogEntry
from django.contrib.sessions.models import Session
from django.core import serializers
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from engine import tasks
from engine.domain.errors import PersonError
from engine.models import (
    AuditEntry,
    Examination,
    Flag,
    Invitation,
    InvitationUse,
    Judgment,
    Notification,
    ReportLink,
    Subscription,
    Token,
    User,
)
from engine.models.append_only import lifted
from engine.selectors import counts, experiment_log
from engine.selectors.person_data import person_data
from engine.services.experiments import stop
from engine.services.forgetting import forget_person
from engine.services.invitation_mails import invite_by_mail
from engine.services.invitations import accept_invitation, create_invitation, end_invitation
from engine.services.judging import rebuild_counts, void_judgment
from engine.services.notifications import send_test, subscribe
from engine.services.people import change_role
from engine.services.reports import share_report
from engine.services.retention import forget_old
from engine.services.serving import answer, show_next
from engine.services.tokens import make_token, revoke_token, token_of
from engine.services.voids import void_annotator
from tests.factories import add_member, assign, checked, click, click_on, invited, make_experiment, make_user

pytestmark = pytest.mark.django_db

NAME = "greta.of.kiel"


@pytest.fixture
def greta() -> User:
    """A person who has left a trace of every kind."""
    user = make_user(NAME, email=f"{NAME}@example.org", first_name="Greta", last_name="Kielmann")
    other = make_user("other")
    owner = make_user("owner")
    experiment = make_experiment(name="Which?", ready=True, annotators=(user, other), practice=0)
    add_member(experiment, owner, "owner")
    editor = add_member(experiment, user, "viewer")
    change_role(membership_id=editor.pk, by=owner, role="editor")
    click(experiment, other)
    click_on(experiment, user, 4)
    judgment = Judgment.objects.filter(annotator=user).first()
    with lifted():
        Judgment.objects.filter(annotator=user).update(comment="I thought of my dog.")
    Flag.objects.create(
        comparison=judgment.comparison, annotator=user, reason="leak", comment="My dog again."
    )
    void_judgment(judgment_id=judgment.pk, by=user, reason="A slip.")
    void_annotator(experiment_id=experiment.pk, annotator=other, by=user, reason="A robot.")
    assign(experiment, user)
    create_invitation(experiment=experiment, by=user, role="viewer", most_uses=5, valid_days=9)
    subscribe(experiment=experiment, by=owner, kind="email", target=user.email, events=["concluded"])
    make_token(user=user, name="Greta's laptop", valid_days=9)
    browser = Client()
    browser.force_login(user)
    UserSession.objects.get_or_create(
        user=user, session_key=browser.session.session_key, defaults={"ip": "192.0.2.1", "user_agent": NAME}
    )
    EmailAddress.objects.create(user=user, email=user.email, verified=True)
    address = EmailAddress.objects.create(user=user, email="g.kielmann@example.org", verified=False)
    subscribe(
        experiment=experiment, by=owner, kind="email", target="G.Kielmann@example.org", events=["concluded"]
    )
    # As Django's admin site writes it.
    for row in (user, experiment.memberships.filter(user=user).first(), address):
        LogEntry.objects.log_actions(owner.pk, [row], ADDITION, single_object=True)
    checked(experiment, user, kind="repeat", repeated=judgment, comment="A dog.")
    Examination.objects.update_or_create(
        experiment=experiment,
        defaults={
            "findings": {"rows": [{"annotator": NAME}]},
            "replays": {"annotators": [[user.pk, NAME, 4]]},
        },
    )
    return user


def everything_stored() -> str:
    """Every text in every table."""
    found = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names():
            cursor.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - our own tables
            found += [str(value) for row in cursor.fetchall() for value in row]
    sessions = [str(session.get_decoded()) for session in Session.objects.all()]
    return "\n".join(found + sessions)


class TestForgetting:
    def test_nothing_in_the_database_names_them_any_more(self, greta):
        """The account could not be deleted (ProtectedError), nor was there another way."""
        invite_by_mail(
            experiment=make_experiment_of(greta),
            by=greta,
            role="viewer",
            addresses=["somebody@example.org"],
            valid_days=9,
        )
        assert "kiel" in everything_stored().lower()
        forget_person(user_id=greta.pk, by=None, blank_comments=True)
        rest = everything_stored()
        assert "kiel" not in rest.lower()
        assert "Greta" not in rest
        assert "dog" not in rest

    def test_what_they_judged_stays_and_counts(self, greta):
        experiment = make_experiment_of(greta)
        before = (
            serializers.serialize(
                "json", Judgment.objects.order_by("pk"), fields=("choice", "annotator", "outcome")
            ),
            counts.pair_counts(experiment),
        )
        left = forget_person(user_id=greta.pk, by=None)
        assert left.username == "former-annotator-1"
        after = (
            serializers.serialize(
                "json", Judgment.objects.order_by("pk"), fields=("choice", "annotator", "outcome")
            ),
            counts.pair_counts(experiment),
        )
        assert before == after
        assert rebuild_counts(experiment_id=experiment.pk) == {}
        assert Judgment.objects.filter(annotator=left, comment="I thought of my dog.").exists(), (
            "not asked for"
        )

    def test_the_log_shows_the_new_name_in_old_entries(self, greta):
        experiment = make_experiment_of(greta)
        forget_person(user_id=greta.pk, by=None)
        texts = [entry.text for entry in experiment_log.audit_entries(experiment)]
        assert "Changed the role of former-annotator-1 from viewer to editor." in texts
        assert any(
            str(entry.by) == "former-annotator-1" for entry in experiment_log.audit_entries(experiment)
        )

    def test_no_way_in_is_left(self, greta):
        _, secret = make_token(user=greta, name="x", valid_days=1)
        client = Client()
        client.force_login(greta)
        forget_person(user_id=greta.pk, by=None)
        assert client.get("/").status_code == 302
        form = {"username": "former-annotator-1", "password": "a long password"}
        assert Client().post("/accounts/login/", form).status_code == 200, "no password fits"
        assert token_of(secret=secret) is None
        revoked = AuditEntry.objects.filter(action="token_revoked", about=greta)
        assert revoked.count() == 2
        assert {entry.details["because"] for entry in revoked} == {"The person was forgotten."}
        assert not greta.memberships.exists()
        assert not Invitation.objects.filter(created_by=greta, ended_at=None).exists()
        assert not Subscription.objects.exists()
        assert not Session.objects.exists()

    def test_who_did_it_is_in_the_log_of_the_site(self, greta, admin):
        forget_person(user_id=greta.pk, by=admin, blank_comments=True)
        entry = AuditEntry.objects.get(action="forget")
        assert (entry.by, entry.about, entry.experiment) == (admin, greta, None)
        assert entry.text == "Forgot a person, who is now former-annotator-1. Their comments were blanked."

    def test_each_gets_a_number_of_their_own(self):
        names = [forget_person(user_id=make_user().pk, by=None).username for _ in range(3)]
        make_user("former-annotator-4")
        names.append(forget_person(user_id=make_user().pk, by=None).username)
        assert names == [f"former-annotator-{number}" for number in (1, 2, 3, 5)]

    def test_delete_removes_an_account_that_nothing_refers_to(self):
        unused = make_user("kiel")
        add_member(make_experiment(), unused)
        unused.memberships.all().delete()
        token, _ = make_token(user=unused, name="x", valid_days=1)
        revoke_token(token_id=token.pk, by=unused)
        with lifted():
            AuditEntry.objects.filter(by=unused).delete()
        assert forget_person(user_id=unused.pk, by=None, delete=True) is None
        assert not User.objects.filter(pk=unused.pk).exists()
        assert AuditEntry.objects.get(action="forget").text == "Deleted an account that nothing refers to."

    def test_a_deleted_account_is_not_named_by_the_admin_sites_log(self, admin):
        unused = make_user("kiel", email="kiel@example.org")
        LogEntry.objects.log_actions(admin.pk, [unused], ADDITION, single_object=True)
        forget_person(user_id=unused.pk, by=None, delete=True)
        assert LogEntry.objects.get().object_repr == "a deleted account"

    def test_names_that_only_begin_alike_stay_in_the_admin_sites_log(self, admin):
        ann, anne = make_user("ann"), make_user("anne")
        LogEntry.objects.log_actions(admin.pk, [anne], ADDITION, single_object=True)
        forget_person(user_id=ann.pk, by=None)
        assert LogEntry.objects.get().object_repr == "anne"

    def test_delete_keeps_the_row_of_somebody_who_judged(self, greta):
        assert forget_person(user_id=greta.pk, by=None, delete=True) == greta
        assert Judgment.objects.filter(annotator=greta).exists()

    def test_the_only_owner_and_the_only_superuser_stay(self, admin):
        owner = make_user()
        add_member(make_experiment(name="Theirs"), owner, "owner")
        with pytest.raises(PersonError, match=r"“Theirs”: .*only owner"):
            forget_person(user_id=owner.pk, by=admin)
        with pytest.raises(PersonError, match="only superuser"):
            forget_person(user_id=admin.pk, by=admin)
        owner.refresh_from_db()
        assert owner.is_active
        assert owner.memberships.exists()

    def test_twice_is_refused(self, greta):
        forget_person(user_id=greta.pk, by=None)
        with pytest.raises(PersonError, match="already been forgotten"):
            forget_person(user_id=greta.pk, by=None)


def make_experiment_of(user: User):
    return Judgment.objects.filter(annotator=user).first().comparison.experiment


class TestCommands:
    def test_forget_person_names_the_former_account_and_blanks_comments(self, greta, capsys):
        call_command("forget_person", NAME, "--blank-comments")
        assert capsys.readouterr().out == "The account is now former-annotator-1.\n"
        assert not Judgment.objects.exclude(comment="").exists()
        with pytest.raises(CommandError, match="no account"):
            call_command("forget_person", NAME)

    def test_export_person_holds_no_secret_of_an_experiment(self, greta):
        url = "https://hooks.slack.com/services/T0/B0/s3cret"
        events = ["concluded"]
        subscribe(experiment=make_experiment_of(greta), by=greta, kind="webhook", target=url, events=events)
        out = io.StringIO()
        call_command("export_person", NAME, stdout=out)
        assert "hooks.slack.com" in out.getvalue()
        assert "s3cret" not in out.getvalue()

    def test_export_person_writes_everything_that_is_kept_about_somebody(self, greta):
        out = io.StringIO()
        call_command("export_person", NAME, stdout=out)
        data = json.loads(out.getvalue())
        assert data["account"]["email"] == f"{NAME}@example.org"
        assert [row["role"] for row in data["memberships"]] == ["annotator", "editor"]
        assert len(data["judgments"]) == 4
        assert {row["comment"] for row in data["judgments"]} == {"I thought of my dog."}
        for kind in (
            "flags",
            "api_tokens",
            "sessions",
            "browsers",
            "email_addresses",
            "log",
            "invitations_made",
            "judgments_voided",
        ):
            assert data[kind], kind
        received = [row["target"] for row in data["notifications_received"]]
        assert received == [f"{NAME}@example.org", "G.Kielmann@example.org"]
        assert [row["comment"] for row in data["checks"]] == ["A dog."]
        assert "pk" not in data["account"]
        with pytest.raises(CommandError, match="no account"):
            call_command("export_person", "nobody")


class TestOwnData:
    def test_no_answers_of_an_experiment_that_goes_on(self, annotator):
        """The file of one's own data would reveal the checks if it held their answers."""
        experiment = make_experiment(ready=True, annotators=(annotator,), n_gold=3, practice=2)
        for _ in range(4):
            pair = show_next(experiment=experiment, annotator=annotator)
            answer(
                experiment_id=experiment.pk, token=pair.token, annotator=annotator, choice="left", comment="x"
            )
        mine = person_data(annotator, complete=False)
        assert mine["judgments"] == mine["checks"] == mine["pairs_shown"] == []
        assert mine["answers_until_the_experiment_concludes"] == [
            {"experiment": experiment.name, "answers": 4}
        ]
        stop(experiment_id=experiment.pk)
        mine = person_data(annotator, complete=False)
        assert (len(mine["judgments"]), len(mine["checks"])) == (2, 2)


class TestRetention:
    def test_what_is_old_goes_and_what_is_not_stays(self, greta, settings):
        """Sessions, browsers, ended links and messages were kept for ever."""
        experiment = make_experiment_of(greta)
        now = timezone.now()

        def old(rows, field: str, days: int) -> None:
            rows.update(**{field: now - timedelta(days=days)})

        kept = forget_old()
        assert set(kept.values()) == {0}
        old(Session.objects, "expire_date", 1)
        old(Invitation.objects, "expires_at", settings.KEEP_ENDED_DAYS + 1)
        share_report(experiment=experiment, by=greta, valid_days=None)
        share_report(experiment=experiment, by=greta, valid_days=1)
        old(ReportLink.objects.exclude(expires_at=None), "expires_at", settings.KEEP_ENDED_DAYS + 1)
        old(Token.objects, "revoked_at", settings.KEEP_ENDED_DAYS + 1)
        sent_one, waiting = (send_test(subscription=Subscription.objects.first()) for _ in range(2))
        old(Notification.objects, "created_at", settings.KEEP_NOTIFICATIONS_DAYS + 1)
        Notification.objects.filter(pk=sent_one.pk).update(state="sent")
        old(LogEntry.objects, "action_time", settings.KEEP_ADMIN_LOG_DAYS + 1)
        with lifted():
            old(AuditEntry.objects, "at", 5000)
        entries = AuditEntry.objects.count()
        gone = forget_old()
        assert gone == {
            "sessions": 1, "browsers": 1, "invitations": 1, "report links": 1, "API tokens": 1,
            "notifications": 1, "trials": 0, "uploads": 0, "admin site's log": 3,
        }  # fmt: skip
        assert Notification.objects.get() == waiting
        assert AuditEntry.objects.count() == entries, "the log is part of the record"
        assert experiment.memberships.count() == 4

    def test_an_invitation_that_is_used_up_goes_too(self, greta, settings):
        old = timezone.now() - timedelta(days=settings.KEEP_ENDED_DAYS + 1)
        Invitation.objects.update(uses=5, created_at=old)
        assert forget_old()["invitations"] == 1

    @pytest.mark.parametrize("days", [29, 31])
    def test_one_that_was_ended_goes_by_when_it_ended(self, days, settings):
        """It stayed until it would have expired, a year after it was made."""
        settings.KEEP_ENDED_DAYS = 30
        owner, experiment = make_user(), make_experiment()
        add_member(experiment, owner, "owner")
        link, _ = create_invitation(
            experiment=experiment, by=owner, role="annotator", most_uses=5, valid_days=365
        )
        end_invitation(invitation_id=link.pk, by=owner)
        made, ended = (timezone.now() - timedelta(days=each) for each in (200, days))
        Invitation.objects.update(created_at=made, ended_at=ended)
        assert forget_old()["invitations"] == (days > 30)

    def test_one_that_was_used_up_goes_by_when_it_was_used(self, settings):
        link = invited(make_experiment())
        settings.KEEP_ENDED_DAYS = 30
        long_ago, later = timezone.now() - timedelta(days=40), timezone.now() + timedelta(days=40)
        Invitation.objects.update(created_at=long_ago, expires_at=later)
        accept_invitation(invitation_id=link.pk, user=make_user())
        assert forget_old()["invitations"] == 0
        InvitationUse.objects.update(at=long_ago)
        assert forget_old()["invitations"] == 1

    def test_beat_asks_for_it(self, settings, caplog):
        assert settings.CELERY_BEAT_SCHEDULE["forget_old"]["task"] == tasks.forget_old.name
        Session.objects.create(
            session_key="x", session_data="", expire_date=timezone.now() - timedelta(days=1)
        )
        caplog.set_level("INFO")
        tasks.forget_old()
        assert "1 sessions" in caplog.text
        assert not Session.objects.exists()


def test_somebody_who_annotates_still_can_after_another_was_forgotten(greta):
    experiment = make_experiment_of(greta)
    forget_person(user_id=greta.pk, by=None)
    assert click(experiment, User.objects.get(username="other")).pk
