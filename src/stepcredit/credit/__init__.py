"""Credit estimators: pure functions from ``Turns`` to ``Credit``, one family a file."""
