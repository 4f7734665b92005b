"""The page to which people bring votes that they have."""

from django.http import HttpResponse
from django.shortcuts import render

from engine.domain.errors import EngineError
from engine.domain.material_kinds import Material
from engine.importing.rows import ImportingError
from engine.selectors.uploads import kept_uploads
from labeling import access
from labeling.requests import AuthenticatedRequest, read_or_write
from labeling.views.uploads import counted_votes, receive


@read_or_write
def import_votes(request: AuthenticatedRequest) -> HttpResponse:
    """Ask for a file of past votes; make an experiment of it, or add them to the one of that name."""
    access.to_create(request)
    faults: list[str] = []
    if request.method == "POST":
        try:
            if not (files := request.FILES.getlist("votes")):
                raise ImportingError.at("", "Choose a file first.")
            return receive(request, Material.VOTES, files)
        except (ImportingError, EngineError) as error:
            faults = str(error).splitlines()
    context = {
        "faults": faults,
        **counted_votes(request),
        "typed_name": request.POST.get("name", ""),
        "kept": kept_uploads(request.user, Material.VOTES),
    }
    return render(request, "setup/votes.html", context, status=400 if faults else 200)
