"""The annotator's page: one pair at a time, the next one fetched ahead."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from engine.domain.errors import AssignmentLostError, UnknownTokenError, WrongStateError
from engine.domain.further_questions import LONGEST_TEXT, MARKS, Kind, read_questions
from engine.models import Experiment, Flag, Judgment
from engine.selectors import answers, counts, pools
from engine.selectors.improvements import waits_for_texts
from engine.services import assignments, serving
from engine.services.serving import ShownPair
from engine.services.undos_and_skips import MOST_HELD
from engine.tasks import wake_planner
from labeling import access
from labeling.annotation.endings import ending, nothing_ready
from labeling.annotation.keys import habits
from labeling.annotation.progress import leaderboard, left_together, most_of_each
from labeling.annotation.waiting_annotators import note_miss
from labeling.requests import AuthenticatedRequest

# A page that waits for a paused experiment may stay open overnight: it looks again after twice as long each
# time.
_FIRST_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 5, 60
_ANSWERS_PER_PAGE = 10


class ScreenForm(forms.Form):
    """``after``: the last one of the user's open pairs that the page has.

    ``ahead``: the number of pairs behind it that the page wants, one by default.
    """

    after = forms.UUIDField(required=False)
    ahead = forms.IntegerField(required=False, min_value=1, max_value=MOST_HELD)

    def screen(self) -> Screen:
        """The screen that a valid form names."""
        return Screen(self.cleaned_data["after"], self.cleaned_data["ahead"] or 1)


class Screen(NamedTuple):
    """See :class:`ScreenForm`."""

    after: uuid.UUID | None = None
    ahead: int = 1


# The names of the addresses to which the page sends; the first two have buttons under each pair. A rehearsal
# has other addresses.
_UNDER_A_PAIR = ("judge", "skip")
ACTIONS = ("pair", *_UNDER_A_PAIR, "undo", "beat", "leave", "history")


class LookForm(ScreenForm):
    """``waits``: the page waits for a pair, and says so already.

    ``waited``: the seconds for which a page that waits for an experiment to go on has waited since its last
    look.
    """

    waits = forms.BooleanField(required=False)
    waited = forms.IntegerField(required=False, min_value=0)


class UndoForm(forms.Form):
    """``answer``: the token of the answer to take back; none where the page knows of none."""

    answer = forms.UUIDField(required=False)


class JudgeForm(ScreenForm):
    token = forms.UUIDField()
    choice = forms.ChoiceField(choices=Judgment.Choice.choices)
    in_view = forms.ChoiceField(choices=Judgment.InView.choices, required=False)
    comment = forms.CharField(max_length=1000, required=False)


class SkipForm(ScreenForm):
    token = forms.UUIDField()
    reason = forms.ChoiceField(choices=Flag.Reason.choices)
    comment = forms.CharField(max_length=1000, required=False)


@require_safe
def pair(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The pair to judge now; with ``after``, the one behind those that the page has."""
    form = LookForm(request.GET)
    waits = form.is_valid() and form.cleaned_data["waits"]
    experiment = access.judged(request, experiment_id)
    if experiment is None:
        # Only an owner comes here: they become an annotator, but not before they say so.
        asked = {"experiment": access.to_label(request, experiment_id)}
        return render(request, "labeling/begin.html", asked)
    if request.method == "HEAD":
        # Nobody is shown anything, so nothing is assigned.
        return HttpResponse()
    if not form.is_valid():
        return _bad_request(request, experiment, _("This page is out of date; open the experiment again."))
    if waits and _is_to_wait_on(request, experiment):
        note_miss(experiment, request.user)
        return HttpResponse(status=204)
    waited, today = form.cleaned_data["waited"] or 0, answers.counted_today(experiment)
    return _show_next(request, experiment, form.screen(), waited=waited, today=today)


def _is_to_wait_on(request: AuthenticatedRequest, experiment: Experiment) -> bool:
    """True if a waiting page would get the same answer as before."""
    return (
        experiment.state == Experiment.State.RUNNING
        and not experiment.used_up
        and experiment.closing_since is None
        and not waits_for_texts(experiment)
        and not serving.may_have_next(experiment=experiment, annotator=request.user)
    )


@access.annotator_action
def begin(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Make an owner an annotator as well, and go to the first pair."""
    access.to_label(request, experiment_id)
    return redirect("pair", experiment_id=experiment_id)


@access.annotator_action
def judge(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Record an answer and reply with the next pair."""
    experiment = access.to_label(request, experiment_id)
    form = JudgeForm(request.POST)
    if not form.is_valid():
        return _bad_request(request, experiment, _("Choose one of the answers that the page offers."))
    data = form.cleaned_data
    desk = _desk_before_an_answer(request, experiment, form.screen())
    try:
        answered = serving.answer(
            experiment_id=experiment.pk,
            token=data["token"],
            annotator=request.user,
            choice=data["choice"],
            comment=data["comment"],
            in_view=data["in_view"],
            further=_further_in(request.POST, experiment),
        )
    except AssignmentLostError as lost:
        return _show_next(request, experiment, form.screen(), notice=str(lost))
    except (UnknownTokenError, WrongStateError) as refused:
        return _bad_request(request, experiment, str(refused))
    if answered.created:
        wake_planner(experiment.pk)
    # Read with the right to judge, before this answer.
    today = answers.counted_today(experiment) + answered.counts
    # Practice is no answer to take back.
    newest = None if answered.feedback else str(data["token"])
    return _show_next(
        request,
        experiment,
        form.screen(),
        desk=desk.without(data["token"]),
        feedback=answered.feedback,
        today=today,
        newest=newest,
    )


def _further_in(sent: QueryDict, experiment: Experiment) -> dict[str, Any]:
    """The answers to further questions that the page sent; those to a question that is gone are left out."""
    found: dict[str, Any] = {}
    by_digit = {str(mark): mark for mark in MARKS}
    for question in read_questions(experiment.further_questions):
        answer: Any = sent.get(f"further {question.text}", "").strip()
        if question.kind == Kind.MARKS:
            marks = [sent.get(f"further {side} {question.text}", "") for side in ("left", "right")]
            answer = [by_digit.get(mark) for mark in marks]
        if question.reads(answer):
            found[question.text] = answer
    return found


@access.annotator_action
def skip(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """End the pair without an answer, with the reason, and reply with another one."""
    experiment = access.to_label(request, experiment_id)
    form = SkipForm(request.POST)
    if not form.is_valid():
        return _bad_request(request, experiment, _("Say why you skip this pair."))
    data = form.cleaned_data
    desk = _desk_before_an_answer(request, experiment, form.screen())
    try:
        serving.skip(
            experiment=experiment,
            token=data["token"],
            annotator=request.user,
            reason=data["reason"],
            comment=data["comment"],
        )
    except UnknownTokenError as unknown:
        return _bad_request(request, experiment, str(unknown))
    wake_planner(experiment.pk)
    notice = _("Skipped: it counts as no answer.")
    return _show_next(
        request,
        experiment,
        form.screen(),
        desk=desk.without(data["token"]),
        notice=notice,
        today=answers.counted_today(experiment),
        newest=str(data["token"]),
    )


def _desk_before_an_answer(
    request: AuthenticatedRequest, experiment: Experiment, screen: Screen
) -> serving.Desk:
    """The user's pairs, with those that the reply to an answer will show: they are settled before it is
    recorded, so that nothing of the reply depends on what the answered pair was.
    """
    # Without another pair on the page, the answered one is still the first.
    n_wanted = screen.ahead if screen.after else screen.ahead + 1
    return serving.desk(experiment=experiment, annotator=request.user, n_wanted=n_wanted, after=screen.after)


@access.annotator_action
def undo(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Take back the answer that the page names, and show its pair again. Repeated, it takes back no more."""
    experiment = access.to_label(request, experiment_id)
    form = UndoForm(request.POST)
    if not form.is_valid():
        return _bad_request(request, experiment, _("This page is out of date; open the experiment again."))
    if answer := form.cleaned_data["answer"]:
        return _take_back(request, experiment, answer)
    # An undo takes back only the answer that it names. Repeated without a name, it would take back two.
    newest = _newest(request, experiment)
    notice = (
        _("Your newest answer was given on another page. Press Undo again to take it back.")
        if newest
        else _("You have no answer to take back.")
    )
    return _show_next(request, experiment, Screen(), notice=notice, newest=newest)


@access.annotator_action
def reopen(request: AuthenticatedRequest, experiment_id: int, token: uuid.UUID) -> HttpResponse:
    """Take back an answer of the user and show its pair again. A repeated request takes back nothing more."""
    experiment = access.to_label(request, experiment_id)
    if not answers.gave_answer(experiment, request.user, token):
        raise Http404
    return _take_back(request, experiment, token)


def _take_back(request: AuthenticatedRequest, experiment: Experiment, token: uuid.UUID) -> HttpResponse:
    answer = answers.own_answer(experiment, request.user, token)
    if answer is None:
        # The pair that came back is on no screen where the first reply was lost: it is the first one.
        return _show_next(
            request,
            experiment,
            Screen(),
            notice=_("That answer does not count any more."),
            newest=_newest(request, experiment),
        )
    try:
        shown = serving.take_back(experiment=experiment, answer=answer, annotator=request.user)
    except WrongStateError as refused:
        return _show_next(request, experiment, Screen(), notice=str(refused))
    wake_planner(experiment.pk)
    newest = _newest(request, experiment)
    if shown is None:
        notice = _(
            "Taken back. You may see who wrote what, so that pair is not shown again: it counts as no answer."
        )
        return _show_next(request, experiment, Screen(), notice=notice, newest=newest)
    notice = _("Taken back. Choose again.")
    if not request.htmx:
        messages.info(request, notice)
        return redirect("pair", experiment_id=experiment.pk)
    return _render(request, experiment, [shown], notice=notice, newest=newest)


def _newest(request: AuthenticatedRequest, experiment: Experiment) -> str:
    """The token of the user's newest answer that stands; empty where there is none."""
    return str(answers.newest_token(experiment, request.user) or "")


@access.annotator_action
def beat(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Note that the page is open. The reply is the same for comparisons and checks."""
    experiment = access.to_label(request, experiment_id)
    assignments.stay(experiment_id=experiment.pk, annotator=request.user)
    return HttpResponse(status=204)


@access.annotator_action
def leave(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """Note that the page is being closed. Its pairs are there again when it is opened again."""
    experiment = access.to_label(request, experiment_id)
    assignments.leave(annotator=request.user, experiment_id=experiment.pk)
    return HttpResponse(status=204)


@require_safe
def history(request: AuthenticatedRequest, experiment_id: int) -> HttpResponse:
    """The user's latest answers; each can be reopened while the experiment runs."""
    experiment = access.to_label(request, experiment_id)
    return render(
        request,
        "labeling/history.html",
        {
            "experiment": experiment,
            # A page with waiting answers asks here who is logged in.
            "store": _store(request, experiment),
            "ending": ending(experiment),
            "page": Paginator(answers.own_answers(experiment, request.user), _ANSWERS_PER_PAGE).get_page(
                request.GET.get("page")
            ),
            "summary": answers.own_summary(experiment, request.user),
            "leaderboard": leaderboard(experiment),
        },
    )


def _show_next(
    request: AuthenticatedRequest,
    experiment: Experiment,
    screen: Screen,
    *,
    desk: serving.Desk | None = None,
    feedback: str = "",
    notice: str = "",
    **known: Any,
) -> HttpResponse:
    """``desk``: the user's pairs, where they were settled before. ``known``: see :func:`_render`."""
    if request.method == "POST" and not request.htmx:
        if told := notice or feedback:
            messages.info(request, told)
        return redirect("pair", experiment_id=experiment.pk)
    if not request.htmx:
        screen = Screen()
    if desk is None or not desk.behind(screen.after):
        desk = serving.desk(
            experiment=experiment, annotator=request.user, n_wanted=screen.ahead, after=screen.after
        )
    pairs = serving.shown(experiment, desk.behind(screen.after)[: screen.ahead])
    if not pairs and not desk.pairs and desk.ended is serving.Ended.NOT:
        note_miss(experiment, request.user)
    # Without a pair, the page says why there is none.
    return _render(request, experiment, pairs or [None], desk=desk, feedback=feedback, notice=notice, **known)


def _render(
    request: AuthenticatedRequest,
    experiment: Experiment,
    pairs: Sequence[ShownPair | None],
    *,
    desk: serving.Desk | None = None,
    feedback: str = "",
    notice: str = "",
    waited: int = 0,
    today: int | None = None,
    newest: str | None = None,
) -> HttpResponse:
    """``today``: the user's answers of today, and ``newest``: see :func:`_newest`, where they are known."""
    actions = _UNDER_A_PAIR if request.htmx else ACTIONS
    today = answers.judged_today(experiment.pk, request.user) if today is None else today
    over = ending(experiment) or (
        nothing_ready(experiment, request.user, desk) if desk and None in pairs else None
    )
    context = {
        "experiment": experiment,
        "to": {name: reverse(name, args=[experiment.pk]) for name in actions},
        "pairs": pairs,
        "ending": over,
        "look_again_seconds": min(max(_FIRST_LOOK_SECONDS, 2 * waited), _LONGEST_LOOK_SECONDS),
        "choices": counts.choices(experiment),
        "further": read_questions(experiment.further_questions),
        "marks": MARKS,
        "longest_text": LONGEST_TEXT,
        "skip_reasons": Flag.Reason.choices,
        "asks_before_skip": desk is not None and desk.asks_before_skip,
        "today": today,
        "left": left_together(experiment),
        "newest": newest,
        "notice": notice,
        "feedback": feedback,
        "practice": answers.practice_shown(experiment.pk, request.user)
        if any(shown and shown.practice for shown in pairs)
        else None,
        **habits(request.user),
    }
    if over and over.is_thanked and None in pairs:
        context |= _thanks(request, experiment)
    if request.htmx:
        return render(request, "labeling/_stages.html", context)
    context |= {
        "before": answers.own_number(experiment, request.user) - today,
        "most": most_of_each(experiment) if pools.is_finite(experiment) else None,
        "newest": _newest(request, experiment),
        "most_held": MOST_HELD,
        "store": _store(request, experiment),
        "beat_seconds": max(5, settings.ASSIGNMENT_SECONDS // 3),
    }
    return render(request, "labeling/pair.html", context)


def _thanks(request: AuthenticatedRequest, experiment: Experiment) -> dict[str, Any]:
    """The numbers of a word of thanks, and another experiment that has a pair for the user."""
    others = Experiment.objects.judged_by(request.user).filter(state=Experiment.State.RUNNING)
    waiting = (
        each
        for each in others.exclude(pk=experiment.pk).order_by("pk")
        if serving.may_have_next(experiment=each, annotator=request.user)
    )
    over = experiment.state == Experiment.State.CONCLUDED
    return {
        "mine": answers.own_number(experiment, request.user),
        "together": answers.answers_given_by_all(experiment.pk) if over else None,
        "next_one": next(waiting, None),
    }


def _store(request: AuthenticatedRequest, experiment: Experiment) -> str:
    """The key for unsaved answers in this user's browser storage. It does not identify the user."""
    place = salted_hmac("labeling.pair.store", f"{request.user.pk}/{experiment.pk}")
    return f"llmpo-unsent-{place.hexdigest()[:16]}"


def _bad_request(request: AuthenticatedRequest, experiment: Experiment, message: str) -> HttpResponse:
    return render(
        request, "labeling/bad_request.html", {"experiment": experiment, "message": message}, status=400
    )
