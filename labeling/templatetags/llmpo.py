"""Template tags and filters of LLM-PO."""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django import template
from django.utils import dateformat, timezone
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext

from engine.domain.policy_space import PolicyName
from engine.domain.wording import duration
from engine.models import Experiment, Policy
from engine.selectors.accounts import any_account
from engine.selectors.connection_pauses import waiting_for
from engine.services import invitation_mails
from labeling import access, formatting, rendering
from labeling.dashboard.terms import HEADINGS, TERMS
from labeling.rendering import capped, render_markdown

register = template.Library()

for _filter in (
    formatting.agreement,
    formatting.browser,
    formatting.over_half,
    formatting.percent,
    formatting.percent_range,
    formatting.points,
    formatting.risk,
    formatting.rough,
    formatting.rough_hours,
    formatting.share,
    formatting.spread,
    formatting.working_time,
    duration,
    invitation_mails.validity,
    waiting_for,
):
    register.filter(_filter.__name__, _filter)

register.simple_tag(any_account)

_STARTED = {
    "dashboard": "Result",
    "quality": "Quality",
    "method": "Method",
    "setup": "Setup",
    "comparisons": "Comparisons",
    "export": "Export",
}


@register.inclusion_tag("dashboard/_tabs.html", takes_context=True)
def tabs(context: template.Context, here: str) -> dict[str, Any]:
    """Links among the pages of the context's experiment, those that its reader may see; ``here`` is the
    page's URL name.
    """
    experiment: Experiment = context["experiment"]
    draft = experiment.state == Experiment.State.DRAFT
    may_run = access.may_run(context["request"], experiment)
    # Until the start the pages of the result have nothing to show.
    pages = {"setup": "Setup"} if draft else _STARTED
    if draft and may_run and experiment.archived_at is None:
        pages = pages | {"try": "Trial"}
    if may_run:
        pages = pages | {"people": "People", "experiment_settings": "Settings"}
    return {
        "experiment": experiment,
        "here": here,
        "draft": draft,
        "tabs": [{"page": page, "label": label} for page, label in pages.items()],
    }


@register.inclusion_tag("dashboard/_tip.html")
def tip(term: str) -> dict[str, str]:
    """A "?" that opens the explanation of a term."""
    return {"term": term, "text": TERMS[term], "heading": HEADINGS[term]}


@register.filter
def moment(at: datetime, form: str = "Y-m-d H:i") -> SafeString:
    """A time, which `times.js` writes in the reader's zone."""
    here = timezone.localtime(at)
    said = dateformat.format(here, form)
    return format_html('<time datetime="{}" title="{}">{}</time>', at.isoformat(), here.tzname(), said)


# As `engine.domain.wording.moment` writes it.
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d) UTC")


@register.filter
def timed(sentence: str) -> SafeString:
    """A sentence, with its times for `times.js`."""
    marked = _MOMENT.sub(r'<time datetime="\1T\2Z">\g<0></time>', conditional_escape(sentence))
    return mark_safe(marked)  # noqa: S308 - escaped; only digits are put in


@register.filter
def named(policy: Policy, names: Sequence[PolicyName]) -> PolicyName:
    """The names of a policy, out of those of all policies of its experiment."""
    return names[policy.index]


@register.filter
def markdown(text: str, heading_level: int = 4) -> SafeString:
    """A text as safe HTML, with all its headings at that level."""
    return render_markdown(text, heading_level)


@register.filter
def response(text: str, beside: str = "") -> SafeString:
    """A response as safe HTML, in the way of the one ``beside`` it; a very long one cut, to be shown whole on
    demand.
    """
    if not text.strip():
        return format_html('<p class="muted">{}</p>', gettext("(no answer)"))
    return render_markdown(capped(text), beside=capped(beside))


@register.filter
def excerpt(text: str, most: int = 300) -> str:
    """The first words of a response on one line; in words of our own if it is no answer."""
    return rendering.excerpt(text, most) if text.strip() else gettext("(no answer)")


@register.filter
def changed_from(text: str, before: str) -> SafeString:
    """A text with its changes against the one ``before`` it marked."""
    return rendering.difference(before, text)


@register.filter
def further(stored: str) -> list[tuple[str, str]]:
    """Each further question that a judgment answers, with its answer in words."""
    return [
        (question, f"left {answer[0]}, right {answer[1]}" if isinstance(answer, list) else str(answer))
        for question, answer in json.loads(stored or "{}").items()
    ]


@register.filter
def is_capped(text: str) -> bool:
    """True if a response is longer than what is shown at first."""
    return capped(text) != text
