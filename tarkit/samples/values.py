"""Values to bytes and back: whole numbers, JSON, MessagePack, CBOR, and NumPy arrays.

What does not fit raises.

NaN and Infinity are not JSON (RFC 8259). Python and webdataset write and read them all the same; jq
1.6 reads NaN as null and Infinity as 1.8e308 without an error, and browsers and Go refuse the whole
document. So they are refused, when writing and when reading. So are arrays of objects, which would
be pickles.
"""

from __future__ import annotations

import io
import json
import operator
import re
from collections.abc import Mapping
from typing import Any

from tarkit.extras import library

_DECIMAL = re.compile(rb"\s*[+-]?[0-9]+\s*")


def encode_integer(value: Any) -> bytes:
    """A whole number in decimal digits."""
    if isinstance(value, str):
        data = value.encode("utf-8")
        if not _DECIMAL.fullmatch(data):
            raise TypeError("as text it must be a whole number; pass bytes to keep it as it is, or call the field txt")
        return data
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError("it must be a whole number")
    return str(operator.index(value)).encode("ascii")


def decode_integer(data: bytes) -> int:
    """The whole number that decimal digits are."""
    if not _DECIMAL.fullmatch(data):
        raise ValueError(f"{data[:40]!r} is not a whole number")
    return int(data)


def encode_msgpack(value: Any) -> bytes:
    """The value as MessagePack."""
    _refuse_text(value, "msgpack.packb(text)")
    return bytes(library("msgpack", "the msgpack codec", "msgpack").packb(value))


def decode_msgpack(data: bytes) -> Any:
    """The value of a MessagePack document."""
    # Maps with numbers as keys can be written, so they must be readable.
    return library("msgpack", "the msgpack codec", "msgpack").unpackb(data, strict_map_key=False)


def encode_cbor(value: Any) -> bytes:
    """The value as CBOR (RFC 8949)."""
    _refuse_text(value, "cbor2.dumps(text)")
    return bytes(library("cbor2", "the cbor codec", "cbor").dumps(value))


def decode_cbor(data: bytes) -> Any:
    """The value of a CBOR document."""
    stream = io.BytesIO(data)
    value = library("cbor2", "the cbor codec", "cbor").load(stream)
    _refuse_rest(stream, data, "value")
    return value


def _refuse_text(value: object, instead: str) -> None:
    """A str may be meant as the value, or as what is encoded already, as webdataset takes it."""
    if isinstance(value, str):
        raise TypeError(f"text alone is not encoded; pass a dict or list, or the bytes of {instead}")


def encode_json(value: Any) -> bytes:
    """The value as JSON in UTF-8.

    A str is taken to be JSON text already, and passes if it is.
    """
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


def encode_npy(value: Any) -> bytes:
    """An array as an ``.npy`` file."""
    numpy = library("numpy", "the npy codec", "images")
    if not isinstance(value, (numpy.ndarray, numpy.generic)):
        raise TypeError("pass a numpy array")
    stream = io.BytesIO()
    numpy.lib.format.write_array(stream, numpy.asarray(value), allow_pickle=False)
    return stream.getvalue()


def decode_npy(data: bytes) -> Any:
    """The array of an ``.npy`` file."""
    numpy = library("numpy", "the npy codec", "images")
    stream = io.BytesIO(data)
    array = numpy.lib.format.read_array(stream, allow_pickle=False)
    _refuse_rest(stream, data, "array")
    return array


def encode_npz(value: Any) -> bytes:
    """A dict of arrays as an ``.npz`` file; the same arrays give the same bytes."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError("pass a dict of names and numpy arrays")
    import zipfile

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in value.items():
            # The time, system and mode are fixed, so that the same arrays give the same bytes
            # anywhere.
            entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, 0o600 << 16
            archive.writestr(entry, encode_npy(array))
    return stream.getvalue()


def decode_npz(data: bytes, max_bytes: int) -> dict[str, Any]:
    """Names and arrays of an ``.npz`` file, which may have ``max_bytes`` without its compression."""
    import zipfile

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        # No more than an entry says is read of it.
        if (size := sum(entry.file_size for entry in archive.infolist())) > max_bytes:
            raise ValueError(f"its arrays have {size} bytes, more than max_bytes={max_bytes}")
        return {name.removesuffix(".npy"): decode_npy(archive.read(name)) for name in archive.namelist()}


def _refuse_rest(stream: io.BytesIO, data: bytes, what: str) -> None:
    """A value must be all that there is: what follows it would be lost."""
    if stream.tell() != len(data):
        raise ValueError(f"{len(data) - stream.tell()} bytes follow the {what}")
