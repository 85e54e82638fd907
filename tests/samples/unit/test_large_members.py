"""Members that are too large for memory: kept in files, refused by name, skipped.

The same bytes come out.
"""

from __future__ import annotations

import errno
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tarbuild import END, header, member, short_reads, whole_reads

from tarkit import TarWriter, read_samples
from tarkit.errors import StreamError, TemporaryStreamError, TooLargeError, TruncatedError
from tarkit.formats.tally import Tally
from tarkit.formats.tar import raw
from tarkit.formats.tar.large import KeepInFiles, SkipLarge
from tarkit.samples.content import samples_of
from tarkit.samples.gather import gather, parse_plan
from tarkit.samples.read import read_members
from tarkit.samples.sample import Sample, first_dot, group_by_keys
from tarkit.samples.shardwriter import ShardWriter
from tarkit.steps import join
from tarkit.steps.join import concatenate
from tarkit.store import fieldfile, inplace
from tarkit.store.fieldfile import PIECE, FieldFile
from tarkit.store.publish import open_publish

SPARSE = bytes(PIECE) + b"x" + bytes(PIECE)
FILES = {"a.cls": b"1", "b.bin": SPARSE, "b.cls": b"2", "b.txt": b"t" * 5000, "c.bin": os.urandom(3000), "c.cls": b""}
DATA = b"".join(member(name.encode(), content) for name, content in FILES.items()) + END


def kept(data: bytes, large: KeepInFiles) -> Iterator[Sample]:
    members = read_members(short_reads(data, 1, 5000), url="x.tar", large=large)
    return group_by_keys(members, url="x.tar", sample_limit=large.sample_limit, spill=large.spill)


def files_of(samples: Iterator[Sample]) -> dict[str, bytes]:
    return {
        f"{sample['__key__']}.{field}": value.read() if isinstance(value, FieldFile) else value
        for sample in samples
        for field, value in sample.items()
        if not field.startswith("__")
    }


@pytest.mark.parametrize("member_limit", [0, 1000, 4000, 10**9])
@pytest.mark.parametrize("sample_limit", [0, 3000, 10**9])
def test_kept_in_files_the_content_is_the_same(tmp_path: Path, member_limit: int, sample_limit: int) -> None:
    large = KeepInFiles(str(tmp_path), member_limit, sample_limit)
    assert files_of(kept(DATA, large)) == FILES
    assert list(tmp_path.iterdir()) == [], "the files have no names"


def test_what_a_large_sample_has_more_goes_into_one_file(tmp_path: Path) -> None:
    data = b"".join(member(b"a.%d" % number, b"%d" % number) for number in range(2000)) + END
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else None
    ((sample),) = kept(data, KeepInFiles(str(tmp_path), sample_limit=10_000))
    assert sum(isinstance(value, FieldFile) for value in sample.values()) > 1900
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) < before + 10
    assert files_of(iter([sample])) == {f"a.{number}": b"%d" % number for number in range(2000)}


def test_written_again_the_shard_has_the_same_bytes(tmp_path: Path) -> None:
    """Through TarWriter and ShardWriter, which count what is in files too."""
    (tmp_path / "x.tar").write_bytes(DATA)
    outputs = []
    for member_limit in (0, 10**9):
        large = KeepInFiles(str(tmp_path), member_limit)
        name = str(tmp_path / f"{member_limit}-%d.tar")
        with ShardWriter(name, maxsize=len(SPARSE) + 1, encoder=False) as writer:
            for sample in read_samples(str(tmp_path / "x.tar"), large=large):
                writer.write(sample)
        outputs.append([Path(shard).read_bytes() for shard in writer.shards])
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 3


def test_a_file_that_is_cut_while_it_is_written_publishes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(bytes(PIECE))
    content = FieldFile.at(str(path))
    path.write_bytes(b"cut")
    with pytest.raises(StreamError, match=f"cut while it was read: {PIECE - 3} of {PIECE} bytes"):
        content.read()
    path.write_bytes(bytes(PIECE))
    os.utime(path, ns=(1, 1))
    changed = FieldFile.at(str(path))
    path.write_bytes(bytes(PIECE))
    with pytest.raises(TemporaryStreamError, match="the file was changed while it was read"):
        changed.read()
    path.write_bytes(b"cut")
    with (
        pytest.raises(StreamError, match="was cut"),  # also where the caller goes on: sample a is lost
        TarWriter(str(tmp_path / "x.tar"), encoder=False) as writer,
    ):
        writer.write({"__key__": "a", "x": b"1"})
        with pytest.raises(StreamError, match="was cut"):
            writer.write({"__key__": "b", "x": content})
        with pytest.raises(StreamError, match="closed"):
            writer.write({"__key__": "c", "x": b"1"})
    series = ShardWriter(
        str(tmp_path / "x-%d.tar"), encoder=False, maxsize=PIECE + 50, manifest=str(tmp_path / "x.json")
    )
    series.write({"__key__": "a", "x": b"1"})
    with pytest.raises(StreamError, match="was cut"):
        series.write({"__key__": "b", "x": content})
    with pytest.raises(StreamError, match="was cut"):
        series.write({"__key__": "c", "x": bytes(100)})  # which begins another shard
    for _ in range(2):
        with pytest.raises(StreamError, match="was cut"):
            series.close()
    assert series.shards == []
    assert [path.name for path in tmp_path.iterdir()] == ["big"]


def test_zeros_take_no_room_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "zeros"
    with open(path, "wb") as file:
        FieldFile.keep([bytes(PIECE)] * 64 + [bytes(10)]).write_to(file.fileno())
    assert path.stat().st_size == 64 * PIECE + 10
    assert path.stat().st_blocks * 512 < PIECE
    assert FieldFile.at(str(path)).read() == bytes(64 * PIECE + 10)


def test_no_room_for_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StreamError, match=f"{tmp_path}/gone: No such file.*set TMPDIR"):
        FieldFile.keep([b"x"], str(tmp_path / "gone"), url="x.tar", member="a.bin")
    monkeypatch.setattr(fieldfile, "write_piece", full)
    with pytest.raises(StreamError, match=r"x.tar, member 'b.bin': .*No space left.*set TMPDIR"):
        list(kept(DATA, KeepInFiles(str(tmp_path), 4000)))


def test_an_error_in_reading_is_not_blamed_on_the_disk_that_is_written_to(tmp_path: Path) -> None:
    read = whole_reads(DATA[:5000])

    def broken(count: int) -> bytes:
        if not (piece := read(count)):
            raise OSError(errno.EIO, "Input/output error")
        return piece

    with pytest.raises(OSError, match=r"^\[Errno 5\] Input/output error$"):
        list(read_members(broken, large=KeepInFiles(str(tmp_path), 4000)))


def test_of_two_fields_the_last_and_what_follows_it_in_one_file(tmp_path: Path) -> None:
    data = b"".join(member(name, name * 999) for name in (b"a.x", b"a.y", b"a.x", b"a.z")) + END
    members = read_members(whole_reads(data))
    large = KeepInFiles(str(tmp_path), sample_limit=0)
    samples = group_by_keys(members, on_duplicate_field="last", sample_limit=0, spill=large.spill)
    assert files_of(samples) == {"a.x": b"a.x" * 999, "a.y": b"a.y" * 999, "a.z": b"a.z" * 999}


@pytest.mark.parametrize("cut", [5000, 2 * PIECE])
@pytest.mark.parametrize("large", [KeepInFiles(member_limit=100), SkipLarge()], ids=["kept", "skipped"])
def test_a_cut_inside_a_large_member_names_it(cut: int, large: KeepInFiles | SkipLarge) -> None:
    with pytest.raises(TruncatedError, match=rf"member 'b.bin': .* of {len(SPARSE)} bytes are there"):
        list(read_members(whole_reads(DATA[:cut]), url="x.tar", large=large))


def test_damage_behind_a_large_member(tmp_path: Path) -> None:
    offset = DATA.index(b"b.cls")
    spoiled = DATA[: offset + 1] + b"!" + DATA[offset + 2 :]
    tally = Tally()
    large = KeepInFiles(str(tmp_path), 100)
    members = read_members(short_reads(spoiled, 1, 5000), large=large, on_damage="skip", tally=tally)
    assert [sample["__key__"] for sample in group_by_keys(members, tally=tally)] == ["a", "c"]
    assert len(tally.damage) == 1


def test_a_dict_of_bytes_has_a_bound_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(DATA)
    message = rf"x.tar, offset 1024, member 'b.bin': this member has {len(SPARSE)} bytes.*mem=1000000.*pass --mem \d+ "
    with pytest.raises(TooLargeError, match=message):
        list(read_samples(str(tmp_path / "x.tar"), mem=1_000_000))
    assert files_of(read_samples(str(tmp_path / "x.tar"), mem=3_000_000)) == FILES


@pytest.mark.parametrize("on_damage", ["error", "skip"])
def test_a_member_above_the_bound_is_not_taken_for_damage(on_damage: str, tmp_path: Path) -> None:
    """What is inside of it may well be headers of another tar, whose files are not members of this
    one.
    """
    inner = b"".join(member(b"in%d.cls" % number, bytes(400_000)) for number in range(3)) + END
    files = {b"a.cls": b"1", b"b.cls": b"2", b"c.tar": inner, b"d.cls": b"4", b"e.cls": b"5"}
    data = b"".join(member(name, content) for name, content in files.items()) + END
    (tmp_path / "x.tar").write_bytes(data)
    keys = []
    with pytest.raises(TooLargeError, match=r"member 'c.tar'"):
        for sample in read_samples(str(tmp_path / "x.tar"), mem=1_000_000, on_damage=on_damage):
            keys.append(sample["__key__"])
    assert keys == ["a"], "b may have more fields behind the one that is too large"


def test_a_sample_of_many_members_has_the_same_bound(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"".join(member(b"a.%d" % n, bytes(10_000)) for n in range(100)) + END)
    with pytest.raises(TooLargeError, match=r"member 'a\.\d+', key 'a': .*\(mem=100000\)"):
        list(read_samples(str(tmp_path / "x.tar"), mem=100_000))


def test_the_last_member_of_a_sample_counts_as_well(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"".join(member(name, bytes(900_000)) for name in (b"a.x", b"a.y", b"b.x")) + END)
    with pytest.raises(TooLargeError, match=r"member 'a\.y', key 'a': .*\(mem=1000000\)"):
        list(read_samples(str(tmp_path / "x.tar"), mem=1_000_000))
    assert len(list(read_samples(str(tmp_path / "x.tar"), mem=2_000_000))) == 2


def test_a_member_that_claims_an_absurd_size_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(header(b"a.x", size_field=b"\x80" + b"\x3f" * 11) + END)
    with pytest.raises(TooLargeError, match=r"member 'a.x'"):
        list(read_samples(str(tmp_path / "x.tar")))
    for large in (SkipLarge(), KeepInFiles(str(tmp_path))):
        with pytest.raises(TruncatedError, match=r"member 'a.x'"):
            list(read_samples(str(tmp_path / "x.tar"), large=large))


# ---- cat

CONTENT = st.sampled_from([b"", b"x", b"y" * 600, b"z" * 3000, bytes(5000)])
NAMES = st.sampled_from(["txt", "cls", "README", "folder/"])


@given(
    st.lists(st.tuples(NAMES, CONTENT), min_size=2, max_size=8),
    st.integers(0, 5),
    st.sampled_from(["error", "skip"]),
    st.integers(0, 4000),
)
def test_cat_passes_the_same_bytes_on_whatever_is_large(
    files: list[tuple[str, bytes]], seed: int, on_damage: str, small: int
) -> None:
    data = b"".join(
        member(
            f"{number // 2}.{number}{name}".encode() if name.isalpha() and name.islower() else name.encode(), content
        )
        for number, (name, content) in enumerate([("first", b""), *files, ("last", b"")])
    )
    whole = data + END
    outcomes = []
    for limit in (10**9, 100):
        out = io.BytesIO()
        with pytest.MonkeyPatch.context() as patch, open_publish(out) as stream:
            patch.setattr(raw._CopyLarge, "member_limit", limit)
            patch.setattr(raw._KeepLarge, "__init__", lambda self, limit=limit: _limits(self, limit))
            patch.setattr(join, "open_in_order", lambda names, _: [_Source(short_reads(whole, seed)) for _ in names])
            concatenate(["x.tar", "x.tar"], stream, on_damage=on_damage, on_repeated_key="allow")
        outcomes.append(out.getvalue())
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        shard, made = Path(folder, "x.tar"), Path(folder, "out.tar")
        shard.write_bytes(whole)
        patch.setattr(raw, "IN_PLACE", small % 700)
        patch.setattr(raw, "LARGE", small)
        patch.setattr(inplace, "_SMALL", 1 + small // 3)
        with open_publish(made) as stream:
            concatenate([str(shard)] * 2, stream, on_damage=on_damage, on_repeated_key="allow")
        outcomes.append(made.read_bytes())
    assert outcomes[0] == outcomes[1] == outcomes[2]
    if on_damage == "error":
        assert outcomes[0].startswith(data + data)


def _limits(large: KeepInFiles, limit: int) -> None:
    KeepInFiles.__init__(large, None, limit, limit)


class _Source:
    name = "x.tar"
    in_place = staticmethod(lambda: None)
    part_read = staticmethod(lambda: 0.0)

    def __init__(self, read: object) -> None:
        self.read = read

    def __enter__(self) -> _Source:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""


# ---- create


def test_a_sample_of_many_sources_is_not_held_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fieldfile.SampleRoom.__init__, "__defaults__", (2000, None))
    for number in range(9):
        (tmp_path / f"a.{number}").write_bytes(bytes([number]) * 500)
    files = gather([str(tmp_path)], rule=first_dot).files
    plan = tmp_path / "plan"
    plan.write_text("\n".join(f"a.{number} {tmp_path}/a.{number}" for number in range(9)))
    for each in (files, parse_plan(str(plan), rule=first_dot)):
        (sample,) = samples_of(each)
        assert [isinstance(sample[str(number)], FieldFile) for number in range(9)] == [False] * 4 + [True] * 5
        assert list(files_of(iter([sample])).values()) == [bytes([number]) * 500 for number in range(9)]
