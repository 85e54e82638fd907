"""Runs tarproc in a scratch area of its own that must be empty afterwards."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import warmprogram

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


class Bench:
    """A folder to run in, a TMPDIR that every run must leave empty."""

    def __init__(self, path: Path) -> None:
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
        environment = {**self.env, **(env or {})}
        if not options and warmprogram.can_run(environment):
            done = warmprogram.run(["tarproc", *arguments], self.path, environment, input, timeout)
        else:
            if input is None:
                options.setdefault("stdin", subprocess.DEVNULL)
            done = subprocess.run(
                [TARPROC, *arguments],
                capture_output=True,
                input=input,
                cwd=self.path,
                env=environment,
                timeout=timeout,
                **options,
            )
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
        # For a moment, Python itself has a file there to see whether it can write: a program may be
        # killed just then.
        ours = [name for name in os.listdir(self.tmp) if not re.fullmatch("[a-z0-9_]{8}", name)]
        return [*ours, *(name for name in os.listdir(self.path) if name.startswith("."))]

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
