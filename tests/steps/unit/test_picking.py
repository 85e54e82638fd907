"""Samples picked by key: through indexes, headers or all bytes; each key exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarkit import TarWriter
from tarkit.errors import DataError, MissingInputError, RepeatedKeyError, TooLargeError
from tarkit.formats.tally import Tally
from tarkit.steps import lookup
from tarkit.steps.keylists import listed_keys
from tarkit.steps.picking import pick_samples


def shard_of(path: Path, keys: str, *, index: bool = False) -> str:
    with TarWriter(str(path), index=index) as writer:
        for key in keys.split():
            writer.write({"__key__": key, "txt": f"of {key}", "bin": bytes(50_000)})
    return str(path)


@pytest.mark.parametrize(("name", "index"), [("x.tar", False), ("x.tar", True), ("x.tar.gz", False), ("x.bin", False)])
def test_in_the_order_of_the_shards(tmp_path: Path, name: str, index: bool) -> None:
    path = tmp_path / "x.tar.gz" if name == "x.tar.gz" else tmp_path / "x.tar"
    shard = shard_of(path, "a b d/c e", index=index)
    if name == "x.bin":
        shard = str(path.rename(tmp_path / "x.bin"))
    other = shard_of(tmp_path / "y.tar", "f g", index=True)
    unindexed: list[tuple[str, bool]] = []
    tally, stale = Tally(), list[str]()
    found = pick_samples(
        ["g", "d/c", "b", "b"], [shard, other], parallel=2, tally=tally, stale=stale,
        unindexed=lambda *each: unindexed.append(each),
    )  # fmt: skip
    assert [(each["__key__"], each["txt"], each["__url__"]) for each in found] == [
        ("b", b"of b", shard),
        ("d/c", b"of d/c", shard),
        ("g", b"of g", other),
    ]
    assert unindexed == ([] if index else [(shard, name == "x.tar.gz")]) and not stale


def test_a_key_that_is_missing_or_there_twice(tmp_path: Path) -> None:
    one, packed = shard_of(tmp_path / "x.tar", "a b", index=True), shard_of(tmp_path / "y.tar.gz", "b c")
    with pytest.raises(MissingInputError, match="no shard has the key 'n\\\\no' and 1 more keys"):
        next(pick_samples(["a", "n\no", "m"], [one]))
    with pytest.raises(MissingInputError, match=r"no shard has the key 'm'$"):
        list(pick_samples(["a", "m"], [one, packed]))
    with pytest.raises(RepeatedKeyError, match=r"key 'b': the key is in .*x\.tar too"):
        list(pick_samples(["b"], [one, packed]))
    with pytest.raises(RepeatedKeyError, match="key 'b'"):
        next(pick_samples(["b"], [one, shard_of(tmp_path / "z.tar", "b")]))


def test_a_stale_index_is_not_used(tmp_path: Path) -> None:
    shard = shard_of(tmp_path / "x.tar", "a b", index=True)
    index = (tmp_path / "x.idx").read_bytes()
    shard_of(tmp_path / "x.tar", "a b c")
    (tmp_path / "x.idx").write_bytes(index)
    stale: list[str] = []
    assert [each["__key__"] for each in pick_samples(["c"], [shard], stale=stale)] == ["c"]
    assert stale == [str(tmp_path / "x.idx")]


def test_damage_is_an_error(tmp_path: Path) -> None:
    shard = shard_of(tmp_path / "x.tar", "a b")
    (tmp_path / "x.tar").write_bytes((tmp_path / "x.tar").read_bytes()[:60_000])
    with pytest.raises(DataError, match=r"x\.tar"):
        list(pick_samples(["a"], [shard]))


def test_a_sample_beyond_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = shard_of(tmp_path / "x.tar", "a b", index=True)
    monkeypatch.setattr(lookup, "DEFAULT_MEM", 1000)
    with pytest.raises(TooLargeError, match=r"member 'b\.bin': this sample has \d+ bytes"):
        list(pick_samples(["b"], [shard]))


def test_keys_of_a_list(tmp_path: Path) -> None:
    (tmp_path / "l").write_bytes(b"\xef\xbb\xbfa\r\n\n b c\n@d")
    assert list(listed_keys(["x", f"@{tmp_path}/l"])) == ["x", "a", " b c", "@d"]
    with pytest.raises(MissingInputError):
        list(listed_keys([f"@{tmp_path}/none"]))
