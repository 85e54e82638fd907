"""Where what commands and mappers print goes: stdout to stdout, stderr to stderr, each whole for
each sample.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from tarproc_support import TARPROC, Bench, contents, numbered

SAMPLES = numbered(6)
BOTH = "for n in 1 2; do echo $(cat __key__) out; echo $(cat __key__) err >&2; done"
OUT = b"".join(b"k%d out\nk%d out\n" % (n, n) for n in range(6))
ERR = OUT.replace(b"out", b"err")


@pytest.mark.parametrize("output", [[], ["-o", "out.tar"], ["-O", "outs"]], ids=["none", "file", "folder"])
def test_stdout_and_stderr_are_kept_apart(bench: Bench, output: list[str]) -> None:
    done = bench.run("-q", "-p", "3", "-c", BOTH, "in.tar", *output)
    assert (done.returncode, done.stdout, done.stderr) == (0, OUT, ERR)


def test_both_go_to_stderr_when_the_tar_goes_to_stdout(bench: Bench) -> None:
    done = bench.run("-q", "-p", "3", "-c", BOTH, "in.tar", "-o", "-")
    assert contents(done.stdout) == contents(bench.path / "in.tar")
    lines = [b"k%d %s\n" % (n, stream) for n in range(6) for stream in (b"out", b"out", b"err", b"err")]
    assert done.stderr == b"".join(lines)


def test_log_field_has_stdout_then_stderr(bench: Bench) -> None:
    done = bench.run("-q", "-c", BOTH, "--add-log", "log", "in.tar", "-o", "out.tar")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert bench.members()["k3.log"] == b"k3 out\nk3 out\nk3 err\nk3 err\n"


def test_a_long_log_is_kept_whole_and_not_in_memory(bench: Bench) -> None:
    script = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:])\n"
        "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    command = "[ $(cat sample.cls) != 1 ] || { yes | head -c 60000000; yes no | head -c 60000000 >&2; }"
    words = [TARPROC, "-q", "-c", command, "--add-log", "log", "in.tar", "-o", "out.tar"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=bench.path, env=bench.env, capture_output=True, check=True
    )
    code, kilobytes = map(int, done.stdout.split())
    assert code == 0 and kilobytes < 100_000, done.stderr
    log = bench.members()["k1.log"]
    assert log == b"y\n" * 30_000_000 + b"no\n" * 20_000_000
    assert bench.leftovers() == []


def test_error_file_keeps_the_end_of_stderr_before_that_of_stdout(bench: Bench) -> None:
    command = (
        "seq 3000; case $(cat sample.cls) in 1) seq 2000 >&2;; 2) echo why >&2;; esac; [ $(cat sample.cls) -gt 2 ]"
    )
    done = bench.run("-q", "-c", command, "in.tar", "-o", "out.tar")
    assert done.returncode == 3
    failed = bench.members("out.tar.failed.tar")
    seq = b"".join(b"%d\n" % n for n in range(1, 3001))
    cut = b"--- %s (the last %d of %d bytes) ---\n"
    why = b"exit code 1: line 1: [ $(cat sample.cls) -gt 2 ]; add `|| true` if that is meant\n"
    assert failed["k0.__error__.txt"] == why + cut % (b"stdout", 4096, len(seq)) + seq[-4096:]
    assert failed["k2.__error__.txt"] == (
        why + b"--- stderr ---\nwhy\n" + cut % (b"stdout", 4092, len(seq)) + seq[-4092:]
    )
    err = seq[: seq.index(b"2000\n") + 5]
    assert failed["k1.__error__.txt"] == (
        why + cut % (b"stderr", 4096, len(err)) + err[-4096:] + cut % (b"stdout", 0, len(seq))
    )
    for line in (b"k2: " + why.replace(b"\n", b": why\n"), b"k0: " + why.replace(b"\n", b": 3000\n")):
        assert line in done.stderr


MAPPERS = """
import os, subprocess, sys

def both(sample):
    key = sample["__key__"]
    print(key, "out")
    subprocess.run(f"echo {key} err >&2; echo {key} out", shell=True, check=True)
    print(key, "err", file=sys.stderr)
    return sample

def raises(sample):
    if sample["cls"] == b"1":
        raise ValueError("x" * 300_000)
    return sample

def much(sample):
    if sample["cls"] in (b"1", b"2"):
        for n in range(100_000):
            print(n)
        print("end", file=sys.stderr)
    return sample
"""


def test_of_a_mapper(bench: Bench) -> None:
    (bench.path / "m.py").write_text(MAPPERS)
    done = bench.run("-q", "--map", "m.py:both", "in.tar", "-o", "out.tar")
    assert (done.returncode, done.stdout, done.stderr) == (0, OUT, ERR)


def test_of_a_mapper_that_prints_much(bench: Bench) -> None:
    """More than travels with an answer."""
    (bench.path / "m.py").write_text(MAPPERS)
    done = bench.run("-q", "--map", "m.py:much", "in.tar", "-o", "out.tar")
    assert done.returncode == 0 and done.stderr == b"end\nend\n"
    assert done.stdout == b"".join(b"%d\n" % n for n in range(100_000)) * 2


def test_error_file_of_a_long_message_is_bounded(bench: Bench) -> None:
    (bench.path / "m.py").write_text(MAPPERS)
    done = bench.run("-q", "--map", "m.py:raises", "in.tar", "-o", "out.tar")
    assert done.returncode == 3
    error = bench.members("out.tar.failed.tar")["k1.__error__.txt"]
    assert error.startswith(b"ValueError: xxx") and "…(300012 characters)…".encode() in error
    # The report has at most about 3,000 characters of the message; the traceback's own line is
    # bounded, too.
    assert 3000 < len(error) < 10_000
