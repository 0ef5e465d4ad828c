"""Writes the remaining files: ``pip install atif==1.8.0``, then ``python make_others.py``.

* ``trial/``: a Harbor trial; the trajectory is checked and written by the schema's own models.
* ``skyrl.jsonl``, ``skyrl_steps.jsonl``: by the entries that SkyRL 0.4.0 dumps (``dump_per_dataset_eval_results``), the
  text as a Qwen tokenizer decodes it; whole episodes, and one line a turn.
* ``openai_chat.jsonl``: by the chat API's documented form, ``reward`` and ``group`` beside the messages.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from atif import Agent, FinalMetrics, Metrics, Observation, ObservationResult, Step, ToolCall, Trajectory

HERE = Path(__file__).parent


def write(name: str, *lines: Any) -> None:
    """JSON Lines."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (HERE / name).write_text(text, encoding="utf-8")


def act(number: int, command: str, answer: str, logprobs: list[float], copied: bool | None = None) -> Step:
    """One agent turn and what its tool answered."""
    return Step(
        step_id=number,
        source="agent",
        message="",
        tool_calls=[ToolCall(tool_call_id=f"c{number}", function_name="act", arguments={"command": command})],
        observation=Observation(results=[ObservationResult(source_call_id=f"c{number}", content=answer)]),
        metrics=Metrics(completion_tokens=len(logprobs), logprobs=logprobs),
        is_copied_context=copied,
    )


trajectory = Trajectory(
    schema_version="ATIF-v1.8",
    session_id="run-7",
    agent=Agent(name="toy", version="0.1", model_name="m"),
    steps=[
        Step(step_id=1, source="system", message="Act."),
        Step(step_id=2, source="user", message="Put a mug in the sink."),
        act(3, "go to sink 1", "You arrive at sink 1.", [-9.0], copied=True),
        act(4, "open cabinet 1", "The cabinet 1 is open.", [-0.5, -0.25]),
        act(5, "take mug 1", "You pick up the mug 1.", [-0.125]),
        Step(step_id=6, source="agent", message="Done.", reasoning_content="All is well."),
    ],
    final_metrics=FinalMetrics(total_steps=6),
)
trial = HERE / "trial"
(trial / "agent").mkdir(parents=True, exist_ok=True)
(trial / "verifier").mkdir(exist_ok=True)
document = json.dumps(trajectory.to_json_dict(), indent=2) + "\n"
(trial / "agent" / "trajectory.json").write_text(document, encoding="utf-8")
(trial / "verifier" / "reward.txt").write_text("1\n", encoding="utf-8")
result = {"task_name": "mug", "trial_name": "mug__1", "verifier_result": {"rewards": {"reward": 1.0}}}
(trial / "result.json").write_text(json.dumps(result, indent=4) + "\n", encoding="utf-8")


def chatml(*messages: tuple[str, str]) -> str:
    """Rendered messages, special tokens kept."""
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in messages)


PROMPT = chatml(("system", "Act."), ("user", "You are in a kitchen.")) + "<|im_start|>assistant\n"
REST = {"stop_reason": "stop", "env_class": "house", "env_extras": {"task": "egg"}, "data_source": "house"}
OPENED = chatml(("user", "The fridge 1 is open.")) + "<|im_start|>assistant\n"


def episode(commands: list[str], score: Any) -> dict[str, Any]:
    """A line of a whole episode."""
    response = f"<|im_end|>\n{OPENED}".join(commands) + "<|im_end|>"
    return {"input_prompt": PROMPT, "output_response": response, "score": score, **REST}


def step(prompt: str, command: str, score: Any) -> dict[str, Any]:
    """A line of one turn."""
    return {"input_prompt": prompt, "output_response": f"{command}<|im_end|>\n", "score": score, **REST}


write("skyrl.jsonl", episode(["open fridge 1", "take egg 1"], 1.0), episode(["look"], [0.0, 0.0, 0.25]))
write(
    "skyrl_steps.jsonl",
    step(PROMPT, "open fridge 1", [0.0, 0.0]),
    step(f"{PROMPT}open fridge 1<|im_end|>\n{OPENED}", "take egg 1", [0.0, 1.0]),
    step(PROMPT, "look", [0.0]),
)

CALLS = [{"id": "c1", "type": "function", "function": {"name": "act", "arguments": '{"a":"open fridge 1"}'}}]
write(
    "openai_chat.jsonl",
    {
        "messages": [
            {"role": "system", "content": "Act."},
            {"role": "user", "content": [{"type": "text", "text": "You are in a kitchen."}]},
            {"role": "assistant", "content": None, "tool_calls": CALLS},
            {"role": "tool", "tool_call_id": "c1", "content": "The fridge 1 is open."},
            {"role": "assistant", "content": "I take it. <action>take egg 1</action>"},
        ],
        "reward": 1.0,
        "group": "task-17",
    },
    {
        "messages": [
            {"role": "user", "content": "You are in a kitchen."},
            {"role": "assistant", "content": "look"},
            {"role": "assistant", "content": "wait"},
        ],
        "reward": 0.0,
        "group": "task-17",
    },
)
