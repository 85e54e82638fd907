"""The parameters of a reader as the text of a flag: ``name=value; other=[1, 2]``."""

from __future__ import annotations

import ast
import re
from typing import Any

from tarkit.errors import UsageError, printable

# Up to a semicolon that is not in quotes. A quote that is not closed is a character like others.
_PARAMETER = re.compile(r"(?:[^;'\"]|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|['\"])+", re.DOTALL)


def parse_reader_params(text: str) -> dict[str, Any]:
    """Parse keyword arguments such as ``table=clicks; columns=["a", "b"]; records_per_task=64``.

    A value is a Python literal (a number, a text in quotes, True, None, a list, tuple or dict of
    such); any other value is taken as plain text. Nothing is evaluated.

    Raises:
        UsageError: a part has no ``=``, its name is not an identifier, or a name is repeated.
    """
    found: dict[str, Any] = {}
    for part in _PARAMETER.findall(text):
        if not part.strip():
            continue
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not name.isidentifier():
            raise UsageError(f"{printable(part.strip())!r} is not NAME=VALUE; parameters are separated by ';'")
        if name in found:
            raise UsageError(f"the parameter {name} is given twice")
        found[name] = _value(value)
    return found


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text
