"""The API against its own description: schemathesis makes requests up from it and checks every answer."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import CHECKS

from engine.models import Token
from engine.services.tokens import make_token
from llmpo_site.wsgi import application
from tests.factories import add_member, make_experiment, make_user

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("connection_stays_open"), pytest.mark.postgres]

schema = schemathesis.openapi.from_wsgi("/api/openapi.json", application)

# Numbers and truth values are also understood when they come as texts, which this check calls an error.
LENIENT = CHECKS.get_by_names(["negative_data_rejection"])
# A whole experiment has rules that a schema cannot tell: a claim may need a margin. So have names, of which
# each is there once.
RULES = CHECKS.get_by_names(["positive_data_acceptance"])
WITH_RULES = {
    "/api/experiments",
    "/api/experiments/{experiment_id}",
    "/api/experiments/{experiment_id}/clone",
    # A policy that joins is a combination that is not there yet.
    "/api/experiments/{experiment_id}/policies",
    # A task that joins is one that was not there, and a text must be one that can be stored.
    "/api/experiments/{experiment_id}/tasks",
    # A factor and a level have to be there.
    "/api/experiments/{experiment_id}/gate",
    # A factor, a connection and a writer have to be there.
    "/api/experiments/{experiment_id}/improvement",
    # An address has to be allowed, and a header has to be none.
    "/api/connections",
    "/api/connections/{connection_id}",
    # A name or an experiment has to be given, and an account or another role has to be there.
    "/api/imports",
    "/api/experiments/{experiment_id}/members",
    # A source has to be there, and to answer.
    "/api/sources/{name}",
    # Mail cannot be sent to every text.
    "/api/experiments/{experiment_id}/invitations/mailed",
}


def test_the_description_is_one_of_openapi():
    """Some of its mistakes keep no request from being made up, and break what others generate from it."""
    schema.validate()


@pytest.fixture
def caller(settings) -> tuple[dict[str, str], int]:
    """Headers of somebody who may do everything, and an experiment to do it to."""
    settings.API_REQUESTS_PER_MINUTE = 10**9
    user = make_user(is_superuser=True)
    experiment = make_experiment(ready=True, annotators=(user,), n_gold=1)
    add_member(experiment, user, "owner")
    _, secret = make_token(user=user, name="schemathesis", valid_days=1, scopes=Token.Scope.values)
    # Schemathesis speaks to the application itself, without the client that would unpack an answer.
    return {"Authorization": f"Bearer {secret}", "Accept-Encoding": "identity"}, experiment.pk


@schema.parametrize()
@settings(
    # Besides those that Schemathesis lists at and beyond the limits of each value. `make fuzz` draws more,
    # and others each time.
    max_examples=8 if settings.default.derandomize else 60,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_one_that_the_description_announces(case, caller):
    headers, experiment_id = caller
    given = case.path_parameters.get("experiment_id")
    if isinstance(given, int) and given > 0 and case.body is not None:
        # Made-up numbers name nothing; what comes after the first look is worth a test too.
        case.path_parameters["experiment_id"] = experiment_id
    excluded = LENIENT + RULES if case.operation.path in WITH_RULES else LENIENT
    case.call_and_validate(headers=headers, excluded_checks=excluded)
