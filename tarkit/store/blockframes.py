"""Compressed input with its position, and Zstandard and LZ4 frames, read block by block.

The decoders of these two formats have no limit on the output of one call, or do not stream.
So the blocks are found here, from their lengths in the frame (RFC 8878 section 3.1.1; LZ4
frame format 1.6.4), and decoded one at a time: at most 128 KiB for zst, 4 MiB for lz4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tarkit.errors import CompressionError

ReadFunction = Callable[[int], bytes]

ZST_MAGIC = b"\x28\xb5\x2f\xfd"
LZ4_MAGIC = b"\x04\x22\x4d\x18"
_PIECE = 256 * 1024
_ZST_BLOCK = 128 * 1024
_LZ4_WINDOW = 64 * 1024


class CompressedInput:
    """Compressed bytes to come, with their position; ``fail`` makes the errors, so that all say where."""

    def __init__(self, read: ReadFunction, codec: str, url: str) -> None:
        self._read = read
        self._codec = codec
        self._url = url
        self._buffer = b""
        self._at = 0
        self.position = 0

    def piece(self) -> bytes:
        """The next bytes, as many as come cheaply; b"" at the end."""
        if self._at < len(self._buffer):
            data = self._buffer[self._at :]
            self._buffer, self._at = b"", 0
        else:
            data = self._read(_PIECE)
        self.position += len(data)
        return data

    def unread(self, data: bytes) -> None:
        """Give back the last bytes that were handed out."""
        self._buffer = data + self._buffer[self._at :]
        self._at = 0
        self.position -= len(data)

    def peek(self, count: int) -> bytes:
        """The next ``count`` bytes without moving on; fewer only at the end."""
        while len(self._buffer) - self._at < count:
            more = self._read(_PIECE)
            if not more:
                break
            self._buffer = self._buffer[self._at :] + more
            self._at = 0
        return self._buffer[self._at : self._at + count]

    def take(self, count: int) -> bytes:
        """Exactly ``count`` bytes.

        Raises:
            CompressionError: the stream ends before.
        """
        data = self.peek(count)
        self._at += len(data)
        self.position += len(data)
        if len(data) < count:
            raise self.cut_short()
        return data

    def skip(self, count: int) -> None:
        """Pass over ``count`` bytes without holding them."""
        while count:
            step = min(count, _PIECE)
            self.take(step)
            count -= step

    def skip_zeros(self) -> int:
        """Pass over zero bytes; how many there were."""
        start = self.position
        while piece := self.piece():
            rest = piece.lstrip(b"\0")
            if rest:
                self.unread(rest)
                break
        return self.position - start

    def fail(self, reason: str, offset: int | None = None) -> CompressionError:
        """An error at ``offset``, or else where reading stands."""
        return CompressionError(
            f"{self._codec} stream {reason}",
            url=self._url,
            offset=self.position if offset is None else offset,
            hint="the offset counts compressed bytes",
        )

    def cut_short(self) -> CompressionError:
        """The error of a stream that ends too early."""
        return self.fail("is cut short")

    def no_member(self, head: bytes, magic: bytes, first: bool) -> CompressionError:
        """The error for ``head`` where a member should begin."""
        if magic.startswith(head):
            return self.cut_short()
        return self.fail(f"does not begin as {self._codec} does" if first else "has other bytes after its end")


def is_skippable(head: bytes) -> bool:
    """Whether a skippable frame begins here; zst and lz4 have the same sixteen magic numbers for it."""
    return len(head) >= 4 and head[0] & 0xF0 == 0x50 and head[1:4] == b"\x2a\x4d\x18"


def _starts_frame(source: CompressedInput, magic: bytes) -> Iterator[None]:
    """Yield once at the beginning of every frame; pass over the skippable ones."""
    first = True
    while True:
        head = source.peek(4)
        if not head and not first:
            return
        if is_skippable(head):
            source.take(4)
            source.skip(int.from_bytes(source.take(4), "little"))
        elif head == magic:
            yield
        else:
            raise source.no_member(head, magic, first)
        first = False


def zst_frames(source: CompressedInput) -> Iterator[bytes]:
    """The content of all frames of a zst stream, in chunks of at most 128 KiB or so."""
    import zstandard

    for _ in _starts_frame(source, ZST_MAGIC):
        decoder = zstandard.ZstdDecompressor().decompressobj()
        start = source.position
        data = source.take(5)
        has_checksum = bool(data[4] & 4)
        data += source.take(_zst_header_length(data[4]) - 5)
        last = False
        while not last:
            block = int.from_bytes(source.peek(3), "little")
            last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
            if kind == 3 or size > _ZST_BLOCK:
                raise source.fail("is damaged (no block can be like this)")
            data += source.take(3 + (1 if kind == 1 else size) + (4 if last and has_checksum else 0))
            try:
                content = decoder.decompress(data)
            except zstandard.ZstdError as error:
                raise source.fail(f"is damaged ({error}), at or before this offset") from None
            data = b""
            if content:
                yield content
        if not decoder.eof:
            raise source.fail("is damaged (a frame has no end)", start)


def _zst_header_length(descriptor: int) -> int:
    """Length in bytes of magic number and frame header."""
    single_segment = bool(descriptor & 0x20)
    dictionary = (0, 1, 2, 4)[descriptor & 3]
    content_size = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    return 5 + (0 if single_segment else 1) + dictionary + content_size


class _Xxh32:
    """XXH32 of what it is given.

    The standard library has no XXH32, and in Python it would be the slowest step by far. But an
    LZ4 frame ends with just this checksum of its content, so writing one computes it.
    """

    def __init__(self, data: bytes = b"") -> None:
        import cramjam

        self._frame = cramjam.lz4.Compressor(1)
        self.update(data)

    def update(self, data: bytes) -> None:
        self._frame.compress(data)
        self._frame.flush()

    def value(self) -> int:
        return int.from_bytes(bytes(self._frame.finish())[-4:], "little")


def lz4_frames(source: CompressedInput) -> Iterator[bytes]:
    """The content of all frames of an lz4 stream, in chunks of at most 4 MiB."""
    for _ in _starts_frame(source, LZ4_MAGIC):
        flags, block_limit, content_size = _lz4_header(source)
        linked, block_checksum, content_checksum = not flags & 0x20, flags & 0x10, flags & 4
        checksum = _Xxh32() if content_checksum else None
        window = b""
        total = 0
        while size := int.from_bytes(source.take(4), "little"):
            stored, size = bool(size >> 31), size & 0x7FFFFFFF
            if size > block_limit:
                raise source.fail("is damaged (a block is longer than the frame allows)")
            block = source.take(size)
            if block_checksum and int.from_bytes(source.take(4), "little") != _Xxh32(block).value():
                raise source.fail("is damaged (checksum of a block)")
            content = block if stored else _lz4_block(source, block, window, block_limit)
            if linked:
                window = (window + content[-_LZ4_WINDOW:])[-_LZ4_WINDOW:]
            if checksum:
                checksum.update(content)
            total += len(content)
            if content:
                yield content
        if checksum and int.from_bytes(source.take(4), "little") != checksum.value():
            raise source.fail("is damaged (checksum of the content)")
        if content_size is not None and content_size != total:
            raise source.fail(f"is damaged (it holds {total} bytes, its header says {content_size})")


def _lz4_header(source: CompressedInput) -> tuple[int, int, int | None]:
    """Flags, longest block in bytes, and length of the content if it is told."""
    source.take(4)
    descriptor = source.take(2)
    flags, block = descriptor
    if flags >> 6 != 1 or flags & 2 or block & 0x8F or block >> 4 < 4:
        raise source.fail("is damaged, or of a later version (frame header)")
    if flags & 1:
        raise source.fail("needs a dictionary, which tarkit does not have")
    if flags & 8:
        descriptor += source.take(8)
    if source.take(1)[0] != _Xxh32(descriptor).value() >> 8 & 0xFF:
        raise source.fail("is damaged (checksum of a frame header)")
    content_size = int.from_bytes(descriptor[2:], "little") if flags & 8 else None
    return flags, 1 << (2 * (block >> 4) + 8), content_size


def _lz4_block(source: CompressedInput, block: bytes, window: bytes, limit: int) -> bytes:
    import cramjam

    try:
        if window:
            block = _with_literals(window, block)
        content = bytearray(limit + len(window))
        size = cramjam.lz4.decompress_block_into(block, content)
    except (cramjam.DecompressionError, IndexError, ValueError, OSError) as error:
        raise source.fail(f"is damaged ({error}), before this offset") from None
    return bytes(memoryview(content)[len(window) : size])


def _with_literals(window: bytes, block: bytes) -> bytes:
    """A block that stands alone: ``window`` becomes a part of the first literals of ``block``.

    The decoder knows no history, which blocks of a linked frame refer to. A block begins with
    a token: the upper four bits count literals, 15 means that bytes to be added follow, up to
    and including the first that is not 255. So only this number has to be written anew.
    """
    count, at = block[0] >> 4, 1
    if count == 15:
        more = 255
        while more == 255:
            more = block[at]
            count += more
            at += 1
    full, rest = divmod(count + len(window) - 15, 255)
    if full < 0:
        return bytes([(count + len(window)) << 4 | block[0] & 15]) + window + block[at:]
    return bytes([0xF0 | block[0] & 15]) + b"\xff" * full + bytes([rest]) + window + block[at:]
