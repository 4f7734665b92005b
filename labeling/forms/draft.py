"""The page on which an experiment is set up: from a stored description to fields, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

from django.core.files.uploadedfile import UploadedFile
from django.forms import BoundField
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from engine.domain.errors import SpecError
from engine.domain.levels import unfillable
from engine.domain.limits import DESCRIPTION_BYTES
from engine.domain.material_kinds import Material
from engine.domain.specs import SETTINGS, ExperimentSpec, GoldSpec, TaskSpec
from engine.domain.tags import normal_tags
from engine.domain.variables import Space
from engine.importing.items import (
    Column,
    Wishes,
    as_typed,
    is_table,
    look,
    read_gold,
    tasks_and_warnings,
    write_gold,
    write_tasks,
)
from engine.importing.mapping import ROLES, VARIABLE, check_columns
from engine.importing.reading_process import source_of
from engine.importing.rows import ImportingError
from engine.models import Connection, Experiment, Factor, User
from engine.selectors import specs
from engine.selectors.offered_models import Need, live_offers, models_of_workers
from engine.services.drafts import check_name
from engine.services.ready_made import policies_of
from engine.sources.base import SourceError
from engine.sources.registry import source_names
from labeling.forms.columns import ROLE_LABELS, Columns, fold, said_columns
from labeling.forms.factors import (
    ExclusionRow,
    FactorRow,
    FormFault,
    exclusion_rows,
    factor_rows,
    factor_specs,
    write_rows,
)
from labeling.forms.settings import GROUPS, NAME_MISSING, STEPS, SettingsForm, place_of
from labeling.forms.tasks import drawn_tasks, typed_tasks

_PREVIEWED = 5
_KINDS = ("tasks", "gold")
# Digits.
_LONGEST_VERSION = 19
Item = TypeVar("Item", TaskSpec, GoldSpec)


@dataclass(frozen=True)
class Outline:
    """The settings that a forecast depends on; factors and levels are numbers."""

    space: str
    levels: Sequence[int]
    excluded: Sequence[Mapping[int, int]]
    claim: str
    delta: float
    epsilon: float
    capital_moves: bool
    sampler: str
    stopping: str
    budget: int
    # Nobody knows beforehand what will be missing.
    missing: str = "against"
    strict: bool = False


@dataclass(frozen=True)
class Items(Generic[Item]):
    """The tasks or gold items that could be read, and the faults of the others."""

    kind: str
    text: str
    items: Sequence[Item]
    faults: Sequence[str]
    kept: bool = False
    columns: Sequence[Column] = ()
    asked_tag: str = ""
    warnings: Sequence[str] = ()
    # “113 of 120 rows can be read. …”, where the others could be left out.
    summary: str = ""

    @property
    def asked_columns(self) -> Columns:
        """The columns as the page asks about them."""
        return fold(self.columns, VARIABLE)

    @property
    def roles(self) -> list[tuple[str, str]]:
        """The roles that a column may have, with their labels."""
        return [(role, ROLE_LABELS[role]) for role in ROLES[Material.TASKS]]

    @property
    def tag(self) -> str:
        """The tag of the tasks to show, or nothing; the tasks may have lost it since it was chosen."""
        return self.asked_tag if self.asked_tag in self.tags else ""

    @cached_property
    def tagged(self) -> Sequence[Item]:
        """The items that the filter by tag leaves."""
        if not self.tag:
            return self.items
        return [item for item in self.items if isinstance(item, TaskSpec) and self.tag in item.tags]

    @property
    def first(self) -> Sequence[Item]:
        return self.tagged[:_PREVIEWED]

    @property
    def with_reference(self) -> int:
        """The number of tasks with a reference answer or with checks."""
        return sum(isinstance(item, TaskSpec) and bool(item.reference or item.checks) for item in self.items)

    @property
    def variables(self) -> list[str]:
        """The names of the tasks' variables."""
        return sorted({name for item in self.items if isinstance(item, TaskSpec) for name in item.variables})

    @cached_property
    def tags(self) -> list[str]:
        """The tasks' tags."""
        return sorted({tag for item in self.items if isinstance(item, TaskSpec) for tag in item.tags})


class DraftEditor:
    """The content of the page.

    ``data`` is the submitted form, or :func:`data_of` a description. ``maker``: whose experiment a new one
    becomes.
    """

    def __init__(
        self, data: QueryDict, experiment: Experiment | None = None, step: str = "", *, maker: User
    ) -> None:
        self.data = data
        self.maker = maker
        self._step = step or data.get("step", "")
        self._refused: set[str] = set()
        self._told: list[str] = []
        self.experiment = experiment
        self.imported = experiment is not None and experiment.responses == Experiment.Responses.IMPORTED
        self.attempted = False
        self.faults: list[FormFault] = []
        self.focus = ""

    @property
    def version(self) -> int | None:
        """The draft's version from which the page was made; ``None`` where none was sent."""
        sent = self.data.get("version", "")
        return int(sent) if sent.isdecimal() and len(sent) < _LONGEST_VERSION else None

    @cached_property
    def stored(self) -> ExperimentSpec | None:
        return specs.experiment_spec(self.experiment) if self.experiment else None

    @cached_property
    def settings(self) -> SettingsForm:
        return SettingsForm(
            self.data,
            self.experiment,
            imported=self.imported,
            models=self.models,
            connections=self._connections,
        )

    @cached_property
    def _connections(self) -> list[str]:
        theirs = Connection.objects.choosable_by(self.maker, self.experiment)
        return list(theirs.values_list("name", flat=True))

    @cached_property
    def models(self) -> list[str]:
        """The models that may write: connections, and those of live workers."""
        return sorted({*self._connections, *models_of_workers()})

    @cached_property
    def factors(self) -> list[FactorRow]:
        return factor_rows(self.data, self.models)

    @cached_property
    def exclusions(self) -> list[ExclusionRow]:
        return exclusion_rows(self.data, self.factors)

    @cached_property
    def tasks(self) -> Items[TaskSpec]:
        text, tag = self.data.get("tasks", ""), self.data.get("tasks_tag", "")
        if not text.strip() and self.data.get("tasks_kept") and self.stored:
            return Items("tasks", "", self.stored.tasks, [], kept=True, asked_tag=tag)
        items = self._read_tasks(text, Wishes(), asked_tag=tag)
        return replace(items, warnings=[*self._told, *items.warnings])

    @cached_property
    def gold(self) -> Items[GoldSpec]:
        text = self.data.get("gold", "")
        if not text.strip() and self.data.get("gold_kept") and self.stored:
            return Items("gold", "", self.stored.gold, [], kept=True)
        try:
            return Items("gold", text, read_gold(text), [])
        except ImportingError as error:
            return Items("gold", text, [], str(error).splitlines())

    def _read_tasks(self, text: str, wishes: Wishes, asked_tag: str = "") -> Items[TaskSpec]:
        columns = self._columns(text)
        try:
            tasks, warnings = tasks_and_warnings(text, wishes)
        except ImportingError as error:
            faults = str(error).splitlines()
            return Items("tasks", text, [], faults, columns=columns, summary=error.summary)
        return Items("tasks", text, tasks, [], columns=columns, asked_tag=asked_tag, warnings=warnings)

    def _columns(self, text: str) -> list[Column]:
        """The columns of the tasks, where they have some, each with the roles that are chosen for it."""
        if not is_table(text):
            return []
        try:
            found, _ = look(text, Material.TASKS, said_columns(self.data, "tasks_"))
        except ImportingError:
            return []
        # Tasks are written as we write them, once their columns are chosen.
        return [] if any(column.name == "variables" for column in found) else found

    def map_columns(self) -> None:
        """Write the tasks anew, as the columns were chosen for them, and without the rows that somebody
        leaves out.
        """
        try:
            columns = check_columns(said_columns(self.data, "tasks_"))
            wishes = Wishes(
                columns, bool(self.data.get("json_texts")), leave_out=bool(self.data.get("leave_out"))
            )
            found = self._read_tasks(self.data.get("tasks", ""), wishes)
        except ImportingError as error:
            text = self.data.get("tasks", "")
            found = Items("tasks", text, [], str(error).splitlines(), columns=self._columns(text))
        if found.faults:
            self.tasks = found
        else:
            self.data["tasks"] = write_tasks(found.items)

    @property
    def groups(self) -> dict[str, list[BoundField]]:
        return {name: self.settings.group(name) for name in GROUPS}

    @property
    def faulty_groups(self) -> list[str]:
        """The groups with a fault; they stay unfolded."""
        groups = self.groups.items() if self.attempted else ()
        return [name for name, fields in groups if any(field.errors for field in fields)]

    @property
    def step(self) -> str:
        """The step to show: after an attempt the first one with a fault, else the one that was asked for."""
        if self.faulty_steps and self._step not in self.faulty_steps:
            return self.faulty_steps[0]
        return self._step if self._step in STEPS else next(iter(STEPS))

    @property
    def faulty_steps(self) -> list[str]:
        """The steps with a fault, after an attempt."""
        groups = set(self.faulty_groups)
        return [
            name for name, (_, of_step) in STEPS.items() if name in self._refused or groups & set(of_step)
        ]

    @property
    def n_tasks(self) -> int:
        """The number of tasks. A request without the tasks themselves says it."""
        if self.imported and self.stored:
            return len(self.stored.tasks)
        return self._said("n_tasks", lambda: len(self.tasks.items))

    def _said(self, name: str, otherwise: Callable[[], int]) -> int:
        """A count of tasks or gold items, which a request without them says."""
        said = self.data.get(name, "")
        return int(said) if said.isascii() and said.isdecimal() and len(said) < 9 else otherwise()

    @property
    def variables(self) -> Sequence[str]:
        """The names of the tasks' variables. A request without the tasks themselves says them."""
        said = self.data.get("task_variables")
        return self.tasks.variables if said is None else said.split(",") if said else []

    @property
    def all_faults(self) -> list[FormFault]:
        """Everything that an attempt found wrong, each with its field if it has one."""
        of_settings = [
            FormFault(f"{field.label}: {error}", at=place_of(field))
            for field in self.settings
            for error in field.errors
        ]
        of_several = [FormFault(str(error)) for error in self.settings.non_field_errors()]
        of_forms = [] if self.imported else self._of_forms()
        return [*of_forms, *self.faults, *of_settings, *of_several]

    @property
    def missing(self) -> list[FormFault]:
        """Everything that settings and tasks still need before the start, each with its field."""
        said = self._of_name()
        if not self.imported:
            said += self._of_factors()
            if self._said("tasks_faults", lambda: len(self.tasks.faults)):
                said.append(FormFault("Correct the tasks.", at="tasks"))
            elif not self.n_tasks:
                said.append(FormFault("Add tasks.", at="tasks"))
        for field in (
            field for _, groups in STEPS.values() for group in groups for field in self.groups[group]
        ):
            if field.name != "name":
                said += [FormFault(f"{field.label}: {error}", at=place_of(field)) for error in field.errors]
        return said + self._of_judges()

    def _of_name(self) -> list[FormFault]:
        """The faults of the experiment's name, whose maker may have another one of that name."""
        named = copy(self.experiment) if self.experiment else Experiment(maker=self.maker)
        named.name = self.data.get("name", "").strip()
        if not named.name:
            return [FormFault(NAME_MISSING, at="id_name")]
        try:
            check_name(named)
        except SpecError as error:
            return [FormFault(str(error).removeprefix("name: "), at="id_name")]
        return []

    def _of_factors(self) -> list[FormFault]:
        """The faults of the factors, and of their prompts' variables where there are tasks."""
        described, faults = factor_specs(self.factors)
        space = Space({}, dict.fromkeys(self.variables, 0))
        rows = [row for row in self.factors if row.is_valid]
        unfilled = [
            FormFault(text, at=rows[position].form["name"].auto_id)
            for position, _, text in (unfillable(described, space) if self.n_tasks else ())
        ]
        return [*self._of_forms(), *faults, *unfilled]

    def _of_forms(self) -> list[FormFault]:
        """The faults of single fields of factors and levels."""
        return [
            FormFault(f"{kind} {form['name'].value() or 'without a name'}: {error}", at=form[place].auto_id)
            for row in self.factors
            for form in row.forms
            for kind in ["Factor" if form is row.form else "Level"]
            for field, errors in form.errors.items()
            # A fault of several fields belongs to none of them.
            for place in [field if field in form.fields else "name"]
            for error in errors
        ]

    def _of_judges(self) -> list[FormFault]:
        """The needs of the judges beyond their fields."""
        said = [FormFault(str(error), at="id_judge_0") for error in self.settings.non_field_errors()]
        known = self.settings.cleaned_data
        if self._said("gold_faults", lambda: len(self.gold.faults)):
            said.append(FormFault("Correct the gold items.", at="gold"))
        else:
            n_gold = self._said("n_gold", lambda: len(self.gold.items))
            practice = known.get("practice") or 0
            if n_gold < practice:
                text = "Practice pairs are gold items. Give at least as many gold items as practice pairs."
                said.append(FormFault(text, at="gold"))
            elif known.get("gold_rate") and n_gold == practice:
                text = (
                    "A share of gold pairs needs more gold items than practice takes, because nobody sees "
                    "one twice. Give more gold items, or set the share to 0."
                )
                said.append(FormFault(text, at="gold"))
        by_rule = known.get("judge") == Experiment.Judge.RULE and not self.imported
        if by_rule and self._said("n_references", lambda: self.tasks.with_reference) < self.n_tasks:
            said.append(
                FormFault("The rule judge needs a reference answer or checks for every task.", at="tasks")
            )
        return said

    @property
    def needs(self) -> list[Need]:
        """The backend and the model of each level that names one, or else of the whole experiment."""
        if self.imported:
            return []
        self.settings.is_valid()
        known = self.settings.cleaned_data
        named = [name or known.get("model", "") for name in self._named(Factor.Kind.MODEL, "text") or [""]]
        guards = filter(None, self._named(Factor.Kind.GUARDRAIL, "guard_model"))
        models = dict.fromkeys([*named, *guards])
        theirs = Connection.objects.remote().choosable_by(self.maker, self.experiment)
        remote = set(theirs.values_list("name", flat=True))
        return [
            Need(known.get("backend", ""), frozenset({name} - {""}), frozenset({name} & remote), name)
            for name in models
        ]

    def _named(self, kind: str, field: str) -> list[str]:
        forms = [level.form for row in self.factors for level in row.levels]
        return [form[field].value() or "" for form in forms if form.kind == kind]

    @property
    def named(self) -> set[str]:
        """The models that the page names, the one that judges among them."""
        judge = self.settings.cleaned_data.get("judge_model", "")
        return {judge, *(name for need in self.needs for name in need.models)} - {""}

    @cached_property
    def unserved(self) -> list[Need]:
        """The needs that nothing can serve now."""
        offers = [offer for offer in live_offers().values() if offer]
        return [need for need in self.needs if not any(offer.serves(need) for offer in offers)]

    @property
    def policies(self) -> list[str]:
        return policies_of(self.stored) if self.stored else []

    def take_files(self, files: MultiValueDict[str, UploadedFile[Any]]) -> None:
        """Put uploaded tasks and gold items where they would have been typed."""
        for kind in _KINDS:
            if not (given := files.getlist(f"{kind}_file")):
                continue
            try:
                source = source_of([(file.name or "", file) for file in given], DESCRIPTION_BYTES)
                if kind == "tasks":
                    text, self._told = typed_tasks(source)
                else:
                    text = as_typed(source)
                if not text.strip():
                    raise ImportingError.at("", "There is nothing in it. What was here is kept.")
                self.data[kind] = text.replace("\r\n", "\n")
            except ImportingError as error:
                setattr(self, kind, Items(kind, self.data.get(kind, ""), [], [f"{given[0].name}: {error}"]))

    def fetch_tasks(self) -> None:
        """Put the tasks of a source where they would have been typed; its token is kept nowhere."""
        try:
            self.data["tasks"], self._told, self.data["tasks_from"] = drawn_tasks(self.data)
        except (SourceError, ImportingError) as error:
            self.tasks = Items("tasks", self.data.get("tasks", ""), [], str(error).splitlines())

    @property
    def sources(self) -> list[str]:
        """The names of the sources that a page may ask."""
        return source_names(of_pages=True)

    def spec(self, *, needs_tasks: bool) -> ExperimentSpec | None:
        """The description that the page holds; ``None`` if something is wrong, which the page then shows.

        ``needs_tasks``: it is wrong to have none, as before the start.
        """
        self.attempted = True
        factors, faults = factor_specs(self.factors) if not self.imported else ([], [])
        valid_rows = [form.is_valid() for row in self.factors for form in row.forms]
        if faults or not all(valid_rows):
            self._refused.add("policies")
        if self.tasks.faults or (needs_tasks and not self.tasks.items and not self.imported):
            self._refused.add("tasks")
            text = self.tasks.faults[0] if self.tasks.faults else "give at least one."
            faults.append(FormFault(f"Tasks: {text}", at="tasks"))
        if self.gold.faults:
            self._refused.add("judges")
            faults.append(FormFault(f"Gold items: {self.gold.faults[0]}", at="gold"))
        self.faults = faults
        # Validate all of them: the page marks every fault at once.
        if not self.settings.is_valid() or not all(valid_rows) or faults:
            return None
        settings = self.settings.settings()
        if origin := self.data.get("tasks_from"):
            settings["tags"] = normal_tags(f"{settings['tags']}, {origin}")
        if self.imported and self.stored:
            return replace(
                self.stored,
                name=self.settings.cleaned_data["name"],
                settings={**self.stored.settings, **settings},
                gold=self.gold.items,
            )
        return ExperimentSpec(
            name=self.settings.cleaned_data["name"],
            factors=factors,
            tasks=self.tasks.items,
            settings=settings | {"excluded": self.excluded()},
            gold=self.gold.items,
        )

    def excluded(self) -> list[dict[str, str]]:
        names = {
            row.id: {level.id: level.form["name"].value() for level in row.levels} for row in self.factors
        }
        return [
            {each.factor.name: names[each.factor.id][each.chosen] for each in row.selections if each.chosen}
            for row in self.exclusions
            if not row.is_empty
        ]

    def refuse(self, error: SpecError) -> None:
        """Show what the service has found wrong, at its field where there is one."""
        name = error.path[0] if error.path else ""
        if name in self.settings.fields:
            self.settings.add_error(name, str(error).removeprefix(f"{name}: "))
            return
        self.faults.append(FormFault(str(error), at=name if name in _KINDS else ""))
        if name in {"factors", "excluded"}:
            self._refused.add("policies")
        elif name == "tasks":
            self._refused.add("tasks")

    def outline(self) -> Outline | None:
        """The settings that a forecast depends on, or ``None`` while the page is incomplete."""
        if self.imported and self.stored:
            stored = {factor.name: [*factor.levels] for factor in self.stored.factors}
            levels, places = [*map(len, stored.values())], [*stored]
            excluded = [
                {places.index(name): stored[name].index(level) for name, level in each.items()}
                for each in self.stored.settings["excluded"]
            ]
        else:
            numbers = {row.id: {level.id: n for n, level in enumerate(row.levels)} for row in self.factors}
            levels = [len(row.levels) for row in self.factors]
            positions = {row.id: n for n, row in enumerate(self.factors)}
            excluded = [
                {positions[s.factor.id]: numbers[s.factor.id][s.chosen] for s in row.selections if s.chosen}
                for row in self.exclusions
                if not row.is_empty
            ]
        wanted = ("claim", "delta", "epsilon", "sampler", "stopping", "budget")
        self.settings.is_valid()
        known = self.settings.cleaned_data
        if not levels or not all(levels) or not all(known.get(name) is not None for name in wanted):
            return None
        return Outline(
            space=known.get("space", Experiment.Space.UNSTRUCTURED),
            levels=levels,
            excluded=excluded,
            capital_moves=not self.imported and known.get("responses") == Experiment.Responses.FRESH,
            **{name: known[name] for name in wanted},
        )


def data_of(spec: ExperimentSpec) -> QueryDict:
    """The form data of a description."""
    data = QueryDict(mutable=True)
    defaults = Experiment()
    data["name"] = spec.name
    for name in SETTINGS:
        value = spec.settings.get(name, getattr(defaults, name))
        # A box that is not ticked is not sent. "strict" is a choice.
        unticked = value is False and name != "strict"
        if value is not None and not unticked and name != "excluded":
            data[name] = str(value)
    if spec.settings.get("responses") != Experiment.Responses.IMPORTED:
        write_rows(data, spec.factors, spec.settings.get("excluded", ()))
    for kind, text in (("tasks", write_tasks(spec.tasks)), ("gold", write_gold(spec.gold))):
        if len(text.encode()) > DESCRIPTION_BYTES.most / 2:
            data[f"{kind}_kept"] = "1"
        else:
            data[kind] = text
    return data


def data_sent(post: QueryDict) -> QueryDict:
    """The submitted form with line feeds only, as in all other texts here."""
    data = post.copy()
    for name, values in data.lists():
        data.setlist(name, [value.replace("\r\n", "\n").replace("\r", "\n") for value in values])
    return data
