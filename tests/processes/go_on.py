"""An annotator and an admin in an installation that was restored: ``python -m tests.processes.go_on``, on
DATABASE_URL.

Prints JSON: the statuses of pages, and how many answers of people there were before and after.
"""

from __future__ import annotations

import json
import os

import django
from django.test import Client
from django.urls import reverse

from tests.markup import stage


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmpo_site.settings")
    django.setup()
    # Models can be imported once Django is set up.
    from django.core.management import call_command  # noqa: PLC0415

    from engine.models import Check, Experiment, Judgment, User  # noqa: PLC0415
    from engine.services.planning import advance  # noqa: PLC0415
    from tools.small_installation import PEOPLE, RULE  # noqa: PLC0415

    running, concluded = (Experiment.objects.get(name=name) for name in (PEOPLE, RULE))
    browser, office = (Client(headers={"HX-Request": "true", "Host": "localhost"}) for _ in range(2))
    browser.force_login(User.objects.get(username="ann"))
    office.force_login(User.objects.get(username="admin"))

    def answers() -> int:
        return Judgment.objects.filter(judge="human").count() + Check.objects.exclude(choice="").count()

    before = answers()
    shown = stage(browser.get(reverse("pair", args=[running.pk])))["token"]
    for _ in range(2):
        reply = browser.post(reverse("judge", args=[running.pk]), {"token": shown, "choice": "left"})
        shown = stage(reply)["token"]
    advance(experiment_id=running.pk)
    pages = [
        reverse(page, args=[experiment.pk])
        for page in ("dashboard", "results_file")
        for experiment in (running, concluded)
    ]
    statuses = {page: office.get(page).status_code for page in pages}
    call_command("verify", stdout=open(os.devnull, "w"))  # noqa: SIM115 - ends with the process
    print(json.dumps({"statuses": statuses, "before": before, "after": answers()}))


if __name__ == "__main__":
    main()
