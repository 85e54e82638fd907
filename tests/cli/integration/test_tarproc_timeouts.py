"""Commands that hang, and what they leave running."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tarproc_support import Bench, gone, numbered
from waiting import wait_for

from tarkit.mapping.pythonpool import PythonPool
from tarkit.mapping.shellpool import ShellPool

Run = Callable[..., Any]

# Seconds: what does not hang must have ended by then, and what does must have printed, on a busy
# machine as well.
TIMEOUT = "2.5"
# Less than the commands would hang, and far more than is waited for: the time-out, and five seconds
# of grace.
LONG = 120


@pytest.fixture
def marker(tmp_path: Path) -> str:
    """Seconds to sleep that no other process has on its command line."""
    return f"9{os.getpid():07d}{abs(hash(tmp_path)) % 1000:03d}"


@pytest.fixture
def killed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between TERM and KILL is half a second, in this process."""
    for pool in (ShellPool, PythonPool):
        monkeypatch.setitem(pool.__init__.__kwdefaults__, "grace", 0.5)


HANGING = {
    "sleep": "sleep {marker}",
    "ignores TERM": "trap '' TERM; echo hi; while :; do sleep {marker}; done",
    "grandchild with the output": "(trap '' TERM HUP INT; sleep {marker}) & echo started; wait",
    "grandchild in the background": "sh -c \"trap '' TERM; sleep {marker}\" & disown; sleep {marker}",
    "much output": "head -c 10000000 /dev/zero | tr '\\0' x >&2; sleep {marker}",
    "endless output": "trap '' TERM; while echo x{marker}; do sleep 0.01; done",
    "pipeline": "sleep {marker} | cat | cat",
    "stopped": "kill -STOP $BASHPID; sleep {marker}",
}


def test_timeout(bench: Bench, marker: str, run: Run, killed_soon: None) -> None:
    """All in one run, each beside the others: they wait, they do not work."""
    bench.shard(numbered(len(HANGING) + 2))
    cases = " ".join(f"{number}) {each.format(marker=marker)};;" for number, each in enumerate(HANGING.values()))
    started = time.monotonic()
    command = f"case $(cat sample.cls) in {cases} esac"
    place = bench.path
    done = run("tarproc", "-c", command, place / "in.tar", "-o", place / "out.tar", "--timeout", TIMEOUT, "-p", "12")
    assert time.monotonic() - started < LONG
    assert done.code == 3
    assert gone(marker)
    first = len(HANGING)
    assert set(bench.members()) == {f"k{number}.{field}" for number in (first, first + 1) for field in ("cls", "dat")}
    failed = bench.members("out.tar.failed.tar")
    for number, name in enumerate(HANGING):
        assert failed[f"k{number}.__error__.txt"].startswith(b"timed out after 2.5 s"), name


def test_what_a_command_leaves_running_fails_its_sample_and_does_not_survive(bench: Bench, marker: str) -> None:
    started = time.monotonic()
    command = f"case $(cat __key__) in *1) sleep {marker} & nohup sleep {marker} &\nesac; echo started"
    done = bench.run("-c", command, "in.tar", "-o", "out.tar")
    assert time.monotonic() - started < LONG
    assert done.returncode == 3 and done.stdout == b"started\n" * 3
    assert done.stderr.count(b"the command ended and left sleep (process ") == 1
    assert b"'k1'" in done.stderr or b"k1: " in done.stderr
    assert {name.partition(".")[0] for name in bench.members()} == {"k0", "k2"}
    assert gone(marker)


def test_signal_during_a_hanging_command(bench: Bench, marker: str) -> None:
    process = bench.start("-c", f"trap '' TERM INT; touch ../../../run/on; sleep {marker}", "in.tar", "-o", "out.tar")
    wait_for((bench.path / "on").exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONG) == 128 + signal.SIGTERM
    assert gone(marker) and bench.leftovers() == []
    assert not (bench.path / "out.tar").exists()


def test_python_mapper_that_hangs(bench: Bench, marker: str, run: Run, killed_soon: None) -> None:
    (bench.path / "m.py").write_text(
        "import signal, subprocess, time\n"
        "def f(sample):\n"
        "    if sample['cls'] == b'1':\n"
        "        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"        subprocess.Popen(['sleep', '{marker}'])\n"
        "        print('hanging', flush=True)\n"
        "        time.sleep(1000)\n"
        "    return sample\n"
    )
    started = time.monotonic()
    place = bench.path
    done = run("tarproc", "--map", f"{place}/m.py:f", place / "in.tar", "-o", place / "out.tar", "--timeout", TIMEOUT)
    assert time.monotonic() - started < LONG
    assert done.code == 3
    assert gone(marker)
    error = bench.members("out.tar.failed.tar")["k1.__error__.txt"]
    assert error.startswith(b"timed out after 2.5 s") and error.endswith(b"hanging\n")
