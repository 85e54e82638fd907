"""tarkit export: every form, and back to the same samples by tarkit create."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from installed import program_path

from tarkit import TarWriter, read_samples

Run = Callable[..., Any]


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "in.tar"
    with TarWriter(str(path)) as writer:
        for number in range(30):
            writer.write({"__key__": f"d{number % 3}/{number:03d}", "txt": f"{number}", "x.bin": os.urandom(number)})
    return path


def samples(path: Path) -> dict[str, dict[str, bytes]]:
    return {s["__key__"]: {k: v for k, v in s.items() if k[:2] != "__"} for s in read_samples(str(path))}


def test_create_gives_the_same_samples_back(
    run: Run, shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run("tarkit", "export", shard, "--to", "folder", "-o", tmp_path / "out")
    assert (result.code, result.stdout, result.stderr) == (0, b"", "tarkit export: 30 samples\n")
    monkeypatch.chdir(tmp_path / "out")
    assert run("tarkit", "create", ".", "-o", tmp_path / "back.tar").code == 0
    assert samples(tmp_path / "back.tar") == samples(shard)


def test_tables_and_standard_streams(run: Run, shard: Path, tmp_path: Path) -> None:
    result = run("tarkit", "export", "--to", "jsonl", "-o", "-", "-q", stdin=shard.read_bytes())
    assert result.code == 0 and [json.loads(line)["txt"] for line in result.lines] == [str(n) for n in range(30)]
    result = run(
        "tarkit", "export", shard, "--to", "csv", "-o", tmp_path / "t.csv", "--files", tmp_path / "f", "--json"
    )
    assert json.loads(result.stdout) == {"samples": 30, "output": str(tmp_path / "t.csv")}
    assert (tmp_path / "t.csv").read_text().splitlines()[:2] == ["__key__,txt,x.bin", "d0/000,0,f/d0/000.x.bin"]


def test_a_key_that_leads_out_is_refused(run: Run, tmp_path: Path) -> None:
    with TarWriter(str(tmp_path / "in.tar")) as writer:
        writer.write({"__key__": "../evil", "txt": "x"})
    result = run("tarkit", "export", tmp_path / "in.tar", "--to", "folder", "-o", tmp_path / "out")
    assert result.code == 1 and "key '../evil'" in result.stderr
    assert os.listdir(tmp_path) == ["in.tar"]


def test_damage_leaves_nothing(run: Run, shard: Path, tmp_path: Path) -> None:
    shard.write_bytes(shard.read_bytes()[:20_000])
    for to in ("folder", "csv"):
        assert run("tarkit", "export", shard, "--to", to, "-o", tmp_path / "out").code == 65
    assert os.listdir(tmp_path) == ["in.tar"]
    assert run("tarkit", "export", shard, "--to", "csv", "-o", tmp_path / "out", "--on-damage", "skip").code == 3


def test_killed_and_again(shard: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    argv = [program_path("tarkit"), "export", tmp_path / "pipe", "--to", "folder", "-o", tmp_path / "out"]
    process = subprocess.Popen(argv)
    with open(tmp_path / "pipe", "wb", buffering=0) as pipe:
        pipe.write(shard.read_bytes()[:20_000])
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".out.tarkit-*/*/*")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "out").exists() and len(list(tmp_path.glob(".out.tarkit-*"))) == 1
    assert subprocess.run([*argv[:2], shard, *argv[3:]], check=False, stderr=subprocess.DEVNULL).returncode == 0
    assert sorted(os.listdir(tmp_path)) == ["in.tar", "out", "pipe"]
    assert len([path for path in (tmp_path / "out").rglob("*") if path.is_file()]) == 60


def test_columns_are_the_named_fields(run: Run, tmp_path: Path) -> None:
    with TarWriter(str(tmp_path / "in.tar")) as writer:
        writer.write({"__key__": "1", "jpg": b"x", "cls": 1})
        writer.write({"__key__": "2", "png": b"y", "json": {}})
    argv = ("export", tmp_path / "in.tar", "--to", "csv", "-o", "-")
    result = run("tarkit", *argv)
    assert result.code == 1 and "key '2': column json is not one of __key__, cls, jpg.base64; name all" in result.stderr
    result = run("tarkit", *argv, "--fields", "jpg|png cls", "--rename", "bin=png")
    assert result.lines == ["__key__,jpg.base64,bin.base64,cls", "1,eA==,,1", "2,,eQ==,"]
    assert "samples without a field of --fields: cls 1" in result.stderr
