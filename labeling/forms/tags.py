"""The filter by tag of lists that have no other one."""

from typing import Any

from django import forms

from engine.models import Experiment
from engine.selectors.browsing import tags_of
from labeling.forms.fields import choice_field


class TagForm(forms.Form):
    """A tag of an experiment's tasks; none selects nothing out."""

    tag = forms.ChoiceField(required=False, label="Tag of the task")

    def __init__(self, data: Any, *, experiment: Experiment) -> None:
        super().__init__(data, label_suffix="")
        self.tags = tags_of(experiment)
        choice_field(self, "tag").choices = [("", "Any"), *((tag, tag) for tag in self.tags)]

    @property
    def chosen(self) -> str:
        """The tag of a valid form."""
        return str(self.cleaned_data["tag"]) if self.is_valid() else ""
