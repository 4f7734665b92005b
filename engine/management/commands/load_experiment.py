"""Make an experiment from a YAML or JSON file."""

import os
from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from engine.domain.errors import SpecError
from engine.domain.limits import FILE_BYTES
from engine.domain.tags import normal_tags
from engine.importing.companion_files import finder_below
from engine.importing.experiment_files import (
    ExperimentFile,
    description_in,
    read_experiment,
    write_experiment,
)
from engine.importing.found_files import FoundFile
from engine.importing.gathered import Sample
from engine.importing.items import Wishes
from engine.importing.other_tools import found_in
from engine.importing.reading_process import Source, source_at
from engine.importing.rows import ImportingError
from engine.importing.yaml_document import Entry
from engine.management.column_options import add_map, message_about, wishes_of
from engine.management.owners import add_owner, owner_of
from engine.models import Experiment, User
from engine.services.descriptions import Description, check_description
from engine.services.drafts import store_experiment
from engine.services.experiments import start
from engine.sources.base import SourceError, Wanted
from engine.sources.registry import FILES, draw_tasks, source_names


class Command(BaseCommand):
    help = "Make a draft experiment from a YAML or JSON file, also promptfoo's (docs/experiment-files.md)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "files",
            type=Path,
            nargs="+",
            metavar="file",
            help="a description, or the files (or folder) of a run of another tool",
        )
        parser.add_argument("--start", action="store_true", help="start it at once")
        parser.add_argument(
            "--source",
            default=FILES,
            choices=source_names(),
            help="where `file` lies: the name of a data set on the hub or among yours",
        )
        for name in ("configuration", "split", "revision", "address"):
            parser.add_argument(f"--{name}", default="", help="of a source")
        add_owner(parser)
        add_map(parser)

    def handle(self, *args: Any, files: list[Path], owner: str | None, **options: Any) -> None:
        user, file = owner_of(owner), files[0]
        wishes = wishes_of(options)
        if options["source"] == FILES:
            described = self._read(files, wishes, options["sheet"])
        else:
            described = self._fetched(options["source"], file, wishes, options)
        if described is None:
            return
        if options["start"] and not described.spec.tasks:
            raise CommandError(
                f"{file}: There are no tasks, so it cannot be started. Add some, or leave out --start: then "
                "it is a draft."
            )
        try:
            # Reading and checking take the time; the database is locked only while it stores.
            experiment = self._store(check_description(described.spec), user, begin=options["start"])
        except SpecError as error:
            if not (place := described.place(error.path)):
                raise CommandError(f"{file}: {error}") from error
            # Many messages begin with the name of the part, which also ends the place.
            message = str(error).removeprefix(f"{error.path[-1]}: ") if error.path else str(error)
            raise CommandError(f"{file}, {place}: {message}") from error
        for warning in described.warnings:
            self.stderr.write(f"Warning: {warning}")
        state = "started" if options["start"] else "a draft"
        lacking = "" if described.spec.tasks else " Add tasks before the start."
        self.stdout.write(f"Experiment {experiment.pk} ({experiment.name}) is {state}.{lacking}")

    @transaction.atomic
    def _store(self, description: Description, owner: User | None, *, begin: bool) -> Experiment:
        experiment = store_experiment(description=description, by=owner)
        if begin:
            start(experiment_id=experiment.pk)
        return experiment

    def _read(self, files: list[Path], wishes: Wishes, sheet: str) -> ExperimentFile | None:
        """The description in the files; `None` of one of another tool with fewer than two policies."""
        file = files[0]
        try:
            parts = [part for each in files for part in source_at(each, FILE_BYTES).parts]
            told = found_in(
                Source(parts, FILE_BYTES),
                leave_out=wishes.leave_out,
                find=finder_below(file.parent),
                sample=Sample(wishes.sample, wishes.seed),
            )
            if told is not None:
                return self._told(told)
            if len(parts) > 1:
                raise CommandError("These are no run of another tool. Give one description.")
            text = description_in(BytesIO(parts[0][1]), FILE_BYTES)
            return read_experiment(
                text,
                read_file=lambda name: source_at(file.parent / name, FILE_BYTES, sheet),
                wishes=wishes,
            )
        except OSError as error:
            raise CommandError(f"{file} cannot be read: {error.strerror}.") from error
        except ImportingError as error:
            raise CommandError(message_about(file, error)) from error

    def _fetched(
        self, source: str, name: Path, wishes: Wishes, options: Mapping[str, Any]
    ) -> ExperimentFile | None:
        """The tasks of a source; its key is in the environment, since others see the words of a command."""
        named = {each: options[each] for each in ("configuration", "split", "revision", "address")}
        wanted = Wanted(
            name.as_posix() if name != Path() else "",
            **named,
            number=wishes.sample or Wanted.number,
            seed=wishes.seed,
            token=os.environ.get("LLMPO_SOURCE_TOKEN", ""),
        )
        try:
            found = draw_tasks(source, wanted, wishes, tasks_alone=False)
        except SourceError as error:
            raise CommandError(str(error)) from error
        except ImportingError as error:
            raise CommandError(message_about(name, error)) from error
        spec = found.spec
        settings = {**spec.settings, "tags": normal_tags(spec.name)}
        return self._told(replace(found, spec=replace(spec, settings=settings)))

    def _told(self, told: FoundFile) -> ExperimentFile | None:
        sentences = [*told.findings.sentences()]
        if told.compares:
            return ExperimentFile(told.spec, Entry({}), sentences)
        # Nothing can be compared yet: the description is for people to complete.
        found = "".join(f"# {' '.join(sentence.split())}\n" for sentence in sentences)
        self.stdout.write(found + write_experiment(told.to_begin))
        return None
