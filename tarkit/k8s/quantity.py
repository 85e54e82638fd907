"""Amounts of a resource as Kubernetes writes them: ``500m`` CPUs, ``4Gi`` of memory.

The grammar and the canonical form are those of the type Quantity of k8s.io/apimachinery
(pkg/api/resource/quantity.go; the comment on the type, ParseQuantity, CanonicalizeBytes).
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache

from tarkit.errors import UsageError, printable

_FORM = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:([numkMGTPE]?|[KMGTPE]i)|[eE]([+-]?[0-9]{1,4}))")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_LIKELY = re.compile(r"([+-]?[0-9.]+) ?([kmgtpe])i?b?", re.IGNORECASE)
_NANO = 10**9
_LARGEST = 2**63 - 1
_LONGEST = 60
_DIGITS = 18


def parse_quantity(text: str | int | float) -> Decimal:
    """Return the number that a quantity stands for, exactly as a server reads it.

    White space around it is ignored, fractions below 10^-9 are rounded away from zero, and most
    values above 2^63 - 1 are replaced by that limit.

    Raises:
        UsageError: the text is not a quantity, or servers would read a different number from it.
    """
    # Exact: 2^63 - 1 with nine digits after the point has as many digits as Python's decimals.
    return Decimal(_read(text)[0]).scaleb(-9).normalize()


def canonical(value: str | int | float) -> str:
    """Return a quantity as a server stores it: no fraction, and the largest exact suffix.

    The kind of suffix stays as it was: ``4096Mi`` is ``4Gi``, ``4000M`` is ``4G``, ``4000e3`` is
    ``4e6``; without one it is decimal. Binary suffixes become decimal below 1024 and for fractions
    (``0.1Ki`` is ``102400m``). A server keeps a few texts that are not in this form, such as
    ``1.500`` and ``+1``; here they are rewritten, too, and a server does not change the result.
    """
    return _written(*_read(value))


def total(one: str | int | float, other: str | int | float) -> str:
    """Add two quantities, in canonical form.

    The sum of two kinds is binary.
    """
    (nanos, kind), (more, other_kind) = _read(one), _read(other)
    return _written(nanos + more, "binary" if "binary" in (kind, other_kind) else kind)


def _written(nanos: int, kind: str) -> str:
    if nanos == 0:
        return "0"
    if kind == "binary" and abs(nanos) >= 1024 * _NANO and nanos % _NANO == 0:
        number, power = nanos // _NANO, 0
        while number % 1024 == 0 and power < len(_BINARY):
            number, power = number // 1024, power + 1
        return f"{number}{['', *_BINARY][power]}"
    number, power = nanos, -9
    while number % 1000 == 0 and (power < 18 or kind == "exponent"):
        number, power = number // 1000, power + 3
    if kind == "exponent":
        return f"{number}e{power}" if power else str(number)
    return f"{number}{_DECIMAL_SUFFIX[power]}"


def whole(value: str | int | float) -> str:
    """Round a quantity up to whole units, in canonical form: ``0.1Gi`` is ``107374183``."""
    nanos, kind = _read(value)
    return _written(-(-nanos // _NANO) * _NANO, kind)


def is_milli(text: str | int | float) -> bool:
    """Return True if a quantity is in thousandths or less, which only CPUs have."""
    return str(text).strip()[-1:] in ("m", "u", "n")


def _read(value: str | int | float) -> tuple[int, str]:
    """Return the number in units of 10^-9, and its form: decimal, binary or exponent."""
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        raise UsageError(f"{printable(str(value))} is not a quantity: {_advice(str(value))}")
    return _read_text(str(value))


@lru_cache(maxsize=256)
def _read_text(value: str) -> tuple[int, str]:
    text = value.strip()
    match = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise UsageError(f"{printable(value)} is not a quantity: {_advice(value)}")
    sign, digits, suffix, exponent = match.groups()
    whole, _, fraction = digits.partition(".")
    mantissa = int(f"{whole}{fraction}" or "0")
    kind, power, factor = "decimal", -len(fraction) + 9, 1
    if exponent is not None:
        kind, power = "exponent", power + int(exponent)
    elif suffix in _BINARY:
        kind, factor = "binary", 1024 ** _BINARY[suffix]
    else:
        power += _DECIMAL[suffix]
    # Powers of thousands of digits take time, and lead to the same result as these.
    power = max(-200, min(power, 200))
    nanos = mantissa * factor * 10**power if power >= 0 else -(-mantissa * factor // 10**-power)
    # Servers keep a decimal number of few digits as it is, and take 2^63 - 1 for any other that is
    # larger.
    if nanos > _LARGEST * _NANO and (kind == "binary" or len(whole.lstrip("0") + fraction) > _DIGITS):
        nanos, kind = _LARGEST * _NANO, "decimal"
    if kind == "decimal" and nanos >= 1000 * _NANO * 10 ** _DECIMAL["E"]:
        raise UsageError(f"{text} is too much: servers have no suffix for 1000E, and keep it as 1")
    return (-nanos if sign == "-" else nanos), kind


def _advice(text: str) -> str:
    """Return the probable intention: 4GB, 4 gib and 4g are 4G or 4Gi."""
    match = _LIKELY.fullmatch(text)
    if match is None or len(text) > _LONGEST:
        return "write a number with a suffix or without, such as 2, 500m, 4G or 4Gi"
    number, letter = match[1], match[2].upper()
    power = "KMGTPE".index(letter) + 1
    decimal = "k" if letter == "K" else letter
    return f"write {number}{decimal} (10^{3 * power} bytes) or {number}{letter}i (2^{10 * power} bytes)"
