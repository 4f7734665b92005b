"""The reason that an editor gives for voiding judgments."""

from __future__ import annotations

from django import forms


class VoidForm(forms.Form):
    reason = forms.CharField(max_length=200)
