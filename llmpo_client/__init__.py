"""A typed client of the JSON API of LLM-PO."""

from llmpo_client.client import Client
from llmpo_client.errors import (
    ApiError,
    ConflictError,
    InvalidError,
    LLMPOError,
    NotFoundError,
    NotPermittedError,
    UnavailableError,
    UnreachableError,
)

__version__ = "0.1.0"

__all__ = [
    "ApiError",
    "Client",
    "ConflictError",
    "InvalidError",
    "LLMPOError",
    "NotFoundError",
    "NotPermittedError",
    "UnavailableError",
    "UnreachableError",
]
