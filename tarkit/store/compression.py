"""Compression of whole streams: recognised by magic bytes when reading, chosen by name when
writing.

Formats: gzip (RFC 1952), Zstandard (RFC 8878), bzip2, xz (The .xz File Format 1.1.0), the LZ4 frame
format 1.6.4, and zlib (RFC 1950) where it is asked for. All of them may be several members or
frames one after another; such a stream is read to its true end. Memory is bounded whatever the
input says: every step of decompression yields at most 1 MiB, and a window or dictionary that is
larger than the limit is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from tarkit.errors import CompressionError, TooLargeError, UsageError, printable
from tarkit.names.redaction import redact
from tarkit.names.url import is_stream
from tarkit.store.codecmemory import ZSTD_MOST, needs_dictionary, xz_dictionary, zstd_window
from tarkit.store.window import Window

ReadFunction = Callable[[int], bytes]

CODECS = ("gz", "zst", "bz2", "xz", "lz4")
ZLIB = "zlib"
"""A codec without magic bytes and without an ending: only for formats that name it, such as
TFRecord.
"""
SNIFF_BYTES = 10
"""How many bytes ``sniff`` wants to see."""

_SUFFIXES = {f".{codec}": codec for codec in CODECS} | {".tgz": "gz", ".tzst": "zst", ".tbz2": "bz2", ".txz": "xz"}
# A tar under such a name would mislead everybody who reads it.
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
"""Bytes that the window of a stream may have in any case."""


def compression_for_name(name: str) -> str | None:
    """The codec that a file of this name has by custom: gz, zst, bz2, xz, lz4, or None for none.

    Upper and lower case are the same.

    >>> compression_for_name("train-0000.tar.zst"), compression_for_name("a.tgz"), compression_for_name("a.tar")
    ('zst', 'gz', None)
    """
    return _SUFFIXES.get(_ending(name))


def _ending(name: str) -> str:
    """``.gz`` of ``a.tar.GZ``; empty without a dot."""
    base = name[name.rfind("/") + 1 :].lower()
    return base[base.rfind(".") :] if "." in base else ""


def write_compression(choice: str | bool | None, name: str) -> str | None:
    """The codec for writing: ``choice`` itself, or the one that ``name`` stands for if it is
    "auto".

    True means gz; None and False mean none.

    Raises:
        UsageError: no codec has this name; or by its name the file is of a format that is not
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
    """Refuse the path or URL of a tar to write that has ``.tar`` before an unknown ending: by its
    name it is neither a plain tar nor one of a known compression; and one that ends with
    ``.json``, which would be read as a manifest.

    What a command does with a tar is its own matter. Raises: UsageError.
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
    """``name``, if it is the name of a codec.

    Raises:
        UsageError: it is not.
    """
    if isinstance(name, str) and name in (*CODECS, ZLIB):
        return name
    raise UsageError(f"no compression {name!r}; known are auto, {', '.join(CODECS)}, {ZLIB}, or None for none")


def sniff(head: bytes) -> str | None:
    """The codec of a stream that begins with ``head`` (SNIFF_BYTES bytes, or fewer if the stream is
    shorter).
    """
    if _is_skippable(head):
        # A skippable frame may begin both zst and lz4 streams; only pzstd really writes one first.
        return "zst"
    codec = next((codec for codec, magic in _MAGIC.items() if head.startswith(magic)), None)
    if codec == "bz2" and not (head[3:4] in b"123456789" and head[4:10] in _BZ2_BLOCKS):
        return None
    return codec


def begins_zlib(head: bytes) -> bool:
    """Whether ``head`` has the two bytes of a zlib header.

    Many other files begin with such two as well.
    """
    return len(head) >= 2 and head[0] & 0x8F == 8 and not head[1] & 0x20 and int.from_bytes(head[:2], "big") % 31 == 0


def _is_skippable(head: bytes) -> bool:
    """Whether a skippable frame begins here.

    Zst and lz4 have the same sixteen magic numbers for it.
    """
    return len(head) >= 4 and head[0] & 0xF0 == 0x50 and head[1:4] == b"\x2a\x4d\x18"


class _CompressedInput(Window):
    """Compressed bytes to come, with their position.

    ``fail`` makes the errors, so that all say where.
    """

    def __init__(self, read: ReadFunction, codec: str, url: str) -> None:
        super().__init__(read)
        self.codec = codec
        self._url = url

    def skip_zeros(self) -> int:
        """Pass over zero bytes; how many there were."""
        start = self.offset
        while piece := self.read(_PIECE):
            if rest := piece.lstrip(b"\0"):
                self.at -= len(rest)
                break
        return self.offset - start

    def fail(self, reason: str) -> CompressionError:
        """An error at the position that was reached."""
        hint = "the offset counts compressed bytes"
        return CompressionError(f"{self.codec} stream {reason}", url=self._url, offset=self.offset, hint=hint)

    def too_large(self, needed: int | None, memory: int) -> TooLargeError:
        """The error for a stream that needs more memory than the limit."""
        size = "more" if needed is None else f"{needed} bytes of"
        reason = f"{self.codec} stream needs {size} memory to decompress, and the limit is {memory}"
        program = "zstd -d --long=31" if self.codec == "zst" else "xz -d"
        larger = f"--mem {needed or 4 * memory}"
        hint = f"decompress it first ({program}), or where there is --mem, read it with {larger} (mem=)"
        if self.codec == "zst" and (needed or 0) > ZSTD_MOST:
            hint = f"no zstd decompresses more than {ZSTD_MOST}, so its header may be damaged: fetch it again"
        return TooLargeError(reason, url=self._url, hint=hint)


def zstd_library() -> Any:
    """The module for zstd: of the standard library from Python 3.14 on, before of the package
    backports.zstd.
    """
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _new_decoder(codec: str, memory: int) -> Any:
    """A decompressor of one member, with the methods of those of the standard library."""
    decoder: Any
    if codec in ("gz", ZLIB):
        from isal import igzip_lib

        flag = igzip_lib.DECOMP_GZIP if codec == "gz" else igzip_lib.DECOMP_ZLIB
        decoder = igzip_lib.IgzipDecompressor(flag=flag)
    elif codec == "zst":
        # What a frame asks for was held against the limit before; this one is a power of two.
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

        # Beside its dictionary it takes some KiB.
        decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=memory + _STEP)
    return decoder


def _next_member(source: _CompressedInput, codec: str, first: bool) -> str | None:
    """The codec of the member or frame that begins here; None at the end of the stream.

    Raises:
        CompressionError: something else does.
    """
    if codec in ("zst", "lz4") and _skip_frames(source):
        # Behind them at the beginning, either may follow: only now it is known which.
        codec = "lz4" if first and source.peek(4) == _MAGIC["lz4"] else codec
        first = first and source.peek(4) not in (b"", _MAGIC[codec])
    return codec if _begins_member(source, codec, first) else None


def _skip_frames(source: _CompressedInput) -> bool:
    """Pass over skippable frames; whether there were any."""
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
    # zlib has five or more headers, of which one has to stand for all if another file begins here.
    magic = head[:2] if codec == ZLIB and begins_zlib(head) else _MAGIC.get(codec, b"\x78\x01")
    if not head and not first:
        return False
    if head != magic and magic.startswith(head):
        raise source.fail("is cut short")
    if not head.startswith(magic):
        raise source.fail(f"does not begin as {codec} does" if first else "has other bytes after its end")
    if codec == "lz4" and len(head) > 4 and head[4] & 1:
        raise source.fail("needs a dictionary, which tarkit does not have")
    return True


def _check_memory(source: _CompressedInput, codec: str, memory: int) -> None:
    """Raises:
    TooLargeError: the member that begins here needs more memory.
    CompressionError: it needs a dictionary.
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
    """The content of every member or frame of a stream."""
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
                    # Of a block behind the first one.
                    raise source.too_large(None, memory) from None
                # Each library raises a class of its own for damaged bytes.
                raise source.fail(f"is damaged ({error}), at or before this offset") from None
            if content:
                yield content
        # lz4 has None for no bytes.
        source.at -= len(decoder.unused_data or b"")


class DecompressingReader(Window):
    """What a compressed stream holds; its end comes only when every checksum was right.

    Args:
        memory: bytes that its window may have; those that any stream may have are less. Raises (by
            read): CompressionError: damaged, cut short, or followed by other bytes.

    Raises:
        TooLargeError: more memory is needed.
    """

    def __init__(self, read: ReadFunction, codec: str, url: str, memory: int = 0) -> None:
        members = _members(_CompressedInput(read, codec, url), codec, memory)
        super().__init__(lambda _: next(members, b""))


class Compressor(Protocol):
    """Compresses one stream: the bytes that come out are returned, ``flush`` ends it."""

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


def new_compressor(codec: str) -> Compressor:
    """A compressor for one stream.

    Same input, same output: no time, no name.

    Raises:
        UsageError: no codec has this name.
    """
    compressor: Compressor
    if check_codec(codec) in ("gz", ZLIB):
        from isal import isal_zlib

        # 16 + 15: a gzip header and trailer; its time is 0 and it has no name.
        compressor = isal_zlib.compressobj(level=2, wbits=31 if codec == "gz" else 15)
    elif codec == "zst":
        zstd = zstd_library()
        compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.checksum_flag: 1})
    elif codec == "bz2":
        import bz2

        compressor = bz2.BZ2Compressor()
    elif codec == "xz":
        import lzma

        compressor = lzma.LZMACompressor()
    else:
        compressor = _Lz4Compressor()
    return compressor
