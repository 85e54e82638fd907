"""Hadoop's compression codecs: one buffer to bytes and back, by the class name that a file gives.

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
"""Plain bytes that are compressed at once by snappy and lz4; Hadoop's buffer has 256 KiB."""


class Codec(NamedTuple):
    """compress(data).

    decompress(data, limit), which raises ValueError if data is damaged or gives more than limit.
    """

    compress: Callable[[bytes], bytes]
    decompress: Callable[[bytes, int], bytes]


def _above(limit: int) -> ValueError:
    return ValueError(f"decompressed it has more than {limit} bytes; mem sets the limit")


def _stream(new: Callable[[], Any], several: bool) -> Callable[[bytes, int], bytes]:
    """A decompressor of streams of the standard library; ``several`` may follow each other."""

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
    """unpack(segment, how many bytes it may give at most).

    Args:
        ratio: no segment can give more than that times its size.
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
                    raise ValueError("a compressed block has another length than it says")
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

    # It allocates what the data says, so that is looked at first.
    if cramjam.snappy.decompress_raw_len(data) > most:
        raise ValueError("a compressed block has another length than it says")
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
"""Class below PACKAGE -> what it does."""

SHORT_NAMES = {
    "zlib": "DefaultCodec",
    "gzip": "GzipCodec",
    "bzip2": "BZip2Codec",
    "snappy": "SnappyCodec",
    "lz4": "Lz4Codec",
    "zstd": "ZStandardCodec",
}


def codec_class(name: str) -> str:
    """The class name that is written for a short name (``snappy``) or a class name.

    Raises:
        UsageError: there is none.
    """
    found = SHORT_NAMES.get(name, name.removeprefix(PACKAGE))
    if found not in CODECS:
        raise UsageError(f"no codec {printable(name)!r}; known are {', '.join(SHORT_NAMES)}")
    return PACKAGE + found


def codec_of(class_name: str, url: str) -> Codec:
    """What reads the buffers of a file that gives this class.

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
