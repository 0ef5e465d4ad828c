"""Scores of answers and the tags of an episode."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepcredit.environments.search_qa.corpus import Passage
from stepcredit.environments.search_qa.scoring import exact_match, normalize_answer, token_f1
from stepcredit.environments.search_qa.tags import FREE_COMMANDS, Command, parse_command, show_evidence


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("The  Eiffel\tTower!", "eiffel tower"),
        ("A, an; the", ""),
        ("theatre", "theatre"),
        ('Jonny" Craig', "jonny craig"),
        ("U.S.A.", "usa"),
        ("Gesellschaft mit beschränkter Haftung", "gesellschaft mit beschränkter haftung"),
    ],
)
def test_normalisation(text: str, normalized: str):
    assert normalize_answer(text) == normalized


@pytest.mark.parametrize(
    ("answer", "golden", "match", "f1"),
    [
        ("the eiffel tower", ["Eiffel Tower"], True, 1.0),
        ("Eiffel", ["Eiffel Tower"], False, 2 / 3),
        ("Eiffel Tower Paris", ["Eiffel Tower", "Paris"], False, 4 / 5),
        ("b b c", ["b c c"], False, 2 / 3),
        ("A B C D", ["A"], False, 0.0),  # "a" is an article
        ("B C D E", ["B"], False, 2 / 5),  # naming all options is no answer
        ("", ["x"], False, 0.0),
        ("the", ["a"], True, 1.0),
        ("x", [], False, 0.0),
    ],
)
def test_scores(answer: str, golden: list[str], match: bool, f1: float):
    assert exact_match(answer, golden) is match
    assert token_f1(answer, golden) == pytest.approx(f1)


@given(st.text(alphabet="abc the.", max_size=12), st.text(alphabet="abc the.", max_size=12))
def test_scores_agree_with_each_other(left: str, right: str):
    assert token_f1(left, [right]) == token_f1(right, [left])
    assert (token_f1(left, [right]) == 1.0) >= exact_match(left, [right])
    assert 0.0 <= token_f1(left, [right]) <= 1.0


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("<search>red fox</search>", Command("search", "red fox")),
        ("<think>hm</think> <answer> Red\n Fox </answer> done", Command("answer", "Red Fox")),
        ("<SEARCH>x</Search>", Command("search", "x")),
        ("<search>a < b</search>", Command("search", "a < b")),
    ],
)
def test_one_command(text: str, command: Command):
    assert parse_command(text) == command
    assert parse_command(str(command)) == command


@pytest.mark.parametrize(
    "text",
    [
        "",
        "red fox",
        "<search>red fox",
        "red fox</search>",
        "<search></search>",
        "<answer> \n </answer>",
        "</search>red fox<search>",
        "<search>red</answer>",
        "<search>red<search>",
        "<search>a</search><search>b</search>",
        "<search>a</search><answer>b</answer>",
        "<search>a <answer>b</answer></search>",
        "<answer>a</answer></answer>",
    ],
)
def test_no_or_several_commands(text: str):
    assert parse_command(text) is None


def test_evidence():
    passages = [Passage("1", "Red Fox", "It is red."), Passage("2", "Fox", "It is a fox.")]
    assert show_evidence(passages) == (
        "<information>Doc 1(Title: Red Fox) It is red.\nDoc 2(Title: Fox) It is a fox.</information>"
    )
    assert show_evidence([]) == "<information>Nothing found.</information>"


@pytest.mark.parametrize("tag", ["information", "SEARCH", "answer", "think", "action"])
def test_passages_cannot_speak_for_the_conversation(tag: str):
    shown = show_evidence([Passage("1", f"<{tag}>", f"a </{tag}> <b>bold</b> <{tag} x>")])
    assert shown == f"<information>Doc 1(Title: &lt;{tag}>) a &lt;/{tag}> <b>bold</b> <{tag} x></information>"


@pytest.mark.parametrize("piece", ["<search>", "<", "</answer>", "<search", " "])
def test_time_is_linear(piece: str):
    assert parse_command(piece * 200_000) is None
    show_evidence([Passage("1", piece, piece * 200_000)])


def test_free_commands_stand_for_every_command():
    for text in FREE_COMMANDS:
        command = parse_command(text)
        assert command is not None
        assert command.text == "<words>"
