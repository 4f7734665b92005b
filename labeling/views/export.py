"""Downloads of what was judged, and the page that offers them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from engine import selectors
from engine.selectors.browsing import STANDING
from engine.services.audit import record_export
from labeling import access
from labeling.exports import files
from labeling.exports.files import Export, Tally
from labeling.exports.formats import parquet_is_there
from labeling.exports.selecting import SelectionForm


class OptionsForm(forms.Form):
    raw = forms.BooleanField(required=False, label="Leave spreadsheet formulas as they are (CSV)")
    conversational = forms.BooleanField(required=False, label="As messages (DPO pairs)")
    usernames = forms.BooleanField(required=False, label="With usernames instead of pseudonyms")
    zip = forms.BooleanField(required=False, label="With its manifest, as a ZIP file")

    def __init__(self, data: Any, *, may_own: bool) -> None:
        super().__init__(data, label_suffix="")
        if not may_own:
            del self.fields["usernames"]


@login_required
@require_safe
def export(request: HttpRequest, experiment_id: int) -> HttpResponse:
    """Choose what to download; says how much it will be."""
    experiment = access.to_watch(request, experiment_id)
    form = SelectionForm(_with_default(request), experiment=experiment)
    options = OptionsForm(request.GET, may_own=access.may_own(request, experiment))
    withheld = access.withholds_unfinished(request, experiment)
    context: dict[str, Any] = {
        "experiment": experiment,
        "form": form,
        "options": options,
        "withheld": withheld,
    }
    valid = form.is_valid()
    if valid:
        selection = form.selection(finished=withheld)
        context |= {
            "judgments": selectors.selected_judgments(experiment, selection).count(),
            "preferences": files.preferred_comparisons(experiment, selection).count(),
            "query": _query(form, options),
            "parquet": parquet_is_there(),
        }
    return render(request, "export/export.html", context, status=200 if valid else 400)


@login_required
@require_safe
def judgments_csv(request: HttpRequest, experiment_id: int) -> HttpResponseBase:
    """Judgments, one row each: those that the estimates rest on unless asked otherwise."""
    return _download(request, experiment_id, files.CSV)


@login_required
@require_safe
def judgments_jsonl(request: HttpRequest, experiment_id: int) -> HttpResponseBase:
    """The same rows as JSON lines."""
    return _download(request, experiment_id, files.JSONL)


@login_required
@require_safe
def judgments_parquet(request: HttpRequest, experiment_id: int) -> HttpResponseBase:
    """The same rows as Parquet."""
    return _download(request, experiment_id, files.PARQUET)


@login_required
@require_safe
def dpo_jsonl(request: HttpRequest, experiment_id: int) -> HttpResponseBase:
    """Prompt, chosen and rejected of every comparison that was decided for one side."""
    return _download(request, experiment_id, files.DPO)


def _download(request: HttpRequest, experiment_id: int, kind: str) -> HttpResponseBase:
    experiment = access.to_watch(request, experiment_id)
    form = SelectionForm(_with_default(request), experiment=experiment)
    options = OptionsForm(request.GET, may_own=access.may_own(request, experiment))
    if not (form.is_valid() and options.is_valid()):
        faults = "; ".join(f"{name}: {' '.join(errors)}" for name, errors in form.errors.items())
        return HttpResponseBadRequest(f"The filter cannot be used. {faults}", content_type="text/plain")
    if request.GET.get("usernames") and "usernames" not in options.fields:
        return HttpResponse(
            "Only owners of the experiment may export usernames. Leave out usernames=.",
            status=403,
            content_type="text/plain",
        )
    if kind == files.PARQUET and not parquet_is_there():
        return HttpResponse(
            "Parquet needs pyarrow on the server: pip install pyarrow.", status=501, content_type="text/plain"
        )
    chosen = {"usernames": False} | options.cleaned_data
    download = Export(
        experiment=experiment,
        format=kind,
        selection=form.selection(finished=access.withholds_unfinished(request, experiment)),
        filter=form.said(),
        raw=chosen["raw"],
        conversational=chosen["conversational"],
        usernames=chosen["usernames"],
    )
    if request.method != "HEAD":
        record_export(
            experiment=experiment,
            by=request.user,
            format=kind,
            filter=form.said(),
            usernames=chosen["usernames"],
        )
    if chosen["zip"]:
        return _streamed(request, download.zipped(), f"{download.filename}.zip", "application/zip")
    return _streamed(request, download.pieces(Tally()), download.filename, download.content_type)


def _streamed(
    request: HttpRequest, pieces: Iterator[bytes], filename: str, content_type: str
) -> StreamingHttpResponse:
    # Who asks for the headers only must not have the server write the whole file.
    response = StreamingHttpResponse(pieces if request.method == "GET" else (), content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{filename}"'
    return response


def _with_default(request: HttpRequest) -> dict[str, str]:
    """What is asked for; where nothing is said of judgments, those that stand."""
    return {"judgments": STANDING} | request.GET.dict()


def _query(form: SelectionForm, options: OptionsForm) -> str:
    chosen = {name: "1" for name in options.fields if options.is_valid() and options.cleaned_data[name]}
    # "Any" has to be said, as saying nothing means those that stand.
    return urlencode({"judgments": ""} | form.said() | chosen)
