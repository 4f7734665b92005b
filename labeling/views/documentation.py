"""The documentation, for everybody: it says nothing about this installation."""

from django.contrib.auth.decorators import login_not_required
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from labeling.documentation import INDEX, document, pictures


@login_not_required
@require_safe
def page(request: HttpRequest, name: str = INDEX) -> HttpResponse:
    """One document; the index without a name."""
    found = document(name)
    if found is None:
        raise Http404
    return render(request, "help.html", {"document": found, "is_index": name == INDEX})


@login_not_required
@require_safe
def picture(request: HttpRequest, name: str) -> FileResponse:
    """One picture of a document."""
    if name not in pictures():
        raise Http404
    return FileResponse(pictures()[name].open("rb"))
