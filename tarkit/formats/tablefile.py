"""Read the rows of a table by the end of its name: CSV, TSV, JSON lines or Parquet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tarkit.formats.parquet import parquet_columns, read_values
from tarkit.formats.tabletext import delimited_rows, json_rows
from tarkit.names.url import is_url

KINDS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
"""End of a name -> delimiter of the values, or the format."""
_COMPRESSED = re.compile(r"\.(gz|zst|bz2|xz|lz4)\Z")


def table_kind(url: str) -> str | None:
    """Return the delimiter or the format of a table, a value of KINDS; None for another name."""
    name = _COMPRESSED.sub("", url.partition("?")[0].lower() if is_url(url) else url.lower())
    return next((kind for end, kind in KINDS.items() if name.endswith(end)), None)


def table_rows(
    url: str, kind: str, only: Sequence[str] | None = None, *, quoting: bool | None = None, encoding: str = "utf-8",
    check: Callable[[Iterable[str]], object] = lambda names: None,
) -> Iterator[tuple[int, dict[str, Any]]]:  # fmt: skip
    """Yield (number, column -> value) of each row; row 1 of CSV and TSV has the names.

    Args:
        url: path or URL of the table.
        kind: a value of KINDS, or another delimiter.
        only: columns that are enough; None: all.
        quoting: values of CSV may be in quotes; None: in all but TSV.
        check: called with the names of the columns, of JSON lines for each row.

    Raises:
        DataError: the table is damaged.
        StreamError: the table cannot be read.
    """
    if kind == "json":
        for number, row in json_rows(url, encoding=encoding):
            check(row)
            yield number, row if only is None else {name: row[name] for name in only if name in row}
        return
    rows: Iterator[tuple[int, Sequence[Any]]]
    if kind == "parquet":
        names = parquet_columns(url)
        check(names)
        names = names if only is None else list(only) or names[:1]
        rows = enumerate(read_values(url, names), 1)
    else:
        is_quoted = kind != "\t" if quoting is None else quoting
        rows = delimited_rows(url, delimiter=kind, quoting=is_quoted, encoding=encoding)
        names = [*next(rows, (1, ()))[1]]
        check(names)
    for number, values in rows:
        yield number, dict(zip(names, values, strict=True))
