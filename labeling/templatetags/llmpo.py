"""Template filters of LLM-PO."""

from django import template
from django.utils.safestring import SafeString

from labeling.rendering import render_markdown

register = template.Library()


@register.filter
def markdown(text: str) -> SafeString:
    """A model's text as safe HTML."""
    return render_markdown(text)


@register.filter
def percent(value: float | None, digits: int = 0) -> str:
    """0.956 → "95%": never rounded up to a certainty that is not there."""
    if value is None:
        return "–"
    scale = 10**digits
    truncated = int(value * 100 * scale + 1e-9) / scale
    if value < 1:
        truncated = min(truncated, 100 - 1 / scale)
    return f"{truncated:.{digits}f}%"


@register.filter
def about(expected: float) -> str:
    """An estimated number of comparisons, to two digits: it should not look like a count."""
    digits = max(0, len(str(int(expected))) - 2)
    rounded = int(round(expected, -digits))
    return f"{rounded:,} comparison{'' if rounded == 1 else 's'}"
