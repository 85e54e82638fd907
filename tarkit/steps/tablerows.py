"""Rows of a table as samples: each row, and the files that it names."""

from __future__ import annotations

import datetime
import decimal
import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, NamedTuple

from tarkit.errors import DataError, EncodeError, LocatedError, MissingInputError, UsageError, printable, quoted
from tarkit.formats.tablefile import KINDS, table_kind, table_rows
from tarkit.names.url import display_name, is_url, local_path, reads_once
from tarkit.samples.codecs import JSON, NUMBERS, TEXTS, encode_field, extension_of
from tarkit.samples.content import read_local_file
from tarkit.samples.sample import KeyRule, Sample, first_dot, is_reserved, key_rule, skip_reason
from tarkit.steps.parts import SPLIT_BY, Parts, hash_share
from tarkit.store.fieldfile import SampleRoom

_SHUFFLED = 256 << 20
"""Bytes of the values that are kept in memory while rows are shuffled."""
_SPECIAL = re.compile("[./\0\ud800-\udfff]")
_NOT_NAMED = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")
"""Characters that no name of a file has: zero bytes, and halves of a surrogate pair."""
_NOT_A_FIELD = re.compile(r"[/.\s\0]")


class Wanted(NamedTuple):
    """A sample of a row whose files are still to be read.

    Attributes:
        sample: key, and the fields from columns of values.
        sources: (field, path or URL of its content) for each file of the row.
    """

    sample: Sample
    sources: list[tuple[str, str]]


class Table:
    """A table whose rows become samples: CSV, TSV, JSON lines or Parquet, by the end of its name.

    Text becomes COLUMN.txt, bytes COLUMN, and all other values COLUMN.json; a column whose name is
    an extension for such values, as ``txt``, ``cls`` or ``json``, is the field of its name. Null
    and NaN are not a field, and are counted.

    Args:
        url: path or URL of the table; ``-`` is CSV.
        key: column of the keys; None: the number of the row, from 0.
        columns: column -> field, or None for the field above; None: all columns, without that of
            the keys and those of ``files``.
        files: column of paths or URLs -> field of their content. If the column is that of the keys,
            the key is the path without its extension.
        folder: folder in which relative paths begin; None: that of the table.
        delimiter: the character between values of CSV; None: by the name.
        quoting: values may be in quotes; None: in CSV, not in TSV.
        rule: key rule by which the samples will be read.
        fetched: function that reads URLs; it is called once, with the rows from the first one that
            has a URL on, whose other files are read.

    Attributes:
        inputs: name of the table.
        reads_once: True if it cannot be read a second time.
        nulls: column -> number of rows without a value.

    Raises:
        UsageError: an argument is not valid, or the format is not known.
    """

    def __init__(
        self, url: str, key: str | None = None, columns: Mapping[str, str | None] | None = None,
        files: Mapping[str, str] | None = None, *, folder: str | None = None, delimiter: str | None = None,
        quoting: bool | None = None, encoding: str = "utf-8", rule: str | KeyRule = first_dot,
        fetched: Callable[[Iterable[Wanted]], Iterable[Sample]] | None = None,
    ) -> None:  # fmt: skip
        kind = "," if url == "-" else table_kind(url)
        if kind is None and delimiter is None:
            raise UsageError(f"{display_name(url)}: a table is a file named {', '.join(f'*{end}' for end in KINDS)}")
        if delimiter is not None and (kind in ("json", "parquet") or len(delimiter) != 1):
            raise UsageError(f"--delimiter {delimiter!r} is not one character between the values of a CSV")
        self.url, self.reads_once = url, reads_once(url)
        self.inputs: Sequence[str | PurePath] = [url]
        self.nulls: Counter[str] = Counter()
        self._kind = delimiter or kind or ","
        # A function of the columns that are enough, or None.
        self._rows = partial(table_rows, url, self._kind, quoting=quoting, encoding=encoding, check=self._check_columns)
        self._key, self._columns, self._files = key, columns, dict(files or {})
        self._folder = folder if folder is not None else os.path.dirname(local_path(url) or "") or "."
        self._rule = key_rule(rule)
        self._by: str | None = None
        self._fetched = fetched
        self._allowed: set[str] = set()
        self._plans: dict[tuple[str, type], tuple[str, Callable[[Any], bytes]]] = {}
        named = [*(columns or {}).values(), *self._files.values()]
        for field in (each for each in named if each is not None):
            if "/" in field or "\0" in field or is_reserved(field) or skip_reason(f"k.{field}") is not None:
                raise UsageError(f"{quoted(field)} cannot be the name of a field")

    @property
    def notes(self) -> list[str]:
        """Phrases on values that are not fields."""
        nulls = ", ".join(f"{printable(name)} {number}" for name, number in sorted(self.nulls.items()))
        return [f"no value: {nulls}"] if nulls else []

    def splits_by(self, column: str) -> bool:
        """Return True if the first row has this column, whose values then decide on the parts."""
        if self.reads_once or not any(column in row for _, row in itertools.islice(self._rows(None), 1)):
            return False
        self._by = column
        return True

    def count(self, parts: Parts) -> Counter[str] | None:
        """Count the rows of each part, and check their keys; None if the table is read only once.

        Raises:
            DataError: a key is empty, repeated or not valid.
        """
        if self.reads_once:
            return None
        seen: dict[str, int] = {}
        found: Counter[str] = Counter()
        used = [name for name in (self._key, self._by) if name is not None]
        for count, (number, row) in enumerate(self._rows(used)):
            key = self._key_of(row, number, count)
            if (first := seen.setdefault(key, number)) != number:
                raise self._error(f"rows {first} and {number} have one key", key)
            found[parts.part_of(key) if self._by is None else parts.part_of_value(self._value_of(row, number))] += 1
        if not found:
            raise MissingInputError("the table has no rows", url=display_name(self.url))
        return found

    def _value_of(self, row: Mapping[str, Any], number: int) -> str:
        value = row.get(self._by or "")
        if value in (None, ""):
            raise self._error(f"row {number} has no {printable(self._by or '')}, by which the samples are split")
        return str(value)

    def rows(self) -> Iterator[Wanted]:
        """Yield a sample for each row, without the content of its files.

        Raises:
            DataError: the table is damaged, lacks a column, or has a value that cannot be a field.
            MissingInputError: the table has no rows.
        """
        # The rows may be read several times.
        self.nulls.clear()
        unseen = dict.fromkeys(name for name in (self._key, self._by, *self._files, *(self._columns or ())) if name)
        wanted = None if self._columns is None else [*unseen]
        # The keys of a table that can be read twice were compared by then.
        seen = set[str]() if self.reads_once else None
        count = -1
        for count, (number, row) in enumerate(self._rows(wanted)):
            for name in [name for name in unseen if name in row]:
                del unseen[name]
            key = self._key_of(row, number, count)
            if seen is not None:
                if key in seen:
                    raise self._error(f"the key of row {number} is that of an earlier row", key)
                seen.add(key)
            try:
                found = self._wanted(key, row)
            except (DataError, EncodeError) as error:
                raise self._error(f"row {number}: {error.reason}", key) from error
            if self._by is not None:
                found.sample[SPLIT_BY] = self._value_of(row, number)
            yield found
        if count < 0:
            raise MissingInputError("the table has no rows", url=display_name(self.url))
        if unseen:
            raise self._error(f"no row has the column {printable(min(unseen))!r}")

    def _error(self, reason: str, key: str | None = None, hint: str | None = None) -> DataError:
        return DataError(reason, url=display_name(self.url), key=key, hint=hint)

    def _check_columns(self, names: Iterable[str]) -> None:
        """Reject columns that are missing, or cannot be fields where all columns are taken."""
        wanted = (self._key, *self._files, *(self._columns or ())) if self._kind != "json" else ()
        if missing := next((name for name in wanted if name is not None and name not in names), None):
            raise self._error(f"has no column {printable(missing)!r}; it has {printable(', '.join(names))}")
        if self._columns is not None:
            return
        for name in names:
            if name == self._key or name in self._files or name in self._allowed:
                continue
            if not name or _NOT_A_FIELD.search(name) or is_reserved(name):
                hint = f"name the columns to take, with a field for this one: --columns {printable(name)}=FIELD,..."
                raise self._error(f"column {printable(name)!r} cannot be the name of a field", hint=hint)
            self._allowed.add(name)

    def _key_of(self, row: Mapping[str, Any], number: int, count: int) -> str:
        if self._key is None:
            return f"{count:09d}"
        value = row.get(self._key)
        key = value if isinstance(value, str) else str(value) if type(value) is int else None
        if key is None or not key:
            raise self._error(f"row {number} has no key: {printable(self._key)} is {printable(repr(value))}")
        if self._key in self._files and (split := self._rule(key)) is not None:
            key = split[0]
        # Most keys pass this short test; all others are checked in full.
        if self._rule is first_dot and key[0] != "_" and not _SPECIAL.search(key):
            return key
        parts = key.split("/")
        if not {"..", ".", ""}.isdisjoint(parts) or self._rule(f"{key}.x") != (key, "x") or _NOT_NAMED.search(key):
            hint = "a key has no dot after its last slash, and does not begin with one; or use another --key-rule"
            raise self._error(f"row {number}: this cannot be a key", key, hint)
        if skip_reason(f"{key}.x", self._rule) is not None:
            raise self._error(f"row {number}: readers would skip the files of this key", key)
        return key

    def _wanted(self, key: str, row: Mapping[str, Any]) -> Wanted:
        """Return the sample of one row."""
        sample: Sample = {"__key__": key}
        sources: dict[str, str] = {}
        for column, value in row.items():
            if type(value) is dict and value.keys() == {"bytes", "path"}:
                # Images and sounds of the library datasets.
                path, value = value["path"], value["bytes"]
                if value is not None and column in self._files:
                    _put(sample, self._files[column], value)
                    continue
                if value is None and path and column not in self._files and column in (self._columns or row):
                    # The data of others does not decide which files of this machine are read.
                    name = printable(column)
                    raise DataError(f"column {name} has no bytes, but a path; --files {name}=FIELD reads such files")
                value = path if value is None and column in self._files else value
            if column in self._files:
                if value:
                    _put(sources, self._files[column], str(value))
                else:
                    self.nulls[column] += 1
                if column not in (self._columns or ()):
                    continue
            elif column not in self._columns if self._columns is not None else column == self._key:
                continue
            if value is None or (type(value) is float and math.isnan(value)):
                self.nulls[column] += 1
                continue
            plan = self._plans.get((column, type(value)))
            if plan is None:
                field = (self._columns or {}).get(column) or _default_field(column, value)
                plan = self._plans[column, type(value)] = field, _encoder(field, value)
            _put(sample, plan[0], plan[1](value))
        for field in sources:
            if field in sample:
                _put(sample, field, b"")
        return Wanted(sample, [*sources.items()])

    def samples(self, shuffle: str | None) -> Iterator[Sample]:
        """Yield the samples of the rows, with the content of their files.

        Args:
            shuffle: see :meth:`wanted`.

        Raises:
            UsageError: a row has a URL, and there is no function that reads it.
            MissingInputError: a file does not exist.
            StreamError: a file cannot be read.
        """
        rows = map(self.with_local, self.wanted(shuffle))
        for row in rows:
            if not row.sources:
                yield row.sample
                continue
            if self._fetched is None:
                raise UsageError(f"{display_name(row.sources[0][1])} is a URL; URLs are not read here")
            yield from self._fetched(itertools.chain([row], rows))

    def names_urls(self) -> bool:
        """Return True if the first file that a row names has a URL; False if that is not known."""
        if not self._files or reads_once(self.url):
            return False
        return any(is_url(row.sources[0][1]) for row in itertools.islice(filter(lambda r: r.sources, self.rows()), 1))

    def wanted(self, shuffle: str | None) -> Iterator[Wanted]:
        """Yield the rows in their order, or in a different one, without the content of files.

        Args:
            shuffle: text that decides on the order; the rows are then kept in memory, their values
                in a temporary file if they are large. None: their own order.
        """
        if shuffle is None:
            return self.rows()
        room = SampleRoom(_SHUFFLED)
        held = [
            Wanted({name: value if is_reserved(name) else room.hold(value) for name, value in sample.items()}, files)
            for sample, files in self.rows()
        ]
        return iter(sorted(held, key=lambda row: hash_share(shuffle, row.sample["__key__"])))

    def with_local(self, row: Wanted) -> Wanted:
        """Read the files of a row that are on this machine."""
        urls = []
        for field, source in row.sources:
            if is_url(source):
                urls.append((field, source))
                continue
            place = os.path.join(self._folder, source)
            try:
                row.sample[field] = read_local_file(place if place[0] in "./" else f"./{place}")
            except LocatedError as error:
                error.key = row.sample["__key__"]
                error.hint = error.hint or "relative paths begin in the table's folder, or that of -C"
                raise
            except ValueError:  # a zero byte, or half of a surrogate pair
                raise self._error(f"{printable(repr(source))} is not a path", row.sample["__key__"]) from None
        return Wanted(row.sample, urls)


def _put(fields: dict[str, Any], field: str, value: Any) -> None:
    if field in fields:
        raise DataError(f"two columns become the field {printable(field)}")
    fields[field] = value


def _default_field(column: str, value: Any) -> str:
    """Return the field for values of a column."""
    extension = extension_of(column)[0]
    if isinstance(value, (bytes, bytearray)):
        return column
    if isinstance(value, (str, datetime.date, datetime.time, decimal.Decimal)):
        return column if extension in (*TEXTS, *JSON, "cls") else f"{column}.txt"
    is_whole = type(value) is int and extension in NUMBERS
    return column if is_whole or extension in JSON else f"{column}.json"


def _encoder(field: str, value: Any) -> Callable[[Any], bytes]:
    """Return a function that encodes values of the type of ``value`` for a field.

    It raises EncodeError for a value that the field cannot hold.
    """
    extension, compressed = extension_of(field)
    if isinstance(value, bytes):
        return bytes
    if type(value) is int and extension in (*NUMBERS, *JSON) and not compressed:
        return lambda number: b"%d" % number
    if type(value) is str and extension in TEXTS and not compressed:
        return lambda text: text.encode() if text.isascii() else encode_field(field, text)
    if isinstance(value, (datetime.date, datetime.time)):
        return lambda moment: encode_field(field, moment.isoformat())
    if isinstance(value, decimal.Decimal) or (type(value) in (int, float) and extension in TEXTS):
        return lambda number: encode_field(field, str(number))
    return partial(encode_field, field)
