"""The merge of run files gives the sorted list, from any place on, and reads each block once."""

from __future__ import annotations

import tempfile
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import pytest
from exchangeruns import exchange, files_of, numbered_inputs
from hypothesis import given
from hypothesis import strategies as st

from tarkit.exchange import runfile
from tarkit.exchange.merge import Merge
from tarkit.exchange.positions import failed_position, failure, ordinal, shard_and_number, text_of, text_value
from tarkit.exchange.runfile import ROW_BYTES, Row, RunFile, RunWriter, joined
from tarkit.store.publish import open_publish


def write_run(path: Path, rows: list[Row], block_size: int) -> RunFile:
    with open_publish(str(path), sync=False) as output:
        writer = RunWriter(output, block_size)
        writer.write(rows)
        blocks = writer.end()
    return RunFile(str(path), output.bytes_written, blocks)


def row(position: bytes, blocks: int) -> Row:
    data = bytes([len(position)]) * (512 * blocks)
    return Row(position, (data[:512], data[512:]), len(data), b"f\x00512\x000\x00n.f\0")


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[list[Row]], list[int]]:
    """Rows of several run files with positions of different lengths, and sizes of their blocks."""
    values = draw(st.lists(st.binary(max_size=3), max_size=60))
    found: list[list[Row]] = [[] for _ in range(draw(st.integers(1, 6)))]
    for number, value in enumerate(values):
        position = text_value(value) + ordinal(0, number)
        found[draw(st.integers(0, len(found) - 1))].append(row(position, draw(st.integers(1, 4))))
    for rows in found:
        rows.sort()
    return found, [draw(st.integers(1, 6000)) for _ in found]


@given(runs(), st.integers(1, 20_000), st.data())
def test_rows_are_a_slice_of_the_sorted_list(drawn: tuple[list[list[Row]], list[int]], mem: int, data: Any) -> None:
    wanted = sorted(row for rows in drawn[0] for row in rows)
    with tempfile.TemporaryDirectory() as folder:
        files = [
            write_run(Path(folder) / f"{number}.tar", rows, size)
            for number, (rows, size) in enumerate(zip(*drawn, strict=True))
        ]
        merge = Merge(files, mem)
        assert (merge.samples, merge.size) == (len(wanted), sum(each.size for each in wanted))
        start = data.draw(st.integers(0, len(wanted) + 2))
        assert_same(merge.rows(start), [*enumerate(wanted)][start:])
        offsets = [*accumulate((each.size for each in wanted), initial=0)]
        begin = data.draw(st.integers(0, offsets[-1] + 600))
        by_size = [each for each in zip(offsets, wanted, strict=False) if each[0] >= begin]
        assert_same(merge.rows(begin, of_size=True), by_size)


def assert_same(found: Any, wanted: list[tuple[int, Row]]) -> None:
    read = [(at, each.position, b"".join(each.parts), each.size, each.words) for at, each in found]
    assert read == [(at, each.position, b"".join(each.parts), each.size, each.words) for at, each in wanted]


@pytest.mark.parametrize("count", [1, 7])
def test_each_block_is_read_once_with_few_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    rows = [row(text_value(b"%05d" % (number * 7919 % 700)) + ordinal(0, number), 2) for number in range(700)]
    files = [write_run(tmp_path / f"{at}.tar", sorted(rows[at::count]), 5000) for at in range(count)]
    read: list[tuple[str, int, int]] = []

    def counted(self: RunFile, start: int, stop: int, *rest: Any, real: Any = RunFile.read) -> bytes:
        read.append((self.url, start, stop))
        return bytes(real(self, start, stop, *rest))

    monkeypatch.setattr(RunFile, "read", counted)
    memory = sum(block.memory for file in files for block in file.blocks)
    assert [each.position for _, each in Merge(files, memory).rows()] == sorted(each.position for each in rows)
    assert len(read) == count
    read.clear()
    assert len([*Merge(files, memory // 5).rows()]) == 700
    # Blocks come a few at once, and none twice.
    assert len(read) <= 8 * count
    for file in files:
        parts = sorted((start, stop) for url, start, stop in read if url == file.url)
        assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])]
    read.clear()
    middle = [*Merge(files, memory).rows(350)]
    assert len(middle) == 350 and len(read) == count
    assert sum(stop - start for _, start, stop in read) < 0.75 * sum(
        block.end - block.offset for file in files for block in file.blocks
    )


def test_memory_of_rows_that_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects count: with samples of 512 bytes they take more than a third of the memory."""
    rows = [row(ordinal(0, number * 7919 % 3000), 1) for number in range(3000)]
    files = [write_run(tmp_path / f"{at}.tar", sorted(rows[at::3]), 4000) for at in range(3)]
    held: list[int] = []

    def watched(self: Merge, wanted: dict[int, list[Any]], real: Any = Merge._read) -> Any:
        held.append(sum(block.samples for blocks in wanted.values() for block in blocks))
        return real(self, wanted)

    monkeypatch.setattr(Merge, "_read", watched)
    mem = 200_000
    assert len([*Merge(files, mem).rows()]) == 3000
    assert max(held) <= mem / (512 + ROW_BYTES)
    assert len(held) < 25


@given(st.lists(st.binary(max_size=4)))
def test_values_of_texts_sort_like_the_texts(texts: list[bytes]) -> None:
    assert sorted(texts) == [text_of(value) for value in sorted(map(text_value, texts))]
    values = {text_value(text) for text in texts}
    assert not any(one != two and two.startswith(one) for one in values for two in values)


@given(st.integers(0, (1 << 24) - 1), st.integers(0, (1 << 40) - 1), st.text(max_size=12))
def test_a_position_knows_its_place(shard: int, number: int, reason: str) -> None:
    place = ordinal(shard, number)
    assert shard_and_number(text_value(b"x") + place) == (shard, number)
    failed = failed_position(reason, place)
    assert shard_and_number(failed) == (shard, number)
    assert failure(failed) is not None and failure(text_value(b"\xff" * 9) + place) is None
    assert failed > text_value(b"\xff" * 20) + place


def test_a_read_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read at once is in memory twice, so it is not all that a gather holds."""
    urls = numbered_inputs(tmp_path / "in", [60], most=900)
    exchange(urls, tmp_path / "right", shards=2, slices=1, block_size=3000).run()
    monkeypatch.setattr(runfile, "_READ", 10_000)
    sizes: list[int] = []

    def read(self: RunFile, start: int, stop: int, crc: int | None = None, real: Any = RunFile.read) -> bytes:
        if crc is None:
            sizes.append(stop - start)
        return cast(bytes, real(self, start, stop, crc))

    monkeypatch.setattr(RunFile, "read", read)
    exchange(urls, tmp_path / "out", shards=2, slices=1, block_size=3000).run()
    assert files_of(tmp_path / "out") == files_of(tmp_path / "right")
    assert 5_000 < max(sizes) <= 10_000


def test_blocks_beside_a_large_sample_are_read_with_one_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runfile, "LARGE", 4096)
    sizes = [2, 2, 2, 20, 2, 2, 2, 20, 20]
    rows = [row(text_value(b"v") + ordinal(0, number), size) for number, size in enumerate(sizes)]
    found = write_run(tmp_path / "run.tar", rows, 1)
    assert len(found.blocks) == len(rows)
    reads: list[int] = []

    def read(self: RunFile, *given: Any, real: Any = RunFile.read) -> bytes:
        reads.append(1)
        return cast(bytes, real(self, *given))

    monkeypatch.setattr(RunFile, "read", read)
    found_rows = [*found.rows(found.blocks)]
    assert [b"".join(joined(each.parts)) for each in found_rows] == [b"".join(joined(each.parts)) for each in rows]
    assert [each.position for each in found_rows] == [each.position for each in rows]
    assert len(reads) == 2 + 3, "two runs of small blocks, and the table before each large sample"
