"""Make an experiment from an export."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from tqdm import tqdm

from engine.domain.errors import EngineError
from engine.management.owners import add_owner, owner_of
from engine.models import Snapshot, User
from engine.selectors import counts, designs
from engine.selectors.accounts import account
from engine.selectors.verifying import alike
from engine.services.reimporting import import_experiment
from labeling.dashboard.status import status_of
from labeling.exports.files import manifest_name
from labeling.exports.reading import read_file, read_manifest, secrets_of, spec_of


class Command(BaseCommand):
    help = (
        "Make a new experiment from an exported file (JSON lines, CSV, Parquet or Hugging Face) and its "
        "manifest: the same judgments give the same decision. It is paused, or concluded where the judgments "
        "decide it."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--experiment", required=True, help="the new experiment's name")
        parser.add_argument("--manifest", type=Path, help="default: FILE.manifest.json")
        add_owner(parser)
        parser.add_argument(
            "--person",
            action="append",
            default=[],
            metavar="NAME=USERNAME",
            help="assign the judgments of NAME in the file to an account of this site (may be repeated). "
            "All other people become accounts that cannot log in",
        )

    def handle(self, *args: Any, file: Path, experiment: str, manifest: Path | None, **options: Any) -> None:
        owner = owner_of(options["owner"])
        try:
            said = read_manifest(manifest or file.with_name(manifest_name(file.name)), file)
            rows = tqdm(
                read_file(file, said["format"], raw=said["raw"]), total=said["rows"], unit=" rows",
                disable=None if options["verbosity"] > 0 else True,
            )  # fmt: skip
            made = import_experiment(
                spec=spec_of(said, name=experiment),
                rows=rows,
                by=owner,
                planned_count=said["experiment"]["planned_count"],
                people=_accounts(options["person"]),
                secrets=secrets_of(said),
            )
        except EngineError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"Experiment {made.pk}: {counts.comparison_count(made.pk):,} comparisons. "
            f"{status_of(made).sentence}"
        )
        self.stdout.write(_likeness(said, designs.latest_snapshot(made)))


def _accounts(said: list[str]) -> dict[str, User]:
    """The accounts that ``--person`` names, by the names in the file."""
    accounts = {}
    for each in said:
        name, _, username = each.partition("=")
        found = account(username)
        if found is None:
            raise CommandError(f"--person {each}: write NAME=USERNAME; there is no account {username!r}.")
        accounts[name] = found
    return accounts


def _likeness(manifest: dict[str, Any], snapshot: Snapshot | None) -> str:
    filters = {
        name: value
        for name, value in manifest["filter"].items()
        if (name, value) != ("judgments", "standing")
    }
    if filters:
        said = ", ".join(f"{name}={value}" for name, value in filters.items())
        return (
            f"The file holds only the judgments that a filter selected ({said}), so the decision may differ."
        )
    if manifest["experiment"]["evidence"] is None:
        return "The manifest names no evidence: it was being recomputed during the export, or there was none."
    if snapshot is not None and alike(snapshot.evidence, manifest["experiment"]["evidence"]):
        return "The evidence equals that of the exported experiment."
    return (
        "The evidence differs from the manifest's: judgments arrived shortly before or during the export, "
        "or the accepted risk or the margin was changed."
    )
