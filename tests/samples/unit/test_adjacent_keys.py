"""Two samples in a row with the same key: written side by side, they would be read back as one."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import tarkit
from tarkit.errors import EncodeError, RepeatedKeyError
from tarkit.samples.read import read_samples


def test_a_key_that_is_allowed_to_come_back_can_not_follow_itself(tmp_path: Path) -> None:
    out = tmp_path / "out.tar"
    with tarkit.TarWriter(out, encoder=False, on_repeated_key="allow") as writer:
        writer.write({"__key__": "a", "x": b"1"})
        with pytest.raises(EncodeError, match=r"key 'a': the sample right before has the same key"):
            writer.write({"__key__": "a", "y": b"2"})
        writer.write({"__key__": "b", "x": b"3"})
        writer.write({"__key__": "a", "y": b"4"})
    found = [(each["__key__"], each.get("y")) for each in read_samples(str(out), on_repeated_key="allow")]
    assert found == [("a", None), ("b", None), ("a", b"4")]


def test_what_was_refused_with_others_does_not_count_as_written() -> None:
    buffer = io.BytesIO()
    with tarkit.TarWriter(buffer, encoder=False, on_repeated_key="allow") as writer:
        with pytest.raises(EncodeError, match="not bytes"):
            writer.write_all([{"__key__": "a", "x": b"1"}, {"__key__": "b", "x": 2}])
        writer.write_all([{"__key__": "a", "x": b"1"}])
    assert writer.samples == 1


def test_cat_does_not_make_one_sample_of_two(tmp_path: Path) -> None:
    from tarkit.steps.join import concatenate
    from tarkit.store.publish import open_publish

    shards = []
    for number, sample in enumerate(({"x": b"1"}, {"y": b"2"})):
        shards.append(str(tmp_path / f"{number}.tar"))
        with tarkit.TarWriter(shards[-1], encoder=False) as writer:
            writer.write({"__key__": "a", **sample})
    out = tmp_path / "out.tar"
    with (
        pytest.raises(RepeatedKeyError, match=r"1\.tar, key 'a': the sample before it has the same key"),
        open_publish(out) as output,
    ):
        concatenate(shards, output, on_repeated_key="allow")
    assert not out.exists()
