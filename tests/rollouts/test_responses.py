"""Parsing of responses: every rule of the strict validity, the released rule, and totality."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepcredit.core.errors import OptionError
from stepcredit.rollouts.responses import RESPONSE_FORMATS, check_response_format, parse_response

COMMANDS = ("go to cabinet 1", "look", "take mug 1 from shelf 1")
GOOD = "<think>t</think><action>look</action>"


@pytest.mark.parametrize(
    ("text", "action", "valid", "reason"),
    [
        (GOOD, "look", True, ""),
        ("  <think>\nfirst\n</think>\n\t<action> Go  to\nCABINET 1 </action> \n", "go to cabinet 1", True, ""),
        ("<think></think><action>look</action>", "look", True, ""),
        # One of each tag, in order.
        ("<action>look</action>", "look", False, "0 × <think> instead of one"),
        ("<think>t<action>look</action>", "look", False, "0 × </think> instead of one"),
        ("<think>t</think>look", "", False, "0 × <action> instead of one"),
        ("<think>t</think><action>look", "", False, "0 × </action> instead of one"),
        ("", "", False, "0 × <think> instead of one"),
        ("<think>a</think><think>b</think><action>look</action>", "look", False, "2 × <think> instead of one"),
        (GOOD + "<action>go to cabinet 1</action>", "look", False, "2 × <action> instead of one"),
        ("<think><action>look</action></think>" + GOOD, "look", False, "2 × <think> instead of one"),
        ("<think>say <action>look</action> or so</think>" + "<action>look</action>", "look", False, "2 × <action>"),
        ("<action>look</action><think>t</think>", "look", False, "tags out of order"),
        ("</think><think><action>look</action>", "look", False, "tags out of order"),
        ("<think><action>look</action></think>", "look", False, "tags out of order"),
        ("<think>t</think></action>go<action>", "", False, "tags out of order"),
        # Only white space outside.
        ("x" + GOOD, "look", False, "text outside the tags"),
        ("<think>t</think>so<action>look</action>", "look", False, "text outside the tags"),
        (GOOD + ".", "look", False, "text outside the tags"),
        # Characters.
        ("<think>看</think><action>look</action>", "look", False, "a character in U+4E00-U+9FFF"),
        ("<think>ここ</think><action>look</action>", "look", True, ""),
        # The command.
        ("<think>t</think><action></action>", "", False, "no command"),
        ("<think>t</think><action> \n</action>", "", False, "no command"),
        ("<think>t</think><action>fly away</action>", "fly away", False, "the command is not admissible"),
        ("<think>t</think><action>look look</action>", "look look", False, "the command is not admissible"),
        ("<think>t</think><action>look, go to cabinet 1</action>", "look, go to cabinet 1", False, "not admissible"),
        ("<THINK>t</THINK><action>look</action>", "look", False, "0 × <think> instead of one"),
    ],
)
def test_think_action(text: str, action: str, valid: bool, reason: str):
    parsed = parse_response(text, COMMANDS, "think-action")
    assert (parsed.action, parsed.valid) == (action, valid)
    assert reason in parsed.reason
    assert bool(parsed.reason) != valid


@pytest.mark.parametrize(
    ("text", "action", "valid", "reason"),
    [
        ("look", "look", True, ""),
        (" Take\tMUG 1  from shelf 1\n", "take mug 1 from shelf 1", True, ""),
        ("jump", "jump", False, "the command is not admissible"),
        ("", "", False, "no command"),
        (" \n ", "", False, "no command"),
        ("look 看", "look 看", False, "a character in U+4E00-U+9FFF"),
        (GOOD, GOOD, False, "the command is not admissible"),
    ],
)
def test_action(text: str, action: str, valid: bool, reason: str):
    parsed = parse_response(text, COMMANDS, "action")
    assert (parsed.action, parsed.valid, parsed.reason) == (action, valid, reason)


def test_the_environments_own_spelling_is_submitted():
    assert parse_response("click[BUY now]", ("click[Buy  Now]",), "action").action == "click[Buy  Now]"


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("search[red shoes]", True),
        ("Search[ x ]", True),
        ("search[]", False),
        ("search[ ]", False),
        ("search[red", False),
        ("find[red]", False),
        ("search[<words>]", True),
    ],
)
def test_a_placeholder_stands_for_any_text(text: str, valid: bool):
    assert parse_response(text, ("click[back]", "search[<words>]"), "action").valid is valid


def test_without_listed_commands_any_text_is_admissible_as_it_stands():
    parsed = parse_response("  Print(A)\n  b ", (), "action")
    assert (parsed.action, parsed.valid) == ("Print(A)\n  b", True)
    assert not parse_response("  ", (), "action").valid


@pytest.mark.parametrize(
    ("text", "action", "valid"),
    [
        (GOOD, "look", True),
        ("<think>t</think><action> FLY </action>", "fly", True),  # admissibility is not checked
        ("<think>t</think></action>go<action>", "", True),  # first opening after first closing: an empty command
        ("<think>t</think><action></action>", "", True),
        ("</think><think><action>x</action>", "x", True),  # think tags in any order
        ("<action>x</action>", "x", False),
        ("<think>t</think><action>a</action><action>b</action>", "a", True),
        ("<think>t</think><ACTION>Go</ACTION>", "go", True),
        ("<think>看</think><action>x</action>", "x", False),
        ("No Tags Here, and the text is longer than thirty characters", "is longer than thirty characters"[2:], False),
    ],
)
def test_the_released_rule(text: str, action: str, valid: bool):
    parsed = parse_response(text, COMMANDS, "think-action", strict=False)
    assert (parsed.action, parsed.valid) == (action, valid)


def test_the_released_rule_for_bare_commands_does_not_check_admissibility():
    assert parse_response(" Fly ", COMMANDS, "action", strict=False).action == "fly"
    assert parse_response(" Fly ", COMMANDS, "action", strict=False).valid


TAGGED = st.lists(
    st.sampled_from(["<think>", "</think>", "<action>", "</action>", "look", " ", "看", "\ud800", "x", "<", "[", "\0"]),
    max_size=9,
).map("".join)
TAGGED = st.one_of(
    TAGGED,
    st.tuples(TAGGED, st.sampled_from([GOOD, "<think>", "</think> <action>", "look</action>"]), TAGGED).map("".join),
)


@given(st.one_of(st.text(), TAGGED), st.lists(st.text(max_size=20), max_size=5), st.booleans())
def test_parsing_never_raises(text: str, admissible: list[str], strict: bool):
    for response_format in RESPONSE_FORMATS:
        parsed = parse_response(text, admissible, response_format, strict)
        assert parsed.valid == (not parsed.reason)


@given(TAGGED)
def test_the_strict_rule_equals_one_regular_expression(text: str):
    """Slow but obvious: the whole text is two pairs of tags, neither holding a tag itself."""
    inside = r"((?:(?!</?think>|</?action>).)*)"
    match = re.fullmatch(rf"\s*<think>{inside}</think>\s*<action>{inside}</action>\s*", text, re.DOTALL)
    expected = match is not None and "看" not in text and match[2].strip() in COMMANDS
    assert parse_response(text, COMMANDS, "think-action").valid is expected


@given(TAGGED)
def test_strictly_valid_means_valid_by_the_released_rule(text: str):
    strict = parse_response(text, COMMANDS, "think-action")
    if strict.valid:
        assert parse_response(text, COMMANDS, "think-action", strict=False) == strict


@pytest.mark.parametrize("piece", ["<think>", "<action>", "</action>", "<", " ", "<think></think>", "search["])
def test_megabytes_are_parsed(piece: str):
    """A quadratic parser would run into the test's time limit."""
    assert not parse_response(piece * 1_000_000, ("search[<words>]", "look"), "think-action").valid
    assert not parse_response(piece * 1_000_000, ("search[<words>]", "look"), "action").valid


def test_unknown_formats_are_refused():
    assert check_response_format("action") == "action"
    with pytest.raises(OptionError, match="Did you mean 'think-action'"):
        check_response_format("think-acton")
