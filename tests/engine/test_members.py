"""Members: changing what somebody may do, and taking it away."""

import pytest

from engine.domain.errors import MembershipError
from engine.models import Assignment, clock
from engine.selectors import counts
from engine.selectors.missing import actively_held
from engine.services import people
from engine.services.serving import show_next
from tests.concurrency import at_once
from tests.factories import add_member, assign, click, make_experiment, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner():
    return make_user("owner")


@pytest.fixture
def experiment(owner):
    experiment = make_experiment(ready=True)
    add_member(experiment, owner, "owner")
    return experiment


def test_the_same_role_again_is_no_change(experiment, owner):
    member = add_member(experiment, make_user(), "viewer")
    people.change_role(membership_id=member.pk, by=owner, role="viewer")
    assert not experiment.audit_entries.filter(action="role").exists()


def test_nobody_has_one_role_twice(experiment, owner):
    user = make_user("both")
    add_member(experiment, user, "viewer")
    member = add_member(experiment, user, "editor")
    with pytest.raises(MembershipError, match="both is viewer already"):
        people.change_role(membership_id=member.pk, by=owner, role="viewer")


def test_nobody_waits_for_the_pair_of_a_removed_annotator_and_their_judgments_stay(experiment, owner):
    user = make_user("ann")
    member = add_member(experiment, user)
    judgment = click(experiment, user)
    held = assign(experiment, user)
    people.remove_member(membership_id=member.pk, by=owner)
    held.comparison.refresh_from_db()
    assert (held.comparison.state, actively_held(experiment)) == ("assigned", [])
    assert counts.standing_judgments(experiment.pk).filter(pk=judgment.pk).exists()
    assert experiment.audit_entries.first().text == "Removed ann, who was annotator."


def test_nobody_waits_for_their_checks_either(owner):
    """An owner who judges may give the role up and take it again, and must not tell their pairs apart."""
    experiment = make_experiment(ready=True, n_gold=1, practice=1)
    add_member(experiment, owner, "owner")
    member = add_member(experiment, owner)
    shown = show_next(experiment=experiment, annotator=owner)
    check = Assignment.objects.checks().get(token=shown.token)
    elsewhere = make_experiment(ready=True, n_gold=1, practice=1, annotators=(owner,))
    kept = show_next(experiment=elsewhere, annotator=owner)
    people.remove_member(membership_id=member.pk, by=owner)
    check.refresh_from_db()
    assert check.expires_at <= clock.now()
    assert Assignment.objects.checks().get(token=kept.token).expires_at > clock.now()


def test_other_experiments_keep_what_they_show(experiment, owner):
    user = make_user()
    member = add_member(experiment, user)
    elsewhere = make_experiment(ready=True, annotators=(user,))
    held = assign(elsewhere, user)
    people.remove_member(membership_id=member.pk, by=owner)
    assert actively_held(elsewhere) == [held.comparison_id]


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_two_owners_who_remove_each_other_at_once_leave_one(experiment, owner):
    first = experiment.memberships.get(user=owner)
    second = add_member(experiment, make_user(), "owner")

    def remove(member, by) -> bool:
        try:
            people.remove_member(membership_id=member.pk, by=by)
        except MembershipError:
            return False
        return True

    done = at_once([lambda: remove(first, second.user), lambda: remove(second, first.user)])
    assert sorted(done) == [False, True]
    assert experiment.memberships.filter(role="owner").count() == 1
