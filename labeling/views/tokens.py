"""The API tokens of the user."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from engine.models import Experiment, Token, User
from engine.selectors.accounts import tokens_of
from engine.services.tokens import USUAL_DAYS, make_token, revoke_token
from labeling import access
from labeling.forms.fields import say_bounds
from labeling.requests import AuthenticatedRequest, read_or_write


class TokenForm(forms.Form):
    name = forms.CharField(max_length=100, help_text="Its purpose, for example: nightly export.")
    scopes = forms.MultipleChoiceField(
        choices=Token.Scope.choices,
        initial=[Token.Scope.READ],
        widget=forms.CheckboxSelectMultiple,
        label="Scopes",
        help_text="Choose only what the program needs. A token never has more rights than you.",
    )
    experiment: forms.ModelChoiceField[Experiment] = forms.ModelChoiceField(
        queryset=None,
        required=False,
        empty_label="All your experiments",
        help_text="A token for one experiment cannot see or create others.",
    )
    valid_days = forms.IntegerField(min_value=1, max_value=365, initial=USUAL_DAYS, label="Valid for (days)")

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = cast("forms.ModelChoiceField[Experiment]", self.fields["experiment"])
        field.queryset = Experiment.objects.held_by(user).order_by("-pk")
        say_bounds(self.fields["valid_days"], self.fields["valid_days"].validators)


@read_or_write
@access.recent_login_required
def tokens(request: AuthenticatedRequest) -> HttpResponse:
    """The list, and a new token. Its secret is in the answer to this request and nowhere else."""
    form = TokenForm(request.POST if request.method == "POST" else None, user=request.user)
    made, secret, status = None, "", 200
    if request.method == "POST":
        if form.is_valid():
            made, secret = make_token(user=request.user, **form.cleaned_data)
            form = TokenForm(user=request.user)
        else:
            status = 400
    usable = tokens_of(request.user)
    context = {"form": form, "tokens": usable, "made": made, "secret": secret, "now": timezone.now()}
    return render(request, "tokens.html", context, status=status)


@require_POST
@access.recent_login_required
def revoke(request: AuthenticatedRequest, token_id: int) -> HttpResponse:
    """Revoke a token of the user."""
    token = get_object_or_404(Token, user=request.user, pk=token_id)
    revoke_token(token_id=token.pk, by=request.user)
    messages.success(request, f"“{token.name}” is revoked.")
    return redirect("tokens")
