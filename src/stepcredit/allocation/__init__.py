"""Which tasks to play and which states to branch: mixture fit, Root, Branch, semantic evidence."""

from stepcredit.allocation.allocator import Allocator, AllocatorState
from stepcredit.allocation.settings import (
    AllocationSettings,
    Quota,
    RootOutcome,
    Suffixes,
    SuffixOutcome,
    TaskInfo,
)
from stepcredit.allocation.states import StateGroup, Visits, state_groups
from stepcredit.core.encoder import BUNDLED_ENCODER, Encoder, SentenceEncoder

__all__ = [
    "BUNDLED_ENCODER",
    "AllocationSettings",
    "Allocator",
    "AllocatorState",
    "Encoder",
    "Quota",
    "RootOutcome",
    "SentenceEncoder",
    "StateGroup",
    "SuffixOutcome",
    "Suffixes",
    "TaskInfo",
    "Visits",
    "state_groups",
]
