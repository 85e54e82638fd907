"""A shuffle stays within --mem, with large samples and with many small ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from exchangeruns import keys_of, shards_of

from tarkit.exchange.runfile import ROW_BYTES
from tarkit.samples.tarwriter import TarWriter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from Linux' /proc")

CONSTANT = 48 << 20
"""Bytes for one process: Python, tarkit's modules, and buffers of reads and writes."""
# The watcher samples the memory that the processes of the tree have; shared pages count once.
PROGRAM = """
import glob, importlib, json, os, sys, threading, time

def tree(process):
    found = [process]
    for path in glob.glob(f"/proc/{process}/task/*/children"):
        try:
            for child in open(path).read().split():
                found += tree(child)
        except OSError:
            pass
    return found

def memory():
    total = 0
    for process in tree(str(os.getpid())):
        try:
            lines = open(f"/proc/{process}/smaps_rollup").read().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
        except (OSError, StopIteration):
            pass
    return total

def watch():
    while True:
        peak[0] = max(peak[0], memory())
        time.sleep(0.01)

main = importlib.import_module("tarkit.cli.tarkit").main
peak = [0]
threading.Thread(target=watch, daemon=True).start()
code = main(sys.argv[1:])
json.dump([code, peak[0]], open("peak", "w"))
"""


def write_shards(folder: Path, shards: int, count: int, content: bytes) -> Iterable[str]:
    for shard in range(shards):
        path = folder / f"in-{shard}.tar"
        with TarWriter(str(path)) as writer:
            for number in range(count):
                writer.write({"__key__": f"{shard}-{number:06d}", "bin": content})
        yield str(path)


@pytest.mark.parametrize(
    ("shards", "count", "size", "mem", "parallel"),
    [(1, 12_000, 0, 6, 1), (2, 7_000, 400, 8, 2), (1, 1_500, 60_000, 16, 1), (3, 500, 60_000, 16, 2)],
)
def test_peak_of_all_processes(tmp_path: Path, shards: int, count: int, size: int, mem: int, parallel: int) -> None:
    urls = [*write_shards(tmp_path, shards, count, bytes(size))]
    words = ["shuffle", *urls, "-O", "out", "--shards", "4", "--seed", "1", "--mem", f"{mem}M", "-p", str(parallel)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    code, peak = json.loads((tmp_path / "peak").read_text())
    assert code == 0, done.stderr
    limit = 1.2 * (mem << 20) + CONSTANT + (parallel - 1) * (CONSTANT // 3)
    assert peak <= limit, f"{peak / 1e6:.0f} MB of {limit / 1e6:.0f}"
    written = sum(path.stat().st_size for path in shards_of(tmp_path / "out"))
    assert written + ROW_BYTES * count * shards > 1.1 * (mem << 20), "else nothing is tested"
    assert len({*keys_of(tmp_path / "out")}) == shards * count
