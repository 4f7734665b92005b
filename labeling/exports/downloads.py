"""Downloads: an export, checked against rights, recorded in the log and streamed; and small files."""

from collections.abc import Iterator
from typing import Any

from django import forms
from django.http import Http404, HttpResponse, HttpResponseBadRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase

from engine.models import Experiment
from engine.publishing.promptfoo import promptfoo_of
from engine.publishing.winners import winner_of
from engine.selectors import blinding
from engine.selectors.browsing import STANDING
from engine.services.audit import record_export
from engine.services.showings import settle_now
from labeling import access
from labeling.exports import files
from labeling.exports.files import Export, Tally
from labeling.exports.filter_form import SelectionForm
from labeling.requests import AuthenticatedRequest, unknown_parameters


class OptionsForm(forms.Form):
    raw = forms.BooleanField(required=False, label="Leave spreadsheet formulas as they are (CSV)")
    conversational = forms.BooleanField(required=False, label="As messages (DPO, reward model, KTO)")
    usernames = forms.BooleanField(required=False, label="With usernames instead of pseudonyms")
    zip = forms.BooleanField(required=False, label="With its manifest, as a ZIP file")

    def __init__(self, data: Any, *, may_own: bool) -> None:
        super().__init__(data, label_suffix="")
        if not may_own:
            del self.fields["usernames"]


def download(request: AuthenticatedRequest, experiment_id: int, kind: str) -> HttpResponseBase:
    """The file of that kind (``files.CSV`` and so on) which the request's query describes; 400 and 403 say
    why there is none.
    """
    experiment = access.to_watch(request, experiment_id)
    form = SelectionForm(with_default(request), experiment=experiment)
    options = OptionsForm(request.GET, may_own=access.may_own(request, experiment))
    if not (form.is_valid() and options.is_valid()):
        return HttpResponseBadRequest(form.refusal, content_type="text/plain")
    known = [*form.fields, *OptionsForm.base_fields]
    if fault := unknown_parameters(request, known):
        return HttpResponseBadRequest(fault, content_type="text/plain")
    if request.GET.get("usernames") and "usernames" not in options.fields:
        return HttpResponse(
            "Only owners of the experiment may export usernames. Leave out usernames=.",
            status=403,
            content_type="text/plain",
        )
    if refusal := _refused(kind, experiment):
        return refusal
    settle_now(experiment_id=experiment.pk)
    chosen = {"usernames": False} | options.cleaned_data
    chosen_export = Export(
        experiment=experiment,
        format=kind,
        selection=form.selection(finished=blinding.withholds_unfinished(experiment)),
        filter=form.filled(),
        raw=chosen["raw"],
        conversational=chosen["conversational"],
        usernames=chosen["usernames"],
        withholds_responses=access.withholds_responses(request, experiment),
    )
    record_export(
        experiment=experiment,
        by=request.user,
        format=kind,
        filter=form.filled(),
        usernames=chosen["usernames"],
    )
    if chosen["zip"]:
        return _streamed(chosen_export.zipped(), f"{chosen_export.filename}.zip", "application/zip")
    return _streamed(chosen_export.pieces(Tally()), chosen_export.filename, chosen_export.content_type)


def events_may_go_out(experiment: Experiment) -> bool:
    """False while the log of showings names the policies of pairs that somebody may still judge."""
    return not blinding.withholds_unfinished(experiment) or blinding.is_over(experiment)


def _refused(kind: str, experiment: Experiment) -> HttpResponse | None:
    """The reply where nobody can have a kind of file, yet or on this server."""
    if kind == files.EVENTS and not events_may_go_out(experiment):
        said = "The log of showings names the policies of open pairs. Export it after the conclusion."
        return HttpResponse(said, status=403, content_type="text/plain")
    return None


def _streamed(pieces: Iterator[bytes], filename: str, content_type: str) -> StreamingHttpResponse:
    return StreamingHttpResponse(pieces, content_type=content_type, headers=saved_as(filename))


def winner_download(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The winner as a configuration of promptfoo; 404 without one."""
    experiment = access.to_watch(request, experiment_id)
    if (winner := winner_of(experiment)) is None:
        raise Http404("There is no winner, or its prompt is not known here.")
    return attachment(promptfoo_of(winner), f"{files.stem(experiment)}-winner.yaml", "application/yaml")


def attachment(text: str, filename: str, content_type: str) -> HttpResponse:
    """A small file in UTF-8, which the browser saves under this name."""
    return HttpResponse(text, content_type=f"{content_type}; charset=utf-8", headers=saved_as(filename))


def saved_as(filename: str) -> dict[str, str]:
    """The headers of a reply that the browser saves under this name."""
    return {"Content-Disposition": f'attachment; filename="{filename}"'}


def with_default(request: AuthenticatedRequest) -> dict[str, str]:
    """The query; without a choice of judgments, it selects those that count."""
    return {"judgments": STANDING} | request.GET.dict()
