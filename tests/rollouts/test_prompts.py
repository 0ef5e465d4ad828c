"""Prompt templates: rendering, slots, files, and content that looks like a template."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepcredit.core.errors import InputError, OptionError
from stepcredit.rollouts.prompts import PromptTemplate, load_template
from stepcredit.rollouts.types import PastTurn, Request, Response


def request(*, history: int = 0, goal: str = "put a mug in shelf", observation: str = "You see a mug 1.") -> Request:
    past = tuple(PastTurn(f"saw {n}", Response(f"did {n}", (), 0.0), f"did {n}") for n in range(1, history + 1))
    return Request(0, goal, past, observation, ("look", "take mug 1 from shelf 1"), 30)


def test_compact_repeats_the_task_and_lists_no_commands():
    template = load_template("compact")
    assert template.append_only
    for turns in (0, 7):
        assert template.render(request(history=turns)) == "put a mug in shelf\nYou see a mug 1.\n>"


def test_chat_shows_everything_and_a_bounded_history():
    text = load_template("chat", history=2).render(request(history=5))
    assert "put a mug in shelf" in text
    assert "turn 6 of at most 30" in text
    assert "Turn 4 saw: saw 4\nTurn 4 did: did 4\nTurn 5 saw: saw 5\nTurn 5 did: did 5\n" in text
    assert "saw 3" not in text
    assert "\nlook\ntake mug 1 from shelf 1\n" in text
    assert "<action>" not in text


def test_chat_asks_for_tags_in_think_action():
    text = load_template("chat", response_format="think-action").render(request())
    assert text.count("<think>") == text.count("</think>") == text.count("<action>") == text.count("</action>") == 1
    assert "(nothing)" in text


def test_zero_history_shows_nothing():
    assert PromptTemplate("{goal}{observation}|{history}", history=0).render(request(history=3)).endswith("|(nothing)")


def test_no_admissible_commands_means_any_text():
    free = Request(0, "g", (), "o", (), 1)
    assert PromptTemplate("{goal} {observation} {admissible}").render(free) == "g o (any text)"


@given(st.text(alphabet="{}goalhistory \\1$%<action>\n", max_size=60), st.text(max_size=30))
def test_content_is_never_read_as_a_template(observation: str, goal: str):
    template = PromptTemplate("A{goal}B{ observation }C{step}D")
    assert template.render(request(observation=observation, goal=goal)) == f"A{goal}B{observation}C1D"


def test_braces_that_are_no_slot_stay():
    text = '{goal} {observation} {"action": 1} {} {{ {1} {\n}'
    assert PromptTemplate(text).render(request(goal="g", observation="o")) == 'g o {"action": 1} {} {{ {1} {\n}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{goal} {observatio}", "Unknown template slot 'observatio'. Did you mean 'observation'?"),
        ("{goal} {observation} {step:02d}", "Unknown template slot 'step:02d'. Did you mean 'step'?"),
        ("{goal} {observation} {zzz}", "Unknown template slot 'zzz'. Expected one of: admissible, goal"),
        ("{goal}", "no slot {observation}"),
        ("{observation}", "no slot {goal}"),
        ("", "no slot {goal}"),
    ],
)
def test_wrong_slots_are_refused(text: str, message: str):
    with pytest.raises(OptionError, match=message.replace("{", r"\{").replace("?", r"\?")):
        PromptTemplate(text)


def test_append_only_has_no_history_slot():
    with pytest.raises(OptionError, match="remove the slot"):
        PromptTemplate("{goal}{observation}{history}", append_only=True)


def test_negative_history_is_refused():
    with pytest.raises(OptionError, match="expected 0 or more"):
        PromptTemplate("{goal}{observation}", history=-1)


def test_a_file_with_history_is_self_contained_and_one_without_is_append_only(tmp_path: Path):
    file = tmp_path / "mine.txt"
    file.write_text("Aufgabe: {goal} – {observation}", encoding="utf-8")
    template = load_template(str(file))
    assert template.append_only
    assert template.render(request(goal="g", observation="o")) == "Aufgabe: g – o"
    file.write_text("{history}|{goal} {observation}", encoding="utf-8")
    template = load_template(str(file), history=1)
    assert not template.append_only
    assert template.render(request(history=2, goal="g", observation="o")) == "Turn 2 saw: saw 2\nTurn 2 did: did 2|g o"


def test_unknown_names_and_unreadable_files_are_refused(tmp_path: Path):
    with pytest.raises(OptionError, match="Did you mean 'compact'"):
        load_template("compakt")
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"{goal} {observation} \xe4")
    with pytest.raises(InputError, match=r"not UTF-8 text \(byte 21\)"):
        load_template(str(latin))
    with pytest.raises(InputError, match="Cannot read"):
        load_template(str(tmp_path))
