"""Runs tarproc in a scratch area of its own that must be empty afterwards."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from tarkit.cli.tarproc import main

TARPROC = shutil.which("tarproc", path=os.path.dirname(sys.executable)) or "tarproc"

Fields = Mapping[str, bytes]


def tar_bytes(samples: Iterable[tuple[str, Fields]], *, end: bool = True) -> bytes:
    """A shard, written by Python's tarfile."""
    buffer = io.BytesIO()
    archive = tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT)
    for key, fields in samples:
        for field, content in fields.items():
            info = tarfile.TarInfo(f"{key}.{field}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    if end:
        archive.close()
    return buffer.getvalue()


def numbered(count: int, size: int = 3) -> list[tuple[str, Fields]]:
    """Samples k0, k1, ... with the fields cls (the number) and dat (``size`` bytes)."""
    return [(f"k{number}", {"cls": b"%d" % number, "dat": bytes([number % 251]) * size}) for number in range(count)]


def contents(path: Path | bytes) -> dict[str, bytes]:
    """Names and contents of a tar's members, read by Python's tarfile."""
    file = io.BytesIO(path) if isinstance(path, bytes) else None
    with tarfile.open(None if file else path, fileobj=file) as archive:  # type: ignore[arg-type]
        members = archive.getmembers()
        found = {member.name: archive.extractfile(member).read() for member in members}  # type: ignore[union-attr]
    assert len(found) == len(members), "a member's name comes twice"
    return found


def running(marker: str) -> list[str]:
    """Command lines of live processes in which a text occurs."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            line = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            # Bytes: the kernel cuts a program's name to 15 of them, also within a letter.
            state = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if marker in line and state != b"Z":
            found.append(line)
    return found


def gone(marker: str, seconds: float = 60.0) -> bool:
    """Whether no process with the marker is left, soon."""
    end = time.monotonic() + seconds
    while running(marker):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@contextlib.contextmanager
def _descriptors(*files: io.BufferedRandom) -> Iterator[None]:
    """Make the standard streams these files."""
    kept = [os.dup(number) for number in range(len(files))]
    for number, file in enumerate(files):
        os.dup2(file.fileno(), number)
    try:
        with (
            open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1) as stderr,
            mock.patch.object(sys, "stderr", stderr),
        ):
            yield
    finally:
        for number, former in enumerate(kept):
            os.dup2(former, number)
            os.close(former)


@contextlib.contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    def end(*_: object) -> None:
        raise TimeoutError(f"tarproc did not end within {seconds:g} s")

    former = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def run_inside(
    arguments: tuple[str, ...], *, cwd: Path, env: Mapping[str, str], input: bytes = b"", timeout: float
) -> subprocess.CompletedProcess[bytes]:
    """What ``subprocess.run([TARPROC, ...])`` would give, by the program's entry point in this process.

    It is ten times as quick, for all tests in which the process is not the point.
    """
    place = os.getcwd()
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(input)
        files[0].seek(0)
        os.chdir(cwd)
        stack.callback(os.chdir, place)
        stack.enter_context(mock.patch.dict(os.environ, env, clear=True))
        # tempfile remembers TMPDIR.
        stack.enter_context(mock.patch.object(tempfile, "tempdir", None))
        with _descriptors(*files), _ended_after(timeout):
            code = main(list(arguments))
        for file in files:
            file.seek(0)
        return subprocess.CompletedProcess([TARPROC, *arguments], code, files[1].read(), files[2].read())


class Bench:
    """A folder to run in, a TMPDIR that every run must leave empty.

    inside: run() takes this process, not one of its own, but where it is given options of ``subprocess.run``.
    """

    def __init__(self, path: Path, *, inside: bool = False) -> None:
        # A process of its own each time: an error keeps open files until the collector comes, which pytest reports.
        self._inside = False
        self.path = path / "run"
        self.tmp = path / "tmp"
        self.path.mkdir()
        self.tmp.mkdir()
        self.env = {**os.environ, "TMPDIR": str(self.tmp)}
        self.env.pop("SOURCE_DATE_EPOCH", None)

    def shard(self, samples: Iterable[tuple[str, Fields]], name: str = "in.tar") -> str:
        (self.path / name).write_bytes(tar_bytes(samples))
        return name

    def run(
        self,
        *arguments: str,
        input: bytes | None = None,
        timeout: float = 300,
        tidy: bool = True,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.CompletedProcess[bytes]:
        place: dict[str, Any] = {"cwd": self.path, "env": {**self.env, **(env or {})}, "timeout": timeout}
        if self._inside and not options:
            done = run_inside(arguments, input=input or b"", **place)
        else:
            if input is None:
                options.setdefault("stdin", subprocess.DEVNULL)
            done = subprocess.run([TARPROC, *arguments], capture_output=True, input=input, **place, **options)
        if tidy:
            # A mapper's own is shown there.
            assert b"Traceback" not in done.stderr or "--map" in arguments, done.stderr
            assert self.leftovers() == []
        return done

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        for name in ("stdin", "stdout", "stderr"):
            options.setdefault(name, subprocess.DEVNULL)
        return subprocess.Popen([TARPROC, *arguments], cwd=self.path, env=self.env, **options)

    def leftovers(self) -> list[str]:
        """What should not be there: in TMPDIR, and temporary files of the outputs."""
        return [*os.listdir(self.tmp), *(name for name in os.listdir(self.path) if name.startswith("."))]

    def members(self, name: str = "out.tar") -> dict[str, bytes]:
        return contents(self.path / name)

    def report(self, name: str = "report.json") -> dict[str, Any]:
        """The report, whose counts must add up."""
        document: dict[str, Any] = json.loads((self.path / name).read_bytes())
        counts = document["samples"]
        assert counts["in"] + counts["added"] == counts["out"] + counts["filtered"] + counts["failed"]
        assert sum(document["failures"].values()) == counts["failed"]
        return document


def one_line(stderr: bytes) -> str:
    """What a program said, which must be a single line."""
    lines = stderr.decode("utf-8").splitlines()
    assert len(lines) == 1, lines
    return lines[0]
