"""Every codec with the real programs, and its memory as a process."""

from __future__ import annotations

import lzma
import shutil
import struct
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path
from typing import Any

import pytest
from codecsamples import LARGE, SMALL, packed, read_all

from tarkit.errors import CompressionError, TooLargeError
from tarkit.store.codecmemory import xz_dictionary
from tarkit.store.compression import (
    CODECS,
    sniff,
)

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
    with pytest.raises(CompressionError, match=r"dictionary|damaged"):
        read_all(subprocess.run(command, input=SMALL, stdout=subprocess.PIPE, check=True).stdout, "lz4")


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
    with pytest.raises(TooLargeError, match=r"needs more memory .* --mem 4294967296"):
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
