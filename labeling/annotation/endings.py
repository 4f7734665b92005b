"""Texts for annotators when an experiment has nothing to judge. They name a policy only at the end, and where
the experiment allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from engine.core import StopReason
from engine.domain.policy_space import PolicyName
from engine.models import Experiment, Invitation, User
from engine.selectors import pools
from engine.selectors.guests import link_of
from engine.selectors.improvements import waits_for_texts
from engine.selectors.policies import names_in
from engine.services.serving import Desk, Ended


@dataclass(frozen=True)
class Ending:
    """A heading and a sentence.

    ``may_go_on``: pairs come back when somebody resumes the experiment. ``is_thanked``: the person is done
    here, for now or for good. ``onward``: a link or a code with which a guest goes back to where they came
    from.
    """

    title: str
    text: str
    may_go_on: bool = False
    is_thanked: bool = False
    onward: str = ""

    @property
    def leads_on(self) -> bool:
        """True of a link."""
        return self.onward.startswith(("https://", "http://"))


def endings(experiments: Iterable[Experiment]) -> list[tuple[Experiment, Ending | None]]:
    """The experiments, each with its ending if nothing is judged there now.

    Many take as many queries as one.
    """
    listed = list(experiments)
    told = [each for each in listed if each.tell_outcome and each.winner_id is not None]
    names = names_in(told) if told else {}
    return [(each, _ending(each, names.get(each.pk))) for each in listed]


def ending(experiment: Experiment) -> Ending | None:
    """The reason why nothing is judged here now; ``None`` while the experiment runs."""
    return None if experiment.state == Experiment.State.RUNNING else endings([experiment])[0][1]


def _ending(experiment: Experiment, names: Sequence[PolicyName] | None) -> Ending | None:
    if experiment.state == Experiment.State.RUNNING:
        return None
    if experiment.archived_at is not None:
        return Ending(
            _("Archived"),
            _(
                "This experiment is in the archive: there is nothing to judge. Everything you judged "
                "is saved."
            ),
        )
    if experiment.state == Experiment.State.PAUSED:
        return Ending(
            _("Paused"),
            _("This experiment is paused. Everything you judged is saved."),
            may_go_on=True,
        )
    title, text = _outcome(experiment, StopReason(experiment.conclusion), names)
    return Ending(title, text, is_thanked=True)


def nothing_ready(experiment: Experiment, annotator: User, desk: Desk) -> Ending:
    """The reason why this annotator has no pair now, although the experiment runs."""
    if desk.ended is not Ended.NOT:
        # The way back is for the answers: a page that asks ahead has pairs to answer still.
        return _no_more(desk, None if desk.pairs else link_of(experiment, annotator))
    if experiment.closing_since is not None:
        return Ending(
            _("Nearly finished"),
            _("No new pairs are needed once the open ones are answered. This page says when that is so."),
        )
    if experiment.used_up and not pools.awaits_planning(experiment, annotator):
        return Ending(
            _("You have judged everything there is."),
            _(
                "Everybody here has judged all pairs that there are. You may close this page; new pairs "
                "would appear here."
            ),
            is_thanked=True,
        )
    if pools.is_finite(experiment) and pools.waits_for_others(experiment, annotator):
        return Ending(
            _("You have seen every pair."),
            _(
                "Others still have some. You may close this page, or wait: should there be another pair for "
                "you, it appears here."
            ),
            is_thanked=True,
        )
    if waits_for_texts(experiment):
        return Ending(
            _("New texts are being prepared"),
            _(
                "Somebody looks at them first. Their pairs appear here by themselves; you may also come back "
                "later."
            ),
        )
    return Ending(
        _("The next pair is on its way"),
        _("New pairs are being prepared. The next one appears here by itself."),
    )


def _no_more(desk: Desk, link: Invitation | None) -> Ending:
    """The reason why somebody gets no more pairs. ``link``: the one by which they came as a guest."""
    if desk.ended is Ended.GIVEN:
        return Ending(
            _("That was all. Thank you!"),
            _("You have answered every pair that was meant for you."),
            is_thanked=True,
            onward=link.completion if link else "",
        )
    if desk.ended is Ended.GOLD:
        return Ending(
            _("No more pairs for you here"),
            _(
                "This experiment has no more pairs for you; you may close this page. If you have questions, "
                "ask the person who invited you."
            ),
            is_thanked=True,
            onward=link.screen_out if link else "",
        )
    return Ending(
        _("No more pairs for you here"),
        _(
            "Pairs without an answer make the result less certain, so nobody gets more once a tenth of "
            "theirs have none. If you would like to go on, ask the person who invited you."
        ),
        is_thanked=True,
    )


def _outcome(
    experiment: Experiment, conclusion: StopReason, names: Sequence[PolicyName] | None
) -> tuple[str, str]:
    thanks = _("Finished. Thank you!")
    match conclusion:
        case StopReason.CERTIFIED if names is not None and experiment.winner is not None:
            winner = names[experiment.winner.index].name
            return thanks, _("Your group preferred “%(policy)s”.") % {"policy": winner}
        case StopReason.CERTIFIED:
            return thanks, _("This experiment has its answer; no more comparisons are needed.")
        case StopReason.NO_SINGLE_BEST:
            return thanks, _(
                "The answers show that no single alternative is the best; no more comparisons are needed."
            )
        case StopReason.BUDGET:
            return thanks, _(
                "All planned comparisons were judged. They were not enough to decide which alternative is "
                "best."
            )
    return (
        _("Stopped. Thank you!"),
        _("This experiment was stopped before it was decided. Everything you judged is saved."),
    )
