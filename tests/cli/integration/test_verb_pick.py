"""tarkit pick: samples by key, to files or a shard."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarkit import TarWriter, read_samples

Run = Callable[..., Any]


@pytest.fixture
def shards(tmp_path: Path) -> str:
    for number in range(2):
        with TarWriter(str(tmp_path / f"s-{number}.tar"), index=number == 0) as writer:
            for each in range(5):
                writer.write({"__key__": f"{number}{each}", "cls": each, "jpg": bytes(100)})
    return str(tmp_path / "s-{0..1}.tar")


def test_to_files(run: Run, shards: str, tmp_path: Path) -> None:
    result = run("tarkit", "pick", "12", "03", "--from", shards, "-O", tmp_path / "out")
    assert (result.code, result.stdout) == (0, b"")
    assert sorted(os.listdir(tmp_path / "out")) == ["03.cls", "03.jpg", "12.cls", "12.jpg"]
    assert (tmp_path / "out" / "03.cls").read_bytes() == b"3"
    words = f"shards without an index, of which the headers were read: 1, the first {tmp_path}/s-1.tar"
    assert result.stderr == f"tarkit pick: 2 samples; {words}\n"
    result = run("tarkit", "pick", "12", "--from", shards, "-O", tmp_path / "out")
    assert result.code == 2 and "--force" in result.stderr
    result = run("tarkit", "pick", "12", "--from", shards, "-O", tmp_path / "out", "--force", "--json", "-q")
    assert (result.code, json.loads(result.stdout)) == (0, {"samples": 1, "folder": str(tmp_path / "out")})
    assert len(os.listdir(tmp_path / "out")) == 2


def test_to_a_shard_by_a_list(run: Run, shards: str, tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text("14\n00\n")
    result = run("tarkit", "pick", f"@{tmp_path}/keys.txt", "01", "--from", shards, "-o", tmp_path / "o.tar")
    assert result.code == 0
    assert [sample["__key__"] for sample in read_samples(str(tmp_path / "o.tar"))] == ["00", "01", "14"]
    stdin = (tmp_path / "s-1.tar").read_bytes()
    result = run("tarkit", "pick", "11", "--from", "-", "-o", "-", stdin=stdin)
    assert result.code == 0 and "read whole: 1, the first -" in result.stderr
    (tmp_path / "p.tar").write_bytes(result.stdout)
    assert [sample["cls"] for sample in read_samples(str(tmp_path / "p.tar"))] == [b"1"]


def test_a_key_that_is_missing_publishes_nothing(run: Run, shards: str, tmp_path: Path) -> None:
    for output in (("-o", tmp_path / "o.tar"), ("-O", tmp_path / "out")):
        result = run("tarkit", "pick", "00", "77", "--from", shards, *output)
        assert (result.code, result.stderr) == (66, "tarkit: no shard has the key '77'\n")
    assert not (tmp_path / "o.tar").exists() and not (tmp_path / "out").exists()


def test_options_that_can_not_be(run: Run, shards: str, tmp_path: Path) -> None:
    for output in ((), ("-o", tmp_path / "o.tar", "-O", tmp_path / "out")):
        result = run("tarkit", "pick", "00", "--from", shards, *output)
        assert result.code == 2 and "(-o OUT) or to files in a folder (-O DIR)" in result.stderr
    result = run("tarkit", "pick", "00", "--from", shards, "-O", tmp_path / "out", "--maxcount", "3")
    assert result.code == 2 and "--maxcount goes with a shard" in result.stderr
    assert run("tarkit", "pick", "00", "-o", tmp_path / "o.tar").code == 2, "no shards"


def test_only_some_fields(run: Run, shards: str, tmp_path: Path) -> None:
    argv = ("pick", "00", "13", "--from", shards, "--fields", "cls", "--rename", "txt=cls")
    assert run("tarkit", *argv, "-O", tmp_path / "out").code == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["00.txt", "13.txt"]
