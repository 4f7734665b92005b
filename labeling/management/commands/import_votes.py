"""Make an experiment from past votes, or add them to one."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from engine.domain.errors import EngineError
from engine.domain.limits import FILE_BYTES
from engine.domain.wording import number
from engine.importing.items import Wishes
from engine.importing.reading_process import source_at
from engine.importing.rows import ImportingError
from engine.importing.votes import Judge, Votes, read_votes
from engine.management.column_options import add_map, message_about, wishes_of
from engine.management.lookups import named
from engine.management.owners import add_owner, owner_of
from engine.selectors.agreement import agreement_of_people
from engine.selectors.experiments import made_by
from engine.selectors.findings import ladder
from engine.selectors.rankings import ranking
from engine.services.past_votes import store_votes
from engine.services.planning import advance
from labeling.dashboard.past_votes import facts
from labeling.exports.rankings import ranking_table
from labeling.formatting import agreement

_SHOWN = 20


class Command(BaseCommand):
    help = (
        "Import votes that were given elsewhere: CSV, XLSX, JSON Lines or Parquet "
        "with task, policy_a, policy_b and winner, or a file of LMArena, "
        "Argilla or Label Studio (docs/votes.md). Shows the ranking at once."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="a file, or a folder of the files of one table")
        parser.add_argument(
            "--experiment",
            required=True,
            metavar="NAME",
            help="made of the file where there is none of this name; else the votes are added to it",
        )
        add_owner(parser)
        counted = parser.add_mutually_exclusive_group()
        counted.add_argument(
            "--again",
            action="store_true",
            help="count every vote of the file, also those that count in the experiment already",
        )
        counted.add_argument(
            "--only-new",
            action="store_true",
            help="leave out votes that count in the experiment already",
        )
        parser.add_argument(
            "--judged-by",
            choices=[*Judge],
            help="who gave the votes, where the file does not say it: llm for a language model",
        )
        add_map(parser)

    def handle(self, *args: Any, file: Path, experiment: str, owner: str | None, **options: Any) -> None:
        user = owner_of(owner)
        found = _read(file, wishes_of(options), options["sheet"])
        # With an owner, only theirs is meant: another user may have an experiment of the same name.
        there = named(experiment) if user is None else made_by(user, experiment)
        counted = "again" if options["again"] else "only_new" if options["only_new"] else ""
        try:
            added = store_votes(
                experiment=there, name=experiment, votes=found.votes, by=user, counted=counted
            )
        except EngineError as error:
            raise CommandError(f"{file}: {error}") from error
        made = added.experiment
        advance(experiment_id=made.pk)
        made.refresh_from_db()
        for warning in [*found.warnings, *added.warnings]:
            self.stderr.write(f"Warning: {warning}")
        self.stdout.write(
            f"Experiment {made.pk} ({made.name}): {number(added.n_votes, 'vote')} imported.\n\n"
        )
        ranked = ranking(made)
        self.stdout.write(ranking_table(ranked[:_SHOWN]))
        if len(ranked) > _SHOWN:
            self.stdout.write(f"The other {len(ranked) - _SHOWN}: manage.py ranking {made.pk}")
        self.stdout.write("\nClaims, if the past votes meet the conditions of docs/votes.md:")
        for rung in ladder(made).rungs:
            held = rung.holds or rung.follows_from
            self.stdout.write(f"{'holds' if held else 'open '}  {rung.text}")
        sentences = [agreement(agreement_of_people(made)), *facts(made)]
        self.stdout.write("\n" + "\n".join(sentences))


def _read(file: Path, wishes: Wishes, sheet: str) -> Votes:
    try:
        return read_votes(source_at(file, FILE_BYTES, sheet), wishes=wishes)
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}.") from error
    except ImportingError as error:
        raise CommandError(message_about(file, error)) from error
