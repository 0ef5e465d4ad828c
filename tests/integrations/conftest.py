"""What the tests inside engines share: a tiny household agent, built once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# Engines bring packages called "tests" of their own, so what is shared here is imported from this folder.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def agent_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model folder of a tiny agent that wins some episodes of two tasks."""
    from tiny_agent import build_agent

    folder = tmp_path_factory.mktemp("agent")
    build_agent(folder)
    return folder
