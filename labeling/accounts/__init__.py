"""Logging in: django-allauth's flows, with this site's rules for who gets in and how often one may try."""
