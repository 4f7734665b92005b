"""The audit log: who did what, written in the transaction that does it."""

from collections.abc import Mapping
from typing import Any

from engine.domain.wording import number
from engine.models import AuditEntry, Experiment, User

_Action = AuditEntry.Action

# The sentence of each entry. The names in braces are the details that it needs, a number with its noun.
# {person} stays as it is: see `AuditEntry`.
SENTENCES: dict[str, str] = {
    _Action.CREATE: "Created the experiment.",
    _Action.EDIT: "Changed the description: {changed}.",
    _Action.START: "Started.",
    _Action.PAUSE: "Paused.",
    _Action.RESUME: "Resumed.",
    _Action.STOP: "Stopped for good after {comparisons:comparison}.",
    _Action.STOP_ON: "Stopped after {comparisons:comparison} on the claim “{claim}”. {finding}",
    _Action.CONCLUDE: "Concluded after {comparisons:comparison}: {conclusion}. {finding}",
    _Action.REOPEN: "Reopened after {comparisons:comparison}; it had concluded: {conclusion}.",
    _Action.BUDGET: "Changed the budget from {before} to {after} comparisons. {consequence}",
    _Action.CLAIM: "Changed the claim to stop on from “{before}” to “{after}”. {consequence}",
    _Action.DELTA: "Changed the accepted risk δ from {before} to {after}. {consequence}",
    _Action.EPSILON: "Changed the margin ε from {before} to {after}. {consequence}",
    _Action.VOID: "Voided judgments, {count} in all: {reason}",
    _Action.RESTORE: "Restored voided judgments, {count} in all: {reason}",
    _Action.ARCHIVE: "Archived.",
    _Action.UNARCHIVE: "Taken out of the archive.",
    _Action.CLONE: "Cloned from {source}.",
    _Action.INVITE: "Made an invitation: {role}, uses allowed: {most_uses}, until {until}.",
    _Action.MAIL_INVITATION: "Sent an invitation by e-mail: {role}.",
    _Action.END_INVITATION: "Ended an invitation: {role}, {uses} of {most_uses} used. {because}",
    _Action.JOIN: "Joined as {role}, invited by {person}.",
    _Action.ADD: "Added {person} as {role}.",
    _Action.ROLE: "Changed the role of {person} from {before} to {after}.",
    _Action.REMOVE: "Removed {person}, who was {role}.",
    _Action.GROUP_ADDED: "Made the group “{group}” {role}.",
    _Action.GROUP_REMOVED: "The group “{group}” is no longer {role}.",
    _Action.TOKEN_MADE: "Made the API token {hint}… ({scopes}), valid until {until}.",
    _Action.TOKEN_REVOKED: "Revoked the API token {hint}…. {because}",
    _Action.LOG_OUT: "Ended all sessions and {tokens:API token}.",
    _Action.RESET_LINK: "Made a link with which {person} may set a new password.{also}",
    _Action.LLM_JUDGE: (
        "Language model as a judge: {before} → {after}; asked about {budget:comparison} at most. {agreement}"
    ),
    _Action.LLM_HALTED: "Halted the language model that judges. {reason}",
    _Action.EXPORT: "Exported {what}.",
    _Action.IMPORT_VOTES: "Imported {votes:past vote}. The budget is now {budget:comparison}, with them.",
    _Action.DELETE: "Deleted the experiment “{name}”, number {number}.",
    _Action.FORGET: "{what}",
    _Action.SUBSCRIBE: "Added a notification by {kind} to {host}.",
    _Action.UNSUBSCRIBE: "Removed the notification by {kind} to {host}.",
    _Action.SHARE: "Made the link {hint}… to the report, valid {until}.",
    _Action.END_SHARE: "Ended the link {hint}… to the report.",
    _Action.CONNECTION: "{what} the connection “{name}”, number {connection}{changed}.",
    _Action.KEY: "{what} the key{hint} of the connection “{name}”, number {connection}.",
    _Action.LEND: "Lent the connection “{name}” to this experiment.",
    _Action.END_LOAN: "Ended the loan of the connection “{name}”. {because}",
    _Action.TRY_AGAIN: "Asked again for {responses:response} that a server had refused.",
    _Action.POLICY_JOINED: "Added the policy {policy} ({code}), made from {parent}.",
    _Action.POLICY_RETIRED: "Retired the policy {policy} ({code}): {reason}",
    _Action.TASKS_ADDED: "Added {tasks:task}.{counted}",
    _Action.TASK_LEFT_OUT: "Left out task {task}: {reason}{counted}",
    _Action.IMPROVE: "Began to improve {original}: {clicks:comparison}, risk {delta}. {wish}",
    _Action.IMPROVED: "The improvement ended after {used:comparison}. {verdict}",
    _Action.GO_ON: "Goes on improving from {champion}: {clicks:comparison} more",
    _Action.FIX_CHAMPION: "Compares the best text with the original from here on, after {used:comparison}",
    _Action.STOP_IMPROVING: "Stopped improving after {used:comparison}. {verdict}",
    _Action.PROPOSAL_ACCEPTED: "Accepted proposal {number}{edited}.",
    _Action.PROPOSAL_REFUSED: "Refused proposal {number}: {reason}",
    _Action.PROMOTED: "{policy} ({code}) is the champion in place of {over}: {probability} likely better.",
    _Action.GATE: "Made the challenge {challenge} for a change of {levels}.",
    _Action.MAIN_TEXTS: "The branch main has new texts of {levels}: changes meet these from now on.",
    _Action.DESTINATION: "{what} a destination of the winner: {destination}.",
    _Action.PUBLISHED: "{what} {policy}: {destination}.",
    _Action.REMARKS_DONE: "Marked the flags and comments on comparison {number} as done.",
}


class _Number(int):
    """A number that a sentence gives with its noun: ``{tokens:API token}``."""

    def __format__(self, noun: str) -> str:
        return number(int(self), noun) if noun else str(int(self))


def record(
    *,
    experiment: Experiment | None,
    by: User | None,
    action: str,
    about: User | None = None,
    details: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """Write an entry, in the caller's transaction.

    ``by`` is ``None`` if LLM-PO itself or a command acted. ``about`` is the person concerned. ``details``
    holds what the action's sentence in ``SENTENCES`` names, and anything else worth keeping, as JSON. It
    never holds a person's name, because entries outlive the account.

    Raises
    ------
    KeyError
        The sentence names a detail that is not given.
    """
    details = dict(details or {})
    said = {name: _Number(value) if type(value) is int else value for name, value in details.items()}
    return AuditEntry.objects.create(
        experiment=experiment,
        by=by,
        about=about,
        action=action,
        details=details,
        sentence=SENTENCES[action].format_map(said | {"person": AuditEntry.PERSON}).strip(),
    )


def record_export(
    *, experiment: Experiment, by: User | None, format: str, filter: Mapping[str, str], usernames: bool
) -> AuditEntry:
    """Write that judgments were exported: the format, the selection, and whether with user names."""
    filter = dict(filter)
    name = filter.pop("annotator", "")
    annotator = User.objects.filter(username=name).first() if name else None
    chosen = [f"annotator {AuditEntry.PERSON}"] if annotator else []
    chosen += [f"{name} {value}" for name, value in filter.items() if value]
    return record(
        experiment=experiment,
        by=by,
        about=annotator,
        action=AuditEntry.Action.EXPORT,
        details={
            "what": f"judgments as {format} ({', '.join(chosen) or 'all'})"
            + (", with usernames" if usernames else ""),
            "format": format,
            "filter": filter,
            "usernames": usernames,
        },
    )


def record_access(*, by: User, about: User) -> AuditEntry:
    """Write that somebody received all data about a person."""
    return record(
        experiment=None,
        by=by,
        about=about,
        action=AuditEntry.Action.EXPORT,
        details={"what": f"everything that is stored about {AuditEntry.PERSON}"},
    )
