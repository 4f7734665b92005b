"""Opens connections to checked addresses only."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from httpcore2 import AnyIOBackend, AsyncNetworkBackend, AsyncNetworkStream, ConnectError, ConnectTimeout

from engine.domain.addresses import CONNECTIONS, resolve
from engine.domain.limits import CONNECTIONS as CONNECTION_COUNT

# A name whose servers do not answer takes a thread for half a minute. With fewer threads than one person may
# make connections, theirs could keep everybody else's waiting.
_LOOKUPS = ThreadPoolExecutor(CONNECTION_COUNT.most + 56, "lookup")


async def checked_addresses(host: str, port: int) -> list[str]:
    """The addresses of a name, all of which may be reached.

    Raises
    ------
    ValueError
        One of them is not public.
    OSError
        The name leads nowhere.
    """
    return await asyncio.get_running_loop().run_in_executor(_LOOKUPS, resolve, host, port, CONNECTIONS)


class PinnedBackend(AsyncNetworkBackend):
    """Connects to the very address that was checked: asked again, a name could lead elsewhere.

    TLS still proves the name, as the pool keeps it.
    """

    def __init__(self) -> None:
        self._inner = AnyIOBackend()
        # One lookup of a name at a time: a slow name must not take all threads.
        self._lookups: dict[tuple[str, int], asyncio.Task[list[str]]] = {}

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> AsyncNetworkStream:
        """Connect to the first address of the name that answers; see httpcore2."""
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._addresses(host, port)
                for address in addresses[:-1]:
                    try:
                        return await self._connect(address, port, (timeout or 0) / 2 or None)
                    except (ConnectError, ConnectTimeout):
                        continue
                return await self._connect(addresses[-1], port, timeout)
        except TimeoutError as error:
            raise ConnectTimeout(str(error)) from error
        except OSError as error:
            raise ConnectError(error) from error

    async def _addresses(self, host: str, port: int) -> list[str]:
        lookup = self._lookups.get((host, port))
        if lookup is None:
            lookup = asyncio.create_task(checked_addresses(host, port))
            self._lookups[host, port] = lookup
            lookup.add_done_callback(lambda _: self._lookups.pop((host, port), None))
        # One that has waited long enough leaves the lookup to the others.
        return await asyncio.shield(lookup)

    async def _connect(self, address: str, port: int, timeout: float | None) -> AsyncNetworkStream:
        return await self._inner.connect_tcp(address, port, timeout=timeout)

    async def sleep(self, seconds: float) -> None:
        """Wait; see httpcore2."""
        await asyncio.sleep(seconds)
