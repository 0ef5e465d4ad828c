"""Fast method against slow reference, on many random batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from reference.batches import batch
from stepcredit.core.episodes import Episode
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign


def assert_matches_reference(
    name: str,
    reference: Callable[..., Sequence[float]],
    options: Sequence[Mapping[str, Any]],
    seeds: Iterable[int],
    *,
    batches: Callable[[int], list[Episode]] = batch,
    tolerance: float = 1e-9,
) -> None:
    """Every seed's batch under one set of options, in turn."""
    for seed in seeds:
        episodes = batches(seed)
        chosen = options[seed // 2 % len(options)]  # chains and forests alternate, so each option set meets both
        fast = assign(Turns.from_episodes(episodes), name, **chosen).advantage
        slow = reference(episodes, **chosen)
        np.testing.assert_allclose(
            fast, slow, rtol=tolerance, atol=tolerance, err_msg=f"{name}, batch {seed}, options {dict(chosen)}"
        )
