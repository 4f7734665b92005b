"""Downloads of judgments, and the page that offers them."""

from typing import Any

from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from engine.publishing.winners import winner_of
from engine.selectors import blinding, browsing
from labeling import access
from labeling.exports import files
from labeling.exports.downloads import OptionsForm, download, events_may_go_out, with_default
from labeling.exports.filter_form import SelectionForm
from labeling.requests import AuthenticatedRequest


@require_safe
def export(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Choose what to download; says how much it will be."""
    experiment = access.to_watch(request, experiment_id)
    form = SelectionForm(with_default(request), experiment=experiment)
    options = OptionsForm(request.GET, may_own=access.may_own(request, experiment))
    context: dict[str, Any] = {
        "experiment": experiment,
        "form": form,
        "options": options,
        "winner": winner_of(experiment),
        "unfinished": blinding.unfinished(experiment),
    }
    valid = form.is_valid()
    if valid:
        selection = form.selection(finished=blinding.withholds_unfinished(experiment))
        judgments = browsing.selected_judgments(experiment, selection).count()
        preferences = files.preferred_comparisons(experiment, selection).count()
        untrainable = judgments > 0 and not preferences
        context |= {
            "judgments": judgments,
            "preferences": preferences,
            "untrainable": untrainable,
            "query": _query(form, options),
            "formats": [
                each
                for each in files.FORMATS.values()
                if not (each.training and untrainable)
                and not (each is files.FORMATS[files.EVENTS] and not events_may_go_out(experiment))
            ],
        }
    return render(request, "export/export.html", context, status=200 if valid else 400)


@require_POST
def file(request: AuthenticatedRequest, experiment_id: int, kind: str) -> HttpResponseBase:
    """The download in the format ``kind``: judgments that the estimates rest on unless asked. A POST, as the
    log notes it: a link of somebody else's must not make anybody export.
    """
    return download(request, experiment_id, kind)


def _query(form: SelectionForm, options: OptionsForm) -> str:
    chosen = {name: "1" for name in options.fields if options.is_valid() and options.cleaned_data[name]}
    # "Any" has to be said, as saying nothing means those that stand.
    return urlencode({"judgments": ""} | form.filled() | chosen)
