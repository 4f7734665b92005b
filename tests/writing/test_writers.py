"""Writers: what they send, what they make of an answer, and what is recorded, against a real server."""

import json
from dataclasses import asdict, replace
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from engine.domain.proposals import Brief, Compared, Tried, fault_of
from engine.models import Charge, Connection
from engine.writing import registry
from engine.writing.asking import Conversation
from engine.writing.base import ExhaustedError, WriterError, Written
from engine.writing.prepared import PreparedWriter
from engine.writing.reflective import ReflectiveWriter, prompt, read
from engine.writing.registry import build_writer, writer_names
from tests.factories import make_experiment
from tests.generation.chat_server import completion, error, serve

BRIEF = Brief(
    question="Which answer is friendlier?",
    guidelines="Read both to the end.",
    factor="Manner",
    kind="System prompt",
    champion="Be polite. Call the user {{ name }}.",
    longest=600,
    compared=[
        Compared("How are you?", "Well.", "Splendid, and you?", 0.0, ["The second one asks back."]),
        Compared("Good day!", "Good day to you.", "Hm.", 1.0),
    ],
    effects=["“Warm” is preferred to “Terse”."],
    tried=[Tried("Be very short.", "Dropped after 8 comparisons.")],
    wish="No exclamation marks.",
)
TWO = {
    "proposals": [
        {"reason": "It asks back.", "text": "Ask back, {{ name }}."},
        {"reason": "", "text": "Be warm."},
    ]
}


def gives(answer: str, n: int = 2) -> list[Written]:
    return ReflectiveWriter(lambda messages, schema: answer).write(BRIEF, n)


class TestReflective:
    def test_what_several_people_made_of_a_comparison_is_told(self):
        compared = [Compared("Task", "Own", "Other", outcome) for outcome in (0.25, 0.5, 0.75)]
        sent = prompt(replace(BRIEF, compared=compared), 1)
        said = ["answer lost.", "answer was found equally good.", "answer was preferred."]
        places = [sent.index(each) for each in said]
        assert places == sorted(places)

    def test_the_model_gets_all_that_it_may_learn_from_and_what_is_wanted(self):
        sent = prompt(BRIEF, 2)
        told = [BRIEF.question, BRIEF.guidelines, BRIEF.champion, BRIEF.factor, BRIEF.wish, *BRIEF.effects]
        told += [
            "How are you?",
            "Splendid",
            "asks back",
            "lost",
            "was preferred",
            "Be very short.",
            "after 8",
        ]
        for each in [*told, "600", "2 new texts", "{{ name }}"]:
            assert each in sent
        assert prompt(BRIEF, 1) != sent

    def test_material_cannot_close_its_marker(self):
        """The code is drawn for each request, after the material was written."""
        lines = [prompt(BRIEF, 2).partition("[END OF CHAMPION ")[2][:8] for _ in range(2)]
        assert len(set(lines)) == 2

    @pytest.mark.parametrize(
        "answer",
        [
            json.dumps(TWO),
            f"<b>Here they are:</b>\n```json\n{json.dumps(TWO, indent=2)}\n```\nGood luck!",
            f"I keep {{{{ name }}}} as it is. {json.dumps(TWO)}",
        ],
    )
    def test_texts_are_read_from_json_with_words_around_it(self, answer):
        assert gives(answer) == [Written("Ask back, {{ name }}.", "It asks back."), Written("Be warm.", "")]

    @pytest.mark.parametrize(
        ("answer", "because"),
        [
            ("", "nothing"),
            (" \n", "nothing"),
            ("Be warm, and ask back.", "no proposals in JSON"),
            ('{"proposals": "Be warm."}', "no proposals in JSON"),
            (json.dumps(TWO)[:-20], "no proposals in JSON"),
            ("{" * 100_000, "no proposals in JSON"),
            (prompt(BRIEF, 2).rpartition("\n")[2], "example"),
        ],
    )
    def test_an_answer_without_texts_says_so(self, answer, because):
        with pytest.raises(WriterError, match=because):
            gives(answer)

    def test_more_than_wanted_and_half_broken_lists_give_what_is_usable(self):
        many = {"proposals": [7, {"reason": "none"}, *({"text": f"Text {n}"} for n in range(9))]}
        assert gives(json.dumps(many)) == [Written("Text 0"), Written("Text 1")]
        assert gives('{"proposals": []}') == []
        copied = json.loads(prompt(BRIEF, 2).rpartition("\n")[2])["proposals"]["1"]
        assert gives(json.dumps({"proposals": [copied, *TWO["proposals"]]})) == gives(json.dumps(TWO))

    @pytest.mark.parametrize("n", [1, 3])
    def test_an_answer_by_the_schema_ends_after_as_many_texts_as_are_wanted(self, n):
        """A model of 0.5 billion parameters went on with a list until it was cut, or for ten minutes."""
        schemas = []
        texts = [Written(f"Text {place}", "Why.") for place in range(n)]
        slots = {str(place): asdict(each) for place, each in enumerate(texts, start=1)}

        def ask(messages, schema):
            schemas.append(schema)
            return json.dumps({"proposals": slots})

        assert ReflectiveWriter(ask).write(BRIEF, n) == texts
        wanted = schemas[0]["properties"]["proposals"]
        assert (set(wanted["properties"]), set(wanted["required"])) == (set(slots), set(slots))
        assert not wanted["additionalProperties"]
        assert set(json.loads(prompt(BRIEF, n).rpartition("\n")[2])["proposals"]) == set(slots)

    def test_each_answer_bears_the_letter_by_which_comments_name_it(self):
        lost = Compared("Task", "Own", "Other", 0.0, ["A asks back"], shown_as="B")
        sent = prompt(replace(BRIEF, compared=[lost]), 1)
        assert "shown as B: Own" in sent
        assert "shown as A: Other" in sent

    def test_what_cannot_be_stored_is_marked(self):
        [written] = read('{"proposals": [{"text": "a\\u0000b", "reason": "r"}]}', 1)
        assert written.text == "a\ufffdb"


class TestPrepared:
    def test_each_text_is_given_once_and_then_it_says_that_it_has_no_more(self):
        writer, tried = PreparedWriter(lambda messages, schema: pytest.fail("it asks no model")), []
        for _ in range(10):
            given = writer.write(Brief(**vars(BRIEF) | {"tried": [Tried(text, "") for text in tried]}), 2)
            assert len(given) == 2
            assert all(each.reason for each in given)
            tried += [each.text for each in given]
        assert len(set(tried)) == 20
        with pytest.raises(ExhaustedError):
            writer.write(Brief(**vars(BRIEF) | {"tried": [Tried(text, "") for text in tried]}), 2)

    def test_none_of_them_is_refused(self):
        texts = [each.text for each in PreparedWriter(lambda messages, schema: "").write(BRIEF, 99)]
        for number, text in enumerate(texts):
            others = texts[:number]
            assert not fault_of(
                text, parent="Be kind.", others=others, longest=600, judged=["How do I cook rice?"]
            )


class TestRegistry:
    def test_a_package_can_register_one(self, monkeypatch):
        point = EntryPoint("other", "engine.writing.prepared:PreparedWriter", registry.ENTRY_POINTS)
        monkeypatch.setattr(
            "engine.domain.entry_points.entry_points", lambda group: EntryPoints([point]).select(group=group)
        )
        assert writer_names() == ["prepared", "reflective", "other"]
        assert build_writer("other", lambda messages, schema: "").write(BRIEF, 1)

    def test_one_that_is_gone_says_so(self):
        with pytest.raises(WriterError, match="gone"):
            build_writer("gone", lambda messages, schema: "")


@pytest.mark.django_db
class TestAsking:
    @pytest.fixture(autouse=True)
    def on_this_machine(self, settings):
        settings.ALLOW_PRIVATE_CONNECTIONS = True

    def asked(self, respond, **fields) -> tuple[Conversation, list[Written] | WriterError, list[dict]]:
        with serve(respond) as server:
            values = {"price_prompt": 1_000_000, "price_completion": 1_000_000, "everybody": True} | fields
            Connection.objects.create(
                name="W", provider="compatible", model_id="w", address=server.url, **values
            )
            conversation = Conversation(make_experiment(), "W")
            try:
                found = ReflectiveWriter(conversation).write(BRIEF, 2)
            except WriterError as error:
                found = error
        return conversation, found, server.asked

    def test_it_is_asked_once_with_a_schema_and_everything_is_recorded_and_paid(self):
        conversation, found, asked = self.asked(lambda asked: completion(json.dumps(TWO)))
        assert [each.text for each in found] == ["Ask back, {{ name }}.", "Be warm."]
        assert len(asked) == 1
        assert "proposals" in json.dumps(asked[0]["response_format"])
        [exchange] = conversation.record
        assert exchange["sent"] == asked[0]["messages"]
        assert (exchange["model"], json.loads(exchange["gave"])) == ("W", TWO)
        charge = Charge.objects.get()
        assert (charge.purpose, charge.cost) == (Charge.Purpose.WRITING, 5.0)

    @pytest.mark.parametrize(
        ("respond", "because"),
        [
            (lambda asked: error(401, "No."), ""),
            (lambda asked: completion(json.dumps(TWO), finish_reason="length"), "cut"),
            (lambda asked: completion("", finish_reason="content_filter"), "filter"),
            (lambda asked: completion("x" * 2_000_000), "longer"),
            (lambda asked: completion("I would rather not."), "JSON"),
        ],
    )
    def test_a_server_that_gives_nothing_usable_says_why(self, respond, because):
        conversation, found, _ = self.asked(respond)
        assert isinstance(found, WriterError)
        assert because in str(found)
        assert str(found)
        assert len(conversation.record) == 1

    def test_a_connection_that_is_not_lent_is_not_asked(self):
        _, found, asked = self.asked(lambda asked: completion("{}"), everybody=False)
        assert isinstance(found, WriterError)
        assert not asked

    def test_a_limit_of_money_holds(self):
        _, found, asked = self.asked(lambda asked: completion("{}"), daily_limit=0.0)
        assert "limit of money" in str(found)
        assert not asked

    def test_a_connection_that_is_gone_says_so(self):
        with pytest.raises(WriterError, match="no connection"):
            ReflectiveWriter(Conversation(make_experiment(), "gone")).write(BRIEF, 2)
