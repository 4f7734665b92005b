"""Pages for superusers: the data stored about a person, and forgetting that person."""

from typing import Any

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.text import slugify
from django.views.decorators.http import require_POST, require_safe

from engine.domain.errors import PersonError
from engine.models import User
from engine.selectors.accounts import accounts_like
from engine.selectors.person_data import person_data
from engine.services.audit import record_access
from engine.services.forgetting import forget_person
from labeling import access
from labeling.exports.downloads import saved_as
from labeling.requests import AuthenticatedRequest, read_or_write

_PER_PAGE = 100
_LONGEST_NAME = User._meta.get_field("username").max_length


class ForgetForm(forms.Form):
    """Asks for the name as a confirmation, because nothing brings an account back."""

    name = forms.CharField(max_length=150, label="Type the user name to confirm")
    blank_comments = forms.BooleanField(required=False, label="Empty the comments that they wrote")
    delete = forms.BooleanField(
        required=False, label="Delete the account completely if no judgment or log entry refers to it"
    )

    def __init__(self, data: Any, *, person: User) -> None:
        super().__init__(data, label_suffix="")
        self._person = person

    def clean_name(self) -> str:
        if self.cleaned_data["name"] != self._person.get_username():
            raise forms.ValidationError("This is not the user name of this account.")
        return str(self.cleaned_data["name"])


@require_safe
def persons(request: AuthenticatedRequest) -> HttpResponse:
    """All accounts by name."""
    access.to_administer(request)
    # No name is longer, and SQLite refuses patterns of 50,000 bytes.
    asked = request.GET.get("q", "").replace("\0", "").strip()[:_LONGEST_NAME]
    page = Paginator(accounts_like(asked), _PER_PAGE).get_page(request.GET.get("page"))
    return render(request, "persons/persons.html", {"page": page, "asked": asked})


@read_or_write
@access.recent_login_required
def person(request: AuthenticatedRequest, user_id: int) -> HttpResponse:
    """The stored data about a person, in numbers; a POST forgets the person."""
    access.to_administer(request)
    account = get_object_or_404(User, pk=user_id)
    form = ForgetForm(request.POST if request.method == "POST" else None, person=account)
    if request.method == "POST" and form.is_valid():
        try:
            left = forget_person(
                user_id=account.pk,
                by=request.user,
                blank_comments=form.cleaned_data["blank_comments"],
                delete=form.cleaned_data["delete"],
            )
        except PersonError as refused:
            form.add_error(None, str(refused))
        else:
            messages.success(request, "Deleted." if left is None else f"Forgotten: now {left}.")
            return redirect("persons")
    data = person_data(account, complete=True)
    stored = [
        (name.replace("_", " ").capitalize(), len(rows)) for name, rows in data.items() if name != "account"
    ]
    context = {"person": account, "form": form, "stored": [row for row in stored if row[1]]}
    return render(request, "persons/person.html", context, status=400 if form.errors else 200)


@require_POST
def data_of_person(request: AuthenticatedRequest, user_id: int) -> HttpResponse:
    """The stored data about a person, as a file."""
    access.to_administer(request)
    access.require_recent_login(request)
    return _file(request, get_object_or_404(User, pk=user_id), complete=True)


@require_POST
def own_data(request: AuthenticatedRequest) -> HttpResponse:
    """The stored data about the user, without the answers in experiments that have not concluded."""
    return _file(request, request.user, complete=False)


def _file(request: AuthenticatedRequest, account: User, *, complete: bool) -> HttpResponse:
    record_access(by=request.user, about=account)
    return JsonResponse(
        person_data(account, complete=complete),
        json_dumps_params={"indent": 2, "ensure_ascii": False},
        headers=saved_as(f"{slugify(account.get_username()) or 'account'}.json"),
    )
