"""The page Models: connections to the models of vendors and other servers."""

from copy import copy
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from engine.domain.errors import LoanError, SpecError
from engine.domain.profiles import VENDORS, Provider
from engine.models import Connection, Experiment, clock
from engine.selectors import connections as selectors
from engine.selectors.spending import DAY, spent_with
from engine.services import connection_loans, connection_pauses
from engine.services import connections as services
from engine.tasks import try_connection, wake
from labeling import access
from labeling.dashboard.connections import is_being_tested, standing_of
from labeling.forms.connections import ConnectionForm, LoanForm
from labeling.requests import AuthenticatedRequest, read_or_write

_TITLES = {str(provider): vendor.title for provider, vendor in VENDORS.items()} | {
    Provider.COMPATIBLE: "Own server",
    Provider.WORKER: "A worker of this site",
}


@require_safe
def connections(request: AuthenticatedRequest) -> HttpResponse:
    """The connections that the user may see: their own, the site's and those lent to their experiments."""
    seen = list(selectors.seen_by(request.user))
    spent = spent_with([each.pk for each in seen])
    may_make = selectors.may_make(request.user)
    if not seen and not may_make:
        raise Http404
    rows = [_row(request, each) | {"spent": spent.get(each.pk)} for each in seen]
    context = {
        "rows": [row for row in rows if row["connection"].retired_at is None],
        "retired": [row for row in rows if row["connection"].retired_at is not None],
        "may_make": may_make,
        "may_compare": access.may_create(request)
        and Connection.objects.remote().choosable_by(request.user, None).count() > 1,
    }
    return render(request, "connections/connections.html", context)


@require_safe
def connection(request: AuthenticatedRequest, connection_id: int) -> HttpResponse:
    """One connection: its state, its last test, and the experiments that it is lent to."""
    return _page(request, access.connection_to_see(request, connection_id))


def _page(
    request: AuthenticatedRequest, found: Connection, *, form: LoanForm | None = None, status: int = 200
) -> HttpResponse:
    row = _row(request, found)
    context = row | {
        "testing": is_being_tested(found),
        "may_retire": selectors.may_retire(request.user, found),
        "spent": spent_with([found.pk]).get(found.pk),
        "spent_today": spent_with([found.pk], since=clock.now() - DAY).get(found.pk),
        "loans": selectors.loans_of(found) if row["may_change"] else [],
        "form": form or LoanForm(None, experiments=_experiments(request, found)),
    }
    return render(request, "connections/connection.html", context, status=status)


@sensitive_post_parameters("key")
@read_or_write
def make(request: AuthenticatedRequest) -> HttpResponse:
    """Make a connection, and test it at once."""
    if not selectors.may_make(request.user):
        raise Http404
    form = ConnectionForm(_posted(request), user=request.user, given=request.GET)
    if late := _late(request, form, None):
        return late
    if request.method == "POST" and form.is_valid():
        try:
            made = services.make(by=request.user, owner=form.owner(), **form.values())
        except SpecError as refused:
            _add_error(form, refused)
        else:
            return _test(made)
    return _form_page(request, form, None)


@sensitive_post_parameters("key")
@read_or_write
def change(request: AuthenticatedRequest, connection_id: int) -> HttpResponse:
    """Change a connection, or give it another key."""
    found = access.connection_to_change(request, connection_id)
    # A copy: validating writes the values into it.
    form = ConnectionForm(_posted(request), user=request.user, connection=copy(found))
    if late := _late(request, form, found):
        return late
    if request.method == "POST" and form.is_valid():
        try:
            lost = services.change(connection_id=found.pk, by=request.user, **form.values())
        except SpecError as refused:
            _add_error(form, refused)
        else:
            if lost:
                messages.warning(request, "The address is new, so the stored key is deleted. Enter it again.")
            else:
                messages.success(request, "Saved.")
                if form.cleaned_data.get("key"):
                    return _test(found)
            return redirect("connection", connection_id=found.pk)
    return _form_page(request, form, found)


@require_POST
def test(request: AuthenticatedRequest, connection_id: int) -> HttpResponse:
    """Have a worker send one small task to the model."""
    return _test(access.connection_to_change(request, connection_id))


@require_safe
def tested(request: AuthenticatedRequest, connection_id: int) -> HttpResponse:
    """The part of the page with the last test, which asks for itself until there is a result."""
    found = access.connection_to_change(request, connection_id)
    context = _row(request, found) | {"testing": is_being_tested(found)}
    return render(request, "connections/_test.html", context)


@require_POST
def accept_rules(request: AuthenticatedRequest, connection_id: int) -> HttpResponse:
    """Send this model from now on only what the test found that it takes."""
    found = access.connection_to_change(request, connection_id)
    try:
        services.accept_rules(connection_id=found.pk, by=request.user)
    except SpecError as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, "Saved. Setup pages now say which settings this model does not take.")
    return redirect("connection", connection_id=found.pk)


@require_POST
def remove_key(request: AuthenticatedRequest, connection_id: int) -> HttpResponse:
    """Delete the stored key."""
    found = access.connection_to_change(request, connection_id)
    services.remove_key(connection_id=found.pk, by=request.user)
    messages.success(request, "The key is deleted.")
    return redirect("connection", connection_id=found.pk)


@require_POST
def retire(request: AuthenticatedRequest, connection_id: int) -> HttpResponse:
    """Retire a connection and delete its key, or take it back."""
    found = access.connection_to_see(request, connection_id)
    if not selectors.may_retire(request.user, found):
        raise Http404
    if found.retired_at is None:
        services.retire(connection_id=found.pk, by=request.user)
        messages.success(request, f"“{found}” is retired: nothing uses it any more, and its key is deleted.")
    elif selectors.may_change(request.user, found):
        services.take_back(connection_id=found.pk, by=request.user)
        messages.success(request, f"“{found}” is back. Enter its key again.")
    return redirect("connection", connection_id=found.pk)


@require_POST
@access.recent_login_required
def lend(request: AuthenticatedRequest, connection_id: int) -> HttpResponse:
    """Let an experiment use the connection."""
    found = access.connection_to_change(request, connection_id)
    form = LoanForm(request.POST, experiments=_experiments(request, found))
    if not form.is_valid():
        return _page(request, found, form=form, status=400)
    experiment = form.cleaned_data["experiment"]
    try:
        connection_loans.lend(connection_id=found.pk, experiment=experiment, by=request.user)
    except LoanError as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, f"“{experiment}” may use it now.")
    return redirect("connection", connection_id=found.pk)


@require_POST
def end_loan(request: AuthenticatedRequest, connection_id: int, loan_id: int) -> HttpResponse:
    """Let the experiment use the connection no longer."""
    found = access.connection_to_change(request, connection_id)
    loan = get_object_or_404(found.loans, pk=loan_id)
    connection_loans.end_loan(loan_id=loan.pk, by=request.user)
    messages.success(request, f"“{loan.experiment}” may not use it any more.")
    return redirect("connection", connection_id=found.pk)


# ---------------------------------------------------------------- parts


def _posted(request: AuthenticatedRequest) -> Any:
    return request.POST if request.method == "POST" else None


def _late(
    request: AuthenticatedRequest, form: ConnectionForm, found: Connection | None
) -> HttpResponse | None:
    """Ask for the password before showing the form. Refuse a form sent after the login has become old.

    Do not store it until the login is confirmed: its key would lie in the session.
    """
    if request.method != "POST":
        access.require_recent_login(request)
        return None
    if access.logged_in_recently(request):
        return None
    form.add_error(None, "Your login is too old, so nothing was saved. Confirm it, and enter the key again.")
    return _form_page(request, form, found, late=True)


def _form_page(
    request: AuthenticatedRequest, form: ConnectionForm, found: Connection | None, *, late: bool = False
) -> HttpResponse:
    status = 403 if late else 400 if form.errors else 200
    context = {"form": form, "connection": found, "late": late}
    return render(request, "connections/change.html", context, status=status)


def _add_error(form: ConnectionForm, refused: SpecError) -> None:
    field = str(refused.path[0]) if refused.path else None
    form.add_error(field if field in form.fields else None, str(refused))


def _test(found: Connection) -> HttpResponse:
    if connection_pauses.ask_test(connection_id=found.pk):
        wake(try_connection, found.pk)
    return redirect("connection", connection_id=found.pk)


def _experiments(request: AuthenticatedRequest, found: Connection) -> Any:
    """Experiments that the user may lend it to."""
    return Experiment.objects.run_by(request.user).exclude(loans__connection=found).order_by("-pk")


def _row(request: AuthenticatedRequest, found: Connection) -> dict[str, Any]:
    return {
        "connection": found,
        "vendor": _TITLES[found.provider],
        "standing": standing_of(found),
        "may_change": selectors.may_change(request.user, found),
        "of_worker": found.provider == Provider.WORKER,
    }
