"""Every codec: cut anywhere, damaged anywhere, concatenated, from the real programs, and as a bomb."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import shutil
import struct
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lz4.frame
import pytest

from tarkit.errors import CompressionError, TooLargeError, UsageError
from tarkit.store.codecmemory import xz_dictionary, zstd_window
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

PROGRAMS = {
    "gz": [["gzip", "-c"], ["gzip", "-1", "-c"], ["gzip", "-9n", "-c"]],
    "zst": [["zstd", "-c"], ["zstd", "-19", "-c"], ["zstd", "--no-check", "-c"], ["pzstd", "-c"]],
    "bz2": [["bzip2", "-c"], ["bzip2", "-1", "-c"]],
    "xz": [["xz", "-c"], ["xz", "-0", "--check=sha256", "-c"], ["xz", "--block-size=20000", "-c"]],
    "lz4": [
        ["lz4", "-c"],
        ["lz4", "-9", "-BD", "-B4", "-c"],
        ["lz4", "-BX", "-B5", "-c"],
        ["lz4", "-BD", "-BX", "-B4", "-c"],
        ["lz4", "--no-frame-crc", "-c"],
    ],
}
UNPACK = {"gz": "gzip", "zst": "zstd", "bz2": "bzip2", "xz": "xz", "lz4": "lz4"}
PYTHON: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": lambda data: zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1}),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lz4": lambda data: lz4.frame.compress(data, content_checksum=True, block_linked=False),
    "zlib": zlib.compress,
}
RNG = random.Random(20240229)
SMALL = b"".join(b"%d little words, " % RNG.randrange(50) for _ in range(12)) + RNG.randbytes(40)
LARGE = b"".join(RNG.choice((RNG.randbytes(300), b"abc" * 99, SMALL)) for _ in range(3000)) + b"\0" * 300_000


def read_all(
    data: bytes, codec: str, read: Callable[[int], bytes] | None = None, step: int = 10_000, memory: int = 0
) -> bytes:
    reader = DecompressingReader(read or io.BytesIO(data).read, codec, "shard", memory)
    parts = []
    while part := reader.read(step):
        assert len(part) <= step
        parts.append(part)
    assert reader.read(step) == b""
    return b"".join(parts)


def packed(data: bytes, codec: str) -> bytes:
    compressor = new_compressor(codec)
    half = len(data) // 2
    return compressor.compress(data[:half]) + compressor.compress(data[half:]) + compressor.flush()


def short_reads(data: bytes, seed: int) -> Callable[[int], bytes]:
    rng, stream = random.Random(seed), io.BytesIO(data)
    return lambda count: stream.read(min(count, rng.choice((1, 2, 3, 7, 100, 5000))))


@pytest.mark.parametrize(
    ("codec", "command"),
    [(codec, command) for codec in CODECS for command in PROGRAMS[codec]],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_reads_what_the_real_program_writes(codec: str, command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"the program {command[0]} is not installed")
    for data in (b"", b"x", SMALL, LARGE):
        made = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout
        assert sniff(made[:10]) == codec
        assert read_all(made, codec) == data
        assert read_all(made + made, codec) == data + data


@pytest.mark.parametrize("codec", CODECS)
def test_the_real_program_reads_what_is_written(codec: str) -> None:
    if shutil.which(UNPACK[codec]) is None:
        pytest.skip(f"the program {UNPACK[codec]} is not installed")
    for data in (b"", SMALL, LARGE):
        made = packed(data, codec)
        assert made == packed(data, codec)
        assert sniff(made) == codec
        assert subprocess.run([UNPACK[codec], "-dc"], input=made, stdout=subprocess.PIPE, check=True).stdout == data


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
                # Bits that carry nothing (a time stamp, say) may be flipped: the content must be right.
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


def test_frames_that_need_a_dictionary(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_bytes(SMALL * 3)
    samples = [SMALL[n : n + 60] for n in range(len(SMALL) - 60)]
    made = zstd.compress(SMALL, zstd_dict=zstd.train_dict(samples, 1024))
    with pytest.raises(CompressionError, match="zst stream needs a dictionary"):
        read_all(made, "zst")
    packed_lz4 = packed(SMALL, "lz4")
    with pytest.raises(CompressionError, match="needs a dictionary"):
        read_all(packed_lz4[:4] + bytes([packed_lz4[4] | 1]) + packed_lz4[5:], "lz4")
    if shutil.which("lz4") is None:
        pytest.skip("the program lz4 is not installed")
    command = ["lz4", "-D", str(words), "-c"]
    with pytest.raises(CompressionError, match="dictionary|damaged"):
        read_all(subprocess.run(command, input=SMALL, stdout=subprocess.PIPE, check=True).stdout, "lz4")


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


def with_dictionary(xz: bytes, bits: int, at: int = 12) -> bytes:
    """The stream with another size of the dictionary in the block header at this offset."""
    end = at + 4 * xz[at]
    header = xz[at:end].replace(b"\x21\x01" + xz[at + 4 : at + 5], b"\x21\x01" + bytes([bits]))
    return xz[:at] + header + struct.pack("<I", zlib.crc32(header)) + xz[end + 4 :]


def test_an_xz_dictionary_that_is_too_large_is_not_damage() -> None:
    xz = packed(SMALL, "xz")
    said = r"xz stream needs 1610612736 bytes of memory .* is 1073741824; decompress .* \(xz -d\).* --mem 1610612736"
    with pytest.raises(TooLargeError, match=said):
        read_all(xz + with_dictionary(xz, 37), "xz")
    with pytest.raises(TooLargeError, match="needs 4294967295 bytes"):
        read_all(with_dictionary(xz, 40), "xz")
    assert read_all(with_dictionary(xz, 28), "xz") == SMALL
    if shutil.which("xz") is None:
        pytest.skip("the program xz is not installed")
    command = ["xz", "-c", "-T1", "--block-size=100"]
    blocks = subprocess.run(command, input=SMALL, stdout=subprocess.PIPE, check=True).stdout
    second = blocks.index(blocks[12:24], 24)
    with pytest.raises(TooLargeError, match="needs more memory .* --mem 4294967296"):
        read_all(with_dictionary(blocks, 37, second), "xz")


@pytest.mark.parametrize("filters", [[], [lzma.FILTER_X86], [lzma.FILTER_DELTA, lzma.FILTER_ARM]])
def test_how_much_memory_an_xz_block_needs(filters: list[int]) -> None:
    for size in (4096, 6144, 1 << 20, 3 << 19):
        chain: list[Any] = [*({"id": each} for each in filters), {"id": lzma.FILTER_LZMA2, "dict_size": size}]
        assert xz_dictionary(lzma.compress(SMALL, filters=chain)[:128]) == size
    if shutil.which("xz") is not None and not filters:
        # With several threads it writes the sizes of a block into its header.
        made = subprocess.run(["xz", "-T2", "-c"], input=LARGE, stdout=subprocess.PIPE, check=True).stdout
        assert xz_dictionary(made[:128]) == 8 << 20 and made[13] & 0xC0
    assert xz_dictionary(lzma.compress(b"")) is None and xz_dictionary(b"short") is None


def test_an_error_never_turns_into_an_end() -> None:
    reader = DecompressingReader(io.BytesIO(packed(SMALL, "gz")[:-3]).read, "gz", "shard")
    with pytest.raises(CompressionError):
        while reader.read(100):
            pass
    with pytest.raises(CompressionError):
        reader.read(100)


BOMB = textwrap.dedent(
    """
    import lzma, sys
    from tarkit.store.compression import DecompressingReader, new_compressor
    codec = sys.argv[1]
    piece = bytes(1 << 20)
    # One stream of 256 MiB; but what is slow to pack is made of 16, which bzip2's blocks are anyhow.
    packer = lzma.LZMACompressor(preset=0) if codec == "xz" else new_compressor(codec)
    packed = bytearray()
    for _ in range(16 if codec in ("bz2", "xz") else 256):
        packed += packer.compress(piece)
    packed += packer.flush()
    packed *= 16 if codec in ("bz2", "xz") else 1
    view, at = memoryview(packed), 0
    def read(count):
        global at
        at += count
        return bytes(view[at - count : at])
    def peak():
        # Not ru_maxrss: a process begins with that of the one that started it.
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    # A codec may need its window; a run of 256 MiB of zeros must not come up in memory.
    before = peak()
    reader, total = DecompressingReader(read, codec, "bomb"), 0
    while part := reader.read(1 << 20):
        total += len(part)
    print(total, peak() - before)
    """
)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="NO /proc HERE, PEAKS OF MEMORY ARE NOT MEASURED")
@pytest.mark.parametrize("codec", CODECS)
def test_bomb_stays_small_in_memory(codec: str) -> None:
    command = [sys.executable, "-c", BOMB, codec]
    total, grown_kib = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.split()
    assert int(total) == 256 << 20
    assert int(grown_kib) < 32 * 1024


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
