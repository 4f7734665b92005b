"""The form that invites people to an experiment."""

from datetime import timedelta
from typing import Any

from django import forms

from engine.domain.mail_state import mail_is_sent
from engine.models import GroupRole, Invitation, Membership, clock
from engine.services.invitation_mails import day_in_words
from engine.services.invitations import USUAL_DAYS
from labeling.forms.fields import choice_field

_ANNOTATORS = 20
_DAYS = {1: "one day", 7: "a week", 30: "30 days", 90: "90 days", 365: "a year"}
_MEANINGS = {
    Membership.Role.ANNOTATOR: "judges pairs",
    Membership.Role.VIEWER: "sees the results",
    Membership.Role.EDITOR: "also runs the experiment and invites others",
    Membership.Role.OWNER: "also changes roles and removes members",
}


class InvitationForm(forms.Form):
    """A link to make, or a message to send. The role limits the number of people and of days.

    Without a number of people, a link is for a class of annotators, or for one person of another role.
    """

    role = forms.ChoiceField(label="Role", widget=forms.RadioSelect, initial=Membership.Role.ANNOTATOR)
    valid_days = forms.TypedChoiceField(label="The link works until", coerce=int, initial=USUAL_DAYS)
    most_uses = forms.IntegerField(
        min_value=1,
        required=False,
        label="For how many people",
        error_messages={"min_value": "Write a number that is at least %(limit_value)s, or leave it empty."},
        help_text=f"Empty: {_ANNOTATORS} annotators, or one person of another role.",
    )
    guests = forms.BooleanField(
        required=False,
        label="Without an account: guests judge in one browser, by a nickname",
    )
    most_answers = forms.IntegerField(
        min_value=1,
        required=False,
        label="Pairs for each guest",
        help_text="Checks among them. Empty: as many as there are.",
    )
    id_parameter = forms.CharField(
        max_length=100,
        required=False,
        label="Identifier in the link",
        help_text=(
            "From a crowd: the parameter that holds it, such as PROLIFIC_PID (Prolific), workerId (MTurk) or "
            "participantId (CloudResearch). Then no nickname is asked for."
        ),
        widget=forms.TextInput({"list": "id-parameters", "autocomplete": "off"}),
    )
    completion = forms.CharField(
        max_length=500, required=False, label="Link or code after the last pair", empty_value=""
    )
    screen_out = forms.CharField(
        max_length=500, required=False, label="Link or code for who fails the gold items", empty_value=""
    )
    addresses = forms.CharField(
        required=False,
        label="Or send it by e-mail",
        help_text="One address a line. Each person gets a link that works once.",
        widget=forms.Textarea(attrs={"rows": 2, "class": "message", "placeholder": "name@example.org"}),
    )

    def __init__(self, *args: Any, roles: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choice_field(self, "role").choices = [
            (role, f"{label}: {_MEANINGS[Membership.Role(role)]}") for role, label in roles
        ]
        now = clock.now()
        choice_field(self, "valid_days").choices = [
            (days, f"{day_in_words(now + timedelta(days=days))} ({words})") for days, words in _DAYS.items()
        ]
        if not mail_is_sent():
            del self.fields["addresses"]

    @property
    def of_guests(self) -> list[forms.BoundField]:
        """The fields for guests, but for the one that switches them on."""
        return [self[name] for name in ("most_answers", "id_parameter", "completion", "screen_out")]

    def clean_addresses(self) -> list[str]:
        return [line.strip() for line in self.cleaned_data["addresses"].splitlines() if line.strip()]

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if "role" not in data:
            return data
        if not data.get("most_uses") and "most_uses" not in self.errors:
            data["most_uses"] = _ANNOTATORS if data["role"] == Membership.Role.ANNOTATOR else 1
        if data.get("guests") and data.get("addresses"):
            self.add_error("addresses", "Guests come by a link; send it yourself.")
        limit = Invitation.LIMITS[Membership.Role(data["role"])]
        for field, most, unit in (("most_uses", limit.uses, "people"), ("valid_days", limit.days, "days")):
            if data.get(field, 0) > most:
                self.add_error(field, f"At most {most} {unit} for the role {data['role']}.")
        return data


class GroupForm(forms.Form):
    """A group of the single sign-on, and its role."""

    group = forms.CharField(label="Name of the group", max_length=255)
    role = forms.ChoiceField(label="Role", choices=[(role, role.label) for role in GroupRole.ROLES])
