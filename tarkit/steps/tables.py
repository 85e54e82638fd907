"""Convert tables to serialized Examples."""

from __future__ import annotations

import csv
import math
import struct
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

from tarkit.errors import DataError, StreamError, UsageError, printable
from tarkit.formats.example import encode_example
from tarkit.formats.textrows import text_rows
from tarkit.names.url import display_name, reads_once
from tarkit.store.entries import check_same, identify
from tarkit.store.read import open_read


def table_records(
    url: str, *, columns: Sequence[str] | None = None, label: str | None = None,
    skip_rows: int = 0, with_text: Callable[[list[str]], object] = lambda names: None,
) -> Iterator[bytes]:  # fmt: skip
    """Yield a record for each row of a CSV file.

    Columns of numbers become floats, all other columns bytes. An integer that a float of 32 bits
    cannot represent is not a number here.

    The file is read twice: first to find the types, and the values of the label. Blanks around the
    names of columns and before values are removed, unless they are in quotes.

    Args:
        columns: names of the columns; None takes them from the first row.
        label: this column is written as ``label``, the index of its value among all its values,
            sorted.
        skip_rows: number of rows to skip at the beginning.
        with_text: called with the names of the columns that are written as bytes.

    Raises:
        DataError: a row has a different number of columns, or is not UTF-8 or CSV.
        StreamError: the file was replaced between the two reads.
        UsageError: a column does not exist, two have one name, a name is a number, or the source
            cannot be read twice.
    """
    shown = display_name(url)
    if reads_once(url):
        raise UsageError(f"{shown} is read twice; name a file")
    identity = identify(url)
    names = _names(url, columns, skip_rows)
    _check_columns(shown, names, label)
    skip_rows += columns is None
    texts = [False] * len(names)
    values: set[str] = set()
    label_at = None if label is None else names.index(label)
    for row in _rows(url, names, skip_rows):
        for number, value in enumerate(row):
            texts[number] = texts[number] or not _is_number(value)
        if label_at is not None:
            values.add(row[label_at])
    classes = {value: number for number, value in enumerate(sorted(values))}
    with_text([name for name, text in zip(names, texts, strict=True) if text and name != label])
    check_same(url, identity)
    for row in _rows(url, names, skip_rows):
        features: dict[str, Any] = {}
        try:
            for number, (name, value) in enumerate(zip(names, row, strict=True)):
                if number == label_at:
                    features["label"] = classes[value]
                else:
                    features[name] = value.encode() if texts[number] else float(value)
        except (KeyError, ValueError):
            # The first time, the file did not have this value.
            raise StreamError("was changed while it was read", url=shown) from None
        yield encode_example(features)
    check_same(url, identity)


def _names(url: str, columns: Sequence[str] | None, skip_rows: int) -> list[str]:
    """Return the names of the columns: as given, or the first row."""
    shown = display_name(url)
    with closing(_rows(url, None, skip_rows)) as rows:
        names = [name.strip() for name in next(rows, [])]
    if columns is None:
        if found := next(filter(_is_number, names), None):
            raise UsageError(
                f"{shown} has {printable(found)} in the row of names; name the columns with --columns, and "
                "pass rows over that are not data with --skip-rows"
            )
        return names
    if names == list(columns):
        raise UsageError(
            f"{shown} has a row of these names; leave out --columns, or pass that row over with --skip-rows"
        )
    return list(columns)


def _check_columns(shown: str, names: Sequence[str], label: str | None) -> None:
    if label and label not in names:
        raise UsageError(f"{shown} has no column {printable(label)}; it has {printable(', '.join(names))}")
    written = Counter("label" if name == label else name for name in names)
    if twice := next((name for name, count in written.items() if count > 1), None):
        raise UsageError(f"{shown} has two columns {printable(twice)}; name them with --columns")


def _rows(url: str, names: Sequence[str] | None, skip: int) -> Generator[list[str], None, None]:
    with open_read(url) as stream:
        rows = text_rows(iter(lambda: stream.read(1 << 20), b""), stream.name, skip_blanks=True)
        for number, (offset, data) in enumerate(rows, 1):
            if number <= skip:
                continue
            try:
                row = next(csv.reader([data.decode()], skipinitialspace=True, strict=True))
            except (UnicodeDecodeError, csv.Error) as error:
                hint = "tables are CSV (RFC 4180) in UTF-8"
                raise DataError(
                    f"row {number} cannot be read: {error}", url=stream.name, offset=offset, hint=hint
                ) from None
            if names is not None and len(row) != len(names):
                reason = f"row {number} has {len(row)} columns, and there are {len(names)} names"
                raise DataError(reason, url=stream.name, offset=offset)
            yield row


def _is_number(text: str) -> bool:
    """Return True if a 32-bit float can represent the text; an integer must be exact."""
    try:
        (value,) = struct.unpack("f", struct.pack("f", float(text)))
    except (ValueError, OverflowError):
        return False
    text = text.strip()
    is_integer = text.lstrip("+-").isdigit()
    return math.isfinite(value) and "_" not in text and (not is_integer or value == int(text))
