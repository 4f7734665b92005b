"""Imports of uploaded files, as a worker does them: read, then stored in one transaction."""

from dataclasses import asdict, replace
from io import BytesIO
from typing import Any
from uuid import UUID

from engine.domain.errors import EngineError
from engine.domain.limits import RESPONSES_BYTES, VOTES_BYTES
from engine.domain.material_kinds import Material
from engine.domain.specs import ExperimentSpec
from engine.importing.experiment_files import experiment_in
from engine.importing.found_files import FoundFile
from engine.importing.gathered import Sample
from engine.importing.items import Wishes, read_responses
from engine.importing.other_tools import found_in
from engine.importing.reading_process import Source, source_of
from engine.importing.rows import ImportingError, NoColumnError
from engine.importing.votes import read_votes
from engine.models import Experiment, Upload, clock
from engine.services.drafts import create_experiment
from engine.services.past_votes import store_votes

# The limits on files, by what they hold.
MOST_BYTES = {
    Material.RESPONSES: RESPONSES_BYTES,
    Material.VOTES: VOTES_BYTES,
    Material.EXPERIMENT: RESPONSES_BYTES,
}
_ROWS_BETWEEN_WORDS = 500


class CancelledError(Exception):
    """The file's user has dropped it."""


def source_of_upload(upload: Upload) -> Source:
    """The file as a source, with the sheet that its user wants."""
    most = MOST_BYTES[Material(upload.material)]
    return source_of([(upload.file_name, BytesIO(upload.data))], most, upload.wishes.get("sheet", ""))


def wishes_of(upload: Upload) -> Wishes:
    """How the file's user wants it to be read."""
    return Wishes(**{name: upload.wishes[name] for name in asdict(Wishes()) if name in upload.wishes})


def found_of(upload: Upload, **asked: Any) -> FoundFile | None:
    """What the file of another tool holds, by these wishes and its own; `None` of another file, or if its
    user has said what the columns are.

    Raises
    ------
    ImportingError
        It cannot be taken as it is.
    """
    wishes = replace(wishes_of(upload), **asked)
    if wishes.columns:
        return None
    sample = Sample(wishes.sample, wishes.seed)
    return found_in(source_of_upload(upload), name=upload.name, leave_out=wishes.leave_out, sample=sample)


def run_import(upload_id: UUID) -> Experiment | None:
    """Import a file that waits, unless another worker does. Returns what it was imported into.

    Where its user has to say something first, the file says what.
    """
    mine = Upload.objects.filter(pk=upload_id, state=Upload.State.WAITING)
    if not mine.update(state=Upload.State.READING, touched_at=clock.now()):
        return None
    upload = Upload.objects.select_related("user", "experiment").get(pk=upload_id)
    try:
        return _imported(upload)
    except CancelledError:
        return None
    except ImportingError as error:
        all_faults = [[fault.place, fault.message] for fault in error.all_faults]
        lacks_columns = isinstance(error, NoColumnError)
        _ask(upload, error, summary=error.summary, all_faults=all_faults, lacks_columns=lacks_columns)
    except EngineError as error:
        _ask(upload, error)
    except Exception:
        _ask(upload, RuntimeError("The import failed. The log of the worker has the reason."))
        raise
    return None


def expire_imports() -> list[UUID]:
    """Give files of dead workers back to their users. Returns those that wait for a worker."""
    dead = Upload.objects.filter(state=Upload.State.READING, touched_at__lt=clock.now() - Upload.DEAD_AFTER)
    said = "The worker that read the file was stopped. Import it again."
    dead.update(state=Upload.State.ASKING, found={"faults": [said]})
    return list(Upload.objects.filter(state=Upload.State.WAITING).values_list("pk", flat=True))


def _ask(upload: Upload, error: Exception, **found: Any) -> None:
    Upload.objects.filter(pk=upload.pk, state=Upload.State.READING).update(
        state=Upload.State.ASKING, found={"faults": str(error).splitlines()} | found
    )


def _imported(upload: Upload) -> Experiment:
    source, wishes = source_of_upload(upload), wishes_of(upload)

    def tell(n_rows: int) -> None:
        if n_rows % _ROWS_BETWEEN_WORDS:
            return
        reading = Upload.objects.filter(pk=upload.pk, state=Upload.State.READING)
        if not reading.update(found={"rows": n_rows}, touched_at=clock.now()):
            raise CancelledError

    source.on_row = tell
    if upload.material != Material.VOTES and (told := found_of(upload)) is not None:
        rows = len(told.spec.ready_made) or len(told.spec.tasks)
        if not told.compares:
            raise ImportingError.at("", " ".join(told.findings.notes))
        upload.found = {"rows": rows, "warnings": [*told.findings.sentences()]}
        return create_experiment(spec=_with_settings(told.spec, upload), by=upload.user, upload=upload)
    if upload.material == Material.EXPERIMENT:
        described = experiment_in(source)
        upload.found = {"rows": len(described.spec.tasks), "warnings": [*described.warnings]}
        spec = replace(described.spec, name=upload.name or described.spec.name)
        return create_experiment(spec=spec, by=upload.user, upload=upload)
    if upload.material == Material.RESPONSES:
        answers = read_responses(source, wishes=wishes)
        upload.found = {"rows": len(answers.responses), "warnings": [*answers.warnings]}
        spec = _with_settings(answers.spec(upload.name), upload)
        return create_experiment(spec=spec, by=upload.user, upload=upload)
    found = read_votes(source, wishes=wishes)
    upload.found = {"rows": len(found.votes), "warnings": [*found.warnings]}
    return store_votes(
        experiment=upload.experiment,
        name=upload.name,
        votes=found.votes,
        by=upload.user,
        counted=upload.wishes.get("counted", ""),
        upload=upload,
    ).experiment


def _with_settings(spec: ExperimentSpec, upload: Upload) -> ExperimentSpec:
    """The description with the settings that came beside the file."""
    return replace(spec, settings={**spec.settings, **upload.wishes.get("settings", {})})
