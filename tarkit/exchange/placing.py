"""A table that names the output of each sample by its key."""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tarkit.errors import EXIT_DATA, DataError, LocatedError, UsageError, printable, quoted
from tarkit.exchange.positions import OUTPUT_BYTES, LeftOutError, PlaceOf, ordinal
from tarkit.exchange.runfile import Row
from tarkit.exchange.step import Step
from tarkit.formats.tablefile import KINDS, table_kind, table_rows
from tarkit.formats.tally import check_policy
from tarkit.names.outputnames import DONE_SUFFIX, FAILED_SUFFIX, SHARD_SUFFIX
from tarkit.names.url import display_name
from tarkit.runs.counts import Counts
from tarkit.samples.rawsamples import RawSample
from tarkit.steps.keylists import file_of_keys

if TYPE_CHECKING:
    from tarkit.exchange.output import GatheredOutput

UNLISTED_POLICIES = ("error", "skip")
_COLUMNS = ("key", "output")
_MOST_OUTPUTS = 1 << 20
_LONGEST = 200
_NOT_A_NAME = re.compile(r"[/\\?#\0-\x1f\x7f\ud800-\udfff]|\A\.|\.(gz|tgz|zst|bz2|xz|lz4|idx)\Z")
_A_NAME = (
    "it is a file name in -O DIR, such as train or train.tar, "
    "without a slash, not hidden, not compressed, and not that of a record"
)
_LEFT_OUT = "keys that the map does not list"


class UnlistedKeyError(LocatedError):
    """The map does not list the key of a sample."""

    exit_code = EXIT_DATA


class Placement:
    """A table key -> name of the output, such as ``train`` or ``train.tar``.

    Its keys stay in memory, in every process: about 100 bytes for each, and its own.

    Args:
        source: path or URL of a table ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``, and the
            columns of keys and outputs: ``map.csv:id:split``. Without them they are the columns
            ``key`` and ``output``, or else the first two.
        unlisted: error, or skip: samples whose keys are not in the table are left out.

    Attributes:
        outputs: names of all outputs, sorted.
        keys: number of keys.

    Raises:
        UsageError: the source is not a table, or has no keys.
        DataError: the table is damaged, lacks a column, has a key twice or a name that an output
            cannot have.
        MissingInputError, StreamError, TemporaryStreamError: the table cannot be read.
    """

    def __init__(self, source: str, unlisted: str = "error") -> None:
        check_policy("unlisted", unlisted, UNLISTED_POLICIES)
        self.url, self._unlisted = file_of_keys(source), unlisted
        self._number: dict[str, int] = {}
        names, of_name = dict[str, int](), dict[str, str]()
        digest = hashlib.sha256()
        for row, key, output in self._rows(source):
            number = names.get(output)
            if number is None:
                number = names[output] = len(names)
                if (name := _output(output)) is None:
                    raise self._wrong(row, f"an output cannot have the name {printable(output)!r}: {_A_NAME}")
                of_name[output] = name
                if number >= _MOST_OUTPUTS:
                    raise self._wrong(row, f"there are more than {_MOST_OUTPUTS} outputs")
            if self._number.setdefault(key, number) != number:
                raise self._wrong(row, f"the key {printable(key)!r} has two outputs")
            digest.update(f"{key}\0{output}\0".encode("utf-8", "surrogatepass"))
        if not self._number:
            raise UsageError(f"--to {quoted(source)}: the table has no rows")
        self._digest = digest.hexdigest()
        self.keys = len(self._number)
        self.outputs = tuple(sorted({*of_name.values()}))
        rank = {name: number for number, name in enumerate(self.outputs)}
        self._prefixes = [rank[of_name[output]].to_bytes(OUTPUT_BYTES, "big") for output in names]
        # Behind all outputs: the last one drops them.
        self._left_out = len(self.outputs).to_bytes(OUTPUT_BYTES, "big")

    def options(self) -> dict[str, Any]:
        """Return what decides the outputs, for the plan."""
        return {"to_sha256": self._digest, "unlisted": self._unlisted}

    def placed(self, place_of: PlaceOf, shard: int) -> PlaceOf:
        """Return positions that begin with the number of the output.

        Args:
            place_of: positions in an output.
            shard: number of the input.
        """

        def position(sample: RawSample, number: int) -> bytes:
            output = self._number.get(sample.key)
            if output is not None:
                return self._prefixes[output] + place_of(sample, number)
            if self._unlisted == "skip":
                # The last output drops it.
                raise LeftOutError(self._left_out + ordinal(shard, number))
            hint = "--unlisted skip leaves such samples out"
            raise UnlistedKeyError("the map does not list this key", url=self.url, key=sample.key, hint=hint)

        return position

    def listed(self, rows: Iterable[Row], output: GatheredOutput) -> Iterator[Row]:
        """Yield the samples that are listed; count the others as dropped."""
        for row in rows:
            if row.position.startswith(self._left_out):
                output.drop(_LEFT_OUT)
            else:
                yield row

    def unmatched(self, counts: Counts) -> dict[str, int]:
        """Return how many keys of the table no sample had, at least; exactly if keys do not repeat.

        Args:
            counts: counts of all samples.
        """
        missing = self.keys - counts.out - counts.failed
        return {"keys of the map that no sample has": missing} if missing > 0 else {}

    def _rows(self, source: str) -> Iterator[tuple[int, str, str]]:
        """Yield (number, key, output) of each row."""
        kind = table_kind(self.url)
        if kind is None:
            raise UsageError(f"--to {quoted(source)}: the map is a file named {', '.join(f'*{end}' for end in KINDS)}")
        columns = source[len(self.url) + 1 :].split(":") if len(source) > len(self.url) else []
        if len(columns) not in (0, 2) or "" in columns:
            raise UsageError(f"--to {quoted(source)}: name both columns, FILE:KEYCOLUMN:OUTPUTCOLUMN, or none")

        def check(names: Iterable[str]) -> None:
            there = [*names]
            if not columns:
                columns.extend(_COLUMNS if {*_COLUMNS} <= {*there} else there[:2])
            for column in columns:
                if column not in there:
                    reason = f"has no column {printable(column)}; it has {printable(', '.join(there))}"
                    raise DataError(reason, url=display_name(self.url))
            if len(columns) < 2:
                raise DataError("has one column; a map has keys and outputs", url=display_name(self.url))

        try:
            for number, row in table_rows(self.url, kind, columns or None, check=check):
                key, output = (self._text(row[column], number, column) for column in columns)
                yield number, key, output
        except DataError as error:
            error.hint = None  # it would name options for the table of tarkit create
            raise

    def _text(self, value: object, row: int, column: str) -> str:
        text = str(value) if type(value) is int else value
        if not isinstance(text, str) or not text:
            raise self._wrong(row, f"{printable(column)} is {'empty' if text in (None, '') else 'not a text'}")
        return text

    def _wrong(self, row: int, reason: str) -> DataError:
        return DataError(f"row {row}: {reason}", url=display_name(self.url))


@dataclass(frozen=True, kw_only=True)
class PlacedStep(Step):
    """A step that orders samples, of all inputs or of each output that a table names.

    Attributes:
        to: the table; None: the samples are cut into numbered outputs.
    """

    to: Placement | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.to.outputs if self.to else ()

    def options(self) -> dict[str, Any]:
        return self.to.options() if self.to else {}

    @abstractmethod
    def order_of(self, shard: int) -> PlaceOf:
        """Return positions of the samples of an input in the order of the step."""

    def place_of(self, shard: int) -> PlaceOf:
        return self.to.placed(self.order_of(shard), shard) if self.to else self.order_of(shard)

    def write(self, rows: Iterator[Row], output: GatheredOutput) -> None:
        output.copy(self.to.listed(rows, output) if self.to else rows)

    def unmatched(self, counts: Counts) -> dict[str, int]:
        return self.to.unmatched(counts) if self.to else {}


def _output(name: str) -> str | None:
    """Return the file name of an output, which ends in ``.tar``, or None if it cannot have it."""
    plain = name.removesuffix(SHARD_SUFFIX)
    reserved = name.endswith((DONE_SUFFIX, FAILED_SUFFIX)) or plain.endswith((DONE_SUFFIX, FAILED_SUFFIX, ".failed"))
    if not plain or _NOT_A_NAME.search(plain) or reserved or len(name.encode("utf-8", "replace")) > _LONGEST:
        return None
    return plain + SHARD_SUFFIX
