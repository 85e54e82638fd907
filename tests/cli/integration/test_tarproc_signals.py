"""Runs that are interrupted, terminated or killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tarproc_support import Bench, contents, gone, numbered
from waiting import wait_for

SAMPLES = numbered(400, 5000)
# The last sample waits to be killed: a run that is over, but for Python's own end, cannot be ended
# in good order.
FAILING = 'sleep 0.00$RANDOM; [ $(<sample.cls) != 399 ] || sleep 1000; [ $RANDOM -gt 16000 ] || exit 4; : "{marker}"'


@pytest.fixture
def marker(tmp_path: Path) -> str:
    return f"marker-{os.getpid()}-{abs(hash(tmp_path))}"


def _whole_or_absent(bench: Bench, code: int) -> None:
    """Whatever has a final name can be read to its end."""
    for name in ("out.tar", "out.tar.failed.tar"):
        if (bench.path / name).exists():
            contents(bench.path / name)
    if code != 3:
        assert not (bench.path / "out.tar").exists()


def _await(bench: Bench, count: int) -> None:
    """Until so many commands are at it; each of them says so, and stays."""
    wait_for(lambda: len(list(bench.path.glob("on-*"))) == count)


ON = ": > ../../../run/on-$(<sample.cls)"


def listening(process: subprocess.Popen[bytes], seconds: float = 120.0) -> None:
    """Wait until the program has begun to run: before, Python ends by the signal itself, and
    nothing was done.
    """
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt"))
        # Python itself catches SIGINT; this one only the program does, and last of all.
        if caught >> (signal.SIGHUP - 1) & 1:
            return
        time.sleep(0.005)
    raise AssertionError(f"tarproc did not begin; exit code {process.poll()}")


@pytest.mark.parametrize("how", ["shell", "python"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ended_at_random_moments(bench: Bench, marker: str, number: signal.Signals, how: str) -> None:
    (bench.path / "m.py").write_text(
        f"import random, time\nMARKER = '{marker}'\n"
        "def f(sample):\n    time.sleep(1000 if sample['cls'] == b'399' else random.random() / 50)\n"
        "    if random.random() < 0.2: raise ValueError\n    return sample\n"
    )
    if how == "shell":
        arguments = ["-c", FAILING.format(marker=marker)]
    else:
        arguments = ["--map", f"{bench.path}/./m.py:f", "--report", f"{marker}.json"]
    seed = random.Random(f"{number}{how}")
    for _ in range(3):
        process = bench.start(*arguments, "in.tar", "-o", "out.tar", "-p", "4", "--max-errors", "100%")
        listening(process)
        time.sleep(seed.random() * 0.7)
        process.send_signal(number)
        code = process.wait(120)
        assert code == 128 + number
        assert gone(marker)
        if bench.leftovers():
            # A signal may come between the making of a file and the next line of Python, which
            # would have noted it. Nothing has a final name then, and the next run takes it away.
            again = bench.start("-c", ":", *arguments[2:], "in.tar", "-o", "out.tar", "--count", "1")
            assert again.wait(120) == 0
            (bench.path / "out.tar").unlink()
        assert bench.leftovers() == []
        _whole_or_absent(bench, code)
        for name in ("out.tar", "out.tar.failed.tar"):
            (bench.path / name).unlink(missing_ok=True)


PROGRAM = """
import os, sys, time
import click
from tarkit.cli.shared.program import run_program

def signal_me():
    os.kill(os.getpid(), int(sys.argv[1]))
    # What the handler raises, is raised here.
    for _ in range(1000):
        pass

class Deleted:
    def __del__(self):
        signal_me()

@click.command()
def program():
    DROPS
    time.sleep(1000)

sys.exit(run_program(program, "program", []))
"""
DROPS = {
    "in a callback": "Deleted()",
    "in a library that passes": "try: signal_me()\n    except: pass",
    "in a library that raises something else": "try: signal_me()\n    except: import no_such_module",
    "... and passes that": "try:\n        try: signal_me()\n        except: int('x')\n    except ValueError: pass",
}


@pytest.mark.parametrize(
    ("where", "number"),
    list(zip(DROPS, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGINT), strict=True)),
)
def test_a_signal_is_not_lost(where: str, number: signal.Signals) -> None:
    """Python and libraries drop what is raised in some places, most of all while they are
    imported."""
    text = PROGRAM.replace("DROPS", DROPS[where])
    done = subprocess.run([sys.executable, "-c", text, str(int(number))], capture_output=True, timeout=120)
    code, word = (130, b"interrupted") if number == signal.SIGINT else (143, b"terminated")
    assert (done.returncode, done.stderr) == (code, b"program: %s\n" % word)


def test_interrupted_again_while_cleaning_up(bench: Bench, marker: str) -> None:
    """People press Ctrl-C more than once."""
    seed = random.Random(4)
    for number in (signal.SIGINT, signal.SIGTERM):
        process = bench.start("-c", f": {marker}; {ON}; sleep 1000.25", "in.tar", "-o", "out.tar", "-p", "8")
        _await(bench, 8)
        for _ in range(4):
            process.send_signal(number)
            time.sleep(seed.random() * 0.004)
        assert process.wait(120) == 128 + number
        assert gone(marker) and bench.leftovers() == []
        for path in bench.path.glob("on-*"):
            path.unlink()


def test_ignored_signals_stay_ignored(bench: Bench) -> None:
    """As nohup has it, and a shell for what it starts in the background."""

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    command = f"{ON}; until [ -e ../../../run/go ]; do sleep 0.01; done"
    process = bench.start("-c", command, "in.tar", "-o", "out.tar", "-p", "4", "--count", "8", preexec_fn=ignore)
    _await(bench, 4)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    (bench.path / "go").touch()
    assert process.wait(120) == 0


def test_hang_up(bench: Bench, marker: str) -> None:
    """The terminal was closed."""
    process = bench.start("-c", f": {marker}; {ON}; sleep 1000.5", "in.tar", "-o", "out.tar", "-p", "2")
    _await(bench, 2)
    process.send_signal(signal.SIGHUP)
    assert process.wait(120) == 143
    assert gone(marker) and bench.leftovers() == []


@pytest.mark.slow
def test_killed_at_random_moments(bench: Bench, marker: str) -> None:
    seed = random.Random(1)
    for turn in range(3):
        process = bench.start(
            "-c", f": {marker}; [ $RANDOM -gt 10000 ]", "in.tar", "-o", "out.tar", "-p", "4", "--max-errors", "100%"
        )
        time.sleep(0.1 + seed.random() * 0.5)
        process.kill()
        code = process.wait(120)
        if code == -9:
            assert not (bench.path / "out.tar").exists() or (bench.path / "out.tar.failed.tar").exists()
        _whole_or_absent(bench, 3)
        for name in ("out.tar", "out.tar.failed.tar"):
            (bench.path / name).unlink(missing_ok=True)
        if turn == 2:
            # The next run leaves nothing of all those behind it.
            assert gone(marker), "what a command of the dead still does is over"
            done = bench.run("-c", "true", "in.tar", "-o", "out.tar")
            assert done.returncode == 0 and bench.members() == contents(bench.path / "in.tar")
            (bench.path / "out.tar").unlink()


def test_killed_by_its_own_command(bench: Bench, marker: str) -> None:
    bench.shard(SAMPLES[:9])
    process = bench.start("-c", f": {marker}; kill -9 $PPID; sleep 0.1", "in.tar", "-o", "out.tar")
    assert process.wait(120) == -9
    assert bench.leftovers() != []
    assert gone(marker)
    assert bench.run("-c", "true", "in.tar", "-o", "out.tar").returncode == 0


def test_other_runs_are_left_alone(bench: Bench) -> None:
    """Cleaning up after the dead must not take from the living."""
    wait = f"{ON}; until [ -e ../../../run/go ]; do sleep 0.2; done"
    bench.shard(SAMPLES[:40])
    slow = bench.start("-c", wait, "in.tar", "-o", "slow.tar", "-p", "4")
    _await(bench, 4)
    for _ in range(2):
        done = bench.run("-c", "true", "in.tar", "-o", "out.tar", tidy=False)
        assert done.returncode == 0
    (bench.path / "go").touch()
    assert slow.wait(120) == 0
    assert (bench.path / "slow.tar").read_bytes() == (bench.path / "out.tar").read_bytes()
    assert bench.leftovers() == []


def test_folders_of_others_are_left_alone(bench: Bench) -> None:
    """What only has a similar name is nobody's to remove."""
    for name in ("tarproc-mine", "tarproc-x"):
        (bench.tmp / name).mkdir()
        (bench.tmp / name / "file").write_text("precious")
        os.utime(bench.tmp / name, (1, 1))
    (bench.tmp / "tarproc-file").write_text("precious")
    assert bench.run("-c", "true", "in.tar", "-o", "out.tar", tidy=False).returncode == 0
    assert sorted(os.listdir(bench.tmp)) == ["tarproc-file", "tarproc-mine", "tarproc-x"]
    assert (bench.tmp / "tarproc-x" / "file").read_text() == "precious"
