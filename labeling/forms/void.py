"""The reason that an editor gives for voiding judgments."""

from django import forms


class VoidForm(forms.Form):
    reason = forms.CharField(max_length=200)
