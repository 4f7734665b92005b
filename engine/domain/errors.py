"""Errors that the services raise for the edge (a page, a command) to explain."""

from collections.abc import Hashable


class EngineError(Exception):
    """The request cannot be carried out; the message says what to do instead."""


class SpecError(EngineError):
    """An experiment's description is not usable. ``path`` leads to the faulty part, where there is one."""

    def __init__(self, message: str, path: tuple[Hashable, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class ChangedMeanwhileError(SpecError):
    """A draft was saved by somebody else, or in another tab, since it was read."""


class WrongStateError(EngineError):
    """The experiment is not in a state that allows this."""


class ImportedBeforeError(WrongStateError):
    """The same votes were imported earlier and would count twice."""


class AssignmentLostError(EngineError):
    """The pair is no longer reserved for this annotator: somebody else has it, or has judged it."""


class UnknownTokenError(EngineError):
    """This annotator was never shown a pair under this token."""


class InvitationError(EngineError):
    """An invitation link cannot be followed."""


class NameTakenError(EngineError):
    """An account has this user name already."""


class MembershipError(EngineError):
    """A role cannot be given or taken away."""


class TokenError(EngineError):
    """An API token cannot be made with these properties."""


class SubscriptionError(EngineError):
    """Notifications cannot be sent there."""


class PublicationError(EngineError):
    """The winner cannot be sent there."""


class PersonError(EngineError):
    """An account cannot be forgotten."""


class KeyUnreadableError(EngineError):
    """The key of a connection cannot be opened on this machine."""


class LoanError(EngineError):
    """A connection cannot be lent to that experiment by this person."""
