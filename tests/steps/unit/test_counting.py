"""Counts from indexes, headers and all bytes: the same numbers, and never from a stale index."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
from tarbuild import END, member

from tarkit import TarWriter
from tarkit.errors import UsageError
from tarkit.formats.recordio import RecordWriter
from tarkit.steps.counting import HEADERS, INDEX, WHOLE, ShardCount, count_shards


def shard_of(path: Path, samples: int, *, index: bool = False) -> str:
    with TarWriter(str(path), index=index) as writer:
        for number in range(samples):
            writer.write({"__key__": f"{number:04d}", "jpg": bytes(number * 1000), "cls": number})
    return str(path)


def numbers(count: ShardCount) -> tuple[str, int, dict[str, int], dict[str, int]]:
    assert count.error is None
    return count.source, count.samples, dict(count.members), dict(count.sizes)


def test_an_index_headers_and_all_bytes_give_the_same(tmp_path: Path) -> None:
    names = [
        shard_of(tmp_path / "a.tar", 40, index=True),
        shard_of(tmp_path / "b.tar", 40),
        shard_of(tmp_path / "c.tar.gz", 40),
    ]
    found = [numbers(count) for count in count_shards(names, parallel=3)]
    assert [each[0] for each in found] == [INDEX, HEADERS, WHOLE]
    with tarfile.open(names[1]) as archive:
        sizes = [member.size for member in archive.getmembers() if member.name.endswith(".jpg")]
    assert found[0][1:] == found[1][1:] == found[2][1:] == (40, {"cls": 40, "jpg": 40}, {"cls": 70, "jpg": sum(sizes)})


def test_a_stale_index_is_not_counted_from(tmp_path: Path) -> None:
    name = shard_of(tmp_path / "a.tar", 10, index=True)
    index = (tmp_path / "a.idx").read_bytes()
    shard_of(tmp_path / "a.tar", 12)
    (tmp_path / "a.idx").write_bytes(index)
    (count,) = count_shards([name])
    assert (count.source, count.samples, count.stale) == (HEADERS, 12, str(tmp_path / "a.idx")), "another length"
    shard_of(tmp_path / "a.tar", 12, index=True)
    os.utime(tmp_path / "a.idx", (1, 1))
    (count,) = count_shards([name])
    assert (count.source, count.samples, count.stale) == (HEADERS, 12, str(tmp_path / "a.idx")), "older than its shard"
    (tmp_path / "a.idx").write_bytes(b"no index")
    (count,) = count_shards([name])
    assert (count.source, count.samples) == (HEADERS, 12)
    (tmp_path / "a.idx").unlink()
    assert next(count_shards([name])).stale is None


def test_a_bad_shard_is_counted_up_to_its_error(tmp_path: Path) -> None:
    bad = tmp_path / "a.tar"
    bad.write_bytes(member(b"1.x", bytes(9)) + member(b"2.x", bytes(9)) + b"damage".ljust(512, b"\1") + END)
    counts = list(count_shards([str(bad), str(tmp_path / "none.tar"), shard_of(tmp_path / "b.tar", 3)], parallel=2))
    assert [(count.samples, type(count.error).__name__) for count in counts] == [
        (1, "CorruptHeaderError"),
        (0, "MissingInputError"),
        (3, "NoneType"),
    ]
    (count,) = count_shards([str(bad)], on_damage="skip")
    assert count.error is None and count.tally.damage


def test_records_have_no_fields(tmp_path: Path) -> None:
    with RecordWriter(str(tmp_path / "x.recordio")) as writer:
        writer.write(b"123")
    (count,) = count_shards([str(tmp_path / "x.recordio")])
    assert numbers(count) == (WHOLE, 1, {"": 1}, {"": 3})
    with pytest.raises(UsageError, match="excel"):
        list(count_shards([str(tmp_path / "x.recordio")], source_format="excel"))
