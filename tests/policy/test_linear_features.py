"""What the linear policy reads off the texts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepcredit.policy.linear_features import FeatureHasher, Memory, content_words, verb_and_nouns
from stepcredit.rollouts.types import PastTurn, Response


def remember(*actions: str, observation: str = "o") -> Memory:
    memory = Memory()
    for action in actions:
        memory.take_in(PastTurn(observation, Response(action, (), 0.0), action))
    return memory


def features(
    command: str, memory: Memory, *, goal: str = "put a clean mug in shelf", seen: str = "A mug 1."
) -> set[int]:
    indices, lengths = FeatureHasher(2**20).describe(goal, seen, [command], memory)
    assert lengths.tolist() == [len(indices)]
    return set(indices.tolist())


def test_words_and_parts_of_commands():
    assert content_words("On the Mug 1, you see a mug_2 and a CD 3.") == ("cd", "mug", "see", "you")
    assert verb_and_nouns("take mug 1 from sinkbasin 2") == ("take", ("mug", "sinkbasin"))
    assert verb_and_nouns("look") == ("look", ())
    assert verb_and_nouns(" 12 ") == ("", ())


@pytest.mark.parametrize(
    ("actions", "held", "done", "released"),
    [
        ((), "", "", 0),
        (("take mug 1 from shelf 1",), "mug", "", 0),
        (("take mug 1 from shelf 1", "go to sinkbasin 1", "clean mug 1 with sinkbasin 1"), "mug", "clean", 0),
        (("take mug 1 from shelf 1", "heat mug 1", "clean mug 1", "heat mug 1"), "mug", "clean heat", 0),
        (("take mug 1 from shelf 1", "clean mug 1", "move mug 1 to shelf 1"), "", "", 1),
        (("move mug 1 to shelf 1",), "", "move", 0),
        (("use desklamp 1",), "", "use", 0),
        (("", "17", "open shelf 1"), "", "", 0),
    ],
)
def test_memory(actions: tuple[str, ...], held: str, done: str, released: int):
    memory = remember(*actions)
    assert (memory.held, memory.done, memory.released, memory.turns) == (held, done, released, len(actions))


def test_what_is_learnt_about_one_number_holds_for_all():
    assert features("go to cabinet 1", Memory()) == features("go to cabinet 12", Memory())


@pytest.mark.parametrize(
    ("memory", "other"),
    [
        (remember(), remember("go to shelf 1")),  # tried
        (remember("go to shelf 1"), remember("go to shelf 1", observation="A mug 1.")),  # tried here
        (remember(), remember("take mug 1 from sofa 1")),  # held
        (remember("take mug 1 from sofa 1"), remember("take pen 1 from sofa 1")),  # wanted or not
        (remember("take mug 1 from sofa 1"), remember("take mug 1 from sofa 1", "clean mug 1")),  # done
        (remember(), remember("take mug 1 from sofa 1", "move mug 1 to sofa 1")),  # released
    ],
)
def test_every_part_of_the_situation_makes_a_difference(memory: Memory, other: Memory):
    assert features("go to shelf 1", memory) != features("go to shelf 1", other)


def test_goal_and_sight_make_a_difference():
    plain = features("take mug 1 from sofa 1", Memory())
    assert plain != features("take mug 1 from sofa 1", Memory(), goal="put a pen in shelf")
    assert plain != features("take mug 1 from sofa 1", Memory(), seen="A pen 1.")


@given(st.lists(st.text(max_size=15), min_size=1, max_size=4), st.text(max_size=20), st.text(max_size=20))
def test_any_text_has_features(admissible: list[str], goal: str, observation: str):
    memory = remember(*admissible, observation=observation)
    indices, lengths = FeatureHasher(2**8).describe(goal, observation, admissible, memory)
    assert lengths.min() >= 1
    assert len(lengths) == len(admissible)
    assert lengths.sum() == len(indices)
    assert indices.dtype == np.int32
    assert indices.min() >= 0
    assert indices.max() < 2**8
