"""The guests of an experiment as CSV: whom to thank, and whom to pay."""

import csv
import io
from dataclasses import fields

from engine.models import Experiment
from engine.selectors.guests import Guest, guests


def guests_csv(experiment: Experiment) -> str:
    """A row for each guest, in the order in which they came."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(field.name for field in fields(Guest))
    for guest in guests(experiment):
        times = {
            name: at and at.isoformat(timespec="seconds")
            for name, at in (("joined_at", guest.joined_at), ("last_answer_at", guest.last_answer_at))
        }
        writer.writerow((vars(guest) | times).values())
    return lines.getvalue()
