"""Files of other tools among those that people bring, known by their content."""

from __future__ import annotations

import contextlib
import posixpath

from engine.importing.companion_files import Find, configurations_in, files_of, finder_in
from engine.importing.found_files import FoundFile
from engine.importing.gathered import WHOLE, Sample, gathered
from engine.importing.items import Wishes, read_responses
from engine.importing.promptfoo import configuration_in, read_configuration
from engine.importing.promptfoo_results import read_results, results_in
from engine.importing.reading_process import Source
from engine.importing.rows import ImportingError
from engine.importing.runs import tool_of
from engine.importing.traffic import calls_in


def found_in(
    source: Source,
    *,
    name: str = "",
    leave_out: bool = False,
    find: Find | None = None,
    sample: Sample = WHOLE,
) -> FoundFile | None:
    """The run, configuration or results of another tool that these files are; `None` of others.

    ``find`` finds the files that a configuration names, which are those of the source unless it is given.

    Raises
    ------
    ImportingError
        The files are another tool's and cannot be taken.
    """
    if tool := _tool_of(source):
        answers = read_responses(source, wishes=Wishes(leave_out=leave_out))
        spec = answers.spec((name or f"Responses of {tool}")[:200])
        return FoundFile(spec, answers.findings, len(answers.policies), systems=answers.texts)
    if (found := export_in(source, name=name, sample=sample)) is not None:
        return found
    files = files_of(source)
    texts = configurations_in(files)
    if len(files) == 1 and texts and (results := results_in(texts[0][1])) is not None:
        return read_results(results, name=name)
    for number, (path, text) in enumerate(texts, 1):
        if (root := configuration_in(text)) is not None:
            finder = find or finder_in(files, posixpath.dirname(path))
            told = read_configuration(root, find=finder, name=name, leave_out=leave_out)
            if others := ", ".join(other for other, text in texts[number:] if _is_configuration(text)):
                told.findings.note(f"Read from {path}. Bring other configurations by themselves: {others}.")
            return told
    return None


def _is_configuration(text: str) -> bool:
    with contextlib.suppress(ImportingError):
        return configuration_in(text) is not None
    return True


def export_in(
    source: Source, *, name: str = "", sample: Sample = WHOLE, tasks_alone: bool = False
) -> FoundFile | None:
    """The data or traces of another tool that these files are; `None` of others."""
    if (calls := calls_in(source)) is None:
        return None
    return gathered(calls).told(name or "Traces and data of another tool", sample, tasks_alone=tasks_alone)


def _tool_of(source: Source) -> str:
    """The tool whose run these files are; empty if they are none, or a description names them."""
    if any(name.endswith((".yaml", ".yml")) for name in source.names):
        return ""
    if all(name.endswith((".csv", ".tsv", ".xlsx")) for name, _ in source.parts):
        return ""
    # Tables that cannot be read say so where they are read.
    with contextlib.suppress(ImportingError), contextlib.closing(source.rows()) as rows:
        first = next(rows, None)
        if first is not None and (found := tool_of(first)):
            return found[0]
    return ""
