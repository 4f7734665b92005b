"""Write an experiment's judgments to a file."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from tqdm import tqdm

from engine.domain.whole_files import whole_file
from engine.management.lookups import find_experiment
from engine.models import Experiment
from engine.selectors import browsing
from engine.selectors.browsing import STANDING
from engine.services.audit import record_export
from labeling.exports import files
from labeling.exports.files import Export, Tally, manifest_bytes, manifest_name
from labeling.exports.filter_form import SelectionForm


class Command(BaseCommand):
    help = (
        "Export an experiment's judgments, those that stand unless told otherwise, with a manifest "
        "beside the file. The file appears when it is complete. docs/export.md explains the columns."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment", help="the experiment's name, owner/name or number")
        parser.add_argument("--format", choices=list(files.FORMATS), default=files.CSV)
        parser.add_argument("--out", type=Path, help="output file; default: a new name in this folder")
        parser.add_argument(
            "--filter",
            action="append",
            default=[],
            metavar="FIELD=VALUE",
            help="as in the comparison browser: policy=P1, annotator=ann … (may be repeated)",
        )
        parser.add_argument(
            "--all", action="store_true", help="voided judgments too (judgments= as a filter)"
        )
        parser.add_argument("--raw", action="store_true", help="CSV: leave spreadsheet formulas as they are")
        parser.add_argument(
            "--usernames", action="store_true", help="people by their user names instead of pseudonyms"
        )
        parser.add_argument(
            "--conversational", action="store_true", help="DPO, reward, KTO: messages instead of texts"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        experiment = find_experiment(options["experiment"])
        form = _form(experiment, options["filter"], everything=options["all"])
        export = Export(
            experiment=experiment,
            format=options["format"],
            selection=form.selection(),
            filter=form.filled(),
            raw=options["raw"],
            conversational=options["conversational"],
            usernames=options["usernames"],
        )
        out: Path = options["out"] or Path(export.filename)
        tally = Tally()
        try:
            _write(export, tally, out, show_progress=options["verbosity"] > 0)
        except OSError as error:
            raise CommandError(f"Cannot write {out}: {error}") from error
        record_export(
            experiment=experiment,
            by=None,
            format=options["format"],
            filter=form.filled(),
            usernames=options["usernames"],
        )
        manifest = export.manifest(tally) | {"file": out.name}
        beside = out.with_name(manifest_name(out.name))
        beside.write_bytes(manifest_bytes(manifest))
        self.stdout.write(f"{tally.rows:,} rows in {out}, SHA-256 {tally.sha256}; manifest in {beside}")


def _form(experiment: Experiment, filters: list[str], *, everything: bool) -> SelectionForm:
    said = {"judgments": "" if everything else STANDING}
    for each in filters:
        name, equals, value = each.partition("=")
        if not equals or name not in SelectionForm.base_fields:
            raise CommandError(
                f"{each!r} is no filter; write FIELD=VALUE with FIELD one of "
                f"{', '.join(SelectionForm.base_fields)}."
            )
        said[name] = value
    form = SelectionForm(said, experiment=experiment)
    if not form.is_valid():
        raise CommandError(form.refusal)
    return form


def _write(export: Export, tally: Tally, out: Path, *, show_progress: bool) -> None:
    """Write the file, with progress where somebody looks."""
    total = None
    if not files.FORMATS[export.format].training and show_progress:
        total = browsing.selected_judgments(export.experiment, export.selection).count()
    # Without a terminal, as in a cron job, nothing is drawn.
    with (
        whole_file(out) as file,
        tqdm(total=total, unit=" rows", disable=None if show_progress else True) as bar,
    ):
        for piece in export.pieces(tally):
            file.write(piece)
            bar.update(tally.rows - bar.n)
