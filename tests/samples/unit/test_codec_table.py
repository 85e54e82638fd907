"""Every codec with every type of value: it comes back as it was, or it is refused.

Nothing changes in silence.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from tarkit.errors import EncodeError
from tarkit.samples.codecs import decode_field, encode_field

NUMBERS = ["cls", "cls2", "class", "count", "index", "inx", "id"]
TEXT = ["txt", "text", "transcript", "html", "htm"]
JSON = ["json", "jsn"]
BINARY = ["mp", "msgpack", "msg", "cbor", "npy", "npz"]
IMAGES = ["jpg", "jpeg", "img", "image", "png", "ppm", "pgm", "pbm", "tiff", "tif", "webp"]
REFUSED = ["pyd", "pickle", "pkl", "pth", "ten", "tenbin", "tb"]
NO_CODEC = ["bin", "mp4", "unheard-of"]
FIELDS = [*NUMBERS, *TEXT, *JSON, *BINARY, *IMAGES, *REFUSED, *NO_CODEC]

VALUES: dict[str, Any] = {
    "bytes": b"\x00s",
    "bytearray": bytearray(b"\x00s"),
    "memoryview": memoryview(b"\x00s"),
    "no bytes": b"",
    "letter": "s",
    "no text": "",
    "digits": "3",
    "JSON text": '{"a": 1}',
    "JSON string": '"s"',
    "NaN text": "NaN",
    "accents": "é猫",
    "int": 3,
    "negative": -3,
    "large": 2**80,
    "True": True,
    "False": False,
    "None": None,
    "float": 3.0,
    "half": 0.5,
    "nan": math.nan,
    "inf": math.inf,
    "complex": 1j,
    "list": [1, "a", None],
    "empty list": [],
    "tuple": (1, 2),
    "set": {1},
    "dict": {"a": [1]},
    "numbers as keys": {1: 2},
    "nested nan": {"a": [math.nan]},
    "bytes inside": [b"\xff"],
    "array": np.arange(3.0),
    "arrays": {"a": np.arange(3)},
    "object": object(),
    "type": int,
    **{f"np.{kind.__name__}": kind(1) for kind in (np.bool_, np.int8, np.uint64, np.float16, np.float32, np.float64)},
    "np.str_": np.str_("s"),
    "np.bytes_": np.bytes_(b"s"),
    "np.datetime64": np.datetime64("2026-01-01"),
}  # fmt: skip


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("field", FIELDS)
def test_a_value_comes_back_or_is_refused(field: str, packed: str) -> None:
    for name, value in VALUES.items():
        try:
            data = encode_field(field + packed, value)
        except EncodeError as error:
            assert str(error).startswith(f"field '{field}{packed}', a value of type ") and "\n" not in str(error)
            assert not isinstance(value, (bytes, bytearray, memoryview)), name
            continue
        assert type(data) is bytes
        if isinstance(value, (bytes, bytearray, memoryview)):
            assert data == value, name
            continue
        back = decode_field(field + packed, data)
        expected = _expected(field, packed, value)
        assert _equal(back, expected), f"{name}: {value!r} under {field}{packed} came back as {back!r}"


def _expected(field: str, packed: str, value: Any) -> Any:
    """What must come back of a value that was taken."""
    if isinstance(value, str):
        if field in NUMBERS:
            return int(value)
        if field in JSON:
            return json.loads(value)
        if field in NO_CODEC:
            # It stays the bytes that were written, of gzip with .gz.
            return encode_field(field + packed, value.encode()) if not packed else encode_field(field + packed, value)
    return value


def _equal(back: Any, value: Any) -> bool:
    if isinstance(value, (np.ndarray, np.generic)):
        # A scalar comes back from npy as an array without dimensions, elsewhere as Python's number.
        return bool(np.array_equal(back, value)) and (not isinstance(back, np.ndarray) or back.dtype == value.dtype)
    if isinstance(value, dict):
        return (
            type(back) is dict and list(back) == list(value) and all(_equal(back[each], value[each]) for each in value)
        )
    if isinstance(value, (list, tuple)):
        # Documented: tuples become lists.
        return type(back) is list and len(back) == len(value) and all(map(_equal, back, value))
    if isinstance(value, float) and math.isnan(value):
        return isinstance(back, float) and math.isnan(back)
    return type(back) is type(value) and bool(back == value)


def test_the_table_has_every_codec() -> None:
    from tarkit.samples import codecs

    known = {*codecs._ENCODERS, *codecs._DECODERS, *codecs._REFUSED}
    assert known == set(FIELDS) - set(NO_CODEC)
