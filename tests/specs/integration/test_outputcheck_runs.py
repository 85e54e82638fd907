"""Outputs and inputs of runs of commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tarkit
from tarkit.errors import UsageError
from tarkit.runs.process import process
from tarkit.specs.outputcheck import other_than


@pytest.fixture
def shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "in.tar"
    with tarkit.TarWriter(str(path), encoder=False) as writer:
        writer.write({"__key__": "a", "x": b"1"})
    os.link(path, "hard.tar")
    os.symlink(path, "soft.tar")
    return path


def test_tarproc_does_not_replace_an_input_that_is_a_link_to_its_output(shard: Path) -> None:
    os.mkdir("out")
    before = shard.read_bytes()
    for place in (os.link, os.symlink):
        place(shard, "out/in.tar")
        with pytest.raises(UsageError, match=r"in\.tar is an input, and the same file as the output out/in\.tar"):
            process("in.tar", outdir="out", command="true")
        os.unlink("out/in.tar")
    os.rename("hard.tar", "in.tar.foo")
    with pytest.raises(UsageError, match=r"in\.tar\.foo: \.foo is not written"):
        process(["in.tar", "in.tar.foo"], outdir="out", command="true")
    assert os.listdir("out") == []
    assert shard.read_bytes() == before
    assert process("in.tar", outdir="out", command="true").shards_done == 1


def test_an_outdir_that_is_a_url_with_one_slash(shard: Path) -> None:
    with pytest.raises(UsageError, match=r"^s3:/bucket/out is a local path, .*two slashes"):
        process("in.tar", outdir="s3:/bucket/out", command="true")
    assert not os.path.exists("s3:")


def test_what_is_not_a_file_may_be_input_and_output(shard: Path) -> None:
    os.mkfifo("fifo")
    names = ["fifo", "/dev/null", "pipe:cat", "gone", "in.tar", "s3://b/x"]
    assert list(other_than(["fifo", "/dev/null", "pipe:cat", "gone", "-"], names)) == names
    assert process("in.tar", output="/dev/null", command="true").out == 1
    with pytest.raises(UsageError, match="s3://b/x is an input, and an output too"):
        list(other_than(["s3://b/x"], names))


def test_a_command_names_its_file_as_it_likes(shard: Path) -> None:
    process("in.tar", output="pipe:cat > one.tar.gpg", command="true")
    with tarkit.TarWriter("pipe:cat > two.tar.age") as writer:
        writer.write({"__key__": "a", "txt": b"1"})
    assert len(list(tarkit.read_samples("one.tar.gpg"))) == len(list(tarkit.read_samples("in.tar")))
    assert len(list(tarkit.read_samples("two.tar.age"))) == 1
