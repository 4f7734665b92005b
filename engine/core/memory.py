"""The memory that a design needs, and the memory that there is for it."""

import math
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

# K × K arrays of eight bytes that a design and its ranking hold at most.
_MATRICES = 20
# Where Linux says which control groups a process is in, and how much memory they may use.
_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")


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
    """Bytes that this process may use, as they were when it first asked: each design asks."""
    return min([*_of_the_machine(), *_of_its_groups()], default=None)


def _of_the_machine() -> Iterator[int]:
    """Bytes of memory, where the system tells."""
    try:
        yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return


def _of_its_groups() -> Iterator[int]:
    """Bytes that each control group around this process may use, if limited: a container is such a group."""
    try:
        lines = _OWN_GROUPS.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        _, colon, rest = line.partition(":")
        controllers, _, own = rest.partition(":")
        if not colon:
            continue
        if not controllers:
            root, name = _GROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = _GROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = root / own.lstrip("/")
        # In a container the path may be that of the host, and the root is the container's own group.
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                try:
                    limit = int((folder / name).read_text(encoding="utf-8"))
                except (OSError, ValueError):
                    # No such file, or no limit: "max".
                    continue
                if limit > 0:
                    yield limit
