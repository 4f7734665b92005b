"""What somebody says about policies that join, and about one that leaves."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django import forms

from engine.domain.errors import SpecError
from engine.domain.limits import RESPONSES_BYTES
from engine.domain.policy_space import PolicyName
from engine.domain.specs import ReadyMade
from engine.importing.formula_cells import defused
from engine.importing.items import read_responses
from engine.importing.reading_process import source_of
from engine.importing.rows import ImportingError
from engine.models import Experiment, Factor, Policy
from engine.selectors.policies import policy_names
from engine.selectors.task_changes import tasks_present
from labeling.forms.level_fields import LEVEL_FORMS, LevelForm


class JoinForm(forms.Form):
    """Which combinations join, and who leaves before."""

    every = forms.TypedChoiceField(
        label="Combine it with",
        choices=[("", "the other levels of that policy"), ("1", "every combination of the other levels")],
        coerce=bool,
        required=False,
        widget=forms.RadioSelect,
    )
    losers_leave = forms.BooleanField(
        label="Those who lost leave",
        help_text="The winner was chosen over them. If they stay, the new policy has to meet each of them.",
        required=False,
        initial=True,
    )

    parent_leaves = forms.BooleanField(
        required=False,
        initial=True,
        help_text=(
            "For a slip in its text: the new one takes its place. What was judged of the old one stays in "
            "the win rates, and the new one begins without any."
        ),
    )

    def __init__(
        self, *args: Any, experiment: Experiment, several: bool, replaced: PolicyName | None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        if replaced is None:
            del self.fields["parent_leaves"]
        else:
            self.fields["parent_leaves"].label = f"{replaced.name} leaves"
        if not several:
            del self.fields["every"]
        if (winner := experiment.winner) is None:
            del self.fields["losers_leave"]
        else:
            present = [each for each in policy_names(experiment) if each.present]
            others = ", ".join(each.name for each in present if each.short != winner.label)
            self.fields["losers_leave"].label = f"Those who lost leave: {others}"


class ResponsesForm(forms.Form):
    """Ready-made responses of policies that join."""

    file = forms.FileField(
        label="File of its responses",
        help_text=(
            "A table (CSV, JSON lines, Excel, Parquet) with task, policy and response. Each task is as it "
            "is here."
        ),
        required=False,
    )
    table = forms.CharField(
        label="Or the table itself", required=False, widget=forms.Textarea(attrs={"rows": 10})
    )

    some = forms.BooleanField(
        label="Some of the tasks are enough: what is found is about these alone", required=False
    )

    def __init__(self, *args: Any, experiment: Experiment, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._experiment = experiment
        self.names: list[str] = []
        self.responses: list[ReadyMade] = []

    def clean(self) -> dict[str, Any]:
        file = self.cleaned_data.get("file")
        try:
            given = source_of([(file.name, file)], RESPONSES_BYTES) if file else self.cleaned_data["table"]
            found = read_responses(given)
        except (ImportingError, SpecError) as error:
            raise forms.ValidationError(str(error)) from error
        rows = list(self._experiment.tasks.values_list("prompt", "position"))
        # The table to fill in has no formulas.
        places = {defused(prompt): position for prompt, position in rows} | dict(rows)
        if unknown := [task.prompt for task in found.tasks if task.prompt not in places]:
            raise forms.ValidationError(
                f"{len(unknown)} of {len(found.tasks)} tasks are not of this experiment, such as "
                f"“{unknown[0][:80]}”. Leave them out."
            )
        at = [places[task.prompt] for task in found.tasks]
        self.names = found.policies
        self.responses = [replace(each, task=at[each.task]) for each in found.responses]
        there = set(tasks_present(self._experiment).values_list("position", flat=True))
        for name in () if self.cleaned_data["some"] else self.names:
            n = len(there & {each.task for each in self.responses if each.policy == name})
            if n < len(there):
                raise forms.ValidationError(
                    f"{name} has responses to {n:,} of {len(there):,} tasks, and what is found would be "
                    "about these alone. Add the others, or tick that some are enough."
                )
        return self.cleaned_data


class RetireForm(forms.Form):
    reason = forms.CharField(max_length=500)


def level_form(factor: Factor, parent: Policy, data: Mapping[str, Any] | None) -> LevelForm:
    """The form of a new level of this factor; at first with the value that it has in the parent."""
    shape = LEVEL_FORMS[factor.kind]
    own = next(level for level in parent.levels.all() if level.factor_id == factor.pk)
    return shape(data, prefix="level", initial=shape.data_of("", own.value), use_required_attribute=False)
