"""All stored data about one person."""

from collections import Counter
from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.db.models import Q, QuerySet
from django.db.models.functions import Lower

from engine.models import (
    Assignment,
    AuditEntry,
    Browser,
    Connection,
    Destination,
    Experiment,
    Flag,
    Invitation,
    InvitationUse,
    Judgment,
    JudgmentVoid,
    Loan,
    Membership,
    Publication,
    ReportLink,
    RoleLoss,
    Subscription,
    Token,
    Upload,
    User,
    clock,
)
from engine.selectors.counts import in_experiment

Row = dict[str, Any]


def sessions_of(user: User) -> list[Session]:
    """The sessions in which somebody is logged in to this account."""
    running = Session.objects.filter(expire_date__gt=clock.now())
    return [each for each in running.iterator() if each.get_decoded().get("_auth_user_id") == str(user.pk)]


def addresses_of(user: User) -> set[str]:
    """The account's e-mail addresses, the one that waits to be confirmed included, in small letters."""
    known = EmailAddress.objects.filter(user=user).values_list("email", flat=True)
    return {address.lower() for address in (user.email, *known) if address}


def subscriptions_to(addresses: set[str]) -> QuerySet[Subscription]:
    """The notifications that go to one of these e-mail addresses, given in small letters."""
    mails = Subscription.objects.filter(kind=Subscription.Kind.EMAIL).order_by("pk")
    return mails.alias(address=Lower("target")).filter(address__in=addresses)


def invitations_to(addresses: set[str]) -> QuerySet[Invitation]:
    """The invitations that were sent to one of these e-mail addresses, given in small letters."""
    mailed = Invitation.objects.exclude(email="").order_by("pk")
    return mailed.alias(address=Lower("email")).filter(address__in=addresses)


def person_data(user: User, *, complete: bool) -> Row:
    """The stored data about a person, by kind, for a JSON file.

    Parameters
    ----------
    complete
        With the answers in experiments that have not concluded, and with the log's entries that count them.
        Leave them out for annotators themselves: while they judge, nothing may tell them which pairs are
        checks.
    """
    answers = Judgment.objects.filter(annotator=user).order_by("pk")
    judgments, checks = answers.filter(assignment=None), answers.filter(comparison=None)
    flags = Flag.objects.filter(annotator=user)
    withheld: list[Row] = []
    entries = AuditEntry.objects.filter(Q(by=user) | Q(about=user))
    if not complete:
        open_ones = Experiment.objects.exclude(state=Experiment.State.CONCLUDED)
        withheld = _withheld(judgments, checks, open_ones)
        judgments = judgments.exclude(comparison__experiment__in=open_ones)
        checks = checks.exclude(assignment__experiment__in=open_ones)
        flags = flags.exclude(in_experiment(open_ones, "__in"))
        # Such an entry counts judgments. Somebody knows the number of their answers, and the rest are checks.
        voided = entries.filter(action=AuditEntry.Action.VOID, about=user, experiment__in=open_ones)
        entries = entries.exclude(pk__in=voided)
    return {
        "account": _account(user),
        "memberships": _rows(
            Membership.objects.filter(user=user).order_by("pk"), experiment="experiment__name", role="role"
        ),
        "invitations_made": _rows(
            Invitation.objects.filter(created_by=user).order_by("pk"),
            experiment="experiment__name", role="role", uses="uses", created_at="created_at",
            until="expires_at",
        ),
        "report_links_made": _rows(
            ReportLink.objects.filter(created_by=user).order_by("pk"),
            experiment="experiment__name", created_at="created_at", until="expires_at", ended_at="ended_at",
        ),
        # The whole target may be a secret of the experiment's, or somebody else's address.
        "notifications_added": [
            {
                "experiment": subscription.experiment.name,
                "kind": subscription.kind,
                "host": subscription.host,
                "created_at": subscription.created_at,
            }
            for subscription in Subscription.objects.filter(created_by=user).select_related("experiment")
        ],
        "notifications_received": _rows(
            subscriptions_to(addresses_of(user)),
            experiment="experiment__name", target="target", created_at="created_at",
        ),
        "destinations_added": _rows(
            Destination.objects.filter(created_by=user).order_by("pk"),
            experiment="experiment__name", kind="kind", name="name", created_at="created_at",
        ),
        "winners_sent": _rows(
            Publication.objects.filter(by=user).order_by("pk"),
            experiment="destination__experiment__name", kind="destination__kind", policy="policy",
            created_at="created_at",
        ),
        "api_tokens": _rows(
            Token.objects.filter(user=user).order_by("pk"),
            name="name", scopes="scopes", experiment="experiment__name", created_at="created_at",
            until="expires_at", revoked_at="revoked_at", used_at="used_at",
        ),
        # Not even the last characters of a key.
        "connections": _rows(
            Connection.objects.filter(owner=user).order_by("pk"),
            name="name", provider="provider", model="model_id", address="address", created_at="created_at",
            key_set_at="key_set_at", retired_at="retired_at",
        ),
        "connections_lent": _rows(
            Loan.objects.filter(by=user).order_by("pk"),
            connection="connection__name", experiment="experiment__name", at="at",
        ),
        "judgments": _rows(
            judgments, experiment="comparison__experiment__name", number="pk", comparison="comparison_id",
            choice="choice", comment="comment", in_view="in_view", further="further", shown_at="shown_at",
            judged_at="created_at", voided_at="void__created_at", void_reason="void__reason",
        ),
        "judgments_voided": _rows(
            JudgmentVoid.objects.filter(by=user, judgment__assignment=None)
            .exclude(judgment__annotator=user).order_by("pk"),
            judgment="judgment_id", reason="reason", at="created_at",
        ),
        "flags": _rows(
            flags.order_by("pk"),
            experiment="comparison__experiment__name", comparison="comparison_id", reason="reason",
            comment="comment", at="created_at",
        ),
        "checks": _rows(
            checks, experiment="assignment__experiment__name", kind="assignment__kind", shown_at="shown_at",
            judged_at="created_at", choice="choice", comment="comment", in_view="in_view",
            further="further", passed="assignment__passed",
        ),
        "pairs_shown": _rows(
            Assignment.objects.filter(annotator=user).order_by("pk"),
            experiment="experiment__name", kind="kind", at="granted_at", state="state",
        ) if complete else [],
        "answers_until_the_experiment_concludes": withheld,
        # Filter in SQL: anybody may ask for their own file, and decoding everybody's rows takes long.
        "sessions": _rows(
            Session.objects.filter(
                session_key__in=UserSession.objects.filter(user=user).values("session_key"),
                expire_date__gt=clock.now(),
            ).order_by("expire_date"),
            until="expire_date",
        ),
        "browsers": _rows(
            UserSession.objects.filter(user=user).order_by("pk"),
            since="created_at", last_seen_at="last_seen_at", address="ip", browser="user_agent",
        ),
        "known_browsers": _rows(
            Browser.objects.filter(user=user).order_by("pk"), digest="hash", since="first_login_at"
        ),
        "email_addresses": _rows(
            EmailAddress.objects.filter(user=user).order_by("pk"), address="email", confirmed="verified"
        ),
        "second_steps": _rows(
            Authenticator.objects.filter(user=user).order_by("pk"), kind="type", since="created_at",
            last_used_at="last_used_at",
        ),
        "linked_accounts": _rows(
            SocialAccount.objects.filter(user=user).order_by("pk"), provider="provider", since="date_joined",
            told_by_the_provider="extra_data",
        ),
        "invitations_used": _rows(
            InvitationUse.objects.filter(user=user).order_by("pk"),
            experiment="invitation__experiment__name", role="invitation__role", at="at",
        ),
        "invitations_received": _rows(
            invitations_to(addresses_of(user)),
            experiment="experiment__name", role="role", address="email", created_at="created_at",
            until="expires_at",
        ),
        "roles_lost": _rows(
            RoleLoss.objects.filter(user=user).order_by("pk"),
            experiment="experiment__name", role="role", at="at",
        ),
        "uploads": _rows(
            Upload.objects.filter(user=user).order_by("pk"),
            file="file_name", experiment="name", created_at="created_at",
        ),
        "log": _log(entries, user),
    }  # fmt: skip


def _account(user: User) -> Row:
    # Not its number: the less annotators know that goes into anything random, the better.
    names = (
        "username", "first_name", "last_name", "email", "is_active", "is_staff", "is_superuser",
        "date_joined", "last_login", "forgotten_at", "preferences",
    )  # fmt: skip
    return {name: getattr(user, name) for name in names}


def _rows(rows: QuerySet[Any], **fields: str) -> list[Row]:
    return [dict(zip(fields, values, strict=True)) for values in rows.values_list(*fields.values())]


def _withheld(
    judgments: QuerySet[Judgment], checks: QuerySet[Judgment], experiments: QuerySet[Experiment]
) -> list[Row]:
    """The number of answers in each of these experiments, comparisons and checks together.

    Neither skipping a pair nor what an editor does may move it otherwise for a check than for a comparison.
    """
    given = judgments.filter(comparison__experiment__in=experiments, restores__isnull=True)
    names = Counter(given.values_list("comparison__experiment__name", flat=True))
    answered = checks.filter(assignment__experiment__in=experiments)
    names.update(answered.values_list("assignment__experiment__name", flat=True))
    return [{"experiment": name, "answers": answers} for name, answers in sorted(names.items())]


def _log(entries: QuerySet[AuditEntry], user: User) -> list[Row]:
    return [
        {
            "at": entry.at,
            "experiment": None if entry.experiment is None else entry.experiment.name,
            "by_this_person": entry.by_id == user.pk,
            "sentence": entry.text,
        }
        for entry in entries.select_related("about", "experiment").order_by("pk")
    ]
