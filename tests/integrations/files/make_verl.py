"""Writes ``verl_v1.jsonl`` and ``verl_v0.jsonl`` with verl's own writers: verl 0.9.1 with the packages its V1 trainer
needs, then ``python make_verl.py``.

The texts are what a Qwen tokenizer gives back with special tokens dropped. The V1 file holds two prompts with two
rollouts each, a row a turn, and two padding rows, which copy a real row; the v0 file a rollout a line, tool calls and
answers included, and a reward's extra column.

``verl_main_ppo.jsonl.gz`` is not made here: it is the first step's dump of a whole ``verl.trainer.main_ppo`` run, the
one that ``test_verl_training.py`` makes, compressed.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

FIRST, SECOND = "0f3e9c1a-6a51-4a5e-9d0c-5b6f0f1f2a01", "9b1d2c3e-1111-4222-8333-444455556666"


def seen(text: str) -> str:
    """A prompt of one turn."""
    return f"system\nYou act in a house.\nuser\n{text}\nassistant\n"


def said(command: str) -> str:
    """A response."""
    return f"<think>\nhm\n</think>\n<action>{command}</action>"


KITCHEN, FRIDGE = seen("You are in a kitchen."), seen("The fridge 1 is open.\nIt holds an egg 1.")
ROWS = [
    (f"{FIRST}_0_0", KITCHEN, said("open fridge 1"), 1.0),
    (f"{FIRST}_0_1", FRIDGE, said("take egg 1 from fridge 1"), 1.0),
    (f"{FIRST}_1_0", KITCHEN, said("open fridge 1"), 0.0),
    (f"{FIRST}_1_1", FRIDGE, said("close fridge 1"), 0.0),
    (f"{FIRST}_1_2", KITCHEN, said("look"), 0.0),
    (f"{SECOND}_0_0", seen("You are in a bathroom."), said("look"), 0.0),
    (f"{SECOND}_1_0", seen("You are in a bathroom."), said("take soapbar 1"), 1.0),
    ("pad3f2c_0_0", KITCHEN, said("open fridge 1"), 0.0),
    ("pad3f2c_1_0", KITCHEN, said("open fridge 1"), 0.0),
]

CALL = '<tool_call>\n{"name": "open", "arguments": {"thing": "fridge 1"}}\n</tool_call>'
ANSWER = "\nuser\n<tool_response>\nThe fridge 1 is open.\n</tool_response>\nassistant\n"
LINES = [
    (seen("You are in a kitchen."), f"{CALL}{ANSWER}An egg.", "egg", 1.0, True),
    (seen("You are in a kitchen."), f"{CALL}{ANSWER}A soapbar.", "egg", 0.0, False),
    (seen("You are in a bathroom."), "A soapbar.", "soapbar", 1.0, True),
    (seen("You are in a bathroom."), "An egg.", "soapbar", 0.0, False),
]


def write(folder: Path) -> None:
    """Write both dumps into a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        uids, inputs, outputs, scores = map(list, zip(*ROWS, strict=True))
        PPOTrainer._write_generations(inputs, outputs, [None] * len(uids), scores, {"uid": uids}, scratch, 12)
        shutil.move(Path(scratch, "12.jsonl"), folder / "verl_v1.jsonl")
        inputs, outputs, truths, scores, right = map(list, zip(*LINES, strict=True))
        RayPPOTrainer._write_generations(inputs, outputs, truths, scores, {"acc": right}, scratch, 7)
        shutil.move(Path(scratch, "7.jsonl"), folder / "verl_v0.jsonl")


if __name__ == "__main__":
    write(Path(__file__).parent)
