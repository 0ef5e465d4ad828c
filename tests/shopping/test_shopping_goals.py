"""Goals, price limits, order and splits against a slow reading of the rules."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from shopping.entries import Files, item, product
from stepcredit.core.errors import OptionError
from stepcredit.environments.shopping.goals import (
    NO_LIMIT,
    SyntheticGoals,
    draw_limit,
    draw_prices,
    goal_order,
    human_goals,
)
from stepcredit.environments.shopping.products import HumanInstruction, Product, load_products
from stepcredit.environments.shopping.suite import ShoppingSuite, _split_goals


def slow_goals(products: list[Product], seed: int) -> list[tuple[str, str, float]]:
    """(identifier, sentence, limit) of all synthetic goals in the official order, one at a time."""
    random.seed(seed)
    prices = {}
    for one in products:
        prices[one.asin] = one.prices[0] if len(one.prices) == 1 else random.uniform(*one.prices)
    goals = []
    for one in products:
        if not one.instruction:
            continue
        above = [10.0 * k for k in range(1, 100) if 10.0 * k > prices[one.asin]][:4]
        limit, price_text = 1_000_000.0, ""
        if len(above) >= 2:
            _, limit = sorted(random.sample(above, 2))
            price_text = f", and price lower than {limit:.2f} dollars"
        names = sorted(one.options)
        for values in itertools.product(*(one.options[name] for name in names)):
            wanted = ", and ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
            goals.append((one.asin, f"{one.instruction}{' with ' + wanted if wanted else ''}{price_text}", limit))
    random.seed(seed)
    random.shuffle(goals)
    return goals


def test_official_goals_and_their_order(official: ShoppingSuite, shared_data: Path):
    folder = shared_data / "webshop"
    expected = slow_goals(load_products(folder / "items.json.gz", folder / "items_ins.json.gz"), 233)
    assert len(expected) == 6_678
    assert [task.goal for task in official.tasks("test")] == [text for _, text, _ in expected[:500]]
    in_order = [task.goal for split in ("train", "eval") for task in official.tasks(split)]
    assert in_order == [text for _, text, _ in expected[500:]]
    for task, (asin, _, limit) in zip(official.tasks("test")[:50], expected, strict=False):
        goal = official.make(task).goal
        assert (goal.asin, goal.price_limit) == (asin, limit)


def test_generated_goals_and_another_seed():
    suite = ShoppingSuite(nouns="light", products=80, seed=7)
    expected = slow_goals(list(suite.shop.products), 7)
    assert [task.goal for split in ("test", "train", "eval") for task in suite.tasks(split)] == [
        text for _, text, _ in expected
    ]


def test_a_goal_names_its_options():
    one = product(
        "A",
        options={"size": ("s", "m"), "color": ("red",)},
        instruction="Find me soft shoes",
        instruction_attributes=("soft",),
    )
    goals = SyntheticGoals([product("B"), one], [5.0, 20.0], random.Random(0))
    assert len(goals) == 2
    assert [goal.options for goal in goals] == [(("color", "red"), ("size", "s")), (("color", "red"), ("size", "m"))]
    limit = goals[0].price_limit
    assert limit in (40.0, 50.0, 60.0)
    assert goals[1].text == f"Find me soft shoes with color: red, and size: m, and price lower than {limit:.2f} dollars"
    assert goals[1].request == "Find me soft shoes"


@pytest.mark.parametrize("fields", [{"instruction": None}, {"instruction_attributes": ()}, {"options": {"size": ()}}])
def test_products_without_goals(fields: dict[str, Any]):
    one = product(**{"instruction": "Find it", "instruction_attributes": ("soft",), **fields})
    assert len(SyntheticGoals([one], [5.0], random.Random(0))) == 0


@pytest.mark.parametrize(
    ("price", "limits"),
    [
        (0.0, {20.0, 30.0, 40.0}),
        (10.0, {30.0, 40.0, 50.0}),
        (19.99, {30.0, 40.0, 50.0}),
        (975.0, {990.0}),
        (980.0, {NO_LIMIT}),
        (5_000.0, {NO_LIMIT}),
    ],
)
def test_limits(price: float, limits: set[float]):
    rng = random.Random(0)
    assert {draw_limit(price, rng) for _ in range(200)} == limits


def test_the_larger_of_two_limits_is_drawn_as_often_as_two_out_of_four_say():
    rng = random.Random(0)
    drawn = [draw_limit(0.0, rng) for _ in range(6_000)]
    for limit, share in ((20.0, 1 / 6), (30.0, 2 / 6), (40.0, 3 / 6)):
        assert drawn.count(limit) / len(drawn) == pytest.approx(share, abs=0.02)


def test_prices_lie_between_the_two():
    prices = draw_prices(
        [product(prices=(5.0, 9.0)), product(prices=(7.0,)), product(prices=(9.0, 5.0))], random.Random(1)
    )
    assert prices == [random.Random(1).uniform(5.0, 9.0), 7.0, prices[2]]
    assert 5.0 <= prices[2] <= 9.0


def test_the_order_is_a_permutation_fixed_by_its_seed():
    assert goal_order(10, 233) == [5, 9, 0, 1, 4, 7, 6, 3, 8, 2]
    assert sorted(goal_order(1_000, 5)) == list(range(1_000))


def test_human_goals():
    asked = [
        HumanInstruction("A", "i want it...", ("soft",), ("red", "large")),
        HumanInstruction("A", ".and this ", ("warm",), ()),
    ]
    first, second = human_goals(asked, [40.0, NO_LIMIT])
    assert first.text == "i want it, and price lower than 40.00 dollars"
    assert first.options == (("", "red"), ("", "large"))
    assert (second.text, second.request, second.price_limit) == ("and this", "and this ", NO_LIMIT)


def test_recorded_human_goals_have_our_form(shared_data: Path):
    """The first hundred sessions of the official order: sentence, annotator's text and limit."""
    folder = shared_data / "webshop"
    sessions = json.loads(gzip.decompress((folder / "first100_goals.json.gz").read_bytes()))
    texts = json.loads(gzip.decompress((folder / "human_goals.json.gz").read_bytes()))
    for session, text in zip(sessions, texts, strict=False):
        sentence = session["task"].removesuffix(" \n[Search]\n")
        found = re.fullmatch(r"(.*), and price lower than (\d+)\.00 dollars", sentence)
        limit = float(found[2]) if found else NO_LIMIT
        request = found[1] if found else sentence
        assert limit == NO_LIMIT or limit in range(20, 1000, 10)
        (goal,) = human_goals([HumanInstruction("A", request + ".", ("x",), ())], [limit])
        assert goal.text == sentence
        # The list of texts has lost its quotation marks.
        assert re.sub("['\"]", "", request) == text
        assert session["key"]["query"] == session["key"]["query"].lower().strip()


def test_human_goals_of_a_suite(catalogue_files: Files):
    given = [
        {"instruction": f"wish {number}", "instruction_attributes": ["soft"], "instruction_options": []}
        for number in range(510)
    ]
    files = catalogue_files([item("A", pricing="$5$9"), item("B")], {}, {"A": given[:300], "B": given[300:]})
    suite = ShoppingSuite(**files, goals="human", nouns="light")
    rng = random.Random(233)
    price = rng.uniform(5.0, 9.0)
    limits = [draw_limit(price if number < 300 else 20.0, rng) for number in range(510)]
    expected = [f"wish {number}, and price lower than {limits[number]:.2f} dollars" for number in goal_order(510, 233)]
    assert [len(suite.tasks(split)) for split in ("test", "train", "eval")] == [255, 230, 25]
    assert [task.goal for split in ("test", "train", "eval") for task in suite.tasks(split)] == expected


def test_splits_of_a_small_catalogue(generated: ShoppingSuite):
    assert generated.splits() == ("train", "eval", "test")
    train = generated.tasks("train")
    for split, numbers in (("test", range(500)), ("train", range(500, 2_480)), ("eval", range(2_480, 2_700))):
        assert [task.id for task in generated.tasks(split)] == [f"goal/{number}" for number in numbers]
    assert train[-1] == generated.find("goal/2479")
    assert train[1:3] == [train[1], train[2]]


def test_splits_of_a_large_catalogue():
    suite = ShoppingSuite(nouns="light", products=1_001)
    assert suite.splits() == ("train", "eval", "test")
    numbers = {split: [int(task.id.removeprefix("goal/")) for task in suite.tasks(split)] for split in suite.splits()}
    assert numbers == {
        "train": list(range(1_500, 9_009)),
        "eval": list(range(500, 1_500)),
        "test": list(range(500)),
    }


@pytest.mark.parametrize(
    ("count", "small", "sizes"),
    [
        (45, True, (21, 2, 22)),
        (1, True, (1, 0, 0)),
        (0, True, (0, 0, 0)),
        (6_910, True, (5_769, 641, 500)),
        (1_200, False, (350, 350, 500)),
        (12_087, False, (10_587, 1_000, 500)),
    ],
)
def test_few_goals_are_shared_out(count: int, small: bool, sizes: tuple[int, int, int]):
    splits = _split_goals(count, small=small)
    assert tuple(len(splits[split]) for split in ("train", "eval", "test")) == sizes
    assert sorted(number for numbers in splits.values() for number in numbers) == list(range(count))


def test_unknown_splits_and_tasks(generated: ShoppingSuite):
    with pytest.raises(OptionError, match="Did you mean 'train'"):
        generated.tasks("trian")
    for identifier in ("goal/2700", "goal/-1", "goal/", "goal/x", "1", ""):
        with pytest.raises(OptionError, match="expected goal/0 to goal/2699"):
            generated.find(identifier)


@pytest.mark.parametrize("options", [{"goals": "human"}, {"instructions": "x"}, {"human": "x"}])
def test_instructions_without_products(options: dict[str, Any]):
    with pytest.raises(OptionError, match="set items as well"):
        ShoppingSuite(**options)


def test_companion_files_have_the_matching_name(tmp_path: Path, catalogue_files: Files):
    written = catalogue_files(
        [item("A")], {"A": {"instruction": "Find it", "instruction_attributes": ["soft"]}}, {"A": []}
    )
    folder = tmp_path / "official"
    folder.mkdir()
    for kind, name in (
        ("items", "items_shuffle_1000.json"),
        ("instructions", "items_ins_v2_1000.json"),
        ("human", "items_human_ins.json"),
    ):
        (folder / name).write_bytes(Path(written[kind]).read_bytes())
    assert len(ShoppingSuite(items=str(folder / "items_shuffle_1000.json")).tasks("train")) == 1
    assert len(ShoppingSuite(items=str(folder / "items_shuffle_1000.json"), goals="human").tasks("test")) == 0
