"""What the tests start has the signals of a program in a terminal, however the tests themselves
were started.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


def test_no_ending_signal_is_ignored_in_a_child() -> None:
    code = f"import signal; print([n for n in {[int(n) for n in ENDING]} if signal.getsignal(n) == signal.SIG_IGN])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("options", ["", "-n 1"])
def test_nor_under_nohup_in_the_background(options: str, tmp_path: Path) -> None:
    if options:
        pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    again = f"{__file__}::{test_no_ending_signal_is_ignored_in_a_child.__name__}"
    command = f"trap '' HUP INT QUIT; exec {sys.executable} -m pytest -q -p no:cacheprovider {options} {again}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
