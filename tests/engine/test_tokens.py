"""API tokens: one secret, kept as a hash, good for a while."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import transaction
from django.utils import timezone

from engine.domain.errors import TokenError
from engine.models import AuditEntry, Token, User
from engine.services import people
from engine.services.drafts import delete_experiment
from engine.services.tokens import make_token, token_of
from engine.tasks import note_token_use
from tests.accounts import let_create
from tests.concurrency import blocked
from tests.factories import add_member, make_experiment, make_user

pytestmark = pytest.mark.django_db


def test_the_secret_leads_to_its_user_and_is_not_in_the_table(annotator):
    token, secret = make_token(user=annotator, name="export", valid_days=1)
    assert token_of(secret=secret).user == annotator
    row = Token.objects.values().get(pk=token.pk)
    assert not [value for value in row.values() if isinstance(value, str) and secret[12:] in value]
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.by) == ("token_made", annotator)
    assert secret not in str(entry.details) + entry.sentence


@pytest.mark.parametrize("secret", ["", "llmpo_", "llmpo_wrong", "ä" * 100])
def test_any_other_text_leads_nowhere(secret, annotator):
    make_token(user=annotator, name="export", valid_days=1)
    assert token_of(secret=secret) is None


def test_its_hash_is_no_secret(annotator):
    token, _ = make_token(user=annotator, name="export", valid_days=1)
    assert token_of(secret=token.hash) is None


def test_an_expired_one_is_useless(annotator):
    _, secret = make_token(user=annotator, name="export", valid_days=1)
    Token.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert token_of(secret=secret) is None


def test_one_of_a_deactivated_account_is_useless():
    user = make_user()
    _, secret = make_token(user=user, name="export", valid_days=1)
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert token_of(secret=secret) is None


def test_looking_it_up_writes_nothing(annotator, django_assert_num_queries):
    """Reading with a token writes nothing."""
    token, secret = make_token(user=annotator, name="export", valid_days=1)
    with django_assert_num_queries(1):
        token_of(secret=secret)
    token.refresh_from_db()
    assert token.used_at is None
    note_token_use(token.pk)
    token.refresh_from_db()
    assert token.used_at is not None


class TestScopes:
    @pytest.mark.parametrize("scopes", [[], ["admin"], ["read", "admin"]])
    def test_none_or_an_unknown_one_is_refused(self, scopes, annotator):
        with pytest.raises(TokenError, match="Choose at least one scope"):
            make_token(user=annotator, name="export", valid_days=1, scopes=scopes)
        assert not Token.objects.exists()

    def test_a_token_is_bound_to_an_experiment_of_its_user_only(self, annotator):
        own, other = make_experiment(annotators=(annotator,)), make_experiment()
        token, _ = make_token(user=annotator, name="export", valid_days=1, experiment=own)
        assert token.experiment == own
        with pytest.raises(TokenError, match="no role in that experiment"):
            make_token(user=annotator, name="export", valid_days=1, experiment=other)

    def test_a_deactivated_account_makes_none(self, annotator):
        User.objects.update(is_active=False)
        with pytest.raises(TokenError, match="deactivated"):
            make_token(user=annotator, name="export", valid_days=1)


class TestLastRight:
    """A token ends with the last right behind it, for good."""

    @pytest.fixture
    def experiment(self, annotator):
        experiment = make_experiment(running=False, annotators=(annotator,))
        add_member(experiment, make_user("owner"), "owner")
        return experiment

    @staticmethod
    def remove(experiment, user, role="annotator"):
        people.remove_member(
            membership_id=experiment.memberships.get(user=user, role=role).pk,
            by=User.objects.get(username="owner"),
        )

    def test_a_removal_from_the_last_experiment_ends_it(self, annotator, experiment):
        token, secret = make_token(user=annotator, name="export", valid_days=1)
        self.remove(experiment, annotator)
        assert token_of(secret=secret) is None
        entry = AuditEntry.objects.get(action="token_revoked")
        assert entry.text == f"Revoked the API token {token.hint}…. The last right behind it was taken away."
        add_member(experiment, annotator)
        assert token_of(secret=secret) is None

    def test_a_removal_from_its_own_experiment_ends_it(self, annotator, experiment):
        elsewhere = make_experiment(annotators=(annotator,))
        _, bound = make_token(user=annotator, name="bound", valid_days=1, experiment=experiment)
        _, free = make_token(user=annotator, name="free", valid_days=1)
        _, other = make_token(user=annotator, name="other", valid_days=1, experiment=elsewhere)
        self.remove(experiment, annotator)
        assert [token_of(secret=each) is None for each in (bound, free, other)] == [True, False, False]

    def test_the_deletion_of_the_last_experiment_ends_it(self, annotator, experiment):
        _, secret = make_token(user=annotator, name="export", valid_days=1)
        delete_experiment(experiment_id=experiment.pk, by=User.objects.get(username="owner"))
        assert token_of(secret=secret) is None

    def test_another_role_in_the_experiment_keeps_it(self, annotator, experiment):
        add_member(experiment, annotator, "viewer")
        _, secret = make_token(user=annotator, name="bound", valid_days=1, experiment=experiment)
        self.remove(experiment, annotator)
        assert token_of(secret=secret) is not None

    def test_somebody_who_may_make_experiments_keeps_it(self, annotator, experiment):
        let_create(annotator)
        _, secret = make_token(user=annotator, name="start", valid_days=1, scopes=["manage"])
        self.remove(experiment, annotator)
        assert token_of(secret=secret) is not None

    @pytest.mark.parametrize("right", ["is_active", "is_superuser"])
    def test_a_deactivation_or_the_loss_of_superuser_ends_it(self, right, experiment):
        """Even where a role is left: the token was made with other rights in mind."""
        user = make_user(is_superuser=True)
        add_member(experiment, user, "viewer")
        _, secret = make_token(user=user, name="all", valid_days=1)
        for value in (False, True):
            setattr(user, right, value)
            user.save()
            assert token_of(secret=secret) is None

    @pytest.mark.parametrize("taken", ["permission", "group", "permission of the group", "the group goes"])
    def test_the_loss_of_the_only_permission_ends_it(self, taken, annotator):
        permission = Permission.objects.get(codename="add_experiment")
        group = Group.objects.create(name="makers")
        if taken == "permission":
            annotator.user_permissions.add(permission)
        else:
            group.permissions.add(permission)
            annotator.groups.add(group)
        _, secret = make_token(user=annotator, name="x", valid_days=1, scopes=["manage"])
        match taken:
            case "permission":
                annotator.user_permissions.remove(permission)
            case "group":
                group.user_set.clear()
            case "permission of the group":
                group.permissions.set([])
            case _:
                group.delete()
        assert token_of(secret=secret) is None

    def test_a_demotion_ends_none(self, annotator, experiment):
        """Every request checks the rights of a token again: the user's rights and its scopes."""
        editor = make_user()
        member = add_member(experiment, editor, "editor")
        _, secret = make_token(user=editor, name="all", valid_days=1, experiment=experiment)
        people.change_role(membership_id=member.pk, by=User.objects.get(username="owner"), role="viewer")
        assert token_of(secret=secret) is not None


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_no_token_is_made_while_its_user_is_removed():
    owner, annotator = make_user("owner"), make_user("ann")
    experiment = make_experiment(running=False, annotators=(annotator,))
    add_member(experiment, owner, "owner")

    def make_one() -> bool:
        try:
            make_token(user=annotator, name="late", valid_days=1, experiment=experiment)
        except TokenError:
            return False
        return True

    with transaction.atomic():
        people.remove_member(membership_id=experiment.memberships.get(user=annotator).pk, by=owner)
        late = blocked(make_one)
    assert late.result() is False
    assert not Token.objects.exists()
