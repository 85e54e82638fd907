"""Read a table as an input of an exchange: each row becomes a sample."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tarkit.errors import UsageError
from tarkit.exchange.newmembers import NewMembers
from tarkit.exchange.settings import ExchangeSettings
from tarkit.formats.tablefile import table_kind
from tarkit.formats.tally import Tally
from tarkit.names.url import display_name
from tarkit.samples.rawsamples import RawSample
from tarkit.samples.sample import key_rule
from tarkit.steps.tablerows import Table

NO_VALUE, EMPTY_ROW = "no-value", "row-without-values"
"""Reasons under which values are counted that are no field, and rows that are no sample."""


@dataclass(frozen=True)
class TableColumns:
    """How rows of tables become samples; see :class:`tarkit.steps.tablerows.Table`.

    Attributes:
        key: column of the keys.
        columns: column -> field, or None for the field of its name; None: all columns.
        delimiter: the character between values of CSV; None: by the name.
        quoting: values may be in quotes; None: in CSV, not in TSV.
        encoding: encoding of the text.
    """

    key: str
    columns: Mapping[str, str | None] | None = None
    delimiter: str | None = None
    quoting: bool | None = None
    encoding: str = "utf-8"

    def options(self) -> dict[str, Any]:
        """Return what decides the samples, as values that JSON can hold."""
        return asdict(self)


def is_table(url: str) -> bool:
    """Return True if a name is that of a table, by its end."""
    return table_kind(url) is not None


def table_samples(
    url: str, columns: TableColumns, prefix: str, settings: ExchangeSettings, tally: Tally
) -> Generator[RawSample, None, None]:
    """Yield a sample for each row of a table that has a value; the table is not held in memory.

    Keys that come twice are not found here.

    Args:
        url: path or URL of the table.
        columns: its columns.
        prefix: text before the name of each field.
        settings: settings of the exchange: key rule, and how members are written.
        tally: filled with counts.

    Raises:
        UsageError: an argument is not valid.
        DataError: the table is damaged, lacks a column, or has a value that cannot be a field.
        MissingInputError: the table does not exist, or has no rows.
        StreamError, TemporaryStreamError: it cannot be read.
    """
    rule = key_rule(settings.key_rule)
    hint = "name the field otherwise with --columns COLUMN=FIELD, or use another key rule or --prefix"
    made = NewMembers(rule, "these --columns, --prefix and --key-rule", hint, settings.mtime, settings.format)
    table = Table(
        url, columns.key, columns.columns, delimiter=columns.delimiter, quoting=columns.quoting,
        encoding=columns.encoding, rule=rule,
    )  # fmt: skip
    if table.reads_once:
        raise UsageError(f"{display_name(url)} can be read only once")
    for row in table.rows():
        key = row.sample.pop("__key__")
        stem = f"{key}.".encode("utf-8", "surrogateescape")
        if not row.sample:
            tally.skip(EMPTY_ROW)
            continue
        members = (
            (prefix + field, stem + (prefix + field).encode("utf-8", "surrogateescape"), row.sample[field])
            for field in sorted(row.sample)
        )
        sample = made.sample(key, members, url=url)
        tally.samples += 1
        tally.members += len(row.sample)
        yield sample
    if nulls := sum(table.nulls.values()):
        tally.skip(NO_VALUE, nulls)
    tally.shards += 1
