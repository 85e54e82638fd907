"""Lists with planned slices: what a reader of one slice gets, asks for, and refuses."""

from __future__ import annotations

import os
import random
import struct
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from podslices import names_of, slice_inputs, slice_of

from tarkit.errors import DataError, MissingInputError, StreamError, UsageError
from tarkit.specs.inputslice import plan_slice
from tarkit.specs.shardspec import expand
from tarkit.specs.slicedlist import SUFFIX, check_name, even_counts, open_list, slices_by_bytes, write_list
from tarkit.store.read import read_range

if TYPE_CHECKING:
    pass

OUT = "gs://out/d"


def test_unequal_and_empty_slices(tmp_path: Path) -> None:
    url = f"{tmp_path}/l"
    names = names_of(6)
    write_list(url, names, [4, 0, 2], outdir=OUT)
    assert [slice_inputs([f"@{url}"], index, 3) for index in range(3)] == [names[:4], [], names[4:]]


def test_other_inputs_beside_the_list(tmp_path: Path) -> None:
    url = f"{tmp_path}/l"
    write_list(url, names_of(6), [4, 0, 2], outdir=OUT)
    assert slice_inputs([f"@{url}", "s3://b/x.tar"], 2, 3) == [*names_of(6)[4:], "s3://b/x.tar"]


def test_a_list_whose_outputs_were_not_looked_at(tmp_path: Path) -> None:
    url = f"{tmp_path}/l"
    write_list(url, ["/a/x.tar", "/b/y.tar", "/b/x.tar"], [1, 1, 1], outdir=None)
    assert slice_of(url, 1) == ["/b/y.tar"]
    with pytest.raises(UsageError, match=r"would both become x.tar"):
        plan_slice([f"@{url}"], OUT, 1, 3)


@pytest.mark.parametrize(
    ("names", "counts", "words"),
    [
        (["/a/x.tar", "/b/x.tar"], [1, 1], "would both become x.tar"),
        (["/a/x.tar"], [1, 1], "slice 1 .* should have 1 shards; 0 are left"),
        (["/a/x.tar", "/a/y.tar"], [1], "more shards than the 1"),
        (["/a/{x,y}.tar"], [1], "cannot be in a list"),
    ],
)
def test_lists_that_are_not_written(names: list[str], counts: list[int], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        write_list(f"{tmp_path}/l", names, counts, outdir=OUT)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["l.gz", "l.zst"])
def test_lists_are_not_compressed(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be compressed"):
        write_list(f"{tmp_path}/{name}", ["/x.tar"], [1], outdir=OUT)
    with pytest.raises(UsageError, match="without a query"):
        write_list("s3://b/l?x=1", ["/x.tar"], [1], outdir=OUT)


@pytest.mark.parametrize(
    "name",
    ["a*.tar", "a[1].tar", "a{b}.tar", " a.tar", "a.tar ", "a\nb.tar", "a\rb", "#a", "@a", "-", "pipe:a",
     "", "\ufeffa", "s3://b/x?versionId=1", "http://h/{a}", "http://h/*.tar", "s3://b/a.json",
     "http://h/a.json?x=1"],
)  # fmt: skip
def test_names_that_a_line_can_not_hold(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be in a list"):
        check_name(name, "")


@pytest.mark.parametrize(
    "name", ["a.tar", "/a b.tar", "s3://b/ü.tar", "http://h/a?x=1&y=*", "caf\udce9.tar", "a\\b.tar"]
)
def test_names_that_a_line_holds(name: str, tmp_path: Path) -> None:
    assert check_name(name, "") == name
    url = f"{tmp_path}/l"
    write_list(url, [name], [1], outdir=OUT)
    assert list(expand(f"@{url}")) == slice_of(url, 0) == [name]


def test_names_are_not_relative_to_a_list_elsewhere() -> None:
    with pytest.raises(UsageError, match="relative to the folder of the list"):
        check_name("a.tar", "s3://b/lists/l")
    assert check_name("/a.tar", "s3://b/lists/l") == "/a.tar"


def test_what_only_looks_like_offsets(tmp_path: Path) -> None:
    url = tmp_path / "l"
    url.write_text("/a.tar\n/b.tar\n")
    offsets = tmp_path / f"l{SUFFIX}"
    for content in (b"", b"something else\n"):
        offsets.write_bytes(content)
        assert open_list(str(url)) is None
        assert slice_inputs([f"@{url}"], 1, 2) == ["/b.tar"]
    assert open_list(str(url)) is None
    offsets.unlink()
    offsets.mkdir()
    assert slice_inputs([f"@{url}"], 1, 2) == ["/b.tar"]
    long = url.rename(tmp_path / ("l" * 255))
    assert slice_inputs([f"@{long}"], 1, 2) == ["/b.tar"]


def test_offsets_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    """They counted as none, and a machine that cannot read them had other slices than the others,
    in silence.
    """
    url = tmp_path / "l"
    write_list(str(url), names_of(4), [3, 1], outdir=OUT)
    os.replace(f"{url}{SUFFIX}", tmp_path / "kept")
    os.symlink(f"{url}{SUFFIX}", f"{url}{SUFFIX}")
    for name in (str(url), f"file://{url}"):
        with pytest.raises(StreamError, match="symbolic links"):
            open_list(name)


def test_damaged_offsets(tmp_path: Path) -> None:
    url = f"{tmp_path}/l"
    write_list(url, names_of(8), [4, 4], outdir=OUT)
    whole = Path(f"{url}{SUFFIX}").read_bytes()
    for end in range(8, len(whole)):
        Path(f"{url}{SUFFIX}").write_bytes(whole[:end])
        with pytest.raises(DataError, match=r"is cut|is damaged"):
            slice_inputs([f"@{url}"], 0, 2)
    swapped = bytearray(whole)
    struct.pack_into("<q", swapped, 72 + 8, 1 << 40)
    Path(f"{url}{SUFFIX}").write_bytes(swapped)
    with pytest.raises(DataError, match="not in order"):
        slice_inputs([f"@{url}"], 0, 2)


# Over http


def test_ranges_of_what_is_not_there(tmp_path: Path) -> None:
    for url in (f"{tmp_path}/none", f"memory://none-{uuid.uuid4().hex}/x"):
        with pytest.raises(MissingInputError):
            read_range(url, 0, 1, size=1)
    with pytest.raises(StreamError):
        read_range(str(tmp_path), 0, 1, size=1)


# By bytes


@given(st.lists(st.integers(0, 10**12), max_size=60), st.integers(1, 12))
def test_slices_by_bytes(sizes: list[int], w: int) -> None:
    slices = slices_by_bytes(sizes, w)
    assert len(slices) == w
    assert sorted(number for part in slices for number in part) == list(range(len(sizes)))
    totals = [sum(sizes[number] for number in part) for part in slices]
    assert totals == sorted(totals, reverse=True)
    # Graham's bound for longest processing time first, against the least that is possible.
    least = max(max(sizes, default=0), -(-sum(sizes) // w))
    assert totals[0] <= least * 4 / 3 or totals[0] <= sum(sizes) / w + max(sizes, default=0)
    assert slices_by_bytes(sizes, w) == slices


def test_slices_by_bytes_by_hand() -> None:
    # 7 | 5, then 3 to the 5, then 2 to the 7.
    assert slices_by_bytes([3, 7, 2, 5], 2) == [[1, 2], [0, 3]]
    assert slices_by_bytes([10, 1, 1, 1, 1], 2) == [[0], [1, 2, 3, 4]]
    assert slices_by_bytes([5, 5, 9], 3) == [[2], [0], [1]]
    for sizes, w in (([1], 0), ([-1], 2)):
        with pytest.raises(UsageError):
            slices_by_bytes(sizes, w)


def test_large_lists_are_quick(tmp_path: Path) -> None:
    n = 100_000
    names = [f"s3://bucket/folder/{number:08d}.tar" for number in range(n)]
    random.Random(1).shuffle(names)
    write_list(f"{tmp_path}/l", names, even_counts(n, 1000), outdir=OUT)
    assert os.path.getsize(f"{tmp_path}/l{SUFFIX}") == 72 + 8 * 1001 + 4 * 1000
    assert slice_inputs([f"@{tmp_path}/l"], 999, 1000) == names[-100:]
