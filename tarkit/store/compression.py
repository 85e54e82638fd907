"""Compress and decompress whole streams: by magic bytes when reading, by name when writing.

Formats: gzip (RFC 1952), Zstandard (RFC 8878), bzip2, xz (The .xz File Format 1.1.0), the LZ4 frame
format 1.6.4, and zlib (RFC 1950) where it is requested. All of them may be several members or
frames in sequence; such a stream is read to its true end. Memory is bounded for every input: every
step of decompression yields at most 1 MiB, and a window or dictionary that is larger than the limit
is rejected.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from tarkit.errors import CompressionError, TooLargeError, UsageError, printable
from tarkit.names.redaction import redact
from tarkit.names.url import is_stream
from tarkit.store.codecmemory import ZSTD_MOST, needs_dictionary, xz_dictionary, zstd_window
from tarkit.store.frametable import encode_table
from tarkit.store.window import Window

ReadFunction = Callable[[int], bytes]

CODECS = ("gz", "zst", "bz2", "xz", "lz4")
ZLIB = "zlib"
"""A codec without magic bytes and without an ending.

It is used only for formats that name it, such as TFRecord.
"""
SEEKABLE = "zst-seekable"
"""Zstandard in its seekable format: frames of 1 MiB, then a table of them.

Every decoder of zst reads it, and ``sniff`` calls it zst.
"""
SNIFF_BYTES = 10
"""Number of bytes that ``sniff`` needs."""

_SUFFIXES = {f".{codec}": codec for codec in CODECS} | {".tgz": "gz", ".tzst": "zst", ".tbz2": "bz2", ".txz": "xz"}
# A tar with such a name would mislead its readers.
_NOT_WRITTEN = (".7z", ".br", ".lz", ".lzma", ".lzo", ".rar", ".z", ".zip")
_MAGIC = {
    "gz": b"\x1f\x8b\x08",
    "zst": b"\x28\xb5\x2f\xfd",
    "bz2": b"BZh",
    "xz": b"\xfd7zXZ\x00",
    "lz4": b"\x04\x22\x4d\x18",
}
_BZ2_BLOCKS = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
_PIECE = 256 * 1024
_STEP = 1024 * 1024
_LEAST_MEMORY = {"zst": 128 << 20, "xz": 1 << 30}
"""Size in bytes of a window that is always allowed."""


def compression_for_name(name: str) -> str | None:
    """Return the codec that is usual for a file name: gz, zst, bz2, xz, lz4, or None.

    Upper and lower case are the same.

    >>> [compression_for_name(name) for name in ("train-0000.tar.zst", "a.tgz", "a.tar")]
    ['zst', 'gz', None]
    """
    return _SUFFIXES.get(_ending(name))


def _ending(name: str) -> str:
    """Return ``.gz`` for ``a.tar.GZ``; empty without a dot."""
    base = name[name.rfind("/") + 1 :].lower()
    return base[base.rfind(".") :] if "." in base else ""


def write_compression(choice: str | bool | None, name: str) -> str | None:
    """Return the codec for writing: ``choice``, or the codec of the name if it is "auto".

    True means gz; None and False mean none.

    Raises:
        UsageError: the codec does not exist; or the name has the ending of a format that is not
            written.
    """
    if choice == "auto":
        if _ending(name) in _NOT_WRITTEN:
            raise _not_written(name, _ending(name))
        return compression_for_name(name)
    if choice is True:
        return "gz"
    return check_codec(choice) if choice else None


def check_tar_name(name: str) -> None:
    """Reject a name for a tar whose ending is that of something else.

    That is ``.tar`` before an unknown ending, which is neither a plain tar nor one of a known
    compression; and ``.json``, which would be read as a manifest. Commands are not checked.

    Args:
        name: path or URL of a tar to write.

    Raises:
        UsageError: the name is rejected.
    """
    base = "" if is_stream(name) else name.partition("?")[0]
    base = base[base.rfind("/") + 1 :]
    ending = _ending(base)
    if base.endswith(".json") or (".tar." in base.lower() and ending not in (".tar", *_SUFFIXES, *_NOT_WRITTEN)):
        raise _not_written(name, ending)


def _not_written(name: str, ending: str) -> UsageError:
    return UsageError(
        f"{printable(redact(name))}: {ending} is not written; name it .tar, or for a compressed tar "
        ".tar.gz, .tgz, .tar.zst, .tar.bz2, .tar.xz or .tar.lz4"
    )


def check_codec(name: object) -> str:
    """Check and return the name of a codec.

    Raises:
        UsageError: the codec does not exist.
    """
    if isinstance(name, str) and name in (*CODECS, ZLIB, SEEKABLE):
        return name
    known = ", ".join((*CODECS, ZLIB, SEEKABLE))
    raise UsageError(f"no compression {name!r}; known are auto, {known}, or None for none")


def sniff(head: bytes) -> str | None:
    """Return the codec of a stream with this beginning; None for none.

    Args:
        head: SNIFF_BYTES bytes, or fewer if the stream is shorter.
    """
    if _is_skippable(head):
        # A skippable frame may begin both zst and lz4 streams; in practice only pzstd writes one
        # first.
        return "zst"
    codec = next((codec for codec, magic in _MAGIC.items() if head.startswith(magic)), None)
    if codec == "bz2" and not (head[3:4] in b"123456789" and head[4:10] in _BZ2_BLOCKS):
        return None
    return codec


def begins_zlib(head: bytes) -> bool:
    """Return True if ``head`` has the two bytes of a zlib header.

    Many other files begin with such bytes as well.
    """
    return len(head) >= 2 and head[0] & 0x8F == 8 and not head[1] & 0x20 and int.from_bytes(head[:2], "big") % 31 == 0


def _is_skippable(head: bytes) -> bool:
    """Return True if a skippable frame begins here.

    zst and lz4 have the same sixteen magic numbers for it.
    """
    return len(head) >= 4 and head[0] & 0xF0 == 0x50 and head[1:4] == b"\x2a\x4d\x18"


class _CompressedInput(Window):
    """Compressed bytes to read, with their position.

    ``fail`` makes the errors, so that all of them have the position.
    """

    def __init__(self, read: ReadFunction, codec: str, url: str) -> None:
        super().__init__(read)
        self.codec = codec
        self._url = url

    def skip_zeros(self) -> int:
        """Skip zero bytes; return their number."""
        start = self.offset
        while piece := self.read(_PIECE):
            if rest := piece.lstrip(b"\0"):
                self.at -= len(rest)
                break
        return self.offset - start

    def fail(self, reason: str) -> CompressionError:
        """Return an error at the current position."""
        hint = "the offset counts compressed bytes"
        return CompressionError(f"{self.codec} stream {reason}", url=self._url, offset=self.offset, hint=hint)

    def too_large(self, needed: int | None, memory: int) -> TooLargeError:
        """Return the error for a stream that needs more memory than the limit."""
        size = "more" if needed is None else f"{needed} bytes of"
        reason = f"{self.codec} stream needs {size} memory to decompress, and the limit is {memory}"
        program = "zstd -d --long=31" if self.codec == "zst" else "xz -d"
        larger = f"--mem {needed or 4 * memory}"
        hint = f"decompress it first ({program}), or where there is --mem, read it with {larger} (mem=)"
        if self.codec == "zst" and (needed or 0) > ZSTD_MOST:
            hint = f"zstd decompresses at most {ZSTD_MOST}, so its header may be damaged: fetch it again"
        return TooLargeError(reason, url=self._url, hint=hint)


def zstd_library() -> Any:
    """Import and return the module for zstd.

    It is in the standard library from Python 3.14 on, and in the package backports.zstd before.
    """
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _new_decoder(codec: str, memory: int) -> Any:
    """Return a decompressor of one member, with the methods of the standard library's."""
    decoder: Any
    if codec in ("gz", ZLIB):
        from isal import igzip_lib

        flag = igzip_lib.DECOMP_GZIP if codec == "gz" else igzip_lib.DECOMP_ZLIB
        decoder = igzip_lib.IgzipDecompressor(flag=flag)
    elif codec == "zst":
        # The window of the frame was compared with the limit before; this parameter is a power of
        # two.
        zstd = zstd_library()
        decoder = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: 31})
    elif codec == "lz4":
        import lz4.frame

        decoder = lz4.frame.LZ4FrameDecompressor()
    elif codec == "bz2":
        import bz2

        decoder = bz2.BZ2Decompressor()
    else:
        import lzma

        # It needs some KiB in addition to its dictionary.
        decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=memory + _STEP)
    return decoder


def _next_member(source: _CompressedInput, codec: str, first: bool) -> str | None:
    """Return the codec of the member or frame that begins here; None at the end of the stream.

    Raises:
        CompressionError: other bytes follow.
    """
    if codec in ("zst", "lz4") and _skip_frames(source):
        # Skippable frames at the beginning may be those of either codec: only now it is known.
        codec = "lz4" if first and source.peek(4) == _MAGIC["lz4"] else codec
        first = first and source.peek(4) not in (b"", _MAGIC[codec])
    return codec if _begins_member(source, codec, first) else None


def _skip_frames(source: _CompressedInput) -> bool:
    """Skip skippable frames; return True if there were any."""
    start = source.offset
    while _is_skippable(head := source.peek(8)):
        end = source.offset + 8 + int.from_bytes(head[4:], "little")
        source.skip_to(end)
        if len(head) < 8 or source.offset < end:
            raise source.fail("is cut short")
    return source.offset > start


def _begins_member(source: _CompressedInput, codec: str, first: bool) -> bool:
    zeros = source.skip_zeros() if codec in ("gz", "xz") and not first else 0
    if codec == "xz" and zeros % 4:
        raise source.fail(f"has a padding of {zeros} zero bytes, which is not a multiple of 4")
    head = source.peek(6)
    # zlib has five or more headers; one of them stands for all if another file begins here.
    magic = head[:2] if codec == ZLIB and begins_zlib(head) else _MAGIC.get(codec, b"\x78\x01")
    if not head and not first:
        return False
    if head != magic and magic.startswith(head):
        raise source.fail("is cut short")
    if not head.startswith(magic):
        raise source.fail(f"does not begin with the magic of {codec}" if first else "has other bytes after its end")
    if codec == "lz4" and len(head) > 4 and head[4] & 1:
        raise source.fail("needs a dictionary, which tarkit does not have")
    return True


def _check_memory(source: _CompressedInput, codec: str, memory: int) -> None:
    """Check that the member that begins here can be decompressed.

    Raises:
        TooLargeError: the member needs more memory than the limit.
        CompressionError: the member needs a dictionary.
    """
    if codec == "xz":
        needed = xz_dictionary(source.peek(128))
    elif codec == "zst":
        needed = zstd_window(head := source.peek(18))
        if needs_dictionary(head):
            raise source.fail("needs a dictionary, which tarkit does not have")
        memory = min(memory, ZSTD_MOST)
    else:
        return
    if needed is not None and needed > memory:
        raise source.too_large(needed, memory)


def _members(source: _CompressedInput, codec: str, memory: int) -> Iterator[bytes]:
    """Yield the content of every member or frame of a stream."""
    first = True
    while (found := _next_member(source, codec, first)) is not None:
        first = False
        source.codec = codec = found
        memory = max(memory, _LEAST_MEMORY.get(codec, 0))
        _check_memory(source, codec, memory)
        decoder = _new_decoder(codec, memory)
        while not decoder.eof:
            piece = b""
            if decoder.needs_input and not (piece := source.read(_PIECE)):
                raise source.fail("is cut short")
            try:
                content = decoder.decompress(piece, _STEP)
            except MemoryError:
                raise
            except Exception as error:
                if codec == "xz" and "Memory usage limit" in str(error):
                    # The error is about a block behind the first one.
                    raise source.too_large(None, memory) from None
                # Each library raises a different class for damaged bytes.
                raise source.fail(f"is damaged ({error}), at or before this offset") from None
            if content:
                yield content
        # lz4 returns None for no bytes.
        source.at -= len(decoder.unused_data or b"")


class DecompressingReader(Window):
    """A stream of decompressed bytes; it ends only if every checksum was right.

    Args:
        read: function that returns up to n compressed bytes.
        url: URL of the stream, for errors.
        memory: largest window in bytes; a small window is always allowed.

    Raises:
        CompressionError: (from read) the stream is damaged, cut short, or followed by other bytes.
        TooLargeError: (from read) more memory is needed.
    """

    def __init__(self, read: ReadFunction, codec: str, url: str, memory: int = 0) -> None:
        members = _members(_CompressedInput(read, codec, url), codec, memory)
        super().__init__(lambda _: next(members, b""))


class Compressor(Protocol):
    """A compressor of one stream; ``compress`` and ``flush``, which ends it, return bytes."""

    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class _Lz4Compressor:
    """LZ4 frame with linked blocks of 64 KiB and a content checksum, at the speed of ``lz4 -1``."""

    def __init__(self) -> None:
        import lz4.frame

        self._frame = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX64KB, content_checksum=True)
        self._header = self._frame.begin()

    def compress(self, data: bytes, /) -> bytes:
        header, self._header = self._header, b""
        return bytes(header + self._frame.compress(data))

    def flush(self) -> bytes:
        header, self._header = self._header, b""
        return bytes(header + self._frame.flush())


class _SeekableCompressor:
    """Zstandard's seekable format; where a frame ends depends on the content alone."""

    def __init__(self) -> None:
        zstd = zstd_library()
        self._frame = zstd.ZstdCompressor(options={zstd.CompressionParameter.checksum_flag: 1})
        self._content = bytearray()
        self._sizes: list[tuple[int, int]] = []

    def compress(self, data: bytes, /) -> bytes:
        view, at, frames = memoryview(data), 0, []
        while at < len(view):
            taken = _STEP - len(self._content)
            self._content += view[at : at + taken]
            at += taken
            if len(self._content) == _STEP:
                frames.append(self._end_frame())
        return b"".join(frames)

    def flush(self) -> bytes:
        last = self._end_frame() if self._content or not self._sizes else b""
        return last + encode_table(self._sizes)

    def _end_frame(self) -> bytes:
        # In one call, so that the frame states the size of its content.
        frame: bytes = self._frame.compress(self._content, self._frame.FLUSH_FRAME)
        self._sizes.append((len(frame), len(self._content)))
        self._content.clear()
        return frame


def new_compressor(codec: str) -> Compressor:
    """Return a compressor for one stream.

    The same input gives the same output: the stream has no time and no name.

    Raises:
        UsageError: the codec does not exist.
    """
    compressor: Compressor
    if check_codec(codec) in ("gz", ZLIB):
        from isal import isal_zlib

        # 16 + 15: a gzip header and trailer; its time is 0 and it has no name.
        compressor = isal_zlib.compressobj(level=2, wbits=31 if codec == "gz" else 15)
    elif codec == "zst":
        zstd = zstd_library()
        compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.checksum_flag: 1})
    elif codec == SEEKABLE:
        compressor = _SeekableCompressor()
    elif codec == "bz2":
        import bz2

        compressor = bz2.BZ2Compressor()
    elif codec == "xz":
        import lzma

        compressor = lzma.LZMACompressor()
    else:
        compressor = _Lz4Compressor()
    return compressor
