"""stepcredit: step-level credit for long-horizon language-model agents."""

from __future__ import annotations

from stepcredit.core.credit import Credit
from stepcredit.core.episodes import Episode, Parent, Turn
from stepcredit.core.errors import (
    CheckpointError,
    EnvironmentFaultError,
    FileFormatError,
    InputError,
    MissingExtraError,
    NumericsError,
    OptionError,
    StepcreditError,
)
from stepcredit.core.files import read_episodes, read_turns, write_credit, write_episodes
from stepcredit.core.turns import Turns
from stepcredit.credit.catalogue import assign

__version__ = "0.1.0"

__all__ = [
    "CheckpointError",
    "Credit",
    "EnvironmentFaultError",
    "Episode",
    "FileFormatError",
    "InputError",
    "MissingExtraError",
    "NumericsError",
    "OptionError",
    "Parent",
    "StepcreditError",
    "Turn",
    "Turns",
    "__version__",
    "assign",
    "read_episodes",
    "read_turns",
    "write_credit",
    "write_episodes",
]
