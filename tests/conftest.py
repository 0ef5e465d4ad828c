"""Fixtures and settings every test shares."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parents[1]

# Derandomised: the same commit runs the same examples everywhere, so a red build can be reproduced.
hypothesis.settings.register_profile("stepcredit", derandomize=True, deadline=None)
hypothesis.settings.load_profile("stepcredit")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder with real benchmark data beside the checkout; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("STEPCREDIT_SHARED", ROOT.parent / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip("no shared/data beside the checkout (set STEPCREDIT_SHARED to its parent folder)")
    return folder
