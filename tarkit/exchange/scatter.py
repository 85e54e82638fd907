"""Scatter: write rows, such as the samples of a slice of the inputs, sorted into a run file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import version
from operator import itemgetter
from typing import Any

from tarkit.errors import LocatedError, TarkitError
from tarkit.exchange.merge import Merge
from tarkit.exchange.plan import Plan
from tarkit.exchange.runfile import ROW_BYTES, Row, RunFile, RunWriter, write_run
from tarkit.exchange.slicereader import RowSource
from tarkit.exchange.stagefiles import StageFiles
from tarkit.formats.tally import SKIP_DAMAGE
from tarkit.mapping.scratch import Scratch
from tarkit.runs.donerecord import DoneRecord
from tarkit.store.publish import open_publish

_position = itemgetter(0)


class Scatter:
    """The making of one run file.

    Args:
        plan: plan of the exchange.
        source: the rows.
        files: files of the stage.
        number: number of the file.
        folder: path or URL of the work folder.
        mem: bytes of memory for samples; more are kept in sorted files, which are merged.
    """

    def __init__(self, plan: Plan, source: RowSource, files: StageFiles, number: int, folder: str, mem: int) -> None:
        self._plan, self._source, self._mem = plan, source, mem
        self._name, self._url, self._id = files.name(number), files.url(folder, number), files.id(plan, number)

    def run(self) -> DoneRecord:
        """Write the run file, and then its record; a slice that fails has a record, too.

        Raises:
            StreamError, TemporaryStreamError: the record cannot be written.
        """
        source = self._source
        # As the run record names it.
        record = DoneRecord("done", {"url": self._name}, self._id, version("tarkit"), files=[])
        try:
            record.output = self._write()
        except TarkitError as error:
            if isinstance(error, LocatedError) and error.hint is not None:
                # An exchange has no such option: it moves whole samples.
                error.hint = error.hint.replace(SKIP_DAMAGE, "tarkit cat --on-damage skip")
            record.state, record.error, record.exit_code = "failed", str(error), error.exit_code
        samples = source.tally.samples
        record.samples = {"in": samples, "out": samples - len(source.failed), "failed": len(source.failed)}
        record.failed = source.failed
        record.skipped_members = source.tally.skipped
        record.publish(self._url)
        return record

    def _write(self) -> dict[str, Any]:
        with Scratch() as scratch:
            spilled: list[RunFile] = []
            last: list[Row] = []
            size = 0
            with closing(self._source.rows()) as rows:
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

    def _publish(self, rows: Iterator[Row]) -> dict[str, Any]:
        # Not waited for: after a loss of power, checksums show what is missing.
        with open_publish(self._url, compression=None, sync=False) as output:
            writer = RunWriter(output, self._plan.block_size)
            writer.write(rows)
            keys = None
            if self._source.keys is not None:
                digests, ends, crcs = self._source.keys.encode()
                keys = [writer.add("keys", digests)[0], *ends, *crcs]
            blocks = writer.end()
        return {
            "name": self._name, "size": output.bytes_written, "blocks": blocks, "keys": keys, **self._source.facts()
        }  # fmt: skip
