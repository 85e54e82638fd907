"""Scatter: read a slice of the inputs once, and write its samples sorted into a run file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from operator import itemgetter
from typing import ClassVar

from tarkit.errors import LocatedError, TarkitError
from tarkit.exchange.inputreader import InputReader
from tarkit.exchange.keys import KeyDigests
from tarkit.exchange.merge import Merge
from tarkit.exchange.plan import Plan
from tarkit.exchange.positions import OUTPUT_BYTES, LeftOutError, failed_position, ordinal
from tarkit.exchange.runfile import ROW_BYTES, Row, RunFile, RunWriter, write_run
from tarkit.exchange.settings import ExchangeSettings
from tarkit.exchange.stagefiles import RUN_FILES, StageFiles
from tarkit.exchange.step import Step
from tarkit.formats.tally import SKIP_DAMAGE
from tarkit.mapping.scratch import Scratch
from tarkit.runs.donerecord import DoneRecord
from tarkit.store.publish import open_publish

_position = itemgetter(0)


class Scatter:
    """The scatter of one slice.

    Args:
        urls: all inputs, by their numbers in the plan.
        number: number of the slice.
        folder: path or URL of the work folder.
        mem: bytes of memory for samples; more are kept in sorted files, which are merged.

    Attributes:
        tally: counts of the reader.
        keys: digests of the keys, if they are compared.
        failed: keys of the samples without a position, with 0.
        failed_size: bytes of the members of these samples.
        first_failure: why the first of them has none.
        largest: bytes of the largest sample.
        placed: first bytes of positions -> number of samples, if these name outputs.
    """

    files: ClassVar[StageFiles] = RUN_FILES

    def __init__(
        self,
        plan: Plan,
        step: Step,
        settings: ExchangeSettings,
        urls: Sequence[str],
        number: int,
        folder: str,
        mem: int,
    ) -> None:
        self._plan, self._step, self._settings = plan, step, settings
        self._number, self._mem = number, mem
        self._url = self.files.url(folder, number)
        self._inputs = InputReader(plan, step, settings, urls)
        self.tally = self._inputs.tally
        self.keys = KeyDigests() if step.needs_keys(settings) else None
        self.failed: list[tuple[str, int]] = []
        self.first_failure = ""
        self.largest = self.failed_size = 0
        self.placed = Counter[bytes]()

    def run(self) -> DoneRecord:
        """Write the run file, and then its record; a slice that fails has a record, too.

        Raises:
            StreamError, TemporaryStreamError: the record cannot be written.
        """
        from importlib.metadata import version

        # As the run record names it.
        name = self.files.name(self._number)
        record = DoneRecord("done", {"url": name}, self._plan.run_id, version("tarkit"), files=[])
        try:
            record.output = self._write()
        except TarkitError as error:
            if isinstance(error, LocatedError) and error.hint is not None:
                # An exchange has no such option: it moves whole samples.
                error.hint = error.hint.replace(SKIP_DAMAGE, "tarkit cat --on-damage skip")
            record.state, record.error, record.exit_code = "failed", str(error), error.exit_code
        samples = self.tally.samples
        record.samples = {"in": samples, "out": samples - len(self.failed), "failed": len(self.failed)}
        record.failed = self.failed
        record.skipped_members = self.tally.skipped
        record.publish(self._url)
        return record

    def _write(self) -> dict[str, object]:
        with Scratch() as scratch:
            spilled: list[RunFile] = []
            last: list[Row] = []
            size = 0
            with closing(self.rows()) as rows:
                for row in rows:
                    last.append(row)
                    size += row.size + len(row.position) + ROW_BYTES
                    if size >= self._mem:
                        spilled.append(self._spill(f"{scratch.path}/spill-{len(spilled)}.tar", last))
                        last, size = [], 0
            last.sort(key=_position)
            if not spilled:
                return self._publish(iter(last))
            spilled.append(self._spill(f"{scratch.path}/spill-{len(spilled)}.tar", last))
            last = []
            return self._publish(row for _, row in Merge(spilled, self._mem).rows())

    def _spill(self, path: str, rows: list[Row]) -> RunFile:
        rows.sort(key=_position)
        spilled = write_run(path, rows, self._plan.block_size)
        rows.clear()
        return spilled

    def _publish(self, rows: Iterator[Row]) -> dict[str, object]:
        # Not waited for: after a loss of power, checksums show what is missing.
        with open_publish(self._url, compression=None, sync=False) as output:
            writer = RunWriter(output, self._plan.block_size)
            writer.write(rows)
            keys = None
            if self.keys is not None:
                digests, ends, crcs = self.keys.encode()
                keys = [writer.add("keys", digests)[0], *ends, *crcs]
            blocks = writer.end()
        return {
            "name": self.files.name(self._number),
            "size": output.bytes_written,
            "blocks": blocks,
            "keys": keys,
            "largest": self.largest,
            "failed_size": self.failed_size,
            "placed": {int.from_bytes(prefix, "big"): count for prefix, count in sorted(self.placed.items())},
            "first_failure": self.first_failure,
        }

    def rows(self) -> Generator[Row, None, None]:
        """Yield the samples of the slice with their positions, in the order of the inputs."""
        with_outputs = bool(self._settings.outputs)
        for shard in self._plan.shards(self._number):
            place_of = self._step.place_of(shard)
            with closing(self._inputs.samples(shard)) as samples:
                for number, sample in enumerate(samples):
                    if self.keys is not None:
                        self.keys.add(sample.key)
                    try:
                        position = place_of(sample, number)
                        if with_outputs:
                            self.placed[position[:OUTPUT_BYTES]] += 1
                    except LeftOutError as error:
                        position, sample = error.position, sample._replace(parts=(), size=0)
                    except ValueError as error:
                        position = self._fail(sample.key, str(error), ordinal(shard, number))
                        self.failed_size += sample.size
                    self.largest = max(self.largest, sample.size)
                    yield Row(position, sample.parts, sample.size, sample.words)

    def _fail(self, key: str, reason: str, place: bytes) -> bytes:
        """Count a failed sample, and return its position."""
        self.first_failure = self.first_failure or f"key {key!r}: {reason}"
        self.failed.append((key, 0))
        return failed_position(reason, place)
