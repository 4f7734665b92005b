"""Exports of judgments as files, and reading them back."""
