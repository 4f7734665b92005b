"""Sending what the outbox holds: by e-mail, or to a webhook."""
