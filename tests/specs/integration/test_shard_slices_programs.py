"""Slices of inputs in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tarkit
import tarkit.specs.inputslice
from tarkit.specs.shardspec import expand


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="NO /proc HERE, PEAKS OF MEMORY ARE NOT MEASURED")
def test_ten_million_by_pattern_are_nothing_to_a_pod() -> None:
    program = (
        "import time\n"
        "from tarkit.specs.inputslice import plan_slice\n"
        # Not ru_maxrss: a process begins with that of the one that started it.
        "def peak():\n"
        "    with open('/proc/self/status') as status:\n"
        "        return next(int(line.split()[1]) for line in status if line.startswith('VmHWM:'))\n"
        "before = peak()\n"
        "pairs = plan_slice(['s3://b/x-{0000000..9999999}.tar'], 'gs://out/d', 5000, 10000)[0]\n"
        "print(len(pairs), pairs[0][0], pairs[-1][0], time.process_time(), (peak() - before) / 1024)\n"
    )
    folder = str(Path(tarkit.__file__).parent.parent)
    env = {**os.environ, "PYTHONPATH": folder}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    number, first, last, seconds, megabytes = done.stdout.split()
    assert (number, first, last) == ("1000", "s3://b/x-5000000.tar", "s3://b/x-5000999.tar")
    assert float(seconds) < 3 and float(megabytes) < 20


def test_a_list_from_a_named_pipe(tmp_path: Path) -> None:
    program = (
        'import sys; from tarkit.specs.inputslice import plan_slice; print(*plan_slice(sys.argv[1:], "/o", 1, 2)[0])'
    )
    command = f"{sys.executable} -c '{program}'"
    done = subprocess.run(
        ["bash", "-c", f"{command} @<(printf '/a\\n/b\\n')"],
        cwd=Path(tarkit.__file__).parent.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "('/b', '/o/b')\n"


def all_of(spec: object, **options: bool) -> list[str]:
    return list(expand(spec, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", ["{000..012}", "x{3..1}y", "{a,b}{1..2}", "{01..10}", "{a,b{1..2}}.tar"])
def test_braces_agree_with_bash(pattern: str) -> None:
    bash = subprocess.run(["bash", "-c", f"printf '%s\\n' {pattern}"], capture_output=True, text=True, check=True)
    assert all_of(pattern) == bash.stdout.split()
