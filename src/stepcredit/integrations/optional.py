"""Packages that an integration needs and stepcredit does not: imported when used, missed with one sentence."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from stepcredit.core.errors import MissingExtraError, missing_extra


def require(module: str, purpose: str, *, extra: str | None = None) -> Any:
    """The module, typed ``Any`` because no type checker can count on it being there.

    Args:
        module: full name of the module.
        purpose: who needs it, the start of a sentence ("Reading parquet files").
        extra: the extra of stepcredit that brings its package; without one, the package is named itself.

    Raises:
        MissingExtraError: its package is not installed; says what to install.
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        if extra is not None:
            raise missing_extra(package, extra, purpose) from None
        raise MissingExtraError(f"{purpose} needs {package}, which is not installed: pip install {package}") from None
