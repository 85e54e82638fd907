"""Content of compressed files from any byte on is that of the whole; damage is never content."""

from __future__ import annotations

import gzip
import importlib.util
import io
import random
import re
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarkit.errors import CompressionError, MissingInputError, StaleIndexError, TarkitError, TooLargeError
from tarkit.extras import MissingExtraError
from tarkit.store import gzippoints
from tarkit.store.compression import SEEKABLE, DecompressingReader, new_compressor, zstd_library
from tarkit.store.frames import DecodedFrames
from tarkit.store.frametable import encode_table
from tarkit.store.gzippoints import inflate
from tarkit.store.packedfile import PackedFile, open_packed
from tarkit.store.seekfile import build_seek

zstd = zstd_library()
CHECKSUM = {zstd.CompressionParameter.checksum_flag: 1}
MIB = 1 << 20

needs_gzip = pytest.mark.skipif(
    importlib.util.find_spec("indexed_gzip") is None, reason="NO indexed_gzip, NO .tar.gz IS READ BY NUMBER"
)


def content_of(size: int) -> bytes:
    drawn = random.Random(5)
    return b"".join(drawn.randbytes(700) + b"%d" % number * 90 for number in range(size // 1000 + 1))[:size]


CONTENT = content_of(5 * MIB // 2)


def parts(content: bytes, size: int) -> list[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]


def seekable(content: bytes, piece: int = 10**6) -> bytes:
    compressor = new_compressor(SEEKABLE)
    return b"".join([*map(compressor.compress, parts(content, piece)), compressor.flush()])


def frames(content: bytes, size: int = 1000, options: dict[Any, int] | None = None) -> list[bytes]:
    return [zstd.compress(part, options=options or {}) for part in parts(content, size)]


def table_with_checksums(content: bytes, size: int) -> bytes:
    """Frames without a checksum, which the table has instead."""
    plain = frames(content, size)
    sums = [frame[-4:] for frame in frames(content, size, CHECKSUM)]
    sizes = [len(part) for part in parts(content, size)]
    entries = b"".join(struct.pack("<II", len(f), n) + s for f, n, s in zip(plain, sizes, sums, strict=True))
    body = entries + struct.pack("<IBI", len(plain), 0x80, 0x8F92EAB1)
    return b"".join(plain) + struct.pack("<II", 0x184D2A5E, len(body)) + body


def by_pyzstd(content: bytes) -> bytes:
    pyzstd = pytest.importorskip("pyzstd", reason="NO pyzstd: ITS SEEKABLE FILES ARE NOT READ")
    out = io.BytesIO()
    with pyzstd.SeekableZstdFile(out, "w", max_frame_content_size=300_000) as file:
        file.write(content)
    return out.getvalue()


MADE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "tarkit": ("a.tar.zst", seekable),
    "pyzstd": ("a.tar.zst", by_pyzstd),
    "joined": ("a.tzst", lambda content: b"".join(frames(content, 99_999))),
    "with skippable frames": (
        "a.tar.zst",
        lambda content: b"".join(b"\x5f\x2a\x4d\x18\x03\0\0\0abc" + frame for frame in frames(content, 200_000)),
    ),
    "checksums in the table": ("a.tar.zst", lambda content: table_with_checksums(content, 200_000)),
    "one frame": ("a.tar.zst", zstd.compress),
    "gzip": ("a.tar.gz", gzip.compress),
    "gzip -1": ("a.tgz", lambda content: gzip.compress(content, 1)),
    "stored": ("a.tgz", lambda content: gzip.compress(content, 0)),
    "members": ("a.tar.gz", lambda content: b"".join(map(gzip.compress, parts(content, 777_777)))),
    "small members": ("a.tar.gz", lambda content: b"".join(gzip.compress(part, 1) for part in parts(content, 65_280))),
    "padded members": (
        "a.tar.gz",
        lambda content: b"".join(gzip.compress(part, 1) + bytes(9) for part in parts(content, 500_000)),
    ),
}


def put(folder: Path, name: str, data: bytes) -> str:
    """Write a file, with the seek points that it needs; return its path."""
    path = folder / name
    path.write_bytes(data)
    if (seek := build_seek(str(path))) is not None:
        Path(f"{path}.seek").write_bytes(seek)
    return str(path)


@pytest.fixture(
    scope="module", params=[pytest.param(each, marks=needs_gzip if "gz" in MADE[each][0] else ()) for each in MADE]
)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PackedFile:
    name, make = MADE[request.param]
    return open_packed(put(tmp_path_factory.mktemp("packed"), name, make(CONTENT)), DecodedFrames(2 * MIB))


@given(st.integers(0, len(CONTENT)), st.sampled_from([0, 1, 511, 70_000, 3 * MIB]))
def test_any_range_is_that_of_the_content(opened: PackedFile, begin: int, size: int) -> None:
    assert opened.size == len(CONTENT)
    assert opened.seek(begin) == begin
    assert opened.read(size) == CONTENT[begin : begin + size]
    assert opened.tell() == min(len(CONTENT), begin + size)


def test_it_is_a_file(tmp_path: Path) -> None:
    file = open_packed(put(tmp_path, "a.tar.zst", seekable(CONTENT[:70_000])))
    assert (file.readable(), file.seekable(), file.read(5)) == (True, True, CONTENT[:5])
    assert (file.seek(-10, io.SEEK_END), file.read()) == (69_990, CONTENT[69_990:70_000])
    file.seek(3)
    assert io.BufferedReader(file).read(10) == CONTENT[3:13]
    assert b"".join(file.pieces(69_000, 10**9)) == CONTENT[69_000:70_000]


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB])
def test_what_is_written_depends_on_the_content_alone(size: int) -> None:
    written = {seekable(CONTENT[:size], piece) for piece in (7919, MIB, 3 * MIB)}
    assert len(written) == 1
    (data,) = written
    assert zstd.decompress(data) == CONTENT[:size]
    reader = DecompressingReader(io.BytesIO(data).read, "zst", "a")
    assert b"".join(iter(lambda: reader.read(MIB), b"")) == CONTENT[:size]
    assert struct.unpack("<I", data[-9:-5]) == (max(1, -(-size // MIB)),)


def test_a_large_field_is_not_copied_to_be_compressed() -> None:
    compressor = new_compressor(SEEKABLE)
    content = bytes(32 * MIB)
    tracemalloc.start()
    compressor.compress(content)
    assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    tracemalloc.stop()


def test_pyzstd_reads_what_is_written() -> None:
    pyzstd = pytest.importorskip("pyzstd", reason="NO pyzstd, WHICH JUDGES SEEKABLE FILES")
    with pyzstd.SeekableZstdFile(io.BytesIO(seekable(CONTENT))) as file:
        file.seek(MIB - 10)
        assert file.read(30) == CONTENT[MIB - 10 : MIB + 20]


@needs_gzip
def test_indexed_gzip_reads_seek_points_of_gzip(tmp_path: Path) -> None:
    import indexed_gzip

    url = put(tmp_path, "a.tar.gz", gzip.compress(CONTENT))
    with indexed_gzip.IndexedGzipFile(url, index_file=f"{url}.seek") as file:
        assert len(list(file.seek_points())) == 4
        file.seek(2 * MIB)
        assert file.read(99) == CONTENT[2 * MIB : 2 * MIB + 99]


@pytest.mark.parametrize("bits", range(1, 9))
def test_a_block_that_begins_at_any_bit(bits: int) -> None:
    window, content = CONTENT[:32768], CONTENT[20_000:60_000]
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15, zdict=window)
    block = compressor.compress(content) + compressor.flush()
    data = (int.from_bytes(block, "little") << 8 - bits | (1 << 8 - bits) - 1).to_bytes(len(block) + 1, "little")
    assert inflate(data, bits, window, len(content)) == content


def flipped(data: bytes, step: int) -> Iterator[bytes]:
    for at in range(0, len(data), step):
        yield data[:at] + bytes((data[at] ^ 1 << at % 8,)) + data[at + 1 :]


def is_right_or_refused(url: str, content: bytes) -> bool:
    """Return True if all of the file was read; raise an error if it is not the content."""
    try:
        found = open_packed(url).read()
    except (CompressionError, TooLargeError, StaleIndexError) as error:
        assert re.match(r"\S*/a\.\S*: \S.*", str(error)), "one line that names the file"
        return False
    assert found == content
    return True


@pytest.mark.parametrize("where", ["in frames", "in the table"])
def test_no_flipped_bit_is_content(tmp_path: Path, where: str) -> None:
    content, url = CONTENT[600:900], str(tmp_path / "a.tar.zst")
    each = frames(content, 100, CHECKSUM)
    in_frames = b"".join(each) + encode_table([(len(frame), 100) for frame in each])
    good = 0
    for wrong in flipped(in_frames if where == "in frames" else table_with_checksums(content, 100), 2):
        Path(url).write_bytes(wrong)
        good += is_right_or_refused(url, content)
    assert good < 5


def test_no_flipped_bit_is_content_if_only_the_file_of_seek_points_has_checksums(tmp_path: Path) -> None:
    url = str(tmp_path / "a.tar.zst")
    Path(url).write_bytes(good := b"".join(frames(CONTENT[600:900], 100)))
    Path(f"{url}.seek").write_bytes(build_seek(url) or b"")
    found = []
    for wrong in flipped(good, 2):
        Path(url).write_bytes(wrong)
        found.append(is_right_or_refused(url, CONTENT[600:900]))
    assert found.count(True) < 5
    Path(url).write_bytes(good)
    assert open_packed(url).read() == CONTENT[600:900]


@needs_gzip
def test_no_flipped_bit_of_gzip_or_its_points_is_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gzippoints, "_SPACING", 65536)
    content = CONTENT[:200_000]
    url = put(tmp_path, "a.tar.gz", gzip.compress(content))
    assert len(open_packed(url).frames.table) > 2
    for path in (Path(url), Path(f"{url}.seek")):
        good = path.read_bytes()
        found = []
        for wrong in flipped(good, 997):
            path.write_bytes(wrong)
            found.append(is_right_or_refused(url, content))
        path.write_bytes(good)
        assert not all(found)
    # The header of the points, and the first of them.
    points = Path(f"{url}.seek").read_bytes()
    for at in range(0, 80, 3):
        Path(f"{url}.seek").write_bytes(points[:at] + bytes((points[at] ^ 255,)) + points[at + 1 :])
        is_right_or_refused(url, content)


@needs_gzip
@pytest.mark.parametrize("kept", [0, 1, -1])
def test_seek_points_of_gzip_without_all_their_checksums(tmp_path: Path, kept: int) -> None:
    seek = Path(f"{put(tmp_path, 'a.tar.gz', gzip.compress(CONTENT[:3000]))}.seek")
    data = seek.read_bytes()
    seek.write_bytes(data[: data.index(b"CRC32\0") + kept] if kept >= 0 else data[:kept])
    with pytest.raises(
        CompressionError, match=r"a\.tar\.gz\.seek is damaged, .*: tarkit index --force \S*/a\.tar\.gz$"
    ):
        open_packed(str(tmp_path / "a.tar.gz"))


THREE = seekable(bytes(5 * MIB // 2))
"""Three frames, and their table."""


def with_footer(count: int, descriptor: int = 0) -> bytes:
    return THREE[:-9] + struct.pack("<IBI", count, descriptor, 0x8F92EAB1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (with_footer(2), "has a seek table that does not begin where its count of 2 frames says"),
        (with_footer(4), "count of 4 frames"),
        (with_footer(4_000_000_000), "count of 4000000000 frames"),
        (with_footer(3, 0x80), "count of 3 frames"),
        (with_footer(3, 4), "has a seek table of a newer version, with bits that are not known"),
        (THREE[1:], r"has a seek table of frames of \d+ bytes in all, and \d+ bytes before it"),
        (encode_table([(0, 1)]) + encode_table([]), "of 0 bytes in all, and 25 bytes before it"),
    ],
)
def test_a_wrong_seek_table(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "a.tar.zst"
    path.write_bytes(data)
    with pytest.raises(CompressionError, match=rf"a\.tar\.zst: .*{message}.*; fetch the shard again, or rewrite it"):
        open_packed(str(path))


def test_no_frame_has_content_where_its_table_has_none(tmp_path: Path) -> None:
    """Neither is the content of a frame lost, nor is one of less than a header decoded."""
    path, each = tmp_path / "a.tar.zst", frames(CONTENT[:3000])
    for sizes in ((1000, 0, 2000), (1000, 0, 1000)):
        path.write_bytes(b"".join(each) + encode_table([(len(f), n) for f, n in zip(each, sizes, strict=True)]))
        with pytest.raises(CompressionError, match="has not the 0 bytes of content that its table says"):
            open_packed(str(path)).read()
    data = table_with_checksums(CONTENT[:2000], 1000)
    first, second = (len(f) for f in frames(CONTENT[:2000]))
    shifted = data.replace(struct.pack("<II", first, 1000), struct.pack("<II", 4, 1000))
    path.write_bytes(shifted.replace(struct.pack("<II", second, 1000), struct.pack("<II", first + second - 4, 1000)))
    with pytest.raises(CompressionError, match="is damaged"):
        open_packed(str(path)).read()


def test_a_file_that_is_cut_is_never_opened(tmp_path: Path) -> None:
    path, data = tmp_path / "a.tar.zst", b"".join(frames(CONTENT[:5000])) + encode_table([(1, 1)] * 5)
    for size in range(0, len(data), 61):
        path.write_bytes(data[:size])
        with pytest.raises((CompressionError, StaleIndexError)):
            open_packed(str(path))


def test_a_file_without_a_table(tmp_path: Path) -> None:
    for name in ("a.tar.zst", "a.tar.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b"x") if "gz" in name else zstd.compress(b"x"))
        with pytest.raises(StaleIndexError, match=rf"no \S*/{name}.seek beside it; make it: tarkit index \S*/{name}$"):
            open_packed(str(tmp_path / name))
        Path(f"{tmp_path}/{name}.seek").write_bytes(b"something else")
        with pytest.raises(CompressionError, match=rf"{name}.seek is damaged, or belongs to another file .*--force"):
            open_packed(str(tmp_path / name))
    with pytest.raises(MissingInputError):
        open_packed(str(tmp_path / "b.tar.zst"))


def one_frame(stated: int) -> bytes:
    """A frame of a content of zeros in blocks of one repeated byte."""
    blocks = -(-stated // 131072)
    block = (131072 << 3 | 2).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", stated) + block * (blocks - 1) + b"\x03" + block[1:]


def test_one_large_frame_is_refused_and_not_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.zst"
    frame = one_frame(65 << 20)
    path.write_bytes(frame)
    tracemalloc.start()
    message = r"a\.tar\.zst: has a frame of 68157440 bytes.*at most 67108864.*; rewrite it: tarkit split .* --index"
    with pytest.raises(TooLargeError, match=message):
        build_seek(str(path))
    path.write_bytes(frame + encode_table([(len(frame), (4 << 30) - 1)]))
    for each in (open_packed, build_seek):
        with pytest.raises(TooLargeError, match="has a frame of 4294967295 bytes"):
            each(str(path))
    assert tracemalloc.get_traced_memory()[1] < 32 * MIB
    tracemalloc.stop()


def streamed(content: bytes) -> bytes:
    compressor = zstd.ZstdCompressor()
    return bytes(compressor.compress(content) + compressor.flush())


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.tar.zst", streamed(CONTENT[:999]), "has frames that do not state the size of their content; rewrite it"),
        ("a.tar.zst", zstd.compress(b"x" * 999)[:-5], "is cut short, in the frame at 0; rewrite it"),
        ("a.tar.zst", zstd.compress(b"x" * 999)[:9], "is cut short or damaged, in the frame at 0"),
        ("a.tar.zst", zstd.compress(b"x") + b"garbage", "has bytes at 10 that are not a frame"),
        ("a.tar.zst", gzip.compress(b"x", mtime=0), "its name says zst, and it is compressed by gz; rename it"),
        ("a.tar.gz", b"x" * 999, "its name says gz, and it is not compressed; rename it"),
        ("a.tar.zst", b"", "its name says zst, and it is not compressed"),
    ],
)
def test_what_has_no_seek_points(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CompressionError, match=rf"{name}: {message}"):
        build_seek(str(tmp_path / name))


@needs_gzip
@pytest.mark.parametrize("at", [900, -8])
def test_a_damaged_gzip_file_has_no_seek_points(tmp_path: Path, at: int) -> None:
    data = bytearray(gzip.compress(CONTENT[:9000]))
    data[at] ^= 255
    (tmp_path / "a.tar.gz").write_bytes(data)
    with pytest.raises(CompressionError, match=r"a\.tar\.gz: is damaged"):
        build_seek(str(tmp_path / "a.tar.gz"))


def test_the_library_for_gzip_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "indexed_gzip", None)
    (tmp_path / "a.tgz").write_bytes(gzip.compress(b"x"))
    with pytest.raises(
        MissingExtraError, match=r"the index of a \.tar\.gz needs .*: pip install indexed_gzip .*'gzip'"
    ):
        build_seek(str(tmp_path / "a.tgz"))


def test_frames_are_held_up_to_a_limit() -> None:
    held = DecodedFrames(25)
    keys: Sequence[Any] = [("a", None, number) for number in range(4)]
    for key in keys[:2]:
        held.put(key, bytes(10))
    assert held.get(keys[0]) == bytes(10)
    held.put(keys[2], bytes(10))
    assert [held.get(key) is None for key in keys] == [False, True, False, True]
    held.put(keys[3], bytes(100))
    assert [held.get(key) is None for key in keys] == [True, True, True, False]


def test_a_replaced_file(tmp_path: Path) -> None:
    url = put(tmp_path, "a.tar.zst", seekable(CONTENT))
    file = open_packed(url)
    Path(url).write_bytes(seekable(CONTENT[:-1]))
    with pytest.raises(TarkitError, match=r"replaced|different size"):
        file.read(10)
