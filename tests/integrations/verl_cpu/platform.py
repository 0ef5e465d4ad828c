"""The CPU as one of verl's platforms."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


class _Device(types.ModuleType):
    """``torch.cpu``, and what verl asks of a device module beyond it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    max_memory_allocated = max_memory_reserved = memory_allocated = memory_reserved = staticmethod(lambda *_, **__: 0)
    empty_cache = ipc_collect = staticmethod(lambda *_, **__: None)
    get_device_name = staticmethod(lambda *_, **__: "CPU")
    mem_get_info = staticmethod(lambda *_, **__: (0, 0))


_DEVICE = _Device("cpu_device")


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(lambda self: _DEVICE)

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, index: int) -> None: ...

    def synchronize(self, index: int | None = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None: ...

    def empty_cache(self) -> None: ...

    def get_device_capability(self, index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, message: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None: ...

    def profiler_stop(self) -> None: ...

    def ray_resource_name(self) -> str:
        return "GPU"  # one is declared to Ray, see run.py

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


_init_process_group = torch.distributed.init_process_group


def _gloo_once(backend: Any = None, **options: Any) -> Any:
    """verl names the device's backend and the CPU's, which torch refuses where both are the same."""
    both = isinstance(backend, str) and "cpu:gloo,cpu:gloo" in backend
    return _init_process_group("gloo" if both else backend, **options)


torch.distributed.init_process_group = _gloo_once

# A reference model waits in pinned memory, which only a machine with an accelerator has.
torch.Tensor.pin_memory = lambda self, *_, **__: self
