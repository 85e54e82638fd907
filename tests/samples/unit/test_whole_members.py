"""Large members of a plain local file are read at once; the same as in a stream is delivered."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tarbuild import END, header, member, pax, whole_reads

from tarkit import read_samples
from tarkit.errors import DataError, TarkitError, TemporaryStreamError
from tarkit.formats.tally import Tally
from tarkit.formats.tar.walk import Member
from tarkit.samples.read import read_members
from tarkit.store.local import FileReader
from tarkit.store.read import open_read

LEAST = 64 << 10
SIZES = (0, 1, LEAST - 1, LEAST, LEAST + 1, 5000, 300_000, 700, 2 * LEAST, 70 * 1024 - 512, 3)
CONTENTS = [random.Random(number).randbytes(size) for number, size in enumerate(SIZES)]
MEMBERS = [member(b"%02d.bin" % number, content) for number, content in enumerate(CONTENTS)]
STARTS = [sum(map(len, MEMBERS[:number])) for number in range(len(MEMBERS))]
DATA = b"".join(MEMBERS) + END
BAD = bytes(100) + b"damage" * 50


def delivered(
    read: Callable[[int], bytes], on_damage: str, take_whole: Callable[[int, int], bytes | None] | None = None
) -> tuple[list[Member], object, Tally]:
    """The members before an error, the error, and what was counted."""
    tally, found, problem = Tally(), [], None
    try:
        for each in read_members(read, url="x.tar", on_damage=on_damage, tally=tally, take_whole=take_whole):
            found.append(each)
    except DataError as error:
        problem = type(error), error.reason, error.member, error.offset, error.hint
    return found, problem, tally


def same(path: Path, data: bytes, on_damage: str = "error") -> tuple[list[Member], object, Tally]:
    """What is delivered of a file, after a comparison with the same bytes in a stream."""
    path.write_bytes(data)
    with open_read(path) as stream:
        reader = stream.in_place()
        assert reader is not None
        of_file = delivered(reader.read, on_damage, reader.take)
    assert of_file == delivered(whole_reads(data), on_damage)
    return of_file


def test_the_members_are_the_same(tmp_path: Path) -> None:
    found, problem, _ = same(tmp_path / "a.tar", DATA)
    assert problem is None
    assert [content for _, content, _ in found] == CONTENTS
    twice, _, _ = same(tmp_path / "a.tar", DATA + pax({b"path": b"deep/" * 50 + b"n.bin"}) + MEMBERS[6] + END)
    assert twice[-1][:2] == ("deep/" * 50 + "n.bin", CONTENTS[6])


def test_a_large_member_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.tar").write_bytes(DATA)
    counts, pread = list[int](), os.pread

    def counting(file: int, count: int, offset: int) -> bytes:
        counts.append(count)
        return pread(file, count, offset)

    monkeypatch.setattr(os, "pread", counting)
    samples = list(read_samples(str(tmp_path / "a.tar")))
    assert [sample["bin"] for sample in samples] == CONTENTS
    assert {300_000, 2 * LEAST} <= set(counts)


@pytest.mark.parametrize("on_damage", ["error", "skip"])
@pytest.mark.parametrize("place", [0, 100, 512, 513, 5000, LEAST, LEAST + 511, 200_000])
def test_every_cut_is_the_same_error(tmp_path: Path, on_damage: str, place: int) -> None:
    for start in (STARTS[4], STARTS[6], STARTS[8]):
        _, problem, tally = same(tmp_path / "a.tar", DATA[: start + place], on_damage)
        assert problem if on_damage == "error" else tally.damage or problem


@pytest.mark.parametrize("on_damage", ["error", "skip"])
def test_damage_behind_a_large_member_is_the_same(tmp_path: Path, on_damage: str) -> None:
    for number in (5, 7, 9):
        start = STARTS[number]
        _, problem, tally = same(tmp_path / "a.tar", DATA[:start] + BAD + DATA[start + len(BAD) :], on_damage)
        assert problem if on_damage == "error" else tally.damage


def test_a_size_beyond_the_end_is_not_waited_for(tmp_path: Path) -> None:
    for size in (1 << 20, 63 << 20, 65 << 20, 7 << 30):
        _, problem, _ = same(tmp_path / "a.tar", MEMBERS[3] + header(b"b.bin", size) + bytes(LEAST))
        assert f"{LEAST} of {size} bytes are there" in str(problem)


@pytest.mark.parametrize("size", [STARTS[6] + 1000, STARTS[9]])
def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(DATA)
    samples = read_samples(str(path))
    next(samples)
    os.truncate(path, size)
    with pytest.raises(TemporaryStreamError, match="the file was changed while it was read: it had"):
        list(samples)


def test_a_file_that_is_written_to_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(DATA)
    os.utime(path, ns=(1, 1))
    samples = read_samples(str(path))
    next(samples)
    path.write_bytes(DATA[::-1])
    with pytest.raises(TemporaryStreamError, match="the file was changed while it was read"):
        list(samples)


def test_the_next_program_continues_where_reading_standard_input_ended(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    with open(tmp_path / "a", "rb", buffering=0) as shared:
        shared.seek(100)
        reader = FileReader(io.FileIO(os.dup(shared.fileno())), name="-")
        assert (reader.read(50), reader.read_exactly(10, 30)) == (DATA[100:150], DATA[140:170])
        assert reader.read_exactly(0, len(DATA)) is None
        reader.close()
        assert shared.read(20) == DATA[170:190]
        with pytest.raises(OSError, match="Bad file descriptor"):
            reader.read(1)


def test_another_process_does_not_read_the_same_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.tar").write_bytes(DATA)
    samples = read_samples(str(tmp_path / "a.tar"))
    next(samples)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(TarkitError, match="opened before this process was forked"):
        list(samples)
