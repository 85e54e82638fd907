"""Headers read without content: the same members, samples and errors as of all bytes."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import pytest
from tarbuild import END, header, member, pax

from tarkit.errors import DataError, MissingInputError, TarkitError, TemporaryStreamError, TruncatedError
from tarkit.formats.tally import Tally
from tarkit.formats.tar import unread
from tarkit.formats.tar.unread import SkippingReader, open_headers
from tarkit.samples.read import placed_samples
from tarkit.samples.sample import first_dot
from tarkit.store.entries import identify
from tarkit.store.read import open_read

KIB = 1024


def found(path: Path, *, headers: bool, on_damage: str = "error") -> tuple[list[object], Tally, str]:
    """Offset, key and sizes of each sample, the tally, and the error that ended the reading."""
    tally, samples = Tally(), []
    try:
        if headers:
            with open_headers(str(path)) as shard:
                for offset, sample in placed_samples(
                    shard.read, url=shard.name, rule=first_dot, large=shard.large, tally=tally, on_damage=on_damage
                ):
                    samples.append((offset, [(k, v if k[:2] == "__" else len(v)) for k, v in sample.items()]))
        else:
            with open_read(str(path)) as stream:
                for offset, sample in placed_samples(
                    stream.read, url=stream.name, rule=first_dot, tally=tally, on_damage=on_damage
                ):
                    samples.append((offset, [(k, v if k[:2] == "__" else len(v)) for k, v in sample.items()]))
    except TarkitError as error:
        return samples, tally, str(error)
    return samples, tally, ""


def random_tar(draw: random.Random) -> bytes:
    """Members of all sizes around the limits, some of them with extended headers, some no files."""
    parts = []
    for number in range(draw.randrange(1, 12)):
        size = draw.choice([0, 1, 511, 512, 15 * KIB, 16 * KIB, 17 * KIB, 63 * KIB, 64 * KIB, 300 * KIB])
        name = b"%04d" % (number // 2)
        if draw.random() < 0.2:
            parts.append(pax({b"path": name + b"." + b"x" * 200 + b"%d" % (number % 2)}))
        kind = b"5" if draw.random() < 0.1 else b"0"
        parts.append(member(name + b".%d" % (number % 2), bytes(size if kind == b"0" else 0), kind=kind))
    return b"".join(parts) + (END if draw.random() < 0.8 else b"")


def test_as_all_bytes_would_be_read(tmp_path: Path) -> None:
    draw = random.Random(5)
    for number in range(60):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(random_tar(draw))
        assert found(path, headers=True) == found(path, headers=False)


def test_cuts_and_damage_are_found_as_by_the_reader(tmp_path: Path) -> None:
    draw = random.Random(6)
    path = tmp_path / "x.tar"
    for _ in range(60):
        content = bytearray(random_tar(draw))
        if draw.random() < 0.5:
            content = content[: draw.randrange(1, len(content))]
        else:
            # In a header, since content is not read: it has none of the bytes that begin a name.
            at = content.find(b"0", draw.randrange(len(content)))
            content[at] = 255
        path.write_bytes(content)
        for policy in ("error", "skip"):
            assert found(path, headers=True, on_damage=policy) == found(path, headers=False, on_damage=policy)


def test_only_headers_are_requested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(
        b"".join(member(b"%d.jpg" % n, bytes(KIB * KIB)) + member(b"%d.cls" % n, b"1") for n in range(8)) + END
    )
    asked = []
    real = unread.read_range

    def counting(url: str, start: int, stop: int, *, size: int) -> bytes:
        asked.append(stop - start)
        return real(url, start, stop, size=size)

    monkeypatch.setattr(unread, "read_range", counting)
    samples, _, _ = found(path, headers=True)
    assert len(samples) == 8 and sum(asked) <= 64 * KIB + 8 * 4 * KIB


def test_requests_grow_while_nothing_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(os.urandom(600 * KIB))
    reader = SkippingReader(str(path), identify(str(path)))
    data = b"".join(iter(lambda: reader.read(10_000), b""))
    assert data == path.read_bytes()
    reader = SkippingReader(str(path), identify(str(path)))
    assert reader.read(10) == data[:10]
    assert not reader.skip(64 * KIB), "what is there already need not be skipped"
    assert not reader.skip(600 * KIB), "the file ends before"
    assert reader.skip(500 * KIB)
    assert reader.read(5000) == data[10 + 500 * KIB : 10 + 504 * KIB], "one small request"


def test_what_is_compressed_or_a_stream_is_read_whole(tmp_path: Path) -> None:
    path, packed = tmp_path / "x.tar", tmp_path / "y.tar"
    path.write_bytes(member(b"a.jpg", bytes(100 * KIB)) + END)
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for name, whole in ((path, False), (packed, True)):
        with open_headers(str(name)) as shard:
            assert (shard.identity is None) == whole
        assert found(name, headers=True)[0] == [(0, [("__key__", "a"), ("__url__", str(name)), ("jpg", 100 * KIB)])]
    assert found(tmp_path / "none.tar", headers=True)[2] == f"{tmp_path}/none.tar: no such file"
    with pytest.raises(MissingInputError), open_headers(str(tmp_path / "none.tar")):
        pass


def test_a_member_that_is_cut_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(header(b"a.jpg", 10 * KIB * KIB) + bytes(200 * KIB))
    with pytest.raises(TruncatedError, match="204800 of 10485760 bytes"), open_headers(str(path)) as shard:
        list(placed_samples(shard.read, url=shard.name, rule=first_dot, large=shard.large))


@pytest.mark.parametrize("damaged", [False, True])
def test_a_shard_that_changes_meanwhile_is_temporary(tmp_path: Path, damaged: bool) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(member(b"a.jpg", bytes(100)) + END)
    with pytest.raises(TemporaryStreamError, match="replaced"), open_headers(str(path)):
        path.write_bytes(member(b"b.jpg", bytes(100)) + END)
        os.utime(path, (1, 1))
        if damaged:
            raise DataError("as if damaged")
