"""Policies join and leave by the API."""

import pytest

from tests.engine.test_policies import NEW, begun
from tests.factories import add_member, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def editor():
    return make_user("editor")


@pytest.fixture
def experiment(annotator, editor):
    experiment = begun(annotator)
    add_member(experiment, editor, "editor")
    return experiment


@pytest.fixture
def call(experiment, editor, caller_for):
    return lambda path, body: caller_for(editor)("post", f"/experiments/{experiment.pk}/policies{path}", body)


def test_one_joins_and_another_leaves(call):
    added = call("", {"levels": NEW}).json()["policies"]
    assert [each["label"] for each in added] == ["P1", "P2", "P3", "P4"]
    assert [each["joined_at"] is None for each in added] == [True, True, True, False]
    left = call("/2/retire", {"reason": "Rude."}).json()["policies"]
    assert [each["retired_because"] for each in left] == ["", "Rude.", "", ""]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("", {"levels": {"Nothing": {"Warm": {}}}}, 422),
        ("", {"levels": NEW, "parent": 9}, 422),
        ("", {"levels": NEW, "more": 1}, 422),
        ("/9/retire", {"reason": "x"}, 404),
        ("/1/retire", {}, 422),
    ],
)
def test_what_is_unusable_is_refused_and_nothing_changes(experiment, call, path, body, status):
    assert call(path, body).status_code == status
    assert experiment.policies.filter(retired_at=None).count() == 3
