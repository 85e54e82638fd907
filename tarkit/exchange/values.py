"""Values by which samples sort: what a user names, and its bytes in a position.

Values of different kinds sort as in jq: false, true, numbers, texts. Numbers compare by their exact
values, whole ones with others, too; texts by their bytes in UTF-8.
"""

from __future__ import annotations

import hashlib
import math
import numbers
import re
import struct
import sys
from collections.abc import Callable
from typing import Any

from tarkit.errors import DataError, UsageError, printable, quoted
from tarkit.exchange.positions import text_of, text_value
from tarkit.mapping.mappererrors import one_line
from tarkit.mapping.pythonworker import load
from tarkit.samples.rawsamples import RawSample
from tarkit.samples.sample import Sample
from tarkit.steps.where import SampleValue, kind_of_value, number_in
from tarkit.store.fieldfile import FieldFile

By = str | Callable[[Sample], Any]
"""``key``, ``size``, a field, a value of the language of ``--where``, one of these with
``:number``, ``FILE.py:function`` or ``module:function``; or a function of a sample.
"""
ValueOf = Callable[[RawSample], bytes]
"""Function from a sample to the bytes of its value, of which none begins with another one.

It raises :class:`ValueError` with the reason if the sample has none.
"""
MOST_TEXT = 1 << 20
"""Largest number of bytes of a text by which samples sort."""
_FALSE, _TRUE, _NUMBER = b"\0\1", b"\0\2", b"\0\3"  # before those of texts, which begin with 1
_DOUBLE = struct.Struct(">d")
_BITS = struct.Struct(">Q")
_SIGN, _ALL = 1 << 63, (1 << 64) - 1
_EXACT = 2.0**53
"""From here on, two whole numbers can have the same double."""
_AS_NUMBER = ":number"
_FUNCTION = re.compile(r"(?s:.+)\.py:[\w.]+|[^\W\d][\w.]*:[^\W\d][\w.]*")
_DOTTED = re.compile(r"([^\W\d]\w*(?:\.\w+)*?\.json)((?:\.\w+)*)")
"""A field whose name ends in ``.json``, and the path of a value in it."""


def number_value(number: float) -> bytes:
    """Return the value of a number: bytes that sort like the number.

    They are the largest double that is not above it, big-endian: the sign bit inverted, or all bits
    of a negative one. From 2**53 on, the rest follows: its length in a byte, and its bytes.

    Args:
        number: a whole number of any size, or a double.

    Raises:
        ValueError: it is NaN, or beyond the largest double.
    """
    if isinstance(number, float) and math.isnan(number):
        raise ValueError("is NaN, which has no place in an order")
    if abs(number) > sys.float_info.max:
        raise ValueError("is beyond the largest double, 1.8e308")
    double = number + 0.0 if abs(number) < _EXACT else _double_below(number)  # 0.0 for -0.0
    (bits,) = _BITS.unpack(_DOUBLE.pack(double))
    value = _NUMBER + _BITS.pack(bits ^ (_ALL if bits & _SIGN else _SIGN))
    if -_EXACT < double < _EXACT:
        return value
    rest = int(number) - int(double)
    length = (rest.bit_length() + 7) // 8
    return value + bytes([length]) + rest.to_bytes(length, "big")


def _double_below(number: float) -> float:
    """Return the largest double that is not above a number, which is not above the largest."""
    try:
        double = float(number)
    except OverflowError:
        double = math.copysign(sys.float_info.max, number)
    return math.nextafter(double, -math.inf) if double > number else double


def plain_value(value: Any) -> bytes:
    """Return the bytes of a value of Python.

    Args:
        value: bytes, or a text, which is the same as its bytes in UTF-8; a number; True or False.

    Raises:
        ValueError: it is of another type, or has no place in an order.
    """
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        if len(value) > MOST_TEXT:
            raise ValueError(f"has {len(value)} bytes; a text to sort by may have {MOST_TEXT}")
        return text_value(value)
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, (int, float)):
        return number_value(value)
    if isinstance(value, numbers.Real):  # of NumPy, for example
        return number_value(int(value) if isinstance(value, numbers.Integral) else float(value))
    if value is None:
        raise ValueError("is missing or null")
    kind = kind_of_value(value) if isinstance(value, (list, dict)) else f"of type {type(value).__name__}"
    raise ValueError(f"is {kind}, and not a number, a text, true or false")


def value_of_samples(by: By) -> ValueOf:
    """Return the function that gives samples their values.

    Args:
        by: what to sort by, see :data:`By`.

    Raises:
        UsageError: the text is not one of those, or the function cannot be loaded.
    """
    if by == "key":
        return lambda sample: text_value(sample.key.encode("utf-8", "surrogateescape"))
    if by in ("size", f"size{_AS_NUMBER}"):
        return lambda sample: number_value(content_size(sample))
    if callable(by) or is_function(by):
        return _of_function(by)
    return _of_text(by)


def content_size(sample: RawSample) -> int:
    """Return the bytes of content of all fields of a sample."""
    return sum(map(int, sample.words.split(b"\0")[2::4]))


def is_function(by: str) -> bool:
    """Return True if a text names a function: ``FILE.py:function`` or ``module:function``."""
    if by.endswith(_AS_NUMBER) and not by.endswith(f".py{_AS_NUMBER}"):
        return False
    return _FUNCTION.fullmatch(by) is not None


def identity_of(by: By, work_id: str | None) -> dict[str, Any]:
    """Return plain values that are equal for functions that give the same values.

    Args:
        work_id: name for what a function does that has no name of its own.

    Raises:
        UsageError: a function has no name, and no work_id; or its file cannot be read.
    """
    if callable(by):
        if work_id is None:
            raise UsageError("give a work_id with a function that is not named: records cannot show what it does")
        return {"by": None, "work_id": work_id}
    place = by.rpartition(":")[0]
    if not is_function(by) or not place.endswith(".py"):
        return {"by": by}
    try:
        with open(place, "rb") as file:
            return {"by": by, "function_sha256": hashlib.sha256(file.read()).hexdigest()}
    except OSError as error:
        raise UsageError(f"--by {quoted(by)}: the file cannot be read: {error.strerror}") from None


def _of_function(by: By) -> ValueOf:
    shown = "the function" if callable(by) else printable(by)
    try:
        function = load(by)
    except UsageError:
        raise
    except Exception as error:  # whatever the user's module raises
        raise UsageError(f"--by {shown} cannot be loaded: {printable(one_line(error))}") from None

    def value(sample: RawSample) -> bytes:
        fields: Sample = {"__key__": sample.key}
        for name, content in sample.fields().items():
            fields[name] = content.read() if isinstance(content, FieldFile) else content
        try:
            found = function(fields)
        except Exception as error:  # of the user's function: it fails this sample
            raise ValueError(f"{shown} raised {one_line(error)}") from None
        return _named(plain_value, found, f"the result of {shown}")

    return value


def _of_text(by: str) -> ValueOf:
    shown = by.removesuffix(_AS_NUMBER)
    encode = plain_value if shown == by else _numeric_value
    # A name such as meta.json.width, which the language would take for a path in the field meta.
    dotted = _DOTTED.fullmatch(shown)
    value = SampleValue(f"field({dotted[1]!r}){dotted[2]}" if dotted else shown, "--by")
    return _of_expression(value, shown, encode) if value.field is None else _of_field(value.field, encode)


def _of_field(field: str, encode: Callable[[Any], bytes]) -> ValueOf:
    shown = f"the field {printable(field)}"

    def value(sample: RawSample) -> bytes:
        content = sample.content(field)
        if content is None:
            raise ValueError(f"it has no field {printable(field)}")
        return _named(encode, content.read() if isinstance(content, FieldFile) else content, shown)

    return value


def _of_expression(value_of: SampleValue, shown: str, encode: Callable[[Any], bytes]) -> ValueOf:
    names = [*value_of.fields]

    def value(sample: RawSample) -> bytes:
        found = {name: content for name in names if (content := sample.content(name)) is not None}
        try:
            value = value_of({"__key__": sample.key, **found})
        except DataError as error:
            raise ValueError(error.reason.removeprefix("--by: ")) from None
        if value is None and len(found) < len(names):
            lacking = next(name for name in names if name not in found)
            hint = f"; a field of the name {shown} is field({shown!r})" if shown.startswith(f"{lacking}.") else ""
            raise ValueError(f"it has no field {printable(lacking)}{printable(hint)}")
        return _named(encode, value, printable(shown))

    return value


def _numeric_value(value: Any) -> bytes:
    """Return the bytes of a number, or of the number that a text is."""
    if isinstance(value, (bytes, str)):
        text = value if isinstance(value, str) else value.decode("utf-8", "replace")
        if (number := number_in(text.strip())) is None:
            raise ValueError(f"is not a number: {printable(text.strip()[:40])!r}")
        return number_value(number)
    if isinstance(value, bool):
        raise ValueError("is true or false, and not a number")
    return plain_value(value)


def _named(encode: Callable[[Any], bytes], value: Any, shown: str) -> bytes:
    """Return the bytes of a value; an error names what the value is of."""
    try:
        return encode(value)
    except ValueError as error:
        raise ValueError(f"{shown} {error}") from None


def text_of_plain(value: bytes) -> str:
    """Return the text of the value that :func:`plain_value` gave these bytes."""
    if value in (_FALSE, _TRUE):
        return "true" if value == _TRUE else "false"
    if not value.startswith(_NUMBER):
        return text_of(value).decode("utf-8", "surrogateescape")
    (bits,) = _BITS.unpack_from(value, len(_NUMBER))
    (double,) = _DOUBLE.unpack(_BITS.pack(bits ^ (_SIGN if bits & _SIGN else _ALL)))
    if -_EXACT < double < _EXACT:
        return str(int(double)) if double.is_integer() else repr(double)
    return str(int(double) + int.from_bytes(value[len(_NUMBER) + _BITS.size + 1 :], "big"))
