"""One writer at a time: a lock on an open file or folder, which the system releases when its holder ends, however."""

from __future__ import annotations

from pathlib import Path

from stepcredit.core.errors import CheckpointError


def hold(descriptor: int, path: Path, *, what: str, way_out: str) -> None:
    """Lock an open file or folder for this process until the descriptor is closed.

    Args:
        descriptor: of the open file or folder.
        path: what a second holder is told to be in use.
        what: who else holds it ("training").
        way_out: what to do then, as an order.

    Raises:
        CheckpointError: another one holds it.
    """
    import fcntl  # POSIX only; reading files must work without it

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CheckpointError(f"{str(path)!r} is in use by another {what}; {way_out}.") from None
