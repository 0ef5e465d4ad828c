"""A rollout server that answers with ``transformers``: no side effects on import, since Ray unpickles its classes."""

from __future__ import annotations

from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

SERVER = "cpu_hf_server_{rank}"


class HfServer:
    """Holds a copy of the weights and samples from it, one request at a time."""

    def __init__(self, path: str) -> None:
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.version = 0

    async def load_weights(self, weights: dict[str, torch.Tensor], version: int | None) -> None:
        self.model.load_state_dict(weights, strict=False)
        self.version = version or 0

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        temperature = float(sampling_params.get("temperature", 1.0))
        with torch.no_grad():
            made = self.model.generate(
                torch.tensor([prompt_ids]),
                max_new_tokens=int(sampling_params["max_tokens"]),
                do_sample=temperature > 0,
                temperature=temperature or None,
                top_k=0,
                return_dict_in_generate=True,
                output_logits=True,
            )
        ids = made.sequences[0, len(prompt_ids) :].tolist()
        logprobs = [
            float(torch.log_softmax(scores[0].float() / (temperature or 1.0), -1)[token])
            for scores, token in zip(made.logits, ids, strict=True)
        ]
        return TokenOutput(
            token_ids=ids, log_probs=logprobs, stop_reason="completed", extra_fields={"global_steps": self.version}
        )

    async def wake_up(self) -> None: ...

    async def sleep(self) -> None: ...

    async def clear_kv_cache(self) -> None: ...

    async def abort_all_requests(self, **_: Any) -> None: ...

    async def resume_generation(self) -> None: ...


class HfReplica(RolloutReplica):
    async def launch_servers(self) -> None:
        name = SERVER.format(rank=self.replica_rank)
        server = ray.remote(HfServer).options(name=name, num_cpus=0.5).remote(self.model_config.path)
        self.servers = [server]
        self._server_handle, self._server_address = server, name


class HfAdapter(BaseRollout):
    """The trainer's side: sends new weights to the server."""

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(
        self, weights: Any, wire_format: str = "named_tensors", global_steps: int | None = None, **_: Any
    ) -> None:
        whole = {
            name: (value.full_tensor() if hasattr(value, "full_tensor") else value).detach().cpu().clone()
            for name, value in weights
        }
        await ray.get_actor(SERVER.format(rank=0)).load_weights.remote(whole, global_steps)
