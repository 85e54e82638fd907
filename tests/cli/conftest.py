"""Runs the installed programs: in this process through their entry points, or as processes of their
own.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import warmprogram
from installed import program_path
from tarproc_support import Bench, numbered


class Result(NamedTuple):
    """What a program did. stdout is bytes, since it may be a tar."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stdout.decode().splitlines()


@contextmanager
def standard_input(content: bytes | None) -> Iterator[None]:
    """Make descriptor 0 a file with this content."""
    kept = os.dup(0)
    with tempfile.TemporaryFile() as file:
        file.write(content or b"")
        file.seek(0)
        os.dup2(file.fileno(), 0)
        try:
            yield
        finally:
            os.dup2(kept, 0)
            os.close(kept)


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Result]:
    """``run(program, *argv, stdin=None)``: in this process, through the installed entry point."""

    def run(program: str, *argv: str | Path, stdin: bytes | None = None) -> Result:
        (entry,) = importlib.metadata.entry_points(group="console_scripts", name=program)
        main = entry.load()
        capfdbinary.readouterr()
        with standard_input(stdin):
            code = main([str(argument) for argument in argv])
        stdout, stderr = capfdbinary.readouterr()
        return Result(code, stdout, stderr.decode())

    return run


@pytest.fixture
def spawn() -> Callable[..., Result]:
    """``spawn(program, *argv, stdin=None, **options of subprocess.run)``: as a process
    of its own.
    """

    def spawn(program: str, *argv: str | Path, stdin: bytes | None = None, **options: Any) -> Result:
        environment = options.get("env", os.environ)
        # What is open here, but for subprocess.PIPE and the like.
        out = options.get("stdout")
        number = out.fileno() if hasattr(out, "fileno") else out
        can_run = options.keys() <= {"cwd", "env", "stdout"} and (number is None or number >= 0)
        if can_run and warmprogram.can_run(environment):
            words = [program, *map(str, argv)]
            done = warmprogram.run(words, options.get("cwd", os.getcwd()), environment, stdin or b"", stdout=number)
            return Result(done.returncode, done.stdout, done.stderr.decode())
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        if "stdin_file" in options:
            options["stdin"] = options.pop("stdin_file")
        else:
            options["input"] = stdin or b""
        command = [program_path(program), *(str(argument) for argument in argv)]
        done = subprocess.run(command, check=False, timeout=300, **options)
        return Result(done.returncode, done.stdout or b"", (done.stderr or b"").decode())

    return spawn


@pytest.fixture
def shell(tmp_path: Path) -> Callable[[str], Result]:
    """``shell(text)``: bash, in the test's folder, with the installed programs on the path."""
    path = os.pathsep.join((os.path.dirname(os.path.abspath(sys.executable)), os.environ.get("PATH", os.defpath)))

    def shell(text: str) -> Result:
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=300,
        )
        return Result(done.returncode, done.stdout, done.stderr.decode())

    return shell


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    """With the shard ``in.tar``: the samples of the test file's SAMPLES, else three."""
    bench = Bench(tmp_path)
    bench.shard(getattr(request.module, "SAMPLES", numbered(3)))
    return bench


@pytest.fixture
def open_bench() -> Iterator[Bench]:
    """Empty, and outside of pytest's folders, which are closed to other users."""
    with tempfile.TemporaryDirectory(prefix="open-") as folder:
        bench = Bench(Path(folder))
        for path in (Path(folder), bench.path, bench.tmp):
            path.chmod(0o777)
        yield bench
