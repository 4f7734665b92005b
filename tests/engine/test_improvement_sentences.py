"""The three verdicts of an improvement, and the words before one."""

from engine.core.improvement import Kind
from engine.domain.improvement_sentences import verdict_sentence


def said(kind: Kind, share: float | None = 0.684, lower: float = 0.579, unused: int = 0) -> str:
    return verdict_sentence(
        kind,
        champion="Warm, two sentences",
        used=300,
        unused=unused,
        share=share,
        n_told=75,
        lower=lower,
        delta=0.05,
    )


def test_each_verdict_names_the_figures_that_decide():
    assert said("nothing_better") == "Nothing better was found after 300 clicks."
    assert said("leads", lower=0.4799) == (
        "Warm, two sentences leads; at a risk of 5% it is not established that it beats the original (at "
        "least 47% of comparisons)."
    )
    assert said("certified") == (
        "Warm, two sentences beats the original: preferred in 68% of 75 comparisons, and in at least 57% of "
        "all that could be made; risk 5%."
    )
    assert "the other 100 " in said("nothing_better", share=None, unused=100)
    assert "the other" not in said("nothing_better", unused=100)


def test_what_is_not_established_is_not_said_to_reach_one_half():
    assert "at least 49%" in said("leads", lower=0.5)
    # Nothing was compared with the original.
    assert "%" not in said("leads", share=None, lower=0.0).replace("5%", "")


def test_an_end_of_one_half_is_not_rounded_below_it():
    assert "at least 50%" in said("certified", lower=0.5)


def test_while_it_is_open_nothing_is_claimed():
    assert "No verdict yet" in said("open", share=None)
