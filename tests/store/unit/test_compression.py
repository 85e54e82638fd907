"""Every codec: cut anywhere, damaged anywhere, concatenated, from the real programs, and as a
bomb."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import lz4.frame
import pytest
from codecsamples import LARGE, SMALL, packed, read_all

from tarkit.errors import CompressionError, TooLargeError, UsageError
from tarkit.store.codecmemory import zstd_window
from tarkit.store.compression import (
    CODECS,
    ZLIB,
    DecompressingReader,
    begins_zlib,
    compression_for_name,
    new_compressor,
    sniff,
    write_compression,
)
from tarkit.store.read import read_whole

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PYTHON: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": lambda data: zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1}),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lz4": lambda data: lz4.frame.compress(data, content_checksum=True, block_linked=False),
    "zlib": zlib.compress,
}


def short_reads(data: bytes, seed: int) -> Callable[[int], bytes]:
    rng, stream = random.Random(seed), io.BytesIO(data)
    return lambda count: stream.read(min(count, rng.choice((1, 2, 3, 7, 100, 5000))))


def test_gzip_has_no_time_and_no_name() -> None:
    header = packed(SMALL, "gz")[:10]
    assert header[3] == 0
    assert header[4:8] == bytes(4)


@pytest.mark.parametrize("codec", [*CODECS, ZLIB])
def test_python_modules_agree(codec: str) -> None:
    assert read_all(PYTHON[codec](LARGE), codec) == LARGE


@pytest.mark.parametrize("codec", [*CODECS, ZLIB])
def test_cut_at_every_byte(codec: str) -> None:
    for made in (PYTHON[codec](SMALL), packed(SMALL, codec)):
        for length in range(len(made)):
            with pytest.raises(CompressionError, match="cut short") as caught:
                read_all(made[:length], codec)
            assert caught.value.offset is not None
            assert caught.value.offset <= length


@pytest.mark.parametrize("codec", [*CODECS, ZLIB])
def test_second_member_cut_at_every_byte(codec: str) -> None:
    made = packed(SMALL, codec)
    for length in range(len(made) + 1, 2 * len(made)):
        with pytest.raises(CompressionError, match="cut short"):
            read_all((made + made)[:length], codec)


@pytest.mark.parametrize("codec", [*CODECS, ZLIB])
def test_flipped_bits_never_give_other_data(codec: str) -> None:
    made = packed(SMALL, codec)
    caught = 0
    for position in range(len(made)):
        for bit in range(8):
            damaged = bytearray(made)
            damaged[position] ^= 1 << bit
            try:
                # Bits that carry nothing (a time stamp, say) may be flipped: the content must be
                # right.
                assert read_all(bytes(damaged), codec) == SMALL
            except (CompressionError, TooLargeError):
                caught += 1
    assert caught > 7 * len(made)


@pytest.mark.parametrize("codec", [*CODECS, ZLIB])
@pytest.mark.parametrize("seed", range(3))
def test_concatenated_and_short_reads(codec: str, seed: int) -> None:
    made = packed(SMALL, codec) + packed(b"", codec) + packed(LARGE[:40_000], codec) + PYTHON[codec](SMALL)
    assert read_all(made, codec, short_reads(made, seed), step=997) == SMALL + LARGE[:40_000] + SMALL


@pytest.mark.parametrize("codec", [*CODECS, ZLIB])
def test_other_bytes_after_the_end(codec: str) -> None:
    made = packed(SMALL, codec)
    with pytest.raises(CompressionError, match="other bytes after its end") as caught:
        read_all(made + b"garbage", codec)
    assert caught.value.offset == len(made)
    assert str(caught.value).startswith(f"shard, offset {len(made)}: {codec} stream")


@pytest.mark.parametrize("codec", [*CODECS, ZLIB])
def test_not_this_codec(codec: str) -> None:
    with pytest.raises(CompressionError, match=f"does not begin with the magic of {codec}"):
        read_all(b"a plain tar, maybe", codec)


def test_python_reads_zlib_and_its_header_is_known() -> None:
    for data in (b"", SMALL, LARGE):
        assert zlib.decompress(packed(data, ZLIB)) == data
    for level in range(10):
        for window in range(9, 16):
            compressor = zlib.compressobj(level, wbits=window)
            made = compressor.compress(SMALL) + compressor.flush()
            assert begins_zlib(made), (level, window)
            assert sniff(made) is None
            assert read_all(made, ZLIB) == SMALL
    assert not any(begins_zlib(head) for head in (b"", b"x", b"x\x9d", b"\x88\x1c", b"xt", bytes(2)))


def test_zero_padding() -> None:
    made = packed(SMALL, "gz")
    assert read_all(made + bytes(1_000_001), "gz") == SMALL
    assert read_all(made + bytes(512) + made, "gz") == SMALL + SMALL
    xz = packed(SMALL, "xz")
    assert read_all(xz + bytes(8) + xz + bytes(4), "xz") == SMALL + SMALL
    with pytest.raises(CompressionError, match="padding of 6 zero bytes"):
        read_all(xz + bytes(6), "xz")
    with pytest.raises(CompressionError, match="other bytes"):
        read_all(made + bytes(512) + b"x" * 20, "gz")
    with pytest.raises(CompressionError, match="other bytes"):
        read_all(packed(SMALL, "bz2") + bytes(8), "bz2")


@pytest.mark.parametrize("codec", ["zst", "lz4"])
def test_skippable_frames(codec: str) -> None:
    made = packed(SMALL, codec)
    note = struct.pack("<II", 0x184D2A53, 600_000) + bytes(600_000)
    assert read_all(note + made + note + made + note, codec) == SMALL + SMALL
    assert read_all(note, codec) == b""
    for cut in (note[:-1], note[:7]):
        with pytest.raises(CompressionError, match="cut short"):
            read_all(made + cut, codec)


def test_what_is_behind_a_skippable_frame_says_which_codec_it_is(tmp_path: Path) -> None:
    """zst and lz4 have the same sixteen magic numbers for it."""
    note = struct.pack("<II", 0x184D2A50, 5) + b"12345"
    for codec in ("zst", "lz4"):
        path = tmp_path / codec
        path.write_bytes(note + note + packed(SMALL, codec) + note)
        assert read_whole(path) == SMALL
        with pytest.raises(CompressionError, match=f"{codec} stream has other bytes after its end"):
            read_all(note + packed(SMALL, codec) + packed(SMALL, "lz4" if codec == "zst" else "zst"), "zst")
    with pytest.raises(CompressionError, match="zst stream does not begin with the magic of zst"):
        read_all(note + b"something else", "zst")


def test_damaged_frames() -> None:
    zst, lz = packed(SMALL, "zst"), packed(SMALL, "lz4")
    table = {
        "zst": [
            (zst[:4] + b"\x08" + zst[5:], "nsupported"),
            (zst[:6] + b"\xff\xff\xff" + zst[9:], "corruption"),
            (zst[:-1] + bytes([zst[-1] ^ 1]), "checksum"),
        ],
        "lz4": [
            (lz[:4] + b"\x04" + lz[5:], "headerVersion_wrong"),
            (lz[:6] + bytes([lz[6] ^ 1]) + lz[7:], "headerChecksum_invalid"),
            (lz[:7] + b"\xff\xff\xff\x7f" + lz[11:], "maxBlockSize_invalid"),
            (lz[:-1] + bytes([lz[-1] ^ 1]), "contentChecksum_invalid"),
        ],
    }
    for codec, cases in table.items():
        for damaged, why in cases:
            with pytest.raises(CompressionError, match=f"{codec} stream is damaged.*{why}"):
                read_all(damaged, codec)


def test_a_window_that_is_too_large_is_not_damage() -> None:
    """Memory is bounded by 128 MiB or --mem, whatever window a frame asks for."""
    made = b"\x28\xb5\x2f\xfd" + bytes([0, 21 << 3]) + b"\x01\x00\x00"
    said = (
        "needs 2147483648 bytes of memory to decompress, and the limit is 134217728; decompress it first .*--long=31.*"
    )
    with pytest.raises(TooLargeError, match=f"{said}--mem 2147483648"):
        read_all(made, "zst")
    larger = made[:5] + bytes([21 << 3 | 7]) + made[6:]
    with pytest.raises(TooLargeError, match=r"needs 4026531840 bytes .*; zstd decompresses at most"):
        read_all(larger, "zst", memory=1 << 33)


def test_a_window_that_fits_into_mem_is_read() -> None:
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 28})
    made = compressor.compress(SMALL) + compressor.flush()
    with pytest.raises(TooLargeError, match="needs 268435456 bytes"):
        read_all(made, "zst")
    assert read_all(made, "zst", memory=1 << 28) == SMALL


def test_how_much_memory_a_zstd_frame_needs() -> None:
    for size in (0, 1, 255, 256, 65_791, 65_792, 3_000_000):
        for level in (1, 19):
            found = zstd_window(zstd.compress(bytes(size), level)[:18])
            assert found is not None and found <= max(size, 1024)
    assert zstd_window(b"\x28\xb5\x2f\xfd\x00") is None


def test_an_error_never_turns_into_an_end() -> None:
    reader = DecompressingReader(io.BytesIO(packed(SMALL, "gz")[:-3]).read, "gz", "shard")
    with pytest.raises(CompressionError):
        while reader.read(100):
            pass
    with pytest.raises(CompressionError):
        reader.read(100)


def test_names() -> None:
    table = {
        "a.tar": None, "a": None, "": None, "gz": None, "dir.gz/a": None, "a.tar.gz": "gz", "A.TGZ": "gz",
        "s3://b/a.tar.zst": "zst", "a.tzst": "zst", "a.tar.bz2": "bz2", "a.tbz2": "bz2", "a.xz": "xz", "a.txz": "xz",
        "a.tar.lz4": "lz4",
    }  # fmt: skip
    assert {name: compression_for_name(name) for name in table} == table
    assert [write_compression(c, "a.xz") for c in ("auto", True, False, None, "bz2")] == ["xz", "gz", None, None, "bz2"]
    with pytest.raises(UsageError, match="no compression 'rar'; known are auto, gz"):
        write_compression("rar", "a")
    with pytest.raises(UsageError, match="no compression"):
        new_compressor("zip")


@pytest.mark.parametrize("head", [b"", b"a", b"ustar" * 99, bytes(10), b"BZh9 is a name", b"\x1f\x8b", b"SEQ\x06"])
def test_plain_data_is_left_alone(head: bytes) -> None:
    assert sniff(head) is None
