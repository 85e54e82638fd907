"""Gather: read a range of all run files, and write outputs from the merged samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from tarkit.exchange.cuts import Cuts, Outputs
from tarkit.exchange.keys import BUCKETS, RunKeys
from tarkit.exchange.merge import Merge, count_before, measure
from tarkit.exchange.output import GatheredOutput
from tarkit.exchange.plan import Plan
from tarkit.exchange.positions import value_of
from tarkit.exchange.runfile import Row
from tarkit.exchange.stagefiles import RUN_FILES
from tarkit.exchange.step import Step
from tarkit.names.url import join
from tarkit.runs.donerecord import DoneRecord
from tarkit.store.waits import Workers


class Scattered:
    """The result of the scatter of all slices.

    Args:
        records: the records of all slices.
        folder: path or URL of the work folder.
        mem: bytes of memory for samples.
        parallel: number of requests at once.

    Attributes:
        mem: as given.
        failed: number of samples without a position.
        largest: bytes of the largest sample.
        first_failure: why the first sample without a position has none.
        skipped: reason -> number of members that are not of a sample.
    """

    def __init__(self, records: Sequence[DoneRecord], folder: str, mem: int, parallel: int) -> None:
        outputs = [record.output or {} for record in records]
        runs = RUN_FILES.opened(folder, records)
        self.keys = [
            (run, RunKeys(each["keys"][0], each["keys"][1 : 1 + BUCKETS], each["keys"][1 + BUCKETS :]))
            for run, each in zip(runs, outputs, strict=True)
            if each["keys"]
        ]
        self.merge, self.mem = Merge(runs, mem, parallel), mem
        self._placed = Counter[int]()
        for each in outputs:
            self._placed.update({int(number): count for number, count in each["placed"].items()})
        self.failed = sum(record.samples.get("failed", 0) for record in records)
        self._failed_size = sum(each["failed_size"] for each in outputs)
        self.largest = max((each["largest"] for each in outputs), default=0)
        self.first_failure = next((each["first_failure"] for each in outputs if each["first_failure"]), "")
        self.skipped = sum((Counter(record.skipped_members) for record in records), Counter[str]())

    def cuts(self, outputs: Outputs) -> Cuts:
        """Return where the outputs begin; failed samples are behind all others."""
        samples, size = self.merge.samples - self.failed, self.merge.size - self._failed_size
        return outputs.cuts(samples, size, self.largest, self._placed)


class Gather:
    """The gather of adjacent outputs.

    Args:
        cuts: where the outputs begin.
        folder: path or URL of the folder of the outputs.
        replaces: True if outputs of another run may exist.
        parallel: number of commands that the step may run at once.
    """

    def __init__(
        self,
        plan: Plan,
        step: Step,
        outputs: Outputs,
        scattered: Scattered,
        cuts: Cuts,
        folder: str,
        *,
        replaces: bool,
        parallel: int,
    ) -> None:
        self._plan, self._step, self._outputs, self._folder = plan, step, outputs, folder
        self._merge, self._cuts, self._replaces = scattered.merge, cuts, replaces
        self._largest = scattered.largest
        self._mem, self._parallel = scattered.mem, parallel

    def run(self, numbers: Sequence[int]) -> Iterator[DoneRecord]:
        """Write adjacent outputs, and yield the record of each.

        Raises:
            TarkitError: an output cannot be made, or a run file is damaged.
        """
        rows = _Rows(self._begun(self._cuts.begin(numbers[0])), self._cuts.of_size, self._step.in_groups)
        publishing: Future[DoneRecord] | None = None
        # In a thread: what waits for the disk is the half of the time that small outputs take.
        with Workers(1, "publish") as publisher:
            for number in numbers:
                is_last = number == self._cuts.count - 1
                end = None if is_last else self._cuts.begin(number + 1)
                output = GatheredOutput(
                    join(self._folder, self._outputs.name(number)), self._plan, self._outputs.settings,
                    replaces=self._replaces, mem=self._mem, parallel=self._parallel,
                )  # fmt: skip
                try:
                    output.fill(self._step.write, rows.until(end))
                    before, publishing = publishing, None
                    if before is not None:
                        yield before.result()
                except BaseException:
                    output.discard()
                    raise
                publishing = publisher.submit(output.publish)
            if publishing is not None:
                yield publishing.result()

    def _begun(self, begin: int) -> Iterator[tuple[int, list[Row]]]:
        """Yield samples from a number on, without the rest of an earlier group."""
        of_size = self._cuts.of_size
        if not self._step.in_groups or not begin:
            yield from self._merge.batches(begin, of_size=of_size)
            return
        # The sample before the first one may be of the same group.
        last: bytes | None = b""
        for at, rows in self._merge.batches(max(0, begin - (self._largest if of_size else 1)), of_size=of_size):
            if last is None:
                yield at, rows
                continue
            for number, row in enumerate(rows):
                value = value_of(row.position)
                if at < begin:
                    last = value
                elif value != last:
                    last = None
                    yield at, rows[number:]
                    break
                at += row.size if of_size else 1


class _Rows:
    """Sorted samples that are taken output by output."""

    def __init__(self, batches: Iterator[tuple[int, list[Row]]], of_size: bool, in_groups: bool) -> None:
        self._batches, self._of_size, self._in_groups = batches, of_size, in_groups
        self._left: tuple[int, list[Row]] | None = None

    def until(self, end: int | None) -> Iterator[list[Row]]:
        """Yield the samples before a number, and the rest of a group that begins before it."""
        last = b""
        while (batch := self._left or next(self._batches, None)) is not None:
            self._left = None
            at, rows = batch
            cut = len(rows) if end is None else count_before(rows, end - at, self._of_size)
            if self._in_groups:
                last = value_of(rows[cut - 1].position) if cut else last
                while cut < len(rows) and value_of(rows[cut].position) == last:
                    cut += 1
            if cut:
                yield rows[:cut]
            if cut < len(rows):
                self._left = at + measure(rows[:cut], self._of_size), rows[cut:]
                return
