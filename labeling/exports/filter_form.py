"""The filter of the comparison browser and of every export, as a form: the same words in both."""

from typing import Any

from django import forms

from engine.models import Comparison, Experiment, Flag, Judgment
from engine.selectors.annotators import people_who_judged
from engine.selectors.browsing import STANDING, VOID, Selection, tags_of
from engine.selectors.policies import policy_names
from labeling.forms.fields import choice_field

_ANY = ("", "Any")


class SelectionForm(forms.Form):
    """A `Selection` of one experiment. Empty fields select nothing out.

    ``names``: those of the experiment's policies, by index.
    """

    policy = forms.ChoiceField(required=False)
    against = forms.ChoiceField(required=False)
    winner = forms.ChoiceField(required=False, label="Decided for")
    state = forms.ChoiceField(choices=[_ANY, *Comparison.State.choices], required=False)
    judgments = forms.ChoiceField(
        choices=[_ANY, (STANDING, "Standing"), (VOID, "Voided")], required=False, label="Judgment"
    )
    choice = forms.ChoiceField(choices=[_ANY, *Judgment.Choice.choices], required=False, label="Answer")
    judge = forms.ChoiceField(choices=[_ANY, *Judgment.Judge.choices], required=False)
    annotator = forms.ChoiceField(required=False)
    flag = forms.ChoiceField(choices=[_ANY, ("any", "Any flag"), *Flag.Reason.choices], required=False)
    tag = forms.ChoiceField(required=False, label="Tag of the task")
    text = forms.CharField(max_length=200, required=False, label="Text in task or responses")

    def __init__(self, data: Any, *, experiment: Experiment, **options: Any) -> None:
        super().__init__(data, label_suffix="", **options)
        self.names = policy_names(experiment)
        by_presence = sorted(self.names, key=lambda name: not name.present)
        policies = [(name.short, name.marked) for name in by_presence]
        for field in ("policy", "against", "winner"):
            choice_field(self, field).choices = [_ANY, *policies]
        choice_field(self, "tag").choices = [_ANY, *((tag, tag) for tag in tags_of(experiment))]
        # Read names from memberships: there may be a million judgments.
        names = set(experiment.memberships.values_list("user__username", flat=True))
        names |= set(people_who_judged(experiment).values_list("username", flat=True))
        choice_field(self, "annotator").choices = [_ANY, *((name, name) for name in sorted(names))]

    @property
    def refusal(self) -> str:
        """The reason why a form that is not valid selects nothing."""
        faults = "; ".join(f"{name}: {' '.join(map(str, errors))}" for name, errors in self.errors.items())
        return f"The filter cannot be used. {faults}"

    def selection(self, *, finished: bool = False) -> Selection:
        """The selection of a valid form; with ``finished``, of the finished comparisons only."""
        data = dict(self.cleaned_data)
        for field in ("policy", "against", "winner"):
            data[field] = int(data[field].removeprefix("P")) - 1 if data[field] else None
        return Selection(**data, finished=finished)

    def filled(self) -> dict[str, str]:
        """The filled fields of a valid form, as they stand in an address and in a manifest."""
        return {name: value for name, value in self.cleaned_data.items() if value}
