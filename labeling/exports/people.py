"""The names of people in an export: pseudonyms, unless an owner asks for user names."""

from django.utils.crypto import salted_hmac

from engine.models import Experiment
from engine.selectors.accounts import people_around


def pseudonym(experiment: Experiment, user_id: int) -> str:
    """The name of a person in exports: one in all exports of an experiment, another one in each other
    experiment.

    Keyed with ``SECRET_KEY``: somebody who has the file and a list of all accounts cannot tell who is who.
    """
    keyed = salted_hmac("llmpo.exports.people", f"{experiment.pk} {user_id}", algorithm="sha256")
    return f"annotator-{keyed.hexdigest()[:12]}"


def names_of_people(experiment: Experiment, *, usernames: bool) -> dict[int, str]:
    """By id: everybody who may be named in an export of this experiment."""
    people = people_around(experiment)
    return people if usernames else {pk: pseudonym(experiment, pk) for pk in people}
