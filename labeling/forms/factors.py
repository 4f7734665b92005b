"""Factors, levels and excluded combinations as rows that are added, removed and moved in place.

What the page holds is one flat set of values. ``factor`` lists the factors' ids in order, ``f1-level`` the
levels' of f1, and ``exclusion`` the exclusions'. All else is named after those ids: ``f1-name``,
``f1-l2-text``, ``x1-f1``. So moving and removing only changes a list, and nothing that was typed is touched.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django import forms
from django.http import QueryDict

from engine.domain.limits import EXCLUSIONS, FACTORS, LEVELS
from engine.domain.specs import FactorSpec
from engine.models import Factor
from engine.services.descriptions import named_twice
from labeling.forms.level_fields import LEVEL_FORMS, NAMELESS, LevelForm

_MOST_ROWS = {"factor": FACTORS, "exclusion": EXCLUSIONS}
_ID = re.compile(r"[flx][0-9]{1,6}")
_KINDS = [(value, label) for value, label in Factor.Kind.choices if value != Factor.Kind.IMPORTED]


class FactorForm(forms.Form):
    name = forms.CharField(max_length=100, error_messages={"required": NAMELESS})
    kind = forms.ChoiceField(choices=_KINDS)


@dataclass(frozen=True)
class LevelRow:
    id: str
    form: LevelForm
    hidden: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class FactorRow:
    id: str
    form: FactorForm
    levels: Sequence[LevelRow]

    @property
    def name(self) -> str:
        return self.form["name"].value() or self.id

    @property
    def forms(self) -> list[forms.Form]:
        """Its own form, and those of its levels."""
        return [self.form, *(level.form for level in self.levels)]

    @property
    def is_valid(self) -> bool:
        """False where one of its fields is wrong."""
        return not any(form.errors for form in self.forms)


@dataclass(frozen=True)
class Selection:
    """In one exclusion: which level of one factor it is about, or any."""

    name: str
    factor: FactorRow
    chosen: str


@dataclass(frozen=True)
class ExclusionRow:
    id: str
    selections: Sequence[Selection]

    @property
    def is_empty(self) -> bool:
        return not any(selection.chosen for selection in self.selections)


def _ids(data: QueryDict, name: str) -> list[str]:
    # One more than allowed is enough for the check of the limit; the rest would only cost time.
    ids = (id_ for id_ in dict.fromkeys(data.getlist(name)) if _ID.fullmatch(id_))
    return list(islice(ids, _MOST_ROWS.get(name, LEVELS).most + 1))


def factor_rows(data: QueryDict, models: Sequence[str] = ()) -> list[FactorRow]:
    """The factors that the page holds, in order. ``models``: those that levels may choose."""
    rows = [_factor_row(data, id_) for id_ in _ids(data, "factor")]
    for row in rows:
        for level in row.levels:
            level.form.offer_models(models)
    return rows


def _factor_row(data: QueryDict, id_: str) -> FactorRow:
    form = FactorForm(data, prefix=id_, use_required_attribute=False)
    shape = LEVEL_FORMS.get(data.get(f"{id_}-kind", ""), LEVEL_FORMS["prompt"])
    return FactorRow(
        id_, form, [_level_row(data, shape, f"{id_}-{level}", level) for level in _ids(data, f"{id_}-level")]
    )


def _level_row(data: QueryDict, shape: type[LevelForm], prefix: str, id_: str) -> LevelRow:
    form = shape(data, prefix=prefix, use_required_attribute=False)
    shown = {form.add_prefix(name) for name in form.fields}
    # Values typed under another kind are kept in case the factor gets that kind again.
    hidden = [(name, str(data[name])) for name in data if name.startswith(f"{prefix}-") and name not in shown]
    return LevelRow(id_, form, hidden)


def exclusion_rows(data: QueryDict, factors: Sequence[FactorRow]) -> list[ExclusionRow]:
    """The excluded combinations that the page holds; what they say of levels that are gone is forgotten."""
    return [
        ExclusionRow(
            id_,
            [
                Selection(f"{id_}-{factor.id}", factor, chosen)
                for factor in factors
                for given in [data.get(f"{id_}-{factor.id}", "")]
                for chosen in [given if given in {level.id for level in factor.levels} else ""]
            ],
        )
        for id_ in _ids(data, "exclusion")
    ]


def write_rows(data: QueryDict, factors: Sequence[FactorSpec], excluded: Sequence[Mapping[str, str]]) -> None:
    """Put factors and exclusions that there are already into what the page holds."""
    ids: dict[str, tuple[str, dict[str, str]]] = {}
    for f, factor in enumerate(factors, 1):
        levels = {name: f"l{number}" for number, name in enumerate(factor.levels, 1)}
        ids[factor.name] = (f"f{f}", levels)
        data.appendlist("factor", f"f{f}")
        data[f"f{f}-name"], data[f"f{f}-kind"] = factor.name, factor.kind
        data.setlist(f"f{f}-level", list(levels.values()))
        for name, value in factor.levels.items():
            for field, text in LEVEL_FORMS[factor.kind].data_of(name, value).items():
                data[f"f{f}-{levels[name]}-{field}"] = text
    for x, exclusion in enumerate(excluded, 1):
        data.appendlist("exclusion", f"x{x}")
        for name, level in exclusion.items():
            factor_id, levels = ids[name]
            data[f"x{x}-{factor_id}"] = levels[level]


def apply_change(data: QueryDict, change: str) -> str:
    """Apply the change of a button; returns the id of the element to focus next."""
    action, _, target = change.partition(":")
    factor, _, level = target.partition("-")
    list_name = f"{factor}-level" if level else "exclusion" if target.startswith("x") else "factor"
    focus = ""
    match action:
        case "add-factor":
            focus = f"id_{_add_factor(data)}-name"
        case "add-level" if factor in _ids(data, "factor"):
            focus = f"id_{factor}-{_add_level(data, factor)}-name"
        case "add-exclusion":
            focus = f"{_add(data, 'exclusion', 'x')}-{next(iter(_ids(data, 'factor')), '')}"
        case "remove":
            data.setlist(list_name, [each for each in data.getlist(list_name) if each != (level or target)])
            focus = f"add-level-{factor}" if level else f"add-{list_name}"
        case "up" | "down":
            _move(data, list_name, level or target, -1 if action == "up" else 1)
            focus = f"{action}-{target}"
        case "kind":
            _rename_levels(data, factor)
            focus = f"id_{factor}-kind"
    return focus


def _add_factor(data: QueryDict) -> str:
    new = _add(data, "factor", "f")
    data[f"{new}-kind"] = Factor.Kind.PROMPT
    data[f"{new}-name"] = f"Factor {len(_ids(data, 'factor'))}"
    for _i in range(2):
        _add_level(data, new)
    return new


def _add(data: QueryDict, name: str, letter: str) -> str:
    numbers = [int(id_[1:]) for id_ in _ids(data, name)]
    new = f"{letter}{max(numbers, default=0) + 1}"
    data.appendlist(name, new)
    return new


def _add_level(data: QueryDict, factor: str) -> str:
    new = _add(data, f"{factor}-level", "l")
    kind = data.get(f"{factor}-kind", Factor.Kind.PROMPT)
    data[f"{factor}-{new}-name"] = _usual_name(kind, len(_ids(data, f"{factor}-level")))
    return new


def _usual_name(kind: str, number: int) -> str:
    return f"{dict(_KINDS).get(kind, 'Level').split()[0]} {number}"


def _rename_levels(data: QueryDict, factor: str) -> None:
    """Name levels after the factor's new kind where nobody has named them."""
    kinds = dict(_KINDS)
    for number, level in enumerate(_ids(data, f"{factor}-level"), 1):
        field = f"{factor}-{level}-name"
        if data.get(field) in {_usual_name(kind, number) for kind in kinds}:
            data[field] = _usual_name(data.get(f"{factor}-kind", ""), number)


def _move(data: QueryDict, name: str, id_: str, by: int) -> None:
    ids = _ids(data, name)
    if id_ in ids and 0 <= (to := ids.index(id_) + by) < len(ids):
        ids.remove(id_)
        ids.insert(to, id_)
        data.setlist(name, ids)


@dataclass(frozen=True)
class FormFault:
    """A thing to correct; ``at``: the id of its field, if any."""

    text: str
    at: str = ""


def factor_specs(factors: Sequence[FactorRow]) -> tuple[list[FactorSpec], list[FormFault]]:
    """Descriptions of the valid factors, and their faults beyond single fields."""
    specs: list[FactorSpec] = []
    faults: list[FormFault] = []
    rows = [row for row in factors if row.is_valid]
    for row in rows:
        levels: dict[str, Any] = {}
        for level in row.levels:
            name = level.form.cleaned_data["name"]
            if name in levels:
                text = f"Two levels of {row.name} are named {name}; give each a name of its own."
                faults.append(FormFault(text, at=level.form["name"].auto_id))
            levels[name] = level.form.value()
        specs.append(FactorSpec(row.form.cleaned_data["name"], row.form.cleaned_data["kind"], levels))
    if twice := named_twice(specs):
        position, fault = twice
        faults.append(FormFault(fault, at=rows[position].form["name"].auto_id))
    return specs, faults
