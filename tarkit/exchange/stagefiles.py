"""Files that are done: those of a stage in the work folder, and outputs, each with its record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tarkit.exchange.plan import Plan
from tarkit.exchange.runfile import RunFile
from tarkit.names.outputnames import done_record_url, output_name
from tarkit.names.url import join
from tarkit.runs.donerecord import DoneRecord, read_record
from tarkit.specs.inputset import InputSet
from tarkit.store.entries import stat
from tarkit.store.waits import Workers

_AT_ONCE = 16
_SHOWN = 5


def finished_record(url: str, work: str) -> DoneRecord | None:
    """Return the record of a file that is done, or None.

    Args:
        url: path or URL of the file.
        work: id of what it must have been made of.

    Raises:
        StreamError, TemporaryStreamError: the record cannot be read.
    """
    record = read_record(done_record_url(url))
    if record is None or record.why_stale(lambda: stat(url).size, work=work) is not None:
        return None
    # That of another file, copied with it, would repeat its samples and lose others.
    return record if (record.output or {}).get("name") == output_name(url) else None


def finished_records(files: Iterable[tuple[str, str]]) -> Iterator[DoneRecord | None]:
    """Yield :func:`finished_record` of each file, in order; several are read at once.

    Args:
        files: (URL, id of what it must have been made of) of each file.
    """
    with Workers(_AT_ONCE, "records") as workers:
        yield from workers.ahead(lambda file: finished_record(*file), files, 2 * _AT_ONCE)


class StageState(NamedTuple):
    """What a stage has not made yet.

    Attributes:
        missing: numbers of the slices without a file.
        failed: number -> error of those that have failed.
    """

    missing: list[int]
    failed: dict[int, str]

    def shown(self) -> str:
        """Return the numbers of the first missing slices, as in "3, 7"."""
        return ", ".join(map(str, self.missing[:_SHOWN])) + (", …" if len(self.missing) > _SHOWN else "")


class StageFiles(NamedTuple):
    """The files of a stage: one for each slice of the plan, in the work folder.

    Attributes:
        stem: beginning of their names.
        of_slice: a file depends on the inputs of its slice alone; False: on all inputs.
    """

    stem: str
    of_slice: bool

    def name(self, number: int) -> str:
        """Return the name of the file of a slice."""
        return f"{self.stem}-{number:06d}.tar"

    def names(self, plan: Plan) -> InputSet:
        """Return the names of all files, for a run record."""
        return InputSet(plan.slices, (f"{self.stem}-{{000000..{plan.slices - 1:06d}}}.tar",))

    def url(self, folder: str, number: int) -> str:
        """Return the URL of the file of a slice."""
        return join(folder, self.name(number))

    def id(self, plan: Plan, number: int) -> str:
        """Return the id of what the file of a slice is made of, for its record."""
        return plan.file_id(number if self.of_slice else None)

    def record(self, plan: Plan, folder: str, number: int) -> DoneRecord | None:
        """Return the record of a slice if it is done by this plan, or None.

        Raises:
            StreamError, TemporaryStreamError: the record cannot be read.
        """
        return finished_record(self.url(folder, number), self.id(plan, number))

    def records(self, plan: Plan, folder: str) -> Iterator[DoneRecord | None]:
        """Yield the record of each slice that is done by this plan, and None for the others.

        Raises:
            StreamError, TemporaryStreamError: a record cannot be read.
        """
        return finished_records((self.url(folder, each), self.id(plan, each)) for each in range(plan.slices))

    def state(self, plan: Plan, folder: str) -> StageState:
        """Return what is missing of a stage, and why.

        Raises:
            StreamError, TemporaryStreamError: a record cannot be read.
        """
        missing = [number for number, record in enumerate(self.records(plan, folder)) if record is None]
        failed = dict[int, str]()
        for number in missing:
            record = read_record(done_record_url(self.url(folder, number)))
            if record is not None and record.error is not None and record.work == self.id(plan, number):
                failed[number] = record.error
        return StageState(missing, failed)

    def opened(self, folder: str, records: Sequence[DoneRecord]) -> list[RunFile]:
        """Return the files of all slices, from their records."""
        outputs = [record.output or {} for record in records]
        return [RunFile(self.url(folder, number), each["size"], each["blocks"]) for number, each in enumerate(outputs)]


RUN_FILES, MARK_FILES = StageFiles("run", of_slice=True), StageFiles("match", of_slice=False)
"""The files of a scatter, and of the match of a dedup."""
