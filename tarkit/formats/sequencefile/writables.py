"""Encode and decode Hadoop's writables, the types of keys and values, by class name.

Text is a vint length and UTF-8; BytesWritable an int32 length and bytes; NullWritable nothing. The
numbers are big-endian, of a fixed size, or a vint. UTF8, which Hadoop had before Text, has a length
of two bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import accumulate
from operator import add
from typing import Any, NamedTuple

from tarkit.formats.sequencefile.vint import vint_at, vint_bytes

PACKAGE = "org.apache.hadoop.io."


class Writable(NamedTuple):
    """The functions of a class of keys or values.

    They raise ValueError; encode also struct.error or TypeError.

    Attributes:
        encode: function from a value to its bytes.
        decode: function from bytes to the value.
        decode_many: function from a buffer and the lengths of adjacent values in it to the values.
    """

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    decode_many: Callable[[bytes, Sequence[int]], list[Any]]


def split(data: bytes, lengths: Sequence[int]) -> list[bytes]:
    """Cut ``data`` into parts of these lengths, which must add up to all of it."""
    _check_sum(data, lengths)
    return list(map(data.__getitem__, map(slice, accumulate(lengths, initial=0), accumulate(lengths))))


def _check_sum(data: bytes, lengths: Sequence[int]) -> None:
    if sum(lengths) != len(data):
        raise ValueError(f"the lengths add up to {sum(lengths)} bytes, and there are {len(data)}")


def _split_headed(data: bytes, lengths: Sequence[int], head_of: Callable[[int], bytes], what: str) -> Iterator[slice]:
    """Return the slices after the head of each part; each part must begin with its head.

    Python does not loop over the parts: reading spends most of its time here.
    """
    _check_sum(data, lengths)
    heads = {length: head_of(length) for length in set(lengths)}
    starts = list(accumulate(lengths, initial=0))
    if not all(map(data.startswith, map(heads.__getitem__, lengths), starts)):
        raise ValueError(f"a {what} has a different length than stated")
    widths = {length: len(head) for length, head in heads.items()}
    begins = map(add, starts, map(widths.__getitem__, lengths))
    return map(slice, begins, accumulate(lengths))


@cache
def _text_head(size: int) -> bytes:
    """Return the vint before the text of a Text of ``size`` bytes in total."""
    for width in range(1, min(size, 9) + 1):
        head = vint_bytes(size - width)
        if len(head) == width:
            return head
    raise ValueError(f"a Text cannot have {size} bytes")


def _text_bytes(data: bytes) -> bytes:
    head = _text_head(len(data))
    if not data.startswith(head):
        raise ValueError("a Text has a different length than stated")
    return data[len(head) :]


def _decode_text(data: bytes) -> str:
    return _text_bytes(data).decode()


def _decode_texts(data: bytes, lengths: Sequence[int]) -> list[str]:
    slices = _split_headed(data, lengths, _text_head, "Text")
    if data.isascii():
        return list(map(data.decode().__getitem__, slices))
    return list(map(bytes.decode, map(data.__getitem__, slices)))


def _encode_text(value: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"a Text is made of str, not {type(value).__name__}")
    text = value.encode()
    return vint_bytes(len(text)) + text


def _decode_bytes(data: bytes) -> bytes:
    if len(data) < 4 or int.from_bytes(data[:4], "big") != len(data) - 4:
        raise ValueError("a BytesWritable has a different length than stated")
    return data[4:]


def _bytes_head(size: int) -> bytes:
    if size < 4:
        raise ValueError(f"a BytesWritable cannot have {size} bytes")
    return (size - 4).to_bytes(4, "big")


def _decode_many_bytes(data: bytes, lengths: Sequence[int]) -> list[bytes]:
    return list(map(data.__getitem__, _split_headed(data, lengths, _bytes_head, "BytesWritable")))


def _encode_bytes(value: bytes) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"a BytesWritable is made of bytes, not {type(value).__name__}")
    return len(value).to_bytes(4, "big") + value


def _decode_utf8(data: bytes) -> str:
    if len(data) < 2 or int.from_bytes(data[:2], "big") != len(data) - 2:
        raise ValueError("a UTF8 has a different length than stated")
    return java_text(data[2:])


def java_text(data: bytes) -> str:
    """Decode Java's modified UTF-8.

    In it, NUL has two bytes, and a character above U+FFFF is two surrogates of three bytes each.
    """
    text = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _encode_utf8(value: str) -> bytes:
    text = b"".join(_java_bytes(each) for each in value)
    return len(text).to_bytes(2, "big") + text


def _java_bytes(character: str) -> bytes:
    if character == "\0":
        return b"\xc0\x80"
    pairs = character.encode("utf-16-be")
    halves = (pairs[i : i + 2].decode("utf-16-be", "surrogatepass") for i in range(0, len(pairs), 2))
    return "".join(halves).encode("utf-8", "surrogatepass")


def _decode_vint(data: bytes) -> int:
    number, end = vint_at(data, 0)
    if end != len(data):
        raise ValueError("bytes follow a number")
    return number


def _encode_vint(bits: int) -> Callable[[int], bytes]:
    limit = 1 << (bits - 1)

    def encode(value: int) -> bytes:
        if not isinstance(value, int) or not -limit <= value < limit:
            raise ValueError(f"{value!r} is not a whole number of {bits} bits")
        return vint_bytes(value)

    return encode


def _decode_null(data: bytes) -> None:
    if data:
        raise ValueError("a NullWritable has bytes")


def _encode_null(value: object) -> bytes:
    if value is not None:
        raise TypeError(f"a NullWritable is made of None, not {type(value).__name__}")
    return b""


def _one_by_one(decode: Callable[[bytes], Any]) -> Callable[[bytes, Sequence[int]], list[Any]]:
    return lambda data, lengths: [decode(each) for each in split(data, lengths)]


def _fixed(code: str, kind: type) -> Writable:
    """Return the functions for a value with a format code of ``struct``."""
    packer = struct.Struct(f">{code}")

    def encode(value: Any) -> bytes:
        if not (isinstance(value, kind) or (kind is float and isinstance(value, int))):
            raise TypeError(f"it is made of {kind.__name__}, not {type(value).__name__}")
        return packer.pack(value)

    def decode(data: bytes) -> Any:
        return packer.unpack(data)[0]

    def decode_many(data: bytes, lengths: Sequence[int]) -> list[Any]:
        if set(lengths) - {packer.size}:
            raise ValueError(f"it has {packer.size} bytes, but its length differs")
        return list(struct.unpack(f">{len(lengths)}{code}", data))

    return Writable(encode, decode, decode_many)


def _decode_boolean(data: bytes) -> bool:
    if data not in (b"\0", b"\1"):
        raise ValueError("a BooleanWritable is neither 0 nor 1")
    return data == b"\1"


def _encode_boolean(value: bool) -> bytes:
    if not isinstance(value, bool):
        raise TypeError(f"a BooleanWritable is made of bool, not {type(value).__name__}")
    return b"\1" if value else b"\0"


def _decode_md5(data: bytes) -> bytes:
    if len(data) != 16:
        raise ValueError("an MD5Hash does not have 16 bytes")
    return data


def _encode_md5(value: bytes) -> bytes:
    return _decode_md5(serialized(value))


def serialized(value: bytes) -> bytes:
    """Return the serialized bytes of a writable of an unknown class."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"it is made of its serialized bytes, not {type(value).__name__}")
    return bytes(value)


SERIALIZED = Writable(serialized, bytes, split)
"""The functions for unknown classes."""

WRITABLES = {
    "Text": Writable(_encode_text, _decode_text, _decode_texts),
    "BytesWritable": Writable(_encode_bytes, _decode_bytes, _decode_many_bytes),
    "IntWritable": _fixed("i", int),
    "LongWritable": _fixed("q", int),
    "VIntWritable": Writable(_encode_vint(32), _decode_vint, _one_by_one(_decode_vint)),
    "VLongWritable": Writable(_encode_vint(64), _decode_vint, _one_by_one(_decode_vint)),
    "ByteWritable": _fixed("b", int),
    "ShortWritable": _fixed("h", int),
    "FloatWritable": _fixed("f", float),
    "DoubleWritable": _fixed("d", float),
    "BooleanWritable": Writable(_encode_boolean, _decode_boolean, _one_by_one(_decode_boolean)),
    "NullWritable": Writable(_encode_null, _decode_null, _one_by_one(_decode_null)),
    "MD5Hash": Writable(_encode_md5, _decode_md5, _one_by_one(_decode_md5)),
    "UTF8": Writable(_encode_utf8, _decode_utf8, _one_by_one(_decode_utf8)),
}
"""Class below PACKAGE -> its functions."""
CONTENT_CLASSES = (f"{PACKAGE}Text", f"{PACKAGE}BytesWritable")
"""Classes whose values are text or bytes of any length."""


def writable_of(class_name: str) -> Writable | None:
    """Return the functions of a class; None if it is not known."""
    return WRITABLES.get(class_name.removeprefix(PACKAGE)) if class_name.startswith(PACKAGE) else None


def full_name(name: str) -> str:
    """Return the full class name of a short one, such as ``Text``; a name with a dot is full."""
    return name if "." in name else PACKAGE + name
