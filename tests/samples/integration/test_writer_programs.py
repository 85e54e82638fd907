"""What TarWriter writes, as other programs and other processes see it."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tarbuild import samples_of

from tarkit.samples.read import read_samples
from tarkit.samples.sample import Sample
from tarkit.writer import TarWriter


@pytest.fixture(autouse=True)
def no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)


def written(samples: list[Sample], **kw: Any) -> bytes:
    out = io.BytesIO()
    with TarWriter(out, **kw) as writer:
        for sample in samples:
            writer.write(sample)
    return out.getvalue()


SHOWN: list[Sample] = [
    {"__key__": "a", "cls": b"1", "jpg": bytes(range(256)) * 3},
    {"__key__": "dir/été", "cls": b"", "seg.png": b"x" * 512},
    {"__key__": "d" * 90 + "/" + "k" * 90, "txt": b"prefix\n"},
    {"__key__": "n" * 250, "txt": b"extended\n"},
    {"__key__": "new\nline", "txt": b"n"},
]


@pytest.mark.parametrize("program", ["tar", "bsdtar"])
def test_other_programs_list_and_extract(program: str, tmp_path: Path) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    shard, out = tmp_path / "x.tar", tmp_path / "out"
    out.mkdir()
    shown = SHOWN[:3] + SHOWN[4:]
    shard.write_bytes(written([*shown, {"__key__": "d/" * 60 + "k", "txt": b"extended\n"}]))
    listed = subprocess.run(
        [program, "-tf", shard], check=True, capture_output=True, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    assert len(listed.stdout.splitlines()) == 7
    assert listed.stderr == b""
    subprocess.run([program, "-xf", shard, "-C", out], check=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    for sample in shown:
        for field in set(sample) - {"__key__"}:
            assert (out / f"{sample['__key__']}.{field}").read_bytes() == sample[field]
    assert (out / ("d/" * 60 + "k.txt")).read_bytes() == b"extended\n"


PROGRAM = """
import os, sys, time
os.umask(int(sys.argv[2], 8))
from tarkit.writer import TarWriter
for ending in (".tar", ".tar.gz", ".tar.zst", ".tar.bz2", ".tar.xz", ".tar.lz4"):
    with TarWriter(sys.argv[1] + ending) as writer:
        writer.write({"__key__": "a", "json": {"b": [1, 2], "a": None}, "jpg": b"1"})
        writer.write({"__key__": "n" * 200, "txt": "long"})
"""


def test_the_same_bytes_wherever_and_whenever(tmp_path: Path) -> None:
    for number, (zone, umask, seed) in enumerate([("UTC", "022", "0"), ("Asia/Kathmandu", "077", "1")]):
        env = {**os.environ, "TZ": zone, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path / str(number)), umask], check=True, env=env)
    for ending in (".tar", ".tar.gz", ".tar.zst", ".tar.bz2", ".tar.xz", ".tar.lz4"):
        paths = [tmp_path / f"{number}{ending}" for number in range(2)]
        assert len(list(read_samples(str(paths[0])))) == 2
        assert paths[0].read_bytes() == paths[1].read_bytes(), ending
    assert (tmp_path / "0.tar.gz").read_bytes()[4:8] == bytes(4), "gzip's header has a time"


@pytest.fixture
def writer() -> Iterator[tuple[TarWriter, io.BytesIO]]:
    out = io.BytesIO()
    with TarWriter(out, encoder=False) as opened:
        opened.write({"__key__": "before", "x": b"1"})
        yield opened, out
        opened.write({"__key__": "after", "x": b"1"})
    assert [sample["__key__"] for sample in samples_of(out.getvalue())] == ["before", "after"]
    assert opened.samples == 2
    assert opened.bytes_written == 2
