"""Hadoop's compression codecs: compress and decompress one buffer, by the codec's class name.

DefaultCodec and DeflateCodec are a zlib stream, GzipCodec gzip members, BZip2Codec bzip2 streams,
ZStandardCodec zstd frames. SnappyCodec and Lz4Codec are blocks: the length of the plain bytes
(int32), then one or more times the length of compressed bytes (int32) and these, until the plain
length is reached. All numbers are big-endian.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from tarkit.errors import DecodeError, UsageError, printable
from tarkit.store.compression import zstd_library

PACKAGE = "org.apache.hadoop.io.compress."
_SEGMENT = 1 << 17
"""Size in bytes of one piece for snappy and lz4; Hadoop's buffer has 256 KiB."""


class Codec(NamedTuple):
    """A codec: its functions to compress and to decompress.

    Attributes:
        compress: function from bytes to compressed bytes.
        decompress: function from compressed bytes and a limit to bytes; it raises ValueError if the
            data is damaged or has more bytes than the limit.
    """

    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes, int], bytes]


def _above(limit: int) -> ValueError:
    return ValueError(f"decompressed it has more than {limit} bytes; mem sets the limit")


def _stream(new: Callable[[], Any], several: bool) -> Callable[[bytes, int], bytes]:
    """Return a decompressor of streams of the standard library; ``several`` streams may follow."""

    def decompress(data: bytes, limit: int) -> bytes:
        parts: list[bytes] = []
        room = limit
        while True:
            decoder = new()
            part = decoder.decompress(data, room + 1)
            room -= len(part)
            if room < 0:
                raise _above(limit)
            parts.append(part)
            if not decoder.eof:
                raise ValueError("the compressed data is cut")
            data = decoder.unused_data
            if not data:
                return b"".join(parts)
            if not several:
                raise ValueError(f"{len(data)} bytes follow the compressed data")

    return decompress


def _deflate(bits: int) -> Callable[[bytes], bytes]:
    def compress(data: bytes) -> bytes:
        encoder = zlib.compressobj(wbits=bits)
        return encoder.compress(data) + encoder.flush()

    return compress


def _compress_zstd(data: bytes) -> bytes:
    compressed: bytes = zstd_library().compress(data)
    return compressed


def _compress_blocks(pack: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def compress(data: bytes) -> bytes:
        parts = [len(data).to_bytes(4, "big")]
        for start in range(0, len(data), _SEGMENT):
            packed = pack(data[start : start + _SEGMENT])
            parts += (len(packed).to_bytes(4, "big"), packed)
        return b"".join(parts)

    return compress


def _decompress_blocks(unpack: Callable[[bytes, int], bytes], ratio: int) -> Callable[[bytes, int], bytes]:
    """Return a decompressor of blocks.

    Args:
        unpack: function from a segment and the largest size of its content to the content.
        ratio: largest size of a segment's content, as a multiple of the segment's size.
    """

    def decompress(data: bytes, limit: int) -> bytes:
        parts: list[bytes] = []
        at, room = 0, limit
        while at < len(data):
            missing, at = _length(data, at)
            room -= missing
            if room < 0:
                raise _above(limit)
            while missing:
                size, at = _length(data, at)
                if size > len(data) - at:
                    raise ValueError("the compressed data is cut")
                part = unpack(data[at : at + size], min(missing, size * ratio))
                at += size
                missing -= len(part)
                if missing < 0 or not part:
                    raise ValueError("a compressed block has a different length than stated")
                parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    return decompress


def _length(data: bytes, at: int) -> tuple[int, int]:
    if at + 4 > len(data):
        raise ValueError("the compressed data is cut")
    number = int.from_bytes(data[at : at + 4], "big", signed=True)
    if number < 0:
        raise ValueError(f"a length in the compressed data is {number}")
    return number, at + 4


def _pack_snappy(data: bytes) -> bytes:
    import cramjam

    return bytes(cramjam.snappy.compress_raw(data))


def _unpack_snappy(data: bytes, most: int) -> bytes:
    import cramjam

    # The library allocates the size stated in the data, so that is checked first.
    if cramjam.snappy.decompress_raw_len(data) > most:
        raise ValueError("a compressed block has a different length than stated")
    return bytes(cramjam.snappy.decompress_raw(data))


def _pack_lz4(data: bytes) -> bytes:
    import lz4.block

    packed: bytes = lz4.block.compress(data, store_size=False)
    return packed


def _unpack_lz4(data: bytes, most: int) -> bytes:
    import lz4.block

    plain: bytes = lz4.block.decompress(data, uncompressed_size=most)
    return plain


_ZLIB = Codec(_deflate(15), _stream(lambda: zlib.decompressobj(15), several=False))
CODECS = {
    "DefaultCodec": _ZLIB,
    "DeflateCodec": _ZLIB,
    "GzipCodec": Codec(_deflate(31), _stream(lambda: zlib.decompressobj(31), several=True)),
    "BZip2Codec": Codec(bz2.compress, _stream(bz2.BZ2Decompressor, several=True)),
    "SnappyCodec": Codec(_compress_blocks(_pack_snappy), _decompress_blocks(_unpack_snappy, 64)),
    "Lz4Codec": Codec(_compress_blocks(_pack_lz4), _decompress_blocks(_unpack_lz4, 256)),
    "ZStandardCodec": Codec(_compress_zstd, _stream(lambda: zstd_library().ZstdDecompressor(), several=True)),
}
"""Class below PACKAGE -> its codec."""

SHORT_NAMES = {
    "zlib": "DefaultCodec",
    "gzip": "GzipCodec",
    "bzip2": "BZip2Codec",
    "snappy": "SnappyCodec",
    "lz4": "Lz4Codec",
    "zstd": "ZStandardCodec",
}


def codec_class(name: str) -> str:
    """Return the class name for a short name (``snappy``) or a class name.

    Raises:
        UsageError: the codec does not exist.
    """
    found = SHORT_NAMES.get(name, name.removeprefix(PACKAGE))
    if found not in CODECS:
        raise UsageError(f"no codec {printable(name)!r}; known are {', '.join(SHORT_NAMES)}")
    return PACKAGE + found


def codec_of(class_name: str, url: str) -> Codec:
    """Return the codec for the class name in a file.

    Raises:
        DecodeError: tarkit does not have this codec.
    """
    found = CODECS.get(class_name.removeprefix(PACKAGE)) if class_name.startswith(PACKAGE) else None
    if found is None:
        raise DecodeError(
            f"is compressed by {printable(class_name)}, which tarkit does not have",
            url=url,
            hint=f"write it again with one of {', '.join(sorted(CODECS))}",
        )
    return found
