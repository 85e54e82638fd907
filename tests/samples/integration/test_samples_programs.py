"""Shards and indexes with other programs, and with Python in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import tarkit
from tarkit.runs.account import Sinks
from tarkit.runs.engine import ERROR_FIELD, without_reports
from tarkit.samples.content import read_content
from tarkit.samples.index import build_index
from tarkit.samples.read import read_samples
from tarkit.store.fieldfile import PIECE, FieldFile


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


@pytest.mark.parametrize("size", [0, PIECE, 3 * PIECE + 5])
def test_sources_are_read_whole_or_left_where_they_are(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarkit.samples.content.LARGE", 2 * PIECE)
    path = tmp_path / "source"
    path.write_bytes(os.urandom(size))
    for source in (path, path.as_uri(), f"pipe:cat {path}"):
        content = read_content(source)
        assert isinstance(content, FieldFile) == (size > 2 * PIECE)
        assert (content.read() if isinstance(content, FieldFile) else content) == path.read_bytes()


def test_a_writer_that_is_not_closed_at_the_end_of_a_program(tmp_path: Path) -> None:
    """Once, by the process that made it: a forked child, such as a worker of a DataLoader, has a
    copy.
    """
    code = """
import os, sys
from tarkit import ShardWriter
writer = ShardWriter(sys.argv[1])
writer.write({"__key__": "a", "x": b"1"})
if child := os.fork():
    os.waitpid(child, 0)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, f"{tmp_path}/x-%d.tar"], capture_output=True, text=True, check=True
    )
    assert done.stderr == (
        f"tarkit: {tmp_path}/x-0.tar: its writer was never closed, so 1 sample is not published; "
        "call close() or discard(), or write in a with block\n"
    )
    assert list(tmp_path.iterdir()) == []


def by_block_numbers(path: Path) -> bytes:
    """The index as wds2idx computes it from what GNU tar prints: content begins behind the block of
    its header.
    """
    command = ["tar", "--list", "--block-number", "--verbose", "--file", str(path)]
    output = subprocess.run(command, check=True, capture_output=True, timeout=60, env={**os.environ, "LC_ALL": "C"})
    samples: dict[str, list[str]] = {}
    for line in output.stdout.decode("ascii").splitlines():
        words = line.split()
        if words[2].startswith("-"):
            size, name = int(words[4]), words[7]
            key, _, field = name.partition(".")
            samples.setdefault(key, []).append(f"{field} {512 * int(words[1].rstrip(':')) + 512} {size} {name}")
    return "".join([f"v1.2 {len(samples)}\n", *(f"{' '.join(each)}\n" for each in samples.values())]).encode()


@pytest.mark.skipif(shutil.which("tar") is None, reason="NO GNU TAR, OFFSETS ARE NOT COMPARED WITH ITS BLOCK NUMBERS")
@pytest.mark.parametrize("format", ["pax", "gnu"])
def test_offsets_are_those_of_gnu_tar_s_block_numbers(tmp_path: Path, format: str) -> None:
    long = "k" * (120 if format == "pax" else 90)
    with tarkit.TarWriter(str(tmp_path / "a.tar"), format=format) as sink:
        for number in range(50):
            sink.write({"__key__": f"{number}{long}", "seg.png": bytes(511 + number), "cls": number, "empty": b""})
    assert build_index(str(tmp_path / "a.tar")).encode() == by_block_numbers(tmp_path / "a.tar")
