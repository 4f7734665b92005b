"""An uploaded file on its way: a worker imports it, and where its user has to say something first, this page
asks.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django_htmx.http import HttpResponseClientRedirect

from engine.domain.errors import SpecError
from engine.domain.material_kinds import Material
from engine.domain.specs import TaskSpec
from engine.domain.wording import number
from engine.importing.items import Column, Wishes, as_read, look, make_answers
from engine.importing.mapping import IGNORE, ROLES, Roles, check_columns, missing_roles
from engine.importing.other_tools import found_in
from engine.importing.promptfoo_models import Wanted
from engine.importing.reading_process import Source, as_one, source_of
from engine.importing.rows import Fault, ImportingError, Row
from engine.importing.votes import Judge, Vote, vote_of
from engine.models import Connection, Experiment, Upload
from engine.selectors.connections import may_make
from engine.selectors.uploads import kept_upload
from engine.services.imports import MOST_BYTES, found_of, source_of_upload, wishes_of
from engine.services.uploads import drop_upload, forget_upload, keep_upload, want_import
from engine.tasks import wake_import
from labeling import access
from labeling.forms.columns import ROLE_LABELS, fold, said_columns
from labeling.requests import AuthenticatedRequest, read_or_write

# The ways to treat votes that count already: values and labels.
_COUNTED = (
    ("", "Ask me: import nothing if there are any"),
    ("only_new", "Only new votes: leave them out"),
    ("again", "All votes: count every row of the file"),
)
# Digits of a number of tasks or of a seed.
_LONGEST = 10
_BACK = {
    Material.RESPONSES: "new_experiment",
    Material.VOTES: "import_votes",
    Material.EXPERIMENT: "new_experiment",
}


def receive(
    request: AuthenticatedRequest,
    material: Material,
    files: Sequence[UploadedFile[Any]],
    *,
    is_known: bool = False,
) -> HttpResponse:
    """Keep uploaded files of one table, and let a worker import them unless their user wants to look first.

    ``is_known``: they are known to be another tool's, which takes long to find out.

    Raises
    ------
    ImportingError, SpecError
        The files are too large, or their name cannot be used.
    """
    name = request.POST.get("name", "").strip()
    source = source_of([(file.name or "", file) for file in files], MOST_BYTES[material])
    file_name, data = as_one(source)
    wishes = _wishes_sent(request, {})
    target = _target(request, material, name)
    # Of another tool's file the page says what is left out before anything is stored.
    look = bool(request.POST.get("look")) or is_known or is_of_another_tool(source)
    upload = keep_upload(
        user=request.user,
        material=material,
        name=name,
        experiment=target,
        file_name=file_name,
        data=data,
        wishes=wishes,
        state=Upload.State.ASKING if look else Upload.State.WAITING,
    )
    if not look:
        wake_import(upload.pk)
    return redirect("map_columns", upload_id=upload.pk)


@read_or_write
def map_columns(request: AuthenticatedRequest, upload_id: UUID) -> HttpResponse:
    """Show how the import of a file goes; ask what its user has to say, and import it then."""
    access.to_create(request)
    if (upload := kept_upload(request.user, upload_id)) is None:
        raise Http404
    back = reverse(_BACK[Material(upload.material)])
    if request.method == "POST" and request.POST.get("action") == "cancel" and drop_upload(upload):
        messages.success(request, f"{upload.file_name} was not imported, and is no longer kept.")
        return redirect(back)
    if upload.state == Upload.State.DONE:
        return _moved(request, _told(request, upload))
    if upload.state != Upload.State.ASKING:
        template = "setup/_importing.html" if request.htmx else "setup/importing.html"
        return render(request, template, {"upload": upload})
    return _asking(request, upload, back)


def _asking(request: AuthenticatedRequest, upload: Upload, back: str) -> HttpResponse:
    if request.GET.get("faults"):
        return _list_of_faults(upload)
    if request.htmx and request.method != "POST":
        return _moved(request, request.path)
    return _found(request, upload, back) or _asked(request, upload, back)


def _found(request: AuthenticatedRequest, upload: Upload, back: str) -> HttpResponse | None:
    """Show what was found in a file of another tool, and import it; `None` for a table of rows."""
    asked = asked_of(request.POST)
    try:
        told = found_of(upload, **asked)
    except ImportingError as error:
        return _found_page(request, upload, {"refused": error, "back": back})
    if told is None:
        is_table = upload.material != Material.EXPERIMENT
        return None if is_table else _found_page(request, upload, {"back": back})
    faults = []
    if request.POST.get("action") == "import" and told.compares:
        name = request.POST.get("name", "").strip() or told.spec.name
        wishes = upload.wishes | asked
        try:
            want_import(upload=upload, name=name, experiment=None, wishes=wishes)
        except SpecError as error:
            faults.append(str(error))
        else:
            wake_import(upload.pk)
            return redirect(request.path)
    known = set(Connection.objects.choosable_by(request.user, None).values_list("name", flat=True))
    connections = [
        (wanted, wanted.name in known, urlencode(_fields_of(wanted))) for wanted in told.connections
    ]
    context = told.told() | {
        "name": upload.name or told.spec.name,
        "faults": faults,
        "connections": connections,
        "may_connect": may_make(request.user),
        "asked": asked,
        "query": urlencode({"upload": upload.pk} | {name: value for name, value in asked.items() if value}),
        "back": back,
    }
    return _found_page(request, upload, context)


def asked_of(data: QueryDict) -> dict[str, Any]:
    """What somebody asks of another tool's file."""
    numbers = {name: data.get(name, "") for name in ("sample", "seed")}
    return ({"leave_out": True} if data.get("leave_out") else {}) | {
        name: int(value) for name, value in numbers.items() if value.isdecimal() and len(value) < _LONGEST
    }


def _found_page(request: AuthenticatedRequest, upload: Upload, context: dict[str, Any]) -> HttpResponse:
    status = 400 if context.get("refused") or context.get("faults") else 200
    return render(request, "setup/found.html", {"upload": upload, **context}, status=status)


def _fields_of(wanted: Wanted) -> dict[str, str]:
    return {
        "name": wanted.name,
        "provider": wanted.provider,
        "model_id": wanted.model_id,
        "address": wanted.address,
    }


def is_of_another_tool(source: Source) -> bool:
    """True of a configuration or results of promptfoo, also if they are refused."""
    try:
        return found_in(source) is not None
    except ImportingError:
        return True


def _moved(request: AuthenticatedRequest, url: str) -> HttpResponse:
    """Lead to another page, also from a request of htmx."""
    return HttpResponseClientRedirect(url) if request.htmx else redirect(url)


def _told(request: AuthenticatedRequest, upload: Upload) -> str:
    """Say what came of the import; returns the page of its experiment."""
    are_votes = upload.material == Material.VOTES
    said = f"{number(upload.found['rows'], 'vote')} imported."
    messages.success(request, said if are_votes else "Saved as a draft. Check it, then start it.")
    for warning in upload.found["warnings"]:
        messages.warning(request, warning)
    page = "dashboard" if are_votes else "setup"
    url = reverse(page, args=[upload.experiment_id])
    forget_upload(upload)
    return url


def _list_of_faults(upload: Upload) -> HttpResponse:
    file = io.StringIO()
    csv.writer(file).writerows([("place", "fault"), *upload.found.get("all_faults", ())])
    response = HttpResponse(file.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="faults.csv"'
    return response


@dataclass(frozen=True)
class _Preview:
    """The first rows of a file as they will be read.

    ``is_known``: the names of the columns say all that is needed. ``missing``: the roles that lack a column.
    """

    columns: Sequence[Column] = ()
    rows: Sequence[tuple[str, Sequence[str], str]] = ()
    roles: Sequence[str] = ()
    unread: Sequence[str] = ()
    sheets: Sequence[str] = ()
    is_known: bool = False
    missing: Sequence[str] = ()
    faults: Sequence[str] = ()


def _asked(request: AuthenticatedRequest, upload: Upload, back: str) -> HttpResponse:
    wishes, name = upload.wishes, upload.name
    action = request.POST.get("action", "check")
    if request.method == "POST":
        wishes, name = _wishes_sent(request, wishes), request.POST.get("name", "").strip()
        # Another sheet has other columns.
        if request.POST.get("seen_sheet", "") != wishes["sheet"] and "seen_sheet" in request.POST:
            wishes["columns"] = {}
    upload.wishes = wishes
    preview = _preview(upload)
    faults = [*preview.faults]
    if preview.missing:
        faults.append(f"Choose a column for: {', '.join(map(_label, preview.missing))}.")
    if action in {"import", "leave_out"} and not request.htmx and not faults:
        try:
            target = _target(request, Material(upload.material), name)
            want_import(upload=upload, name=name, experiment=target, wishes=wishes)
        except SpecError as error:
            faults.append(str(error))
        else:
            wake_import(upload.pk)
            return redirect(request.path)
    # The page asks for them in its own words.
    asks_columns = upload.found.get("lacks_columns") and not wishes.get("columns")
    context = {
        "upload": upload,
        "name": name,
        "preview": preview,
        "columns": fold(preview.columns, IGNORE),
        "roles": [(role, ROLE_LABELS[role]) for role in ROLES[Material(upload.material)]],
        "labels": [_label(role) for role in preview.roles],
        "sheet": wishes.get("sheet", ""),
        "faults": faults,
        "found": {} if request.method == "POST" or asks_columns else upload.found,
        "wishes": wishes,
        "judges": [("", "People, or as the file says"), (Judge.LLM.value, "A language model")],
        **counted_votes(request, wishes.get("counted", "")),
        "back": back,
    }
    if request.htmx:
        return render(request, "setup/_columns_result.html", context)
    return render(
        request, "setup/columns.html", context, status=400 if faults and action == "import" else 200
    )


def _preview(upload: Upload) -> _Preview:
    material, wishes = Material(upload.material), wishes_of(upload)
    source = source_of_upload(upload)
    try:
        columns, rows = look(source, material, wishes.columns)
        said = check_columns(wishes.columns or {column.name: column.roles for column in columns})
        is_known = not wishes.columns and _knows_itself(rows, material)
        roles = Roles(material, {} if is_known else said)
        missing = [] if is_known else missing_roles(said.values(), material)
        shown = [] if missing else list(as_read(rows, _maker(roles, wishes)))
        names = list(dict.fromkeys(name for _, texts, _ in shown for name in texts))
    except ImportingError as error:
        return _Preview(sheets=source.sheets, faults=str(error).splitlines())
    found = [(place, [texts.get(name, "") for name in names], fault) for place, texts, fault in shown]
    return _Preview(columns, found, names, [*roles.unread], source.sheets, is_known, missing)


def _knows_itself(rows: Sequence[Row | Fault], material: Material) -> bool:
    """True if the names of the columns say all that is needed."""
    roles = Roles(material)
    found = [role for row in rows if isinstance(row, Row) for role in roles.values(row)]
    return not missing_roles(dict.fromkeys(found), material)


def _maker(roles: Roles, wishes: Wishes) -> Callable[[Row], Iterable[dict[str, Any]]]:
    """What makes the records of a row, as the page shows them."""
    if roles.material == Material.VOTES:
        return lambda row: [_shown_vote(vote_of(row, roles, wishes))]
    tasks: dict[str, TaskSpec] = {}
    make = make_answers(roles, wishes, tasks)

    def answers(row: Row) -> Iterator[dict[str, Any]]:
        for each in make(row):
            task = [*tasks.values()][each.task]
            yield {"task": task.prompt, "policy": each.policy, "response": each.response or "(empty)"} | {
                "reference": task.reference,
                "tags": ", ".join(task.tags),
            }

    return answers


def _shown_vote(vote: Vote) -> dict[str, Any]:
    shown = {role: getattr(vote, role, None) for role in ROLE_LABELS}
    return shown | {
        "judged_at": vote.judged_at and str(vote.judged_at),
        "side_a": {True: "left", False: "right", None: ""}[vote.a_on_left],
        "judged_by": "" if vote.judge == Judge.HUMAN else vote.judge,
    }


def _label(role: str) -> str:
    return ROLE_LABELS.get(role, role.capitalize())


def _wishes_sent(request: HttpRequest, earlier: dict[str, Any]) -> dict[str, Any]:
    """How the user wants the file to be read, as a form says it."""
    return {
        "columns": said_columns(request.POST) or earlier.get("columns", {}),
        "json_texts": bool(request.POST.get("json_texts")),
        "leave_out": request.POST.get("action") == "leave_out",
        "judged_by": request.POST.get("judged_by", ""),
        "sheet": request.POST.get("sheet", ""),
        "counted": counted_votes(request)["counted"],
    }


def counted_votes(request: HttpRequest, earlier: str = "") -> dict[str, Any]:
    """The choices for votes that count already, and the one that was made, here or ``earlier``."""
    chosen = request.POST.get("counted", earlier)
    return {"counted_choices": _COUNTED, "counted": chosen if chosen in dict(_COUNTED) else ""}


def _target(request: AuthenticatedRequest, material: Material, name: str) -> Experiment | None:
    """The experiment of this name that votes are added to; ``None`` where one is to be made."""
    if not name and material != Material.EXPERIMENT:
        raise SpecError("name: Give the experiment a name.")
    if material != Material.VOTES:
        return None
    # Their own comes first: others may have shared one of the same name with them.
    of_that_name = list(access.runnable(request).filter(name=name))
    own = [each for each in of_that_name if each.maker_id == request.user.pk]
    there = own or of_that_name
    if len(there) > 1:
        raise SpecError(
            f"name: You may change {len(there)} experiments of this name. Choose another one, or import the "
            "votes with manage.py import_votes."
        )
    return there[0] if there else None
