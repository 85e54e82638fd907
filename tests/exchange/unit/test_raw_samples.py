"""Samples as raw bytes: they hold all bytes of their members, whatever reads and sizes are like."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from exchangeruns import samples_of_tar, tar_of
from tarbuild import END, long_name, member, pax

from tarkit.errors import DataError, DuplicateFieldError, RepeatedKeyError, TruncatedError
from tarkit.formats.tally import Tally
from tarkit.formats.tar import raw, walk
from tarkit.formats.tar.large import KeepInFiles
from tarkit.samples import rawsamples
from tarkit.samples.rawsamples import RawSample, raw_samples
from tarkit.samples.read import read_samples
from tarkit.samples.tarwriter import TarWriter

Found = list[tuple[str, dict[str, bytes]]]


def as_bytes(parts: Sequence[object]) -> bytes:
    return b"".join(part if isinstance(part, bytes) else part.read() for part in parts)  # type: ignore[attr-defined]


def read_raw(path: Path, tally: Tally | None = None) -> tuple[list[RawSample], Found]:
    """The samples, and what tarfile finds in their bytes one by one."""
    samples, found = [], []
    for sample in raw_samples(str(path), tally=tally, globals_seen=[]):
        data = as_bytes(sample.parts)
        assert len(data) == sample.size and not len(data) % 512
        (one,) = samples_of_tar(data + END)
        fields = {name: as_bytes([content]) for name, content in sample.fields().items()}
        assert one == (sample.key, fields)
        assert list(fields) == list(one[1])
        samples.append(sample)
        found.append(one)
    return samples, found


def lower_limits(monkeypatch: pytest.MonkeyPatch, member: int, sample: int) -> None:
    """Keep members of more than so many bytes, and of samples of more, in files."""
    monkeypatch.setattr(
        raw._KeepLarge, "__init__", lambda self: KeepInFiles.__init__(self, None, member, sample)
    )  # fmt: skip


def random_files(seed: int, most: int) -> list[tuple[str, bytes]]:
    draw = random.Random(seed)
    files = []
    for number in range(12):
        for field in ("bin", "cls", "txt", "x.y")[: draw.randrange(1, 5)]:
            size = draw.choice([0, 1, 511, 512, 513, draw.randrange(most)])
            files.append((f"d/k{number:02d}.{field}", draw.randbytes(size)))
            if not draw.randrange(6):
                files.append(
                    ("README" if draw.randrange(2) else "d/._hidden.txt", draw.randbytes(draw.randrange(most)))
                )
    return files


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("limits", [None, (2000, 1 << 20), (2000, 4000), (400, 1000), (1 << 20, 1500)])
@pytest.mark.parametrize("read_size", [512, 700, 10_240, 1 << 18])
def test_all_bytes_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: int, limits: tuple[int, int] | None, read_size: int
) -> None:
    monkeypatch.setattr(walk, "READ_SIZE", read_size)
    if limits is not None:
        lower_limits(monkeypatch, *limits)
    for seed in range(2):
        files = random_files(seed, 6000)
        path = tmp_path / f"{seed}.tar"
        path.write_bytes(tar_of(files, format) + bytes(3 * 10_240))
        wanted = samples_of_tar(tar_of([each for each in files if each[0].startswith("d/k")], format))
        assert read_raw(path)[1] == wanted


def test_the_last_sample_of_a_shard_before_many_zeros(tmp_path: Path) -> None:
    path = tmp_path / "in.tar"
    path.write_bytes(member(b"a.cls", b"1") + member(b"b.cls", b"2") + bytes(1 << 20))
    assert read_raw(path)[1] == [("a", {"cls": b"1"}), ("b", {"cls": b"2"})]


def test_a_large_member_behind_small_ones(tmp_path: Path) -> None:
    """Without lower limits: a member of 33 MiB behind a sample, and behind a field of its own."""
    path, size = tmp_path / "in.tar", (33 << 20) + 3
    path.write_bytes(
        member(b"a.cls", b"1") + member(b"b.cls", b"2") + member(b"b.bin", b"x" * size) + member(b"b.txt", b"3")
        + member(b"c.cls", b"4") + END
    )  # fmt: skip
    samples, found = read_raw(path)
    assert [(key, {name: len(content) for name, content in fields.items()}) for key, fields in found] == [
        ("a", {"cls": 1}), ("b", {"cls": 1, "bin": size, "txt": 1}), ("c", {"cls": 1}),
    ]  # fmt: skip
    assert found[1][1]["bin"] == b"x" * size
    assert [found[0][1]["cls"], found[1][1]["cls"], found[1][1]["txt"], found[2][1]["cls"]] == [b"1", b"2", b"3", b"4"]
    assert any(not isinstance(part, bytes) for part in samples[1].parts)


def test_many_medium_members_are_kept_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lower_limits(monkeypatch, 2000, 3000)
    files = [(f"k{key}.f{number:02d}", bytes([number]) * 1000) for key in range(3) for number in range(20)]
    path = tmp_path / "in.tar"
    path.write_bytes(tar_of(files))
    samples, found = read_raw(path)
    assert found == samples_of_tar(path)
    for sample in samples:
        held = sum(len(part) for part in sample.parts if isinstance(part, bytes) and len(part) > 512)
        assert held < 3000


def test_extended_headers_stay_with_their_members(tmp_path: Path) -> None:
    long = b"d/" + b"n" * 200 + b".cls"
    path = tmp_path / "in.tar"
    path.write_bytes(
        pax({b"comment": b"for a", b"mtime": b"7.5"}) + member(b"a.cls", b"1")
        + long_name(long) + member(long[:100], b"2")
        + pax({b"path": b"e/" + b"m" * 300 + b".cls", b"size": b"3"}) + member(b"x", b"345")
        + END
    )  # fmt: skip
    samples, found = read_raw(path)
    assert [key for key, _ in found] == ["a", long[:-4].decode(), "e/" + "m" * 300]
    assert [sample.size for sample in samples] == [2048, 2048, 2048]
    with tarfile.open(fileobj=io.BytesIO(as_bytes(samples[0].parts) + END)) as archive:
        (info,) = archive.getmembers()
    assert info.pax_headers == {"comment": "for a", "mtime": "7.5"}


def test_junk_between_two_members_of_a_sample_is_left_out_and_counted(tmp_path: Path) -> None:
    path, tally = tmp_path / "in.tar", Tally()
    path.write_bytes(
        member(b"README", b"r" * 700) + member(b"a.cls", b"1") + member(b"._a.txt", b"apple") + member(b"d/", kind=b"5")
        + member(b"a.txt", b"2") + member(b"__meta__/x.json", b"{}")
        + member(b"b.cls", b"3") + member(b"._z", b"") + END
    )  # fmt: skip
    samples, found = read_raw(path, tally)
    assert found == [("a", {"cls": b"1", "txt": b"2"}), ("b", {"cls": b"3"})]
    assert [sample.size for sample in samples] == [2048, 1024]
    assert (tally.samples, sum(tally.skipped.values())) == (2, 5)


def test_concatenated_archives(tmp_path: Path) -> None:
    path = tmp_path / "in.tar"
    one, two = tar_of([("a.cls", b"1"), ("b.cls", b"2")]), tar_of([("c.cls", b"3"), ("d.cls", b"")])
    path.write_bytes(one + two + one[:0] + bytes(512))
    assert read_raw(path)[1] == [("a", {"cls": b"1"}), ("b", {"cls": b"2"}), ("c", {"cls": b"3"}), ("d", {"cls": b""})]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (member(b"a.cls", b"1") + member(b"a.cls", b"2") + END, DuplicateFieldError),
        (member(b"a.cls", b"1") + member(b"b.cls", b"2") + member(b"a.txt", b"3") + END, RepeatedKeyError),
        (member(b"a.cls", b"1") + END + member(b"a.txt", b"3") + END, RepeatedKeyError),
        (member(b"a.cls", b"1") + member(b"b.cls", b"2"), TruncatedError),
        (member(b"a.cls", b"1") + member(b"b.cls", b"2" * 600)[:-512], TruncatedError),
        (member(b"a.cls", b"1") + b"\1" + member(b"b.cls", b"2")[1:] + END, DataError),
    ],
    ids=["field", "key", "key behind an end mark", "no end mark", "cut", "checksum"],
)
def test_what_is_not_a_shard_is_an_error(tmp_path: Path, data: bytes, error: type[Exception]) -> None:
    path = tmp_path / "in.tar"
    path.write_bytes(data)
    with pytest.raises(error) as raised:
        read_raw(path)
    assert str(path) in str(raised.value)


def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "in.tar"
    path.write_bytes(member(b"a\xff.c\xfe", b"1") + member(b"b \n%.cls", b"2") + END)
    (first, second) = raw_samples(str(path), globals_seen=[])
    assert first.words == b"c\xfe\x00512\x001\x00a\xff.c\xfe\0"
    assert second.content("cls") == b"2" and second.content("txt") is None


def test_raw_and_encoded_samples_in_one_shard(tmp_path: Path) -> None:
    source, target = tmp_path / "in.tar", tmp_path / "out.tar"
    source.write_bytes(
        tar_of([("a b.bin", b"x" * 600), ("a b.cls", b"1"), ("c%.cls", b"2"), ("e.bin", bytes(300_000))])
    )
    a, c, e = raw_samples(str(source), globals_seen=[])
    with TarWriter(str(target), index=True, checksum=True) as writer:
        writer.write({"__key__": "0", "txt": b"first"})
        for sample in (a, c):
            writer.write_raw([sample])
        writer.write({"__key__": "b", "txt": b"between", "cls": b""})
        writer.write_raw([e])
        writer.write({"__key__": "z", "txt": b"last"})
    assert writer.samples == 6
    wanted = [
        ("0", {"txt": b"first"}), ("a b", {"bin": b"x" * 600, "cls": b"1"}), ("c%", {"cls": b"2"}),
        ("b", {"cls": b"", "txt": b"between"}), ("e", {"bin": bytes(300_000)}), ("z", {"txt": b"last"}),
    ]  # fmt: skip
    assert samples_of_tar(target) == wanted
    assert [sample["__key__"] for sample in read_samples(str(target))] == [key for key, _ in wanted]
    # The index that was written with the shard is that of a later reading.
    from tarkit.samples.index import build_index

    assert (tmp_path / "out.idx").read_bytes() == build_index(str(target)).encode()


def test_piece_of_parts() -> None:
    assert rawsamples.piece_of((b"abc", b"def"), 3, 2) == b"de"
    assert rawsamples.piece_of((b"abc", b"def"), 6, 0) == b""
