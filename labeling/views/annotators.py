"""One annotator of an experiment, for those who run it."""

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe

from engine.domain.errors import WrongStateError
from engine.domain.wording import number
from engine.models import Experiment, User
from engine.selectors import annotators, people
from engine.selectors.agreement import shared_answers
from engine.services import voids
from engine.services.judging import check_not_final
from engine.tasks import wake_planner
from labeling import access
from labeling.dashboard.annotators import annotator_rows
from labeling.forms.void import VoidForm
from labeling.requests import AuthenticatedRequest, read_or_write


@require_safe
def annotator(request: AuthenticatedRequest, experiment_id: int, user_id: int) -> HttpResponse:
    """The figures of one annotator: number, pace, agreement, checks, habits, last answer."""
    experiment = access.to_run(request, experiment_id)
    person = get_object_or_404(User, pk=user_id)
    rows = annotator_rows(
        experiment, annotators.tallies(experiment, only=person), shared_answers(experiment), only=person
    )
    if not rows and not people.is_member(person, experiment.pk):
        raise Http404
    shared, same = annotators.agreement_with_others(experiment, person)
    context = {
        "experiment": experiment,
        "person": person,
        "row": rows[0] if rows else None,
        "activity": annotators.activity(experiment, person),
        "shared": shared,
        "same": same,
        "may_void": access.may_void(request, experiment),
    }
    return render(request, "dashboard/annotator.html", context)


@read_or_write
def void_annotator(request: AuthenticatedRequest, experiment_id: int, user_id: int) -> HttpResponse:
    """The way an annotator judged, without an outcome; a POST with a reason voids all of their judgments."""
    experiment = access.to_run(request, experiment_id)
    person = get_object_or_404(annotators.people_who_judged(experiment), pk=user_id)
    try:
        check_not_final(experiment)
    except WrongStateError as wrong:
        messages.error(request, str(wrong))
        return _to_person(experiment, person)
    form = VoidForm(request.POST if request.method == "POST" else None)
    if not form.is_valid():
        if form.is_bound:
            messages.error(request, "Give a reason for voiding the judgments, in at most 200 characters.")
        return render(
            request,
            "dashboard/void_annotator.html",
            {
                "experiment": experiment,
                "person": person,
                "judgments": annotators.standing_of(experiment, person),
                "checks": annotators.passed_checks(experiment, person),
            },
            status=400 if form.is_bound else 200,
        )
    try:
        n = voids.void_annotator(
            experiment_id=experiment.pk, annotator=person, by=request.user, reason=form.cleaned_data["reason"]
        )
        messages.success(request, f"{number(n, 'judgment')} of {person} voided.")
    except WrongStateError as wrong:
        messages.error(request, str(wrong))
    wake_planner(experiment.pk)
    return _to_person(experiment, person)


def _to_person(experiment: Experiment, person: User) -> HttpResponse:
    # Not to the list of their judgments, which shows the outcomes.
    return redirect("annotator", experiment_id=experiment.pk, user_id=person.pk)
