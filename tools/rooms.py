"""docs/rooms.md, the packages and their imports: ``python -m tools.rooms`` writes it, a test holds it to the
code.
"""

from __future__ import annotations

from pathlib import Path

import grimp

TARGET = Path(__file__).resolve().parent.parent / "docs" / "rooms.md"
_ROOTS = ("engine", "labeling", "llmpo_client", "llmpo_site")
_HEAD = """# Rooms and arrows

Generated from the imports by `make schema`.
A room is a package or a module directly inside of `engine`, `labeling` or `llmpo_site`.
An arrow says that some module of one room imports one of another.
The contracts in `pyproject.toml` (`lint-imports`) say which arrows may exist.

"""
# Measured by this module at commit 88f45b3.
_BEFORE = "| before the layout of 0.2.0 | 47 | 35 | 146 | 0 |"


def arrows(graph: grimp.ImportGraph) -> set[tuple[str, str]]:
    """The rooms of which one imports the other, as pairs."""
    return {
        (_room(module), _room(other))
        for module in graph.modules
        for other in graph.find_modules_directly_imported_by(module)
        if _room(module) != _room(other)
    }


def _room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def in_circles(found: set[tuple[str, str]]) -> set[str]:
    """The rooms that import themselves by way of others."""
    reached = {room: {there for here, there in found if here == room} for arrow in found for room in arrow}
    for middle, beyond in reached.items():
        for places in reached.values():
            if middle in places:
                places.update(beyond)
    return {room for room, places in reached.items() if room in places}


def document() -> str:
    """The whole document."""
    graph = grimp.build_graph(*_ROOTS, exclude_type_checking_imports=True, cache_dir=None)
    found = arrows(graph)
    rooms = {room for arrow in found for room in arrow}
    loose = [room for room in rooms if not graph.find_children(room)]
    lines = [f"  {here} --> {there}" for here, there in sorted(found)]
    table = [
        "| | rooms | of these a single module | arrows | rooms in a circle |",
        "|---|---|---|---|---|",
        _BEFORE,
        f"| now | {len(rooms)} | {len(loose)} | {len(found)} | {len(in_circles(found))} |",
    ]
    return _HEAD + "\n".join([*table, "", "```mermaid", "graph LR", *lines, "```", ""])


if __name__ == "__main__":
    TARGET.write_text(document())
