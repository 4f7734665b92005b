"""Uploads of responses and votes: kept first, then imported at once, or after their user has said what the
columns are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from engine.core.wording import number
from engine.domain.errors import EngineError, SpecError
from engine.domain.limits import RESPONSES_BYTES, VOTES_BYTES, Limit
from engine.domain.material import Material
from engine.importing.items import Answers, read_responses
from engine.importing.looking import MEANINGS_BY_MATERIAL, Look, look, missing_of
from engine.importing.mapping import IGNORE, check_columns
from engine.importing.pacing import unhurried
from engine.importing.rows import ImportingError
from engine.importing.sources import Source, as_one, source_of
from engine.importing.votes.reading import read_votes
from engine.importing.votes.vote import Votes
from engine.models import Upload
from engine.selectors.uploads import kept_upload
from engine.services.drafts import create_experiment
from engine.services.past_votes import add_votes, start_from_votes
from engine.services.uploads import drop_upload, keep_upload
from engine.tasks import wake_planner
from labeling import access
from labeling.forms.columns import MEANING_LABELS, REMEDIES, fold, said_columns
from labeling.requests import AuthenticatedRequest, read_or_write

# The ways to treat votes that count already: values and labels.
_COUNTED = (
    ("", "Ask me: import nothing if there are any"),
    ("only_new", "Only new votes: leave them out"),
    ("again", "All votes: count every row of the file"),
)


@dataclass(frozen=True)
class _Kind:
    """The ways to read, store and sum up one material."""

    most: Limit
    read: Callable[[Source, Mapping[str, str] | None], Any]
    store: Callable[[AuthenticatedRequest, str, Any, Upload], HttpResponse]
    said: Callable[[Any], str]
    back: str


@unhurried()
def receive(
    request: AuthenticatedRequest, material: Material, files: Sequence[UploadedFile[Any]]
) -> HttpResponse:
    """Import uploaded files of one table, or ask for the columns where they are not known.

    They are kept before they are read: a process that is killed meanwhile loses nothing, and its user goes on
    from the page Columns.

    Raises
    ------
    ImportingError, EngineError
        The files are refused for another reason. They are kept no longer.
    """
    kind, name = _KINDS[material], request.POST.get("name", "").strip()
    file_name, data = as_one([(file.name or "", file) for file in files], kind.most)
    upload = keep_upload(
        user=request.user,
        material=material,
        name=name,
        file_name=file_name,
        data=data,
        counted=counted_votes(request)["counted"],
    )
    try:
        found = _read_at_once(source_of([(file_name, BytesIO(data))], kind.most), material)
        if found is None or request.POST.get("look"):
            return redirect("map_columns", upload_id=upload.pk)
        return kind.store(request, name, found, upload)
    except (ImportingError, EngineError):
        drop_upload(upload)
        raise


def _read_at_once(source: Source, material: Material) -> Any:
    """The content of a file; ``None`` where its user has to say what its columns are.

    Raises
    ------
    ImportingError
        It is refused for another reason.
    """
    try:
        return _KINDS[material].read(source, None)
    except ImportingError:
        first = look(source, material)
        elsewhere = len(source.sheets) > 1
        if not (elsewhere or (first.columns and (first.missing or first.is_wide or first.is_guessed))):
            raise
    return None


@login_required
@read_or_write
@unhurried()
def map_columns(request: AuthenticatedRequest, upload_id: UUID) -> HttpResponse:
    """Show the columns of a kept file, and what each becomes; import it when its user says so."""
    access.to_create(request)
    if (upload := kept_upload(request.user, upload_id)) is None:
        raise Http404
    material = Material(upload.material)
    kind = _KINDS[material]
    sheet = request.POST.get("sheet", "")
    wanted = request.method == "POST" and not request.htmx and request.POST.get("action") != "check"
    faults: list[str] = []
    found, first, sheets = None, Look((), ()), list[str]()
    columns = said_columns(request.POST)
    as_it_is = False
    try:
        source = source_of([(upload.file_name, BytesIO(upload.data))], kind.most, sheet)
        sheets = source.sheets
        first = look(source, material)
        # Another sheet has other columns.
        if not columns or request.POST.get("seen_sheet", sheet) != sheet:
            columns = {column.name: column.meaning for column in first.columns}
            as_it_is = _is_read_as_it_is(source, material, columns)
        # A sheet without rows gets its own error, and not the advice to choose columns.
        unasked = as_it_is or not first.columns
        found = kind.read(source, None) if unasked else _read_by(columns, source, material)
        if wanted:
            return kind.store(request, request.POST.get("name", "").strip(), found, upload)
    except ImportingError as error:
        faults = error.said(REMEDIES)
    except EngineError as error:
        faults = str(error).splitlines()
    labels = [(meaning, MEANING_LABELS[meaning]) for meaning in MEANINGS_BY_MATERIAL[material]]
    context = {
        "upload": upload,
        "name": request.POST.get("name", upload.name),
        "columns": fold(
            [(column, columns.get(column.name, column.meaning)) for column in first.columns], IGNORE
        ),
        "meanings": labels,
        "as_it_is": as_it_is,
        "sheets": sheets,
        "sheet": sheet,
        "faults": faults,
        **counted_votes(request, upload.counted),
        "said": kind.said(found) if found is not None else "",
        "warnings": found.warnings if found is not None else (),
        "back": kind.back,
    }
    if request.htmx:
        return render(request, "setup/_columns_result.html", context)
    return render(request, "setup/columns.html", context, status=400 if wanted else 200)


def counted_votes(request: HttpRequest, earlier: str = "") -> dict[str, Any]:
    """The choices for votes that count already, and the one that was made, here or ``earlier``."""
    chosen = request.POST.get("counted", earlier)
    return {"counted_choices": _COUNTED, "counted": chosen if chosen in dict(_COUNTED) else ""}


def _read_by(columns: Mapping[str, str], source: Source, material: Material) -> Any:
    """The content of a file whose columns have these meanings.

    Raises
    ------
    ImportingError
        It cannot be read so.
    """
    checked = check_columns(columns)
    if missing := missing_of(checked.values(), material):
        wanted = ", ".join(MEANING_LABELS[each] for each in missing)
        raise ImportingError.at("", f"Choose a column for: {wanted}.")
    return _KINDS[material].read(source, checked)


def _is_read_as_it_is(source: Source, material: Material, guess: Mapping[str, str]) -> bool:
    """True for a format that no meanings of columns could describe, as LMArena's: only without them it is
    read.
    """
    try:
        _read_by(guess, source, material)
    except ImportingError:
        with suppress(ImportingError):
            _KINDS[material].read(source, None)
            return True
    return False


# ---------------------------------------------------------------- the two kinds


def _store_answers(
    request: AuthenticatedRequest, name: str, answers: Answers, upload: Upload
) -> HttpResponse:
    experiment = create_experiment(spec=answers.spec(name), by=request.user, upload=upload)
    _warn(request, answers.warnings)
    messages.success(request, "Saved as a draft. Check it, then start it.")
    return redirect("setup", experiment_id=experiment.pk)


def _store_votes(request: AuthenticatedRequest, name: str, votes: Votes, upload: Upload) -> HttpResponse:
    # Their own comes first: others may have shared one of the same name with them.
    of_that_name = list(access.runnable(request).filter(name=name))
    own = [each for each in of_that_name if each.maker_id == request.user.pk]
    there = own or of_that_name
    if len(there) > 1:
        raise SpecError(
            f"name: You may change {len(there)} experiments of this name. Choose another one, or import the "
            "votes with manage.py import_votes."
        )
    n_counted, warnings = len(votes.votes), [*votes.warnings]
    if there:
        added = add_votes(
            experiment_id=there[0].pk,
            votes=votes.votes,
            by=request.user,
            again=request.POST.get("counted") == "again",
            only_new=request.POST.get("counted") == "only_new",
            upload=upload,
        )
        experiment, n_counted = added.experiment, added.n_votes
        warnings += added.warnings
    else:
        experiment = start_from_votes(name=name, votes=votes.votes, by=request.user, upload=upload)
    wake_planner(experiment.pk)
    messages.success(request, f"{number(n_counted, 'vote')} imported.")
    _warn(request, warnings)
    return redirect("dashboard", experiment_id=experiment.pk)


def _warn(request: AuthenticatedRequest, warnings: Sequence[str]) -> None:
    for warning in warnings:
        messages.warning(request, warning)


def _answers_said(answers: Answers) -> str:
    return (
        f"{number(len(answers.responses), 'response')} of "
        f"{number(len(answers.policies), 'policy', 'policies')} to {number(len(answers.tasks), 'task')}."
    )


def _votes_said(votes: Votes) -> str:
    policies = {name for vote in votes.votes for name in (vote.policy_a, vote.policy_b)}
    tasks = {vote.task for vote in votes.votes}
    return (
        f"{number(len(votes.votes), 'vote')} on {number(len(policies), 'policy', 'policies')} and "
        f"{number(len(tasks), 'task')}."
    )


_KINDS = {
    Material.RESPONSES: _Kind(
        RESPONSES_BYTES, read_responses, _store_answers, _answers_said, "new_experiment"
    ),
    Material.VOTES: _Kind(VOTES_BYTES, read_votes, _store_votes, _votes_said, "import_votes"),
}
