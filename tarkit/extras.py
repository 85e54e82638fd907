"""Libraries that are not always installed."""

from __future__ import annotations

import importlib
from typing import Any

from tarkit.errors import MissingExtraError


def library(name: str, needed_for: str, extra: str) -> Any:
    """The module ``name``, loaded when it is first needed.

    Raises:
        MissingExtraError: it is not installed; the message names the extra that brings it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtraError(needed_for, extra) from error
