"""tarkit cat --raw: the bytes of the inputs as they are, all of them or an exit code that is not
0."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from httpserver import Fault, FaultServer, random_fault
from installed import program_path

Run = Callable[..., Any]
DATA = random.Random(5).randbytes(700_001)
# Retry waits are real here. A server that asks for an hour is given up at once.
BUSY = Fault("status", status=503, headers=(("Retry-After", "3600"),))


def errors(stderr: bytes) -> list[bytes]:
    """Its lines, without those that say that something is tried again."""
    return [line for line in stderr.splitlines() if b"; trying again in " not in line]


def test_any_bytes_in_order(run: Run, tmp_path: Path, server: FaultServer) -> None:
    packed, plain, empty = tmp_path / "a.tgz", tmp_path / "b", tmp_path / "c.zst"
    packed.write_bytes(gzip.compress(DATA[:1000]))
    plain.write_bytes(DATA)
    empty.write_bytes(b"")
    url = server.put("three", b"\x28\xb5\x2f\xfd no zstandard at all")
    expected = packed.read_bytes() + DATA + server.objects["three"].content
    result = run("tarkit", "cat", "--raw", packed, plain, empty, url)
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout == expected
    # A name that ends in .gz says what the bytes are; they are not compressed because of it.
    out = tmp_path / "out.tar.gz"
    result = run("tarkit", "cat", "--raw", packed, plain, empty, url, "-o", out)
    assert (result.code, result.stderr) == (0, f"tarkit cat: 4 inputs, {len(expected)} bytes\n")
    assert out.read_bytes() == expected
    assert run("tarkit", "cat", "--raw", stdin=DATA).stdout == DATA
    assert run("tarkit", "cat", "--raw", "-q", "pipe:printf 'a\\nb'", "-", "-o", out, stdin=b"c").stderr == ""
    assert out.read_bytes() == b"a\nbc"


def test_specs(run: Run, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode() * 3)
    (tmp_path / "list").write_text(f"{tmp_path}/c\n{tmp_path}/a\n")
    assert run("tarkit", "cat", "--raw", f"{tmp_path}/{{b..a}}", f"@{tmp_path}/list").stdout == b"bbbaaacccaaa"


def test_what_can_not_be(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "in").write_bytes(b"x")
    for more, code, said in (
        (("--on-damage", "skip", tmp_path / "in"), 2, "--on-damage does not go with --raw"),
        (("--key-rule", "last-dot", tmp_path / "in"), 2, "--key-rule does not go with --raw"),
        ((tmp_path / "in", tmp_path / "nosuch"), 66, "no such file"),
        ((tmp_path,), 1, "is a directory"),
        ((tmp_path / "in", "pipe:echo half; exit 4"), 1, "exit status 4"),
    ):
        result = run("tarkit", "cat", "--raw", *more, "-o", out)
        assert (result.code, said in result.stderr) == (code, True), result.stderr
        assert not out.exists()


def test_a_local_file_that_is_cut_meanwhile(spawn: Run, tmp_path: Path) -> None:
    path, out = tmp_path / "in", tmp_path / "out"
    path.write_bytes(bytes(64 << 20))
    pipe = subprocess.Popen(
        [program_path("tarkit"), "cat", "--raw", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert pipe.stdout is not None
    pipe.stdout.read(1)
    os.truncate(path, 32 << 20)
    _, stderr = pipe.communicate(timeout=300)
    assert b"changed while it was read: it had 67108864 bytes, and has 33554432" in stderr
    assert pipe.returncode == 75
    assert spawn("tarkit", "cat", "--raw", path, "-o", out).code == 0
    assert out.stat().st_size == 32 << 20


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        ([Fault("cut", 100_000), Fault("reset", 300_000), Fault("drop")], 0),
        ([Fault("longer", 10)], 1),
        ([Fault("status", status=404)], 66),
        ([Fault("cut", 100_000), BUSY], 75),
        ([Fault("cut", 100_000), Fault("replace")], 1),
    ],
)
def test_one_schedule(spawn: Run, tmp_path: Path, server: FaultServer, faults: list[Fault], code: int) -> None:
    out = tmp_path / "out"
    url = server.put("one", DATA, *faults)
    result = spawn("tarkit", "cat", "--raw", url, "-o", out)
    assert result.code == code, result.stderr
    assert out.read_bytes() == DATA if code == 0 else not out.exists()
    assert len(errors(result.stderr.encode())) == 1
    server.put("one", DATA, *faults)
    result = spawn("tarkit", "cat", "--raw", url)
    assert (result.code, len(errors(result.stderr.encode()))) == (code, int(code > 0))
    # Standard output cannot take back what was good and came before the fault.
    assert result.stdout == DATA if code == 0 else DATA.startswith(result.stdout)


@pytest.mark.parametrize(("faults", "code"), [([], 0), ([BUSY], 75)])
def test_a_chunk_size_cut_after_its_zeros_is_not_the_end(
    run: Run, tmp_path: Path, server: FaultServer, faults: list[Fault], code: int
) -> None:
    # Sizes are of eight digits, and chunks of 997 bytes: what is cut here is the fourth size, after
    # "000".
    cut = 3 * (8 + 2 + 997 + 2) + 3
    url = server.put("zeros", DATA, Fault("frame", cut), *faults, chunked=True)
    out = tmp_path / "out"
    result = run("tarkit", "cat", "--raw", url, "-o", out)
    assert result.code == code, result.stderr
    assert out.read_bytes() == DATA if code == 0 else not out.exists()


def test_random_schedules(server: FaultServer, tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    running: list[tuple[int, str, list[Fault], subprocess.Popen[bytes]]] = []
    for seed in range(10):
        draw = random.Random(seed)
        faults: list[Fault] = []
        wanted = draw.randrange(1, 5)
        while len(faults) < wanted:
            fault = random_fault(draw, len(DATA), first=not faults)
            # The silence of a server is waited out for a minute: that is tested with a shorter
            # patience.
            if fault.kind != "stall":
                faults.append(fault)
        url = server.put(f"random{seed}", DATA, *faults)
        server.objects[f"random{seed}"].conditions = draw.random() < 0.5
        server.objects[f"random{seed}"].chunked = seed % 2 == 1
        out = open(tmp_path / f"{seed}", "wb")
        command = [program_path("tarkit"), "cat", "--raw", url]
        with out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE)
        running.append((seed, url, faults, process))
    for each in running:
        outcomes.update(_ended(tmp_path, *each))
    assert outcomes["whole"] > 3, outcomes


def _ended(folder: Path, seed: int, url: str, faults: list[Fault], process: subprocess.Popen[bytes]) -> Counter[str]:
    _, stderr = process.communicate(timeout=300)
    got = (folder / f"{seed}").read_bytes()
    both = (DATA, bytes(255 - byte for byte in DATA))
    if process.returncode == 0:
        assert got in both, f"seed {seed}: {len(got)} of {len(DATA)} bytes and exit code 0: {faults}"
        assert not errors(stderr)
        return Counter(whole=1)
    assert process.returncode in (1, 75), f"seed {seed}: {stderr!r}"
    assert len(errors(stderr)) == 1
    assert any(whole.startswith(got) for whole in both), f"seed {seed}: {faults}"
    return Counter(error=1)


def test_a_reader_that_closes_early_is_success(shell: Run, server: FaultServer, tmp_path: Path) -> None:
    url = server.put("large", bytes(64 << 20))
    started = time.monotonic()
    result = shell(f"set -o pipefail; tarkit cat --raw {url} | head -c 10 | wc -c")
    assert (result.code, result.stdout.split(), result.stderr) == (0, [b"10"], "")
    assert time.monotonic() - started < 120
    result = shell("set -o pipefail; tarkit cat --raw 'pipe:yes' | head -c 10 | wc -c")
    assert (result.code, result.stdout.split(), result.stderr) == (0, [b"10"], "")


def test_a_pipeline_sees_the_failure(shell: Run, server: FaultServer) -> None:
    url = server.put("broken", DATA, Fault("cut", 100_000), BUSY)
    result = shell(f"set -o pipefail; tarkit cat --raw {url} | cat >/dev/null")
    assert (result.code, "503" in result.stderr) == (75, True)
