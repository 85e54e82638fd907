"""Convert tf.train.Example and SequenceExample to dicts and back, without TensorFlow.

The format: docs/formats/example.md.

Source: ``tensorflow/core/example/example.proto`` and ``feature.proto`` of TensorFlow 2.21, in the
wire format of Protocol Buffers (protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from operator import itemgetter
from typing import Any, Union

from tarkit.errors import DecodeError, EncodeError, printable


class BytesList(list[bytes]):
    """The values of a bytes feature: a list that is of kind bytes even when it is empty."""


Feature = Union[BytesList, "array[float]", "array[int]", None]
"""The type of a decoded feature.

Bytes, floats of 32 bits (``array("f")``), integers (``array("q")``), or None for no kind.
"""

# Tags of fields: the number times 8, plus the wire type.
_VARINT, _WITH_LENGTH = 0, 2
_FIRST, _SECOND = 0x0A, 0x12
_BYTES, _FLOATS, _INTS = 0x0A, 0x12, 0x1A
_VALUE_TAGS = {_BYTES: (_FIRST,), _FLOATS: (_FIRST, 0x0D), _INTS: (_FIRST, 0x08)}  # packed, and not packed
_KINDS = {_BYTES: "bytes", _FLOATS: "float", _INTS: "int"}
_EMPTY: dict[int, Callable[[], Any]] = {_BYTES: BytesList, _FLOATS: lambda: array("f"), _INTS: lambda: array("q")}
_NUMPY_KINDS = {"f": _FLOATS, "i": _INTS, "u": _INTS, "b": _INTS}
_BIG = sys.byteorder == "big"
_TWO_63 = 1 << 63
_MASK = (1 << 64) - 1


def encode_example(features: Mapping[str, Any]) -> bytes:
    """Serialize a tf.train.Example; the same features give the same bytes, sorted by name.

    >>> encode_example({"label": 3}).hex()
    '0a100a0e0a056c6162656c12051a030a0103'

    Args:
        features: name -> bytes, int or float, for one value; a sequence of values of one such type;
            an array of the standard library or of NumPy, of one dimension; or None for a feature
            without a kind. An empty list has no kind: use ``BytesList()``, ``array("f")`` or
            ``array("q")``. Floats are rounded to 32 bits.

    Raises:
        EncodeError: a value has a wrong type or is out of range; the message names the feature.
    """
    return _field(_FIRST, _entries(features, _feature))


def decode_example(data: bytes) -> dict[str, Feature]:
    """Parse a serialized tf.train.Example into its features, in their order.

    >>> decode_example(encode_example({"label": 3, "name": b"cat"}))
    {'label': array('q', [3]), 'name': [b'cat']}

    Args:
        data: the serialized message.

    Raises:
        DecodeError: the bytes are not an Example, or decoding would lose something: an unknown
            field (as in a SequenceExample), a feature twice, a feature of two kinds.
    """
    message = _Message(bytes(data), "tf.train.Example")
    features: dict[str, Feature] = {}
    for _, start, end in message.fields(0, len(message.data), (_FIRST,)):
        message.read_features(start, end, features)
    return features


def encode_sequence_example(context: Mapping[str, Any], feature_lists: Mapping[str, Sequence[Any]]) -> bytes:
    """Serialize a tf.train.SequenceExample.

    Args:
        context: features, as for ``encode_example``.
        feature_lists: name -> features, one for each step.

    Raises:
        EncodeError: a value has a wrong type or is out of range; the message names the feature.
    """
    return _field(_FIRST, _entries(context, _feature)) + _field(_SECOND, _entries(feature_lists, _feature_list))


def decode_sequence_example(data: bytes) -> tuple[dict[str, Feature], dict[str, list[Feature]]]:
    """Parse a serialized tf.train.SequenceExample into its context and feature lists.

    Args:
        data: the serialized message.

    Raises:
        DecodeError: the bytes are not a SequenceExample, or decoding would lose something.
    """
    message = _Message(bytes(data), "tf.train.SequenceExample")
    context: dict[str, Feature] = {}
    lists: dict[str, list[Feature]] = {}
    for tag, start, end in message.fields(0, len(message.data), (_FIRST, _SECOND)):
        if tag == _FIRST:
            message.read_features(start, end, context)
        else:
            message.read_feature_lists(start, end, lists)
    return context, lists


# ---- encoding


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(tag: int, content: bytes) -> bytes:
    return b"".join((bytes((tag,)), _varint(len(content)), content))


def _entries(mapping: Mapping[str, Any], encode: Callable[[str, Any], bytes]) -> bytes:
    """Encode a map, its entries sorted by name."""
    for name in mapping:
        if not isinstance(name, str):
            raise EncodeError(f"a feature has a name of type {type(name).__name__}; it must be str")
    entries = []
    for name, value in sorted(mapping.items(), key=itemgetter(0)):
        try:
            key = name.encode()
        except UnicodeEncodeError:
            raise EncodeError(f"the name {printable(name)!r} of a feature cannot be written as UTF-8") from None
        entries.append(_field(_FIRST, _field(_FIRST, key) + _field(_SECOND, encode(name, value))))
    return b"".join(entries)


def _feature_list(name: str, steps: Iterable[Any]) -> bytes:
    return b"".join(_field(_FIRST, _feature(name, step)) for step in steps)


def _feature(name: str, value: Any) -> bytes:
    if value is None:
        return b""
    try:
        tag, values = _kind_and_values(value)
        if tag == _BYTES:
            return _field(tag, b"".join(_field(_FIRST, bytes(each)) for each in values))
        packed = _packed_floats(values) if tag == _FLOATS else _packed_ints(values)
    except (TypeError, OverflowError, struct.error) as error:
        raise EncodeError(f"feature {printable(name)!r} cannot be written: {error}") from None
    return _field(tag, _field(_FIRST, packed) if packed else b"")


def _kind_and_values(value: Any) -> tuple[int, Any]:
    """Return the tag of a feature's kind, and its values."""
    if isinstance(value, BytesList):
        return _BYTES, value
    if isinstance(value, array):
        return _FLOATS if value.typecode in "fd" else _INTS, value
    if hasattr(value, "dtype"):
        return _of_numpy(value)
    if isinstance(value, (str, Mapping)):
        raise TypeError(f"it is of type {type(value).__name__}; text has to be encoded as bytes")
    values = [value] if isinstance(value, (bytes, bytearray, memoryview, Real)) else list(value)
    tags = {_kind(each) for each in values}
    if len(tags) > 1:
        raise TypeError(f"its values are of several kinds: {', '.join(sorted(_KINDS[tag] for tag in tags))}")
    if not tags:
        raise TypeError('an empty list has no kind; use BytesList(), array("f") or array("q")')
    return tags.pop(), values


def _of_numpy(value: Any) -> tuple[int, list[Any]]:
    """Return kind and values of an array or number of NumPy, which need not be installed."""
    if value.ndim > 1:
        raise TypeError(f"it has {value.ndim} dimensions; flatten it, and keep its shape in a second feature")
    tag = _NUMPY_KINDS.get(value.dtype.kind)
    if tag is None:
        raise TypeError(f"it is an array of {value.dtype}; use a list of bytes, or an array of numbers")
    values = value.tolist()
    return tag, values if isinstance(values, list) else [values]


def _kind(value: object) -> int:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _BYTES
    if isinstance(value, Integral):
        return _INTS
    if isinstance(value, Real):
        return _FLOATS
    raise TypeError(f"a value is of type {type(value).__name__}; it must be bytes, int or float")


def _packed_floats(values: Any) -> bytes:
    """Pack floats of 32 bits, little-endian.

    Raises:
        OverflowError: a value is too large.
        struct.error: a value is not a number.
    """
    if isinstance(values, array) and values.typecode == "f" and not _BIG:
        return values.tobytes()
    return struct.pack(f"<{len(values)}f", *values)


def _packed_ints(values: Iterable[Any]) -> bytes:
    """Pack integers as varints.

    Raises:
        OverflowError: a value does not fit into 64 bits.
        TypeError: a value is not a number.
    """
    out = bytearray()
    for value in values:
        if not -_TWO_63 <= value < _TWO_63:
            raise OverflowError(f"{value} does not fit into a signed integer of 64 bits")
        number = int(value) & _MASK
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)


# ---- decoding


class _Message:
    """The bytes of a message, whose parts are read by position, so that values are copied once."""

    def __init__(self, data: bytes, what: str) -> None:
        self.data = data
        self.what = what

    def error(self, at: int, what: str) -> DecodeError:
        return DecodeError(f"not a {self.what}: {what} at byte {at} of {len(self.data)}")

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """Read an integer below 2**64 that ends before ``end``; return it and the next position."""
        data, number, shift, position = self.data, 0, 0, at
        while position < end and shift < 70:
            byte = data[position]
            position += 1
            if byte < 0x80:
                return (number | byte << shift) & _MASK, position
            number |= (byte & 0x7F) << shift
            shift += 7
        raise self.error(at, "an integer is cut, or has more than 10 bytes")

    def fields(self, at: int, end: int, known: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
        """Yield (tag, start, end) of each field between two positions.

        Args:
            at: position of the first field.
            end: position after the last field.
            known: tags that are valid here.

        Raises:
            DecodeError: a field has an unknown tag, or more bytes than remain.
        """
        data = self.data
        while at < end:
            tag, start = data[at], at + 1
            if tag not in known:
                raise self.error(at, f"field {tag >> 3} of wire type {tag & 7} is unknown")
            if tag & 7 == _WITH_LENGTH:
                if start < end and data[start] < 0x80:
                    size, start = data[start], start + 1
                else:
                    size, start = self.varint(start, end)
                stop = start + size
            elif tag & 7 == _VARINT:
                stop = self.varint(start, end)[1]
            else:
                stop = start + 4
            if stop > end:
                raise self.error(at, f"field {tag >> 3} has {stop - end} bytes more than there are")
            yield tag, start, stop
            at = stop

    def quick_entry(self, at: int, end: int) -> tuple[str, Feature] | None:
        """Read a common entry in a third of the time of ``entry`` and ``feature``; None for others.

        A common entry has a name below 128 bytes, one list, and in it one value or packed numbers.
        """
        data = self.data
        try:
            value = at + 2 + data[at + 1]
            size, kind = data[value + 1], value + 2
            if size > 127:
                size, kind = self.varint(value + 1, end)
            if data[at] != _FIRST or data[at + 1] > 127 or data[value] != _SECOND or kind + size != end:
                return None
            size, inner = data[kind + 1], kind + 2
            if size > 127:
                size, inner = self.varint(kind + 1, end)
            if inner + size != end:
                return None
            size, start = data[inner + 1], inner + 2
            if size > 127:
                size, start = self.varint(inner + 1, end)
            if data[inner] != _FIRST or start + size != end:
                return None
            name, tag = data[at + 2 : value].decode(), data[kind]
        except (DecodeError, IndexError, UnicodeDecodeError):
            return None
        if tag not in _EMPTY:
            return None
        values = _EMPTY[tag]()
        self.add_values(tag, values, start, end)
        return name, values

    def entry(self, at: int, end: int) -> tuple[str, int, int]:
        """Return the name in an entry of a map, and the positions of its value.

        Missing parts are empty.
        """
        name, value = "", (end, end)
        for tag, start, stop in self.fields(at, end, (_FIRST, _SECOND)):
            if tag == _SECOND:
                value = start, stop
                continue
            try:
                name = self.data[start:stop].decode()
            except UnicodeDecodeError:
                raise self.error(start, "the name of a feature is not UTF-8") from None
        return name, *value

    def read_features(self, at: int, end: int, features: dict[str, Feature]) -> None:
        """Add the features of a message ``Features``."""
        for _, start, stop in self.fields(at, end, (_FIRST,)):
            quick = self.quick_entry(start, stop)
            if quick is not None:
                name, values = quick
            else:
                name, first, last = self.entry(start, stop)
                values = self.feature(first, last)
            if name in features:
                raise self.error(start, f"feature {printable(name)!r} is repeated")
            features[name] = values

    def read_feature_lists(self, at: int, end: int, lists: dict[str, list[Feature]]) -> None:
        """Add the lists of a message ``FeatureLists``."""
        for _, start, stop in self.fields(at, end, (_FIRST,)):
            name, first, last = self.entry(start, stop)
            if name in lists:
                raise self.error(start, f"feature list {printable(name)!r} is repeated")
            lists[name] = [self.feature(*step[1:]) for step in self.fields(first, last, (_FIRST,))]

    def feature(self, at: int, end: int) -> Feature:
        """Read the values of a message ``Feature``.

        Parts of one list are joined, as Protocol Buffers does.
        """
        kind, values = 0, None
        for tag, start, stop in self.fields(at, end, (_BYTES, _FLOATS, _INTS)):
            if kind not in (0, tag):
                raise self.error(start, f"a feature has values of two kinds, {_KINDS[kind]} and {_KINDS[tag]}")
            if values is None:
                kind, values = tag, _EMPTY[tag]()
            for _, first, last in self.fields(start, stop, _VALUE_TAGS[tag]):
                self.add_values(tag, values, first, last)
        return values

    def add_values(self, kind: int, values: Any, at: int, end: int) -> None:
        """Append one value, or several packed values."""
        part = self.data[at:end]
        if kind == _BYTES:
            values.append(part)
        elif kind == _FLOATS:
            if len(part) % 4:
                raise self.error(at, "a list of floats has a length that is not a multiple of 4")
            values.extend(array("f", struct.unpack(f"<{len(part) // 4}f", part)) if _BIG else array("f", part))
        elif part.isascii():
            # Each byte below 128 is one number.
            values.extend(part)
        else:
            while at < end:
                number, at = self.varint(at, end)
                values.append(number - (number & _TWO_63) * 2)
