"""Further questions: asked beside the one that decides, kept with its answer, and no evidence."""

import json

import pytest
from django.urls import reverse

from engine.domain.errors import SpecError
from engine.domain.further_questions import FurtherQuestion, Kind, read_questions
from engine.models import Experiment, Judgment, User
from engine.selectors.designs import shown
from engine.selectors.further import further_results
from engine.services.judging import record_answer
from engine.services.planning import advance
from engine.services.setting_changes import change_display
from tests.factories import assign, make_experiment, make_user
from tests.markup import Markup, text_of

ASKED = "More correct?\nHow friendly? (1–5)\n\nWhy? (Text)\n"


@pytest.fixture
def experiment(annotator: User) -> Experiment:
    return make_experiment(
        n_policies=2, ready=True, annotators=(annotator, make_user("ben")), further_questions=ASKED, overlap=2
    )


class TestLines:
    def test_the_end_of_a_line_says_what_is_answered(self):
        assert read_questions(ASKED) == (
            FurtherQuestion("More correct?", Kind.SIDE),
            FurtherQuestion("How friendly?", Kind.MARKS),
            FurtherQuestion("Why?", Kind.TEXT),
        )

    @pytest.mark.parametrize(
        ("given", "words"),
        [("A?\nA?", "twice"), ("\n".join("ABCDEF"), "at most 5"), ("x" * 151, "150"), ("(1-5)", "1 to 150")],
    )
    def test_too_many_too_long_or_twice_is_refused(self, given, words):
        with pytest.raises(SpecError, match=words):
            read_questions(given)


@pytest.mark.django_db
class TestAnswers:
    def test_the_page_asks_and_keeps_what_was_said(self, experiment, annotator, client_for):
        page = Markup(client_for(annotator).get(reverse("pair", args=[experiment.pk])).content.decode())
        names = {each.attributes["name"] for each in page.elements if each.attributes.get("type") == "radio"}
        assert names == {
            "further More correct?", "further left How friendly?", "further right How friendly?"
        }  # fmt: skip
        sent = {
            "token": str(assign(experiment, annotator).token),
            "choice": "left",
            "further More correct?": "right",
            "further left How friendly?": "4",
            "further right How friendly?": "2",
            "further Why?": "  Warmer. ",
            "further Gone?": "left",
        }
        client_for(annotator).post(reverse("judge", args=[experiment.pk]), sent)
        judgment = Judgment.objects.get()
        assert judgment.choice == "left"
        assert json.loads(judgment.further) == {
            "More correct?": "right", "How friendly?": [4, 2], "Why?": "Warmer."
        }  # fmt: skip

    @pytest.mark.parametrize("other", ["", "6", "²", "1" * 5000])
    def test_half_an_answer_is_left_out_and_the_click_counts(self, other, experiment, annotator, client_for):
        sent = {
            "token": str(assign(experiment, annotator).token),
            "choice": "right",
            "further More correct?": "neither",
            "further left How friendly?": "4",
            "further right How friendly?": other,
        }
        client_for(annotator).post(reverse("judge", args=[experiment.pk]), sent)
        assert Judgment.objects.get().further == ""

    @pytest.mark.parametrize(
        ("further", "words"),
        [
            ({"Gone?": "left"}, "no further question"),
            ({"More correct?": "A"}, "one of left, tie, right"),
            ({"How friendly?": [6, 1]}, "from 1 to 5"),
            ({"Why?": "x" * 1001}, "1,000 characters"),
        ],
    )
    def test_a_program_is_told_what_is_wrong_and_nothing_is_stored(
        self, further, words, experiment, annotator
    ):
        token = assign(experiment, annotator).token
        with pytest.raises(SpecError, match=words):
            record_answer(
                experiment_id=experiment.pk, token=token, annotator=annotator, choice="left", further=further
            )
        assert not Judgment.objects.exists()

    def test_shares_marks_and_agreement_by_policy_change_no_evidence(
        self, experiment, annotator, admin, client_for
    ):
        for user in (annotator, User.objects.get(username="ben")):
            held = assign(experiment, user)
            # Both think policy i's response more correct, and prefer the other.
            i, j = ("left", "right") if held.comparison.i_on_left else ("right", "left")
            record_answer(
                experiment_id=experiment.pk, token=held.token, annotator=user, choice=j,
                further={"More correct?": i, "How friendly?": [3, 3], "Why?": user.username},
            )  # fmt: skip
        advance(experiment_id=experiment.pk)
        correct, friendly, why = further_results(experiment)
        assert correct.by_policy == [(0, 1.0, 2), (1, 0.0, 2)]
        assert friendly.by_policy == [(0, 3.0, 2), (1, 3.0, 2)]
        assert (correct.agreement.units, why.texts) == (1, 2)
        assert shown(experiment).design.wins.tolist() == [[0, 0], [1, 0]]
        html = client_for(admin).get(reverse("quality_charts", args=[experiment.pk])).content.decode()
        assert "More correct?" in text_of(html)

    def test_a_question_may_change_while_it_runs_and_its_old_answers_stay(self, experiment, annotator, admin):
        token = assign(experiment, annotator).token
        record_answer(
            experiment_id=experiment.pk, token=token, annotator=annotator, choice="left",
            further={"More correct?": "left"},
        )  # fmt: skip
        change_display(experiment_id=experiment.pk, by=admin, further_questions="Warmer?")
        experiment.refresh_from_db()
        [result] = further_results(experiment)
        assert (result.question.text, result.points) == ("Warmer?", {})
        assert json.loads(Judgment.objects.get().further) == {"More correct?": "left"}
        with pytest.raises(SpecError, match="twice"):
            change_display(experiment_id=experiment.pk, by=admin, further_questions="A?\nA?")
