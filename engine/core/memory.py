"""The memory that a design needs, and the memory that there is for it."""

import math
import os
from functools import cache
from pathlib import Path

# K × K arrays of eight bytes that a design and its ranking hold at most.
_MATRICES = 20
# Where Linux says within a container how much memory it may use.
_OF_A_CONTAINER = Path("/sys/fs/cgroup/memory.max")


def check_memory(n_policies: int) -> None:
    """Refuse what would not fit into half of the memory that this process may use.

    Raises
    ------
    ValueError
        Says how many policies would fit.
    """
    needed = _MATRICES * 8 * n_policies**2
    there = _memory()
    if there is not None and needed > there // 2:
        most = math.isqrt(there // 2 // (_MATRICES * 8))
        raise ValueError(
            f"{n_policies} policies need about {-(-needed // 2**30)} GiB of memory, a matrix entry for each "
            f"two of them; here there is room for about {most}"
        )


@cache
def _memory() -> int | None:
    """Bytes of memory, or that a container may use; None where the system does not tell."""
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    try:
        return min(machine, int(_OF_A_CONTAINER.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        # No such file, or no limit: "max".
        return machine
