"""The tasks of a trial, by their numbers."""

import re
import secrets
from collections.abc import Sequence

from django import forms

from engine.services.trials import MOST_TASKS

_NUMBERS = re.compile(r"[\s,;]+")


class TrialForm(forms.Form):
    """Numbers of tasks, such as "1, 5, 9". The service says which of them there are."""

    tasks = forms.CharField(max_length=60, label=f"Tasks, by number (at most {MOST_TASKS})")

    def clean_tasks(self) -> list[int]:
        """The positions of the tasks, from 0."""
        parts = [part for part in _NUMBERS.split(self.cleaned_data["tasks"]) if part]
        # No experiment has a billion tasks, and no database such a number.
        if not all(re.fullmatch("0*[1-9][0-9]{0,8}", part) for part in parts):
            raise forms.ValidationError("Write the numbers of tasks, such as 1, 5, 9.")
        return sorted({int(part) - 1 for part in parts})


def usual_tasks(n_tasks: int) -> Sequence[int]:
    """The first task, and others drawn at random: the first ones of a list are often alike."""
    others = secrets.SystemRandom().sample(range(1, n_tasks), min(MOST_TASKS - 1, max(0, n_tasks - 1)))
    return [0, *sorted(others)]


def written(positions: Sequence[int]) -> str:
    """The positions as a person writes them."""
    return ", ".join(str(position + 1) for position in positions)
