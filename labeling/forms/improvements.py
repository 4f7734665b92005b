"""What somebody says of an improvement, and of its proposals."""

from collections.abc import Sequence
from typing import Any

from django import forms

from engine.models import Factor, Improvement
from engine.writing.registry import PREPARED, REFLECTIVE, writer_names
from labeling.forms.fields import choice_field


class ImproveForm(forms.Form):
    """Who writes, what it may change, and how long people choose."""

    writer = forms.ChoiceField(
        label="Writer",
        help_text="A model of the page Models reads votes and comments, and writes new texts. Prepared texts "
        "are for trying this out: they ignore votes, comments and your wish.",
    )
    way = forms.ChoiceField(
        label="Way of writing", required=False, help_text="Another one comes from an installed package."
    )
    factor = forms.ChoiceField(label="What it may change")
    wish = forms.CharField(
        label="Your wish",
        required=False,
        max_length=2000,
        help_text="In your own words, for example: “friendlier, and never longer than three sentences”.",
        widget=forms.Textarea(attrs={"rows": 2}),
    )
    clicks = forms.IntegerField(
        label="Clicks",
        min_value=20,
        max_value=10_000,
        initial=300,
        help_text="Each is one person’s answer to one comparison. Three in four find the best text. The last "
        "quarter compares it with the original, and it alone can show that the text is better. 300 often do "
        "for a large gain; a small one takes 1,000 or more. The last quarter may begin sooner, by a button.",
    )
    needs_ok = forms.BooleanField(
        label="Each proposal waits for my OK",
        required=False,
        initial=True,
        help_text="Before you accept one, people have nothing to compare.",
    )

    def __init__(
        self, *args: Any, connections: Sequence[str], factors: Sequence[Factor], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        choice_field(self, "writer").choices = [
            *((f"model:{name}", name) for name in connections),
            (PREPARED, "Twenty prepared texts (no model)"),
        ]
        choice_field(self, "factor").choices = [(each.name, each.name) for each in factors]
        # Mostly the one that was varied; else the system prompt.
        order = sorted(factors, key=lambda each: (-each.levels.count(), each.kind != Factor.Kind.PROMPT))
        self.initial.setdefault("factor", order[0].name)
        ways = [name for name in writer_names() if name != PREPARED]
        choice_field(self, "way").choices = [(name, name) for name in ways]
        if len(ways) == 1:
            del self.fields["way"]
        if len(factors) == 1:
            self.fields["factor"].widget = forms.HiddenInput()

    @property
    def given(self) -> dict[str, Any]:
        """The settings of the improvement."""
        data = self.cleaned_data
        kind, _, connection = data["writer"].partition(":")
        writer = PREPARED if kind == PREPARED else data.get("way") or REFLECTIVE
        chosen = {name: data[name] for name in ("factor", "wish", "clicks", "needs_ok")}
        return chosen | {"writer": writer, "connection": connection}


class GoOnForm(forms.Form):
    """How many more clicks an improvement gets that has ended."""

    more = forms.IntegerField(min_value=20, max_value=10_000)


class ProposalForm(forms.Form):
    """An OK, with another text if it was edited; or a refusal."""

    action = forms.ChoiceField(choices=[("accept", ""), ("refuse", "")])
    text = forms.CharField(required=False, strip=False)
    reason = forms.CharField(required=False, max_length=400)


def writer_shown(improvement: Improvement) -> str:
    """The writer in words."""
    if improvement.writer == PREPARED:
        return "twenty prepared texts, without a model"
    way = "" if improvement.writer == REFLECTIVE else f" ({improvement.writer})"
    return f"{improvement.connection}{way}"
