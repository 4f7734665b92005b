"""Invitations: who they let in, how often, for how long, and what ends them."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from engine.domain.errors import InvitationError, MembershipError
from engine.models import AuditEntry, Experiment, Invitation, Membership, RoleLoss, User
from engine.services import people
from engine.services.invitations import accept_invitation, create_invitation, find_invitation, open_invitation
from engine.services.people import change_role, remove_member
from tests.concurrency import at_once, blocked
from tests.factories import add_member, make_experiment, make_user

pytestmark = pytest.mark.django_db


def member(experiment: Experiment, role: str) -> User:
    user = make_user()
    add_member(experiment, user, role)
    return user


def invite(experiment, *, by=None, role="annotator", most_uses=1, valid_days=7) -> Invitation:
    invitation, _ = create_invitation(
        experiment=experiment,
        by=by or member(experiment, "owner"),
        role=role,
        most_uses=most_uses,
        valid_days=valid_days,
    )
    return invitation


def remove(experiment, user, by) -> int:
    return remove_member(membership_id=experiment.memberships.get(user=user).pk, by=by)


def accepted(invitation, user) -> bool:
    try:
        accept_invitation(invitation_id=invitation.pk, user=user)
    except InvitationError:
        return False
    return True


@pytest.fixture
def experiment(db):
    return make_experiment(running=False)


@pytest.fixture
def owner(experiment):
    return member(experiment, "owner")


class TestAccept:
    @pytest.mark.parametrize("role", Membership.Role.values)
    def test_it_makes_a_member_in_its_role_of_its_experiment_alone(self, role, experiment, owner):
        user = make_user()
        joined = accept_invitation(invitation_id=invite(experiment, by=owner, role=role).pk, user=user)
        assert (joined.experiment, joined.user, joined.role) == (experiment, user, role)
        assert (joined.origin, joined.invited_by) == ("invitation", owner)
        assert list(Membership.objects.filter(user=user)) == [joined]

    def test_who_used_it_is_written_down(self, experiment, owner):
        invitation, user = invite(experiment, by=owner), make_user()
        accept_invitation(invitation_id=invitation.pk, user=user)
        use = invitation.used_by.get()
        assert use.user == user
        entry = experiment.audit_entries.filter(action="join").get()
        assert entry.text == f"Joined as annotator, invited by {owner}."

    def test_a_link_for_n_people_lets_exactly_n_in(self, experiment):
        invitation = invite(experiment, most_uses=3)
        for _ in range(3):
            accept_invitation(invitation_id=invitation.pk, user=make_user())
        late = make_user()
        for call in (
            lambda: open_invitation(invitation_id=invitation.pk),
            lambda: accept_invitation(invitation_id=invitation.pk, user=late),
        ):
            with pytest.raises(InvitationError, match="used up"):
                call()
        assert not late.memberships.exists()

    def test_following_it_twice_uses_it_once(self, experiment):
        invitation, user = invite(experiment, most_uses=2), make_user()
        first = accept_invitation(invitation_id=invitation.pk, user=user)
        assert accept_invitation(invitation_id=invitation.pk, user=user) == first
        invitation.refresh_from_db()
        assert invitation.uses == 1

    def test_a_member_uses_nothing_up(self, experiment):
        invitation, user = invite(experiment), make_user()
        membership = add_member(experiment, user)
        assert accept_invitation(invitation_id=invitation.pk, user=user) == membership
        invitation.refresh_from_db()
        assert invitation.uses == 0

    def test_somebody_with_another_role_gets_this_one_too(self, experiment):
        user = make_user()
        add_member(experiment, user, "viewer")
        accept_invitation(invitation_id=invite(experiment).pk, user=user)
        assert sorted(user.memberships.values_list("role", flat=True)) == ["annotator", "viewer"]

    def test_after_its_last_day_it_lets_nobody_in(self, experiment, owner):
        invitation = invite(experiment, by=owner, most_uses=5, valid_days=1)
        assert invitation.expires_at - invitation.created_at == timedelta(days=1)
        Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        with pytest.raises(InvitationError, match="has expired"):
            accept_invitation(invitation_id=invitation.pk, user=make_user())
        assert experiment.memberships.count() == 1

    def test_a_number_that_is_no_invitation_is_refused(self, experiment):
        with pytest.raises(InvitationError, match="no such invitation"):
            accept_invitation(invitation_id=987654321, user=make_user())


class TestSecret:
    """Tokens are stored hashed and shown once."""

    def test_the_table_does_not_hold_it(self, experiment, owner):
        invitation, secret = create_invitation(
            experiment=experiment, by=owner, role="viewer", most_uses=1, valid_days=1
        )
        assert len(secret) == 43, "256 random bits"
        assert find_invitation(secret=secret) == invitation
        assert secret.startswith(invitation.hint)
        row = Invitation.objects.values().get()
        assert not [value for value in row.values() if isinstance(value, str) and secret[6:] in value]
        assert secret[:6] not in str(list(AuditEntry.objects.values("details", "sentence")))

    def test_neither_its_hash_nor_its_hint_opens_it(self, experiment):
        invitation = invite(experiment)
        for wrong in (invitation.hash, invitation.hint, "", "ä"):
            assert find_invitation(secret=wrong) is None


class TestLimits:
    """The more rights a link gives, the fewer people and days it has."""

    @pytest.mark.parametrize(
        ("role", "uses", "days"),
        [("annotator", 1000, 365), ("viewer", 50, 90), ("editor", 50, 90), ("owner", 1, 7)],
    )
    def test_one_more_person_or_day_is_refused(self, role, uses, days, experiment, owner):
        invite(experiment, by=owner, role=role, most_uses=uses, valid_days=days)
        for most_uses, valid_days in ((uses + 1, days), (uses, days + 1), (0, days), (uses, 0)):
            with pytest.raises(InvitationError, match=f"at most {uses} and lasts at most {days} days"):
                invite(experiment, by=owner, role=role, most_uses=most_uses, valid_days=valid_days)

    def test_the_database_itself_refuses_a_second_use_of_an_owner_link(self, experiment):
        invitation = invite(experiment, role="owner")
        for change in ({"most_uses": 2}, {"uses": 2}):
            with pytest.raises(IntegrityError), transaction.atomic():
                Invitation.objects.filter(pk=invitation.pk).update(**change)

    @pytest.mark.parametrize(
        ("role", "given"),
        [
            ("annotator", []),
            ("viewer", []),
            ("editor", ["annotator", "viewer", "editor"]),
            ("owner", ["annotator", "viewer", "editor", "owner"]),
        ],
    )
    def test_nobody_gives_more_than_they_have(self, role, given, experiment):
        by = member(experiment, role)
        for wanted in Membership.Role.values:
            if wanted in given:
                invite(experiment, by=by, role=wanted)
            else:
                with pytest.raises(MembershipError, match=f"may not invite anybody as {wanted}"):
                    invite(experiment, by=by, role=wanted)


class TestWhatEndsALink:
    """Links end with the rights of the people who made or used them."""

    def test_the_removal_of_its_maker(self, experiment, owner):
        editor = member(experiment, "editor")
        invitation = invite(experiment, by=editor, most_uses=9)
        assert remove(experiment, editor, owner) == 1
        for user in (make_user(), editor):
            with pytest.raises(InvitationError, match="has ended"):
                accept_invitation(invitation_id=invitation.pk, user=user)
        entry = experiment.audit_entries.filter(action="end_invitation").get()
        assert (entry.by, entry.text) == (
            owner,
            f"Ended an invitation: annotator, 0 of 9 used. {editor} had made it.",
        )

    def test_it_does_not_come_back_with_its_maker(self, experiment, owner):
        editor = member(experiment, "editor")
        invitation = invite(experiment, by=editor)
        remove(experiment, editor, owner)
        add_member(experiment, editor, "owner")
        assert not accepted(invitation, make_user())

    def test_the_demotion_of_its_maker_below_what_it_gives(self, experiment, owner):
        second = member(experiment, "owner")
        as_owner = invite(experiment, by=second, role="owner")
        as_viewer = invite(experiment, by=second, role="viewer")
        membership = experiment.memberships.get(user=second)
        assert change_role(membership_id=membership.pk, by=owner, role="editor") == 1
        assert not accepted(as_owner, make_user())
        assert accepted(as_viewer, make_user()), "an editor could still make this one"

    def test_a_promotion_ends_nothing(self, experiment, owner):
        editor = member(experiment, "editor")
        invitation = invite(experiment, by=editor)
        membership = experiment.memberships.get(user=editor)
        assert change_role(membership_id=membership.pk, by=owner, role="owner") == 0
        assert accepted(invitation, make_user())
        assert not RoleLoss.objects.exists()

    def test_the_removal_of_somebody_who_joined_by_it(self, experiment, owner):
        """Else the person could sign up anew and use it again."""
        invitation, user = invite(experiment, by=owner, most_uses=1000), make_user()
        accept_invitation(invitation_id=invitation.pk, user=user)
        assert remove(experiment, user, owner) == 1
        assert not accepted(invitation, make_user())

    def test_other_links_and_other_experiments_go_on(self, experiment, owner):
        editor = member(experiment, "editor")
        elsewhere = make_experiment(running=False)
        add_member(elsewhere, editor, "editor")
        others = [invite(experiment, by=owner), invite(elsewhere, by=editor)]
        remove(experiment, editor, owner)
        assert all(accepted(invitation, make_user()) for invitation in others)

    def test_a_removed_person_is_refused_by_every_older_link_and_let_in_by_a_newer_one(
        self, experiment, owner
    ):
        editor = member(experiment, "editor")
        older = invite(experiment, by=owner, role="viewer", most_uses=9)
        remove(experiment, editor, owner)
        with pytest.raises(InvitationError, match="taken from you after this link was made"):
            accept_invitation(invitation_id=older.pk, user=editor)
        assert accepted(older, make_user()), "for others it is as good as before"
        assert accepted(invite(experiment, by=owner), editor)

    def test_a_demoted_person_does_not_climb_back_by_an_older_link(self, experiment, owner):
        editor = member(experiment, "editor")
        older = invite(experiment, by=owner, role="editor")
        change_role(membership_id=experiment.memberships.get(user=editor).pk, by=owner, role="viewer")
        assert not accepted(older, editor)

    @pytest.mark.parametrize("lost", ["is_active", "is_superuser"])
    def test_a_superuser_who_is_one_no_longer(self, lost, experiment):
        admin = make_user(is_superuser=True)
        invitation = invite(experiment, by=admin, role="owner")
        setattr(admin, lost, False)
        admin.save()
        assert not accepted(invitation, make_user())
        setattr(admin, lost, True)
        admin.save()
        assert not accepted(invitation, make_user()), "it has ended for good"

    def test_a_change_past_the_services_counts_too(self, experiment):
        admin = make_user(is_superuser=True)
        invitation = invite(experiment, by=admin)
        User.objects.filter(pk=admin.pk).update(is_active=False)
        assert not accepted(invitation, make_user())

    def test_a_members_deactivation(self, experiment):
        editor = member(experiment, "editor")
        invitation = invite(experiment, by=editor)
        editor.is_active = False
        editor.save(update_fields=["is_active"])
        invitation.refresh_from_db()
        assert invitation.ended_at is not None


def test_a_member_is_added_by_an_administrator_once(experiment):
    admin, user = make_user("root", is_superuser=True), make_user("new")
    added = people.add_member(experiment=experiment, user=user, role="viewer", by=admin)
    assert (added.origin, added.invited_by) == ("administrator", admin)
    assert experiment.audit_entries.first().text == "Added new as viewer."
    with pytest.raises(MembershipError, match="new is viewer already"):
        people.add_member(experiment=experiment, user=user, role="viewer", by=admin)


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_as_many_get_in_as_it_is_for():
    experiment = make_experiment(running=False)
    invitation = invite(experiment, most_uses=2)
    users = [make_user() for _ in range(5)]
    let_in = at_once([lambda user=user: accepted(invitation, user) for user in users])
    invitation.refresh_from_db()
    annotators = experiment.memberships.filter(role="annotator").count()
    assert sum(let_in) == annotators == invitation.uses == invitation.used_by.count() == 2


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
class TestRaces:
    def test_of_two_who_come_for_the_last_use_the_second_waits_and_is_refused(self):
        experiment = make_experiment(running=False)
        invitation = invite(experiment)
        first, second = make_user(), make_user()
        with transaction.atomic():
            accept_invitation(invitation_id=invitation.pk, user=first)
            late = blocked(lambda: accepted(invitation, second))
        assert late.result() is False
        assert [m.user for m in experiment.memberships.filter(role="annotator")] == [first]

    def test_joining_waits_for_the_removal_of_the_links_maker(self):
        experiment = make_experiment(running=False)
        owner, editor = member(experiment, "owner"), member(experiment, "editor")
        invitation = invite(experiment, by=editor)
        with transaction.atomic():
            remove(experiment, editor, owner)
            late = blocked(lambda: accepted(invitation, make_user()))
        assert late.result() is False

    def test_somebody_does_not_join_again_while_they_are_removed(self):
        experiment = make_experiment(running=False)
        owner, annotator = member(experiment, "owner"), member(experiment, "annotator")
        invitation = invite(experiment, by=owner, role="viewer")
        with transaction.atomic():
            remove(experiment, annotator, owner)
            late = blocked(lambda: accepted(invitation, annotator))
        assert late.result() is False
        assert not annotator.memberships.exists()

    def test_no_link_is_made_while_its_maker_is_removed(self):
        experiment = make_experiment(running=False)
        owner, editor = member(experiment, "owner"), member(experiment, "editor")

        def make_link() -> bool:
            try:
                invite(experiment, by=editor)
            except MembershipError:
                return False
            return True

        with transaction.atomic():
            remove(experiment, editor, owner)
            late = blocked(make_link)
        assert late.result() is False
        assert not Invitation.objects.exists()

    def test_no_link_is_made_while_its_maker_is_deactivated(self):
        experiment = make_experiment(running=False)
        admin = make_user(is_superuser=True)

        def make_link() -> bool:
            try:
                invite(experiment, by=User.objects.get(pk=admin.pk))
            except MembershipError:
                return False
            return True

        with transaction.atomic():
            admin.is_active = False
            admin.save()
            late = blocked(make_link)
        assert late.result() is False
