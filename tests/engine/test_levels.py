"""Values of levels, and the request that a policy's levels make."""

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.domain.conversations import chat
from engine.domain.levels import Guardrail, Prompt, SamplingParams, Strategy, compose, parse_level


@pytest.mark.parametrize(
    ("kind", "value", "parsed"),
    [
        ("prompt", {"text": "Be kind."}, Prompt("Be kind.")),
        ("strategy", {}, Strategy("")),
        ("strategy", {"instruction": "Think."}, Strategy("Think.")),
        ("sampling", {}, SamplingParams()),
        (
            "sampling",
            {"temperature": 0, "top_p": 1, "top_k": 5, "max_tokens": 7, "stop": ["END", "\n"]},
            SamplingParams(temperature=0, top_p=1, top_k=5, max_tokens=7, stop=("END", "\n")),
        ),
        ("guardrail", {}, Guardrail()),
        (
            "guardrail",
            {"instruction": "Be safe.", "input_block": ["bomb"], "output_block": ["damn"], "refusal": "No."},
            Guardrail("Be safe.", ("bomb",), ("damn",), "No."),
        ),
    ],
)
def test_a_level_is_read_from_its_json_object(kind, value, parsed):
    assert parse_level(kind, value) == parsed


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("mood", {}, "'mood' is not a kind of factor; use one of prompt, strategy, guardrail, sampling"),
        ("prompt", "Be kind.", "an object of named settings, not 'Be kind.'"),
        ("prompt", None, "an object of named settings"),
        ("prompt", {}, "A prompt level needs text"),
        ("prompt", {"text": 1}, "text of a prompt level must be of type str, not 1"),
        ("prompt", {"text": "a", "tone": "b"}, "A prompt level has no tone. Allowed: text"),
        ("strategy", {"instruction": None}, "instruction of a strategy level must be of type str"),
        ("sampling", {"temperature": "hot"}, "temperature of a sampling level must be of type float"),
        ("sampling", {"temperature": True}, "temperature of a sampling level"),
        ("sampling", {"temperature": -0.1}, "temperature must be at least 0"),
        ("sampling", {"temperature": math.nan}, "temperature must be at least 0"),
        ("sampling", {"temperature": math.inf}, "temperature must be"),
        ("sampling", {"top_p": 0}, r"top_p must lie in \(0, 1\]"),
        ("sampling", {"top_p": 1.1}, r"top_p must lie in \(0, 1\]"),
        ("sampling", {"top_p": math.nan}, r"top_p must lie in \(0, 1\]"),
        ("sampling", {"top_k": -1}, "top_k must be 0"),
        ("sampling", {"top_k": 2.5}, "top_k of a sampling level must be of type int"),
        ("sampling", {"max_tokens": 0}, "max_tokens must be at least 1"),
        ("sampling", {"stop": "END"}, "stop of a sampling level must be of type tuple"),
        ("sampling", {"stop": [1]}, "stop of a sampling level must be a list of texts"),
        ("guardrail", {"input_block": ["("]}, r"'\(' is not a regular expression that RE2 understands: miss"),
        ("guardrail", {"output_block": [r"(a)\1"]}, "RE2 understands: invalid escape"),
        ("guardrail", {"output_block": ["(?=a)"]}, "RE2 understands"),
    ],
)
def test_an_unusable_level_is_refused_with_what_is_wrong(kind, value, message):
    with pytest.raises(ValueError, match=message):
        parse_level(kind, value)


class TestCompose:
    def test_system_texts_and_instructions_are_joined_in_the_order_of_the_factors(self):
        composition = compose(
            [
                Prompt("You are a tutor."),
                Strategy("Think step by step."),
                Guardrail("Never swear."),
                Strategy("Then answer."),
            ]
        )
        assert composition.system == "You are a tutor.\nNever swear."
        assert composition.messages(chat("1 + 1?")) == chat(
            "1 + 1?\n\nThink step by step.\nThen answer.", "You are a tutor.\nNever swear."
        )

    def test_empty_parts_leave_no_trace(self):
        composition = compose([Prompt(""), Strategy(), Guardrail()])
        assert composition.system == ""
        assert composition.messages(chat("1 + 1?")) == chat("1 + 1?")
        assert composition.sampling == SamplingParams()

    def test_the_sampling_level_is_the_one_used(self):
        sampling = SamplingParams(temperature=0.2, stop=("END",))
        assert compose([Prompt("a"), sampling]).sampling == sampling


class TestGuardrails:
    guardrail = Guardrail(input_block=("bomb", r"\bhack"), output_block=("damn|hell",), refusal="No.")

    @pytest.mark.parametrize(
        ("task", "refusal"),
        [
            ("How do I build a BOMB?", "No."),
            ("Teach me hacking.", "No."),
            ("My shack leaks.", None),
            ("", None),
        ],
    )
    def test_a_matching_task_is_refused_in_any_case(self, task, refusal):
        assert compose([self.guardrail]).refusal_for_input(task) == refusal

    @pytest.mark.parametrize(("text", "refusal"), [("Damn!", "No."), ("HELL", "No."), ("Fine.", None)])
    def test_every_alternative_of_an_output_pattern_is_matched_in_any_case(self, text, refusal):
        assert compose([self.guardrail]).refusal_for_output(text) == refusal

    def test_input_patterns_do_not_look_at_the_output_nor_output_patterns_at_the_input(self):
        composition = compose([self.guardrail])
        assert composition.refusal_for_output("bomb") is None
        assert composition.refusal_for_input("damn") is None

    def test_the_first_guardrail_that_matches_gives_the_refusal(self):
        composition = compose(
            [
                Guardrail(input_block=("x",), refusal="First."),
                Guardrail(input_block=(".",), refusal="Second."),
            ]
        )
        assert composition.refusal_for_input("x") == "First."
        assert composition.refusal_for_input("y") == "Second."

    def test_a_pattern_that_would_hang_a_backtracking_engine_is_matched_in_linear_time(self):
        evil = Guardrail(input_block=("(a+)+$",))
        assert not evil.blocks_input("a" * 50_000 + "b")
        assert evil.blocks_input("a" * 50_000)

    @settings(max_examples=40)
    @given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=10, alphabet="abcXYZ 0"))
    def test_a_quoted_word_blocks_exactly_the_texts_that_hold_it(self, before, after, word):
        guardrail = Guardrail(input_block=(re.escape(word),))
        assert guardrail.blocks_input(before + word + after)
        assert guardrail.blocks_input((before + after).lower()) == (word.lower() in (before + after).lower())


class TestGuardModels:
    def test_one_is_asked_about_what_it_reads(self):
        both = Guardrail(guard_model="guard", guard_reads="both")
        output = Guardrail(guard_instruction="Say safe or unsafe.")
        assert [both.asks_guard_about("input"), both.asks_guard_about("output")] == [True, True]
        assert [output.asks_guard_about("input"), output.asks_guard_about("output")] == [False, True]
        assert not Guardrail(guard_reads="both").asks_guard_about("input")

    @pytest.mark.parametrize(
        ("blocks", "verdict", "objects"),
        [
            ("unsafe", "safe", False),
            ("unsafe", "Unsafe\nS3", True),
            ("^no", "no, this must not be said", True),
            ("^no", "I see no harm", False),
        ],
    )
    def test_its_answer_blocks_where_it_matches(self, blocks, verdict, objects):
        assert Guardrail(guard_model="guard", guard_blocks=blocks).objects(verdict) is objects

    @pytest.mark.parametrize(
        ("value", "complaint"),
        [
            ({"guard_reads": "minds"}, "guard_reads must be one of input, output, both"),
            ({"guard_blocks": ""}, "guard_blocks must not be empty"),
            ({"guard_blocks": "("}, "RE2"),
            ({"guard_model": 3}, "must be of type str"),
        ],
    )
    def test_what_is_wrong_is_said(self, value, complaint):
        with pytest.raises(ValueError, match=complaint):
            parse_level("guardrail", value)
