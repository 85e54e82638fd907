"""Errors of a user's mapper: one line with the line in the user's file, and the user's frames."""

from __future__ import annotations

import inspect
import os
import sysconfig
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tarkit.errors import UsageError, escaped, shortened

_PACKAGES = ("/site-packages/", "/dist-packages/")
_MESSAGE = 4000
"""Largest number of characters of an exception's message: longer than a line, since a failed sample
keeps it.
"""
_LINE = 100
"""Largest number of characters of a source line that are shown."""


class AnswerError(TypeError):
    """A mapper returned a value that cannot become a sample."""


def why_not_callable(mapper: Callable[..., Any], *arguments: tuple[str, Any]) -> str | None:
    """Return the reason, in one line, why no call with these arguments can succeed, or None.

    Args:
        arguments: pairs of name and value.
    """
    name = getattr(mapper, "__qualname__", type(mapper).__qualname__)
    if inspect.iscoroutinefunction(mapper) or inspect.isasyncgenfunction(mapper):
        return f"the mapper {name} is an async function; write it with def: what it returns is the sample"
    try:
        # A decorator may take other arguments than the function that it wraps.
        signature = inspect.signature(mapper, follow_wrapped=False)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*(value for _, value in arguments))
    except TypeError as error:
        given = " and ".join(what for what, _ in arguments)
        return f"the mapper {name}{signature} is called with {given}: {error}"
    return None


def one_line(error: Exception) -> str:
    """Return the error, and the line in the user's file that raised it."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, UsageError):
        return text
    message = shortened(text.splitlines()[-1], _MESSAGE)
    if isinstance(error, AnswerError):
        return message
    return f"{type(error).__name__}: {message}{_user_line(error.__traceback__)}"


def traceback_text(error: Exception, skipped: str) -> str:
    """Return the traceback without its first frames in one file.

    Args:
        skipped: name of the file.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == skipped:
        trace = trace.tb_next
    lines = "".join(traceback.format_exception(type(error), error, trace)).splitlines()
    return "".join(f"{escaped(shortened(line))}\n" for line in lines)


def _user_line(trace: TracebackType | None) -> str:
    """Return the innermost line of a traceback that is in neither a library nor this package."""
    folders = os.path.dirname(os.path.dirname(__file__)), *map(sysconfig.get_path, ("stdlib", "platstdlib"))
    paths = tuple(os.path.join(each, "") for each in folders)
    for frame in reversed(traceback.extract_tb(trace)):
        path = frame.filename
        is_library = any(part in path for part in _PACKAGES) or path.startswith(("<frozen", *paths))
        if not is_library:
            line = f": {shortened(frame.line, _LINE)}" if frame.line else ""
            return f" ({os.path.basename(path)}:{frame.lineno}{line})"
    return ""
