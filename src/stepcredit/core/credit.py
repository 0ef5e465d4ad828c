"""Credit: what an estimator says about every turn of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Credit:
    """Credit per turn, aligned with the rows of the ``Turns`` it was computed from.

    Attributes:
        advantage: ``[N]`` float64; NaN exactly where the turn was not scored. Not scored is not zero.
        components: named parts of the advantage, each ``[N]`` float64 (for example ``episode``, ``step``, ``weight``).
        diagnostics: what is worth a look or a log line: plain numbers, or small dicts of plain numbers.
    """

    advantage: FloatArray
    components: Mapping[str, FloatArray] = field(default_factory=dict)
    diagnostics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def scored(self) -> BoolArray:
        """``[N]`` bool: which turns the method scored."""
        return ~np.isnan(self.advantage)
