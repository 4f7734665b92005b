"""Messages in the shapes that Slack's and Teams' incoming webhooks take.

The texts name experiments and policies as people wrote them, so that none is read as markup.
"""

import json
from typing import Any

# Slack's own limits, in characters.
_LONGEST_HEADER, _LONGEST_SECTION = 150, 3000
_LINK = "Open the dashboard"


def for_slack(subject: str, text: str, address: str) -> bytes:
    """The body of a call to Slack, or to a server with its protocol, such as Mattermost."""
    escaped = subject.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    blocks = [
        {"type": "header", "text": _plain(subject[:_LONGEST_HEADER])},
        {"type": "section", "text": _plain(text[:_LONGEST_SECTION])},
        {"type": "section", "text": {"type": "mrkdwn", "text": f"<{address}|{_LINK}>"}},
    ]
    return json.dumps({"text": f"{escaped} {address}", "blocks": blocks}).encode()


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def for_teams(subject: str, text: str, address: str) -> bytes:
    """The body of a call to a workflow of Teams that posts a card."""
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        # A `TextBlock` would read Markdown.
        "body": [
            _run(subject, weight="Bolder", size="Medium"),
            *(_run(line) for line in text.splitlines() if line),
        ],
        "actions": [{"type": "Action.OpenUrl", "title": _LINK, "url": address}],
    }
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    return json.dumps({"type": "message", "attachments": [attachment]}).encode()


def _run(text: str, **style: str) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **style}]}
