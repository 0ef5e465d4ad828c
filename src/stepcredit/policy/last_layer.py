"""The last layer of a model, computed only where somebody reads what it says.

The output layer reads response tokens. In the last layer, all others matter as keys and values only: they need neither
queries nor a feed-forward part there. That is nearly half of a model of two layers, and a few percent of thirty.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import Tensor, nn

from stepcredit.policy.attention import Layout


@dataclass(frozen=True, slots=True)
class Selected:
    """A layout of which the last layer answers some places only.

    Attributes:
        layout: who sees whom.
        places: ``[M]`` ascending places of the row; the model's output has these alone.
    """

    layout: Layout
    places: Tensor

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        """Attention of the layers before the last: all of it."""
        return self.layout.attend(layer, query, key, value, scale)


class _StopLayerError(Exception):
    """Keys and values are there; what the layer would do next is not wanted."""


class _Caught:
    """Stands for a layout, keeps keys and values, and stops the layer."""

    key: Tensor
    value: Tensor

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        self.key, self.value = key, value
        raise _StopLayerError


@dataclass(frozen=True, slots=True)
class _Queries:
    """Attention of the selected places to keys and values of the whole row."""

    selected: Selected
    whole: _Caught

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        layout, places = self.selected.layout, self.selected.places
        return layout.attend(layer, query, self.whole.key, self.whole.value, scale, places)


def narrow_last_layer(model: Any) -> bool:
    """Let a model's last layer heed a ``Selected`` layout; False where its layers are not found.

    The layer keeps its weights and their names: only its class becomes one that knows the layout.
    """
    layers = getattr(model.base_model, "layers", None)
    if not isinstance(layers, nn.ModuleList) or not len(layers):
        return False
    last: Any = layers[-1]
    if not isinstance(last, _Narrowing):
        last.__class__ = _narrowing(last.__class__)
    return True


class _Narrowing:
    """Marks the classes that ``_narrowing`` makes."""


@cache
def _narrowing(kind: Any) -> type:
    """The layer class ``kind`` run twice: on the whole row for keys and values, on the selected places for the rest."""

    def forward(self: Any, hidden_states: Tensor, *more: Any, **arguments: Any) -> Any:
        selected = arguments.get("layout")
        if not isinstance(selected, Selected):
            return kind.forward(self, hidden_states, *more, **arguments)
        whole = _Caught()
        with suppress(_StopLayerError):
            kind.forward(self, hidden_states, *more, **{**arguments, "layout": whole})
        tokens, places = hidden_states.shape[1], selected.places.to(hidden_states.device)
        own = {name: _at(value, places, tokens) for name, value in arguments.items()}
        own["layout"] = _Queries(selected, whole)
        return kind.forward(self, hidden_states.index_select(1, places), *_at(more, places, tokens), **own)

    return type(kind.__name__, (_Narrowing, kind), {"forward": forward})


def _at(value: Any, places: Tensor, tokens: int) -> Any:
    """An argument of a layer at some places, if it has one value for each of ``tokens``: positions, rotations."""
    if isinstance(value, tuple):
        return tuple(_at(part, places, tokens) for part in value)
    if isinstance(value, Tensor) and value.ndim > 1 and value.shape[1] == tokens:
        return value.index_select(1, places)
    return value
