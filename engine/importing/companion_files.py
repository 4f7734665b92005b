"""The files that a description names: those of an upload, or of the folder that a command was given."""

import io
import posixpath
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from engine.domain.limits import Limit
from engine.importing.reading_process import Source
from engine.importing.rows import ImportingError
from engine.importing.table_files import text_of

# The files that a path or a pattern names, each with its name; none if there are none.
Find = Callable[[str], Sequence[tuple[str, bytes]]]
_MOST_FILES = 1_000
_CONFIGURATION = re.compile(r"(?:.*/)?[^/]*\.(?:ya?ml|json)")


def no_files(path: str) -> Sequence[tuple[str, bytes]]:
    """The files of a text that came alone."""
    return ()


def files_of(source: Source) -> dict[str, bytes]:
    """The files of an upload by their paths, those of a ZIP unpacked within the limit."""
    files: dict[str, bytes] = {}
    left = source.most.most
    for name, data in source.parts:
        if not data.startswith(b"PK\x03\x04") or name.lower().endswith(".xlsx"):
            files[posixpath.normpath(name)] = data
            continue
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                found = [each for each in archive.infolist() if not each.is_dir()]
                if len(found) > _MOST_FILES:
                    raise ImportingError.at(
                        "", f"The ZIP holds {len(found):,} files; the limit is {_MOST_FILES:,}."
                    )
                for each in found:
                    with archive.open(each) as packed:
                        content = packed.read(left + 1)
                    left -= len(content)
                    if left < 0:
                        raise _too_large(source.most)
                    files[posixpath.normpath(each.filename.lstrip("/"))] = content
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:
            raise ImportingError.at("", f"{name} is no ZIP that can be read: {error}.") from error
    return files


def _too_large(most: Limit) -> ImportingError:
    return ImportingError.at(
        "", f"The ZIP is larger than {most.most / 1e6:g} MB unpacked, which is the limit. {most.advice}"
    )


def configurations_in(files: Mapping[str, bytes]) -> list[tuple[str, str]]:
    """Paths and texts of the files that may be a configuration, the likeliest first."""
    names = [name for name in files if _CONFIGURATION.fullmatch(name) and "__MACOSX" not in name]
    if len(files) == 1:
        names = [*files]
    names.sort(key=lambda name: ("promptfooconfig" not in name, name.count("/"), len(name), name))
    found = []
    for name in names:
        try:
            found.append((name, text_of(files[name])))
        except ImportingError:
            continue
    return found


def finder_in(files: Mapping[str, bytes], base: str) -> Find:
    """Finds files of an upload, whose configuration lies in the folder ``base``; nothing outside of it."""

    def find(path: str) -> Sequence[tuple[str, bytes]]:
        whole = posixpath.normpath(posixpath.join(base, path))
        found = [name for name in files if name == whole or fnmatchcase(name, whole)]
        if not found and not any("/" in name for name in files):
            # A browser sends the files of several folders without their paths.
            last = posixpath.basename(whole)
            found = [name for name in files if name == last or fnmatchcase(name, last)]
        return [(name, files[name]) for name in sorted(found)]

    return find


def finder_below(folder: Path) -> Find:
    """Finds files on this machine: in the Git repository that holds the folder, or else in the folder."""
    folder = folder.resolve()
    root = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)

    def find(path: str) -> Sequence[tuple[str, bytes]]:
        whole = posixpath.normpath(posixpath.join(folder.as_posix(), path))
        if not Path(whole).is_relative_to(root):
            return ()
        pattern = Path(whole).relative_to(root).as_posix()
        paths = [root / pattern] if (root / pattern).is_file() else sorted(root.glob(pattern))
        return [
            (each.relative_to(root).as_posix(), each.read_bytes())
            for each in paths[:_MOST_FILES]
            # A link may lead out of the repository.
            if each.is_file() and each.resolve().is_relative_to(root)
        ]

    return find
