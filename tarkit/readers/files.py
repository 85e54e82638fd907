"""Readers of folders of files: one shard for each file, or one for each range of its records."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any

from tarkit.errors import DataError, TarkitError, UsageError
from tarkit.formats.datafolder import data_files, is_folder
from tarkit.formats.tally import Tally
from tarkit.names.url import display_name, local_path, reads_once
from tarkit.readers.identity import COUNT_ANEW, Content, checked_content, current_content, parsed_content
from tarkit.readers.reader import (
    ANEW,
    AbstractDataReader,
    Shard,
    TaskShard,
    check_arguments,
    in_task_order,
    ranges,
    task_shard,
)
from tarkit.specs.shardspec import expand
from tarkit.store.waits import Workers

_COUNTED_AT_ONCE = 8


class FileDataReader(AbstractDataReader):
    """A reader of a folder of files, or of a shard spec such as ``s3://b/data-{0000..0147}``.

    Args:
        data_dir: a folder at any place, or a shard spec. In a folder, files that are not data are
            skipped, and counted in ``tally.skipped`` of the last listing: ``_SUCCESS``, ``.crc``,
            hidden files.
        records_per_task: number of records of the ranges into which a file is cut; None: one range
            a file.

    Raises:
        UsageError: the reader does not have an argument.
    """

    takes_manifests = False
    """True if a name that ends with ``.json`` is that of a data set's manifest, which lists shards.
    """

    def __init__(self, data_dir: str, records_per_task: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_arguments(self, records_per_task, kwargs)
        self.data_dir = data_dir
        self.records_per_task = records_per_task
        self.tally = Tally()
        self._contents: dict[str, Content] = {}
        """Content of each file that was counted or read: a later file of its name is not read."""
        self._indexes: dict[str, Any] = {}
        """For each file, what a derived class knows about the places of its records."""

    def create_shards(self) -> list[Shard]:
        """Return (file, first record, number of records) for each file, sorted by name."""
        files = list(self.files())
        with Workers(_COUNTED_AT_ONCE, "tarkit-counts") as pool:
            counted = zip(files, pool.map(self._count, files), strict=True)
            return [each for file, count in counted for each in ranges(file, count, self.records_per_task)]

    def files(self) -> Iterator[str]:
        """Yield the paths or URLs of the files, sorted by name.

        Raises:
            MissingInputError: the folder has no data.
            StreamError, TemporaryStreamError: the folder cannot be listed.
        """
        self.tally = Tally()
        if is_folder(self.data_dir):
            return data_files(self.data_dir, self.tally)
        return expand([self.data_dir], manifests=self.takes_manifests)

    def _count(self, url: str) -> int:
        if reads_once(url):
            raise UsageError(f"{display_name(url)} can be read only once, and a reader reads it for each task")
        # Before it is counted, so that a file that is replaced meanwhile is not taken for this one.
        is_whole = local_path(url) is not None and self._counts_by_reading(url)
        self._contents[url] = current_content(url, is_whole)
        return self.count(url)

    def _counts_by_reading(self, url: str) -> bool:
        """Return True if ``count`` reads the whole file.

        Then it costs little more to compare the whole file later.
        """
        return False

    def content_identity(self, name: str) -> str:
        """Return the identity of a file's content when this reader first used it, or ""."""
        return str(self._contents.get(name, ""))

    def read_records(self, task: Any) -> Iterator[Any]:
        """Yield the records of a task.

        Raises:
            DataError: the file has fewer records than the task wants, is damaged, or was replaced
                since its records were counted.
            UsageError: the task is not a range.
        """
        shard = task_shard(task)
        return in_task_order(shard, self._whole(shard))

    def _whole(self, shard: TaskShard) -> Iterator[Any]:
        if not 0 <= shard.start <= shard.end:
            raise UsageError(f"records {shard.start} to {shard.end} are not a range: 0 <= start <= end")
        since = self._expect(shard)
        wanted, given, is_read = shard.end - shard.start, 0, False
        while not is_read:
            before = self._checked(shard, since)
            try:
                left = min(wanted - given, sys.maxsize)
                for record in islice(self.read(shard.name, shard.start + given, shard.end), left):
                    given += 1
                    yield record
                is_read = True
            except TarkitError:
                # A file that is read in parts is compared after each of them: one that was only
                # touched goes on.
                if self._checked(shard, "while it was read") is before:
                    raise
        if given < wanted:
            has = shard.start + given if given or not shard.start else self.count(shard.name)
            raise DataError(
                f"has {has} records, and records {shard.start} to {shard.end - 1} were asked for",
                url=shard.name,
                hint=ANEW,
            )
        self._checked(shard, "while it was read")

    def _expect(self, shard: TaskShard) -> str:
        """Check that a task's file has its expected content; return since when, for a message."""
        counted = parsed_content(shard.identity)
        known = self._contents.get(shard.name)
        if known is None:
            known = self._contents[shard.name] = counted if shard.identity else current_content(shard.name)
        since = "since its records were counted" if shard.identity else "since this reader first used it"
        if not counted.is_same(known):
            raise counted.replaced(shard.name, known, since, COUNT_ANEW)
        return since

    def _checked(self, shard: TaskShard, since: str) -> Content:
        content = checked_content(shard.name, self._contents[shard.name], since, COUNT_ANEW if shard.identity else ANEW)
        self._contents[shard.name] = content
        return content

    @abstractmethod
    def count(self, url: str) -> int:
        """Return the number of records of a file."""

    @abstractmethod
    def read(self, url: str, start: int, end: int) -> Iterator[Any]:
        """Yield records from number ``start`` on, at least up to number ``end`` if they exist."""
