"""What somebody says about tasks that join, and about one that is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from engine.domain.limits import DESCRIPTION_BYTES, TASKS
from engine.domain.specs import TaskSpec
from engine.importing.found_files import FoundFile
from engine.importing.items import Wishes, as_typed, tasks_and_warnings, write_tasks
from engine.importing.other_tools import export_in
from engine.importing.reading_process import Source, source_of
from engine.importing.rows import ImportingError
from engine.models import Experiment
from engine.services.task_changes import why_not_anew
from engine.sources.base import Wanted
from engine.sources.registry import draw
from labeling.forms.fields import choice_field

_ALL = (
    "All of them: nothing is lost, and the claim is about the tasks before and those since. Its risk holds "
    "if the tasks do not change because of answers, and grows by the accepted risk"
)
_ANEW = (
    "Those from now on alone: the claim is about the tasks as they are now, and begins with nothing. Each "
    "new beginning adds the accepted risk"
)
_OF_A_SOURCE = ("name", "configuration", "split", "revision", "address", "token", "number", "seed")
_SHOWN_SYSTEMS = 3


def typed_tasks(source: Source) -> tuple[str, list[str]]:
    """The tasks of files as they could have been typed, and sentences about them.

    Raises
    ------
    ImportingError
    """
    return _typed(source, export_in(source, tasks_alone=True))


def drawn_tasks(data: Mapping[str, str]) -> tuple[str, list[str], str]:
    """The tasks of the source that a form names, as they could have been typed, sentences about them, and
    their origin.

    Raises
    ------
    SourceError, ImportingError
    """
    asked = {name: data.get(f"source_{name}", "").strip() for name in _OF_A_SOURCE}
    number, seed = (asked.pop(name)[:9] for name in ("number", "seed"))
    wanted = Wanted(
        **asked,
        number=min(int(number) if number.isdecimal() else 200, TASKS.most),
        seed=int(seed) if seed.isdecimal() else 1,
    )
    fetched, found = draw(data.get("source_kind", ""), wanted, of_pages=True)
    text, told = _typed(fetched.files, found)
    return text, [fetched.told, *told], fetched.label


def _typed(source: Source, found: FoundFile | None) -> tuple[str, list[str]]:
    text, told = (as_typed(source), []) if found is None else (write_tasks(found.spec.tasks), [])
    if message := DESCRIPTION_BYTES.refusal(len(text.encode())):
        raise ImportingError.at("", message)
    if found is not None:
        told = [*found.findings.sentences()]
        shown = "; ".join(f"“{each[:200]}”" for each in found.systems[:_SHOWN_SYSTEMS])
        told += [f"No task holds a system text. A prompt may: {shown}"] if shown else []
    return text, told


class TasksChangeForm(forms.Form):
    """Which comparisons the claim counts once the tasks have changed."""

    anew = forms.TypedChoiceField(
        label="Comparisons that the claim counts",
        choices=[("", _ALL), ("1", _ANEW)],
        coerce=bool,
        required=False,
        widget=forms.RadioSelect,
    )

    def __init__(self, *args: Any, experiment: Experiment, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field, reason = choice_field(self, "anew"), why_not_anew(experiment)
        # A conclusion stands: whatever runs on after it is counted anew.
        if experiment.state == Experiment.State.CONCLUDED:
            field.choices, field.initial = [("1", _ANEW)], "1"
        elif reason:
            field.choices, field.help_text = [("", _ALL)], reason

    def clean_anew(self) -> bool:
        return bool(self.cleaned_data["anew"])


class AddTasksForm(TasksChangeForm):
    tasks = forms.CharField(
        label="Tasks",
        help_text=(
            "One task per line. You can add a tab and the correct answer. You can also paste CSV (columns "
            "prompt, reference, tags, and variables) or JSON Lines."
        ),
        required=False,
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false"}),
    )
    file = forms.FileField(
        label="or a file (CSV, XLSX, Parquet, JSON, JSON Lines, text, or another tool’s traces or data)",
        required=False,
    )
    field_order = ("tasks", "file", "anew")

    def clean(self) -> dict[str, Any]:
        text, file = self.cleaned_data.get("tasks", ""), self.cleaned_data.get("file")
        self.found: list[TaskSpec] = []
        try:
            if file:
                text, _ = typed_tasks(source_of([(file.name, file)], DESCRIPTION_BYTES))
            self.found, _ = tasks_and_warnings(text, Wishes())
        except ImportingError as error:
            self.add_error("tasks", str(error))
        return self.cleaned_data


class LeaveOutForm(TasksChangeForm):
    reason = forms.CharField(max_length=500)
    field_order = ("reason", "anew")
