"""Encode and decode whole numbers, JSON, MessagePack, CBOR, and NumPy arrays.

A value that does not fit raises ValueError or TypeError.

NaN and Infinity are not JSON (RFC 8259). Python and webdataset write and read them; jq 1.6 reads
NaN as null and Infinity as 1.8e308 without an error, and browsers and Go reject the whole document.
So they are rejected when writing and when reading. So are arrays of objects, which would be
pickles.
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
    """Encode a whole number in decimal digits."""
    if isinstance(value, str):
        data = value.encode("utf-8")
        if not _DECIMAL.fullmatch(data):
            raise TypeError("as text it must be a whole number; pass bytes to keep it as it is, or call the field txt")
        return data
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError("it must be a whole number")
    return str(operator.index(value)).encode("ascii")


def decode_integer(data: bytes) -> int:
    """Decode a whole number from decimal digits."""
    if not _DECIMAL.fullmatch(data):
        raise ValueError(f"{data[:40]!r} is not a whole number")
    return int(data)


def encode_msgpack(value: Any) -> bytes:
    """Encode a value as MessagePack."""
    _refuse_text(value, "msgpack.packb(text)")
    return bytes(library("msgpack", "the msgpack codec", "msgpack").packb(value))


def decode_msgpack(data: bytes) -> Any:
    """Decode a MessagePack document."""
    # Maps with numbers as keys can be written, so it must be possible to read them.
    return library("msgpack", "the msgpack codec", "msgpack").unpackb(data, strict_map_key=False)


def encode_cbor(value: Any) -> bytes:
    """Encode a value as CBOR (RFC 8949)."""
    _refuse_text(value, "cbor2.dumps(text)")
    return bytes(library("cbor2", "the cbor codec", "cbor").dumps(value))


def decode_cbor(data: bytes) -> Any:
    """Decode a CBOR document."""
    stream = io.BytesIO(data)
    value = library("cbor2", "the cbor codec", "cbor").load(stream)
    _refuse_rest(stream, data, "value")
    return value


def _refuse_text(value: object, instead: str) -> None:
    """Reject a str: it may be the value, or the encoded document, as webdataset takes it."""
    if isinstance(value, str):
        raise TypeError(f"text alone is not encoded; pass a dict or list, or the bytes of {instead}")


def encode_json(value: Any) -> bytes:
    """Encode a value as JSON in UTF-8.

    A str is taken as JSON text already, and must be valid JSON.
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
    """Reject keys that are not text: json.dumps would convert them, and could make two the same."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"keys of a JSON object are text, and {key!r} is {type(key).__name__}")
            _refuse_other_keys(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _refuse_other_keys(inner)


def decode_json(data: bytes) -> Any:
    """Decode a JSON document in UTF-8, UTF-16 or UTF-32."""
    return _DECODER.decode(data.decode(json.detect_encoding(data)))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON (RFC 8259); leave the field as bytes, and read it with Python's json.loads")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def encode_npy(value: Any) -> bytes:
    """Encode an array as an ``.npy`` file."""
    numpy = library("numpy", "the npy codec", "images")
    if not isinstance(value, (numpy.ndarray, numpy.generic)):
        raise TypeError("pass a numpy array")
    stream = io.BytesIO()
    numpy.lib.format.write_array(stream, numpy.asarray(value), allow_pickle=False)
    return stream.getvalue()


def decode_npy(data: bytes) -> Any:
    """Decode the array of an ``.npy`` file."""
    numpy = library("numpy", "the npy codec", "images")
    stream = io.BytesIO(data)
    array = numpy.lib.format.read_array(stream, allow_pickle=False)
    _refuse_rest(stream, data, "array")
    return array


def encode_npz(value: Any) -> bytes:
    """Encode a dict of arrays as an ``.npz`` file; the same arrays give the same bytes."""
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
    """Decode an ``.npz`` file of at most ``max_bytes`` bytes without compression.

    Returns:
        Arrays by name.
    """
    import zipfile

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        # zipfile reads no more bytes of an entry than its declared size.
        if (size := sum(entry.file_size for entry in archive.infolist())) > max_bytes:
            raise ValueError(f"its arrays have {size} bytes, more than max_bytes={max_bytes}")
        return {name.removesuffix(".npy"): decode_npy(archive.read(name)) for name in archive.namelist()}


def _refuse_rest(stream: io.BytesIO, data: bytes, what: str) -> None:
    """Reject bytes after a value: they would be lost."""
    if stream.tell() != len(data):
        raise ValueError(f"{len(data) - stream.tell()} bytes follow the {what}")
