"""Reading the official files: every rule of their form, and one sentence where they are broken."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from shopping.entries import Files, item, product
from stepcredit.core.errors import InputError
from stepcredit.environments.shopping.generated import generate_products, vocabulary
from stepcredit.environments.shopping.matching import similar
from stepcredit.environments.shopping.products import (
    DEFAULT_PRICE,
    NO_ATTRIBUTES,
    HumanInstruction,
    load_human_instructions,
    load_products,
    parse_prices,
)


@pytest.mark.parametrize(
    ("pricing", "prices"),
    [
        ("$7.99", (7.99,)),
        ("$19.99$27.99", (19.99, 27.99)),
        ("$19.99 - $27.99", (19.99, 27.99)),
        ("$1,299.00", (1299.0,)),
        ("$5$6$7", (5.0, 6.0)),
        ("", (DEFAULT_PRICE,)),
        (None, (DEFAULT_PRICE,)),
        ("free", (DEFAULT_PRICE,)),
        ("$", (DEFAULT_PRICE,)),
        ("$1.2.3$4", (4.0,)),
    ],
)
def test_prices(pricing: str | None, prices: tuple[float, ...]):
    assert parse_prices(pricing) == prices


@pytest.mark.parametrize(("prices", "tag"), [((79.9,), "$79.9"), ((100.0,), "$100.0"), ((5.0, 6.5), "$5.0 to $6.5")])
def test_price_tags(prices: tuple[float, ...], tag: str):
    assert product(prices=prices).price_tag == tag


def test_an_entry_becomes_a_product(catalogue_files: Files):
    options = {"Color": [{"value": " Red/White "}, {"value": "BLUE"}], "Size": None, "Fit Type": [{"value": "Slim"}]}
    notes = {"B1": {"attributes": ["dry fit"], "instruction": "Find it", "instruction_attributes": ["dry fit"]}}
    entry = item("B1", full_description="Long Text", small_description="One", customization_options=options)
    files = catalogue_files([entry], notes)
    (loaded,) = load_products(Path(files["items"]), Path(files["instructions"]))
    assert loaded == product(
        "B1",
        description="Long Text",
        bullets=("One",),
        options={"color": ("red | white", "blue"), "fit type": ("slim",)},
        attributes=("dry fit",),
        instruction="Find it",
        instruction_attributes=("dry fit",),
    )
    assert loaded.search_text == "red shoe long text one color: red | white, blue, and fit type: slim"


def test_entries_left_out(catalogue_files: Files):
    entries = [item("A"), item("nan"), item("12345678901"), item("A", name="Again"), item("B"), item("C")]
    files = catalogue_files(entries, {"B": {}})
    loaded = load_products(Path(files["items"]), Path(files["instructions"]), count=5)
    assert [one.asin for one in loaded] == ["A", "B"]
    assert loaded[0].name == "Red Shoe"
    assert {one.attributes for one in loaded} == {NO_ATTRIBUTES}


def test_human_instructions(catalogue_files: Files):
    given = {"instruction": "i want it.", "instruction_attributes": ["soft"], "instruction_options": ["red"]}
    human = {"A": [given, {**given, "instruction_attributes": []}], "unknown": [given]}
    files = catalogue_files([item("A"), item("B")], {}, human)
    products = load_products(Path(files["items"]), Path(files["instructions"]))
    found = load_human_instructions(Path(files["human"]), products)
    assert found == [HumanInstruction("A", "i want it.", ("soft",), ("red",))]


def test_official_files(shared_data: Path):
    folder = shared_data / "webshop"
    products = load_products(folder / "items.json.gz", folder / "items_ins.json.gz")
    assert len(products) == 394
    assert (products[0].asin, products[0].price_tag, products[0].category) == ("B08GFNJN5R", "$79.9", "beauty")
    assert products[0].options == {"color": ("green", "red", "red", "red")}
    assert products[0].query == "bags & cases"
    assert sum(len(one.prices) == 2 for one in products) == 91
    assert sum(one.prices == (DEFAULT_PRICE,) for one in products) >= 17


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"[", "not JSON"),
        (b"\x1f\x8b\x08broken", "not JSON"),
        (gzip.compress(b"{}", mtime=0)[:-9], "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 200_000, "not JSON"),
        (b"{}", "not a JSON list"),
        (b"[3]", "product 0"),
        (b'[{"asin": "A"}]', "no field 'small_description'"),
        (json.dumps([item("A", name=3)]).encode(), "got 3 where text is expected"),
        (json.dumps([item("A", customization_options=["x"])]).encode(), "product 0"),
    ],
)
def test_broken_files(tmp_path: Path, content: bytes, complaint: str):
    (tmp_path / "items.json").write_bytes(content)
    (tmp_path / "notes.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match=complaint) as caught:
        load_products(tmp_path / "items.json", tmp_path / "notes.json")
    assert str(caught.value).startswith(str(tmp_path / "items.json"))


def test_a_missing_file(tmp_path: Path):
    with pytest.raises(InputError, match="No such file"):
        load_products(tmp_path / "items.json", tmp_path / "notes.json")


@pytest.mark.parametrize("entry", [{"instruction": "x"}, 3, {"instruction_attributes": 4}])
def test_broken_human_instructions(catalogue_files: Files, entry: Any):
    files = catalogue_files([item("A")], {}, {"A": [entry]})
    products = load_products(Path(files["items"]), Path(files["instructions"]))
    with pytest.raises(InputError, match="an instruction for A"):
        load_human_instructions(Path(files["human"]), products)


def test_lone_surrogates_become_valid_text(tmp_path: Path):
    entry = json.dumps(item("A", name="half \ud83d and whole \ud83d\ude00"))
    (tmp_path / "items.json").write_text(f"[{entry}]", encoding="utf-8")
    (tmp_path / "notes.json").write_text("{}", encoding="utf-8")
    (loaded,) = load_products(tmp_path / "items.json", tmp_path / "notes.json")
    assert loaded.name == "half \ufffd and whole 😀"


def test_the_generated_catalogue_is_fixed_by_its_seed():
    products = generate_products(60, 233)
    assert products == generate_products(90, 233)[:60]
    assert products != generate_products(60, 234)
    assert (products[0].asin, products[0].name) == ("G000000000", products[0].name.title())
    assert {one.category for one in products} == {"beauty", "electronics", "fashion", "garden", "grocery"}


def test_values_of_generated_products_cannot_be_confused():
    """Neither two values of one option nor two attributes of one department count as the same in the reward."""
    groups: dict[str, set[str]] = {}
    for one in generate_products(600, 0):
        groups.setdefault(f"attributes {one.category}", set()).update(one.attributes)
        for name, values in one.options.items():
            groups.setdefault(f"{name} {one.query}", set()).update(values)
            assert len(set(values)) == len(values) == 3
    for values in groups.values():
        assert [(a, b) for a in sorted(values) for b in sorted(values) if a < b and similar(a, b)] == []


def test_the_generated_vocabulary_is_small():
    products = generate_products(300, 233)
    words = {word for one in products for text in (one.search_text, one.instruction or "") for word in text.split()}
    assert len(words) < 250
    names = vocabulary(products)
    assert names == tuple(sorted(set(names)))
    assert {"g000000000", "throw pillows", "jumbo"} < set(names)
