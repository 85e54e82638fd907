"""Join two data sets by key: one sample of both."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from tarkit.errors import DuplicateFieldError, RepeatedKeyError, UsageError, printable
from tarkit.exchange.newmembers import NewMembers
from tarkit.exchange.positions import ORDINAL, PlaceOf, ordinal, shard_and_number, text_of, text_value, value_of
from tarkit.exchange.rawfields import fields_of, joined_fields, without_fields
from tarkit.exchange.runfile import Row
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.step import Step, groups
from tarkit.exchange.tableside import TableColumns, is_table, table_samples
from tarkit.formats.tally import Tally, check_policy
from tarkit.formats.tar.raw import FarReachingError
from tarkit.names.redaction import redact
from tarkit.names.url import one_name
from tarkit.samples.rawsamples import RawSample, piece_of
from tarkit.samples.sample import key_rule

if TYPE_CHECKING:
    from tarkit.exchange.output import GatheredOutput

KEPT_ALONE = ("inner", "left", "outer")
"""Which samples without a partner are written: none, those of the left, or those of both sides."""
CONFLICTS = ("error", "left", "right")
JOINED, LEFT_ONLY, RIGHT_ONLY = "joined into one sample", "left only", "right only"
"""Names of the counts of pairs of samples, and of samples without a partner."""


@dataclass(frozen=True)
class Join(Step):
    """Write one sample for each key that two data sets have: left's fields, then right's.

    Members are written with the bytes that they have. The samples are in the order of their keys,
    as bytes of UTF-8.

    Attributes:
        left: paths and URLs of the left's shards, or tables.
        right: those of the right. The inputs of the exchange are those of the left, and then these.
        how: a value of KEPT_ALONE.
        on_conflict: if both have a field: error, or the side whose field is written.
        prefixes: text before the names of the fields of the left, and of the right.
        table: how rows become samples, if one side has tables, which are known by their names.

    Raises:
        UsageError: an argument is not valid.
    """

    name: ClassVar[str] = "join"
    in_groups: ClassVar[bool] = True
    left: Sequence[str]
    right: Sequence[str]
    how: str = "inner"
    on_conflict: str = "error"
    prefixes: tuple[str, str] = ("", "")
    table: TableColumns | None = None

    def __post_init__(self) -> None:
        check_policy("how", self.how, KEPT_ALONE)
        check_policy("on_conflict", self.on_conflict, CONFLICTS)
        if any("/" in prefix or "\0" in prefix for prefix in self.prefixes):
            raise UsageError(f"prefix {','.join(self.prefixes)!r}: the name of a field has no slash")
        for side, urls in (("left", self.left), ("right", self.right)):
            if not urls:
                raise UsageError(f"the {side} side has no inputs; a join needs LEFT... -- RIGHT...")
        named = set[str]()
        for url in self.inputs:
            if one_name(url) in named:
                raise UsageError(f"{printable(redact(url))} is named twice; all of its keys would come twice")
            named.add(one_name(url))
        tables = [[url for url in urls if is_table(url)] for urls in (self.left, self.right)]
        if all(tables):
            shown = printable(redact(tables[1][0]))
            raise UsageError(f"both sides have tables; make shards of one first: tarkit create --table {shown}")
        if any(tables) and self.table is None:
            shown = printable(redact((tables[0] or tables[1])[0]))
            raise UsageError(f"{shown} is a table; --key names the column of its keys")
        if self.table is not None and not any(tables):
            raise UsageError("columns of a table are named, but no input is a table by the end of its name")

    @property
    def inputs(self) -> list[str]:
        """The inputs of the exchange."""
        return [*self.left, *self.right]

    def options(self) -> dict[str, Any]:
        return {
            "left": len(self.left), "how": self.how, "on_conflict": self.on_conflict,
            "prefix": ",".join(self.prefixes), "table": None if self.table is None else self.table.options(),
        }  # fmt: skip

    def needs_keys(self, settings: ExchangeSettings) -> bool:
        return False

    def why_not(self, urls: Sequence[str], settings: ExchangeSettings) -> str | None:
        if [*urls] != self.inputs:
            return "the inputs of a join are those of its left side, and then those of its right side"
        if settings.rekey:
            return "--rekey does not go with join: no key would be on both sides"
        if settings.on_repeated_key != "error":
            return "--on-repeated-key allow does not go with join: several joined samples would have the same key"
        return None

    def samples(
        self, shard: int, url: str, settings: ExchangeSettings, tally: Tally, globals_seen: list[FarReachingError]
    ) -> Generator[RawSample, None, None]:
        prefix = self.prefixes[shard >= len(self.left)]
        if self.table is not None and is_table(url):
            return table_samples(url, self.table, prefix, settings, tally)
        found = super().samples(shard, url, settings, tally, globals_seen)
        return _renamed(found, url, prefix, settings) if prefix else found

    def place_of(self, shard: int) -> PlaceOf:
        def position(sample: RawSample, number: int) -> bytes:
            return text_value(sample.key.encode("utf-8", "surrogateescape")) + ordinal(shard, number)

        return position

    def write(self, rows: Iterator[Row], output: GatheredOutput) -> None:
        output.copy(self._written(rows, output))

    def _written(self, rows: Iterator[Row], output: GatheredOutput) -> Iterator[Row]:
        """Yield the samples to write, and count the others."""
        for _, group in groups(rows):
            # The left's inputs come first, so its sample does, too.
            found = [*islice(group, 3)]
            if len(found) == 2 and self._is_of_right(found[1]) and not self._is_of_right(found[0]):
                output.drop(JOINED)
                yield self._joined(*found)
            elif len(found) > 1:
                raise self._repeated(found)
            else:
                is_right = self._is_of_right(found[0])
                alone = RIGHT_ONLY if is_right else LEFT_ONLY
                output.noted[alone] += 1
                if self.how == "outer" or (self.how == "left" and not is_right):
                    yield found[0]
                else:
                    output.drop(alone)

    def _joined(self, left: Row, right: Row) -> Row:
        names = fields_of(left)
        if both := [field for field in fields_of(right) if field in names]:
            if self.on_conflict == "error":
                field = printable(both[0].decode("utf-8", "surrogateescape"))
                hint = "--on-conflict left or right chooses one; --prefix renames the fields of a side"
                reason = f"field {field} is in {self._shown(left)} too"
                raise DuplicateFieldError(reason, url=self._url(right), key=_key(right), hint=hint)
            if self.on_conflict == "left":
                right = without_fields(right, both)
            else:
                left = without_fields(left, both)
        return joined_fields(left, right)

    def _repeated(self, rows: Sequence[Row]) -> RepeatedKeyError:
        sides = [self._is_of_right(row) for row in rows]
        at = next(number for number in range(1, len(rows)) if sides[number] == sides[number - 1])
        first, second = rows[at - 1], rows[at]
        side = "right" if sides[at] else "left"
        if self._url(first) == self._url(second):
            reason = f"the key comes twice, as samples {_number(first)} and {_number(second)} of this input"
        else:
            reason = f"the key is in {self._shown(first)} too, which is on the {side} side as well"
        hint = "a key can be once on each side; tarkit select leaves samples out"
        return RepeatedKeyError(reason, url=self._url(second), key=_key(second), hint=hint)

    @cached_property
    def _first_of_right(self) -> bytes:
        return ordinal(len(self.left), 0)

    def _is_of_right(self, row: Row) -> bool:
        return row.position[-ORDINAL:] >= self._first_of_right

    def _url(self, row: Row) -> str:
        return redact(self.inputs[shard_and_number(row.position)[0]])

    def _shown(self, row: Row) -> str:
        return printable(self._url(row))


def _key(row: Row) -> str:
    return text_of(value_of(row.position)).decode("utf-8", "surrogateescape")


def _number(row: Row) -> int:
    return shard_and_number(row.position)[1]


def _renamed(
    samples: Generator[RawSample, None, None], url: str, prefix: str, settings: ExchangeSettings
) -> Generator[RawSample, None, None]:
    """Yield the samples of a shard with a prefix before the names of their fields."""
    rule = key_rule(settings.key_rule)
    made = NewMembers(rule, "this --prefix", "use another one", settings.mtime, settings.format)
    raw = prefix.encode("utf-8", "surrogateescape")
    with closing(samples):
        for sample in samples:
            members = (
                (
                    prefix + field.decode("utf-8", "surrogateescape"),
                    name[: len(name) - len(field)] + raw + field,
                    piece_of(sample.parts, at, size),
                )
                for field, at, size, name in sample.places()
            )
            yield made.sample(sample.key, members, url=url)
