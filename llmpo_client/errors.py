"""Refusals of the server, each with its own words."""

import json


class LLMPOError(Exception):
    """Any error of this client."""


class UnreachableError(LLMPOError):
    """The server cannot be reached, or the connection broke. The request may have had its effect."""


class ApiError(LLMPOError):
    """The server refused.

    Attributes
    ----------
    status
        The HTTP status.
    detail
        What is wrong and what to do, in the server's words.
    """

    def __init__(self, status: int, detail: str) -> None:
        self.status = status
        self.detail = detail
        super().__init__(f"{status}: {detail}")


class NotPermittedError(ApiError):
    """401 or 403: the token is not valid, lacks a scope, or its user lacks a right."""


class NotFoundError(ApiError):
    """404: it does not exist, or the token's user may not see it."""


class ConflictError(ApiError):
    """409: its state does not allow this."""


class InvalidError(ApiError):
    """400, 413 or 422: a value or a file is not accepted."""


class UnavailableError(ApiError):
    """429 or 503, also after the last try: send the request again later."""


_KINDS: dict[int, type[ApiError]] = {
    400: InvalidError,
    401: NotPermittedError,
    403: NotPermittedError,
    404: NotFoundError,
    409: ConflictError,
    413: InvalidError,
    422: InvalidError,
    429: UnavailableError,
    503: UnavailableError,
}


def error_of(status: int, body: bytes, elsewhere: str | None = None) -> ApiError:
    """The error that an answer stands for. A body that is not the API's, as of a proxy, is shortened.

    ``elsewhere``: the address to which the server refers.
    """
    if elsewhere:
        return ApiError(status, f"The server is elsewhere: {elsewhere}. Give the client that address.")
    try:
        detail = str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        detail = body.decode(errors="replace")[:200].strip() or "The answer has no text."
        if detail.startswith("<"):
            detail = "The answer is a web page, not the API's. Check the address, and a proxy before it."
    return _KINDS.get(status, ApiError)(status, detail)
