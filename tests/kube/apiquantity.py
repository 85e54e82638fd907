"""Quantities as the API server reads and rewrites them ("1000m" is kept as "1")."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

_FORM = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?\d+)?$")
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def amount(text: str) -> Decimal:
    """The number that a quantity stands for; ValueError if it is none."""
    found = _FORM.match(str(text))
    if not found:
        raise ValueError(f"unable to parse quantity's suffix: {text}")
    number, suffix = Decimal(found[1]), found[2] or ""
    if suffix in _BINARY:
        return number * Decimal(1024) ** _BINARY[suffix]
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    return number.scaleb(int(suffix[1:]))


def canonical(text: str) -> str:
    """The form in which the server keeps it: no fractions, the largest suffix that fits."""
    value = amount(text)
    found = _FORM.match(str(text))
    suffix = (found[2] or "") if found else ""
    if value == 0:
        return "0"
    if suffix in _BINARY and abs(value) >= 1024:
        for name, power in sorted(_BINARY.items(), key=lambda item: -item[1]):
            if value % 1024**power == 0:
                return f"{int(value / 1024**power)}{name}"
    if suffix[:1] in ("e", "E") and suffix not in _DECIMAL:
        exponent = 0
        while value % 1000 == 0:
            value, exponent = value / 1000, exponent + 3
        return f"{int(value)}" + (f"e{exponent}" if exponent else "")
    for name, power in sorted(_DECIMAL.items(), key=lambda item: -item[1]):
        if value.scaleb(-power) % 1 == 0:
            return f"{int(value.scaleb(-power))}{name}"
    return f"{int(value.scaleb(9).to_integral_value(ROUND_CEILING))}n"
