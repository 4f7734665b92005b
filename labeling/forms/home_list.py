"""The search on the home page."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.db.models.expressions import Combinable
from django.db.models.functions import Lower

from engine.models import Experiment, ExperimentQuerySet, User
from engine.selectors.accounts import makers_of

_ARCHIVED, _MINE = "archived", "mine"
_ORDERS: Mapping[str, Sequence[str | Combinable]] = {
    "": ("-created_at", "-pk"),
    "name": (Lower("name"), "-pk"),
    "state": ("state", "-created_at", "-pk"),
}


class HomeForm(forms.Form):
    """The experiments to list of those that somebody watches; by default without archive, newest first."""

    q = forms.CharField(label="Name or question", max_length=200, required=False)
    state = forms.ChoiceField(
        label="State",
        choices=[("", "any"), *Experiment.State.choices, (_ARCHIVED, "In the archive")],
        required=False,
    )
    tag = forms.ChoiceField(label="Tag", required=False)
    maker = forms.ChoiceField(label="Made by", required=False)
    sort = forms.ChoiceField(
        label="Sort by", choices=[("", "newest first"), ("name", "name"), ("state", "state")], required=False
    )

    def __init__(self, data: Any, *, user: User, watched: ExperimentQuerySet) -> None:
        super().__init__(data, label_suffix="")
        self._user, self._watched = user, watched
        tags = watched.tag_names()
        self.fields["tag"].choices = [("", "any"), *((tag, tag) for tag in tags)]  # type: ignore[attr-defined]
        if not tags:
            del self.fields["tag"]
        named = [(str(pk), name) for pk, name in makers_of(watched, but=user)]
        self.fields["maker"].choices = [("", "anybody"), (_MINE, "me"), *named]  # type: ignore[attr-defined]

    @property
    def asks(self) -> bool:
        """True if it leaves any experiment out or changes their order."""
        return any(self._asked().values())

    def found(self) -> QuerySet[Experiment]:
        """The experiments asked for; a value that is not offered asks for nothing."""
        asked = self._asked()
        found = self._watched.filter(archived_at__isnull=asked["state"] != _ARCHIVED)
        if asked["q"]:
            named = found.filter(name__icontains=asked["q"])
            found = named | found.filter(question__icontains=asked["q"])
        if asked["state"] not in {"", _ARCHIVED}:
            found = found.filter(state=asked["state"])
        if asked.get("tag"):
            found = found.tagged(asked["tag"])
        if asked["maker"]:
            found = found.filter(maker=self._user.pk if asked["maker"] == _MINE else int(asked["maker"]))
        return found.order_by(*_ORDERS[asked["sort"]])

    def _asked(self) -> dict[str, str]:
        self.is_valid()
        return {name: self.cleaned_data.get(name, "") for name in self.fields}
