"""One nursery for a whole test process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.killing import Unhurt, run_unhurt, train_scenario
from faults.nursery import Nursery


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Runs verbs in processes that can be hurt."""
    with Nursery() as opened:
        yield opened


@pytest.fixture(scope="session")
def trained(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Unhurt]:
    """A folder whose ``run`` was trained in peace, and what it holds; nobody may change it."""
    folder = tmp_path_factory.mktemp("trained") / "trained"
    return folder, run_unhurt(nursery, train_scenario("train", ()), folder)
