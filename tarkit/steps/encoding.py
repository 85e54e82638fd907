"""Encoding of samples as records, and of records as samples.

A record may be a set of named values: the features of a tf.train.Example, or the row of a table. A
value of bytes is the field of its name; text is the field NAME.txt; numbers, lists and null are
NAME.json. A slash in a name, which is not valid in a field, becomes %2F.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tarkit.errors import DataError, DecodeError, EncodeError, UsageError, printable
from tarkit.formats.example import Feature, decode_example, decode_sequence_example, encode_example
from tarkit.formats.tally import DEFAULT_MEM
from tarkit.names.url import display_name
from tarkit.samples.codecs import decode_field
from tarkit.samples.sample import KeyRule, Sample, first_dot, is_reserved


@dataclass(frozen=True)
class Encoding:
    """Encoding of samples as records.

    Without ``field``, ``example``, ``piece`` and ``files``, the format decides: files or rows if it
    holds such, else pieces.

    Attributes:
        field: the record is one field of the sample.
        example: the record is a tf.train.Example.
        piece: the record is a piece of the tar.
        files: each field is a file.
        columns: columns of rows; None: all.
        typed: in samples for Examples or rows, the fields NAME.json are the numbers or texts of
            NAME, and in rows NAME.txt are texts.
        rule, on_repeated_key, mem: see ``read_samples``.
        on_others, on_same_extension: see ``har_samples``.
    """

    field: str | None = None
    example: bool = False
    piece: bool = False
    files: bool = False
    rule: str | KeyRule = first_dot
    on_repeated_key: str = "error"
    on_others: str = "error"
    on_same_extension: str = "error"
    mem: int = DEFAULT_MEM
    typed: bool = False
    columns: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if (self.field is not None) + self.example + self.piece + self.files > 1:
            raise UsageError("a record is a field, an Example, a piece of a tar or a file: only one of them")

    @property
    def is_default(self) -> bool:
        """True if the formats decide on the encoding."""
        return self.field is None and not (self.example or self.piece or self.files)

    @property
    def suffix(self) -> str:
        """Extension of the name of a sample's file, after its key."""
        return "" if self.files else f".{self.field}" if self.field else ".example" if self.example else ".tar"


DEFAULT = Encoding()

_WHOLE = "say what the records are, with --field FIELD, which keeps each of them whole"
# What stands for a slash, and what would be taken for that: each has one 25 more than it means.
_SLASH = re.compile(r"%((?:25)*)2F")


def field_of_name(name: str) -> str:
    """Return the field that holds the value of a name.

    Each text is the name for just one field, see :func:`name_of_field`.

    >>> field_of_name("image/encoded"), field_of_name("50%"), field_of_name("a%2Fb")
    ('image%2Fencoded', '50%', 'a%252Fb')
    """
    return _SLASH.sub(r"%25\g<1>2F", name).replace("/", "%2F")


def name_of_field(field: str) -> str:
    """Return the name that :func:`field_of_name` turned into this field."""
    return _SLASH.sub(lambda match: f"%{match[1][2:]}2F" if match[1] else "/", field)


def content_of(sample: Sample, encoding: Encoding) -> bytes:
    """Return the record of a sample: one of its fields, or an Example.

    Raises:
        DataError: the sample does not have the field, or (with ``typed``) a field does not hold
            values of a feature.
        EncodeError: a name is not allowed for a feature.
    """
    fields = {name: value for name, value in sample.items() if not is_reserved(name)}
    if encoding.field is None:
        features = values_of(sample, encoding)
        try:
            return encode_example({"__key__": sample["__key__"].encode("utf-8", "surrogateescape"), **features})
        except EncodeError as error:
            error.url, error.key = sample["__url__"], sample["__key__"]
            raise
    if encoding.field not in fields:
        has = ", ".join(map(printable, fields)) or "none"
        raise DataError(
            f"the sample has no field {printable(encoding.field)}; it has {has}",
            url=sample["__url__"],
            key=sample["__key__"],
        )
    content: bytes = fields[encoding.field]
    return content


def values_of(sample: Sample, encoding: Encoding, *, rows: bool = False) -> dict[str, Any]:
    """Return the features of a sample's fields; with ``rows``, the values of a table's row.

    Raises:
        DataError: (with ``typed``) two fields become one name, or the content of a field is not the
            encoding of such values.
    """
    what, ends = ("column", (".json", ".txt")) if rows else ("feature", (".json",))
    values: dict[str, Any] = {}
    for field, content in sample.items():
        if is_reserved(field):
            continue
        end = next((end for end in ends if encoding.typed and field.endswith(end) and field != end), "")
        name = name_of_field(field.removesuffix(end))
        with _of_record(sample["__url__"], sample["__key__"], "leave out --typed"):
            if name in values:
                raise DataError(f"two fields become the {what} {printable(name)}")
            typed = _cell if rows else _feature
            values[name] = typed(field, decode_field(field, content)) if end else content
    return values


def _feature(field: str, found: Any) -> Any:
    """Convert the value of a JSON field for ``encode_example``.

    Null and an empty list become None.
    """
    kinds = {type(each) for each in found} if isinstance(found, list) else set()
    if found is None or found == []:
        return None
    if kinds == {str}:
        return [each.encode() for each in found]
    if kinds == {float} and (floats := array("f", found)).tolist() == found and all(map(math.isfinite, found)):
        return floats
    if kinds != {int}:
        what = "null nor a list of texts, of integers or of floats of 32 bits"
        raise DataError(f"field {printable(field)} is neither {what}, so it is not values of a feature")
    return found


def _cell(field: str, found: Any) -> Any:
    """Convert the value of a JSON field for a row."""
    if found is None or isinstance(found, dict):
        raise DataError(f"field {printable(field)} is null or an object, so it is not a value of a column")
    return found


def sample_of(url: str, key: str, content: bytes, encoding: Encoding) -> Sample:
    """Return the sample of a record; its ``__url__`` is the place that the record comes from.

    Raises:
        DataError: the record is not an Example, or its features cannot be fields.
    """
    if encoding.field is not None:
        return {"__key__": key, "__url__": display_name(url), encoding.field: content}
    with _of_record(url, key, _WHOLE):
        return _fields_of(url, key, _values_in(content), "feature")


def sample_of_row(url: str, key: str, row: Mapping[str, Any]) -> Sample:
    """Return the sample of a table's row.

    Args:
        key: used if the row has no key.

    Raises:
        DataError: two values become one field, or one cannot be a field.
    """
    with _of_record(url, key, "leave the column out with --columns"):
        return _fields_of(url, key, row, "column")


@contextmanager
def _of_record(url: str, key: str, hint: str) -> Iterator[None]:
    """Add the record and a hint to data errors within the context."""
    try:
        yield
    except DataError as error:
        error.url, error.key, error.hint = display_name(url), key, error.hint or hint
        raise


def _values_in(content: bytes) -> dict[str, Any]:
    """Return the values of an Example."""
    try:
        features = decode_example(content)
    except DecodeError as error:
        with suppress(DecodeError):
            lists = ", ".join(map(printable, decode_sequence_example(content)[1]))
            error.reason = f"is a tf.train.SequenceExample, whose lists of features ({lists}) cannot be fields"
        raise
    return {name: _value(name, feature) for name, feature in features.items()}


def _value(name: str, feature: Feature) -> Any:
    if feature is None:
        return None
    if isinstance(feature, array):
        return feature.tolist()
    try:
        return feature[0] if len(feature) == 1 else [each.decode() for each in feature]
    except UnicodeDecodeError:
        raise DataError(f"feature {printable(name)} has {len(feature)} values of bytes, not all of them text") from None


def _fields_of(url: str, key: str, values: Mapping[str, Any], what: str) -> Sample:
    """Return a sample of values by their names.

    Args:
        key: used if the values contain none.
        what: noun for a value, for messages.
    """
    sample: Sample = {"__key__": key, "__url__": display_name(url)}
    for name, value in values.items():
        if name == "__url__":
            reason = f"a {what} is called __url__, which in a sample is the shard that it comes from"
            raise DataError(reason, hint="call it url")
        if name == "__key__" and isinstance(value, (bytes, str)):
            sample["__key__"] = value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")
            continue
        field, content = field_of_name(name), value
        if isinstance(value, str):
            field, content = f"{field}.txt", value.encode()
        elif not isinstance(value, bytes):
            try:
                field, content = f"{field}.json", json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
            except ValueError:
                reason = f"{what} {printable(name)} has a number that JSON does not have: nan, or an infinite one"
                raise DataError(reason) from None
        if field in sample:
            raise DataError(f"two {what}s become the field {printable(field)}")
        sample[field] = content
    return sample
