"""A tar cut into one piece for each sample."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarkit.errors import DataError, RepeatedKeyError, TruncatedError
from tarkit.formats.tally import Tally
from tarkit.samples.pieces import one_archive, sample_pieces
from tarkit.samples.read import read_members
from tarkit.samples.sample import group_by_keys

names = st.sampled_from(["a.jpg", "a.cls", "b/a.jpg", "b/a.cls", "README", "c.jpg", "._x.jpg", "long" * 20 + ".txt"])
formats = st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])


def archive(files: list[tuple[str, bytes]], form: int = tarfile.GNU_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if name == "README":
                info.type, info.size = tarfile.DIRTYPE, 0
            tar.addfile(info, io.BytesIO(content))
    return file.getvalue()


def pieces_of(tar: bytes, size: int = 1 << 20) -> list[tuple[str, bytes]]:
    file = io.BytesIO(tar)
    return list(sample_pieces(lambda count: file.read(min(count, size))))


@given(
    st.lists(st.tuples(names, st.binary(max_size=1500)), unique_by=lambda file: file[0]), formats, st.integers(1, 5000)
)
def test_the_pieces_joined_are_the_tar(files: list[tuple[str, bytes]], form: int, size: int) -> None:
    tar = archive(sorted(files), form)
    assert b"".join(piece for _, piece in pieces_of(tar, size)) == tar


def test_a_piece_has_the_members_of_its_sample() -> None:
    tar = archive([("x/", b""), ("a.jpg", b"1"), ("a.cls", b"2"), ("README", b""), ("b.jpg", b"3" * 600)])
    pieces = pieces_of(tar)
    assert [key for key, _ in pieces] == ["a", "b"]
    names = []
    for _, piece in pieces:
        with tarfile.open(fileobj=io.BytesIO(piece + bytes(1024))) as part:
            names.append(part.getnames())
    assert names == [["x/", "a.jpg", "a.cls", "README"], ["b.jpg"]]


def test_a_member_that_is_in_no_sample_begins_none() -> None:
    """x.__m__ has the key of a sample that comes back later: that would have begun before the
    sample between them.
    """
    tar = archive([("x.jpg", b"1"), ("y.jpg", b"2"), ("x.__m__", b"3"), ("z.jpg", b"4"), ("x.cls", b"5")])
    pieces = list(sample_pieces(io.BytesIO(tar).read, on_repeated_key="allow"))
    assert [(key, len(piece)) for key, piece in pieces] == [("x", 1024), ("y", 2048), ("z", 1024), ("x", 6144)]
    assert b"".join(piece for _, piece in pieces) == tar


def test_a_tar_without_samples_is_one_piece() -> None:
    assert pieces_of(archive([])) == [("", bytes(10240))]


def test_what_is_skipped_is_counted() -> None:
    tally = Tally()
    list(sample_pieces(io.BytesIO(archive([("README", b""), ("a.jpg", b"1")])).read, tally=tally))
    assert tally.samples == 1


def _cut(tar: bytes) -> bytes:
    return tar[:700]


def _nothing(tar: bytes) -> bytes:
    return b""


def _twice(tar: bytes) -> bytes:
    return archive([("a.jpg", b"1"), ("b.jpg", b"1"), ("a.cls", b"1")])


@pytest.mark.parametrize(
    ("damage", "kind"),
    [(_cut, TruncatedError), (_twice, RepeatedKeyError), (_nothing, TruncatedError)],
)
def test_a_tar_that_is_not_right_is_an_error(damage: Callable[[bytes], bytes], kind: type[DataError]) -> None:
    with pytest.raises(kind):
        pieces_of(damage(archive([("a.jpg", b"1" * 600)])))


def test_a_member_that_is_too_large_is_an_error() -> None:
    with pytest.raises(DataError, match=r"a\.jpg"):
        list(sample_pieces(io.BytesIO(archive([("a.jpg", bytes(3 << 20))])).read, mem=2 << 20))


@given(
    st.lists(st.lists(st.tuples(names, st.binary(max_size=1500)), unique_by=lambda file: file[0]), max_size=4), formats
)
def test_the_pieces_of_several_tars_are_those_of_one(tars: list[list[tuple[str, bytes]]], form: int) -> None:
    several = [sorted((f"{number}/{name}", content) for name, content in files) for number, files in enumerate(tars)]
    pieces = list(one_archive(pieces_of(archive(files, form)) for files in [*several, [("z.cls", b"")]]))
    joined = io.BytesIO(b"".join(piece for _, piece in pieces))
    with tarfile.open(fileobj=joined) as tar:
        assert tar.getnames() == [name for files in several for name, _ in files] + ["z.cls"]
    joined.seek(0)
    samples = {sample["__key__"]: sample for sample in group_by_keys(read_members(joined.read))}
    assert len(samples) == sum(1 for key, _ in pieces if key)


@pytest.mark.parametrize("between", [[], [archive([])], [archive([]), archive([("README", b"")])]])
def test_tars_whose_samples_would_become_one_stay_apart(between: list[bytes]) -> None:
    tars = [archive([("x.cls", b"1")]), *between, archive([("x.jpg", b"2")])]
    joined = b"".join(piece for _, piece in one_archive(map(pieces_of, tars)))
    with pytest.raises(RepeatedKeyError):
        list(group_by_keys(read_members(io.BytesIO(joined).read)))
