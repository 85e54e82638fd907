"""Read the records of RecordIO files, in batches or one by one, all of them or a range."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import BinaryIO, Literal

from tarkit.errors import DataError, UsageError
from tarkit.formats.recordio.chunk import LENGTH, BadContentError, content_pieces, count_records, take_records
from tarkit.formats.recordio.index import RecordIndex, range_source
from tarkit.formats.recordio.walk import Chunk, ChunkWalk
from tarkit.formats.tally import DAMAGE_POLICIES, DEFAULT_MEM, Tally, check_policy
from tarkit.store.read import open_read
from tarkit.store.window import Window

_BATCH = 1024
_WINDOW = 64 << 20
_NOT_INDEXED: Mapping[int, int] = {}

OnDamage = Literal["error", "skip"]


def read_records(
    source: str | os.PathLike[str] | BinaryIO,
    *,
    start: int = 0,
    stop: int | None = None,
    index: RecordIndex | None = None,
    on_damage: OnDamage = "error",
    tally: Tally | None = None,
    mem: int = DEFAULT_MEM,
) -> Iterator[bytes]:
    """Read the records of a RecordIO file, of either dialect, in order.

    >>> import io
    >>> list(read_records(io.BytesIO()))
    []

    Args:
        source: a path, a URL of any place of the store, or a binary file object, which is not
            closed. A file that is compressed as a whole is decompressed, unless there is an index.
        start: number of the first record, from 0.
        stop: number after the last record; None: up to the end.
        index: index of this file, from ``read_index``; only the chunks of the range are read.
        on_damage: error, or skip: resume after a damaged chunk, and record it in the tally.
        tally: ``members`` counts the records, ``damage`` lists the lost bytes.
        mem: largest size of one chunk in bytes, before and after decompression.

    Raises:
        CorruptRecordError: a chunk is damaged.
        TruncatedError: the file ends inside a chunk.
        TooLargeError: a chunk has more than ``mem`` bytes.
        DataError: the range cannot be found because of damage, or the index is of a different file.
        UsageError: an argument is not valid.
        MissingInputError: the file does not exist.
        StreamError: the file cannot be read, or was replaced while it was read.
        TemporaryStreamError: the file cannot be read now.
    """
    for batch in read_batches(source, start=start, stop=stop, index=index, on_damage=on_damage, tally=tally, mem=mem):
        yield from batch


def read_batches(
    source: str | os.PathLike[str] | BinaryIO,
    *,
    start: int = 0,
    stop: int | None = None,
    index: RecordIndex | None = None,
    on_damage: OnDamage = "error",
    tally: Tally | None = None,
    mem: int = DEFAULT_MEM,
) -> Iterator[list[bytes]]:
    """Read the records of a RecordIO file, of either dialect, in order, in lists.

    Args:
        source: a path, a URL of any place of the store, or a binary file object, which is not
            closed. A file that is compressed as a whole is decompressed, unless there is an index.
        start: number of the first record, from 0.
        stop: number after the last record; None: up to the end.
        index: index of this file, from ``read_index``. Only the chunks of the range are read, by
            one range of bytes for each 64 MiB. Without it the file is read from its beginning up to
            ``stop``.
        on_damage: error, or skip: resume after a damaged chunk, and record it in the tally.
        tally: ``members`` counts the records, ``damage`` lists the lost bytes. A reason begins with
            the range of records, ``records 100 to 199``; ``records from 100 on`` if the number of
            lost records is not known.
        mem: largest size of one chunk in bytes, before and after decompression.

    Raises:
        CorruptRecordError: a chunk is damaged.
        TruncatedError: the file ends inside a chunk.
        TooLargeError: a chunk has more than ``mem`` bytes.
        DataError: the range cannot be found because of damage, or the index is of a different file.
        UsageError: an argument is not valid.
        MissingInputError: the file does not exist.
        StreamError: the file cannot be read, or was replaced while it was read.
        TemporaryStreamError: the file cannot be read now.
    """
    if start < 0 or (stop is not None and stop < start):
        raise UsageError(f"records {start} to {stop} are not a range: 0 <= start <= stop")
    check_policy("on_damage", on_damage, DAMAGE_POLICIES)
    tally = tally if tally is not None else Tally()
    new_walk = partial(ChunkWalk, skip=on_damage == "skip", tally=tally, mem=mem)
    if index is None:
        with open_read(source, mem=mem) as stream:
            yield from _batches(new_walk(stream.read, stream.name), start, stop)
        return
    stop = index.records if stop is None else min(stop, index.records)
    file, chunks = range_source(source), index.covering(start, stop)
    if file.size != index.size:
        reason = f"the file has {file.size} bytes, and had {index.size} when it was indexed"
        raise DataError(reason, url=file.name, hint="read the index again")
    begin, end = (chunks[0].offset, chunks[-1].offset + chunks[-1].size) if chunks else (0, 0)
    ranges = (file.read(at, min(at + _WINDOW, end)) for at in range(begin, end, _WINDOW))
    first = chunks[0].first if chunks else stop
    walk = new_walk(lambda count: next(ranges, b""), file.name, base=begin, number=first)
    yield from _batches(walk, start, stop, {chunk.offset: chunk.records for chunk in chunks})


def _batches(
    walk: ChunkWalk, start: int, stop: int | None, indexed: Mapping[int, int] = _NOT_INDEXED
) -> Iterator[list[bytes]]:
    """Yield the records of a walk that are in a range.

    Args:
        walk: the walk over the chunks of the file.
        start: number of the first record.
        stop: number after the last record; None: up to the end.
        indexed: offset of a chunk -> its number of records, by the index of the file.
    """
    if stop is not None and walk.number >= stop:
        return
    for chunk in walk.chunks():
        if not walk.counted and (start or stop is not None):
            reason = "damage before this chunk hides how many records were lost, so the range cannot be found"
            raise DataError(reason, url=walk.url, offset=chunk.offset, hint="read the file without start and stop")
        if chunk.header.records != (counted := indexed.get(chunk.offset, chunk.header.records)):
            reason = f"this chunk has {chunk.header.records} records, and its index counts {counted}"
            raise DataError(reason, url=walk.url, offset=chunk.offset, hint="read the index again")
        begin = max(start - chunk.first, 0)
        end = chunk.header.records if stop is None else min(chunk.header.records, stop - chunk.first)
        if begin < end or not chunk.header.records:
            yield from _records(walk, chunk, begin, end)
        if stop is not None and walk.number >= stop:
            return


def _records(walk: ChunkWalk, chunk: Chunk, begin: int, end: int) -> Iterator[list[bytes]]:
    """Yield the records ``begin`` to ``end`` of one chunk, numbered from 0."""
    count, at = chunk.header.records, 0
    try:
        pieces = _bounded(walk, chunk)
        if walk.skip:
            # The whole chunk is delivered, or nothing of it.
            content = b"".join(pieces)
            if (there := count_records(content)) != count:
                holds = f"holds {there}" if there >= 0 else "has record lengths that do not add up to its size"
                reason = f"the header counts {count} records, and the chunk {holds}"
                walk.damaged(chunk, there if there >= 0 else count, reason)
                return
            pieces = iter((content,))
        window = Window(lambda _: next(pieces, b""), buffer=next(pieces, b""))
        while at < end:
            batch, window.at = take_records(window.buffer, window.at, min(_BATCH, end - at))
            if not batch and not _hold_record(window):
                walk.damaged(chunk, count, f"the chunk ends inside record {at} of {count}")
            wanted = batch[begin - at :] if at < begin else batch
            at += len(batch)
            if wanted:
                walk.tally.members += len(wanted)
                yield wanted
        if at == count and window.have(1):
            walk.damaged(chunk, count, f"bytes follow the last of the {count} records of the chunk")
    except BadContentError as error:
        walk.damaged(chunk, count, f"the payload cannot be decompressed: {error}")


def _bounded(walk: ChunkWalk, chunk: Chunk) -> Iterator[bytes]:
    """Yield the content of a chunk, in pieces.

    Raises:
        BadContentError: the content cannot be decompressed.
        TooLargeError: the content has more bytes than a chunk may have.
    """
    size = 0
    for piece in content_pieces(chunk.header, chunk.payload):
        size += len(piece)
        if size > walk.mem:
            raise walk.too_large(chunk.offset, size)
        yield piece


def _hold_record(window: Window) -> bool:
    return window.have(4) and window.have(4 + LENGTH.unpack_from(window.buffer, window.at)[0])
