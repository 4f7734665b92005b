"""What somebody says about tasks that join, and about one that is left out."""

from __future__ import annotations

from typing import Any

from django import forms

from engine.domain.limits import DESCRIPTION_BYTES
from engine.domain.specs import TaskSpec
from engine.importing.items import Wishes, as_typed, tasks_and_warnings
from engine.importing.reading_process import source_of
from engine.importing.rows import ImportingError
from engine.models import Experiment
from engine.services.task_changes import why_not_anew
from labeling.forms.fields import choice_field

_ALL = (
    "All of them: nothing is lost, and the claim is about the tasks before and those since. Its risk holds "
    "if the tasks do not change because of answers, and grows by the accepted risk"
)
_ANEW = (
    "Those from now on alone: the claim is about the tasks as they are now, and begins with nothing. Each "
    "new beginning adds the accepted risk"
)


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
    file = forms.FileField(label="or a file (CSV, XLSX, Parquet, JSON, JSON Lines or text)", required=False)
    field_order = ("tasks", "file", "anew")

    def clean(self) -> dict[str, Any]:
        text, file = self.cleaned_data.get("tasks", ""), self.cleaned_data.get("file")
        self.found: list[TaskSpec] = []
        try:
            if file:
                text = as_typed(source_of([(file.name, file)], DESCRIPTION_BYTES))
            self.found, _ = tasks_and_warnings(text, Wishes())
        except ImportingError as error:
            self.add_error("tasks", str(error))
        return self.cleaned_data


class LeaveOutForm(TasksChangeForm):
    reason = forms.CharField(max_length=500)
    field_order = ("reason", "anew")
