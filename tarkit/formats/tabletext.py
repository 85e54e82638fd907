"""Read the rows of tables of text: CSV, TSV and JSON lines. All values of CSV and TSV are text."""

from __future__ import annotations

import codecs
import csv
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tarkit.errors import DataError, UsageError, counted, printable
from tarkit.names.url import display_name
from tarkit.store.read import open_read

_LONGEST = 64 << 20
"""Largest number of characters of a row."""


def decoded_lines(url: str, encoding: str = "utf-8") -> Iterator[str]:
    """Yield the lines of a text with their ends, without a byte order mark.

    Raises:
        DataError: the text is not in this encoding, or a line has more than 64 Mi characters.
        StreamError: the file cannot be read.
        UsageError: the encoding does not exist.
    """
    try:
        decoder = codecs.getincrementaldecoder(encoding)()
    except LookupError:
        raise UsageError(f"encoding {encoding!r} does not exist; utf-8, cp1252 and utf-16 do") from None
    number, rest = 1, ""
    with open_read(url) as stream:
        is_last = False
        while not is_last:
            block = stream.read(1 << 20)
            is_last = not block
            try:
                text = rest + decoder.decode(block, is_last)
            except UnicodeDecodeError as error:
                line = number + rest.count("\n") + error.object[: error.start].count(b"\n")
                reason = f"line {line} is not text in {encoding}: {error.reason} 0x{error.object[error.start]:02x}"
                hint = "name its encoding, such as --encoding cp1252"
                raise DataError(reason, url=stream.name, hint=hint) from None
            if number == 1:
                text = text.removeprefix("\ufeff")
            *lines, rest = text.split("\n")
            yield from (f"{line}\n" for line in lines)
            number += len(lines)
            if len(rest) > _LONGEST:
                raise DataError(f"line {number} has more than {_LONGEST} characters", url=stream.name)
    if rest:
        yield rest


def delimited_rows(url: str, *, delimiter: str, quoting: bool, encoding: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (number, values) of each row; row 1 has the names. Empty lines are skipped.

    Args:
        url: path or URL of the table.
        delimiter: the character between values.
        quoting: values may be in quotes, as in RFC 4180; False: a quote is a character.

    Raises:
        DataError: a row has more or fewer values than there are names, its quotes are not those of
            CSV, or the names are not distinct.
    """
    lines = decoded_lines(url, encoding)
    shown = display_name(url)
    if quoting:
        rows: Iterator[list[str]] = csv.reader(lines, delimiter=delimiter, strict=True)
    else:
        rows = (line.rstrip("\r\n").split(delimiter) if line.strip("\r\n") else [] for line in lines)
    names: list[str] | None = None
    number = 0
    while True:
        number += 1
        try:
            row = _next(rows)
        except csv.Error as error:
            hint = "without quotes around values, a quote is a character: --quoting none"
            raise DataError(f"row {number} is not CSV: {error}", url=shown, hint=hint) from None
        if row is None:
            return
        if not row:
            number -= 1
            continue
        if names is None:
            names = row
            _check_names(shown, names, delimiter)
        if len(row) != len(names):
            reason = f"row {number} has {counted(len(row), 'value')}, and there are {len(names)} columns"
            raise DataError(
                reason, url=shown, hint=f"values are separated by {delimiter!r}; see --delimiter, --quoting"
            )
        yield number, row


def _next(rows: Iterator[list[str]]) -> list[str] | None:
    """Return the next row; its values may be longer than 128 KiB, the limit of the module csv."""
    limit = csv.field_size_limit(_LONGEST)
    try:
        return next(rows, None)
    finally:
        csv.field_size_limit(limit)


def _check_names(shown: str, names: list[str], delimiter: str) -> None:
    if twice := next((name for name, count in Counter(names).items() if count > 1), None):
        raise DataError(f"has two columns {printable(twice)!r}", url=shown)
    other = next((each for each in ";\t|," if each in names[0] and each != delimiter), None)
    if len(names) == 1 and other is not None:
        hint = f"if {other!r} separates them, pass --delimiter {other!r}"
        raise DataError(f"has one column, {printable(names[0])!r}", url=shown, hint=hint)


def json_rows(url: str, *, encoding: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number, row) of each line, which is a JSON object; blank lines are skipped.

    Raises:
        DataError: a line is not a JSON object, or has a name twice.
    """
    for number, line in enumerate(decoded_lines(url, encoding), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=distinct_names)
        except (ValueError, RecursionError) as error:
            raise DataError(f"line {number} is not JSON: {error}", url=display_name(url)) from None
        if not isinstance(row, dict):
            raise DataError(f"line {number} is not a JSON object", url=display_name(url))
        yield number, row


def distinct_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of a JSON document with these names and values.

    Raises:
        ValueError: a name is there twice.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the name {printable(twice)!r} is twice in one object")
    return found
