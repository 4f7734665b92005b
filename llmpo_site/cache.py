"""Django's cache on a Redis server. While the server is away, each process uses a cache of its own.

The content of the cache may be lost at any time, so a missing server must not break a page or an answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, ClassVar

from django.core.cache.backends import redis
from django.core.cache.backends.locmem import LocMemCache
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

# Time between two attempts to reach it: each may take as long as the server's timeouts.
_AWAY_SECONDS = 5.0


def _with_fallback(name: str) -> Callable[..., Any]:
    """A method that asks the server, or this process's own cache while the server is away."""
    on_server, own = getattr(redis.RedisCache, name), getattr(LocMemCache, name)

    def ask(self: RedisCache, *arguments: Any, **options: Any) -> Any:
        if time.monotonic() >= RedisCache._ask_again_at:
            try:
                return on_server(self, *arguments, **options)
            except (RedisError, OSError) as error:
                logger.warning("The cache's server is away (%s); this process keeps its own.", error)
                RedisCache._ask_again_at = time.monotonic() + _AWAY_SECONDS
        return own(self._own, *arguments, **options)

    return ask


class RedisCache(redis.RedisCache):
    """``CACHES``' backend where ``CACHE_URL`` names a Redis server."""

    # For all threads, each of which has a cache object of its own.
    _ask_again_at: ClassVar[float] = 0.0

    def __init__(self, server: Any, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        own = {name: value for name, value in params.items() if name != "OPTIONS"}
        self._own = LocMemCache("while-the-server-is-away", own | {"OPTIONS": {"MAX_ENTRIES": 100_000}})

    add = _with_fallback("add")
    get = _with_fallback("get")
    set = _with_fallback("set")
    touch = _with_fallback("touch")
    delete = _with_fallback("delete")
    has_key = _with_fallback("has_key")
    incr = _with_fallback("incr")
    get_many = _with_fallback("get_many")
    set_many = _with_fallback("set_many")
    delete_many = _with_fallback("delete_many")
    clear = _with_fallback("clear")
