"""JSON as RFC 8259 has it, both ways.

NaN and Infinity are not JSON. Python and webdataset write and read them all the same; jq 1.6 reads NaN as null and
Infinity as 1.8e308 without an error, and browsers and Go refuse the whole document. So they are refused, when writing
and when reading.
"""

from __future__ import annotations

import json
from typing import Any


def encode_json(value: Any) -> bytes:
    """The value as JSON in UTF-8. A str is taken to be JSON text already, and passes if it is."""
    if isinstance(value, str):
        try:
            _DECODER.decode(value)
        except ValueError as error:
            hint = "pass json.dumps(text) for a JSON string, or call the field txt"
            raise TypeError(f"as text it must be JSON: {error}; {hint}") from None
        return value.encode("utf-8")
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    _refuse_other_keys(value)
    return text.encode("utf-8")


def _refuse_other_keys(value: Any) -> None:
    """json.dumps makes text of numbers that are keys, and may make two keys the same."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"keys of a JSON object are text, and {key!r} is {type(key).__name__}")
            _refuse_other_keys(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _refuse_other_keys(inner)


def decode_json(data: bytes) -> Any:
    """The value of a JSON document in UTF-8, UTF-16 or UTF-32."""
    return _DECODER.decode(data.decode(json.detect_encoding(data)))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON (RFC 8259); leave the field as bytes, and read it with Python's json.loads")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
