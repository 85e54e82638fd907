"""Standard input and output: endless, closed early, closed from the start, a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tarproc_support import TARPROC, Bench, contents, gone, numbered, one_line, tar_bytes
from waiting import wait_for

ENDLESS = """\
import io, os, sys, tarfile
with os.fdopen(1, "wb") as out:
    archive = tarfile.open(fileobj=out, mode="w|")
    number = 0
    while True:
        for field, size in (("cls", 3), ("dat", int(sys.argv[1]))):
            info = tarfile.TarInfo(f"k{number}.{field}")
            info.size = size
            archive.addfile(info, io.BytesIO(bytes(size)))
        number += 1
"""


@pytest.fixture
def bench(bench: Bench) -> Bench:
    (bench.path / "endless.py").write_text(ENDLESS)
    return bench


def _bash(bench: Bench, script: str, timeout: float = 300) -> subprocess.CompletedProcess[bytes]:
    script = script.replace("tarproc", TARPROC).replace("ENDLESS", f"{sys.executable} endless.py 1000 2>/dev/null")
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=bench.path,
        env=bench.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
    )
    assert b"Traceback" not in done.stderr, done.stderr
    assert bench.leftovers() == []
    return done


def test_endless_input_with_count(bench: Bench) -> None:
    done = _bash(bench, "ENDLESS | tarproc -c 'cat __key__; echo' --count 5 -p 2 -o out.tar")
    assert done.returncode == 0
    assert done.stdout == b"k0\nk1\nk2\nk3\nk4\n"
    assert len(bench.members()) == 10


def test_reader_of_the_tar_goes_away(bench: Bench) -> None:
    done = _bash(bench, "ENDLESS | tarproc -c true -p 2 -o - | head -c 100000 > got; echo ${PIPESTATUS[1]}")
    assert done.stdout == b"0\n"
    assert (bench.path / "got").stat().st_size == 100_000


def test_reader_of_the_output_goes_away(bench: Bench) -> None:
    """Without -o what is printed is all there is, so that its reader decides."""
    done = _bash(bench, "ENDLESS | tarproc -c 'cat __key__; echo' -p 2 | head -2; echo ${PIPESTATUS[1]}")
    assert done.stdout == b"k0\nk1\n0\n"


@pytest.mark.parametrize("reader", ["| head -1; echo ${PIPESTATUS[0]}", ">&- 2>&-; echo $?"])
def test_what_commands_print_is_not_read(bench: Bench, reader: str) -> None:
    """The samples are wanted all the same."""
    bench.shard(numbered(60))
    done = _bash(bench, f"tarproc -c 'seq 1000; echo err >&2' in.tar -o out.tar {reader}")
    assert done.stdout.endswith(b"0\n"), done.stderr
    assert len(bench.members()) == 120


def test_reader_of_the_messages_goes_away(bench: Bench) -> None:
    bench.shard(numbered(60))
    done = _bash(bench, "tarproc -c 'seq 1000' in.tar -o - 2> >(head -1 >/dev/null) > got; echo $?")
    assert done.stdout == b"0\n"
    assert len(contents(bench.path / "got")) == 120


def test_full_standard_output(bench: Bench) -> None:
    done = _bash(bench, "tarproc -c 'seq 1000' in.tar -o out.tar > /dev/full; echo $? >&2")
    assert done.stderr.endswith(b"1\n")
    assert not (bench.path / "out.tar").exists()
    done = _bash(bench, "tarproc -c true in.tar -o - > /dev/full; echo $? >&2")
    assert done.stderr.endswith(b"1\n") and b"no space left" in done.stderr


def test_closed_standard_input(bench: Bench) -> None:
    done = _bash(bench, "tarproc -c ls -o out.tar <&-; echo $?")
    assert done.stdout in (b"1\n", b"66\n", b"2\n"), done.stderr
    assert not (bench.path / "out.tar").exists()
    one_line(done.stderr)
    # A named input does not need it.
    done = _bash(bench, "tarproc -c 'cat; ls' in.tar -o out.tar <&-; echo $?")
    assert done.stdout.endswith(b"0\n") and len(bench.members()) == 6


def test_closed_standard_output_for_the_commands(bench: Bench) -> None:
    done = _bash(bench, "tarproc -c ls in.tar >&-; echo $?")
    assert done.stdout == b"1\n"
    one_line(done.stderr)


def test_all_closed(bench: Bench) -> None:
    for arguments in ("-c 'ls; ls >&2' in.tar -o out.tar", "--map m.py:f in.tar -o out.tar", "-c 'exit 1' in.tar"):
        (bench.path / "m.py").write_text("def f(sample):\n    print('hello', flush=True)\n    return sample\n")
        (bench.path / "out.tar").unlink(missing_ok=True)
        done = _bash(bench, f"tarproc {arguments} <&- >&- 2>&-; echo $?")
        assert done.stdout == (b"1\n" if "exit" in arguments else b"0\n")
        if "out.tar" in arguments:
            assert bench.members() == contents(bench.path / "in.tar")


def _on_a_terminal(bench: Bench, *arguments: str, stdin: int | None = None) -> tuple[int, bytes, bytes]:
    """Exit code, what the terminal shows, and standard error, which is the terminal if stdin is."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [TARPROC, *arguments],
        cwd=bench.path,
        env=bench.env,
        stdin=slave if stdin is None else stdin,
        stdout=slave,
        stderr=slave if stdin is None else subprocess.PIPE,
    )
    os.close(slave)
    shown = bytearray()

    def collect() -> None:
        try:
            while piece := os.read(master, 65536):
                shown.extend(piece)
        except OSError:
            return

    reader = threading.Thread(target=collect)
    reader.start()
    stderr = process.stderr.read() if process.stderr else b""
    code = process.wait(120)
    if process.stderr:
        process.stderr.close()
    reader.join()
    os.close(master)
    return code, bytes(shown), stderr


def test_terminal(bench: Bench) -> None:
    code, shown, stderr = _on_a_terminal(bench, "-c", "true", "in.tar", "-o", "-", stdin=subprocess.DEVNULL)
    assert code == 2 and shown == b"" and b"not written to a terminal" in stderr
    code, shown, _ = _on_a_terminal(bench, "-c", "true", "-o", "out.tar")
    assert code == 2 and b"no input" in shown
    code, shown, _ = _on_a_terminal(bench, "-c", "cat __key__; echo", "in.tar", "-o", "out.tar")
    assert code == 0 and b"in 3 = out 3" in shown
    lines = re.sub(rb"\x1b\[[0-9;]*[A-Za-z]", b"", shown).replace(b"\r", b"\n").split(b"\n")
    assert [line for line in lines if line in (b"k0", b"k1", b"k2")] == [b"k0", b"k1", b"k2"]


def test_output_comes_when_a_sample_is_done(bench: Bench) -> None:
    """Not when the input has ended, which might be hours later."""
    whole = tar_bytes(numbered(40))
    process = bench.start("-c", "cat __key__; echo", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin and process.stdout
    process.stdin.write(whole[: 20 * 4 * 512])
    process.stdin.flush()
    timer = threading.Timer(120, process.kill)
    timer.start()
    assert process.stdout.readline() == b"k0\n"
    timer.cancel()
    process.stdin.write(whole[20 * 4 * 512 :])
    process.stdin.close()
    assert process.stdout.read().count(b"\n") == 39
    assert process.wait(120) == 0
    process.stdout.close()


def _resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0])


@pytest.mark.slow
def test_memory_stays_flat(bench: Bench) -> None:
    producer = subprocess.Popen(
        [sys.executable, "endless.py", "100000"], cwd=bench.path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    command = f": {bench.path}; echo; sleep 0.01"
    # Little may wait for a command that is late, however late that is.
    process = bench.start(
        "-p", "8", "--mem", "4M", "-c", command, "-o", "/dev/null",
        stdin=producer.stdout, stdout=subprocess.PIPE, bufsize=0,
    )  # fmt: skip
    assert producer.stdout and process.stdout
    producer.stdout.close()
    sizes = []
    # After so many samples each, whatever time they take.
    for _ in range(20):
        for _ in range(20):
            assert process.stdout.read(1) == b"\n"
        sizes.append(_resident(process.pid))
    process.terminate()
    assert process.wait(120) == 143
    process.stdout.close()
    producer.wait(120)
    assert max(sizes) < 110_000
    assert max(sizes[10:]) < max(sizes[:10]) * 1.1 + 5_000
    assert bench.leftovers() == [] and gone(str(bench.path))


def test_slow_command_does_not_let_the_reader_run_ahead(bench: Bench) -> None:
    producer = subprocess.Popen(
        [sys.executable, "endless.py", "100000"], cwd=bench.path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    command = "if [ $(cat __key__) = k0 ]; then sleep 100; fi"
    process = bench.start("-p", "4", "--mem", "20M", "-c", command, "-o", "/dev/null", stdin=producer.stdout)
    assert producer.stdout
    producer.stdout.close()
    read = [0]

    def waits() -> bool:
        # For the slow command: it reads no more for a second.
        time.sleep(1)
        read.append(int(re.findall(r"rchar: (\d+)", Path(f"/proc/{process.pid}/io").read_text())[0]))
        return read[-2] == read[-1] > 15_000_000

    wait_for(waits)
    assert _resident(process.pid) < 110_000
    process.terminate()
    assert process.wait(120) == 143
    producer.wait(120)
