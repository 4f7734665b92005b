"""A file of a Git working tree, below the folder that the operator allows. Committing it is up to people."""

from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from django.conf import settings

from engine.domain.whole_files import whole_file
from engine.publishing.base import Ask, Place, Registry, RegistryError, Request
from engine.publishing.promptfoo import promptfoo_of
from engine.publishing.winners import Winner

_WRITE, _READ = "WRITE", "READ"
_MOST_BYTES = 1_000_000


class WorkingTree(Registry):
    """Writes the winner as a configuration of promptfoo, without tests."""

    title = "File in a Git working tree"
    key_help = ""

    def check(self, to: Place, *, has_key: bool) -> Place:
        """Take the path alone: there is no server, key or label."""
        _path(to.name)
        return replace(to, address="", label="")

    def requests(self, winner: Winner, to: Place) -> list[Request]:
        """Write the file."""
        return [Request(_WRITE, to.name, promptfoo_of(winner, with_tests=False))]

    def back(self, before: str, to: Place) -> list[Request]:
        """Write what it held."""
        return [Request(_WRITE, to.name, before)]

    def marked(self, to: Place, ask: Ask) -> str | None:
        """The file's content."""
        content: str = ask(Request(_READ, to.name))
        return content

    def version(self, request: Request, answer: Any) -> str:
        """A file has no other version than its content."""
        return request.body

    def send(self, request: Request, to: Place, key: str) -> Any:
        """Read or write the file."""
        try:
            path = _path(to.name)
            if request.method == _READ:
                return _read(path)
            _write(path, request.body)
        except ValueError as error:
            raise RegistryError(str(error)) from error
        except OSError as error:
            raise RegistryError(f"{to.name} cannot be written: {error.strerror}.") from error
        return None


def _path(name: str) -> Path:
    """The file of this path, where no link and no .. leads out of the folder.

    Raises
    ------
    ValueError
        Says what is wrong with the path.
    """
    if not settings.REGISTRY_FOLDER:
        raise ValueError("The operator allows no files: REGISTRY_FOLDER is empty.")
    given = PurePosixPath(name)
    # Hidden folders hold what runs: .git its hooks, .github its workflows.
    if given.is_absolute() or given.suffix not in {".yaml", ".yml"} or "\\" in name:
        raise ValueError(
            "Give the path of a .yaml file below the operator's folder, such as app/prompt.yaml."
        )
    if any(part.startswith(".") for part in given.parts):
        raise ValueError("No part of the path may begin with a full stop.")
    root = Path(settings.REGISTRY_FOLDER).resolve()
    path = root / given
    if path.resolve() != path:
        raise ValueError("A link on this path leads elsewhere.")
    if not path.parent.is_dir():
        raise ValueError(f"The folder {given.parent} is not there.")
    trees = [each for each in path.parents if each == root or root in each.parents]
    if not any((each / ".git").exists() for each in trees):
        raise ValueError(f"{name} lies in no Git working tree.")
    return path


def _read(path: Path) -> str:
    """The file's text, as the version that may come back; empty where there is none.

    Raises
    ------
    ValueError
        It cannot be kept.
    """
    if not path.exists():
        return ""
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path.name} is larger than {_MOST_BYTES:,} bytes: choose another file.")
    with path.open(encoding="utf-8", newline="") as file:
        text = file.read()
    if "\0" in text:
        raise ValueError(f"{path.name} holds no text: choose another file.")
    return text


def _write(path: Path, text: str) -> None:
    """Put the text there at once: no reader sees half a file."""
    with whole_file(path, mode=0o644) as file:
        file.write(text.encode())
