import numpy as np
import pytest

from engine.core import BradleyTerry, Factorial, Unstructured


def test_factorial_levels_are_dummy_coded_against_the_first() -> None:
    space = Factorial({"prompt": ["a", "b", "c"], "guardrail": ["off", "on"]})
    assert space.n_policies == 6
    assert space.columns == ("prompt=b", "prompt=c", "guardrail=on")
    assert space.policies[0] == ("a", "off")
    assert space.features[0].tolist() == [0, 0, 0]
    assert space.features[space.policies.index(("c", "on"))].tolist() == [0, 1, 1]


def test_numeric_factors_take_one_scaled_column() -> None:
    space = Factorial({"prompt": ["a", "b"], "temperature": [0.2, 0.7, 1.2]}, numeric=["temperature"])
    assert space.columns == ("prompt=b", "temperature")
    assert space.features[:3, 1] == pytest.approx([0.0, 0.5, 1.0])


def test_infeasible_combinations_are_left_out() -> None:
    space = Factorial(
        {"prompt": ["a", "b", "c"], "guardrail": ["off", "on"]},
        feasible=lambda policy: policy != ("a", "off"),
    )
    assert space.n_policies == 5
    assert ("a", "off") not in space.policies


def test_levels_that_the_feasible_policies_cannot_tell_apart_are_named() -> None:
    with pytest.raises(ValueError, match=r"(prompt=b|guardrail=on)"):
        Factorial(
            {"prompt": ["a", "b"], "guardrail": ["off", "on"]},
            feasible=lambda p: (p[0] == "b") == (p[1] == "on"),
        )


def test_one_hot_measures_from_policy_0() -> None:
    space = BradleyTerry.one_hot(4)
    assert space.features.shape == (4, 3)
    assert space.features[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]], "repeat what the others say"),
        ([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0]], r"same for every policy.*size"),
        ([[1.0, np.nan], [2.0, 5.0], [4.0, 5.0]], r"not finite: size"),
        ([[1.0, 2.0], [0.0, 1.0]], "repeat what the others say"),
        ([[1.0, 2.0]], "at least 2 policies"),
        ([1.0, 2.0], "at least 2 policies"),
    ],
)
def test_features_that_do_not_determine_theta_are_refused_by_name(features: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BradleyTerry(features, ["cost", "size"])


@pytest.mark.parametrize(
    ("levels", "numeric", "message"),
    [
        ({"prompt": ["a", "a"]}, [], "differ from each other"),
        ({"prompt": []}, [], "differ from each other"),
        ({"prompt": ["a"]}, [], "at least 2 policies"),
        ({"prompt": ["a", "b"]}, ["temperature"], "names no factor: temperature"),
        ({"temperature": ["low", "high"]}, ["temperature"], "not all of"),
        ({"temperature": [1.0], "prompt": ["a", "b"]}, ["temperature"], "two different finite levels"),
    ],
)
def test_factors_that_make_no_sense_are_refused(levels: dict, numeric: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Factorial(levels, numeric=numeric)


def test_column_names_must_match() -> None:
    with pytest.raises(ValueError, match="2 feature columns but 1 column names"):
        BradleyTerry(np.eye(3)[:, :2], ["only one"])


def test_policies_with_the_same_features_are_refused_by_name() -> None:
    """Twins at the top made the evidence NaN, so that no decision was ever reached."""
    with pytest.raises(ValueError, match=r"policy 0 and policy 2$"):
        BradleyTerry([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.3, 0.4]])
    with pytest.raises(ValueError, match=r"policy 0 \(a, 1\) and policy 1 \(a, 1.0\)"):
        Factorial({"prompt": ["a", "b"], "temperature": ["1", "1.0", "2"]}, numeric=["temperature"])
    with pytest.raises(ValueError, match=r"and 1 more$"):
        BradleyTerry([[1.0]] * 4 + [[0.0]])


@pytest.mark.parametrize("n_policies", [3.0, "3", None, True])
def test_a_number_of_policies_that_is_no_whole_number_is_refused(n_policies: object) -> None:
    """`Unstructured(3.0)` failed later, deep in numpy."""
    with pytest.raises(ValueError, match="number of policies must be a whole number"):
        Unstructured(n_policies)  # type: ignore[arg-type]
    assert Unstructured(np.int64(3)) == Unstructured(3)
