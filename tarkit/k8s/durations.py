"""Durations as text: ``90s``, ``10m``, ``12h``, ``7d``."""

from __future__ import annotations

import re

from tarkit.errors import UsageError, printable

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def seconds(text: str, flag: str) -> float:
    """Return the seconds of a text such as ``90``, ``1.5h`` or ``7d``.

    Args:
        flag: the flag with this value, for the error message.
    """
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([smhdw]?)", text.strip())
    if match is None:
        raise UsageError(f"{flag} {printable(text)}: write a time such as 90s, 10m, 12h or 7d")
    return float(match[1]) * _SECONDS[match[2]]


def in_words(seconds: float) -> str:
    """Format seconds as ``45 s``, ``12 min``, ``2 h 05`` or ``3 d 4 h``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d}"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"
