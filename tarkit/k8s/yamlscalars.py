"""What a plain word of a manifest stands for: as kubectl reads it, which is neither YAML 1.1 nor 1.2.

The table is that of sigs.k8s.io/yaml (goyaml.v2, resolve.go), with which kubectl turns YAML into JSON: ``y`` and ``on``
are true, ``1e3`` and ``0o17`` and ``08`` are numbers, ``12:30`` is a text. A test asks kubectl itself.
"""

from __future__ import annotations

import math
import re
import struct

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_NO_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_BASES = (
    (re.compile("[-+]?0[xX][0-9a-fA-F]+"), 16),
    (re.compile("[-+]?0[bB][01]+"), 2),
    (re.compile("[-+]?0[oO]?[0-7]+"), 8),
    (re.compile("[-+]?[0-9]+"), 10),
)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
# What begins with a point may have _ between two digits only; elsewhere all _ are dropped first.
_POINT_FLOAT = re.compile(r"\.[0-9](?:_?[0-9])*(?:[eE][-+]?[0-9](?:_?[0-9])*)?")
_INTEGERS = range(-(2**63), 2**64)


def plain_value(text: str) -> bool | int | float | str | None:
    """The value of a plain scalar, as Go has it. Infinite and NaN: what JSON does not have, and kubectl refuses."""
    if not text or text[0] not in "+-.0123456789":
        return _WORDS.get(text, text)
    if _NO_JSON.fullmatch(text):
        return float(text.lower().replace(".", ""))
    digits = text.replace("_", "")
    if text[0] == ".":
        return _number(digits, text) if _POINT_FLOAT.fullmatch(text) else text
    for form, base in _BASES:
        if form.fullmatch(digits):
            value = int(re.sub("^([-+]?)0[xXbBoO]", r"\1", digits), base)
            if value in _INTEGERS:
                return value
            break
    return _number(digits, text) if _FLOAT.fullmatch(digits) else text


def _number(digits: str, text: str) -> float | str:
    value = float(digits)
    return text if math.isinf(value) else value


def json_number(value: int | float) -> int | float:
    """The number as a server reads it: whole ones are integers, however they are written.

    Raises:
        ValueError: it is infinite or NaN, which JSON does not have.
    """
    if not math.isfinite(value):
        raise ValueError("JSON has no such number")
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**63 else value


def key_text(key: object) -> str | None:
    """The text that kubectl makes of a plain key; None if it refuses it."""
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int):
        return str(key) if key < 2**63 else None
    return _float_text(key) if isinstance(key, float) else key if isinstance(key, str) else None


def _float_text(value: float) -> str:
    """Go's ``FormatFloat(value, 'g', -1, 32)``: the fewest digits that give the same number of 32 bits."""
    try:
        wanted = struct.pack("<f", value)
    except OverflowError:
        return ".inf" if value > 0 else "-.inf"
    text = next(text for n in range(17) if struct.pack("<f", float(text := f"{value:.{n}e}")) == wanted)
    mantissa, _, exponent = text.partition("e")
    if not -4 <= int(exponent) < 6:
        return text
    return f"{float(text):.{max(0, len(mantissa.partition('.')[2]) - int(exponent))}f}"
