"""Options: read off the signature, parsed from text, checked, and refused in one sentence."""

from __future__ import annotations

import inspect
import json
import math
import re
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from reference.batches import batch, chain, hand_five
from stepcredit.core.credit import Credit
from stepcredit.core.episodes import Parent
from stepcredit.core.errors import InputError, NumericsError, OptionError
from stepcredit.core.turns import Turns
from stepcredit.credit import catalogue
from stepcredit.credit.catalogue import METHODS, assign, find_method, parse_options
from stepcredit.credit.method import Method, Option, Range


def everything(
    turns: Turns,
    *,
    flag: bool = True,
    count: Annotated[int, Range(1, 5), "how many"] = 2,
    share: Annotated[float, Range(0, 1, low_open=True)] = 0.5,
    free: float = 0.0,
    kind: Literal["one", "two"] = "one",
    seed: Annotated[int | None, Range(0)] = None,
    name: str = "grpo",
    values: NDArray[np.float64] | None = None,
) -> Credit:
    raise AssertionError("never called")


METHOD = Method("everything", "contrib", everything, "all kinds of options", "none")


def test_options_are_the_keyword_only_parameters() -> None:
    assert list(METHOD.options.values()) == [
        Option("flag", bool, True),
        Option("count", int, 2, range=Range(1, 5), meaning="how many"),
        Option("share", float, 0.5, range=Range(0, 1, low_open=True)),
        Option("free", float, 0.0),
        Option("kind", str, "one", choices=("one", "two")),
        Option("seed", int, None, range=Range(0), optional=True),
        Option("name", str, "grpo"),
        Option("values", np.ndarray, None, optional=True),
    ]


def test_texts_become_values() -> None:
    texts = {"flag": "False", "count": "5", "share": "1", "free": "-1e3", "kind": "two", "seed": "off", "name": "x"}
    parsed = METHOD.parse_options(texts)
    assert parsed == {"flag": False, "count": 5, "share": 1.0, "free": -1e3, "kind": "two", "seed": None, "name": "x"}
    assert isinstance(parsed["share"], float)
    assert METHOD.parse_options({"seed": "7"}) == {"seed": 7}


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("flag", "yes", "Option 'flag': got 'yes', expected true or false."),
        ("flag", 1, "Option 'flag': got 1, expected true or false."),
        ("count", 0, "Option 'count': got 0, expected a whole number in [1, 5]."),
        ("count", 2.0, "Option 'count': got 2.0, expected a whole number in [1, 5]."),
        ("count", True, "Option 'count': got True, expected a whole number in [1, 5]."),
        ("count", None, "Option 'count': got None, expected a whole number in [1, 5]."),
        ("share", 0.0, "Option 'share': got 0.0, expected a number in (0, 1]."),
        ("share", "half", "Option 'share': got 'half', expected a number in (0, 1]."),
        ("share", math.nan, "Option 'share': got nan, expected a number in (0, 1]."),
        ("free", math.inf, "Option 'free': got inf, expected a number."),
        ("kind", "three", "Unknown value for option 'kind': 'three'. Expected one of: one, two."),
        ("kind", "onne", "Unknown value for option 'kind': 'onne'. Did you mean 'one'?"),
        ("seed", -1, "Option 'seed': got -1, expected a whole number ≥ 0 or off."),
        ("name", 3, "Option 'name': got 3, expected a name."),
        ("values", "1", "Option 'values': got '1', expected an array with one number a turn or off."),
        ("cuont", 3, "Unknown option of method 'everything': 'cuont'. Did you mean 'count'?"),
    ],
)
def test_wrong_values_are_one_sentence(option: str, value: Any, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        METHOD.check_options({option: value})
    assert str(caught.value) == message


def test_unknown_names() -> None:
    with pytest.raises(OptionError, match=r"^Unknown method 'gipgo'\. Did you mean 'gigpo'\?$"):
        find_method("gipgo")
    with pytest.raises(OptionError, match=r"^Unknown option 'gamma': method 'reinforce_pp' has no options\.$"):
        parse_options("reinforce_pp", {"gamma": "1"})
    with pytest.raises(OptionError, match=r"^Unknown preset of method 'gigpo': 'alfword'\. Did you mean 'alfworld'\?$"):
        find_method("gigpo").preset("alfword")
    with pytest.raises(OptionError, match=r"^Method 'rtmc' has no presets"):
        find_method("rtmc").preset("alfworld")


def test_options_are_checked_before_anything_is_computed() -> None:
    with pytest.raises(OptionError, match="Option 'gamma': got 2"):
        assign(Turns.from_episodes(hand_five()), "gigpo", gamma=2)


# Every method of the catalogue.


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_a_pure_function_of_turns_and_keyword_options(name: str) -> None:
    method = METHODS[name]
    first, *rest = inspect.signature(method.function).parameters.values()
    assert (first.name, first.annotation) == ("turns", "Turns")
    assert all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in rest)
    assert len(method.options) <= 9
    for option in method.options.values():
        if option.default is not None:
            assert option.check(option.default) == option.default
        assert option.meaning or option.kind is np.ndarray, f"{name}.{option.name} says nothing"
    docstring = inspect.getdoc(method.function) or ""
    assert "Source:" in docstring
    assert "Components:" in docstring


@pytest.mark.parametrize("name", METHODS)
def test_defaults_survive_the_command_line(name: str) -> None:
    for option in METHODS[name].options.values():
        if option.kind is not np.ndarray:
            text = "off" if option.default is None else str(option.default)
            assert option.check(option.parse(text)) == option.default


@pytest.mark.parametrize("name", METHODS)
def test_presets_are_valid_options(name: str) -> None:
    method = METHODS[name]
    for preset in method.presets:
        options = method.preset(preset)
        assert method.check_options(options) == options
        json.dumps(options)


def test_a_method_for_chains_refuses_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue.METHODS, "everything", METHOD)
    episodes = [chain("t", "A", ["s"]), chain("t", "B", ["s"], parent=Parent("A", 0))]
    with pytest.raises(InputError, match="Method 'everything' runs on chains only, but episode 'B' is a branch"):
        assign(Turns.from_episodes(episodes), "everything")


@pytest.mark.parametrize("name", [name for name in METHODS if not {"values", "hindsight"} & set(METHODS[name].needs)])
def test_rewards_beyond_64_bit_floats_name_the_episode(name: str) -> None:
    big = [1.7e308, -1.7e308, 1.7e308]
    episodes = [chain("t", f"{i}", ["s", "u"], rewards=[value, value], success=True) for i, value in enumerate(big)]
    turns = Turns.from_episodes(episodes)
    try:
        credit = assign(turns, name)
    except NumericsError as error:
        message = str(error)
    else:
        # Methods that never look at rewards have nothing to overflow.
        message = "gives numbers of episode '" if np.isfinite(credit.advantage[credit.scored]).all() else ""
    assert re.search(r"gives .* of episode '", message)


def test_overflow_is_an_error_and_not_a_zero() -> None:
    episodes = [chain("t", f"{i}", ["s", "s"], rewards=[v, v]) for i, v in enumerate([1.7e308, -1.7e308])]
    with pytest.raises(
        NumericsError, match=r"Method 'gigpo' gives advantage nan at turn 0 of episode '0'; its rewards or"
    ):
        assign(Turns.from_episodes(episodes), "gigpo")


@pytest.mark.parametrize("name", ["grpo", "reinforce_pp", "gigpo", "hgpo", "gaca"])
def test_a_deviation_that_overflows_is_an_error_and_not_a_zero(name: str) -> None:
    episodes = [chain("t", f"{i}", ["s"], rewards=[value]) for i, value in enumerate([1e200, -1e200])]
    with pytest.raises(NumericsError, match=r"gives .* of episode '0'; its rewards or options are too large"):
        assign(Turns.from_episodes(episodes), name, **({"alpha": 0.0} if name == "gaca" else {}))


def test_options_that_overflow_are_an_error_and_not_a_crash() -> None:
    with pytest.raises(NumericsError, match="its rewards or options are too large"):
        assign(Turns.from_episodes(batch(0)), "hgpo", level_power=2000.0)
    with pytest.raises(
        OptionError, match=r"Option 'balance_cap': got 1e\+300, expected a number in \[1, 1e\+06\] or off"
    ):
        assign(Turns.from_episodes(batch(0)), "tsbpo", balance_cap=1e300)


def test_a_method_inside_a_method_is_spelled_with_care() -> None:
    turns = Turns.from_episodes(hand_five())
    with pytest.raises(OptionError, match=r"^Option 'base': got 'lam' twice, expected it once\.$"):
        assign(turns, "aem", base="graft:lam=0.8,lam=0.9")
    with pytest.raises(OptionError, match=r"'state_group'\. Did you mean 'state_groups'\?$"):
        assign(turns, "gaca", step="state_group")


def test_nan_where_a_method_scores_everything_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turns: Turns) -> Credit:
        return Credit(np.full(len(turns), np.nan))

    turns = Turns.from_episodes(batch(0))
    monkeypatch.setitem(catalogue.METHODS, "broken", Method("broken", "contrib", broken, "", "", forest="yes"))
    with pytest.raises(NumericsError, match="gives advantage nan"):
        assign(turns, "broken")
    partial = Method("broken", "contrib", broken, "", "", forest="yes", partial=True)
    monkeypatch.setitem(catalogue.METHODS, "broken", partial)
    assert not assign(turns, "broken").scored.any()
