"""Pages to create and change a draft, and to delete an experiment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID
from zlib import crc32

from allauth.account.forms import ReauthenticateForm
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe
from django_htmx.http import trigger_client_event

from engine.domain.errors import ChangedMeanwhileError, EngineError, SpecError, WrongStateError
from engine.domain.limits import DESCRIPTION_BYTES, RESPONSES_BYTES
from engine.domain.material_kinds import Material
from engine.domain.specs import ExperimentSpec
from engine.importing.experiment_files import description_in, read_experiment, write_experiment
from engine.importing.reading_process import source_of
from engine.importing.rows import ImportingError
from engine.models import Connection, Experiment
from engine.selectors import browsing, specs
from engine.selectors.experiments import contents_of
from engine.selectors.offered_models import models_named
from engine.selectors.policies import connections_named, policy_names
from engine.selectors.uploads import kept_upload, kept_uploads
from engine.services import drafts, experiments
from engine.services.connection_loans import lend_chosen
from engine.services.imports import found_of
from engine.services.policies import policies_may_change
from engine.services.task_changes import tasks_may_change
from engine.tasks import wake_planner
from labeling import access
from labeling.dashboard import figures
from labeling.dashboard.connections import standing_of
from labeling.dashboard.policies import level_terms
from labeling.exports.downloads import attachment
from labeling.exports.files import stem
from labeling.forms.draft import DraftEditor, data_of, data_sent
from labeling.forms.factors import apply_change
from labeling.forms.settings import STEPS
from labeling.forms.tags import TagForm
from labeling.requests import AuthenticatedRequest, read_or_write
from labeling.setup import sizes
from labeling.setup.templates import STARTS, comparing_models, start_named
from labeling.views.trial import try_usual_tasks
from labeling.views.uploads import asked_of, is_of_another_tool, receive

_TASKS_PER_PAGE = 20
# Those that the page asks for by itself.
_PARTS = ("size", "ready", "tasks", "gold", "tasks-file", "tasks-columns", "tasks-source", "gold-file")


@read_or_write
def new(request: AuthenticatedRequest) -> HttpResponse:
    """Choose a starting point, or upload a file."""
    access.to_create(request)
    faults: list[str] = []
    if request.method == "POST":
        try:
            return _received(request)
        except (ImportingError, EngineError) as error:
            faults = str(error).splitlines()
    context = {
        "starts": STARTS,
        "faults": faults,
        "typed_name": request.POST.get("name", ""),
        "kept": kept_uploads(request.user, Material.RESPONSES, Material.VOTES, Material.EXPERIMENT),
    }
    return render(request, "setup/new.html", context, status=400 if faults else 200)


def _received(request: AuthenticatedRequest) -> HttpResponse:
    if responses := request.FILES.getlist("responses"):
        return receive(request, Material.RESPONSES, responses)
    files = request.FILES.getlist("description")
    if not files:
        raise ImportingError.at("", "Choose a file first.")
    source = source_of([(file.name or "", file) for file in files], RESPONSES_BYTES)
    for file in files:
        file.seek(0)
    are_packed = len(files) > 1 or (files[0].name or "").lower().endswith(".zip")
    if are_packed or is_of_another_tool(source):
        return receive(request, Material.EXPERIMENT, files, is_known=not are_packed)
    described = read_experiment(description_in(files[0], DESCRIPTION_BYTES))
    experiment = drafts.create_experiment(spec=described.spec, by=request.user)
    messages.success(request, "Saved as a draft. Check it, then start it.")
    return redirect("setup", experiment_id=experiment.pk)


@read_or_write
def new_from(request: AuthenticatedRequest, start: str) -> HttpResponse:
    """Set up an experiment that is not stored yet."""
    access.to_create(request)
    url = reverse("new_from", args=[start])
    if start == "models":
        names = _remote_models(request)
        if request.method != "POST" and len(names) < 2:
            messages.info(request, "Connect two models or more. Then choose “Compare models” again.")
            return redirect("connections")
        return _page(request, None, lambda: comparing_models(names), url)
    if (chosen := start_named(start)) is None:
        raise Http404
    found = _found_in(request)
    return _page(request, None, lambda: chosen.spec if found is None else _begun(found, chosen.spec), url)


def _found_in(request: AuthenticatedRequest) -> ExperimentSpec | None:
    """What an uploaded file describes that lacks a policy and is to be completed on the page."""
    if request.method == "POST" or not (asked := request.GET.get("upload")):
        return None
    try:
        upload = kept_upload(request.user, UUID(asked))
        told = found_of(upload, **asked_of(request.GET)) if upload is not None else None
    except ValueError:
        raise Http404 from None
    return None if told is None else told.to_begin


def _begun(found: ExperimentSpec, start: ExperimentSpec) -> ExperimentSpec:
    """What was found, on top of a start's factors where the file has none."""
    return replace(start, name=found.name, factors=found.factors or start.factors, tasks=found.tasks)


def _remote_models(request: AuthenticatedRequest) -> list[str]:
    return list(Connection.objects.remote().choosable_by(request.user, None).values_list("name", flat=True))


@read_or_write
def setup(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Change a draft, or read the setup if it cannot be changed, or not by this user."""
    if request.method != "POST":
        experiment = access.to_watch(request, experiment_id)
        draft = experiment.state == Experiment.State.DRAFT and experiment.archived_at is None
        if not draft or not access.may_run(request, experiment):
            return _to_read(request, experiment)
    experiment = access.to_run(request, experiment_id)
    if experiment.state != Experiment.State.DRAFT:
        messages.error(
            request, "The experiment has been started, so its setup cannot change: judgments depend on it."
        )
        return redirect("dashboard", experiment_id=experiment.pk)
    return _page(
        request,
        experiment,
        lambda: specs.experiment_spec(experiment),
        reverse("setup", args=[experiment.pk]),
    )


def _to_read(request: AuthenticatedRequest, experiment: Experiment) -> HttpResponse:
    """The setup as it is, for everybody who may watch."""
    tags = TagForm(request.GET, experiment=experiment)
    tasks = browsing.tasks_tagged(experiment, tags.chosen) if tags.chosen else experiment.tasks.all()
    may_run = access.may_run(request, experiment)
    context = {
        "experiment": experiment,
        "badge": figures.badge_of(experiment),
        "may_run": may_run,
        "may_change_tasks": may_run and tasks_may_change(experiment),
        "may_change_policies": may_run and policies_may_change(experiment),
        "factors": [
            (factor, [(level, level_terms(level)) for level in factor.levels.all()])
            for factor in experiment.factors.prefetch_related("levels")
        ],
        "names": policy_names(experiment),
        "tag_form": tags,
        "tasks": Paginator(tasks, _TASKS_PER_PAGE).get_page(request.GET.get("page")),
    }
    return render(request, "dashboard/setup.html", context)


def _page(
    request: AuthenticatedRequest,
    experiment: Experiment | None,
    stored: Callable[[], ExperimentSpec],
    url: str,
) -> HttpResponse:
    if request.method != "POST":
        data = data_of(stored())
        if experiment is not None:
            data["version"] = str(specs.version_of(experiment))
        elif len(names := _remote_models(request)) == 1:
            [data["model"]] = names
        editor = DraftEditor(data, experiment, step=request.GET.get("step", ""), maker=request.user)
        return _rendered(request, editor, url, "setup/edit.html")
    editor = DraftEditor(data_sent(request.POST), experiment, maker=request.user)
    part = request.POST.get("part", "") if request.htmx else ""
    if part in _PARTS:
        editor.take_files(request.FILES)
        return _fragment(request, editor, url, part)
    if (change := request.POST.get("change")) in {"tasks-columns", "tasks-source"}:
        editor.map_columns() if change == "tasks-columns" else editor.fetch_tasks()
        return _rendered(request, editor, url, "setup/edit.html")
    if step := request.POST.get("go"):
        editor = DraftEditor(editor.data, experiment, step=step, maker=request.user)
        return _rendered(request, editor, url, "setup/edit.html")
    if change:
        return _changed(request, editor, url, change)
    editor.take_files(request.FILES)
    return _saved(request, editor, url)


def _changed(request: AuthenticatedRequest, editor: DraftEditor, url: str, change: str) -> HttpResponse:
    """The page, or only its factors, after a row was added, removed or moved. Nothing is stored."""
    editor.focus = apply_change(editor.data, change)
    if not request.htmx:
        return _rendered(request, editor, url, "setup/edit.html")
    response = _rendered(request, editor, url, "setup/_factors.html")
    return trigger_client_event(response, "factors-changed")


def _fragment(request: HttpRequest, editor: DraftEditor, url: str, part: str) -> HttpResponse:
    """A part of the page; after one of the items, the summary counts anew once it is there."""
    if part in {"size", "ready"}:
        size = sizes.size_of(editor)
        ready = _ready(request, editor, size.get("fault", ""))
        if part == "size":
            context = {"size": size, "editor": editor, "url": url, "ready": ready}
            return render(request, "setup/_size.html", context)
        # The same again is not put onto the page: readers would hear it again, and lose their place in it.
        unchanged = f'value="{request.POST.get("said", "")}"' in ready
        return HttpResponse(status=204) if unchanged else HttpResponse(ready)
    if part == "tasks-columns":
        editor.map_columns()
    if part == "tasks-source":
        editor.fetch_tasks()
    kind, _, whole = part.partition("-")
    template = "setup/_items.html" if whole else "setup/_preview.html"
    response = render(request, template, {"items": getattr(editor, kind), "url": url, "editor": editor})
    return trigger_client_event(response, "items-changed", after="settle")


def _ready(request: HttpRequest, editor: DraftEditor, fault: str) -> SafeString:
    """Whether the experiment can start now, and what it needs; with the digest of these words."""
    named = connections_named(editor.named).values()
    troubled = [
        (each.name, words) for each in named for look, words in [standing_of(each)] if look == "unhealthy"
    ]
    context = {"editor": editor, "fault": fault, "troubled": troubled}
    words = render_to_string("setup/_ready.html", context, request)
    said = format_html('<input type="hidden" name="said" value="{}">', crc32(words.encode()))
    return words + said


def _saved(request: AuthenticatedRequest, editor: DraftEditor, url: str) -> HttpResponse:
    action = request.POST.get("action")
    spec = editor.spec(needs_tasks=action in {"start", "try"})
    if spec is None:
        return _rendered(request, editor, url, "setup/edit.html", status=400)
    experiment = editor.experiment
    # Lend only connections named by this save: others were somebody else's choice.
    before = set() if experiment is None else models_named(experiment) | {experiment.judge_model}
    try:
        if experiment is None:
            experiment = drafts.create_experiment(spec=spec, by=request.user)
        else:
            experiment = drafts.replace_draft(
                experiment_id=experiment.pk, spec=spec, by=request.user, version=editor.version
            )
        lend_chosen(experiment=experiment, by=request.user, names=editor.named - before)
        if action == "start":
            experiments.start(experiment_id=experiment.pk, by=request.user)
            wake_planner(experiment.pk)
            return redirect("dashboard", experiment_id=experiment.pk)
    except SpecError as error:
        editor.refuse(error)
        if experiment is not None and isinstance(error, ChangedMeanwhileError):
            # The page has said so; saving once more replaces the other version.
            editor.data["version"] = str(specs.version_of(experiment))
        return _rendered(request, editor, url, "setup/edit.html", status=400)
    except WrongStateError as error:
        messages.error(request, str(error))
        return redirect("dashboard", experiment_id=experiment.pk) if experiment else redirect("home")
    messages.success(request, f"Saved as a draft.{'' if spec.tasks else ' Add tasks before the start.'}")
    if action == "try":
        return try_usual_tasks(request, experiment)
    return redirect(f"{reverse('setup', args=[experiment.pk])}?step={editor.step}")


def _rendered(
    request: AuthenticatedRequest, editor: DraftEditor, url: str, template: str, status: int = 200
) -> HttpResponse:
    experiment = editor.experiment
    context = {
        "editor": editor,
        "steps": STEPS,
        "url": url,
        "n_people": sizes.people_of(editor),
        "experiment": experiment,
        "may_own": experiment is not None and access.may_own(request, experiment),
    }
    return render(request, template, context, status=status)


@read_or_write
@access.recent_login_required
def delete(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Say what goes, then delete; with judgments only after the password, however recent the login is."""
    experiment = access.to_own(request, experiment_id)
    asks = experiment.state == Experiment.State.CONCLUDED and request.user.has_usable_password()
    form = ReauthenticateForm(request.POST or None, user=request.user) if asks else None
    try:
        drafts.check_deletable(experiment)
        if request.method == "POST" and (form is None or form.is_valid()):
            drafts.delete_experiment(experiment_id=experiment.pk, by=request.user)
            messages.success(request, f"“{experiment.name}” is deleted.")
            return redirect("home")
    except WrongStateError as error:
        messages.error(request, str(error))
        return redirect("dashboard", experiment_id=experiment.pk)
    context = {"experiment": experiment, "form": form, "contents": contents_of(experiment)}
    return render(request, "setup/delete.html", context, status=400 if request.method == "POST" else 200)


@require_safe
def setup_file(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The description as a file, which the page of new experiments and load_experiment read; without the
    ready-made responses for those who judge them.
    """
    experiment = access.to_watch(request, experiment_id)
    spec, note = specs.experiment_spec(experiment), ""
    if spec.ready_made and access.withholds_responses(request, experiment):
        spec = replace(spec, ready_made=())
        note = "# Without the ready-made responses, as you judge here: they would say who wrote what.\n"
    return attachment(note + write_experiment(spec), f"{stem(experiment)}.yaml", "application/yaml")
