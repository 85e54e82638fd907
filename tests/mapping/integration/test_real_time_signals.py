"""A real-time signal has a number and no name in Python; it ends one sample or stream, not the
run."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tarkit.errors import StreamError, signal_name
from tarkit.mapping.parallel import ordered_map
from tarkit.mapping.pythonpool import PythonPool
from tarkit.mapping.shellpool import ShellPool
from tarkit.store.read import open_read

NUMBER = 40
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="this system has no real-time signals")


def test_names() -> None:
    assert signal_name(signal.SIGKILL) == "SIGKILL"
    assert signal_name(NUMBER) == f"SIG{NUMBER}"


def test_it_ends_the_shell(tmp_path: Path) -> None:
    batches = [[{"__key__": "a", "x": b""}], [{"__key__": "b", "x": b""}]]
    with ShellPool(f'test "$(cat __key__)" = b || kill -{NUMBER} $$', str(tmp_path)) as pool:
        failures = [outcome.failure for _, outcome in ordered_map(batches, pool, window=1 << 20)]
    assert failures[0] is not None
    assert failures[0].message == f"the shell that ran the command was killed by SIG{NUMBER}"
    assert failures[1] is None


def test_it_ends_a_python_process(tmp_path: Path) -> None:
    mapper = tmp_path / "mapper.py"
    mapper.write_text(
        "import os, time\n"
        "def end(sample):\n"
        f"    os.kill(os.getpid(), {NUMBER}) if sample['__key__'] == 'a' else None\n"
        "    return sample\n"
    )
    batches = [[{"__key__": "a", "x": b""}], [{"__key__": "b", "x": b""}]]
    with PythonPool(f"{mapper}:end", str(tmp_path)) as pool:
        failures = [outcome.failure for _, outcome in ordered_map(batches, pool, window=1 << 20)]
    assert failures[0] is not None
    assert failures[0].message == f"the mapper's process was killed by SIG{NUMBER}"
    assert failures[1] is None


def test_it_ends_a_command_behind_a_pipe() -> None:
    with (
        open_read(f"pipe:kill -{NUMBER} $$", compression=None) as stream,
        pytest.raises(StreamError, match=f"signal SIG{NUMBER}"),
    ):
        stream.read(1)
