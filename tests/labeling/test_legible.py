"""Runs of combining marks, of which 199,000 crashed the annotator's tab."""

import re
import unicodedata

import pytest
from django.http import HttpResponse
from django.urls import reverse

from engine.models import Response, Task
from labeling.middleware.combining_marks import MOST_MARKS, Legible
from tests.factories import assign, make_experiment

MARKS = "\u0301\u0489\u20dd\ufe0f"


def longest_run(text: str) -> int:
    marks = "".join("m" if unicodedata.category(each)[0] == "M" else " " for each in text)
    return max(map(len, marks.split()), default=0)


@pytest.mark.django_db
def test_no_text_of_a_pair_brings_a_run_of_marks_to_the_page(client, annotator):
    experiment = make_experiment(ready=True, annotators=(annotator,), name="Z" + MARKS * 20)
    text = "Hello" + MARKS * 40_000 + " and goodbye."
    Response.objects.update(text=text)
    Task.objects.update(prompt=text)
    client.force_login(annotator)
    assign(experiment, annotator)
    page = client.get(reverse("pair", args=[experiment.pk])).content.decode()
    assert longest_run(page) == MOST_MARKS
    # A and B alike, and what comes after.
    assert page.count("Hello" + (MARKS * 3)[:MOST_MARKS] + " and goodbye.") >= 3
    assert set(Response.objects.values_list("text", flat=True)) == {text}


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "Việt Nam, naïve, שָׁלוֹם, กำลัง, क्षत्रिय, ཧཱུྃ, 👩‍👩‍👧‍👦 🏳️‍🌈",
        "a" + MARKS[0] * MOST_MARKS + "b" + MARKS[0] * MOST_MARKS,
    ],
)
def test_what_people_write_stays(text, rf):
    page = f"<p>{text}</p>"
    shown = Legible(lambda _: HttpResponse(page))(rf.get("/"))
    assert shown.content.decode() == page


def test_a_field_keeps_what_it_will_send_back(rf):
    run = "e" + MARKS[0] * 500
    page = f'<p>{run}</p><textarea name="tasks">\n{run}</textarea><input value="{run}"><p>{run}</p>'
    shown = Legible(lambda _: HttpResponse(page))(rf.get("/")).content.decode()
    assert re.findall("<textarea.*</textarea><input[^>]*>", shown, re.DOTALL) == re.findall(
        "<textarea.*</textarea><input[^>]*>", page, re.DOTALL
    )
    assert re.findall(f"<p>e{MARKS[0]}{{{MOST_MARKS}}}</p>", shown) == re.findall("<p>[^<]*</p>", shown)


def test_files_keep_every_mark(rf):
    text = "e" + MARKS[0] * 500
    reply = HttpResponse(text, content_type="text/csv; charset=utf-8")
    assert Legible(lambda _: reply)(rf.get("/")).content.decode() == text
