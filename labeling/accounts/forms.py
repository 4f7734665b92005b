"""Forms of accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allauth.account.forms import LoginForm
from django import forms
from django.contrib.auth.forms import UserCreationForm
from django.utils.translation import gettext_lazy

from engine.domain.mail_state import mail_is_sent
from engine.models import User


class UsernameLoginForm(LoginForm):
    """The field of the name is called ``username``, by which password managers know it."""

    def add_prefix(self, field_name: str) -> str:
        prefixed: str = super().add_prefix("username" if field_name == "login" else field_name)
        return prefixed


if TYPE_CHECKING:
    _UserCreationForm = UserCreationForm[User]
else:
    _UserCreationForm = UserCreationForm


class GuestForm(forms.Form):
    """A nickname, for somebody whose link does not say who they are."""

    nickname = forms.CharField(max_length=40, label=gettext_lazy("A name to go by"))

    def __init__(self, data: Any, *, asks: bool) -> None:
        super().__init__(data)
        self.fields["nickname"].widget.attrs |= {"autocomplete": "nickname"}
        if not asks:
            del self.fields["nickname"]


class JoinForm(_UserCreationForm):
    """A new account. The e-mail address is asked for where mail is sent, and nobody has to give one."""

    class Meta:
        model = User
        fields = ("username", "email")
        field_classes = UserCreationForm.Meta.field_classes

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if mail_is_sent():
            self.fields["email"].widget.attrs["autocomplete"] = "email"
        else:
            del self.fields["email"]
