"""Indexes that runs write with their shards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tarkit
from tarkit.errors import MissingInputError, TarkitError, UsageError
from tarkit.names.outputnames import index_url
from tarkit.samples.index import build_index
from tarkit.samples.indexedshard import open_indexed
from tarkit.samples.tarwriter import TarWriter

SAMPLES = [{"__key__": f"k{number}", "txt": b"x" * number * 300, "cls": b"%d" % number} for number in range(8)]


def write(path: Path, samples: list[dict[str, Any]] = SAMPLES, **options: Any) -> Path:
    with TarWriter(str(path), encoder=False, index=True, **options) as sink:
        for sample in samples:
            sink.write(sample)
    return path


def is_indexed(path: Path) -> bool:
    """Whether the index is that of reading the shard."""
    return path.with_suffix(".idx").read_bytes() == build_index(str(path)).encode()


def test_a_kill_between_shard_and_index(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar")
    program = (
        "import os, tarkit\n"
        "from tarkit.samples.writtenindex import WrittenIndex\n"
        "WrittenIndex.publish = lambda self: os.kill(os.getpid(), 9)\n"
        f"with tarkit.TarWriter({str(path)!r}, index=True) as sink:\n"
        "    sink.write({'__key__': 'other', 'cls': 1})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert [sample["__key__"] for sample in tarkit.read_samples(str(path))] == ["other"]
    assert not path.with_suffix(".idx").exists()
    assert open_indexed(str(path)) is None


def upper(sample: dict[str, Any]) -> dict[str, Any] | None:
    return None if sample["__key__"] == "k2" else {**sample, "new": b"x" * int(sample["cls"])}


def fail_on_k5(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["__key__"] == "k5":
        raise ValueError
    return sample


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    for number in range(3):
        with TarWriter(str(tmp_path / f"in-{number}.tar"), encoder=False) as sink:
            for sample in SAMPLES[number:]:
                sink.write(sample)
    return [str(tmp_path / f"in-{number}.tar") for number in range(3)]


def test_one_output(tmp_path: Path, inputs: list[str]) -> None:
    counts = tarkit.process(inputs[0], output=f"{tmp_path}/out.tar", function=fail_on_k5, index=True)
    assert counts.failed == 1
    assert is_indexed(tmp_path / "out.tar")
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.idx", "out.tar", "out.tar.failed.tar"]


def test_an_output_for_each_input(tmp_path: Path, inputs: list[str]) -> None:
    plain, indexed = tmp_path / "plain", tmp_path / "indexed"
    for outdir, index in ((plain, False), (indexed, True)):
        tarkit.process(inputs, outdir=outdir, function=upper, index=index, work_id="upper")
    for path in sorted(plain.glob("*.tar")):
        assert (indexed / path.name).read_bytes() == path.read_bytes()
        assert is_indexed(indexed / path.name)
    assert not list(plain.glob("*.idx"))


def test_shards_that_were_done_without_an_index_get_one(tmp_path: Path, inputs: list[str]) -> None:
    """Their bytes are what they would be: they are not made again."""
    outdir = tmp_path / "out"
    tarkit.process(inputs, outdir=outdir, function=upper, work_id="upper")
    before = {path: path.stat().st_ino for path in outdir.glob("*.tar")}
    (outdir / "in-1.idx").write_bytes(b"v1.2 0\n")
    for _ in range(2):
        counts = tarkit.process(inputs, outdir=outdir, function=upper, work_id="upper", index=True)
        assert (counts.shards_before, counts.shards_done) == (3, 0)
        assert {path: path.stat().st_ino for path in outdir.glob("*.tar")} == before
        assert all(map(is_indexed, before))


def test_outputs_that_are_compressed(tmp_path: Path, inputs: list[str]) -> None:
    os.rename(inputs[0], tmp_path / "in.tar.gz")
    with pytest.raises(UsageError, match=r"in\.tar\.gz: a shard compressed by gzip is not written with an index"):
        tarkit.process(str(tmp_path / "in.tar.gz"), outdir=tmp_path / "out", function=upper, index=True)
    os.rename(tmp_path / "in.tar.gz", tmp_path / "in.tar.zst")
    tarkit.process(str(tmp_path / "in.tar.zst"), outdir=tmp_path / "out", function=upper, index=True)
    assert sorted(path.name for path in (tmp_path / "out").glob("in*[!n]")) == ["in.tar.zst", "in.tar.zst.idx"]
    shard = open_indexed(str(tmp_path / "out/in.tar.zst"))
    assert shard is not None
    assert [sample["__key__"] for sample in shard.samples(0, len(shard))] == list(shard.keys())


def test_a_shard_that_was_done_and_cannot_be_indexed(tmp_path: Path, inputs: list[str]) -> None:
    outdir = tmp_path / "out"
    tarkit.process(inputs, outdir=outdir, function=fail_on_k5, work_id="x", errors="ignore")
    made = outdir / "in-0.tar"
    times = (made.stat().st_atime_ns, made.stat().st_mtime_ns)
    made.write_bytes(b"x" + made.read_bytes()[1:])
    os.utime(made, ns=times)
    with pytest.raises(TarkitError, match=r"1 shards failed .*; 2 are done"):
        tarkit.process(inputs, outdir=outdir, function=fail_on_k5, work_id="x", errors="ignore", index=True)
    with pytest.raises(MissingInputError):
        tarkit.store.entries.stat(index_url(str(made)))


def test_a_retry_of_the_failed_samples(tmp_path: Path, inputs: list[str]) -> None:
    """The shards that it changes get their new index, the others one if they have none."""
    with TarWriter(inputs[2], encoder=False) as sink:
        sink.write(SAMPLES[7])
    outdir = tmp_path / "out"
    tarkit.process(inputs, outdir=outdir, function=fail_on_k5, work_id="1", index=True)
    (outdir / "in-2.idx").unlink()
    before = (outdir / "in-0.idx").read_bytes()
    counts = tarkit.process((), outdir=outdir, retry_failed=str(outdir), function=upper, work_id="2", index=True)
    assert (counts.shards_done, counts.shards_before, counts.failed) == (2, 1, 0)
    assert (outdir / "in-0.idx").read_bytes() != before
    assert all(is_indexed(outdir / f"in-{number}.tar") for number in range(3))


@pytest.mark.parametrize("target", ["output", "outdir"])
def test_a_run_with_blanks_in_names_has_an_index(tmp_path: Path, inputs: list[str], target: str) -> None:
    with TarWriter(inputs[1], encoder=False) as sink:
        sink.write({"__key__": "a b", "cls": b"1"})
    tarkit.process(inputs[1], function=upper, index=True, **{target: str(tmp_path / "out.tar")})
    (made,) = tmp_path.glob("out.tar") if target == "output" else (tmp_path / "out.tar").glob("*.tar")
    assert is_indexed(made) and b" a%20b.cls" in made.with_suffix(".idx").read_bytes()
