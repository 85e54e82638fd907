"""Two samples in a row with the same key: written side by side, they would be read back as one."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

import tarkit
from tarkit.errors import EncodeError, RepeatedKeyError
from tarkit.runs.account import Sinks
from tarkit.runs.engine import ERROR_FIELD, without_reports
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


def test_failed_samples_of_two_shards_with_the_same_key_come_back_as_two(tmp_path: Path) -> None:
    failed = tmp_path / "failed.tar"
    sinks = Sinks(None, str(failed), {})
    samples = [
        {"__key__": "a", "x": b"1"},
        {"__key__": "a", "y": b"2"},
        {"__key__": "b", "x": b"3"},
    ]
    for sample in samples:
        sinks.write_failed(sample, b"exit code 1\n")
    sinks.close()
    back = list(without_reports(read_samples(str(failed), on_repeated_key="allow")))
    assert [{name: value for name, value in each.items() if name != "__url__"} for each in back] == samples
    with tarfile.open(failed, ignore_zeros=True) as archive:
        assert archive.getnames() == [f"a.{ERROR_FIELD}", "a.x", f"a.{ERROR_FIELD}", "a.y", f"b.{ERROR_FIELD}", "b.x"]
    listed = subprocess.run(["tar", "--ignore-zeros", "-tf", failed], capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 6


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
