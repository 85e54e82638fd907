"""A unit test that starts a process, sends a signal or connects to a server fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
DEEDS = {
    "a program": "subprocess.run(['true'], check=True)",
    "a fork": "os.fork() or os._exit(0)",
    "a spawned process": "multiprocessing.get_context('spawn').Process(target=print).start()",
    "a signal": "os.kill(os.getpid(), signal.SIGCHLD)",
    "a connection": "contextlib.suppress(OSError).__enter__(); socket.socket().connect_ex(('127.0.0.1', 1))",
}


@pytest.mark.parametrize("deed", DEEDS.values(), ids=DEEDS.keys())
def test_what_leaves_the_process_is_noticed(deed: str, tmp_path: Path) -> None:
    file = tmp_path / "unit" / "test_it.py"
    file.parent.mkdir()
    file.write_text(
        f"import contextlib, multiprocessing, os, signal, socket, subprocess\n\ndef test_it():\n    {deed}\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "conftest", "-c", os.devnull]
    path = os.pathsep.join([str(TESTS), str(TESTS / "support")])
    done = subprocess.run(
        [*command, "--rootdir", tmp_path, file],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "this test belongs to integration/" in done.stdout, done.stdout
