"""API tokens: one secret, kept as a hash, good for a while."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from engine.models import AuditEntry, Token
from engine.services.tokens import make_token, revoke_token, token_of
from tests.factories import make_user

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


def test_a_revoked_one_is_useless_and_the_log_says_so_once(annotator):
    token, secret = make_token(user=annotator, name="export", valid_days=1)
    for _ in range(2):
        revoke_token(token_id=token.pk, by=annotator)
    assert token_of(secret=secret) is None
    assert AuditEntry.objects.filter(action="token_revoked").count() == 1


def test_one_of_a_deactivated_account_is_useless():
    user = make_user(is_active=False)
    _, secret = make_token(user=user, name="export", valid_days=1)
    assert token_of(secret=secret) is None


def test_its_use_is_noted_but_not_written_at_every_request(annotator, django_assert_num_queries):
    token, secret = make_token(user=annotator, name="export", valid_days=1)
    token_of(secret=secret)
    token.refresh_from_db()
    assert token.used_at is not None
    with django_assert_num_queries(1):
        token_of(secret=secret)
