"""Compression of whole streams: told by magic bytes when reading, by name when writing.

Formats: gzip (RFC 1952), Zstandard (RFC 8878), bzip2, xz (The .xz File Format 1.1.0) and
the LZ4 frame format 1.6.4. All of them may be several members or frames one after another;
such a stream is read to its true end. Memory is bounded whatever the input says: every step
of decompression yields at most a few MiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, cast

from tarkit.errors import UsageError, printable
from tarkit.redaction import redact
from tarkit.store.blockframes import (
    LZ4_MAGIC,
    ZST_MAGIC,
    CompressedInput,
    ReadFunction,
    is_skippable,
    lz4_frames,
    zst_frames,
)

CODECS = ("gz", "zst", "bz2", "xz", "lz4")
_LZ4_BLOCK = 1 << 16
SNIFF_BYTES = 10
"""How many bytes ``sniff`` wants to see."""

_SUFFIXES = {
    ".gz": "gz",
    ".tgz": "gz",
    ".zst": "zst",
    ".tzst": "zst",
    ".bz2": "bz2",
    ".tbz2": "bz2",
    ".xz": "xz",
    ".txz": "xz",
    ".lz4": "lz4",
}
# A tar under such a name would mislead everybody who reads it.
_NOT_WRITTEN = (".7z", ".br", ".lz", ".lzma", ".lzo", ".rar", ".z", ".zip")
_MAGIC = {"gz": b"\x1f\x8b\x08", "bz2": b"BZh", "xz": b"\xfd7zXZ\x00"}
_BZ2_BLOCKS = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
_STEP = 1024 * 1024
_XZ_MEMORY = 1 << 30


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
    """The codec for writing: ``choice`` itself, or the one that ``name`` stands for if it is "auto".

    True means gz; None and False mean none.

    Raises:
        UsageError: no codec has this name; or by its name the file is of a format that is not written.
    """
    if choice == "auto":
        if _ending(name) in _NOT_WRITTEN:
            raise UsageError(
                f"{printable(redact(name))}: {_ending(name)} is not written; name it .tar, or for a compressed tar "
                ".tar.gz, .tgz, .tar.zst, .tar.bz2, .tar.xz or .tar.lz4"
            )
        return compression_for_name(name)
    if choice is True:
        return "gz"
    return check_codec(choice) if choice else None


def check_codec(name: object) -> str:
    """``name``, if it is the name of a codec.

    Raises:
        UsageError: it is not.
    """
    if isinstance(name, str) and name in CODECS:
        return name
    raise UsageError(f"there is no compression {name!r}; known are auto, {', '.join(CODECS)}, or None for none")


def sniff(head: bytes) -> str | None:
    """The codec of a stream that begins with ``head`` (SNIFF_BYTES bytes, or fewer if the stream is shorter)."""
    if head.startswith(_MAGIC["gz"]):
        return "gz"
    if head.startswith(ZST_MAGIC) or is_skippable(head):
        # A skippable frame may begin both zst and lz4 streams; only pzstd really writes one first.
        return "zst"
    if head.startswith(LZ4_MAGIC):
        return "lz4"
    if head.startswith(_MAGIC["xz"]):
        return "xz"
    if head.startswith(_MAGIC["bz2"]) and head[3:4] in b"123456789" and head[4:10] in _BZ2_BLOCKS:
        return "bz2"
    return None


class _Decoder(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def _new_decoder(codec: str) -> _Decoder:
    if codec == "gz":
        from isal import igzip_lib

        gz: _Decoder = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
        return gz
    if codec == "bz2":
        import bz2

        return bz2.BZ2Decompressor()
    import lzma

    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


def _decoder_errors(codec: str) -> tuple[type[Exception], ...]:
    if codec == "gz":
        from isal import isal_zlib

        # Its stub says that this is an exception; it is a class of them.
        return (cast("type[Exception]", isal_zlib.error), EOFError, ValueError)
    if codec == "bz2":
        return (OSError, EOFError, ValueError)
    import lzma

    return (lzma.LZMAError, EOFError)


def _members(source: CompressedInput, codec: str) -> Iterator[bytes]:
    """The content of every member of a gz, bz2 or xz stream."""
    magic = _MAGIC[codec]
    errors = _decoder_errors(codec)
    first = True
    while True:
        zeros = source.skip_zeros() if codec != "bz2" and not first else 0
        if codec == "xz" and zeros % 4:
            raise source.fail(f"has a padding of {zeros} zero bytes, which is no multiple of 4")
        head = source.peek(len(magic))
        if not head and not first:
            return
        if head != magic:
            raise source.no_member(head, magic, first)
        first = False
        decoder = _new_decoder(codec)
        while not decoder.eof:
            piece = b""
            if decoder.needs_input and not (piece := source.piece()):
                raise source.cut_short()
            try:
                content = decoder.decompress(piece, _STEP)
            except errors as error:
                raise source.fail(f"is damaged ({error}), at or before this offset") from None
            if content:
                yield content
        source.unread(decoder.unused_data)


class DecompressingReader:
    """What a compressed stream holds. Errors come again on every later read: they never turn into an end."""

    def __init__(self, read: ReadFunction, codec: str, url: str) -> None:
        source = CompressedInput(read, codec, url)
        if codec == "zst":
            self._chunks = zst_frames(source)
        elif codec == "lz4":
            self._chunks = lz4_frames(source)
        else:
            self._chunks = _members(source, codec)
        self._chunk = b""
        self._at = 0
        self._error: BaseException | None = None

    def read(self, count: int) -> bytes:
        """At most ``count`` bytes; b"" only at the true end, when every checksum was right.

        Raises:
            CompressionError: damaged, cut short, or followed by other bytes.
        """
        if self._at >= len(self._chunk):
            if self._error is not None:
                raise self._error
            try:
                self._chunk = next(self._chunks, b"")
            except BaseException as error:
                self._error = error
                raise
            self._at = 0
            if len(self._chunk) <= count:
                self._at = len(self._chunk)
                return self._chunk
        data = self._chunk[self._at : self._at + count]
        self._at += len(data)
        return data


class Compressor(Protocol):
    """Compresses one stream: the bytes that come out are returned, ``flush`` ends it."""

    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class _Lz4Compressor:
    """LZ4 frame with linked blocks of 64 KiB and a content checksum, at the speed of ``lz4 -1``."""

    def __init__(self) -> None:
        import cramjam

        self._frame = cramjam.lz4.Compressor(1)
        self._waiting = bytearray()

    def compress(self, data: bytes, /) -> bytes:
        self._waiting += data
        whole = len(self._waiting) - len(self._waiting) % _LZ4_BLOCK
        if not whole:
            return b""
        # Each of its calls ends a block, and small blocks are poor ones.
        for at in range(0, whole, _LZ4_BLOCK):
            self._frame.compress(bytes(self._waiting[at : at + _LZ4_BLOCK]))
        del self._waiting[:whole]
        return bytes(self._frame.flush())

    def flush(self) -> bytes:
        if self._waiting:
            self._frame.compress(bytes(self._waiting))
        return bytes(self._frame.finish())


def new_compressor(codec: str) -> Compressor:
    """A compressor for one stream. Same input, same output: no time, no name.

    Raises:
        UsageError: no codec has this name.
    """
    compressor: Compressor
    if check_codec(codec) == "gz":
        from isal import isal_zlib

        # 16 + 15: a gzip header and trailer; its time is 0 and it has no name.
        compressor = isal_zlib.compressobj(level=2, wbits=31)
    elif codec == "zst":
        import zstandard

        compressor = zstandard.ZstdCompressor(level=3, write_checksum=True).compressobj()
    elif codec == "bz2":
        import bz2

        compressor = bz2.BZ2Compressor()
    elif codec == "xz":
        import lzma

        compressor = lzma.LZMACompressor()
    else:
        compressor = _Lz4Compressor()
    return compressor
