"""The ends of a model's reply, and the faults that leave it without one."""

from __future__ import annotations

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
    """The party at whose fault there is no reply.

    ``SERVER``: it is overloaded, loading, away or broken; it is asked again until it answers. ``ACCESS``: the
    key, the account or the model's name; the connection waits until somebody acts, and is tried now and then.
    ``SETTINGS``: the server refuses what this policy sends; it is not asked again until somebody says so.
    ``WORKER``: a worker's own engine failed on this request; it is tried again a few times.
    """

    SERVER = "server"
    ACCESS = "access"
    SETTINGS = "settings"
    WORKER = "worker"
