"""Loans of connections to experiments. The log records each step."""

from collections.abc import Collection, Iterable

from django.db import transaction
from django.db.models import Q

from engine.domain.errors import LoanError
from engine.models import AuditEntry, Connection, Experiment, Loan, User
from engine.selectors import connections as selectors
from engine.services.audit import record
from engine.services.locks import locked_account


@transaction.atomic
def lend(*, connection_id: int, experiment: Experiment, by: User) -> Loan:
    """Let an experiment use a connection. Lending twice is lending once.

    Raises
    ------
    LoanError
        It is not theirs, or they do not run that experiment.
    """
    # An account that is being closed waits, or is seen here.
    by = locked_account(by)
    connection = Connection.objects.select_for_update(no_key=True).get(pk=connection_id)
    if not selectors.may_change(by, connection):
        raise LoanError("Only its owner lends a connection.")
    if not Experiment.objects.run_by(by).filter(pk=experiment.pk).exists():
        raise LoanError("You lend to experiments that you own or edit.")
    if connection.retired_at is not None:
        raise LoanError("This connection is retired.")
    loan, made = Loan.objects.get_or_create(connection=connection, experiment=experiment, defaults={"by": by})
    if made:
        _note_loan(loan, by, AuditEntry.Action.LEND)
    return loan


def lend_chosen(*, experiment: Experiment, by: User, names: Collection[str]) -> None:
    """Lend the user's own connections that they have just named in a draft."""
    chosen = Connection.objects.choosable_by(by, experiment).filter(name__in=names, owner=by, everybody=False)
    for connection in chosen:
        lend(connection_id=connection.pk, experiment=experiment, by=by)


@transaction.atomic
def lend_alike(*, experiment: Experiment, to: Experiment, by: User) -> None:
    """Lend what is lent to an experiment to another one too, which goes on with it."""
    for given in experiment.loans.select_related("connection", "by"):
        _note_loan(
            Loan.objects.create(connection=given.connection, experiment=to, by=given.by),
            by,
            AuditEntry.Action.LEND,
        )


@transaction.atomic
def end_loan(*, loan_id: int, by: User | None, because: str = "") -> None:
    """Let the experiment use it no longer."""
    _end(Loan.objects.filter(pk=loan_id), by=by, because=because)


def end_loans_without_rights(*, user: User, by: User | None) -> None:
    """End the loans of a person who lost the right to lend there."""
    for loan in Loan.objects.filter(by=user).select_related("connection"):
        lends = selectors.may_change(user, loan.connection)
        if not lends or not Experiment.objects.run_by(user).filter(pk=loan.experiment_id).exists():
            _end([loan], by=by, because="The person who lent it lost the right to.")


def end_loans_of_others(*, experiment_id: int, owner: User, by: User | None) -> None:
    """End what others lent, since the experiment has another owner. They may lend it again."""
    loans = Loan.objects.filter(experiment=experiment_id).exclude(by=owner)
    _end(loans, by=by, because="The experiment has a new owner.")


def end_loans_of(*, owner: User, by: User | None) -> None:
    """End the loans by a person whose account is closed, and those of their connections."""
    of_theirs = Loan.objects.filter(Q(connection__owner=owner) | Q(by=owner))
    _end(of_theirs, by=by, because="Its owner's account is closed.")


def _note_loan(loan: Loan, by: User | None, action: str, because: str = "") -> None:
    details = {"name": loan.connection.name, "connection": loan.connection_id, "because": because}
    record(experiment=loan.experiment, by=by, about=loan.by, action=action, details=details)


def _end(loans: Iterable[Loan], *, by: User | None, because: str) -> None:
    for loan in list(loans):
        if Loan.objects.filter(pk=loan.pk).delete()[0]:
            _note_loan(loan, by, AuditEntry.Action.END_LOAN, because)
