"""The same input gives the same bytes, whoever runs it, where, when, and with how many slots."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from tarproc_support import TARPROC, Bench, numbered

SAMPLES = numbered(12, 2000)
COMMAND = "sleep 0.00$((RANDOM % 10)); rev sample.cls > sample.rev; date > /dev/null; [ $(cat sample.cls) != 7 ]"


def _bytes(bench: Bench, *options: str, name: str = "out.tar", **more: object) -> tuple[bytes, bytes]:
    done = bench.run("-c", COMMAND, "in.tar", "-o", name, *options, **more)  # type: ignore[arg-type]
    assert done.returncode == 3, done.stderr
    return (bench.path / name).read_bytes(), (bench.path / f"{name}.failed.tar").read_bytes()


def test_slots(bench: Bench) -> None:
    assert len({_bytes(bench, "-p", slots) for slots in ("0", "1", "16")}) == 1


def test_small_window(bench: Bench) -> None:
    assert len({_bytes(bench, "-p", "8", "--mem", size) for size in ("1", "5k")}) == 1


def test_surroundings(bench: Bench) -> None:
    other = bench.path.parent / "other tmp\u00e4"
    other.mkdir()
    results = {
        _bytes(bench),
        _bytes(bench, env={"TZ": "Asia/Kathmandu", "LC_ALL": "C", "TMPDIR": str(other)}, umask=0o000),
        _bytes(bench, "-w", "here", env={"TZ": "America/New_York", "LC_ALL": "C.UTF-8"}, umask=0o077),
        _bytes(bench, name="another.tar"),
    }
    assert len(results) == 1
    assert os.listdir(other) == [] and not (bench.path / "here").exists()


def test_another_user(open_bench: Bench) -> None:
    bench = open_bench
    bench.shard(SAMPLES)
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv to become someone else")
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*become, TARPROC, "--version"], capture_output=True).returncode:
        pytest.skip("the package is where another user cannot read it")
    expected = _bytes(bench)
    for name in ("out.tar", "out.tar.failed.tar"):
        (bench.path / name).unlink()
    done = subprocess.run(
        [*become, TARPROC, "-c", COMMAND, "in.tar", "-o", "out.tar"], cwd=bench.path, env=bench.env, capture_output=True
    )
    assert done.returncode == 3, done.stderr
    assert (bench.path / "out.tar").stat().st_uid == 65534
    assert ((bench.path / "out.tar").read_bytes(), (bench.path / "out.tar.failed.tar").read_bytes()) == expected


def test_time_stamp(bench: Bench) -> None:
    first = _bytes(bench)
    assert _bytes(bench, "--mtime", "0") == first
    assert first != _bytes(bench, "--mtime", "7") == _bytes(bench, env={"SOURCE_DATE_EPOCH": "7"})
    done = bench.run("-c", "true", "in.tar", "-o", "out.tar", env={"SOURCE_DATE_EPOCH": "now"})
    assert done.returncode == 2


def test_output_onto_the_input(bench: Bench) -> None:
    """The input would be gone with its fields that the command drops; also where the
    report is it.
    """
    before = (bench.path / "in.tar").read_bytes()
    for words in (["-o", "in.tar"], ["-o", "out.tar", "--report", "./in.tar"]):
        done = bench.run("-c", "mv sample.dat sample.bin", "in.tar", *words)
        assert done.returncode == 2 and b"in.tar is an input, and " in done.stderr
        assert (bench.path / "in.tar").read_bytes() == before
