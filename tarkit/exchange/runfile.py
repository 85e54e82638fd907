"""Run files: the samples of one slice of the inputs, sorted by their positions.

A run file is a shard, which any reader of shards can show. Its samples lie in blocks; before each
block is a member with its table, and at the end a member with the table of all blocks.
``docs/formats/exchange-run.md`` is the specification.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from tarkit.errors import DataError
from tarkit.formats.tar.headers import BLOCK, END_OF_ARCHIVE, RECORD, HeaderTemplate
from tarkit.names.url import display_name
from tarkit.samples.rawsamples import RawSample
from tarkit.samples.sample import KeyRule, Sample
from tarkit.store.checksums import crc32
from tarkit.store.fieldfile import LARGE, FieldFile
from tarkit.store.publish import PublishStream, open_publish
from tarkit.store.rangedfile import open_range
from tarkit.store.read import read_range

PREFIX = "__exchange__/"
"""Beginning of the names of all members that are not of a sample."""
ROW_BYTES = 320
"""Memory that a sample takes in addition to its own bytes: objects of its row."""
_PIECE = 256 * 1024
_READ = 16 << 20
"""Most bytes of a read, unless a block is larger."""
_HEAD = struct.Struct(">QQ")  # number of samples, bytes of positions
_BLOCK = struct.Struct(">QQQIII")  # offset, bytes of table, bytes of samples, samples, CRC-32, bytes of position


class Row(NamedTuple):
    """A sample with its position.

    Attributes:
        position: bytes that sort; no two samples have the same.
        parts: the bytes of its members, see :class:`tarkit.samples.rawsamples.RawSample`.
        size: number of these bytes.
        words: place and name of each member, see RawSample.
    """

    position: bytes
    parts: Sequence[bytes | FieldFile]
    size: int
    words: bytes

    def key(self, rule: KeyRule) -> str:
        """Return the key of the sample by a key rule."""
        split = rule(self.words.split(b"\0", 4)[3].decode("utf-8", "surrogateescape"))
        return split[0] if split else ""

    def sample(self, rule: KeyRule) -> Sample:
        """Return the sample: its key, and the content of its fields; large content is in files."""
        key = self.key(rule)
        return {"__key__": key, **RawSample(key, tuple(self.parts), self.size, self.words).fields()}


class Block(NamedTuple):
    """The place of a block in its run file.

    Attributes:
        first: position of its first sample.
        offset: offset of the header of its table, in bytes.
        table: bytes of the member with its table.
        size: bytes of its samples, which follow the table.
        samples: number of its samples.
        crc: CRC-32 of table and samples.
    """

    first: bytes
    offset: int
    table: int
    size: int
    samples: int
    crc: int

    @property
    def end(self) -> int:
        """Offset after the last sample."""
        return self.offset + self.table + self.size

    @property
    def memory(self) -> int:
        """Bytes of memory that its samples take."""
        return self.table + self.size + ROW_BYTES * self.samples


class RunWriter:
    """A writer of one run file.

    Args:
        output: the open stream, which the caller commits.
        block_size: bytes of samples in a block, at least.

    Attributes:
        blocks: the blocks that were written.
    """

    def __init__(self, output: PublishStream, block_size: int) -> None:
        self._output, self._block_size = output, block_size
        self._template = HeaderTemplate(mode=0o444, mtime=0, user="", group="", format="pax")
        self.blocks: list[Block] = []

    def write(self, rows: Iterable[Row]) -> None:
        """Write rows that are sorted by their positions."""
        held: list[Row] = []
        size = memory = 0
        for row in rows:
            if held and (row.size > LARGE or held[-1].size > LARGE):
                self._write_block(held, size)
                held, size, memory = [], 0, 0
            held.append(row)
            size += row.size
            memory += row.size + ROW_BYTES
            if memory >= self._block_size:
                self._write_block(held, size)
                held, size, memory = [], 0, 0
        if held:
            self._write_block(held, size)

    def _write_block(self, rows: list[Row], size: int) -> None:
        positions, words = [row.position for row in rows], [row.words for row in rows]
        sizes = [*(row.size for row in rows), *map(len, positions), *map(len, words)]
        head = _HEAD.pack(len(rows), sum(map(len, positions)))
        table = b"".join((head, struct.pack(f">{len(sizes)}Q", *sizes), *positions, *words))
        offset = self._output.bytes_written
        head = self._member(f"block-{len(self.blocks):06d}", table)
        crc = 0
        # Each write joins small parts: a call for each takes longer than the copy.
        for data in joined(itertools.chain([head], *(row.parts for row in rows))):
            crc = crc32(data, crc)
            self._output.write(data)
        self.blocks.append(Block(rows[0].position, offset, len(head), size, len(rows), crc))

    def _member(self, name: str, content: bytes) -> bytes:
        header = self._template.encode_any((PREFIX + name).encode(), len(content))
        return b"".join((header, content, bytes(-len(content) % BLOCK)))

    def add(self, name: str, content: bytes) -> tuple[int, int]:
        """Write a member that is not of a sample; return its content's offset and size in bytes."""
        member = self._member(name, content)
        offset = self._output.bytes_written + len(member) - len(content) - -len(content) % BLOCK
        self._output.write(member)
        return offset, len(content)

    def end(self) -> tuple[int, int, int]:
        """Write the table of all blocks and the end mark; return its offset, size and CRC-32."""
        table = b"".join(_BLOCK.pack(*each[1:], len(each.first)) + each.first for each in self.blocks)
        found = (*self.add("blocks", table), crc32(table))
        self._output.write(END_OF_ARCHIVE)
        self._output.write(bytes(-self._output.bytes_written % RECORD))
        return found


def write_run(path: str, rows: Iterable[Row], block_size: int) -> RunFile:
    """Write sorted rows into a temporary run file, and return it.

    Args:
        path: path of the file.
        rows: rows that are sorted by their positions.
        block_size: bytes of samples in a block, at least.

    Raises:
        StreamError: the file cannot be written.
    """
    with open_publish(path, sync=False) as output:
        writer = RunWriter(output, block_size)
        writer.write(rows)
        blocks = writer.end()
    return RunFile(path, output.bytes_written, blocks)


def joined(parts: Iterable[bytes | FieldFile]) -> Iterator[bytes]:
    """Yield the bytes of parts in pieces of about 256 KiB, or of one part."""
    held, size = list[bytes](), 0
    for part in parts:
        for piece in [part] if isinstance(part, bytes) else part.pieces():
            held.append(piece)
            size += len(piece)
            if size >= _PIECE:
                yield b"".join(held)
                held, size = [], 0
    yield b"".join(held)


class RunFile:
    """A run file to read.

    Args:
        url: path or URL.
        size: its size in bytes.
        blocks: offset, size and CRC-32 of the table of its blocks, from :meth:`RunWriter.end`.

    Attributes:
        blocks: its blocks, by position.
    """

    def __init__(self, url: str, size: int, blocks: Sequence[int]) -> None:
        self.url, self._size = url, size
        start, length, crc = blocks
        self.blocks = [*_blocks(self.read(start, start + length, crc))]

    def read(self, start: int, stop: int, crc: int | None = None) -> bytes:
        """Read a range of its bytes with one request, and compare its CRC-32 if that is given."""
        data = read_range(self.url, start, stop, size=self._size)
        if len(data) != stop - start:
            raise damaged(self.url, start, f"it ends after {len(data)} of {stop - start} bytes")
        if crc is not None and crc32(data) != crc:
            raise damaged(self.url, start, "a table has another checksum")
        return data

    def rows(self, blocks: Sequence[Block]) -> Iterator[Row]:
        """Yield the samples of adjacent blocks, which are read with a request for each 16 MiB.

        A sample of more than 32 MiB, which has a block of its own, is kept in a file.

        Raises:
            DataError: the run file is damaged.
            MissingInputError, StreamError, TemporaryStreamError: it cannot be read.
        """
        for is_large, group in itertools.groupby(blocks, lambda block: block.size > LARGE and block.samples == 1):
            if is_large:
                yield from itertools.chain.from_iterable(map(self._large, group))
                continue
            for adjacent in _reads([*group]):
                data = self.read(adjacent[0].offset, adjacent[-1].end)
                for block in adjacent:
                    yield from self._rows(block, data, block.offset - adjacent[0].offset)

    def _rows(self, block: Block, data: bytes, at: int) -> Iterator[Row]:
        if crc32(memoryview(data)[at : at + block.table + block.size]) != block.crc:
            raise damaged(self.url, block.offset, "a block has another checksum")
        sizes, positions, words = _table(data[at : at + block.table])
        start = at + block.table
        for position, size, text in zip(positions, sizes, words, strict=False):
            yield Row(position, (data[start : start + size],), size, text)
            start += size

    def _large(self, block: Block) -> Iterator[Row]:
        head = self.read(block.offset, block.offset + block.table)
        crc = crc32(head)

        def pieces() -> Iterator[bytes]:
            nonlocal crc
            with open_range(self.url, block.offset + block.table, block.end) as read:
                while piece := read(1 << 20):
                    crc = crc32(piece, crc)
                    yield piece

        content = FieldFile.keep(pieces(), url=display_name(self.url))
        if crc != block.crc:
            raise damaged(self.url, block.offset, "a block has another checksum")
        _, (position,), (words,) = _table(head)
        yield Row(position, (content,), block.size, words)


def _reads(blocks: Sequence[Block]) -> Iterator[Sequence[Block]]:
    """Cut adjacent blocks into parts that are read at once: these bytes are in memory twice."""
    start = 0
    for number, block in enumerate(blocks):
        if block.end - blocks[start].offset > _READ and number > start:
            yield blocks[start:number]
            start = number
    if blocks:
        yield blocks[start:]


def _table(member: bytes) -> tuple[Sequence[int], list[bytes], list[bytes]]:
    """Return the sizes, positions and words of the samples of a block from its table."""
    count, length = _HEAD.unpack_from(member, BLOCK)
    at = BLOCK + _HEAD.size
    sizes = struct.unpack_from(f">{3 * count}Q", member, at)
    at += 8 * 3 * count
    positions = _cut(member[at : at + length], sizes[count : 2 * count])
    return sizes[:count], positions, _cut(member[at + length :], sizes[2 * count :])


def _cut(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    ends = [*accumulate(sizes, initial=0)]
    return [data[start:end] for start, end in pairwise(ends)]


def _blocks(data: bytes) -> Iterator[Block]:
    at = 0
    while at < len(data):
        *values, length = _BLOCK.unpack_from(data, at)
        at += _BLOCK.size + length
        yield Block(data[at - length : at], *values)


def damaged(url: str, offset: int, reason: str) -> DataError:
    """Return the error for a run file that is damaged."""
    hint = "remove it with its record, and its slice is made again"
    return DataError(f"the run file is damaged: {reason}", url=url, offset=offset, hint=hint)
