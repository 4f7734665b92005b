"""The ends of a model's reply, the faults that leave it without one, and the tokens that it took."""

from dataclasses import dataclass
from enum import StrEnum


class Finish(StrEnum):
    """The reason why a reply ended.

    ``FILTERED``: the server's filter took it away. ``REFUSED``: the model refused in a field made for that.
    ``ERROR``: this one request cannot be answered, for instance as it is too long for the model.
    """

    STOP = "stop"
    LENGTH = "length"
    FILTERED = "filtered"
    REFUSED = "refused"
    ERROR = "error"


class Fault(StrEnum):
    """Who caused the lack of a reply.

    ``BUSY``: the server is overloaded or loading, or it or the way to it is away; it is asked again until it
    answers. ``SERVER``: it broke on this request; it is asked again, and where it always breaks on this one
    while it answers others, that is no answer. ``ACCESS``: the
    key, the account or the model's name; the connection waits until somebody acts, and is tried now and then.
    ``SETTINGS``: the server refuses what this policy sends; it is not asked again until somebody says so.
    ``WORKER``: a worker's own engine failed on this request; it is tried again a few times.
    """

    BUSY = "busy"
    SERVER = "server"
    ACCESS = "access"
    SETTINGS = "settings"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of a request as the server counts them; ``None`` where it does not tell.

    Cached ones are part of the prompt's, thinking ones of the completion's.
    """

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None
    thinking: int | None = None

    @property
    def is_known(self) -> bool:
        """True if the server told of any."""
        return self.prompt is not None or self.completion is not None
