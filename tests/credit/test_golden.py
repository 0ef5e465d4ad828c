"""Recorded numbers of every method on one stored file: what a version computes does not change by accident."""

from __future__ import annotations

import json

import numpy as np
import pytest

from golden.record import GOLDEN, ROLLOUTS, cases, episodes, given
from stepcredit.core.files import read_episodes, read_turns
from stepcredit.credit.catalogue import METHODS, assign


def test_the_stored_rollouts_are_the_generators() -> None:
    assert list(read_episodes(ROLLOUTS)) == episodes()


@pytest.mark.parametrize("name", METHODS)
def test_recorded_credit(name: str) -> None:
    turns = read_turns(ROLLOUTS)
    recorded = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    assert [case["options"] for case in recorded] == cases(name)
    for case in recorded:
        credit = assign(turns, name, **case["options"], **given(turns, name))
        expected = np.array(case["advantage"], dtype=np.float64)
        np.testing.assert_allclose(credit.advantage, expected, rtol=1e-9, atol=1e-9, err_msg=str(case["options"]))
