"""A reader that follows only docs/formats/exchange-run.md reads run files, and the example."""

from __future__ import annotations

import json
import struct
import tarfile
import zlib
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from exchangeruns import exchange, numbered_inputs, samples_of_tar, write_shard
from formatpages import hex_blocks
from tarbuild import END, member

from tarkit.errors import DataError
from tarkit.exchange.exchange import Exchange
from tarkit.exchange.positions import PlaceOf, ordinal, text_value
from tarkit.exchange.shuffle import Shuffle
from tarkit.exchange.step import Step

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "formats" / "exchange-run.md").read_text(encoding="utf-8")


class Sample(NamedTuple):
    position: bytes
    data: bytes
    words: list[list[str]]


@pytest.fixture
def scattered(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that runs an exchange, and stops it before anything is gathered."""

    def scattered(*given: Any, **named: Any) -> list[Path]:
        def stop(*_: object) -> None:
            raise DataError("stop")

        monkeypatch.setattr(Exchange, "_gather_all", stop)
        with pytest.raises(DataError, match="stop"):
            exchange(*given, **named).run()
        return sorted((given[1] / "_exchange").glob("run-*.tar"))

    return scattered


def by_the_page(path: Path) -> Iterator[Sample]:
    """The samples of a run file, as the page says; what it says of sums and sizes is checked."""
    data = path.read_bytes()
    assert not len(data) % 10_240
    record = json.loads(path.with_name(path.name + ".done.json").read_text())["output"]
    assert (record["name"], record["size"]) == (path.name, len(data))
    with tarfile.open(path) as archive:
        own = {each.name: each for each in archive if each.name.startswith("__exchange__/")}
    begin, length, crc = record["blocks"]
    assert (own["__exchange__/blocks"].offset_data, own["__exchange__/blocks"].size) == (begin, length)
    assert not any(data[begin + length :])
    table = data[begin : begin + length]
    assert zlib.crc32(table) == crc
    digests, at, number, end = [], 0, 0, 0
    while table:
        offset, head, size, samples, crc, length = struct.unpack(">QQQIII", table[:36])
        first, table = table[36 : 36 + length], table[36 + length :]
        assert offset == end
        end = offset + head + size
        assert zlib.crc32(data[offset:end]) == crc
        info = own.pop(f"__exchange__/block-{number:06d}")
        assert (info.offset, info.offset_data + -(-info.size // 512) * 512) == (offset, offset + head)
        found = [*of_block(data[info.offset_data : info.offset_data + info.size], data[offset + head : end])]
        assert (len(found), found[0].position) == (samples, first)
        for sample in found:
            key = sample.words[0][3].rpartition("." + sample.words[0][0])[0]
            digests.append(blake2b(key.encode(), digest_size=8).digest())
        yield from found
        number += 1
    if record["keys"] is not None:
        offset, counts, sums = record["keys"][0], record["keys"][1:257], record["keys"][257:]
        keys = own.pop("__exchange__/keys")
        assert keys.offset_data == offset
        content = data[offset : offset + keys.size]
        wanted = sorted(digests, key=lambda each: int.from_bytes(each, "little"))
        assert content == b"".join(wanted)
        for bucket in range(256):
            at = counts[bucket - 1] if bucket else 0
            part = content[8 * at : 8 * counts[bucket]]
            assert [each[-1] for each in wanted[at : counts[bucket]]] == [bucket] * (counts[bucket] - at)
            assert zlib.crc32(part) == sums[bucket]
    assert [*own] == ["__exchange__/blocks"]


def of_block(table: bytes, data: bytes) -> Iterator[Sample]:
    count, length = struct.unpack(">QQ", table[:16])
    sizes = struct.unpack(f">{3 * count}Q", table[16 : 16 + 24 * count])
    positions, words = table[16 + 24 * count :][:length], table[16 + 24 * count + length :]
    for size, of_position, of_words in zip(sizes[:count], sizes[count : 2 * count], sizes[2 * count :], strict=True):
        text = words[:of_words].split(b"\0")
        assert text.pop() == b""
        each = [word.decode() for word in text]
        yield Sample(positions[:of_position], data[:size], [each[at : at + 4] for at in range(0, len(each), 4)])
        positions, words, data = positions[of_position:], words[of_words:], data[size:]
    assert positions == words == data == b""


@pytest.mark.parametrize("block_size", [1, 4000, 1 << 20])
def test_a_reader_that_follows_the_page(tmp_path: Path, scattered: Any, block_size: int) -> None:
    urls = numbered_inputs(tmp_path / "in", [7, 0, 12, 5, 9], most=1500)
    paths = scattered(urls, tmp_path / "out", Shuffle(4), slices=3, block_size=block_size)
    assert len(paths) == 3
    inputs = [samples_of_tar(Path(url)) for url in urls]
    seen = set()
    for path in paths:
        samples = [*by_the_page(path)]
        assert [each.position for each in samples] == sorted(each.position for each in samples)
        for sample in samples:
            shard, number = divmod(int.from_bytes(sample.position[-8:], "big"), 1 << 40)
            seen.add((shard, number))
            (one,) = samples_of_tar(sample.data + END)
            assert one == inputs[shard][number]
            for field, offset, size, name in sample.words:
                assert sample.data[int(offset) : int(offset) + int(size)] == one[1][field]
                assert name == f"{one[0]}.{field}"
    assert seen == {(shard, number) for shard, each in enumerate(inputs) for number in range(len(each))}


class ByClass(Step):
    """A step by the text of cls; samples without it fail."""

    name: ClassVar[str] = "by-class"

    def place_of(self, shard: int) -> PlaceOf:
        def position(sample: Any, number: int) -> bytes:
            content = sample.content("cls")
            if content is None:
                raise ValueError("no cls: \u00fc")
            return text_value(bytes(content)) + ordinal(shard, number)

        return position


def test_positions_of_texts_and_of_failed_samples(tmp_path: Path, scattered: Any) -> None:
    path = tmp_path / "in.tar"
    values = [b"b\0", b"b", b"\xff" * 12, b"", b"b\0\0"]
    path.write_bytes(
        b"".join(member(b"%d.cls" % number, value) for number, value in enumerate(values)) + member(b"x.txt", b"") + END
    )
    (run,) = scattered([str(path)], tmp_path / "out", ByClass(), shards=1, rekey=True)
    *good, failed = by_the_page(run)
    assert [each.position for each in good] == [
        b"\1" + value.replace(b"\0", b"\0\xff") + b"\0\0" + number.to_bytes(8, "big")
        for value, number in sorted((value, number) for number, value in enumerate(values))
    ]
    assert failed.position == b"\xff" * 9 + (5).to_bytes(8, "big") + "no cls: \u00fc".encode()
    record = json.loads(run.with_name(run.name + ".done.json").read_text())
    assert record["output"]["keys"] is None
    assert "no cls: \u00fc" in record["output"]["first_failure"]


def test_the_example(tmp_path: Path, scattered: Any) -> None:
    urls = [
        write_shard(tmp_path / "a.tar", [("cat", {"cls": b"3", "jpg": b"JPEG"})]),
        write_shard(tmp_path / "b.tar", [("dog", {"cls": b"7"})]),
    ]
    (run,) = scattered(urls, tmp_path / "out", Shuffle(0), shards=1)
    with tarfile.open(run) as archive:
        found = {each.name: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]
    table, blocks = hex_blocks(PAGE)
    assert (found["__exchange__/block-000000"], found["__exchange__/blocks"]) == (table, blocks)
    assert f"{len(table)} bytes" in PAGE and f"{len(blocks)} bytes" in PAGE
    assert len([*by_the_page(run)]) == 2
