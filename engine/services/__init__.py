"""The write side: every change of state goes through one of these functions.

Each is atomic and keyword-only. They never start Celery tasks: the caller wakes the workers.
"""
