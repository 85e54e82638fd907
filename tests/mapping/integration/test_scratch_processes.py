"""Scratch folders of processes that live, died, or left what cannot be removed easily."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarkit.mapping.output import Output, Printed
from tarkit.mapping.removal import remove_folder
from tarkit.mapping.scratch import PREFIX, Rules, collect, extract, sweep
from tarkit.mapping.shellpool import ShellPool
from tarkit.samples.sample import Sample
from tarkit.store.fieldfile import PIECE, FieldFile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "s"
    extract({"__key__": "d/k", "__url__": "x.tar", "cls": b"3", "seg.png": b""}, str(place), "sample")
    return place


def gathered(place: Path, /, **rules: object) -> tuple[list[Sample], list[str]]:
    return collect(str(place), {"__key__": "d/k"}, Rules(**rules))  # type: ignore[arg-type]


def test_what_is_kept_of_a_command_is_in_the_scratch_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which may be on another disk than $TMPDIR."""
    monkeypatch.setattr(tempfile, "tempdir", "/no such folder")
    (tmp_path / "run").mkdir()
    for number in range(5):
        (folder / f"sample.{number}").write_bytes(b"x" * 900)
    os.link(folder / "sample.0", tmp_path / "other")
    ((sample,), _) = gathered(folder, large=899, folder=str(tmp_path / "run"))
    assert isinstance(sample["0"], FieldFile) and isinstance(sample["4"], FieldFile)
    ((sample,), _) = gathered(folder, large=1000, folder=str(tmp_path / "run"))
    assert isinstance(sample["0"], bytes) and isinstance(sample["4"], FieldFile)
    (tmp_path / "run" / "out").write_bytes(bytes(PIECE + 1))
    log = Printed(Output.of_file(str(tmp_path / "run" / "out")), Output(b"err")).kept()
    assert isinstance(log, FieldFile) and log.read() == bytes(PIECE + 1) + b"err"
    with ShellPool("true", str(tmp_path / "run"), rules=Rules()) as pool:
        assert pool._rules is not None and pool._rules.folder == str(tmp_path / "run")


def test_very_many_folders_in_each_other_end_no_run(folder: Path) -> None:
    here = os.open(folder, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    remove_folder(str(folder))
    assert folder.exists()
    subprocess.run(["rm", "-r", folder], check=True)


KILLED = """
import os, signal, sys
from tarkit.mapping.scratch import Scratch
Scratch(sys.argv[1])
print("ready", flush=True)
os.kill(os.getpid(), signal.SIGKILL) if sys.argv[2] == "die" else sys.stdin.read()
"""


@pytest.fixture
def living(tmp_path: Path) -> Iterator[str]:
    """The folder of a run that lives in another process."""
    run = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path), "live"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert run.stdout is not None
    assert run.stdin is not None
    assert run.stdout.readline() == b"ready\n"
    (found,) = tmp_path.iterdir()
    yield found.name
    run.stdin.close()
    run.stdout.close()
    run.wait()


def test_sweep_removes_dead_runs_and_no_others(living: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), "die"], stdout=subprocess.DEVNULL)
    assert done.returncode == -9
    dead = {path.name for path in tmp_path.iterdir()} - {living}
    # The dying run itself swept before, and left the living one alone.
    assert len(dead) == 1
    stay = {living, f"{PREFIX}young", f"{PREFIX}full", f"{PREFIX}link", f"{PREFIX}file", "other", f"{PREFIX}theirs"}
    for name in ("young", "full", "old", "theirs"):
        (tmp_path / f"{PREFIX}{name}").mkdir()
    (tmp_path / f"{PREFIX}full" / "precious").write_bytes(b"1")
    (tmp_path / f"{PREFIX}file").write_bytes(b"")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "lock").write_bytes(b"")
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "other")
    (tmp_path / f"{PREFIX}theirs" / "lock").write_bytes(b"")
    if os.getuid() == 0:
        os.chown(tmp_path / f"{PREFIX}theirs", 12345, 12345)
    else:
        stay.remove(f"{PREFIX}theirs")
    hour_ago = time.time() - 3600
    for name in ("old", "full"):
        os.utime(tmp_path / f"{PREFIX}{name}", (hour_ago, hour_ago))
    sweep(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == stay
    sweep(str(tmp_path / "none"))
